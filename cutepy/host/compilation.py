"""`cutepy.compile`: from a `@cute.jit` function and examples of its arguments to a function that launches.

The function is traced, and what was traced is the key: a program that was compiled before is found on disk, in later
processes too, and otherwise the same trace goes on into the compiler. A caller who declares the sources that decide
what is compiled need not trace (`declared`).
"""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from cutepy.dsl.locations import path_of
from cutepy.dsl.version import installed, installed_parts
from cutepy.extras import require
from cutepy.host import environment
from cutepy.host.architecture import chosen_arch
from cutepy.host.arguments import Parameter, nonempty
from cutepy.host.declared import OWN_SOURCES, Deferred, StaleSourcesError, declared_key, deferred
from cutepy.host.entry import VERSION, Entry
from cutepy.host.examples import bind, check_settings, classes, parameters, to_dsl
from cutepy.host.folder import CacheFolderError
from cutepy.host.function import Function, to_entry
from cutepy.host.inputs import Sources, compiler_digest, named_files, sources as met_sources
from cutepy.host.store import CacheWarning, UnstorableEntryError, callers_level, default_store, function_store
from cutepy.runtime.timeline_state import TIMELINE

_NEEDS = ("cutlass", "tvm_ffi")
"""Modules of extras that a trace needs, named together where one is missing; the cache's is named by the cache."""


def compile(
    function: Callable[..., Any] | Deferred,
    *arguments: object,
    arch: str | None = None,
    options: str = "",
    cache: bool | None = None,
    sources: Sequence[str | os.PathLike[str]] = (),
    verify: bool | None = None,
    timeline: bool | None = None,
    **named: object,
) -> Function:
    """Compile a `@cute.jit` function, or find it compiled; needs no GPU.

    Parameters
    ----------
    function : callable or Deferred
        A `@cute.jit` function, or an object whose `__call__` is one; with `sources`, one that is imported only where
        it has to be compiled.
    *arguments, **named
        An example of each argument: a `TensorSpec` or `PointerSpec`; a tensor or array, also one of the DSL's, which
        stands for its shape and strides; a number, for a parameter that takes one at each call; None, for one that
        stays None; tuples, named tuples and dataclasses of these; and what is compiled in: the values of
        `cutlass.Constexpr` parameters, and classes. A parameter for a stream needs none: launches go to the stream
        that is current when they are made. (A host function without one launches on the default stream.)
    arch : str, optional
        The architecture to compile for: "sm_90a" (Hopper), "sm_100a" (B200), "sm_103a" (B300) or "sm_120a" (RTX 5090).
        Default: that of the GPU that is simulated, that of the variable CUTE_DSL_ARCH, or "sm_90a".
    options : str
        Options for the DSL's compiler, such as "--opt-level 2".
    cache : bool, optional
        True to look on disk and keep the result there; as `CUTEPY_CACHE` says if not given.
    sources : sequence of str or path
        Packages, modules and paths whose files, with the function's own and the values handed in, decide what is
        compiled. The key is made of them, and nothing is traced where the program is found.
    verify : bool, optional
        With `sources`: trace all the same, and fail if that shows another program than the one found; as
        `CUTEPY_VERIFY` says if not given.
    timeline : bool, optional
        True if ranges (`cutepy.device.mark`, and those of the blocks) write events; by default within
        `cutepy.profiling.timeline()`. Such a program is compiled anew, and not kept on the disk.

    Returns
    -------
    Function
        Takes what is no constexpr value and no stream, in the order of the parameters.

    Raises
    ------
    TypeError
        If the examples don't fit the function's parameters, or, with `sources`, a value has no content to compare.
    ValueError
        If `arch` is none of these, or `timeline` is asked for outside `cutepy.profiling.timeline()`.
    StaleSourcesError
        If `verify` finds that the sources don't tell all.

    Examples
    --------
    >>> import cutepy
    >>> matrix = cutepy.TensorSpec("float16", ("m", "k"), divisibility={"k": 8})
    >>> f = cutepy.compile(my_function, matrix, matrix)  # doctest: +SKIP
    >>> f(a, b)  # doctest: +SKIP
    """
    start = time.perf_counter()
    settings = {"arch": arch, "options": options, "cache": cache, "sources": sources, "verify": verify}
    settings["timeline"] = timeline
    cached = environment.cache_enabled() if cache is None else cache
    if timeline is True and TIMELINE.buffer is None:
        raise ValueError("timeline=True needs a buffer for its events; compile within cutepy.profiling.timeline()")
    writes = TIMELINE.buffer is not None and timeline is not False
    if writes:  # the buffer's address is compiled in
        cached = False
    if sources and cached:
        declared = _DeclaredFunction(deferred(function), arguments, named, settings)
        # otherwise imported modules may have either text, and only a trace is reliable
        if not declared.sources.edited():
            verify = environment.verify() if verify is None else verify
            return declared.compile(start, verify=verify)
    call = Call(function, arguments, named, settings)
    with nullcontext() if writes else TIMELINE.off():
        _, entry, built, traced = call.compile(cached=cached)
    if not cached:
        return Function.of_entry(entry, call.parameters, entry.metadata["seconds"])
    return opened(entry, call.parameters, time.perf_counter() - start, built=built, traced_seconds=traced)


