"""TiledMMA: MMA atoms side by side, with the owner of each element of A, B and C.

References
----------
CuTe ``atom/mma_atom.hpp``, ``TiledMMA`` and ``ThrMMA``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from ..algebra import AnyLayout, Tiler, complement, composition, left_inverse, right_inverse
from ..arguments import check_layout, integer, wrong_type
from ..composed import ComposedLayout
from ..drawable import Drawable
from ..errors import LayoutError
from ..grids.grid import Grid, Picture
from ..int_tuple import IntTuple, check_extents, product
from ..layout import Layout, make_layout
from ..modes import rank, slice_
from ..tiling import make_fragment_like, tiled_product
from ..writer import to_text
from .arch import Major
from .gmma import check_major, split_swizzle
from .iterator import GmmaDescriptorIterator
from .thrfrg import on_tile, slice_thread, thrfrg
from .traits import MmaTraits, Operand
from .wgmma import WgmmaTraits

_MODES: dict[Operand, tuple[int, int]] = {"A": (0, 2), "B": (1, 2), "C": (0, 1)}
"""Modes among M, N, K of each operand."""

_ONE_ATOM = Layout((1, 1, 1))


@dataclass(frozen=True)
class TiledMMA(Drawable):
    """MMA atoms tiled over M, N and K: a map from (thread, value) to elements of A, B and C.

    Layouts passed to the methods map elements of an operand, (M, K, ...), (N, K, ...) or (M, N, ...), to whatever:
    memory, or coordinates. Composed layouts are taken where CuTe takes them; one whose swizzle acts on byte addresses
    keeps it outside, as a CuTe tensor does.

    Parameters
    ----------
    traits : MmaTraits
        The atom: of wgmma, from `wgmma_traits`, or of a warp's mma, from `cutepy.layouts.sm80.mma_traits`.
    atom_layout_mnk : Layout
        (m, n, k) -> which warpgroup, or warp, runs the atom there.
    permutation_mnk : tuple
        For each of M, N and K a tiler that reorders its elements before tiling; None for none.

    Raises
    ------
    LayoutError
        If atom layout or permutation have not rank 3.

    Examples
    --------
    >>> from cutepy.layouts.sm90 import wgmma_traits
    >>> mma = TiledMMA(wgmma_traits("SM90_64x64x16_F16F16F16_SS"), Layout((2, 1, 1)))
    >>> mma.thr_size, mma.tile_shape
    (256, (128, 64, 16))
    >>> print(mma.partition_shape_C((128, 128)))
    ((2, 2, 8), 1, 2)
    """

    traits: MmaTraits
    atom_layout_mnk: Layout = _ONE_ATOM
    permutation_mnk: tuple[Tiler, Tiler, Tiler] = (None, None, None)

    def __post_init__(self) -> None:
        if not isinstance(self.traits, MmaTraits):
            required = "an MmaTraits"
            raise TypeError(
                f"{wrong_type('TiledMMA', 'traits', required, self.traits)}; take them from wgmma_traits or "
                "sm80.mma_traits"
            )
        operands = (self.traits.name, self.atom_layout_mnk, self.permutation_mnk)
        if not isinstance(self.atom_layout_mnk, Layout) or rank(self.atom_layout_mnk) != 3:
            raise LayoutError("TiledMMA", operands, "atom_layout_mnk must be a layout of rank 3, (M, N, K)")
        if not isinstance(self.permutation_mnk, tuple) or len(self.permutation_mnk) != 3:
            raise LayoutError("TiledMMA", operands, "permutation_mnk must be a tuple of 3 tilers, for M, N and K")
        for i, tiler in enumerate(self.permutation_mnk):
            if not _is_tiler(tiler):
                required = "an int, a shape, a Layout or None"
                raise wrong_type("TiledMMA", f"permutation_mnk[{i}]", required, tiler)
            if isinstance(tiler, int | tuple):
                check_extents("TiledMMA", operands, tiler)

    @classmethod
    def of_threads(
        cls, traits: MmaTraits, thr_layout_vmnk: Layout, permutation_mnk: tuple[Tiler, Tiler, Tiler] = (None,) * 3
    ) -> TiledMMA:
        """Return the tiling with a layout of threads, as printers and the DSL show it.

        Parameters
        ----------
        traits : MmaTraits
        thr_layout_vmnk : Layout
            (thread in atom, m, n, k) -> thread.
        permutation_mnk : tuple

        Raises
        ------
        LayoutError
            If the threads are not those of whole atoms.

        Examples
        --------
        >>> from cutepy.layouts.sm90 import wgmma_traits
        >>> traits = wgmma_traits("SM90_64x64x16_F16F16F16_SS")
        >>> TiledMMA.of_threads(traits, Layout((128, 2, 1, 1), (1, 128, 0, 0))).atom_layout_mnk
        Layout((2, 1, 1),(1, 0, 0))
        """
        if not isinstance(thr_layout_vmnk, Layout) or rank(thr_layout_vmnk) != 4:
            raise LayoutError(
                "TiledMMA", (thr_layout_vmnk,), "thr_layout_vmnk must be a layout of rank 4, (V, M, N, K)"
            )
        beside = slice_((0, None, None, None), thr_layout_vmnk)
        atoms = composition(left_inverse(complement(traits.thr_id, thr_layout_vmnk.cosize())), beside)
        found = cls(traits, atoms, permutation_mnk)
        threads = found.thr_layout_vmnk
        if threads.size() != thr_layout_vmnk.size() or any(
            threads(i) != thr_layout_vmnk(i) for i in range(threads.size())
        ):
            required = f"the threads must be those of whole atoms, each of {traits.thr_id}"
            raise LayoutError("TiledMMA", (thr_layout_vmnk,), required)
        return found

    def __str__(self) -> str:
        return f"TiledMMA({self.traits.name}, {self.atom_layout_mnk}, {to_text(self.permutation_mnk)})"

    def _picture_(
        self, *, operand: Operand | None = None, tile_mnk: tuple[int, int, int] | None = None
    ) -> Grid | Picture:
        """Draw the owner of each element of A, B and C of a tile, or of one; default: of `tile_shape`."""
        from .pictures import tiled_mma_picture

        return tiled_mma_picture(self, operand, tile_mnk)

    @cached_property
    def thr_layout_vmnk(self) -> Layout:
        """(thread in atom, m, n, k) -> thread."""
        return tiled_product(self.traits.thr_id, self.atom_layout_mnk)  # type: ignore[no-any-return]

    @property
    def thr_size(self) -> int:
        """Number of threads."""
        return self.thr_layout_vmnk.size()

    @property
    def tile_shape(self) -> tuple[int, int, int]:
        """Extents along M, N and K that all atoms cover together."""
        m, n, k = (self._tiler_extent(mode) for mode in range(3))
        return m, n, k

    def thrfrg_A(self, layout: AnyLayout) -> AnyLayout:
        """Partition (M, K, ...) into ((ThrV,(ThrM,ThrK)),(FrgV,(RestM,RestK,...)))."""
        return self._thrfrg("A", layout)

    def thrfrg_B(self, layout: AnyLayout) -> AnyLayout:
        """Partition (N, K, ...) into ((ThrV,(ThrN,ThrK)),(FrgV,(RestN,RestK,...)))."""
        return self._thrfrg("B", layout)

    def thrfrg_C(self, layout: AnyLayout) -> AnyLayout:
        """Partition (M, N, ...) into ((ThrV,(ThrM,ThrN)),(FrgV,(RestM,RestN,...)))."""
        return self._thrfrg("C", layout)

    def partition_A(self, layout: AnyLayout, thread: int) -> tuple[AnyLayout, Any]:
        """Return a thread's part of (M, K, ...): (layout of (MMA, MMA_M, MMA_K, ...), offset)."""
        return self._partition("A", layout, thread)

    def partition_B(self, layout: AnyLayout, thread: int) -> tuple[AnyLayout, Any]:
        """Return a thread's part of (N, K, ...): (layout of (MMA, MMA_N, MMA_K, ...), offset)."""
        return self._partition("B", layout, thread)

    def partition_C(self, layout: AnyLayout, thread: int) -> tuple[AnyLayout, Any]:
        """Return a thread's part of (M, N, ...): (layout of (MMA, MMA_M, MMA_N, ...), offset)."""
        return self._partition("C", layout, thread)

    def partition_shape_A(self, layout: AnyLayout) -> IntTuple:
        """Return the shape of a thread's part of (M, K, ...), given as a layout or a shape."""
        return self._partition_shape("A", layout)

    def partition_shape_B(self, layout: AnyLayout) -> IntTuple:
        """Return the shape of a thread's part of (N, K, ...), given as a layout or a shape."""
        return self._partition_shape("B", layout)

    def partition_shape_C(self, layout: AnyLayout) -> IntTuple:
        """Return the shape of a thread's part of (M, N, ...), given as a layout or a shape."""
        return self._partition_shape("C", layout)

    def fragment_C(self, layout: AnyLayout) -> Layout:
        """Return the layout of a thread's accumulator registers for (M, N, ...): CuTe's ``tCrC``."""
        return Layout(self.partition_shape_C(layout))

    def fragment_A(self, layout: AnyLayout, thread: int = 0) -> Layout:
        """Return the layout of a thread's registers of A, for an atom that takes A from registers.

        Raises
        ------
        LayoutError
            If A comes from shared memory: then its fragment is `descriptors_A`.
        """
        return self._fragment("A", layout, thread)

    def fragment_B(self, layout: AnyLayout, thread: int = 0) -> Layout:
        """Return the layout of a thread's registers of B, for an atom that takes B from registers: a warp's mma.

        Raises
        ------
        LayoutError
            If B comes from shared memory, as wgmma's does: then its fragment is `descriptors_B`.
        """
        return self._fragment("B", layout, thread)

    def descriptors_A(
        self, smem_layout: AnyLayout, *, major: Major, thread: int = 0, base_address: int = 0
    ) -> GmmaDescriptorIterator:
        """Return the descriptors of A in shared memory, (M, K, ...), for the warpgroup of `thread`: CuTe's ``tCrA``.

        Raises
        ------
        LayoutError
            If the atom takes A from registers, or not of this major.
        """
        return self._descriptors("A", smem_layout, major, thread, base_address)

    def descriptors_B(
        self, smem_layout: AnyLayout, *, major: Major, thread: int = 0, base_address: int = 0
    ) -> GmmaDescriptorIterator:
        """Return the descriptors of B in shared memory, (N, K, ...), for the warpgroup of `thread`: CuTe's ``tCrB``.

        Raises
        ------
        LayoutError
            If the atom does not take B of this major.
        """
        return self._descriptors("B", smem_layout, major, thread, base_address)

    def get_layoutA_TV(self) -> Layout:
        """Return (thread, value) -> colexicographic index in the tile (M, K)."""
        tiles = (None, (Layout(self._atoms("M", "N"), (1, 0)), None))
        return self._layout_tv("A", tiles)

    def get_layoutB_TV(self) -> Layout:
        """Return (thread, value) -> colexicographic index in the tile (N, K)."""
        tiles = (None, (Layout(self._atoms("M", "N"), (0, 1)), None))
        return self._layout_tv("B", tiles)

    def get_layoutC_TV(self) -> Layout:
        """Return (thread, value) -> colexicographic index in the tile (M, N)."""
        return self._layout_tv("C", None)

    def _tiler(self, mode: int) -> Tiler:
        permutation = self.permutation_mnk[mode]
        if permutation is None:
            return self.traits.shape_mnk[mode] * self.thr_layout_vmnk[mode + 1].size()
        return permutation

    def _tiler_extent(self, mode: int) -> int:
        tiler = self._tiler(mode)
        return tiler.size() if isinstance(tiler, Layout) else product(tiler)

    def _atoms(self, *modes: Literal["M", "N", "K"]) -> tuple[int, ...]:
        """Count the atoms side by side along modes."""
        return tuple(self.thr_layout_vmnk["MNK".index(mode) + 1].size() for mode in modes)

    def _thrfrg(self, operand: Operand, layout: AnyLayout) -> AnyLayout:
        x, y = _MODES[operand]
        check_layout(f"thrfrg_{operand}", "layout", layout)
        if rank(layout) < 2:
            raise LayoutError(f"thrfrg_{operand}", (layout,), f"need rank >= 2, got {rank(layout)}")
        traits = self.traits
        tv = {"A": traits.a_layout, "B": traits.b_layout, "C": traits.c_layout}[operand]
        return on_tile(
            lambda tile: thrfrg(
                tile,
                (self._tiler(x), self._tiler(y)),
                (traits.shape_mnk[x], traits.shape_mnk[y]),
                tv,
                (self.thr_layout_vmnk[x + 1].size(), self.thr_layout_vmnk[y + 1].size()),
            ),
            layout,
        )

    def _partition(self, operand: Operand, layout: AnyLayout, thread: int) -> tuple[AnyLayout, Any]:
        check_layout(f"partition_{operand}", "layout", layout)
        thread = integer(f"partition_{operand}", "thread", thread)
        if not 0 <= thread < self.thr_size:
            raise LayoutError(f"partition_{operand}", (layout, thread), f"thread must be in [0, {self.thr_size})")
        x, y = _MODES[operand]
        coordinate: Any = self.thr_layout_vmnk.get_flat_coord(thread)
        return slice_thread(self._thrfrg(operand, layout), (coordinate[0], (coordinate[x + 1], coordinate[y + 1])))

    def _partition_shape(self, operand: Operand, layout: AnyLayout) -> IntTuple:
        if not isinstance(layout, (int, tuple, Layout, ComposedLayout)):
            raise wrong_type(f"partition_shape_{operand}", "layout", "a layout or a shape", layout)
        shape = layout if isinstance(layout, (int, tuple)) else layout.shape
        part, _ = slice_thread(self._thrfrg(operand, Layout(shape)), (0, (0, 0)))
        return part.shape

    def _fragment(self, operand: Operand, layout: AnyLayout, thread: int) -> Layout:
        if self.traits.source(operand) != "rmem":
            raise LayoutError(
                f"fragment_{operand}",
                (self.traits.name, layout),
                f"{operand} comes from shared memory (SS)" if operand == "A" else f"{operand} comes from shared memory",
                f"take descriptors_{operand}",
            )
        return make_fragment_like(self._partition(operand, layout, thread)[0])

    def _descriptors(
        self, operand: Operand, smem_layout: AnyLayout, major: Major, thread: int, base_address: int
    ) -> GmmaDescriptorIterator:
        traits, (x, y) = self.traits, _MODES[operand]
        if not isinstance(traits, WgmmaTraits) or traits.source(operand) != "smem":
            raise LayoutError(
                f"descriptors_{operand}",
                (traits.name,),
                f"{operand} comes from registers{' (RS)' if isinstance(traits, WgmmaTraits) else ''}",
                f"take fragment_{operand}",
            )
        majors, bits = (traits.a_majors, traits.a_bits) if operand == "A" else (traits.b_majors, traits.b_bits)
        major = check_major(f"descriptors_{operand}", (traits.name, smem_layout), major)
        if major not in majors:
            raise LayoutError(
                f"descriptors_{operand}",
                (traits.name, smem_layout),
                f"the hardware takes {operand} of {traits.name} {' or '.join(majors)}-major only, got {major}",
                "only 16-bit operands may be MN-major",
            )
        name = f"descriptors_{operand}"
        thread = integer(name, "thread", thread)
        base_address = integer(name, "base_address", base_address)
        tile = split_swizzle(name, smem_layout, bits).tile
        partition, offset_elems = self._partition(operand, tile, thread)
        return GmmaDescriptorIterator(
            smem_layout,
            major=major,
            bits=bits,
            mma_shape=(traits.shape_mnk[x], traits.shape_mnk[y]),
            base_address=base_address + offset_elems * bits // 8,
            partition=partition,
        )

    def _layout_tv(self, operand: Operand, tiles: Tiler) -> Layout:
        x, y = _MODES[operand]
        extents = self.tile_shape
        result = self._thrfrg(operand, Layout((extents[x], extents[y])))
        if tiles is not None:
            result = composition(result, (tiles, None))
        threads = self.thr_layout_vmnk
        to_coordinate = right_inverse(make_layout(threads, complement(threads)))
        to_coordinate = composition(Layout((threads.size(), 1), (1, 0)), to_coordinate)
        return composition(result, (to_coordinate, None))  # type: ignore[no-any-return]


def _is_tiler(tiler: object) -> bool:
    if isinstance(tiler, tuple):
        return all(isinstance(part, (int, tuple)) and _is_tiler(part) for part in tiler)
    return tiler is None or isinstance(tiler, (int, Layout))
