"""What is exported: operations, the kernels that serve each, and the package they go into."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from cutepy.aot.expressions import SM_COUNT, Expression
from cutepy.host.arguments import Parameter
from cutepy.host.examples import Example, bind, parameters
from cutepy.host.specs import TensorSpec

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# Words that names can't be in what is written: C's and C++'s, and those of its own functions.
_RESERVED = frozenset(
    "alignas alignof asm auto bool break case catch char class const constexpr continue decltype default delete do "
    "double else enum explicit export extern false float for friend goto if inline int long mutable namespace new "
    "noexcept nullptr operator private protected public register return short signed sizeof static struct switch "
    "template this throw true try typedef typeid typename union unsigned using virtual void volatile while "
    "inputs names numbers results stream sm_count tensors".split()
)
_TAKEN = frozenset(("error", "dtype", "tensor", "make_tensor", "torch", "Path"))
"""Names that operations can't have beside: what an exported package or header defines or imports."""
_MAX_TENSORS = 32


class SpecError(ValueError):
    """A description of what to export that makes no sense."""


class _Filled:
    """A number that the exported library passes itself; compiled as a 32-bit integer."""

    def __repr__(self) -> str:
        return "aot.SM_COUNT_ARGUMENT"


SM_COUNT_ARGUMENT = _Filled()
"""Stands for an argument that receives the device's count of multiprocessors."""


