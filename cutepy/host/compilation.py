"""`cutepy.compile`: from a `@cute.jit` function and examples of its arguments to a function that launches.

What was compiled once is found again on disk, in later processes too, as long as nothing that went into it has changed:
the function and all that it reaches (`fingerprint`), the descriptions of its arguments, the DSL, its options and its
environment.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

from cutepy.dsl.launches import LaunchFacts
from cutepy.dsl.program import ARCH, Program, compile_program
from cutepy.dsl.version import installed_parts
from cutepy.host import environment
from cutepy.host.arguments import Parameter
from cutepy.host.examples import Example, bind, classes, constants, parameters, to_dsl
from cutepy.host.fingerprint import Fingerprint, dsl_version, edited_since, fingerprint
from cutepy.host.function import Function
from cutepy.host.options import named_files
from cutepy.host.store import CacheWarning, Entry, NotKept, default_store

_FORMAT = 2
"""Counts the changes of what an entry holds, and of how its key is made."""


_TRACING = threading.RLock()
"""The DSL traces one function at a time."""


class WrongEntryError(RuntimeError):
    """An entry of the cache is not for this machine's kind of GPU."""


def compile(
    function: Callable[..., Any],
    *arguments: object,
    options: str = "",
    cache: bool | None = None,
    **named: object,
) -> Function:
    """Compile a `@cute.jit` function for SM90a, or find it compiled; needs no GPU.

    Parameters
    ----------
    function : callable
        A `@cute.jit` function, or an object whose `__call__` is one.
    *arguments, **named
        An example of each argument: a `TensorSpec`; a tensor or array, which stands for its exact shape and strides; a
        number, for a parameter that takes one at each call; None, for one that stays None; tuples of these; and what
        is compiled in: the values of `cutlass.Constexpr` parameters, and classes. A parameter for a stream needs none:
        launches go to the stream that is current when they are made. (A host function without one launches on the
        default stream.)
    options : str
        Options for the DSL's compiler, such as "--opt-level 2".
    cache : bool, optional
        Whether to look on disk and keep the result there; as `CUTEPY_CACHE` says if not given.

    Returns
    -------
    Function
        Takes what is no constexpr value and no stream, in the order of the parameters.

    Raises
    ------
    NotCacheable
        If what the function is compiled from can't be told for sure: it reads the environment or a file, or captures a
        value that has no content to compare. With `cache=False` it is compiled all the same.
    TypeError
        If the examples don't fit the function's parameters.

    Examples
    --------
    >>> import cutepy
    >>> matrix = cutepy.TensorSpec("float16", ("m", "k"), divisibility={"k": 8})
    >>> f = cutepy.compile(my_function, matrix, matrix)  # doctest: +SKIP
    >>> f(a, b)  # doctest: +SKIP
    """
    start = time.perf_counter()
    examples = bind(function, arguments, named, {"options": options, "cache": cache})
    name = getattr(function, "__qualname__", type(function).__qualname__)
    if not (environment.cache_enabled() if cache is None else cache):
        entry = build(function, name, examples, options, None)
        return open_entry(entry, entry.metadata["seconds"])
    found = fingerprint(function, *constants(examples))
    keyed = time.perf_counter()
    files = named_files(options)
    key = entry_key(found.digest, parameters(examples.values()), options)

    def build_unchanged() -> Entry:
        """Compile; what has changed since the key was made, or while the DSL read sources, has another key."""
        with _TRACING, untouched(function):  # which may have been waited for
            changed = found.difference(fingerprint(function, *constants(examples)))
            entry = build(function, name, examples, options, found)
        changed += edited_since(found)
        changed += sorted({path for path, _ in set(files) ^ set(named_files(options))})
        if changed:
            warnings.warn(
                f"{name} is not kept on the disk, as it changed before it was compiled: {', '.join(changed)}; "
                "leave globals and source files alone until cutepy.compile returns",
                CacheWarning,
                stacklevel=5,
            )
            raise NotKept(entry)
        return entry

    entry, built = default_store().get_or_build(key, build_unchanged)
    return open_entry(entry, {"fingerprint": keyed - start, **stages(entry, time.perf_counter() - keyed, built=built)})


@contextmanager
def untouched(function: Callable[..., Any]) -> Iterator[None]:
    """Take back what tracing sets on the object that is compiled, so that it is as when it is found on the disk.

    Kernels of the DSL's examples note on themselves what they are compiled for, and would be other ones from then on.
    """
    owner = getattr(function, "__self__", function)
    state = None if isinstance(owner, FunctionType | type | ModuleType) else getattr(owner, "__dict__", None)
    before = dict(state) if isinstance(state, dict) else {}
    try:
        yield
    finally:
        if isinstance(state, dict):
            for name in state.keys() - before.keys():
                del state[name]
            state.update(before)


