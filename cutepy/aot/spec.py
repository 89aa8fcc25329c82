"""Description of an export: operations, the kernels of each, and the package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cutepy.aot.names import (
    SpecError,
    check_identifier,
    check_line,
    check_package,
    check_reference,
    check_version,
)
from cutepy.aot.variant import Variant, order_of
from cutepy.runtime.devices import checked_arch
from cutepy.runtime.program import HOPPER

_TAKEN = frozenset(("error", "dtype", "tensor", "make_tensor", "torch", "Path"))
"""Names that operations can't have: those that an exported package or header defines or imports."""
_MAX_TENSORS = 32
_MAX_NAMES = 64


@dataclass(frozen=True)
class Op:
    """Operation: its interface, and its kernels.

    Parameters
    ----------
    name : str
        An identifier.
    variants : sequence of Variant
        At least one; all have the same tensors and numbers, but for optional tensors, which some lack.
    results : sequence of str
        Tensors that the operation makes and returns, in order. Their extents are extents of the arguments.
    mutates : sequence of str
        Tensors that callers pass and kernels write.
    doc : str
        One line on its function.
    zero_if_empty : bool
        True if the result is zeros, with nothing launched, where an argument has no elements. Where optional tensors
        are passed as well, such a call is refused.
    reference : str
        A Python expression over the arguments and `torch` that the exported test compares the result with.
    tolerance : mapping, optional
        `rtol` and `atol` of that comparison; torch's for the dtype if not given.
    test_extents : sequence of mapping
        Values for the names of extents, for the exported tests and example.
    test_numbers : mapping
        Values for the numbers.
    matmul : bool
        True if it computes d = a b^T, which the exported C example then checks.
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
        check_identifier("an operation's name", self.name)
        if self.name in _TAKEN:
            raise SpecError(f"an operation's name must not be one of {', '.join(sorted(_TAKEN))}, got {self.name!r}")
        check_line(f"{self.name}: doc", self.doc)
        if not self.variants:
            raise SpecError(f"{self.name} must have at least one variant")
        for name in (*self.results, *self.mutates):
            if name not in self.required:
                raise SpecError(
                    f"{self.name}: {name} must be one of the tensors {', '.join(self.required)} of all its variants"
                )
        if doubled := _doubled([*self.results, *self.mutates]):
            raise SpecError(f"{self.name}: results and mutates must name a tensor once, got {doubled} twice")
        if not set(self.inputs) - set(self.optional):
            raise SpecError(f"{self.name} must have a tensor argument that is no result, whose device it runs on")
        if not self.results and not self.mutates:
            raise SpecError(f"{self.name} must say which tensors it writes: results, or mutates")
        if len(self.tensors) > _MAX_TENSORS or len(self.names) > _MAX_NAMES:
            raise SpecError(
                f"{self.name} must have at most {_MAX_TENSORS} tensors and {_MAX_NAMES} names of extents and strides, "
                f"got {len(self.tensors)} and {len(self.names)}"
            )
        called = [*self.tensors, *self.numbers, *self.choices, *self.names]
        for name in called:
            check_identifier(f"{self.name}: a name of an argument or extent", name)
        if doubled := _doubled(called):
            raise SpecError(f"{self.name}: an extent must not be called like an argument, got {doubled}; rename it")
        for n, variant in enumerate(self.variants):
            self._check_variant(variant, f"{self.name}, variant {variant.label or n}")
        if doubled := _doubled([variant.label or str(n) for n, variant in enumerate(self.variants)]):
            raise SpecError(f"{self.name}: labels of variants must differ, got {doubled} twice")
        self._check_results()
        self._check_tests()

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """All tensors: those that callers pass, in the order of the functions' parameters, then the results."""
        found = {name for variant in self.variants for name in variant.tensors}
        named = [p.name for p in self.variants[0].parameters if p.name in found]
        return (*(name for name in named if name not in self.results), *self.results)

    @cached_property
    def required(self) -> tuple[str, ...]:
        """Tensors that all variants have."""
        return tuple(name for name in self.tensors if all(name in variant.tensors for variant in self.variants))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Tensors that callers pass."""
        return tuple(name for name in self.tensors if name not in self.results)

    @property
    def optional(self) -> tuple[str, ...]:
        """Tensors that callers may leave out."""
        return tuple(name for name in self.inputs if name not in self.required)

    @property
    def numbers(self) -> dict[str, str]:
        """Numbers that callers pass, and their types in the schema."""
        return self.variants[0].numbers

    @cached_property
    def choices(self) -> tuple[str, ...]:
        """Text arguments that choose among kernels."""
        return tuple(dict.fromkeys(name for variant in self.variants for name in variant.choices))

    @property
    def parameters(self) -> tuple[str, ...]:
        """Parameters for callers: in the function's order, then the optional ones."""
        passed = {*self.inputs, *self.numbers} - {*self.optional}
        needed = (p.name for p in self.variants[0].parameters if p.name in passed)
        return (*needed, *self.optional, *self.choices)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of extents and strides of all variants."""
        return tuple(dict.fromkeys(name for variant in self.variants for name in variant.names))

    def key_of(self, variant: Variant) -> tuple[Any, ...]:
        """Return the kind of calls that a variant takes: equal keys differ in cost and requirements only."""
        specs = (repr(variant.tensors.get(name)) for name in self.tensors)
        return (*specs, *(variant.choices.get(name) for name in self.choices))

    def _check_tests(self) -> None:
        """Check the inputs of the exported tests."""
        if self.reference:
            check_reference(f"{self.name}: reference", self.reference, self.parameters)
            if not self.results:
                raise SpecError(f"{self.name}: reference is what results are compared with, and there are none")
        if self.tolerance is not None and self.tolerance.keys() != {"rtol", "atol"}:
            got = ", ".join(self.tolerance) or "none"
            raise SpecError(f"{self.name}: tolerance must have rtol and atol, got {got}")
        extents = {name: None for each in self.test_extents for name in each}
        for what, given, known in (
            ("test_extents", extents, self.names),
            ("test_numbers", self.test_numbers, tuple(self.numbers)),
        ):
            if unknown := given.keys() - set(known):
                raise SpecError(
                    f"{self.name}: {what} must be of {', '.join(known) or 'nothing'}, got {', '.join(sorted(unknown))}"
                )

    def _check_variant(self, variant: Variant, where: str) -> None:
        first = self.variants[0]
        # An absent optional tensor is None.
        taken = [[p.name for p in each.parameters] for each in (first, variant)]
        if taken[0] != taken[1] or variant.numbers != first.numbers:
            raise SpecError(
                f"{where}: must take the tensors and numbers of the first variant, {', '.join(taken[0])}, "
                f"got {', '.join(taken[1])}"
            )
        try:
            _ = variant.traced_cost, variant.requirements
        except SpecError as error:
            raise SpecError(f"{where}: {error}") from error
        extents = {extent for name in self.inputs if name in variant.tensors for extent in variant.tensors[name].names}
        for name in self.results:
            if unknown := set(variant.tensors[name].names) - extents:
                raise SpecError(f"{where}: {name}'s extent {', '.join(sorted(unknown))} must be one of an argument's")

    def _check_results(self) -> None:
        """Check that types and ranks of the arguments determine those of the results, which meta functions make."""
        decided: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
        for variant in self.variants:
            specs = [variant.tensors.get(name) for name in self.inputs]
            key = tuple(spec and (spec.dtype, len(spec.shape)) for spec in specs)
            made = [
                (spec.dtype, len(spec.shape), order_of(spec)) for spec in (variant.tensors[n] for n in self.results)
            ]
            if decided.setdefault(key, made) != made:
                raise SpecError(
                    f"{self.name}: variants for arguments of one dtype and rank each must make results of one dtype, "
                    f"rank and order, got {decided[key]} and {made} for {key}; give them different operations"
                )


def _doubled(names: Sequence[str]) -> str:
    return ", ".join(sorted({name for name in names if names.count(name) > 1}))


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
    arch : str
        Architecture that the kernels are compiled for: "sm_90a", "sm_100a", "sm_103a" or "sm_120a". On another GPU the
        exported library refuses calls.
    file : Path, optional
        The file that says so. No export overwrites the folder that holds it.
    """

    name: str
    ops: Sequence[Op]
    version: str = field(default="0.1.0", kw_only=True)
    description: str = field(default="Kernels, compiled ahead of time.", kw_only=True)
    arch: str = field(default=HOPPER, kw_only=True)
    file: Path | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_package(self.name)
        check_line("description", self.description)
        check_version(self.version)
        try:
            checked_arch(self.arch)
        except ValueError as error:
            raise SpecError(f"{self.name}: {error}") from None
        names = [op.name for op in self.ops]
        # The exported test's constants are in capitals.
        if not names or len({name.upper() for name in names}) != len(names):
            raise SpecError(f"{self.name} must have operations of different names, got {', '.join(names) or 'none'}")

    @property
    def sources(self) -> tuple[Path, ...]:
        """Source files of the export: that of the description, and those that define its functions."""
        files = {variant.file for op in self.ops for variant in op.variants} | {self.file}
        return tuple(sorted(file for file in files if file is not None))