@dataclass(frozen=True)
class Variant:
    """One kernel of an operation: a function, what it is compiled for, and when it is chosen.

    It is chosen for tensors that its `TensorSpec`s describe, by dtype, extents, strides, divisibility and alignment.

    Parameters
    ----------
    function : callable
        A `@cute.jit` function, or an object whose `__call__` is one.
    arguments : mapping of str to object
        An example of each argument, by the function's name for it, as for `cutepy.compile`: a `TensorSpec`, a number
        that callers pass, None, or the value of a `cutlass.Constexpr` parameter; or `SM_COUNT_ARGUMENT`.
    when : str
        A condition on extents, strides and `sm_count` under which it may be chosen, such as "m >= 128".
    cost : str
        What it is expected to cost then: of several variants that may be chosen, the cheapest is; the first, if equal.
    requires : sequence of str
        Conditions that callers must meet; an error shows them.
    options : str
        Options for the DSL's compiler.
    label : str
        A word that tells it from the others, for file names.
    """

    function: Callable[..., Any]
    arguments: Mapping[str, object]
    when: str = field(default="", kw_only=True)
    cost: str = field(default="", kw_only=True)
    requires: Sequence[str] = field(default=(), kw_only=True)
    options: str = field(default="", kw_only=True)
    label: str = field(default="", kw_only=True)

    @cached_property
    def examples(self) -> dict[str, Example]:
        """What the compiler is given for each of the function's parameters."""
        from cutlass import Int32

        given = {name: Int32(1) if value is SM_COUNT_ARGUMENT else value for name, value in self.arguments.items()}
        return bind(self.function, (), given)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """What the compiled function takes, in order."""
        found = parameters(self.examples.values())
        for parameter in found:
            if parameter.kind == "tuple":
                raise SpecError(f"argument {parameter.name}: tuples of tensors can't be exported; pass them one by one")
        return found

    @property
    def tensors(self) -> dict[str, TensorSpec]:
        """The tensors among them, by name."""
        return {p.name: p.spec for p in self.parameters if p.spec is not None}

    @property
    def numbers(self) -> dict[str, str]:
        """The numbers that callers pass, and the schema's type of each: "int", "float" or "bool"."""
        wanted = [p.name for p in self.parameters if p.kind == "scalar"]
        return {n: _number_type(self.arguments[n]) for n in wanted if self.arguments[n] is not SM_COUNT_ARGUMENT}

    @property
    def expressions(self) -> Iterator[Expression]:
        """All its conditions and costs."""
        for text in (self.when, self.cost, *self.requires):
            if text:
                yield Expression(text)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of extents and strides, each once, in order of appearance."""
        found = [name for spec in self.tensors.values() for name in (*spec.names, *spec.stride_names)]
        return tuple(dict.fromkeys(found))


def _number_type(example: object) -> str:
    if isinstance(example, bool) or type(example).__name__ == "Boolean":
        return "bool"
    if isinstance(example, int) or type(example).__name__.startswith(("Int", "Uint")):
        return "int"
    return "float"


@dataclass(frozen=True)
class Op:
    """An operation: what callers see, and the kernels that serve it.

    Parameters
    ----------
    name : str
        An identifier.
    variants : sequence of Variant
        At least one; all have the same tensors, numbers and ranks.
    results : sequence of str
        Tensors that the operation makes and returns, in order. Their extents are extents of the arguments.
    mutates : sequence of str
        Tensors that callers pass and kernels write.
    doc : str
        One line on what it does.
    zero_if_empty : bool
        Whether the result is zeros, with nothing launched, where an argument has no elements.
    reference : str
        A Python expression over the arguments and `torch` that the exported test compares the result with.
    tolerance : mapping, optional
        `rtol` and `atol` of that comparison; torch's for the dtype if not given.
    test_extents : sequence of mapping
        Values for the names of extents, for the exported tests and example.
    test_numbers : mapping
        Values for the numbers.
    matmul : bool
        Whether it computes d = a b^T, which the exported C example then checks.
    """

    name: str
    variants: Sequence[Variant]
    results: Sequence[str] = field(default=(), kw_only=True)
    mutates: Sequence[str] = field(default=(), kw_only=True)
    doc: str = field(default="", kw_only=True)
    zero_if_empty: bool = field(default=False, kw_only=True)
    reference: str = field(default="", kw_only=True)
    tolerance: Mapping[str, float] | None = field(default=None, kw_only=True)
    test_extents: Sequence[Mapping[str, int]] = field(default=(), kw_only=True)
    test_numbers: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    matmul: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        _check_identifier("an operation's name", self.name)
        if self.name in _TAKEN:
            raise SpecError(f"an operation's name must not be one of {', '.join(sorted(_TAKEN))}, got {self.name!r}")
        _check_line(f"doc of {self.name}", self.doc)
        if not self.variants:
            raise SpecError(f"{self.name} must have at least one variant")
        first = self.variants[0]
        for name in (*self.results, *self.mutates):
            if name not in first.tensors:
                raise SpecError(f"{self.name}: {name} must be one of its tensors {', '.join(first.tensors)}")
        if not self.inputs:
            raise SpecError(f"{self.name} must have a tensor argument that is no result, whose device it runs on")
        if not self.results and not self.mutates:
            raise SpecError(f"{self.name} must say which tensors it writes: results, or mutates")
        if len(first.tensors) > _MAX_TENSORS:
            raise SpecError(f"{self.name} must have at most {_MAX_TENSORS} tensors, got {len(first.tensors)}")
        for name in (*self.tensors, *self.numbers, *self.names):
            _check_identifier(f"{self.name}: a name of an argument or extent", name)
        for n, variant in enumerate(self.variants):
            self._check_variant(variant, f"{self.name}, variant {variant.label or n}")
        self._check_dtypes()

    @property
    def inputs(self) -> tuple[str, ...]:
        """Tensors that callers pass."""
        return tuple(name for name in self.variants[0].tensors if name not in self.results)

    @property
    def tensors(self) -> tuple[str, ...]:
        """All tensors: what callers pass, then the results."""
        return (*self.inputs, *self.results)

    @property
    def numbers(self) -> dict[str, str]:
        """Numbers that callers pass, and their types in the schema."""
        return self.variants[0].numbers

    @property
    def parameters(self) -> tuple[str, ...]:
        """What callers pass, in the order of the first variant's function."""
        passed = {*self.inputs, *self.numbers}
        return tuple(p.name for p in self.variants[0].parameters if p.name in passed)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of extents and strides of all variants."""
        return tuple(dict.fromkeys(name for variant in self.variants for name in variant.names))

    @property
    def general(self) -> Variant:
        """The variant with the most names: the one that says what an operation's extents are called."""
        return max(self.variants, key=lambda variant: len(variant.names))

    def place_of(self, variant: Variant, extent: int | str) -> tuple[str, int] | None:
        """Find where an extent appears first among a variant's inputs: tensor and dimension."""
        for name in self.inputs:
            for dimension, value in enumerate(variant.tensors[name].shape):
                if value == extent:
                    return name, dimension
        return None

    def input_dtypes(self, variant: Variant) -> tuple[str, ...]:
        """Give the dtypes of the tensors that callers pass."""
        return tuple(variant.tensors[name].dtype for name in self.inputs)

    def _check_variant(self, variant: Variant, where: str) -> None:
        first = self.variants[0]
        if list(variant.tensors) != list(first.tensors) or variant.numbers != first.numbers:
            raise SpecError(
                f"{where}: must take the tensors and numbers of the first variant, "
                f"{', '.join([*first.tensors, *first.numbers])}, got {', '.join([*variant.tensors, *variant.numbers])}"
            )
        for name, spec in variant.tensors.items():
            if len(spec.shape) != len(first.tensors[name].shape):
                raise SpecError(f"{where}: {name} must have {len(first.tensors[name].shape)} dimensions, got {spec}")
        for expression in variant.expressions:
            if unknown := set(expression.names) - {*variant.names, SM_COUNT}:
                raise SpecError(
                    f"{where}: {expression.text!r} uses {', '.join(sorted(unknown))}, which no tensor names"
                )
        general = self.general
        for name in self.results:
            for dimension, extent in enumerate(general.tensors[name].shape):
                own = variant.tensors[name].shape[dimension]
                if isinstance(extent, int):
                    agrees = own == extent
                else:
                    place = self.place_of(general, extent)
                    if place is None:
                        raise SpecError(f"{where}: {name}'s extent {extent} must be one of an argument's")
                    agrees = variant.tensors[place[0]].shape[place[1]] == own
                if not agrees:
                    raise SpecError(
                        f"{where}: {name}'s dim {dimension} must be {extent} as in other variants, got {own}"
                    )

    def _check_dtypes(self) -> None:
        """Check that the dtypes of the arguments decide those of the results."""
        decided: dict[tuple[str, ...], list[tuple[str, tuple[int, ...]]]] = {}
        for variant in self.variants:
            made = [(variant.tensors[name].dtype, order_of(variant.tensors[name])) for name in self.results]
            if decided.setdefault(self.input_dtypes(variant), made) != made:
                raise SpecError(
                    f"{self.name}: variants for the dtypes {', '.join(self.input_dtypes(variant))} must make results "
                    f"of one dtype and order, got {decided[self.input_dtypes(variant)]} and {made}; "
                    "give them different operations"
                )


