"""tcgen05.ld and tcgen05.st: the lane and the column of tensor memory of each thread's registers.

References
----------
PTX ISA, "Data Movement Shape" of tcgen05 and the figures of its matrix fragments; "tcgen05.ld"; "tcgen05.st". CuTe
``atom/copy_traits_sm100.hpp``, ``SM100_TMEM_LOAD_*`` and ``SM100_TMEM_STORE_*``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Final, NamedTuple

from ..algebra import coalesce
from ..arguments import integer, one_of
from ..basis import E
from ..errors import LayoutError
from ..grids.grid import Picture
from ..hardware import WARP_THREADS
from ..int_tuple import wrap
from ..layout import Layout
from ..recast import upcast
from ..sm90.copy_atom import make_copy_atom
from ..sm90.make_tiled_copy import make_cotiled_copy
from ..sm90.tiled_copy import TiledCopy
from ..sm90.traits import CopyTraits
from .arch import TMEM_COLUMN_BITS, TMEM_LANE_SHIFT
from .tmem import TmemTensor, lane_stride

DP_BITS: Final = TMEM_COLUMN_BITS << TMEM_LANE_SHIFT
"""Stride from lane to lane of a layout in bits, CuTe's ``TMEM::DP_b``."""

_LANE, _COLUMN = E(0), E(1)


class _Shape(NamedTuple):
    """One data movement shape: (thread, register) -> (lane, column), repeated along the columns.

    Attributes
    ----------
    lanes : int
        Lanes of the quarter that it reaches.
    columns : int
        Columns of one repetition.
    threads, registers : (shape, strides)
        Of one repetition; a stride is (lanes, columns).
    most : int
        The highest number of repetitions.
    cute : str
        CuTe's name of the shape.
    """

    lanes: int
    columns: int
    threads: tuple[tuple[int, ...], tuple[tuple[int, int], ...]]
    registers: tuple[tuple[int, ...], tuple[tuple[int, int], ...]]
    most: int
    cute: str

    @property
    def registers_of_one(self) -> int:
        """Registers of a thread that hold one repetition."""
        return prod(self.registers[0])


SHAPES: Final[dict[str, _Shape]] = {
    "32x32b": _Shape(32, 1, ((32,), ((1, 0),)), ((), ()), 128, "32dp32b"),
    "16x64b": _Shape(16, 2, ((2, 2, 8), ((8, 0), (0, 1), (1, 0))), ((), ()), 128, "16dp64b"),
    "16x128b": _Shape(16, 4, ((4, 8), ((0, 1), (1, 0))), ((2,), ((8, 0),)), 64, "16dp128b"),
    "16x256b": _Shape(16, 8, ((4, 8), ((0, 2), (1, 0))), ((2, 2), ((0, 1), (8, 0))), 32, "16dp256b"),
    "16x32bx2": _Shape(16, 1, ((16, 2), ((1, 0), (0, 0))), ((), ()), 128, "16dp32b"),
}
"""Every shape of tcgen05.ld and tcgen05.st. Threads 16 to 31 of 16x32bx2 lie a given number of columns on."""


