"""The 128-byte descriptor of a TMA copy in im2col mode, and every rule that cuTensorMapEncodeIm2col checks.

Where its fields are was read off what the CuTe DSL's compiler writes for `make_im2col_tma_atom`.

References
----------
CUDA driver API, "Tensor Map Object Management": cuTensorMapEncodeIm2col. PTX ISA, "Tensors": "Im2col mode".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from ..arguments import integer, integers
from ..bit_field import Field
from ..errors import LayoutError
from . import tensor_map_bits as fields
from .mapped_tensor import MAX_BOX, MAX_RANK, MappedTensor, bits_of, check_all_read, read_tensor, words_of

MAX_PIXELS = 1 << fields.PIXELS.width


@dataclass(frozen=True)
class Im2colTensorMap(MappedTensor):
    """Tensor map in im2col mode: copies some channels of a column of pixels.

    Dimension 0 of the tensor is C, the contiguous one; then come W, or W and H, or W, H and D; the last one is N. The
    pixels of a column follow each other along W, H, D and N within a bounding box, which is the tensor's own from
    `lower_corner` to `upper_corner`, relative to its first and last pixels.

    Parameters
    ----------
    dtype : str
        Element type by PTX's name; ``e4m3``, ``e5m2`` and ``s8`` are kept as ``u8``.
    dims : tuple of int
        Extents of the tensor, 1 to 2**32 each; rank 3 to 5.
    strides_bytes : tuple of int
        Strides of dimensions 1, 2 ...; multiples of 16 (of 32 with interleave 32B) below 2**40.
    lower_corner, upper_corner : tuple of int
        Corners of the bounding box, W first: signed, of 16, 8 or 5 bits each at rank 3, 4 or 5.
    channels_per_pixel : int
        Elements of dimension 0 in one copy, 1 to 256; a multiple of 16 bytes, no more than the swizzle's span.
    pixels_per_column : int
        Pixels in one copy, 1 to 1024, however large the element strides are.
    global_address, element_strides, swizzle, interleave, l2_promotion, oob_fill
        As in `TensorMap`.

    Raises
    ------
    LayoutError
        If a rule above does not hold, or the bounding box is empty.
    TypeError
        If an argument is of another type.

    Examples
    --------
    A 3 x 3 filter with padding 1 on an image of 8 x 8 pixels and 64 channels:

    >>> image = Im2colTensorMap("f16", (64, 8, 8, 2), (128, 1024, 8192), (-1, -1), (-1, -1), 64, 128, swizzle="SW128")
    >>> image.box_bytes, list(image.pixels((0, -1, -1, 0)))[7:9]
    (16384, [(6, -1, 0), (-1, 0, 0)])
    >>> Im2colTensorMap.decode(image.encode()) == image
    True

    References
    ----------
    CUDA driver API, cuTensorMapEncodeIm2col.
    """

    lower_corner: tuple[int, ...]
    upper_corner: tuple[int, ...]
    channels_per_pixel: int
    pixels_per_column: int

    def __post_init__(self) -> None:
        self._normalise()
        for name in ("lower_corner", "upper_corner"):
            object.__setattr__(self, name, integers("Im2colTensorMap", name, getattr(self, name)))
        for name in ("channels_per_pixel", "pixels_per_column"):
            object.__setattr__(self, name, integer("Im2colTensorMap", name, getattr(self, name)))
        self._check_kinds()
        if not 3 <= self.rank <= MAX_RANK:
            raise self._error(f"rank must be 3 to {MAX_RANK}, got {self.rank}", "it counts C, W, H, D and N")
        corners = [(name, getattr(self, name), self.rank - 2) for name in ("lower_corner", "upper_corner")]
        self._check_counts(corners)
        self._check_tensor()
        self._check_element_strides()
        self._check_corners()
        for what, value, last in (
            ("channels_per_pixel", self.channels_per_pixel, MAX_BOX),
            ("pixels_per_column", self.pixels_per_column, MAX_PIXELS),
        ):
            if not 1 <= value <= last:
                raise self._error(f"{what} must be 1 to {last}, got {value}", "split the tile into several copies")
        self._check_inner("channels_per_pixel", self.channels_per_pixel)
        self._check_size(self.box_bytes)

    def _check_corners(self) -> None:
        limit = 1 << fields.LOWER_CORNER[self.rank].width - 1
        for name, corner in (("lower_corner", self.lower_corner), ("upper_corner", self.upper_corner)):
            if not all(-limit <= value < limit for value in corner):
                raise self._error(f"{name} must be {-limit} to {limit - 1} at rank {self.rank}, got {corner}")
        if any(low > high for low, high in self.bounds):
            raise self._error(
                f"the bounding box must not be empty, got W, H, D from and to {self.bounds}",
                "lower_corner counts from the first pixel, upper_corner from the last",
            )

    def _operands(self) -> tuple[object, ...]:
        return self.dtype, self.dims, self.strides_bytes, self.lower_corner, self.upper_corner

    @property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """First and last coordinate of the bounding box along W, H and D."""
        spatial = zip(self.lower_corner, self.upper_corner, self.dims[1:-1], strict=True)
        return tuple((low, extent - 1 + high) for low, high, extent in spatial)

    @property
    def box(self) -> tuple[int, int]:
        """Extents of one copy in shared memory: channels, pixels."""
        return self.channels_per_pixel, self.pixels_per_column

    @property
    def box_elems(self) -> tuple[int, int]:
        """Elements that a copy takes: all of the box, for any element strides."""
        return self.box

    @property
    def box_bytes(self) -> int:
        """Bytes that a copy moves, and counts at an mbarrier, also where pixels are outside of the tensor."""
        return self.channels_per_pixel * self.pixels_per_column * self.bits // 8

    def pixels(self, coordinates: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield the pixels of a copy that starts at some coordinates, C first: W, H, D and N of each.

        The next one is an element stride further along W; where that leaves the bounding box, W starts again at its
        lower corner, and H goes on by its element stride; so on to N, which has no bounds. Filters add their offsets
        to these.
        """
        at = list(coordinates[1:])

        def column() -> Iterator[tuple[int, ...]]:
            while True:
                yield tuple(at)
                for n, (low, high) in enumerate(self.bounds):
                    at[n] += self.element_strides[1 + n]
                    if at[n] <= high:
                        break
                    at[n] = low
                else:
                    at[-1] += self.element_strides[-1]

        return islice(column(), self.pixels_per_column)

    def encode(self) -> tuple[int, ...]:
        """Return the first 64 bytes of the descriptor as eight 64-bit words; the other 64 bytes are unused.

        Examples
        --------
        >>> image = Im2colTensorMap("f16", (64, 8, 8, 2), (128, 1024, 8192), (-1, -1), (-2, -3), 64, 128)
        >>> f"{image.encode()[7]:x}"
        '7ffdfeffff'
        """
        bits = fields.IM2COL.write(self._tensor_bits(), 1)
        bits = fields.BOX.write(bits, self.channels_per_pixel - 1)
        bits = fields.PIXELS.write(bits, self.pixels_per_column - 1)
        for n, (low, high) in enumerate(zip(self.lower_corner, self.upper_corner, strict=True)):
            bits = fields.LOWER_CORNER[self.rank].write(bits, low, n)
            bits = fields.UPPER_CORNER[self.rank].write(bits, high, n)
        return words_of(bits)

    @classmethod
    def decode(cls, words: Sequence[int]) -> Im2colTensorMap:
        """Return the tensor map of a descriptor's first eight words; further words are ignored.

        Raises
        ------
        LayoutError
            If the words are not those of a tensor map in im2col mode.
        """
        bits = bits_of("Im2colTensorMap.decode", words)
        tensor = read_tensor("Im2colTensorMap.decode", bits, "an im2col")
        rank = len(tensor["dims"])
        if rank < 3 or not fields.IM2COL.read(bits):
            raise LayoutError("Im2colTensorMap.decode", words_of(bits), "this is no im2col tensor map")
        tensor_map = cls(
            **tensor,
            lower_corner=tuple(_signed(fields.LOWER_CORNER[rank], bits, n) for n in range(rank - 2)),
            upper_corner=tuple(_signed(fields.UPPER_CORNER[rank], bits, n) for n in range(rank - 2)),
            channels_per_pixel=fields.BOX.read(bits) + 1,
            pixels_per_column=fields.PIXELS.read(bits) + 1,
        )
        check_all_read("Im2colTensorMap.decode", bits, tensor_map.encode(), "an im2col")
        return tensor_map


def _signed(field: Field, bits: int, ordinal: int) -> int:
    value = field.read(bits, ordinal)
    return value - (1 << field.width) if value >> field.width - 1 else value
