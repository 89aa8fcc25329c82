"""MMAs and copies as C++ CuTe and the CuTe DSL print them: fields, and the pictures made of these.

References
----------
CuTe ``atom/mma_atom.hpp`` and ``atom/copy_atom.hpp``: ``print`` of MMA_Atom, TiledMMA, ThrMMA, Copy_Atom, TiledCopy and
ThrCopy. The DSL prints the same fields under other names, and of a copy no reference layout.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from ..drawable import Drawable
from ..errors import LayoutError
from ..grids.grid import Grid, Picture
from ..layout import Layout
from ..modes import rank
from ..sm90.copy_atom import CopyAtom
from ..sm90.tiled_copy import TiledCopy
from ..sm90.tiled_mma import TiledMMA
from ..writer import to_text

Operand = Literal["A", "B", "C"]


@dataclass(frozen=True)
class PrintedMMA(Drawable):
    """A printed MMA_Atom, TiledMMA or ThrMMA.

    Parameters
    ----------
    shape_mnk : (int, int, int)
        Extents of the atom.
    thr_id : Layout
        Index within the atom -> thread.
    a_layout, b_layout, c_layout : Layout
        (thread, value) -> colexicographic index in (M, K), (N, K), (M, N) of the atom.
    thr_layout_vmnk : Layout, optional
        Of a TiledMMA: (thread in the atom, m, n, k) -> thread.
    permutation_mnk : tuple, optional
        Of a TiledMMA: for M, N and K a tiler, or None.
    thr_vmnk : tuple, optional
        Of a ThrMMA: which thread it is.

    Raises
    ------
    LayoutError
        If a field has not the rank that it must have.

    Examples
    --------
    >>> from cutepy.layouts import parse
    >>> mma = parse('''MMA_Atom
    ...   ThrID:      _32:_1
    ...   Shape_MNK:  (_16,_8,_16)
    ...   LayoutA_TV: ((_4,_8),(_2,_2,_2)):((_32,_1),(_16,_8,_128))
    ...   LayoutB_TV: ((_4,_8),(_2,_2)):((_16,_1),(_8,_64))
    ...   LayoutC_TV: ((_4,_8),(_2,_2)):((_32,_1),(_16,_8))''')
    >>> mma.shape_mnk, mma.threads.size()
    ((16, 8, 16), 32)
    """

    shape_mnk: tuple[int, int, int]
    thr_id: Layout
    a_layout: Layout
    b_layout: Layout
    c_layout: Layout
    thr_layout_vmnk: Layout | None = None
    permutation_mnk: tuple[Any, Any, Any] | None = None
    thr_vmnk: tuple[int, int, int, int] | None = None

    def __post_init__(self) -> None:
        shape = self.shape_mnk
        if not (isinstance(shape, tuple) and len(shape) == 3 and all(isinstance(extent, int) for extent in shape)):
            raise LayoutError("PrintedMMA", (), f"Shape MNK must be three integers, got {to_text(shape)}")
        _check_rank("PrintedMMA", "ThrID", self.thr_id, None)
        for name, layout in (("A", self.a_layout), ("B", self.b_layout), ("C", self.c_layout)):
            _check_rank("PrintedMMA", f"the thread-value layout of {name}", layout, 2)
        if self.thr_layout_vmnk is not None:
            _check_rank("PrintedMMA", "ThrLayoutVMNK", self.thr_layout_vmnk, 4)
        tilers = self.permutation_mnk
        if tilers is not None and not (isinstance(tilers, tuple) and len(tilers) == 3):
            raise LayoutError("PrintedMMA", (), f"PermutationMNK must be three tilers, got {to_text(tilers)}")

    def __str__(self) -> str:
        return "\n".join(
            (
                *_lines("ThrMMA", (("Thr VMNK", self.thr_vmnk),)),
                *_lines(
                    "TiledMMA", (("ThrLayoutVMNK", self.thr_layout_vmnk), ("PermutationMNK", self.permutation_mnk))
                ),
                *_lines(
                    "MMA_Atom",
                    (
                        ("ThrID", self.thr_id),
                        ("Shape_MNK", self.shape_mnk),
                        ("LayoutA_TV", self.a_layout),
                        ("LayoutB_TV", self.b_layout),
                        ("LayoutC_TV", self.c_layout),
                    ),
                ),
            )
        )

    @property
    def is_tiled(self) -> bool:
        """True if it is a TiledMMA or ThrMMA, not an atom."""
        return self.thr_layout_vmnk is not None

    @property
    def threads(self) -> Layout:
        """(thread in the atom, m, n, k) -> thread."""
        return self.tiled().thr_layout_vmnk

    @property
    def tile_shape(self) -> tuple[int, int, int]:
        """Extents along M, N and K that all atoms cover together."""
        return self.tiled().tile_shape

    def tiled(self) -> TiledMMA:
        """Return the printed object as a TiledMMA: its partitions, and copies tiled after it.

        An atom is a tiling of one. Element types, which are not printed, are left empty.

        Raises
        ------
        LayoutError
            If the threads are not those of whole atoms, or the reordering of M, N or K is no tiler.

        Examples
        --------
        >>> from cutepy.layouts import parse
        >>> mma = parse('''MMA_Atom ThrID: _1:_0 Shape_MNK: (_1,_1,_1)
        ...   LayoutA_TV: (_1,_1):(_0,_0) LayoutB_TV: (_1,_1):(_0,_0) LayoutC_TV: (_1,_1):(_0,_0)''')
        >>> mma.tiled().partition_shape_C((4, 8))
        (1, 4, 8)
        """
        from ..sm90.tiled_mma import TiledMMA
        from ..sm90.traits import MmaTraits

        name = f"MMA_Atom {'x'.join(map(str, self.shape_mnk))}"
        traits = MmaTraits(name, self.shape_mnk, self.thr_id, self.a_layout, self.b_layout, self.c_layout, *3 * [""])
        if self.thr_layout_vmnk is None:
            return TiledMMA(traits)
        try:
            return TiledMMA.of_threads(traits, self.thr_layout_vmnk, self.permutation_mnk or (None, None, None))
        except TypeError as error:  # the values of a text are attributes of any type
            raise LayoutError("PrintedMMA.tiled", (), str(error)) from None

    def _picture_(self, *, operand: Operand | None = None) -> Grid | Picture:
        """Draw the owner of each element of A, B and C, or of one of them."""
        from ..grids.of_threads import marked
        from ..sm90.pictures import tiled_mma_picture

        mma = self.tiled()
        extents = "x".join(map(str, mma.tile_shape))
        threads = f"{mma.thr_size} thread{'' if mma.thr_size == 1 else 's'}"
        title = f"{'TiledMMA' if self.is_tiled else 'MMA_Atom'} {extents}, {threads}"
        picture = tiled_mma_picture(mma, operand, title=title)
        return picture if self.thr_vmnk is None else marked(picture, mma.thr_layout_vmnk(self.thr_vmnk))


@dataclass(frozen=True)
class PrintedCopy(Drawable):
    """A printed Copy_Atom, TiledCopy or ThrCopy.

    Parameters
    ----------
    src_layout, dst_layout : Layout, optional
        (thread, value) -> element, of the side that is read and the side that is written.
    ref_layout : Layout, optional
        The side after which the copy is tiled. Default, as the DSL doesn't print it: the one whose threads hold shorter
        stretches, as registers do.
    thr_id : Layout, optional
        Index within the atom -> thread.
    value_type : str
        The element's type or width: ``"f16"``, ``"16b"``.
    tiler_mn : tuple, optional
        Of a TiledCopy: for each mode of the tile an extent or a layout.
    layout_tv : Layout, optional
        Of a TiledCopy: (thread, value) -> colexicographic index in the tile.
    thr_idx : int, optional
        Of a ThrCopy: which thread it is.

    Raises
    ------
    LayoutError
        If a layout has not rank 2, or there is neither an atom nor a tile.

    Examples
    --------
    >>> from cutepy.layouts import parse
    >>> copy = parse('''Copy Atom
    ...   ThrID:         32:1
    ...   TV Layout Src: (32,8):(8,1)
    ...   TV Layout Dst: (32,(2,4)):(2,(1,64))
    ...   Value type:    f16''')
    >>> copy.bits, copy.reference == copy.dst_layout
    (16, True)
    """

    src_layout: Layout | None = None
    dst_layout: Layout | None = None
    ref_layout: Layout | None = None
    thr_id: Layout | None = None
    value_type: str = ""
    tiler_mn: tuple[Any, ...] | None = None
    layout_tv: Layout | None = None
    thr_idx: int | None = None

    def __post_init__(self) -> None:
        named = {
            "TiledLayout_TV": self.layout_tv,
            "ValLayoutSrc": self.src_layout,
            "ValLayoutDst": self.dst_layout,
            "ValLayoutRef": self.ref_layout,
        }
        for name, layout in named.items():
            if layout is not None:
                _check_rank("PrintedCopy", name, layout, 2)
        if (self.src_layout is None) != (self.dst_layout is None):
            raise LayoutError("PrintedCopy", (), "a copy has a source and a destination, got one of them")
        if (self.tiler_mn is None) != (self.layout_tv is None):
            raise LayoutError("PrintedCopy", (), "a TiledCopy has Tiler_MN and TiledLayout_TV, got one of them")
        if self.src_layout is None and self.layout_tv is None:
            raise LayoutError("PrintedCopy", (), "neither an atom nor a tile is given")

    def __str__(self) -> str:
        return "\n".join(
            (
                *_lines("ThrCopy", (("ThrIdx", self.thr_idx),)),
                *_lines("TiledCopy", (("Tiler_MN", self.tiler_mn), ("TiledLayout_TV", self.layout_tv))),
                *_lines(
                    "Copy_Atom",
                    (
                        ("ThrID", self.thr_id),
                        ("ValLayoutSrc", self.src_layout),
                        ("ValLayoutDst", self.dst_layout),
                        ("ValLayoutRef", self.ref_layout),
                        ("ValueType", self.value_type or None),
                    ),
                ),
            )
        )

    @property
    def is_tiled(self) -> bool:
        """True if it is a TiledCopy or ThrCopy, not an atom."""
        return self.layout_tv is not None

    @property
    def bits(self) -> int | None:
        """Width of an element; None where it is not printed."""
        width = re.search(r"\d+", self.value_type)
        return int(width.group()) if width else None

    @property
    def reference(self) -> Layout | None:
        """The side after which the copy is tiled."""
        if self.ref_layout is not None or self.src_layout is None or self.dst_layout is None:
            return self.ref_layout
        return min((self.dst_layout, self.src_layout), key=_run)

    def atom(self) -> CopyAtom:
        """Return the printed instruction.

        For a TiledCopy that is printed without its atom, return an atom that moves one element of one thread: each
        thread then has the elements of the tiling. An element without a printed width has 16 bits.
        """
        from ..sm90.copy_atom import CopyAtom

        bits = self.bits or 16
        if self.src_layout is None or self.dst_layout is None or self.reference is None:
            one = Layout((1, 1))
            return CopyAtom("Copy_Atom", bits, Layout(1), one, one, one)
        thr_id = Layout(self.src_layout[0].size()) if self.thr_id is None else self.thr_id
        return CopyAtom("Copy_Atom", bits, thr_id, self.src_layout, self.dst_layout, self.reference)

    def tiled(self) -> TiledCopy:
        """Return the printed object as a TiledCopy: its partitions, and the fragment elements that it moves.

        Raises
        ------
        LayoutError
            If an atom is printed, without a tiling; or the two don't fit.

        Examples
        --------
        >>> from cutepy.layouts import parse
        >>> copy = parse("TiledCopy Tiler_MN: (_4,_8) TiledLayout_TV: ((_4,_2),_4):((_1,_16),_4)")
        >>> print(*copy.tiled().partition_S(Layout((8, 8)), 5))
        ((1,4),2,1):((0,8),4,0) 33
        """
        from ..sm90.tiled_copy import TiledCopy

        if self.layout_tv is None or self.tiler_mn is None:
            raise LayoutError("PrintedCopy.tiled", (), "an atom without a tiling is printed", "take .atom()")
        try:
            return TiledCopy(self.atom(), self.layout_tv, self.tiler_mn)
        except TypeError as error:
            raise LayoutError("PrintedCopy.tiled", (), str(error)) from None

    def _picture_(self) -> Grid | Picture:
        """Draw the thread that reads each element, and the one that writes it; one grid where they are the same."""
        from ..grids.of_threads import marked
        from ..sm90.copy_pictures import copy_picture, tiled_copy_picture

        what = f", {self.bits}-bit elements" if self.bits else ""
        if self.is_tiled:
            copy = self.tiled()
            title = f"TiledCopy {'x'.join(map(str, copy.tile_shape))}{what}"
            picture = tiled_copy_picture(copy, title)
        else:
            title = f"Copy_Atom{what}"
            picture = copy_picture(self.atom(), self.atom().bits, title)
        drawn: Grid | Picture = picture
        if self.src_layout == self.dst_layout:
            sides = "(thread, value)" if self.src_layout is None else "source and destination alike"
            drawn = picture.grids[0].but(title=f"{title}: {sides}")
        return drawn if self.thr_idx is None else marked(drawn, self.thr_idx)


def _check_rank(operation: str, name: str, layout: object, required: int | None) -> None:
    if not isinstance(layout, Layout) or (required is not None and rank(layout) != required):
        wanted = "a layout" if required is None else f"a layout of rank {required}"
        raise LayoutError(operation, (), f"{name} must be {wanted}, got {to_text(layout)}")


def _run(layout: Layout) -> int:
    """Return the number of neighbours among a thread's first values."""
    values = layout[1]
    return next((i for i in range(values.size()) if values(i) != i), values.size())


def _lines(title: str, fields: tuple[tuple[str, object], ...]) -> list[str]:
    told = [(name, text if isinstance(text, str) else to_text(text)) for name, text in fields if text is not None]
    width = max((len(name) for name, _ in told), default=0) + 2
    return [title, *(f"  {name + ':':<{width}}{text}" for name, text in told)] if told else []
