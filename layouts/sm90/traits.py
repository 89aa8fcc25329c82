"""CuTe's traits of one instruction: thread-value layouts of an MMA's operands, and of a copy's two sides.

References
----------
CuTe ``atom/mma_traits.hpp`` and ``atom/copy_traits.hpp``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeVar, cast

from ..drawable import Drawable
from ..grids.grid import Grid, Picture
from ..layout import Layout
from ..recast import upcast
from .arch import DTYPE_BITS
from .gmma import check_bits

Operand = Literal["A", "B", "C"]
Source = Literal["smem", "rmem", "tmem"]


@dataclass(frozen=True)
class MmaTraits(Drawable):
    """CuTe's ``MMA_Traits`` of one instruction.

    Parameters
    ----------
    name : str
        CuTe's name of the atom.
    shape_mnk : (int, int, int)
        Extents of the MMA.
    thr_id : Layout
        Index within the threads that issue it together -> thread.
    a_layout, b_layout, c_layout : Layout
        (thread, value) -> colexicographic index in (M, K), (N, K), (M, N).
    a_dtype, b_dtype, c_dtype : str
        Element types by PTX's names, empty where they are not known; C and D have one type.

    Examples
    --------
    >>> fma = MmaTraits("UniversalFMA<float>", (1, 1, 1), Layout(1), *3 * [Layout((1, 1))], "f32", "f32", "f32")
    >>> fma.source("A")
    'rmem'
    """

    name: str
    shape_mnk: tuple[int, int, int]
    thr_id: Layout
    a_layout: Layout
    b_layout: Layout
    c_layout: Layout
    a_dtype: str
    b_dtype: str
    c_dtype: str

    def _picture_(self, *, operand: Operand | None = None) -> Grid | Picture:
        """Draw the owner of each element of A, B and C, or of one of them."""
        from .pictures import traits_picture

        return traits_picture(self, operand)

    def source(self, operand: Operand) -> Source:
        """Return an operand's source: ``"rmem"``, registers of the threads, or ``"smem"``.

        An operand that each of several threads sees from its first element on is in shared memory.
        """
        threads: Layout = {"A": self.a_layout, "B": self.b_layout, "C": self.c_layout}[operand][0]
        return "smem" if threads.size() > 1 and threads.cosize() == 1 else "rmem"

    @property
    def ptx(self) -> str:
        """PTX instruction of the atom; empty where the traits don't determine it."""
        return ""

    @property
    def a_bits(self) -> int:
        """Width of an element of A."""
        return DTYPE_BITS[self.a_dtype]

    @property
    def b_bits(self) -> int:
        """Width of an element of B."""
        return DTYPE_BITS[self.b_dtype]

    @property
    def c_bits(self) -> int:
        """Width of an accumulator."""
        return DTYPE_BITS[self.c_dtype]


AnyCopy = TypeVar("AnyCopy", bound="CopyTraits")


@dataclass(frozen=True)
class CopyTraits(Drawable):
    """CuTe's ``Copy_Traits`` of one instruction, before an element type is chosen.

    Parameters
    ----------
    name : str
        CuTe's name of the operation.
    thr_id : Layout
        Index within the threads that issue it together -> thread.
    src_layout, dst_layout : Layout
        (thread, bit) -> bit, of the side that is read and the side that is written; where bit 0 lies is arbitrary.
    ref_layout : Layout
        The one of them after which a `TiledCopy` of the instruction is laid out: the registers'.

    Examples
    --------
    >>> CopyTraits("UniversalCopy<uint32_t>", Layout(1), *3 * [Layout((1, 32))]).in_elements(16).src_layout
    Layout((1, 2),(0, 1))
    """

    name: str
    thr_id: Layout
    src_layout: Layout
    dst_layout: Layout
    ref_layout: Layout

    def _picture_(self, *, bits: int = 16) -> Picture:
        """Draw the elements that each thread reads and writes, in elements of `bits` bits."""
        from .copy_pictures import copy_picture

        return copy_picture(self.in_elements(bits), bits)

    def in_elements(self: AnyCopy, bits: int = 16) -> AnyCopy:
        """Return the same traits with layouts in elements of `bits` bits.

        Raises
        ------
        LayoutError
            If the instruction moves no whole elements of that width.
        """
        check_bits("in_elements", (bits,), bits)
        source, destination, reference = (
            cast(Layout, upcast(layout, bits)) for layout in (self.src_layout, self.dst_layout, self.ref_layout)
        )
        return replace(self, src_layout=source, dst_layout=destination, ref_layout=reference)
