"""explain: the anatomy of a kernel, from its PTX, and from observed simulated launches."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cutepy.anatomy.accesses import costly_accesses
from cutepy.anatomy.advice import advisories_of, register_changes, resources_of
from cutepy.anatomy.barriers import barriers_of, names_of, static_barriers
from cutepy.anatomy.copies import copies_of
from cutepy.anatomy.costs import Costs
from cutepy.anatomy.explanation import Explanation
from cutepy.anatomy.mmas import mmas_of
from cutepy.anatomy.model import Dim3, Kernel, LaunchFacts, Resources
from cutepy.anatomy.smem import seen_regions, static_regions, variables
from cutepy.anatomy.tensor_memory import allocations_of
from cutepy.anatomy.values import Values
from cutepy.anatomy.watch import LaunchRecord, Watch
from cutepy.binaries.cubin import read_resources
from cutepy.binaries.ptxas import Assembly, AssemblyError, assemble
from cutepy.host.environment import cuda_home
from cutepy.sim.machine.launch import place_shared
from cutepy.sim.machine.shared_memory import planned_regions
from cutepy.sim.ptx import Function, Module, UnreadStatement, parse_module
from cutepy.sim.ptx.kernel_names import readable

_EXPLAINED = (
    "",
    "sm_90",
    "sm_90a",
    *(f"sm_{number}{suffix}" for number in (100, 103, 120) for suffix in ("", "a", "f")),
)
_ADDRESSES = "addresses of shared memory count from the CTA's first byte, after the 1024 that the system keeps"
_SEEN = (
    "of launches in the simulator: what another launch does may differ; who had to wait is of the simulator's schedule"
)
_STATIC = "what only a launch decides is 'known at launch': explain a script that launches the kernel to see it"


class ExplainError(ValueError):
    """Error of a source without a kernel, or that is no PTX."""


def explain(
    source: Any,  # noqa: ANN401
    *,
    assembler: bool = True,
    name: str | None = None,
    costs: Costs | None = None,
) -> Explanation:
    """Explain kernels: their MMAs, copies, barriers, shared memory, registers, and ptxas's advice.

    Parameters
    ----------
    source : str, path, Watch or object with ``ptx``
        PTX as text, or a file that ends in ``.ptx``: the explanation marks values that only a launch determines. A
        `Watch` that observed simulated launches adds their values. An object with a text ``ptx``, such as a compiled
        function or a launch, counts as its PTX.
    assembler : bool
        True to run ptxas, if it is installed, for registers, spills and advisories.
    name : str, optional
        Name of the source in the explanation.
    costs : Costs, optional
        Timer of the launches that a `Watch` saw: the explanation tells slow places with their predicted cost.

    Raises
    ------
    ExplainError
        If the source has no kernel or no launch, the file does not exist, or the PTX is for an architecture other than
        sm_90, sm_100, sm_103 and sm_120.

    Examples
    --------
    >>> ptx = ".version 8.0 .target sm_90a .visible .entry k() { .reg .b32 %r<2>; bar.sync 1, 128; ret; }"
    >>> kernel, = explain(ptx, assembler=False).kernels
    >>> kernel.barriers[0].name, kernel.barriers[0].arrivals
    ('bar 1', 128)
    """
    if isinstance(source, Watch):
        return _of_watch(source, assembler, name or "simulated launches", costs)
    if not isinstance(source, str | os.PathLike) and isinstance(getattr(source, "ptx", None), str):
        name = name or getattr(source, "__name__", None) or type(source).__name__
        return _of_ptx(source.ptx, assembler, name, getattr(source, "cubin", b""))
    if isinstance(source, os.PathLike) or (isinstance(source, str) and "\n" not in source and ".entry" not in source):
        path = Path(source)
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise ExplainError(f"{path} can't be read: {error.strerror or error}") from error
        return _of_ptx(text, assembler, name or path.name)
    if isinstance(source, str):
        return _of_ptx(source, assembler, name or "PTX")
    raise TypeError(f"expected PTX, a .ptx file, a Watch or an object with ptx, got {type(source).__name__}")


@dataclass
class _ParsedModule:
    """Parsed module, with its assembly."""

    text: str
    module: Module
    unread: list[UnreadStatement]
    assembly: Assembly | None
    refusal: str
    version: str
    cubin: bytes

    def resources(self, kernel: str, launch: LaunchFacts) -> Resources | None:
        """Return the resources of a kernel by ptxas, else by the cubin."""
        if self.assembly is not None:
            return resources_of(kernel, self.assembly.resources, f"ptxas {self.assembly.version}".strip(), launch)
        return resources_of(kernel, read_resources(self.cubin), "its cubin", launch) if self.cubin else None


def _parsed(
    text: str, module: Module, unread: list[UnreadStatement], assembler: bool, cubin: bytes = b""
) -> _ParsedModule:
    assembly, refusal = None, "ptxas was not asked"
    if assembler:
        try:
            assembly = assemble(text, module.target or "sm_90a", cuda_home())
        except AssemblyError as error:
            refusal = str(error)
    version = "" if module.version is None else ".".join(map(str, module.version))
    return _ParsedModule(text, module, unread, assembly, refusal, version, cubin)


def _of_ptx(text: str, assembler: bool, name: str, cubin: bytes = b"") -> Explanation:
    """Explain PTX without observed launches."""
    if ".entry" not in text:
        raise ExplainError(
            f"{name} has no kernel: expected PTX with an .entry, as compilers write it (--keep-ptx, nvcc -ptx)"
        )
    text = text.rstrip("\0")
    unread: list[UnreadStatement] = []
    module = parse_module(text, unread)
    _check_target(module, name)
    parsed = _parsed(text, module, unread, assembler, cubin)
    if not module.functions:
        raise ExplainError(f"{name} has no kernel that could be read, though it says .entry; is it PTX?")
    kernels = tuple(_kernel(parsed, function, None) for function in parsed.module.functions.values())
    return Explanation(name, kernels, parsed.version, parsed.module.target, (_STATIC, _ADDRESSES))


def _check_target(module: Module, name: str) -> None:
    target = module.target.partition(",")[0].strip()
    if target not in _EXPLAINED:
        raise ExplainError(
            f"{name} is for {target}, and the instructions that are explained are those of sm_90a, sm_100a, "
            "sm_103a and sm_120a: compile it for one of these (nvcc -arch=sm_90a -ptx, CUTE_DSL_ARCH=sm_90a)"
        )


def _of_watch(watch: Watch, assembler: bool, name: str, costs: Costs | None) -> Explanation:
    seen = list(watch.kernels)
    if not seen:
        raise ExplainError(f"{name} launched no kernel; call a compiled function within the run")
    parsed: dict[str, _ParsedModule] = {}
    for one in seen:
        text = one.launches[0].ptx
        if text not in parsed:
            plain, unread = text.rstrip("\0"), list[UnreadStatement]()
            module = parse_module(plain, unread)
            _check_target(module, f"the PTX of kernel {one.launches[0].kernel}, which {name} launched,")
            parsed[text] = _parsed(plain, module, unread, assembler)
    kernels = tuple(
        _kernel(parsed[one.launches[0].ptx], parsed[one.launches[0].ptx].module.functions[one.launches[0].kernel], one)
        for one in seen
    )
    if costs is not None:
        kernels = tuple(
            _with_costs(kernel, (one.launches[0].ptx, one.launches[0].kernel), costs)
            for kernel, one in zip(kernels, seen, strict=True)
        )
    first = parsed[seen[0].launches[0].ptx]
    return Explanation(name, kernels, first.version, first.module.target, (_SEEN, _ADDRESSES))


def _with_costs(kernel: Kernel, key: tuple[str, str], costs: Costs) -> Kernel:
    """Add the slow places of a kernel's launch, or why there are none."""
    found = costs.found.get(key)
    if found is None:
        return replace(kernel, unpredicted=costs.unpredicted.get(key, "times are predicted of kernels for Hopper only"))
    base, places = found
    cut = "the search took too long: places may be missing" if key in costs.unfinished else ""
    return replace(kernel, slow_places=places, predicted_us=base.us, predicted_gpu=base.gpu, unpredicted=cut)