def find_declared(
    function: Callable[..., Any] | Deferred,
    arguments: Sequence[object],
    named: Mapping[str, object],
    settings: Mapping[str, Any],
) -> Function | None:
    """Look up on disk the program that `compile` would find by declared sources, without a trace; None if absent."""
    start = time.perf_counter()
    declared = _DeclaredFunction(deferred(function), arguments, named, settings)
    return None if declared.sources.edited() else declared.find(start)


class Call:
    """A function bound to its examples, to be traced.

    Attributes
    ----------
    name : str
        Name of the function in errors.
    parameters : tuple of Parameter
        Parameters for callers of the compiled function.
    """

    def __init__(
        self,
        function: Callable[..., Any] | Deferred,
        arguments: Sequence[object],
        named: Mapping[str, object],
        settings: Mapping[str, Any],
    ) -> None:
        require("cutepy.compile", *_NEEDS)
        self.function = function() if isinstance(function, Deferred) else function
        self.options: str = settings["options"]
        self._examples = bind(self.function, arguments, named, settings)
        self.arch = chosen_arch(settings.get("arch"))
        self.name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        self.parameters = parameters(self._examples.values())

    def compile(self, *, cached: bool) -> TracedProgram:
        """Trace, and find the program or compile it."""
        if cached:
            return self._traced(default_store().get_or_build, _FunctionStore())
        return self._traced(lambda _, build: (build(), True), None)

    def find(self) -> TracedProgram:
        """Trace, and look the program up on disk; its entry is None if it is absent."""
        return self._traced(lambda key, _: (default_store().load(key), False), _FunctionStore())

    def _traced(self, use: Callable[[str, Callable[[], Entry]], tuple[Any, bool]], shelf: Any) -> TracedProgram:  # noqa: ANN401
        """Trace, and return the result of `use` for the key and a function that compiles on from there."""
        from cutepy.dsl.program import to_program, trace_program

        def use_trace(traced: Any) -> TracedProgram:  # noqa: ANN401
            key, files = traced_key(traced.digest, traced.pipeline), traced.files
            entry, built = use(key, lambda: self._to_entry(to_program(traced, self.arch), key, files))
            if entry:
                entry = _as_here(Entry({**entry.metadata, "function": self.name}, entry.sections), files)
            return TracedProgram(key, entry, built, traced.seconds)

        examples = to_dsl(self._examples)
        settings = {"arch": self.arch, "classes": classes(self._examples), "options": self.options, "shelf": shelf}
        settings["nonempty"] = nonempty(self.parameters)
        with _untouched(self.function):
            return trace_program(self.function, *examples, use_trace, **settings)

    def _to_entry(self, program: Any, key: str, files: Mapping[str, str]) -> Entry:  # noqa: ANN401
        names = tuple(parameter.name for parameter in self.parameters)
        if program.parameters != names:
            raise TypeError(
                f"{self.name} was compiled to take ({', '.join(program.parameters)}) at each call, where the examples "
                f"say ({', '.join(names)}); annotate what is constant as cutlass.Constexpr"
            )
        known = {
            "function": self.name,
            "options": self.options,
            "dsl": installed(),
            "traced": key,
            "files": dict(files),
        }
        return to_entry(program, self.parameters, known)


class _FunctionStore:
    """Disk storage of rewritten functions; empty if other users may write to its folder."""

    def load(self, key: str) -> Mapping[str, bytes]:
        with suppress(CacheFolderError):
            return entry.sections if (entry := function_store().load(key)) else {}
        return {}

    def save(self, key: str, functions: Mapping[str, bytes]) -> None:
        with suppress(CacheFolderError):
            function_store().save(key, Entry({}, functions))


@contextmanager
def _untouched(function: Callable[..., Any]) -> Iterator[None]:
    """Restore the attributes that tracing sets on the traced object, as kernels in the style of the DSL's examples do.

    The values belong to the trace and are dead after it: with them the object could be neither copied nor pickled.
    """
    owner = getattr(function, "__self__", function)
    has_state = hasattr(owner, "__dict__") and not isinstance(owner, FunctionType | type | ModuleType)
    state = vars(owner) if has_state else {}
    before = dict(state)
    try:
        yield
    finally:
        state.clear()
        state.update(before)


class TracedProgram(NamedTuple):
    """Program of a traced function.

    Attributes
    ----------
    key : str
        Key of the trace.
    entry : Entry
    built : bool
        True if the program was compiled now.
    traced_seconds : float
        Seconds of tracing.
    """

    key: str
    entry: Entry
    built: bool
    traced_seconds: float