@dataclass(frozen=True)
class TmemCopyTraits(CopyTraits):
    """Traits of one tcgen05.ld or tcgen05.st of a warp: (thread, register) -> (lane, column).

    The other fields are CuTe's ``Copy_Traits``. Lanes count from the quarter's first, or from the lane of the address.

    Parameters
    ----------
    name : str
        CuTe's name of the operation.
    thr_id, src_layout, dst_layout, ref_layout : Layout
        As of `CopyTraits`, in bits: the side of tensor memory is seen whole by all threads.
    val_id : Layout
        Bit -> bit of tensor memory, where a lane is ``2**21`` bits: CuTe's ``ValID``.
    shape : str
        ``32x32b``, ``16x64b``, ``16x128b``, ``16x256b`` or ``16x32bx2``.
    repeats : int
        N of ``.xN``.
    packed : bool
        ``.pack::16b`` of a load, ``.unpack::16b`` of a store: a register holds the low halves of two columns.
    split_columns : int
        Columns from threads 0 to 15 to threads 16 to 31 of 16x32bx2, its immediate; else 0.
    store : bool
        tcgen05.st.

    Examples
    --------
    >>> load = tmem_load_traits("16x256b", 2)
    >>> load.registers, load.columns, load.ptx
    (8, 16, 'tcgen05.ld.sync.aligned.16x256b.x2.b32')
    >>> print(load.layout)
    ((4,8),(2,2,2)):((2@1,1@0),(1@1,8@0,8@1))
    >>> load.layout(5, 3)
    (9, 3)
    """

    val_id: Layout
    shape: str
    repeats: int
    packed: bool
    split_columns: int
    store: bool

    @property
    def lanes(self) -> int:
        """Lanes that the instruction reaches: 16 or 32."""
        return SHAPES[self.shape].lanes

    @property
    def registers(self) -> int:
        """Registers of 32 bits of each thread."""
        return self.layout[1].size()

    @property
    def columns(self) -> int:
        """Columns from the first to the last that the instruction reaches."""
        own = SHAPES[self.shape].columns * self.repeats * (2 if self.packed else 1)
        return own + self.split_columns

    @property
    def layout(self) -> Layout:
        """(thread, register) -> (lane, column); of a packed register, the column of its low half.

        Examples
        --------
        >>> print(tmem_load_traits("32x32b", 4, packed=True).layout)
        (32,4):(1@0,2@1)
        """
        scale = 2 if self.packed else 1
        return _layout(self.shape, self.repeats, scale, self.split_columns)

    @property
    def halves_layout(self) -> Layout:
        """(thread, (half, register)) -> (lane, half of a column), for elements of 16 bits.

        Columns count halves: 2c is the low half of column c. Without packing the halves of a register are those of one
        column; with it, the low halves of two.

        Examples
        --------
        >>> print(tmem_load_traits("32x32b", 4, packed=True).halves_layout)
        (32,(2,4)):(1@0,(2@1,4@1))
        """
        whole = _layout(self.shape, self.repeats, 4 if self.packed else 2, 2 * self.split_columns)
        (threads, registers), (thread_steps, register_steps) = whole.shape, whole.stride
        half = (2 if self.packed else 1) * _COLUMN
        return Layout((threads, (2, *wrap(registers))), (thread_steps, (half, *wrap(register_steps))))

    @property
    def ptx(self) -> str:
        """PTX instruction, up to the operands."""
        verb, pack = ("st", ".unpack::16b") if self.store else ("ld", ".pack::16b")
        return f"tcgen05.{verb}.sync.aligned.{self.shape}.x{self.repeats}{pack if self.packed else ''}.b32"

    def _picture_(self, *, bits: int = 32) -> Picture:
        """Draw tensor memory, lanes down and columns across, with the thread and value of each element."""
        from .pictures import tmem_copy_picture

        return tmem_copy_picture(self, bits)


def tmem_load_traits(
    shape: str, repeats: int, *, packed: bool = False, split_columns: int | None = None
) -> TmemCopyTraits:
    """Return the traits of a tcgen05.ld.

    Parameters
    ----------
    shape : str
        ``32x32b``, ``16x64b``, ``16x128b``, ``16x256b`` or ``16x32bx2``.
    repeats : int
        N of ``.xN``: a power of two to 128, to 64 of 16x128b, to 32 of 16x256b.
    packed : bool
        ``.pack::16b``.
    split_columns : int, optional
        The immediate of 16x32bx2. Default: the columns of one half, so that both lie side by side.

    Raises
    ------
    LayoutError
        If there is no such instruction.

    Examples
    --------
    >>> print(tmem_load_traits("16x64b", 1).dst_layout)
    ((2,2,8),32):((512,32,64),1)
    """
    return _traits("tmem_load_traits", shape, repeats, packed, split_columns, store=False)


def tmem_store_traits(
    shape: str, repeats: int, *, packed: bool = False, split_columns: int | None = None
) -> TmemCopyTraits:
    """Return the traits of a tcgen05.st; arguments and errors are those of `tmem_load_traits`.

    Examples
    --------
    >>> tmem_store_traits("32x32b", 8, packed=True).ptx
    'tcgen05.st.sync.aligned.32x32b.x8.unpack::16b.b32'
    """
    return _traits("tmem_store_traits", shape, repeats, packed, split_columns, store=True)


def tmem_copy_names() -> list[str]:
    """Return CuTe's name of every tcgen05.ld and tcgen05.st.

    Examples
    --------
    >>> len(tmem_copy_names()), tmem_copy_names()[0]
    (148, 'SM100_TMEM_LOAD_32dp32b1x')
    """
    return [
        _name(shape, 1 << power, packed, store)
        for store in (False, True)
        for shape, parts in SHAPES.items()
        for power in range(parts.most.bit_length())
        for packed in (False, True)
    ]


