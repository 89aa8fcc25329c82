"""What is exported: operations, the kernels that serve each, and the package they go into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from cutepy.aot.expressions import SM_COUNT
from cutepy.aot.names import (
    SpecError,
    check_identifier,
    check_kind,
    check_line,
    check_package,
    check_reference,
    check_version,
)
from cutepy.aot.variant import Variant, order_of

_TAKEN = frozenset(("error", "dtype", "tensor", "make_tensor", "torch", "Path"))
"""Names that operations can't have beside: what an exported package or header defines or imports."""
_MAX_TENSORS = 32


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
        check_identifier("an operation's name", self.name)
        if self.name in _TAKEN:
            raise SpecError(f"an operation's name must not be one of {', '.join(sorted(_TAKEN))}, got {self.name!r}")
        self._check_kinds()
        if not self.variants:
            raise SpecError(f"{self.name} must have at least one variant")
        first = self.variants[0]
        for name in (*self.results, *self.mutates):
            if name not in first.tensors:
                raise SpecError(f"{self.name}: {name} must be one of its tensors {', '.join(first.tensors)}")
        if doubled := _doubled([*self.results, *self.mutates]):
            raise SpecError(f"{self.name}: results and mutates must name a tensor once, got {doubled} twice")
        if not self.inputs:
            raise SpecError(f"{self.name} must have a tensor argument that is no result, whose device it runs on")
        if not self.results and not self.mutates:
            raise SpecError(f"{self.name} must say which tensors it writes: results, or mutates")
        if len(first.tensors) > _MAX_TENSORS:
            raise SpecError(f"{self.name} must have at most {_MAX_TENSORS} tensors, got {len(first.tensors)}")
        for name in (*self.tensors, *self.numbers, *self.names):
            check_identifier(f"{self.name}: a name of an argument or extent", name)
        if doubled := _doubled([*self.tensors, *self.numbers, *self.names]):
            raise SpecError(f"{self.name}: an extent must not be called like an argument, got {doubled}; rename it")
        for n, variant in enumerate(self.variants):
            self._check_variant(variant, f"{self.name}, variant {variant.label or n}")
        if doubled := _doubled([variant.label or str(n) for n, variant in enumerate(self.variants)]):
            raise SpecError(f"{self.name}: labels of variants must differ, got {doubled} twice")
        self._check_dtypes()
        self._check_tests()

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

    def _check_kinds(self) -> None:
        check_line(f"{self.name}: doc", self.doc)
        for name, kind in (
            ("results", "a list of texts"),
            ("mutates", "a list of texts"),
            ("zero_if_empty", "true or false"),
            ("reference", "a text"),
            ("tolerance", "a table of numbers"),
            ("test_extents", "a list of tables of integers from 0"),
            ("test_numbers", "a table of numbers"),
        ):
            if (value := getattr(self, name)) is not None:
                check_kind(f"{self.name}: {name}", value, kind)

    def _check_tests(self) -> None:
        """Check what the exported tests are made from."""
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
    file : Path, optional
        The file that says so. No export overwrites the folder that holds it.
    """

    name: str
    ops: Sequence[Op]
    version: str = field(default="0.1.0", kw_only=True)
    description: str = field(default="Hopper kernels, compiled ahead of time.", kw_only=True)
    file: Path | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_package(self.name)
        check_line("description", self.description)
        check_version(self.version)
        names = [op.name for op in self.ops]
        # The exported test's constants are in capitals.
        if not names or len({name.upper() for name in names}) != len(names):
            raise SpecError(f"{self.name} must have operations of different names, got {', '.join(names) or 'none'}")

    @property
    def sources(self) -> tuple[Path, ...]:
        """The files that it is made from: the one that describes it, and those that define its functions."""
        files = {variant.file for op in self.ops for variant in op.variants} | {self.file}
        return tuple(sorted(file for file in files if file is not None))