def _as_here(entry: Entry, files: Mapping[str, str]) -> Entry:
    """Replace file names in a program that was compiled from the same sources in another folder.

    `files` has the path here of each name, as `cutepy.dsl.locations.name_of` gives it.
    """
    then = entry.metadata.get("files", {})
    moved = {path: files[name] for name, path in then.items() if files.get(name, path) != path}
    if not moved:
        return entry
    ptx = entry.sections["ptx"].decode()
    for old, new in moved.items():
        ptx = ptx.replace(f'"{old}"', f'"{new}"')
    # The machine code keeps the names that it was compiled with.
    before = {path: path for path in then.values()} | entry.metadata.get("moved", {})
    known = {
        "files": {name: moved.get(path, path) for name, path in then.items()},
        "moved": {old: moved.get(path, path) for old, path in before.items()},
    }
    return Entry({**entry.metadata, **known}, {**entry.sections, "ptx": ptx.encode()})


def traced_key(digest: str, pipeline: str) -> str:
    """Return the key of an entry: hash of the trace and of the files that the compiler reads."""
    # cutepy's own code runs between the trace and the program, and the DSL's, whose version is in the key.
    own = [str(VERSION), met_sources("cutepy.dsl").digest, *installed_parts()]
    parts = [*own, digest, compiler_digest(), *(content for _, content in named_files(pipeline))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


class _DeclaredFunction:
    """Function with declared sources: found by their hash, and traced only if absent, or to verify them."""

    def __init__(
        self,
        function: Deferred,
        arguments: Sequence[object],
        named: Mapping[str, object],
        settings: Mapping[str, Any],
    ) -> None:
        check_settings(settings)
        self._function = function
        self._declared = (function.name.partition(":")[0], *map(_lasting, settings["sources"]))
        self._arguments = arguments, named, settings
        arch = chosen_arch(settings.get("arch"))
        self._key = declared_key(function, self._declared, arguments, named, settings["options"], arch)

    @property
    def sources(self) -> Sources:
        """Declared source files, as this process read them first."""
        return met_sources(*OWN_SOURCES, *self._declared)

    def find(self, start: float) -> Function | None:
        """Look the program up on disk."""
        entry = default_store().load(self._key)
        return self._opened(entry, start, built=False) if entry else None

    def compile(self, start: float, *, verify: bool) -> Function:
        """Find the program by its sources, or compile it; `start` is the caller's start time."""
        entry, built = default_store().get_or_build(self._key, self._build)
        if verify and not built:
            self._verify(entry)
        return self._opened(entry, start, built=built)

    def _opened(self, entry: Entry, start: float, *, built: bool) -> Function:
        if not built:
            paths = {name: path_of(name) for name in entry.metadata["files"]}
            entry = _as_here(entry, {name: path for name, path in paths.items() if path})
        described = tuple(map(Parameter.from_json, entry.metadata["parameters"]))
        return opened(entry, described, time.perf_counter() - start, built=built)

    def _build(self) -> Entry:
        """Compile, or take the program of the traced key; files edited meanwhile have another key."""
        call = Call(self._function, *self._arguments)
        entry = call.compile(cached=True).entry
        entry = Entry({**entry.metadata, "parameters": [p.to_json() for p in call.parameters]}, dict(entry.sections))
        if self.sources.edited():
            warnings.warn(
                f"{self._function.name} is not kept on the disk, as its sources changed before it was compiled; leave "
                "source files alone until cutepy.compile returns",
                CacheWarning,
                stacklevel=callers_level(),
            )
            raise UnstorableEntryError(entry)
        return entry

    def _verify(self, found: Entry) -> None:
        if Call(self._function, *self._arguments).compile(cached=True).key != found.metadata["traced"]:
            raise StaleSourcesError(
                f"{self._function.name} is traced to another program than the one kept for these sources and values "
                f"({', '.join(map(str, self._declared))}): something else decides what is compiled, such as a module "
                "outside of them, a global or the environment; add it to sources, or compile without them"
            )


def _lasting(source: str | os.PathLike[str]) -> str | Path:
    """Make a path absolute: the working directory may change."""
    return source if isinstance(source, str) and os.sep not in source else Path(source).absolute()


def opened(
    entry: Entry, described: tuple[Parameter, ...], seconds: float, *, built: bool, traced_seconds: float = 0.0
) -> Function:
    """Make a function of an entry.

    Parameters
    ----------
    entry : Entry
    described : tuple of Parameter
        Parameters for callers: equal programs may be called in other ways.
    seconds : float
        Seconds that it took to get the entry.
    built : bool
        True if the program was compiled now.
    traced_seconds : float
        Seconds of tracing among them.
    """
    compiled = dict(entry.metadata["seconds"])
    stages = compiled if built else {"trace": traced_seconds} if traced_seconds else {}
    rest = max(seconds - sum(stages.values()), 0.0)
    return Function.of_entry(entry, described, {**stages, "store" if built else "load": rest})
