"""`cutepy.compile_many`: compile many variants of functions at once, in several processes, through the disk cache."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cutepy.host import compilation, environment, workers
from cutepy.host.architecture import chosen_arch
from cutepy.host.declared import Deferred
from cutepy.host.function import Function
from cutepy.host.progress import ProgressBoard
from cutepy.host.specs import TensorSpec
from cutepy.runtime.timeline_state import TIMELINE

_NAME_LENGTH = 60


@dataclass(frozen=True)
class Variant:
    """Function and examples for `cutepy.compile`, as one item of `compile_many`.

    Attributes
    ----------
    function : callable or Deferred
        A `@cute.jit` function, or an object whose `__call__` is one; with `sources`, one to be imported.
    examples : tuple
        An example of each argument.
    arch : str, optional
        The architecture to compile for, as `cutepy.compile` takes it.
    options : str
        Options for the DSL's compiler.
    named : mapping
        Examples by name.
    name : str
        Name in progress and errors; by default the function with its examples.
    sources : tuple of str or path
        Declared sources, by which the program is found without a trace.
    """

    function: Callable[..., Any] | Deferred
    examples: tuple[Any, ...] = ()
    options: str = ""
    named: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    sources: tuple[str | Path, ...] = ()
    arch: str | None = None

    def __str__(self) -> str:
        if self.name:
            return self.name
        named = [f"{name}={_short(example)}" for name, example in self.named.items()]
        examples = ", ".join([*map(_short, self.examples), *named])
        examples = examples if len(examples) <= _NAME_LENGTH else examples[: _NAME_LENGTH - 3] + "..."
        function = self.function
        name = function.name if isinstance(function, Deferred) else getattr(function, "__qualname__", "")
        return f"{name or type(function).__qualname__}({examples})"


class VariantsError(ExceptionGroup[Exception]):
    """Group of the errors of variants that failed, each with the variant's name in a note.

    Attributes
    ----------
    functions : list of (Function or None)
        All others, in the order of the variants.
    """

    functions: list[Function | None]

    def derive(self, excs: Sequence[Exception]) -> VariantsError:  # type: ignore[override]
        """Return a group of some of the errors."""
        derived = VariantsError(self.message, excs)
        derived.functions = self.functions
        return derived


def compile_many(
    variants: Iterable[Variant | tuple[Any, ...]], processes: int | None = None, progress: bool = True
) -> list[Function]:
    """Compile variants of functions, or find them compiled: variants -> functions, in the same order.

    What is missing on the disk is compiled by several processes, each of which imports the functions' modules; so
    functions, and values that they are compiled for, must be such that pickle takes them: defined at the top level of a
    module. A script needs `if __name__ == "__main__":` around what it does. With `CUTEPY_CACHE=off` all is compiled
    here, one after the other.

    Parameters
    ----------
    variants : iterable of Variant or tuple
        Tuples are (function, examples) or (function, examples, options).
    processes : int, optional
        Number of processes; by default as many as this process may use cores.
    progress : bool
        True to show a progress bar, if the standard error is a terminal.

    Raises
    ------
    VariantsError
        If variants fail, once all others are done, which then are on the disk.
    KeyboardInterrupt
        On Ctrl-C; the processes are ended, and what was compiled until then is on the disk.

    Examples
    --------
    >>> tiles = [(scale, (x, x, tile)) for tile in (64, 128, 256)]  # doctest: +SKIP
    >>> small, medium, large = cutepy.compile_many(tiles)  # doctest: +SKIP
    """
    asked = [given if isinstance(given, Variant) else Variant(*given) for given in variants]
    if processes is not None and processes < 1:
        raise ValueError(f"processes must be 1 or more, got {processes}")
    names = _names(asked)
    with ProgressBoard(len(asked), shown=progress) as board:
        results = _VariantSet(asked, names, board).compile(processes or len(os.sched_getaffinity(0)))
    failed = []
    for name, result in zip(names, results, strict=True):
        if isinstance(result, Exception):
            result.add_note(f"variant: {name}")
            failed.append(result)
    functions = [result for result in results if isinstance(result, Function)]
    if failed:
        error = VariantsError(f"{len(failed)} of {len(asked)} variants could not be compiled", failed)
        error.functions = [result if isinstance(result, Function) else None for result in results]
        raise error
    return functions


class _VariantSet:
    """Variants of one call, with their outcomes."""

    def __init__(self, variants: Sequence[Variant], names: Sequence[str], board: ProgressBoard) -> None:
        self._variants = variants
        self._names = names
        self._board = board
        self._results: dict[int, Function | Exception] = {}

    def compile(self, processes: int) -> list[Function | Exception]:
        """Look up variants on the disk up to the first missing one; from there on compile in processes."""
        indices = list(range(len(self._variants)))
        if not environment.cache_enabled() or processes == 1 or TIMELINE.buffer is not None:
            for index in indices:
                self._board.started(self._names[index])
                self._compile_here(index)
            return [self._results[index] for index in indices]
        missing = next((index for index in indices if not self._find(index)), len(indices))
        if missing == len(indices) - 1:
            self._compile_here(missing)
        elif missing < len(indices):
            self._compile_apart(indices[missing:], processes)
        return [self._results[index] for index in indices]

    def _find(self, index: int, *, compiled: bool = False) -> bool:
        """Look up a variant, which may just have been `compiled`; return whether it is finished."""
        start = time.perf_counter()
        try:
            if self._variants[index].sources:
                return self._find_declared(index, compiled=compiled)
            call = self._call(index)
            found = call.find()
        except Exception as error:
            self._failed(index, error)
            return True
        if found.entry is None:
            return False
        entry, spent, traced = found.entry, time.perf_counter() - start, found.traced_seconds
        self._results[index] = compilation.opened(entry, call.parameters, spent, built=False, traced_seconds=traced)
        self._board.done(self._names[index], "compiled" if compiled else "cached")
        return True

    def _find_declared(self, index: int, *, compiled: bool) -> bool:
        variant = self._variants[index]
        function = compilation.find_declared(variant.function, *_settled(variant))
        if function is None:
            return False
        self._results[index] = function
        self._board.done(self._names[index], "compiled" if compiled else "cached")
        return True

    def _call(self, index: int) -> compilation.Call:
        variant = self._variants[index]
        return compilation.Call(variant.function, *_settled(variant))

    def _compile_here(self, index: int) -> None:
        variant = self._variants[index]
        try:
            self._results[index] = compilation.compile(
                variant.function,
                *variant.examples,
                arch=variant.arch,
                options=variant.options,
                sources=variant.sources,
                **variant.named,
            )
        except Exception as error:
            self._failed(index, error)
        else:
            self._board.done(self._names[index])

    def _compile_apart(self, indices: Sequence[int], processes: int) -> None:
        tasks = {}
        for index in indices:
            try:
                tasks[str(index)] = _task(self._variants[index])
            except TypeError as error:
                self._failed(index, error)
        for event in workers.run(tasks, processes):
            index = int(event.task)
            if isinstance(event, workers.TaskStarted):
                self._board.started(self._names[index])
            elif event.error is not None:
                self._failed(index, event.error)
            # traced here, since a child process imports modules without this process's changes
            elif not self._find(index, compiled=True):
                self._compile_here(index)

    def _failed(self, index: int, error: Exception) -> None:
        self._results[index] = error
        self._board.failed(self._names[index])


def _settled(variant: Variant) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]:
    settings = {"arch": variant.arch, "options": variant.options, "sources": variant.sources}
    return variant.examples, dict(variant.named), settings


def _task(variant: Variant) -> bytes:
    """Pickle the inputs of a process that compiles a variant.

    Raises
    ------
    TypeError
        If something can't be pickled, by name.
    """
    light = replace(
        variant,
        examples=tuple(map(_described, variant.examples)),
        named={name: _described(example) for name, example in variant.named.items()},
    )
    parts = {
        f"the function {light.function!r}": light.function,
        **{f"example {n}": example for n, example in enumerate(light.examples)},
        **{f"example {name}": example for name, example in light.named.items()},
    }
    for what, part in parts.items():
        try:
            pickle.dumps(part)
        except Exception as error:
            raise TypeError(
                f"{what} must be such that it can be sent to the processes that compile (pickle), and is not: {error}; "
                "define it at the top level of a module, or call compile_many with processes=1"
            ) from error
    return pickle.dumps((chosen_arch(), light.function, *_settled(light)))


def _described(example: Any) -> Any:  # noqa: ANN401
    """Replace tensors by specs, since their elements don't matter."""
    if type(example) in (tuple, list):
        return type(example)(map(_described, example))
    if hasattr(example, "data_ptr"):
        return TensorSpec.like(example)
    return example


def _names(variants: Sequence[Variant]) -> list[str]:
    """Name variants; those of one name get numbers, too."""
    names = list(map(str, variants))
    return [f"{name} #{names[:n].count(name) + 1}" if names.count(name) > 1 else name for n, name in enumerate(names)]


def _short(example: object) -> str:
    if hasattr(example, "dtype") and hasattr(example, "shape") and not isinstance(example, type):
        extents = ", ".join(map(str, example.shape))
        return f"{str(example.dtype).removeprefix('torch.')} ({extents})"
    return repr(example)