def _kernel(parsed: _ParsedModule, function: Function, seen: LaunchRecord | None) -> Kernel:
    module = parsed.module
    shared, _ = place_shared(module, function)
    values = Values(function, shared)
    symbols = variables(module, function.variables, shared)
    launch = _launch_facts(function, seen, max((end for _, end in symbols.values()), default=0), module)
    found, initialised = static_barriers(function, values)
    names = names_of(initialised if seen is None else seen.initialised)
    barriers = barriers_of(values, seen, names, found)
    planned = planned_regions(parsed.text, module, function, shared)
    regions = static_regions(symbols, barriers) if seen is None else seen_regions(seen, barriers, symbols, planned)
    assembly = parsed.assembly
    resources = parsed.resources(function.name, launch)
    refusal = parsed.refusal if assembly is None else "" if resources else "ptxas tells nothing of this kernel"
    first, last = (function.instructions[n].line if function.instructions else 0 for n in (0, -1))
    alone = len(module.functions) == 1
    return Kernel(
        readable(function.name),
        function.name,
        seen is not None,
        launch,
        resources,
        refusal,
        advisories_of(function, assembly, len(module.functions)) if assembly else (),
        register_changes(function, values),
        mmas_of(function, values, None if seen is None else seen.mmas),
        copies_of(function, values, seen, names),
        barriers,
        regions,
        allocations_of(function, values, seen),
        () if seen is None else costly_accesses(seen.accesses.values()),
        unread=tuple(
            f"PTX line {u.line}: {u.text} ({u.reason})" for u in parsed.unread if alone or first <= u.line <= last
        ),
    )


def _launch_facts(function: Function, seen: LaunchRecord | None, static_bytes: int, module: Module) -> LaunchFacts:
    directives: Mapping[str, tuple[int, ...]] = function.directives
    most = directives.get("maxntid")
    threads = None
    if most:
        threads = 1
        for extent in most:
            threads *= extent
    if seen is not None:
        launches = seen.launches
        blocks, clusters = {one.block for one in launches}, {one.cluster for one in launches}
        smem = {one.dynamic_smem_bytes for one in launches}
        return LaunchFacts(
            len(launches),
            tuple(dict.fromkeys(one.grid for one in launches)),
            blocks.pop() if len(blocks) == 1 else None,
            clusters.pop() if len(clusters) == 1 else None,
            static_bytes,
            smem.pop() if len(smem) == 1 else None,
            threads,
        )
    extern = {v.name for v in (*module.variables, *function.variables) if v.space == "shared" and v.size_bytes is None}
    dynamic = any(name in i.text for i in function.instructions for name in extern)
    return LaunchFacts(
        None,
        (),
        _dim3(directives.get("reqntid")),
        _dim3(directives.get("reqnctapercluster")),
        static_bytes,
        None if dynamic else 0,
        threads,
    )


def _dim3(extents: tuple[int, ...] | None) -> Dim3 | None:
    if not extents:
        return None
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z
