"""Run PTX through the simulator and record which instructions ran: text in, arrays out, in milliseconds.

`launch` runs the body of a kernel; `apply` runs an instruction (or a few) on each element of arrays. What a body
executes is recorded (`coverage`). What the runner adds itself, to load operands and store results, is not.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cutepy.sim import Launch
from cutepy.sim.machine.launch import KernelCall
from cutepy.sim.machine.loaded_module import LoadedModule
from cutepy.sim.run import Run
from tests.sim.coverage import RUNNER

BODY_FILE = "kernel.py"

_REGISTERS = """.reg .pred %p<64>; .reg .b16 %rs<64>; .reg .b32 %r<400>; .reg .b64 %rd<64>; .reg .f32 %f<400>;
.reg .f64 %fd<64>;"""
_PTX_TYPES = {"u1": "b16", "i1": "b16", "u2": "b16", "i2": "b16", "f2": "b16", "u4": "b32", "i4": "b32", "f4": "f32"}
_PTX_TYPES |= {"u8": "b64", "i8": "b64", "f8": "f64"}
_BLOCK = 256


def launch(
    body: str,
    *arguments: Any,
    grid: int | tuple[int, int, int] = 1,
    block: int | tuple[int, int, int] = 32,
    cluster: int | tuple[int, int, int] | None = 1,
    smem_bytes: int = 0,
    before: str = "",
    after: str = "",
    module: str = "",
    directives: str = "",
    assembles: bool = True,
    run: Run | None = None,
    stream: int = 0,
    programmatic: bool = False,
    early_events: tuple[int, ...] = (),
    target: str = "sm_90a",
) -> Launch:
    """Run a kernel's body.

    Parameters
    ----------
    body : str
        PTX. Parameters are p0, p1, ...; %p, %rs, %r, %rd, %f and %fd registers are declared.
    *arguments
        Arrays are passed by address (.u64), bytes as they are (.b8[n], 64-byte aligned), ints as .u32.
    grid, block, cluster : int or tuple
        A cluster of None is a launch without clusters.
    smem_bytes : int
        Dynamic shared memory, named smem.
    before, after : str
        PTX around the body that is not recorded.
    module : str
        PTX at module scope.
    directives : str
        Performance directives of the entry.
    assembles : bool
        Whether the PTX is valid for the target; only checked where CUTEPY_TEST_PTXAS names an assembler.
    run : Run, optional
        Where to run: one with observers, say.
    stream, programmatic, early_events
        As of `KernelCall`.
    target : str
        Of the module.
    """
    run = run or Run((), None)
    parameters, values = [], []
    for n, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray):
            run.adopt(argument)
            parameters.append(f".param .u64 p{n}")
            values.append(np.array([argument.ctypes.data], np.uint64).tobytes())
        elif isinstance(argument, bytes):
            parameters.append(f".param .align 64 .b8 p{n}[{len(argument)}]")
            values.append(argument)
        else:
            parameters.append(f".param .u32 p{n}")
            values.append(np.array([argument & 0xFFFFFFFF], np.uint32).tobytes())
    lines = [f".loc 1 {n} 0\n{line}" for n, line in enumerate(body.strip().splitlines(), 1)]
    text = f"""
