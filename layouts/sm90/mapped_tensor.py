"""Fields and rules common to all tensor maps, tiled and im2col: the tensor in global memory and its copy.

References
----------
CUDA driver API, "Tensor Map Object Management". CuTe ``arch/copy_sm90_desc.hpp``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..arguments import integer, integers, one_of, text
from ..errors import LayoutError
from . import tensor_map_bits as fields
from .arch import (
    DTYPE_BITS,
    SMEM_BYTES_PER_CTA,
    TMA_ALIASES,
    TMA_CODES,
    TMA_SWIZZLE,
    TMA_UNSETTLED,
    UNIT_BYTES,
    AnySwizzleMode,
    span_bytes,
)

MAX_RANK = 5
MAX_BOX = 256
MAX_ELEMENT_STRIDE = 8
SMEM_ALIGNMENT = 128
"""Bytes to which the shared-memory address of every TMA copy must be aligned."""

Interleave = Literal["none", "16B", "32B"]
L2Promotion = Literal["none", "64B", "128B", "256B"]
OobFill = Literal["zero", "nan"]

INTERLEAVES: tuple[Interleave, ...] = ("none", "16B", "32B")
_PROMOTIONS: tuple[L2Promotion, ...] = ("none", "64B", "128B", "256B")
_FILLS: tuple[OobFill, ...] = ("zero", "nan")
_WORD = (1 << 64) - 1
_WORDS = fields.USED_BYTES // 8
_LARGE_BYTES = 128 * 1024
"""Size from which the compiler sets the large-tensor bit; decoding does not require it."""


@dataclass(frozen=True)
class MappedTensor:
    """Tensor in global memory as a tensor map describes it, with the mode of its copy.

    Parameters
    ----------
    dtype : str
    dims, strides_bytes : tuple of int
        The contiguous dimension first; its stride is left out.
    global_address : int
    element_strides : tuple of int
    swizzle, interleave, l2_promotion, oob_fill : str
        As `TensorMap` has them.
    """

    dtype: str
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    global_address: int = field(default=0, kw_only=True)
    element_strides: tuple[int, ...] = field(default=(), kw_only=True)
    swizzle: AnySwizzleMode = field(default="INTER", kw_only=True)
    interleave: Interleave = field(default="none", kw_only=True)
    l2_promotion: L2Promotion = field(default="128B", kw_only=True)
    oob_fill: OobFill = field(default="zero", kw_only=True)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @property
    def bits(self) -> int:
        """Width of an element."""
        return DTYPE_BITS[self.dtype]

    @property
    def item_bytes(self) -> int:
        """Bytes of an item of dimension 0: an element, or with interleave a pixel's slice of channels."""
        return {"none": self.bits // 8, "16B": 16, "32B": 32}[self.interleave]

    @property
    def global_bytes(self) -> int:
        """Bytes from the first element of the tensor to the end of the last."""
        steps = zip(self.dims[1:], self.strides_bytes, strict=True)
        return self.dims[0] * self.bits // 8 + sum((extent - 1) * stride for extent, stride in steps)

    def _operands(self) -> tuple[object, ...]:
        """Return the fields that an error shows."""
        return self.dtype, self.dims, self.strides_bytes

    def _error(self, condition: str, hint: str = "") -> LayoutError:
        return LayoutError(type(self).__name__, self._operands(), condition, hint)

    # Bits.

    def _tensor_bits(self) -> int:
        """Return the descriptor's bits except those of the box."""
        bits = fields.GLOBAL_ADDRESS.write(0, self.global_address)
        bits = fields.IS_MAP.write(bits, 1)
        bits = fields.LARGE.write(bits, self.global_bytes >= _LARGE_BYTES)
        bits = fields.RANK.write(bits, self.rank - 1)
        bits = self._write_type(bits)
        bits = fields.INTERLEAVE.write(bits, INTERLEAVES.index(self.interleave))
        mode, atom = TMA_SWIZZLE[self.swizzle]
        bits = fields.SWIZZLE_ATOM.write(fields.SWIZZLE.write(bits, mode), atom)
        bits = fields.FILL.write(bits, _FILLS.index(self.oob_fill))
        bits = fields.L2_PROMOTION.write(bits, _PROMOTIONS.index(self.l2_promotion))
        for i, stride in enumerate(self.strides_bytes):
            bits = fields.write_stride(bits, i, stride)
        for i in range(self.rank):
            bits = fields.EXTENT.write(bits, self.dims[i] - 1, i)
            bits = fields.ELEMENT_STRIDE.write(bits, self.element_strides[i] - 1, i)
        return bits

    def _write_type(self, bits: int) -> int:
        """Return the bits with the element type set."""
        return fields.write_element_type(bits, TMA_CODES[self.dtype])

    # Rules.

    def _normalise(self) -> None:
        object.__setattr__(self, "dtype", self._known_dtype())
        for name in ("dims", "strides_bytes", "element_strides"):
            object.__setattr__(self, name, integers(type(self).__name__, name, getattr(self, name)))
        object.__setattr__(self, "element_strides", self.element_strides or (1,) * self.rank)
        address = integer(type(self).__name__, "global_address", self.global_address)
        object.__setattr__(self, "global_address", address)

    def _known_dtype(self) -> str:
        return tma_dtype(type(self).__name__, self._operands(), self.dtype)

    def _check_kinds(self) -> None:
        for name, choices in (
            ("swizzle", tuple(TMA_SWIZZLE)),
            ("interleave", INTERLEAVES),
            ("l2_promotion", _PROMOTIONS),
            ("oob_fill", _FILLS),
        ):
            value = one_of(type(self).__name__, self._operands(), name, getattr(self, name), choices)
            object.__setattr__(self, name, value)
        if self.oob_fill == "nan" and self.dtype[0] in "us":
            raise self._error(f"out-of-bounds NaN needs a floating-point type, got {self.dtype}", "fill with zero")
        if self.interleave == "32B" and self.swizzle != "SW32":
            raise self._error(f"interleave 32B goes with swizzle SW32 only, got {self.swizzle}")

    def _check_counts(self, counts: Sequence[tuple[str, tuple[int, ...], int]]) -> None:
        """Check the numbers of entries, each by name, entries and required number."""
        for name, values, count in (
            ("strides_bytes", self.strides_bytes, self.rank - 1),
            *counts,
            ("element_strides", self.element_strides, self.rank),
        ):
            if len(values) != count:
                raise self._error(f"{name} must have {count} entries at rank {self.rank}, got {len(values)}")

    def _check_tensor(self) -> None:
        unit = max(UNIT_BYTES, self.item_bytes)
        if self.global_address % unit or not 0 <= self.global_address <= _WORD:
            raise self._error(f"the global address must be a multiple of {unit} bytes, got {self.global_address:#x}")
        self._check_range("dimension", self.dims, 1 << 32, "do not copy an empty tensor")
        for i, stride in enumerate(self.strides_bytes, start=1):
            if stride % unit:
                raise self._error(
                    f"the stride of dimension {i} must be a multiple of {unit} bytes, got {stride}",
                    f"pad the contiguous dimension to a multiple of {unit * 8 // self.bits} elements",
                )
            if not 0 <= stride < 1 << 40:
                raise self._error(f"the stride of dimension {i} must be below 2**40 bytes, got {stride}")

    def _check_element_strides(self) -> None:
        self._check_range("element stride", self.element_strides, MAX_ELEMENT_STRIDE)
        if self.interleave == "none" and self.element_strides[0] != 1:
            raise self._error(
                f"element stride 0 must be 1 with interleave none, got {self.element_strides[0]}",
                "the hardware ignores it there and moves the whole inner extent: more bytes than box_bytes counted",
            )

    def _check_inner(self, what: str, elems: int) -> None:
        """Check the bytes of the contiguous dimension in one copy."""
        if self.interleave != "none":
            return
        if elems * self.bits % (8 * UNIT_BYTES):
            raise self._error(f"{what} must be a multiple of {UNIT_BYTES} bytes, got {elems * self.bits // 8}")
        if self.swizzle != "INTER" and elems * self.bits // 8 > span_bytes(self.swizzle):
            raise self._error(
                f"{what} must not exceed the {span_bytes(self.swizzle)} bytes of {self.swizzle},"
                f" got {elems * self.bits // 8}",
                f"take {span_bytes(self.swizzle) * 8 // self.bits} elements and more copies",
            )

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > SMEM_BYTES_PER_CTA:
            raise self._error(f"the box has {size_bytes} bytes, shared memory {SMEM_BYTES_PER_CTA}")

    def _check_range(self, what: str, values: tuple[int, ...], last: int, hint: str = "") -> None:
        for i, value in enumerate(values):
            if not 1 <= value <= last:
                shown = "2**32" if last == 1 << 32 else last
                raise self._error(f"{what} {i} must be 1 to {shown}, got {value}", hint)


def words_of(bits: int) -> tuple[int, ...]:
    """Return a descriptor's bits as eight 64-bit words."""
    return tuple(bits >> 64 * word & _WORD for word in range(_WORDS))


def bits_of(operation: str, words: Sequence[int]) -> int:
    """Return the bits of a descriptor's first eight words; further words are ignored.

    Raises
    ------
    LayoutError
        If there are not eight words of 64 bits.
    """
    words = integers(operation, "words", words)[:_WORDS]
    if len(words) < _WORDS or not all(0 <= word <= _WORD for word in words):
        raise LayoutError(operation, words, "need eight words of 64 bits")
    return sum(word << 64 * i for i, word in enumerate(words))


def read_tensor(operation: str, bits: int, mode: str, types: dict[int, str] | None = None) -> dict[str, Any]:
    """Return the parameters of `MappedTensor` from a descriptor's bits.

    `types` are the names of the element types by code; default: those of `TMA_CODES`.

    Raises
    ------
    LayoutError
        If they are not those of a tensor map of this mode.
    """
    rank, code = fields.RANK.read(bits) + 1, fields.read_element_type(bits)
    types = types or {number: name for name, number in TMA_CODES.items()}
    interleave = fields.INTERLEAVE.read(bits)
    if rank > MAX_RANK or code not in types or interleave >= len(INTERLEAVES):
        kind = bits >> 64 & 0xFFFFFFFF
        raise LayoutError(operation, words_of(bits), f"the kind {kind:#x} is not that of {mode} tensor map")
    return {
        "dtype": types[code],
        "dims": tuple(fields.EXTENT.read(bits, i) + 1 for i in range(rank)),
        "strides_bytes": tuple(fields.read_stride(bits, i) for i in range(rank - 1)),
        "global_address": fields.GLOBAL_ADDRESS.read(bits),
        "element_strides": tuple(fields.ELEMENT_STRIDE.read(bits, i) + 1 for i in range(rank)),
        "swizzle": _read_swizzle(operation, bits),
        "interleave": INTERLEAVES[interleave],
        "l2_promotion": _PROMOTIONS[fields.L2_PROMOTION.read(bits)],
        "oob_fill": _FILLS[fields.FILL.read(bits)],
    }


def _read_swizzle(operation: str, bits: int) -> AnySwizzleMode:
    codes = fields.SWIZZLE.read(bits), fields.SWIZZLE_ATOM.read(bits)
    found = next((name for name, known in TMA_SWIZZLE.items() if known == codes), None)
    if found is not None:
        return found
    if codes in TMA_UNSETTLED:
        condition = f"no public document settles the rows that {TMA_UNSETTLED[codes]} exchanges"
        raise LayoutError(operation, words_of(bits), condition, "take SWIZZLE_128B or SWIZZLE_128B_ATOM_32B")
    condition = f"the swizzle's atomicity must be 0 in mode {codes[0]}, got {codes[1]}"
    raise LayoutError(operation, words_of(bits), condition, "only mode 3, 128 bytes, has others")


def check_all_read(operation: str, bits: int, made: Sequence[int], mode: str) -> None:
    """Check that a descriptor has no bit set that decoding did not read.

    Raises
    ------
    LayoutError
        If it has.
    """
    differ = bits ^ sum(word << 64 * i for i, word in enumerate(made))
    if fields.IS_MAP.write(fields.LARGE.write(differ, 0), 0):
        raise LayoutError(operation, words_of(bits), f"bits are set that no field of {mode} tensor map owns")


def tma_dtype(operation: str, operands: tuple[object, ...], dtype: Any) -> str:  # noqa: ANN401 - unchecked input
    """Return the type that TMA uses for elements of a type, named in any case.

    Raises
    ------
    LayoutError
        If TMA has none.
    """
    name = text(operation, "dtype", dtype).lower()
    name = TMA_ALIASES.get(name, name)
    if name not in TMA_CODES:
        known = ", ".join([*TMA_CODES, *TMA_ALIASES])
        raise LayoutError(operation, operands, f"TMA has no element type {dtype!r}", f"one of {known}")
    return name
