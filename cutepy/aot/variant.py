"""Variant: one kernel of an exported operation, with the calls that it serves."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cutepy.aot.names import SpecError, check_label, check_line
from cutepy.aot.symbols import SM_COUNT, TracedExpression, parameters as parameters_of, trace
from cutepy.host.arguments import Parameter
from cutepy.host.examples import Example, bind, parameters
from cutepy.host.specs import TensorSpec


class _PassedNumber:
    """Number that the exported library passes itself; compiled as a 32-bit integer."""

    def __repr__(self) -> str:
        return "aot.SM_COUNT_ARGUMENT"


SM_COUNT_ARGUMENT = _PassedNumber()
"""Placeholder of an argument that receives the device's number of multiprocessors."""


@dataclass(frozen=True)
class Variant:
    """One kernel of an operation: a function, its compile-time arguments, and its cost.

    It may be chosen for tensors that its `TensorSpec`s describe, by dtype, extents, strides, divisibility and
    alignment, where what it requires holds; of several such variants the one of least cost is chosen, and of equal
    costs the first.

    Parameters
    ----------
    function : callable
        A `@cute.jit` function, or an object whose `__call__` is one.
    arguments : mapping of str to object
        An example of each argument, by the function's name for it, as for `cutepy.compile`: a `TensorSpec`, a number
        that callers pass, None, or the value of a `cutlass.Constexpr` parameter; or `SM_COUNT_ARGUMENT`. A tensor that
        is None here and not in other variants is optional.
    cost : callable, optional
        Expected cost, as a function of extents, strides and `sm_count` by their names, such as
        `lambda m, sm_count: -(-m // 128) / sm_count`. 0 if not given; infinity where it is never to be chosen before
        others.
    requires : sequence of callable
        Conditions on calls: comparisons of extents and strides, such as `lambda lda, k: lda >= k`.
    choices : mapping of str to str
        Arguments of text, each None for callers who leave it out, and their values for which it may be chosen, such as
        `{"activation": "relu"}`.
    options : str
        Options for the DSL's compiler.
    label : str
        A word of letters, digits and underscores that tells it from the others, for names of files and symbols.

    Raises
    ------
    SpecError
        If a label is none, or a cost or requirement can't be written in C++.
    """

    function: Callable[..., Any]
    arguments: Mapping[str, object]
    cost: Callable[..., float] | None = field(default=None, kw_only=True)
    requires: Sequence[Callable[..., bool]] = field(default=(), kw_only=True)
    choices: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    options: str = field(default="", kw_only=True)
    label: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise SpecError(f"function must be a @cute.jit function or an object like one, got {self.function!r}")
        check_label("label", self.label)
        for name, value in self.choices.items():
            check_line(f"the choice of {name}", value)

    @cached_property
    def examples(self) -> dict[str, Example]:
        """Compile-time example of each of the function's parameters."""
        from cutlass import Int32

        given = {name: Int32(1) if value is SM_COUNT_ARGUMENT else value for name, value in self.arguments.items()}
        return bind(self.function, (), given)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Parameters of the compiled function, in order."""
        found = parameters(self.examples.values())
        for parameter in found:
            if parameter.kind == "tuple":
                raise SpecError(f"argument {parameter.name}: tuples of tensors can't be exported; pass them one by one")
        return found

    @property
    def tensors(self) -> dict[str, TensorSpec]:
        """Tensors among the parameters, by name."""
        return {p.name: p.spec for p in self.parameters if p.spec is not None}

    @property
    def numbers(self) -> dict[str, str]:
        """Numbers that callers pass, with the schema's type of each: "int", "float" or "bool"."""
        wanted = [p.name for p in self.parameters if p.kind == "scalar"]
        return {n: _number_type(self.arguments[n]) for n in wanted if self.arguments[n] is not SM_COUNT_ARGUMENT}

    @property
    def file(self) -> Path | None:
        """File that defines the function."""
        module = getattr(self.function, "__module__", type(self.function).__module__)
        file = getattr(sys.modules.get(module), "__file__", None)
        return None if file is None else Path(file)

    @property
    def divisibility(self) -> dict[str, int]:
        """Divisors of the named extents, combined over all tensors."""
        combined: dict[str, int] = {}
        for spec in self.tensors.values():
            for name, divisor in spec.divisibility.items():
                combined[name] = math.lcm(combined.get(name, 1), divisor)
        return combined

    @cached_property
    def traced_cost(self) -> TracedExpression | None:
        """Cost, traced for C++."""
        return trace(self.cost, {*self.names, SM_COUNT}) if self.cost else None

    @cached_property
    def requirements(self) -> tuple[tuple[TracedExpression, tuple[str, ...]], ...]:
        """Requirements on callers: comparisons for C++ and for errors, with the names in each."""
        return tuple((_comparison(function, set(self.names)), parameters_of(function)) for function in self.requires)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of extents and strides, each once, in order of appearance."""
        found = [name for spec in self.tensors.values() for name in (*spec.names, *spec.stride_names)]
        return tuple(dict.fromkeys(found))


def _comparison(function: Callable[..., bool], known: set[str]) -> TracedExpression:
    traced = trace(function, known)
    if traced.value is None or traced.value.kind != "bool":
        raise SpecError("what a variant requires must be one comparison, such as lambda lda, k: lda >= k")
    return traced


def _number_type(example: object) -> str:
    if isinstance(example, bool) or type(example).__name__ == "Boolean":
        return "bool"
    if isinstance(example, int) or type(example).__name__.startswith(("Int", "Uint")):
        return "int"
    return "float"


def order_of(spec: TensorSpec) -> tuple[int, ...]:
    """List dimensions by rising stride: constants first, then names, the last dimension first.

    Examples
    --------
    >>> order_of(TensorSpec("float16", ("m", "k"), strides=(1, "ld")))
    (0, 1)
    >>> order_of(TensorSpec("float16", ("b", "m", "k")))
    (2, 1, 0)
    """
    rank = len(spec.shape)
    if spec.strides is None:
        order = spec.stride_order or tuple(reversed(range(rank)))
        return tuple(sorted(range(rank), key=lambda d: order[d]))
    strides = spec.strides

    def key(dimension: int) -> tuple[bool, int, int]:
        stride = strides[dimension]
        return (False, stride, -dimension) if isinstance(stride, int) else (True, 0, -dimension)

    return tuple(sorted(range(rank), key=key))