def _traits(
    operation: str, shape: str, repeats: int, packed: bool, split_columns: int | None, *, store: bool
) -> TmemCopyTraits:
    operands = (shape, repeats)
    shape = one_of(operation, operands, "shape", shape, SHAPES)
    repeats = integer(operation, "repeats", repeats)
    parts = SHAPES[shape]
    if repeats not in {1 << power for power in range(parts.most.bit_length())}:
        raise LayoutError(
            operation, operands, f"repeats of {shape} must be a power of two from 1 to {parts.most}, got {repeats}"
        )
    halves = shape == "16x32bx2"
    if split_columns is None:
        split_columns = repeats * (2 if packed else 1) if halves else 0
    split_columns = integer(operation, "split_columns", split_columns)
    if split_columns < 0:
        raise LayoutError(operation, operands, f"split_columns must be 0 or more, got {split_columns}")
    if split_columns and not halves:
        raise LayoutError(operation, operands, f"split_columns is for 16x32bx2 only, got {split_columns}")
    width = (2 if halves else 1) * parts.columns * repeats  # columns of a lane as CuTe counts them, packed or not
    registers = _in_bits(_layout(shape, repeats, 1, repeats if halves else 0), width * TMEM_COLUMN_BITS)
    tmem = Layout((WARP_THREADS, parts.lanes * width * TMEM_COLUMN_BITS), (0, 1))
    row = ((16, 2 * width), (1, TMEM_COLUMN_BITS)) if packed else (width * TMEM_COLUMN_BITS, 1)
    source, destination = (registers, tmem) if store else (tmem, registers)
    return TmemCopyTraits(
        _name(shape, repeats, packed, store),
        Layout(WARP_THREADS, 1),
        source,
        destination,
        tmem,
        Layout((row[0], parts.lanes), (row[1], DP_BITS)),
        shape,
        repeats,
        packed,
        split_columns,
        store,
    )


def _name(shape: str, repeats: int, packed: bool, store: bool) -> str:
    return f"SM100_TMEM_{'STORE' if store else 'LOAD'}_{SHAPES[shape].cute}{repeats}x{'_16b' if packed else ''}"


def _layout(shape: str, repeats: int, column: int, split: int) -> Layout:
    """Return (thread, register) -> (lane, column), where columns are `column` apart and the halves `split`."""
    parts = SHAPES[shape]

    def strides(of: tuple[tuple[int, int], ...]) -> list[Any]:
        return [lanes * _LANE if lanes else (column * columns or split) * _COLUMN for lanes, columns in of]

    threads: Any = parts.threads[0], tuple(strides(parts.threads[1]))
    if len(threads[0]) == 1:
        threads = threads[0][0], threads[1][0]
    registers: Any = (*parts.registers[0], repeats)
    steps: Any = (*strides(parts.registers[1]), column * parts.columns * _COLUMN)
    if len(registers) == 1:
        registers, steps = repeats, steps[0]
    return Layout((threads[0], registers), (threads[1], steps))


def _in_bits(layout: Layout, lane_bits: int) -> Layout:
    """Return (thread, bit) -> bit, where a lane has `lane_bits`, of a layout of registers."""
    weights = {(0,): lane_bits, (1,): TMEM_COLUMN_BITS}

    def scaled(stride: Any) -> Any:  # noqa: ANN401 - nested strides
        if isinstance(stride, tuple):
            return tuple(map(scaled, stride))
        return stride.value * weights[stride.modes]

    threads, registers = layout.shape
    values = coalesce(Layout((TMEM_COLUMN_BITS, *wrap(registers)), (1, *wrap(scaled(layout.stride[1])))))
    return Layout((threads, values.shape), (scaled(layout.stride[0]), values.stride))


def make_tmem_copy(traits: TmemCopyTraits, tensor: TmemTensor) -> TiledCopy:
    """Tile a tcgen05.ld or tcgen05.st over a tensor: four warps, each at the same place of its quarter.

    Parameters
    ----------
    traits : TmemCopyTraits
        The instruction.
    tensor : TmemTensor, (M, N)
        An accumulator, or another tensor with elements of 16 or 32 bits.

    Returns
    -------
    TiledCopy
        Of 128 threads. ``partition_S`` of a load gives the tensor's places, ``partition_D`` a thread's registers;
        of a layout of coordinates, both give the elements' coordinates.

    Raises
    ------
    LayoutError
        If the instruction reaches columns or lanes where the tensor has no element.

    Examples
    --------
    >>> from cutepy.layouts import make_identity_layout
    >>> from cutepy.layouts.sm100 import tmem_accumulator
    >>> copy = make_tmem_copy(tmem_load_traits("32x32b", 32), tmem_accumulator(128, 128))
    >>> copy.thr_size, copy.tile_shape
    (128, (128, 32))
    >>> registers, origin = copy.partition_D(make_identity_layout((128, 128)), 37)
    >>> print(registers, origin)
    ((32,1),1,4):((1@1,0),0,32@1) (37, 0)

    References
    ----------
    CuTe ``atom/copy_traits_sm100.hpp``, ``make_tmem_copy``.
    """
    quarters = Layout((WARP_THREADS, 4), (0, 32 * lane_stride(tensor.bits)))
    values = coalesce(upcast(traits.val_id, tensor.bits))
    layout_tv = Layout((quarters.shape, values.shape), (quarters.stride, values.stride))
    return make_cotiled_copy(make_copy_atom(traits, tensor.bits), layout_tv, tensor.layout)