def find(
    function: Callable[..., Any], *arguments: object, options: str = "", **named: object
) -> tuple[str, Function | None]:
    """Look on the disk for what `compile` would give: the key of its entry, and the function if it is there.

    Raises
    ------
    NotCacheable, TypeError
        As `compile`.
    """
    start = time.perf_counter()
    examples = bind(function, arguments, named, {"options": options})
    found = fingerprint(function, *constants(examples))
    keyed = time.perf_counter()
    key = entry_key(found.digest, parameters(examples.values()), options)
    entry = default_store().load(key)
    if entry is None:
        return key, None
    spent = {"fingerprint": keyed - start, **stages(entry, time.perf_counter() - keyed, built=False)}
    return key, open_entry(entry, spent)


def stages(entry: Entry, seconds: float, *, built: bool) -> dict[str, float]:
    """Tell what it took to get an entry from a store, by stage: whole time -> stages that add up to it.

    That is "load", or what its compilation spent and then "store": the keeping of it, and waiting for the lock.
    """
    if not built:
        return {"load": seconds}
    compiled = entry.metadata["seconds"]
    return {**compiled, "store": max(seconds - sum(compiled.values()), 0.0)}


def entry_key(content: str, described: tuple[Parameter, ...], options: str) -> str:
    """Make the name of an entry from all that decides what is compiled.

    Parameters
    ----------
    content : str
        Digest of the function and of all it reaches.
    described : tuple of Parameter
        What it is compiled for.
    options : str
        The compiler's options. The files that they name count with what is in them.
    """
    parts = {
        "format": _FORMAT,
        "content": content,
        "parameters": [parameter.to_json() for parameter in described],
        "options": options,
        "files": named_files(options),
        "arch": ARCH,
        "dsl": [dsl_version(), *installed_parts()],
        "environment": environment.dsl_variables(),
        "machine": platform.machine(),
        "python": sys.version_info[:2],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def build(
    function: Callable[..., Any],
    name: str,
    examples: Mapping[str, Example],
    options: str,
    found: Fingerprint | None = None,
) -> Entry:
    """Compile a function that has been bound to its examples, looking nowhere else.

    Raises
    ------
    TypeError
        If what it was compiled to take is not what the examples say.
    """
    with _TRACING:
        positional, by_name = to_dsl(examples)
        program = compile_program(function, positional, by_name, classes=classes(examples), options=options)
    described = parameters(examples.values())
    if program.parameters != tuple(parameter.name for parameter in described):
        raise TypeError(
            f"{name} was compiled to take ({', '.join(program.parameters)}) at each call, where the examples say "
            f"({', '.join(parameter.name for parameter in described)}); annotate what is constant as cutlass.Constexpr"
        )
    return to_entry(name, program, described, options, found)


def to_entry(
    name: str, program: Program, described: tuple[Parameter, ...], options: str, found: Fingerprint | None
) -> Entry:
    """Put a program in the form in which it is kept."""
    metadata = {
        "function": name,
        "arch": ARCH,
        "dsl": dsl_version(),
        "options": options,
        "entry": program.entry,
        "parameters": [parameter.to_json() for parameter in described],
        "fingerprint": [list(part) for part in found.parts] if found else [],
        "seconds": dict(program.seconds),
        "launches": [launch.to_json() for launch in program.launches],
        "created": time.time(),
    }
    return Entry(metadata, {"object": program.object, "ptx": program.ptx.encode(), "cubin": program.cubin})


def open_entry(entry: Entry, spent: Mapping[str, float]) -> Function:
    """Make a function of what was kept, or just compiled; `spent` says by stage what that took this process.

    Raises
    ------
    WrongEntryError
        If it was compiled for another architecture.
    """
    known = entry.metadata
    if known["arch"] != ARCH:
        raise WrongEntryError(
            f"{known['function']} was compiled for {known['arch']}, and this version of cutepy runs {ARCH}; "
            "remove the entry with `cutepy cache clear`"
        )
    described = tuple(map(Parameter.from_json, known["parameters"]))
    names = tuple(parameter.name for parameter in described)
    program = Program(
        entry.sections["object"],
        known["entry"],
        names,
        entry.sections["ptx"].decode(),
        entry.sections["cubin"],
        known["seconds"],
        tuple(map(LaunchFacts.from_json, known["launches"])),
    )
    return Function(known["function"], program, described, {**known, "spent": dict(spent)})
