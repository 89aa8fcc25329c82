"""The 128-byte descriptor of a tiled TMA copy, and every rule that cuTensorMapEncodeTiled checks.

References
----------
CUDA driver API, "Tensor Map Object Management": cuTensorMapEncodeTiled. PTX ISA, "Tensor Copies" and
"tensormap.replace". CuTe ``arch/copy_sm90_desc.hpp``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from ..drawn import Drawn
from ..errors import LayoutError
from . import tensor_map_bits as fields
from .arch import (
    DTYPE_BITS,
    SMEM_BYTES_PER_CTA,
    SWIZZLE_MODES,
    TMA_ALIASES,
    TMA_CODES,
    TMA_SWIZZLE,
    UNIT_BYTES,
    SwizzleMode,
    span_bytes,
)
from .arguments import integer, integers, one_of, text

if TYPE_CHECKING:
    from ..render.grid import Grid

MAX_RANK = 5
MAX_BOX = 256
MAX_ELEMENT_STRIDE = 8
SMEM_ALIGNMENT = 128
"""Bytes to which the shared-memory address of every TMA copy must be aligned."""

Interleave = Literal["none", "16B", "32B"]
L2Promotion = Literal["none", "64B", "128B", "256B"]
OobFill = Literal["zero", "nan"]

_INTERLEAVES: tuple[Interleave, ...] = ("none", "16B", "32B")
_PROMOTIONS: tuple[L2Promotion, ...] = ("none", "64B", "128B", "256B")
_FILLS: tuple[OobFill, ...] = ("zero", "nan")
_WORD = (1 << 64) - 1
_WORDS = fields.USED_BYTES // 8
_LARGE_BYTES = 128 * 1024
"""The compiler tells tensors that reach this many bytes by a bit, on which `TensorMap.decode` does not insist."""


@dataclass(frozen=True)
class TensorMap(Drawn):
    """A TMA descriptor: how a box of a tensor in global memory is copied to or from shared memory.

    Dimension 0 is the contiguous one.

    Parameters
    ----------
    dtype : str
        Element type by PTX's name; ``e4m3``, ``e5m2`` and ``s8`` are kept as ``u8``.
    dims : tuple of int
        Extents of the tensor, 1 to 2**32 each; rank 1 to 5.
    strides_bytes : tuple of int
        Of dimensions 1, 2 ...; multiples of 16 (of 32 with interleave 32B) below 2**40.
    box : tuple of int
        Extents of one copy, 1 to 256 each; dimension 0 a multiple of 16 bytes, no more than the swizzle's span.
    global_address : int
        Bytes, a multiple of 16 (of 32 with interleave 32B).
    element_strides : tuple of int
        Every which element is taken, 1 to 8 each; dimension 0 only with interleave. Default: all.
    swizzle : "INTER", "SW32", "SW64" or "SW128"
        INTER is none.
    interleave : "none", "16B" or "32B"
        Channel-interleaved tensors: rank >= 3; 32B goes with SW32 only.
    l2_promotion : "none", "64B", "128B" or "256B"
        Granularity of L2 fetches.
    oob_fill : "zero" or "nan"
        What elements outside of the tensor read as.

    Raises
    ------
    LayoutError
        If a rule above does not hold.
    TypeError
        If an argument is of another type.

    Examples
    --------
    >>> tma = TensorMap("f16", (512, 4096), (1024,), (64, 128), swizzle="SW128")
    >>> tma.box_bytes
    16384
    >>> TensorMap.decode(tma.encode()) == tma
    True

    References
    ----------
    CUDA driver API, cuTensorMapEncodeTiled.
    """

    dtype: str
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    global_address: int = field(default=0, kw_only=True)
    element_strides: tuple[int, ...] = field(default=(), kw_only=True)
    swizzle: SwizzleMode = field(default="INTER", kw_only=True)
    interleave: Interleave = field(default="none", kw_only=True)
    l2_promotion: L2Promotion = field(default="128B", kw_only=True)
    oob_fill: OobFill = field(default="zero", kw_only=True)

    def __post_init__(self) -> None:
        operands = self.dtype, self.dims, self.strides_bytes, self.box
        object.__setattr__(self, "dtype", tma_dtype("TensorMap", operands, self.dtype))
        for name in ("dims", "strides_bytes", "box", "element_strides"):
            object.__setattr__(self, name, integers("TensorMap", name, getattr(self, name)))
        object.__setattr__(self, "element_strides", self.element_strides or (1,) * self.rank)
        object.__setattr__(self, "global_address", integer("TensorMap", "global_address", self.global_address))
        self._check_kinds()
        self._check_ranks()
        self._check_tensor()
        self._check_box()

    def _picture_(self) -> Grid:
        """Draw a table of its dimensions."""
        from .pictures import tensor_map_grid

        return tensor_map_grid(self)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @property
    def bits(self) -> int:
        """Width of an element."""
        return DTYPE_BITS[self.dtype]

    @property
    def global_bytes(self) -> int:
        """Bytes from the first element of the tensor to the end of the last."""
        steps = zip(self.dims[1:], self.strides_bytes, strict=True)
        return self.dims[0] * self.bits // 8 + sum((extent - 1) * stride for extent, stride in steps)

    @property
    def box_elems(self) -> tuple[int, ...]:
        """Elements that a copy takes along each dimension: the box over the element strides, rounded up."""
        return tuple(-(-extent // step) for extent, step in zip(self.box, self.element_strides, strict=True))

    @property
    def box_bytes(self) -> int:
        """Bytes that a copy moves, and counts at an mbarrier, also where the box sticks out of the tensor."""
        return prod(self.box_elems) * self.bits // 8

    def encode(self) -> tuple[int, ...]:
        """Return the first 64 bytes of the descriptor as eight 64-bit words; the other 64 bytes mean nothing.

        Examples
        --------
        >>> words = TensorMap("bf16", (64, 32), (128,), (64, 32), swizzle="SW128", global_address=0x1000).encode()
        >>> [f"{word:x}" for word in words]
        ['1000', '800046512', '0', '0', '1f0000003f', '0', '3f00000000000000', '1f']
        """
        bits = fields.GLOBAL_ADDRESS.write(0, self.global_address)
        bits = fields.TILED.write(bits, 1)
        bits = fields.LARGE.write(bits, self.global_bytes >= _LARGE_BYTES)
        bits = fields.RANK.write(bits, self.rank - 1)
        bits = fields.write_element_type(bits, TMA_CODES[self.dtype])
        bits = fields.INTERLEAVE.write(bits, _INTERLEAVES.index(self.interleave))
        bits = fields.SWIZZLE.write(bits, TMA_SWIZZLE[self.swizzle])
        bits = fields.FILL.write(bits, _FILLS.index(self.oob_fill))
        bits = fields.L2_PROMOTION.write(bits, _PROMOTIONS.index(self.l2_promotion))
        for i, stride in enumerate(self.strides_bytes):
            bits = fields.write_stride(bits, i, stride)
        for i in range(self.rank):
            bits = fields.EXTENT.write(bits, self.dims[i] - 1, i)
            bits = fields.ELEMENT_STRIDE.write(bits, self.element_strides[i] - 1, i)
            bits = fields.BOX.write(bits, self.box[i] - 1, i)
        return tuple(bits >> 64 * word & _WORD for word in range(_WORDS))

    @classmethod
    def decode(cls, words: Sequence[int]) -> TensorMap:
        """Return the tensor map of a descriptor's first eight words; further words are not looked at.

        Raises
        ------
        LayoutError
            If the words are not those of a tiled tensor map.
        """
        words = integers("TensorMap.decode", "words", words)
        words = words[:_WORDS]
        if len(words) < _WORDS or not all(0 <= word <= _WORD for word in words):
            raise LayoutError("TensorMap.decode", words, "need eight words of 64 bits")
        bits = sum(word << 64 * i for i, word in enumerate(words))
        rank, code = fields.RANK.read(bits) + 1, fields.read_element_type(bits)
        types = {number: name for name, number in TMA_CODES.items()}
        interleave = fields.INTERLEAVE.read(bits)
        if rank > MAX_RANK or code not in types or interleave >= len(_INTERLEAVES):
            kind = words[1] & 0xFFFFFFFF
            raise LayoutError("TensorMap.decode", words, f"the kind {kind:#x} is not that of a tiled tensor map")
        tensor_map = cls(
            types[code],
            tuple(fields.EXTENT.read(bits, i) + 1 for i in range(rank)),
            tuple(fields.read_stride(bits, i) for i in range(rank - 1)),
            tuple(fields.BOX.read(bits, i) + 1 for i in range(rank)),
            global_address=fields.GLOBAL_ADDRESS.read(bits),
            element_strides=tuple(fields.ELEMENT_STRIDE.read(bits, i) + 1 for i in range(rank)),
            swizzle=SWIZZLE_MODES[fields.SWIZZLE.read(bits)],
            interleave=_INTERLEAVES[interleave],
            l2_promotion=_PROMOTIONS[fields.L2_PROMOTION.read(bits)],
            oob_fill=_FILLS[fields.FILL.read(bits)],
        )
        differ = bits ^ sum(word << 64 * i for i, word in enumerate(tensor_map.encode()))
        if fields.TILED.write(fields.LARGE.write(differ, 0), 0):
            raise LayoutError("TensorMap.decode", words, "bits are set that no field of a tiled tensor map owns")
        return tensor_map

    def _check_kinds(self) -> None:
        operands = self.dtype, self.dims, self.strides_bytes, self.box
        for name, choices in (
            ("swizzle", SWIZZLE_MODES),
            ("interleave", _INTERLEAVES),
            ("l2_promotion", _PROMOTIONS),
            ("oob_fill", _FILLS),
        ):
            object.__setattr__(self, name, one_of("TensorMap", operands, name, getattr(self, name), choices))
        if self.oob_fill == "nan" and self.dtype[0] in "us":
            raise self._error(f"out-of-bounds NaN needs a floating-point type, got {self.dtype}", "fill with zero")
        if self.interleave == "32B" and self.swizzle != "SW32":
            raise self._error(f"interleave 32B goes with swizzle SW32 only, got {self.swizzle}")

    def _check_ranks(self) -> None:
        if not 1 <= self.rank <= MAX_RANK:
            raise self._error(f"rank must be 1 to {MAX_RANK}, got {self.rank}", "merge contiguous dimensions")
        if self.interleave != "none" and self.rank < 3:
            raise self._error(f"interleave {self.interleave} needs rank >= 3, got {self.rank}")
        for name, values, count in (
            ("strides_bytes", self.strides_bytes, self.rank - 1),
            ("box", self.box, self.rank),
            ("element_strides", self.element_strides, self.rank),
        ):
            if len(values) != count:
                raise self._error(f"{name} must have {count} entries at rank {self.rank}, got {len(values)}")

    def _check_tensor(self) -> None:
        unit = 32 if self.interleave == "32B" else UNIT_BYTES
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

    def _check_box(self) -> None:
        self._check_range("box extent", self.box, MAX_BOX, "split the tile into several copies")
        self._check_range("element stride", self.element_strides, MAX_ELEMENT_STRIDE)
        if self.interleave == "none" and self.element_strides[0] != 1:
            raise self._error(
                f"element stride 0 must be 1 with interleave none, got {self.element_strides[0]}",
                "the hardware ignores it there and moves the whole inner extent: more bytes than box_bytes counted",
            )
        inner = self.box[0] * self.bits // 8
        if self.interleave == "none":
            if self.box[0] * self.bits % (8 * UNIT_BYTES):
                raise self._error(f"the box's inner extent must be a multiple of {UNIT_BYTES} bytes, got {inner}")
            if self.swizzle != "INTER" and inner > span_bytes(self.swizzle):
                raise self._error(
                    f"the box's inner extent must not exceed the {span_bytes(self.swizzle)} bytes of {self.swizzle},"
                    f" got {inner}",
                    f"take {span_bytes(self.swizzle) * 8 // self.bits} elements and more copies",
                )
        if self.box_bytes > SMEM_BYTES_PER_CTA:
            raise self._error(f"the box has {self.box_bytes} bytes, shared memory {SMEM_BYTES_PER_CTA}")

    def _check_range(self, what: str, values: tuple[int, ...], last: int, hint: str = "") -> None:
        for i, value in enumerate(values):
            if not 1 <= value <= last:
                shown = "2**32" if last == 1 << 32 else last
                raise self._error(f"{what} {i} must be 1 to {shown}, got {value}", hint)

    def _error(self, condition: str, hint: str = "") -> LayoutError:
        return LayoutError("TensorMap", (self.dtype, self.dims, self.strides_bytes, self.box), condition, hint)


def tma_dtype(operation: str, operands: tuple[object, ...], dtype: Any) -> str:  # noqa: ANN401 - unchecked input
    """Return the type as which TMA moves elements of a type, named in any case.

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
