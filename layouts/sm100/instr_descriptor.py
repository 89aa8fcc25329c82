"""The 32-bit instruction descriptor of tcgen05.mma: dense, block-scaled, and of packed fp4.

References
----------
PTX ISA, "Instruction Descriptor" of tcgen05: one table for each group of kinds. CuTe ``arch/mma_sm100_desc.hpp``,
``UMMA::InstrDescriptor`` and ``UMMA::InstrDescriptorBlockScaled``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import gcd
from typing import Any, Final

from ..arguments import integer, text
from ..bit_field import Field, stray_bits
from ..drawable import Drawable
from ..errors import LayoutError
from ..grids.grid import Grid
from ..hardware import Major
from ..sm90.gmma import check_major
from .arch import CTA_GROUPS
from .kinds import MmaKind, check_choice, check_cta_group, mma_kind, ranged

_NAME = "InstrDescriptor"

_COMMON: dict[str, Field] = {
    "sparse_selector": Field(0, 2),
    "sparse": Field(2, 1),
    "a_dtype": Field(7, 3),
    "b_dtype": Field(10, 3),
    "a_negate": Field(13, 1),
    "b_negate": Field(14, 1),
    "a_major": Field(15, 1),
    "b_major": Field(16, 1),
    "n": Field(17, 6),
    "m": Field(24, 5),
}
_DENSE = {**_COMMON, "saturate": Field(3, 1), "d_dtype": Field(4, 2), "max_shift": Field(30, 2)}
_SCALED = {**_COMMON, "b_sf_id": Field(4, 2), "scale_dtype": Field(23, 1), "a_sf_id": Field(29, 2)}
_FP4 = {**_SCALED, "b_dtype": Field(10, 2), "sparsity_version": Field(12, 1), "k": Field(31, 1)}

_MAJOR_CODES: Final[dict[Any, int]] = {"K": 0, "MN": 1}
_SHIFT_CODES: Final[dict[Any, int]] = {0: 0, 8: 1, 16: 2, 32: 3}

_MEANINGS: Final = {
    "sparse_selector": "sparsity selector: the part of the metadata's columns that is read",
    "sparse": "A is sparse",
    "saturate": "results are clamped to s32",
    "d_dtype": "type of D",
    "b_sf_id": "first byte of B's scale factors in their column",
    "a_dtype": "type of A",
    "b_dtype": "type of B",
    "sparsity_version": "sparsity version, not read by sm_100 and sm_103",
    "a_negate": "A is negated",
    "b_negate": "B is negated",
    "a_major": "major of A",
    "b_major": "major of B",
    "n": "N",
    "scale_dtype": "type of the scale factors",
    "m": "M, of both CTAs together",
    "a_sf_id": "first byte of A's scale factors in their column",
    "k": "K",
    "max_shift": "most rows by which .ws shifts a B that it uses again",
}
"""Meaning of each field, in the order of the bits."""


def fields_of(kind: MmaKind) -> dict[str, Field]:
    """Return the fields of a kind's descriptor, in the order of the bits.

    Examples
    --------
    >>> list(fields_of(mma_kind("i8")))[:4]
    ['sparse_selector', 'sparse', 'saturate', 'd_dtype']
    """
    known = _FP4 if kind.packs_fp4 else _SCALED if kind.block_scaled else _DENSE
    return dict(sorted(known.items(), key=lambda item: item[1].bit))


def codes_of(kind: MmaKind, *, sparse: bool = False) -> dict[str, Mapping[Any, int]]:
    """Return the fields whose values are coded: value -> code."""
    return {
        "a_dtype": kind.codes,
        "b_dtype": kind.codes,
        "d_dtype": kind.d_codes,
        "scale_dtype": kind.scale_codes,
        "a_major": _MAJOR_CODES,
        "b_major": _MAJOR_CODES,
        "max_shift": _SHIFT_CODES,
        "m": {m: m >> 4 for m in (32, 64, 128, 256)},
        "n": {n: n >> 3 for n in range(8, 257, 8)},
        "k": {2 * kind.k: 0} if sparse else {kind.k: 0, 96: 1},
    }


@dataclass(frozen=True)
class InstrDescriptor(Drawable):
    """Instruction descriptor of tcgen05.mma: shape, types and majors of one MMA, as a register's 32 bits.

    Parameters
    ----------
    kind : str
        ``f16``, ``tf32``, ``f8f6f4``, ``i8``, ``mxf8f6f4``, ``mxf4`` or ``mxf4nvf4``: not part of the 32 bits, the
        instruction's qualifier tells it.
    m, n : int
        Extents of D, of both CTAs of a pair together.
    a_dtype, b_dtype : str, optional
        Element types by PTX's names. Default: the kind's first, and A's.
    d_dtype : str, optional
        Type of D. Default: ``s32`` of ``i8``, else ``f32``; of block-scaled kinds it has no bits.
    a_major, b_major : "K" or "MN"
        Majors; MN is PTX's "transpose", not of types of 4 and 6 bits.
    a_negate, b_negate : bool
        The operand is negated; not of ``i8``.
    saturate : bool
        Integer results are clamped; of ``i8`` only.
    sparse : bool
        A is sparse.
    sparse_selector : int
        0 to 3; of sparse MMAs only.
    max_shift : int
        0, 8, 16 or 32; of ``.ws`` only.
    scale_dtype : str, optional
        Type of the scale factors of block-scaled kinds. Default: the kind's first.
    a_sf_id, b_sf_id : int
        0 to 3: the byte of a column at which the scale factors start.
    k : int, optional
        Elements along K: packed fp4 has a bit for 96. Default: the kind's.
    sparsity_version : int
        0 or 1; of packed fp4 only, and not read.

    Raises
    ------
    LayoutError
        If a value is not one of the kind's.
    TypeError
        If an argument is of another type.

    Examples
    --------
    >>> d = InstrDescriptor("f16", 128, 256)
    >>> hex(d), d.k
    ('0x8400010', 16)
    >>> InstrDescriptor.decode(0x8400010, kind="f16") == d
    True

    References
    ----------
    PTX ISA, "Instruction Descriptor" of tcgen05. CuTe ``arch/mma_sm100_desc.hpp``, ``make_instr_desc``.
    """

    kind: str
    m: int
    n: int
    a_dtype: str | None = field(default=None, kw_only=True)
    b_dtype: str | None = field(default=None, kw_only=True)
    d_dtype: str | None = field(default=None, kw_only=True)
    a_major: Major = field(default="K", kw_only=True)
    b_major: Major = field(default="K", kw_only=True)
    a_negate: bool = field(default=False, kw_only=True)
    b_negate: bool = field(default=False, kw_only=True)
    saturate: bool = field(default=False, kw_only=True)
    sparse: bool = field(default=False, kw_only=True)
    sparse_selector: int = field(default=0, kw_only=True)
    max_shift: int = field(default=0, kw_only=True)
    scale_dtype: str | None = field(default=None, kw_only=True)
    a_sf_id: int = field(default=0, kw_only=True)
    b_sf_id: int = field(default=0, kw_only=True)
    k: int | None = field(default=None, kw_only=True)
    sparsity_version: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        kind = mma_kind(self.kind)
        self._set("kind", kind.name)
        for name in ("m", "n", "sparse_selector", "max_shift", "a_sf_id", "b_sf_id", "sparsity_version"):
            self._set(name, integer(_NAME, name, getattr(self, name)))
        for name in ("a_negate", "b_negate", "saturate", "sparse"):
            self._set(name, bool(getattr(self, name)))
        for name in ("a_dtype", "b_dtype", "d_dtype", "scale_dtype"):
            if getattr(self, name) is not None:
                text(_NAME, name, getattr(self, name))
        for name in ("a_major", "b_major"):
            self._set(name, check_major(_NAME, (self.kind, self.m, self.n), getattr(self, name)))
        self._fill(kind)
        known, codes = fields_of(kind), codes_of(kind, sparse=self.sparse)
        for name in _MEANINGS:
            value = getattr(self, name)
            if name not in known:
                self._check_absent(kind, name, value)
            elif name in codes:
                if value not in codes[name]:
                    choices = (
                        ranged(tuple(codes[name])) if name in ("m", "n", "k") else f"one of {_listed(codes[name])}"
                    )
                    raise self._error(f"{name} of kind::{kind.name} must be {choices}; got {value!r}")
            elif not 0 <= value < 1 << known[name].width:
                raise self._error(f"{name} must be 0 to {(1 << known[name].width) - 1}, got {value}")
        self._check_meaning(kind)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _fill(self, kind: MmaKind) -> None:
        """Set fields that were left open to the kind's."""
        if self.a_dtype is None:
            self._set("a_dtype", next(iter(kind.codes)))
        if self.b_dtype is None:
            self._set("b_dtype", self.a_dtype)
        if self.d_dtype is None:
            self._set("d_dtype", "f32" if "f32" in kind.d_codes or kind.block_scaled else "s32")
        if self.scale_dtype is None and kind.block_scaled:
            self._set("scale_dtype", next(iter(kind.scale_codes)))
        self._set("k", kind.k * (2 if self.sparse else 1) if self.k is None else integer(_NAME, "k", self.k))

    def _check_absent(self, kind: MmaKind, name: str, value: object) -> None:
        """Raise LayoutError where a field is set that the kind's descriptor does not have."""
        usual: object = {
            "k": kind.k * (2 if self.sparse else 1),
            "d_dtype": "f32",
            "scale_dtype": None,
            "saturate": False,
        }.get(name, 0)
        if value != usual:
            raise self._error(f"{name} of kind::{kind.name} has no bits: it is {usual}; got {value!r}")

    def _check_meaning(self, kind: MmaKind) -> None:
        """Raise LayoutError where values that have bits mean nothing together."""
        for name in ("a", "b"):
            dtype = getattr(self, f"{name}_dtype")
            if getattr(self, f"{name}_major") == "MN" and not kind.takes_mn_major(dtype):
                raise self._error(f"{name}_major must be K for {dtype} elements, got MN")
            if getattr(self, f"{name}_negate") and kind.name == "i8":
                raise self._error(f"{name}_negate must be False for kind::i8, got True")
        if self.saturate and kind.name != "i8":
            raise self._error(f"saturate must be False for kind::{kind.name}: it clamps integers; got True")
        if self.sparse_selector and not self.sparse:
            raise self._error(f"sparse_selector must be 0 for a dense MMA, got {self.sparse_selector}")
        if kind.name == "f16" and self.d_dtype == "f16" and (self.a_dtype, self.b_dtype) != ("f16", "f16"):
            raise self._error(f"d_dtype f16 needs A and B of f16, got {self.a_dtype} and {self.b_dtype}")
        fits = any(
            self.m in kind.m_choices(cta_group=group, sparse=self.sparse, ws=ws)
            and self.n in kind.n_choices(cta_group=group, sparse=self.sparse, ws=ws, b_major=self.b_major)
            and self.k in kind.k_choices(m=self.m, cta_group=group, sparse=self.sparse)
            for group in CTA_GROUPS
            for ws in (False, True)
        )
        if not fits:
            what = "sparse" if self.sparse else "dense"
            raise self._error(
                f"no {what} MMA of kind::{kind.name} has the shape {self.m}x{self.n}x{self.k}, of one CTA or two",
                f'mma_kind("{kind.name}").m_choices, n_choices and k_choices tell the extents',
            )

    def _error(self, condition: str, hint: str = "") -> LayoutError:
        return LayoutError(_NAME, (self.kind, self.m, self.n), condition, hint)

    def check(self, *, cta_group: int, ws: bool = False, scale_vector: int | None = None) -> None:
        """Raise LayoutError unless an instruction with these qualifiers takes the descriptor.

        Parameters
        ----------
        cta_group : int
            1 or 2, of ``.cta_group::N``.
        ws : bool
            The instruction is ``tcgen05.mma.ws``.
        scale_vector : int, optional
            Elements along K that share a scale factor, 16 or 32: the byte at which the factors start must leave room.

        Examples
        --------
        >>> InstrDescriptor("f16", 256, 128).check(cta_group=1)
        Traceback (most recent call last):
            ...
        cutepy.layouts.errors.LayoutError: InstrDescriptor('f16', 256, 128): M of kind::f16 with cta_group::1 must be \
64 or 128, got 256; nearest is 128
        """
        kind = mma_kind(self.kind)
        operands = (self.kind, self.m, self.n)
        check_cta_group("InstrDescriptor.check", operands, cta_group)
        form = (
            f"of kind::{kind.name}{' sparse' if self.sparse else ''} with {'ws, ' if ws else ''}cta_group::{cta_group}"
        )
        m_choices = kind.m_choices(cta_group=cta_group, sparse=self.sparse, ws=ws)
        n_choices = kind.n_choices(cta_group=cta_group, sparse=self.sparse, ws=ws, b_major=self.b_major)
        k_choices = kind.k_choices(m=self.m, cta_group=cta_group, sparse=self.sparse)
        if not m_choices:
            raise self._error(f"there is no MMA {form}")
        check_choice(_NAME, operands, f"M {form}", self.m, m_choices)
        check_choice(_NAME, operands, f"N {form}", self.n, n_choices)
        check_choice(_NAME, operands, f"K {form}", self.k or kind.k, k_choices)
        if self.max_shift and not ws:
            raise self._error(f"max_shift must be 0 without .ws, got {self.max_shift}")
        if scale_vector is not None and kind.block_scaled:
            check_choice(_NAME, operands, f"scale_vector {form}", scale_vector, set(kind.scale_vectors.values()))
            factors = (self.k or kind.k) // (2 if self.sparse else 1) // scale_vector
            for name in ("a_sf_id", "b_sf_id"):
                check_choice(_NAME, operands, f"{name} {form}", getattr(self, name), range(0, 4, gcd(factors, 4)))

    @classmethod
    def decode(cls, word: int, *, kind: str) -> InstrDescriptor:
        """Decode a 32-bit word by the kind of its instruction.

        Raises
        ------
        LayoutError
            If the word has more than 32 bits, a bit set that no field owns, or a code that the kind does not have.

        Examples
        --------
        >>> d = InstrDescriptor.decode(0x4108490, kind="f16")
        >>> d.m, d.n, d.a_dtype, d.d_dtype, d.a_major
        (64, 64, 'bf16', 'f32', 'MN')
        """
        found = mma_kind(kind)
        operation = f"{_NAME}.decode"
        word = integer(operation, "word", word)
        if not 0 <= word < 1 << 32:
            raise LayoutError(operation, (hex(word),), "an instruction descriptor has 32 bits: need 0 <= word < 2**32")
        fields = fields_of(found)
        if stray := stray_bits(word, sum(one.mask for one in fields.values())):
            raise LayoutError(
                operation, (hex(word), found.name), f"{word:#010x} sets {stray}", f"is it of kind::{found.name}?"
            )
        values: dict[str, Any] = {name: one.read(word) for name, one in fields.items()}
        codes = codes_of(found, sparse=bool(values["sparse"]))
        for name in (name for name in codes if name in values):
            by_code = {code: value for value, code in codes[name].items()}
            if values[name] not in by_code:
                known = ", ".join(f"{code} {value}" for code, value in by_code.items())
                at = fields[name]
                raise LayoutError(
                    operation,
                    (hex(word), found.name),
                    f"{name} (bits {bit_range(at)}) of kind::{found.name} must be one of {known}; got {values[name]}",
                )
            values[name] = by_code[values[name]]
        return cls(found.name, values.pop("m"), values.pop("n"), **values)

    def __int__(self) -> int:
        kind = mma_kind(self.kind)
        codes = codes_of(kind, sparse=self.sparse)
        word = 0
        for name, one in fields_of(kind).items():
            value = getattr(self, name)
            word = one.write(word, codes[name][value] if name in codes else int(value))
        return word

    __index__ = __int__

    def explain(self) -> str:
        """Explain every field: its bits, its value and its meaning.

        Examples
        --------
        >>> print(InstrDescriptor("mxf4nvf4", 128, 64).explain())  # doctest: +ELLIPSIS
        instruction descriptor 0x08100480 of kind::mxf4nvf4: 128x64x64 (M x N x K)
          0..1    0     sparsity selector: the part of the metadata's columns that is read
          ...
          31      64    K
        """
        rows = [f"  {bits:<7} {text:<5} {meaning}" for bits, text, meaning in self.rows()]
        shape = f"{self.m}x{self.n}x{self.k} (M x N x K)"
        return "\n".join([f"instruction descriptor {int(self):#010x} of kind::{self.kind}: {shape}", *rows])

    def rows(self) -> list[tuple[str, str, str]]:
        """List every field as bits, value and meaning."""
        return [
            (bit_range(one), _text(getattr(self, name)), _MEANINGS[name])
            for name, one in fields_of(mma_kind(self.kind)).items()
        ]

    def _picture_(self) -> Grid:
        """Draw a table of its fields."""
        from .pictures import instr_descriptor_grid

        return instr_descriptor_grid(self)


def bit_range(one: Field) -> str:
    """Format a field's bits.

    Examples
    --------
    >>> bit_range(Field(4, 2)), bit_range(Field(3, 1))
    ('4..5', '3')
    """
    return str(one.bit) if one.width == 1 else f"{one.bit}..{one.bit + one.width - 1}"


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def _text(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