def order_of(spec: TensorSpec) -> tuple[int, ...]:
    """List dimensions from that of the smallest stride: constants first, then names, the last dimension first.

    Examples
    --------
    >>> order_of(TensorSpec("float16", ("m", "k"), strides=(1, "ld")))
    (0, 1)
    >>> order_of(TensorSpec("float16", ("b", "m", "k")))
    (2, 1, 0)
    """
    rank = len(spec.shape)
    if spec.strides is None:
        places = spec.stride_order or tuple(reversed(range(rank)))
        return tuple(sorted(range(rank), key=lambda d: places[d]))
    strides = spec.strides

    def key(dimension: int) -> tuple[bool, int, int]:
        stride = strides[dimension]
        return (False, stride, -dimension) if isinstance(stride, int) else (True, 0, -dimension)

    return tuple(sorted(range(rank), key=key))


@dataclass(frozen=True)
class Extension:
    """Operations that are exported together.

    Parameters
    ----------
    name : str
        Of the Python package, of torch's namespace, and the prefix of C names; an identifier.
    ops : sequence of Op
        At least one.
    version : str
        Of the package.
    description : str
        One line.
    """

    name: str
    ops: Sequence[Op]
    version: str = field(default="0.1.0", kw_only=True)
    description: str = field(default="Hopper kernels, compiled ahead of time.", kw_only=True)

    def __post_init__(self) -> None:
        _check_identifier("an extension's name", self.name)
        _check_line("description", self.description)
        _check_line("version", self.version)
        names = [op.name for op in self.ops]
        if not names or len(set(names)) != len(names):
            raise SpecError(f"{self.name} must have operations of different names, got {', '.join(names) or 'none'}")


def _check_identifier(what: str, name: str) -> None:
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or name in _RESERVED:
        raise SpecError(f"{what} must be an identifier in Python and C++, and none of ours, got {name!r}")


def _check_line(what: str, text: str) -> None:
    """Refuse what would end a string or a comment in what is written."""
    if any(part in text for part in ('"', "\\", "\n", "*/")):
        raise SpecError(f"{what} must be one line without double quotes, backslashes and */, got {text!r}")