.version {"8.7" if target == "sm_90a" else "8.8"}
.target {target}
.address_size 64
{module}
.extern .shared .align 1024 .b8 smem[];
.visible .entry kernel({", ".join(parameters)}) {directives}
{{
{_REGISTERS}
.loc 2 1 0
{before}
{chr(10).join(lines)}
.loc 2 2 0
{after}
ret;
}}
.file 1 "{BODY_FILE}"
.file 2 "{RUNNER}"
"""
    if os.environ.get("CUTEPY_TEST_PTXAS") and assembles:
        _assemble(text, target)
    call = KernelCall(
        LoadedModule(text),
        "kernel",
        grid=_extents(grid),
        block=_extents(block),
        cluster=None if cluster is None else _extents(cluster),
        parameters=tuple(values),
        dynamic_smem_bytes=smem_bytes,
        stream=stream,
        programmatic=programmatic,
        early_events=early_events,
    )
    run.launch(call)
    return run.launches[-1]


def apply(
    instructions: str,
    *operands: Any,
    out: str | Sequence[str] = "u4",
    before: str = "",
    after: str = "",
    target: str = "sm_90a",
) -> Any:
    """Run instructions on each element of arrays.

    Parameters
    ----------
    instructions : str
        PTX that reads %a, %b, %c, %e of the operands' types (a bool array is a predicate) and writes %d, or %d0,
        %d1, ... if there are several results.
    *operands
        Arrays of one shape, or scalars of numpy types.
    out : str or sequence of str
        Kinds of the results: "u4", "f4", "pred", ...
    before, after, target : str
        As of `launch`.

    Returns
    -------
    numpy.ndarray, or a tuple of them
    """
    count = max(np.size(x) for x in operands)
    threads = min(_BLOCK, -(-count // 32) * 32)
    blocks = -(-count // threads)
    inputs = []
    head = ["mov.u32 %r399, %tid.x; mov.u32 %r398, %ctaid.x;", f"mad.lo.s32 %r399, %r398, {threads}, %r399;"]
    for n, (name, operand) in enumerate(zip("abce", operands, strict=False)):
        whole = np.broadcast_to(np.asarray(operand), count)
        predicate = whole.dtype == bool
        padded = np.resize(whole, threads * blocks).astype(np.uint8 if predicate else whole.dtype)
        inputs.append(padded)
        kind = padded.dtype.str[1:]
        head.append(f"ld.param.u64 %rd63, [p{n}]; mad.wide.u32 %rd63, %r399, {padded.itemsize}, %rd63;")
        if predicate:
            head.append(f".reg .pred %{name}; ld.global.u8 %rs63, [%rd63]; setp.ne.b16 %{name}, %rs63, 0;")
        else:
            head.append(f".reg .{_PTX_TYPES[kind]} %{name}; ld.global.b{8 * padded.itemsize} %{name}, [%rd63];")
    kinds = [out] if isinstance(out, str) else list(out)
    results = [np.zeros(threads * blocks, np.uint8 if k == "pred" else k) for k in kinds]
    tail = []
    for n, (kind, result) in enumerate(zip(kinds, results, strict=True)):
        name = "d" if isinstance(out, str) else f"d{n}"
        tail.append(f"ld.param.u64 %rd63, [p{len(inputs) + n}]; mad.wide.u32 %rd63, %r399, {result.itemsize}, %rd63;")
        if kind == "pred":
            head.append(f".reg .pred %{name};")
            tail.append(f"selp.b16 %rs63, 1, 0, %{name}; st.global.u8 [%rd63], %rs63;")
        else:
            head.append(f".reg .{_PTX_TYPES[kind]} %{name};")
            tail.append(f"st.global.b{8 * result.itemsize} [%rd63], %{name};")
    launch(
        instructions,
        *inputs,
        *results,
        grid=blocks,
        block=threads,
        before="\n".join([*head, before]),
        after="\n".join([after, *tail]),
        target=target,
    )
    found = tuple(r[:count].astype(bool) if k == "pred" else r[:count] for k, r in zip(kinds, results, strict=True))
    return found[0] if isinstance(out, str) else found


def _extents(value: int | tuple[int, int, int]) -> tuple[int, int, int]:
    return (value, 1, 1) if isinstance(value, int) else value


def _assemble(text: str, target: str) -> None:
    """Let NVIDIA's assembler say whether the PTX is valid."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ptx"
        # Lines of files that do not exist are of no use to the assembler.
        lines = [line for line in text.splitlines() if not line.startswith((".loc ", ".file "))]
        path.write_text("\n".join(lines))
        command = [os.environ["CUTEPY_TEST_PTXAS"], f"-arch={target}", str(path), "-o", str(path.with_suffix(".cubin"))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"ptxas: {(done.stdout + done.stderr).splitlines()[0]}")
