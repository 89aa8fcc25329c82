"""TiledCopy: copy atoms side by side, with the reader and the writer of each element of a tile.

References
----------
CuTe ``atom/copy_atom.hpp``, ``TiledCopy`` and ``ThrCopy``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from ..algebra import AnyLayout, coalesce, composition, right_inverse
from ..arguments import check_layout, integer, wrong_type
from ..composed import ComposedLayout, SmemPtr
from ..drawable import Drawable
from ..errors import LayoutError
from ..grids.grid import Grid, Picture
from ..int_tuple import IntTuple, check_extents, product, product_each
from ..layout import Layout
from ..modes import rank, shape, size, slice_, slice_and_offset, zip_modes
from ..recast import upcast
from ..tiling import logical_product, zipped_divide
from ..writer import to_text
from .copy_atom import CopyAtom
from .thrfrg import on_tile

Side = Literal["S", "D"]


@dataclass(frozen=True)
class TiledCopy(Drawable):
    """Copy atoms tiled over threads and values: a map from (thread, value) to elements of a tile, on either side.

    The layout of threads and values is told for the side that the atom's `ref_layout` is of, the registers; what the
    other side reads or writes follows from the atom. Layouts passed to the methods map elements, (M, N, ...), to
    whatever: memory, or coordinates. `make_tiled_copy` and its family make it; this constructor is C++'s
    ``make_tiled_copy_impl`` and the DSL's ``make_tiled_copy``.

    Parameters
    ----------
    atom : CopyAtom
        The instruction.
    layout_tv : Layout
        (thread, value) -> colexicographic index in the tile.
    tiler_mn : tuple
        For each mode the extent of the tile, or the layout of the elements that it takes.

    Raises
    ------
    LayoutError
        If the atom does not divide the threads and the values.

    Examples
    --------
    >>> from cutepy.layouts.sm90 import make_copy_atom, make_tiled_copy, universal_copy
    >>> copy = make_tiled_copy(make_copy_atom(universal_copy(64), 16), Layout((4, 2), (2, 1)), Layout((1, 4)))
    >>> print(copy)
    TiledCopy(CopyAtom(UniversalCopy<uint64_t>, 16), ((2,4),4):((16,1),4), (4,8))
    >>> copy.thr_size, copy.tile_shape
    (8, (4, 8))
    >>> part, offset = copy.partition_S(Layout((8, 16), (16, 1)), 3)
    >>> print(part, offset)
    ((4,1),2,2):((1,0),64,8) 20
    """

    atom: CopyAtom
    layout_tv: Layout
    tiler_mn: tuple[IntTuple | Layout, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.atom, CopyAtom):
            required = "a CopyAtom"
            raise TypeError(f"{wrong_type('TiledCopy', 'atom', required, self.atom)}; make one with make_copy_atom")
        operands = (self.atom.name, self.layout_tv, self.tiler_mn)
        if not isinstance(self.layout_tv, Layout) or rank(self.layout_tv) != 2:
            raise LayoutError("TiledCopy", operands, "layout_tv must be a layout of rank 2, (thread, value)")
        if not isinstance(self.tiler_mn, tuple) or not self.tiler_mn:
            raise wrong_type("TiledCopy", "tiler_mn", "a tuple of extents or layouts", self.tiler_mn)
        for i, tiler in enumerate(self.tiler_mn):
            if not isinstance(tiler, int | tuple | Layout):
                raise wrong_type("TiledCopy", f"tiler_mn[{i}]", "an extent or a Layout", tiler)
            if not isinstance(tiler, Layout):
                check_extents("TiledCopy", operands, tiler)
        for mode, what in enumerate(("threads", "values")):
            has, takes = size(self.layout_tv, mode), size(self.atom.ref_layout, mode)
            if has % takes:
                raise LayoutError(
                    "TiledCopy", operands, f"the {what} must be a multiple of the {takes} of {self.atom}, got {has}"
                )

    def __str__(self) -> str:
        return f"TiledCopy({self.atom}, {self.layout_tv}, {to_text(self.tiler_mn)})"

    def _picture_(self, *, side: Side | None = None) -> Grid | Picture:
        """Draw the reader and the writer of each element of the tile; or one of both, ``"S"`` or ``"D"``."""
        from .copy_pictures import side_grid, tiled_copy_picture

        return tiled_copy_picture(self) if side is None else side_grid(self, side)

    @property
    def thr_size(self) -> int:
        """Number of threads."""
        return size(self.layout_tv, 0)

    @property
    def tile_shape(self) -> tuple[int, ...]:
        """Extents of the tile."""
        return tuple(tiler.size() if isinstance(tiler, Layout) else product(tiler) for tiler in self.tiler_mn)

    def tidfrg_S(self, layout: AnyLayout) -> AnyLayout:
        """Partition a source (M, N, ...) into (Thr,(FrgV,FrgX),(RestM,RestN,...))."""
        return self._tidfrg("S", layout)

    def tidfrg_D(self, layout: AnyLayout) -> AnyLayout:
        """Partition a destination (M, N, ...) into (Thr,(FrgV,FrgX),(RestM,RestN,...))."""
        return self._tidfrg("D", layout)

    def partition_S(self, layout: AnyLayout, thread: int) -> tuple[AnyLayout, Any]:
        """Return a thread's source elements of (M, N, ...): (layout of ((FrgV,FrgX), RestM, RestN, ...), offset)."""
        return self._partition("S", layout, thread)

    def partition_D(self, layout: AnyLayout, thread: int) -> tuple[AnyLayout, Any]:
        """Return a thread's destination elements of (M, N, ...): (layout of ((FrgV,FrgX), RestM, ...), offset)."""
        return self._partition("D", layout, thread)

    def retile(self, layout: AnyLayout) -> AnyLayout:
        """Rearrange a thread's fragment, (V, RestM, RestN, ...), into the values of this copy's atoms.

        A fragment that another tiling partitioned, `TiledMMA.fragment_C` say, holds the same elements; this is CuTe's
        ``retile_S`` and ``retile_D``.

        Returns
        -------
        Layout
            Of ((FrgV,FrgX), RestM, RestN, ...) -> what `layout` maps to.
        """
        check_layout("retile", "layout", layout)
        return on_tile(self._retile, layout)

    def get_layoutS_TV(self) -> Layout:
        """Return (thread, value) -> colexicographic index in the tile, of the side that is read."""
        return self._layout_tv("S")

    def get_layoutD_TV(self) -> Layout:
        """Return (thread, value) -> colexicographic index in the tile, of the side that is written."""
        return self._layout_tv("D")

    def _tidfrg(self, side: Side, layout: AnyLayout) -> AnyLayout:
        check_layout(f"tidfrg_{side}", "layout", layout)
        if rank(layout) < len(self.tiler_mn):
            raise LayoutError(
                f"tidfrg_{side}", (layout,), f"need rank >= {len(self.tiler_mn)}, the tiler's, got {rank(layout)}"
            )
        return on_tile(lambda tile: self._by_thread(zipped_divide(tile, self.tiler_mn), side), layout)

    def _by_thread(self, tiles: AnyLayout, side: Side) -> AnyLayout:
        """Take ((TileM, TileN, ...), Rest) apart into (Thr, (FrgV, FrgX), Rest)."""
        by_value = composition(tiles, (self._thrval[side], None))
        return slice_(((None, None), None), by_value)

    @cached_property
    def _thrval(self) -> dict[Side, Layout]:
        """For each side: (thread, (value of an atom, atom)) -> index in the tile."""
        reference = self.atom.ref_layout
        by_atom = zipped_divide(self.layout_tv, (size(reference, 0), size(reference, 1)))
        to_reference = right_inverse(reference)
        sides: dict[Side, Layout] = {"S": self.atom.src_layout, "D": self.atom.dst_layout}
        return {
            side: coalesce(zip_modes(composition(by_atom, (composition(to_reference, layout), None))), (1, (1, 1)))
            for side, layout in sides.items()
        }

    def _partition(self, side: Side, layout: AnyLayout, thread: int) -> tuple[AnyLayout, Any]:
        thread = integer(f"partition_{side}", "thread", thread)
        if not 0 <= thread < self.thr_size:
            raise LayoutError(f"partition_{side}", (layout, thread), f"thread must be in [0, {self.thr_size})")
        partitioned = self._tidfrg(side, layout)
        coordinate = (thread, None, (None,) * rank(partitioned, 2))
        if isinstance(partitioned, ComposedLayout) and isinstance(partitioned.offset, SmemPtr):
            tile, offset = slice_and_offset(coordinate, partitioned.layoutA)
            return ComposedLayout(partitioned.layoutB, partitioned.offset, tile), offset
        return slice_and_offset(coordinate, partitioned)

    def _retile(self, layout: AnyLayout) -> AnyLayout:
        values = size(layout, 0)
        extents = self._extents()
        if rank(layout) <= len(extents):
            raise LayoutError(
                "retile", (layout,), f"need rank >= {1 + len(extents)}, (V, RestM, RestN, ...), got {rank(layout)}"
            )
        order = upcast(right_inverse(self.layout_tv).with_shape(extents), self.thr_size * values)
        by_atom = zipped_divide(
            logical_product(Layout(values), right_inverse(order)), Layout(size(self.atom.ref_layout, 1))
        )
        tiles = zipped_divide(layout, (values, *product_each(shape(order))))
        return slice_((None, (0, *(None,) * (rank(layout) - 1))), composition(tiles, (by_atom, None)))

    def _extents(self) -> tuple[IntTuple, ...]:
        """Return the shape of the tile, with the modes of its tilers."""
        return tuple(shape(tiler) if isinstance(tiler, Layout) else tiler for tiler in self.tiler_mn)

    def _layout_tv(self, side: Side) -> Layout:
        extents = self._extents()
        return slice_((None, None, 0), self._by_thread(Layout((extents, 1)), side))  # type: ignore[no-any-return]
