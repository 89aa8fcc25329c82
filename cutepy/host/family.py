"""Families of kernels: one compiled function for each configuration, found or compiled when it is first asked for.

A library knows its own kernels: what a compiled one depends on is the content of a few source folders, and a
configuration that is plain data. So the DSL, whose import takes most of a second, is loaded only to compile; a process
that finds its kernels on the disk never imports it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from cutepy.host import compilation, environment
from cutepy.host.arguments import Parameter
from cutepy.host.examples import bind
from cutepy.host.fingerprint import fingerprint_sources
from cutepy.host.function import Function
from cutepy.host.specs import TensorSpec
from cutepy.host.store import Entry, NotKept, default_store

_OWN_SOURCES = ("cutepy.dsl", "cutepy.host")


class Family:
    """Compiled functions by configuration and examples of their arguments.

    Parameters
    ----------
    kernel : str or callable
        A function of the configuration that gives the `@cute.jit` function to compile, or a class whose objects are
        callable so. As "package.module:name" it is imported only to compile.
    sources : tuple of str
        With a name: the packages and modules whose source files, all together, decide what is compiled. With a
        callable it is found out what that reaches.
    options : str
        Options for the DSL's compiler.
    resolved : bool
        Whether callers see to it that no tensor is one that torch negates when it reads it.

    Raises
    ------
    ValueError
        If a kernel that is named says nothing of its sources.

    Examples
    --------
    >>> gemms = Family("cutepy.kernels.gemm.kernel:Gemm", sources=("cutepy.kernels.gemm",))
    >>> gemms
    Family('cutepy.kernels.gemm.kernel:Gemm', 0 functions)
    """

    def __init__(
        self,
        kernel: str | Callable[[Any], Any],
        *,
        sources: tuple[str, ...] = (),
        options: str = "",
        resolved: bool = False,
    ) -> None:
        if isinstance(kernel, str) and not (sources and ":" in kernel):
            raise ValueError(
                f'a kernel that is named must be "package.module:name" with the sources it depends on, got {kernel!r} '
                f"and sources={sources!r}"
            )
        self.kernel = kernel
        self.sources = (*_OWN_SOURCES, *sources)
        self.options = options
        self.resolved = resolved
        # Now, before what they define is imported by its name; files may be edited while a process runs.
        self._digest = fingerprint_sources(*self.sources).digest if isinstance(kernel, str) else ""
        self._functions: dict[Hashable, Function] = {}

    def __repr__(self) -> str:
        name = self.kernel if isinstance(self.kernel, str) else self.kernel.__qualname__
        return f"Family({name!r}, {len(self._functions)} functions)"

    def function(self, configuration: Any, examples: Mapping[str, Any]) -> Function:  # noqa: ANN401
        """Give the compiled function of a configuration; compiles it if neither memory nor disk has it.

        Parameters
        ----------
        configuration : hashable
            What the kernel is made for: a frozen dataclass, a tuple, a string, a number; of a named kernel, made of
            these alone.
        examples : mapping of str to TensorSpec, number or None
            Of each argument, by the parameter's name.

        Raises
        ------
        TypeError
            If configuration or examples are nothing that has a content to compare.
        """
        key = (configuration, tuple(examples.items()), _kinds((configuration, *examples.values())))
        function = self._functions.get(key)
        if function is None:
            made = self._make(configuration, examples)
            function = self._functions.setdefault(key, made.of_resolved() if self.resolved else made)
        return function

    def _make(self, configuration: Any, examples: Mapping[str, Any]) -> Function:  # noqa: ANN401
        if callable(self.kernel):
            return compilation.compile(self.kernel(configuration), **examples, options=self.options)
        start = time.perf_counter()
        content = [self.kernel, self._digest, _content(configuration)]
        described = tuple(_parameter(name, example) for name, example in examples.items())
        digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
        if not environment.cache_enabled():
            entry = self._build(configuration, examples)
            return compilation.open_entry(entry, entry.metadata["seconds"])
        key = compilation.entry_key(digest, described, self.options)

        def build_unchanged() -> Entry:
            """Compile; let it pass to the disk only if the sources and files are those whose digests are in its key."""
            entry = self._build(configuration, examples)
            sources = fingerprint_sources(*self.sources).digest
            if sources != self._digest or compilation.entry_key(digest, described, self.options) != key:
                raise NotKept(entry)
            return entry

        entry, built = default_store().get_or_build(key, build_unchanged)
        return compilation.open_entry(entry, compilation.stages(entry, time.perf_counter() - start, built=built))

    def _build(self, configuration: Any, examples: Mapping[str, Any]) -> Entry:  # noqa: ANN401
        assert isinstance(self.kernel, str)
        module, _, name = self.kernel.partition(":")
        function = getattr(importlib.import_module(module), name)(configuration)
        return compilation.build(function, self.kernel, bind(function, (), examples), self.options)


def _parameter(name: str, example: object) -> Parameter:
    if example is None:
        return Parameter(name, "none")
    if isinstance(example, TensorSpec):
        return Parameter(name, "tensor", example)
    if isinstance(example, (bool, int, float)):
        return Parameter(name, "scalar", number=type(example).__name__)
    raise TypeError(f"the example of {name} must be a TensorSpec, a number or None, got {type(example).__name__}")


def _kinds(value: Any) -> object:  # noqa: ANN401
    """Tell apart what Python holds to be equal: 1, 1.0 and True, which are compiled to other code, 0.0 and -0.0."""
    if type(value) is float:
        return value.hex()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value), tuple(_kinds(getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, tuple):
        return type(value), tuple(map(_kinds, value))
    return type(value)


def _content(value: Any) -> Any:  # noqa: ANN401
    """Spell a configuration in JSON's types, with the types that it has in Python's."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: _content(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"type": f"{type(value).__module__}:{type(value).__qualname__}", "fields": fields}
    if type(value) is tuple:
        return [_content(item) for item in value]
    raise TypeError(
        f"a configuration must be made of frozen dataclasses, tuples, strings, numbers and None, got {value!r}"
    )
