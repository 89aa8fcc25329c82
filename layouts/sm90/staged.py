"""Staged tiles: the layout of a ring of shared-memory stages for TMA, wgmma, stmatrix and ldmatrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ..composed import ComposedLayout, SmemPtr
from ..layout import Layout
from ..tiling import tile_to_shape
from .arch import CORE_MATRIX_ROWS, SWIZZLE_MODES, SwizzleMode, pattern_bytes, span_bytes
from .gmma import byte_swizzle, gmma_layout_atom

_WIDEST_FIRST = tuple(sorted(SWIZZLE_MODES, key=span_bytes, reverse=True))


def widest_swizzle(contiguous_elems: int, bits: int) -> SwizzleMode:
    """Choose the widest swizzle whose span divides the contiguous extent of a shared-memory tile.

    A function (contiguous extent in elements, element width in bits) -> "SW128" | "SW64" | "SW32" | "INTER".
    Wider swizzles spread a column over more banks and let TMA move longer rows at once.

    Raises
    ------
    ValueError
        If the extent is not a multiple of 16 bytes, the unit of every GMMA layout atom.

    Examples
    --------
    >>> widest_swizzle(64, 16), widest_swizzle(32, 16), widest_swizzle(24, 16)
    ('SW128', 'SW64', 'INTER')
    """
    extent_bytes = contiguous_elems * bits // 8
    for mode in _WIDEST_FIRST:
        if extent_bytes % span_bytes(mode) == 0 and extent_bytes > 0:
            return mode
    raise ValueError(
        f"the contiguous extent of a shared-memory tile must be a multiple of 16 bytes, got {contiguous_elems} "
        f"elements of {bits} bits; widen the tile to {-(-extent_bytes // 16) * 128 // bits} elements"
    )


def staged_swizzle(
    tile: tuple[int, int], contiguous_mode: int, stages: int, bits: int, swizzle: str | None = None
) -> SwizzleMode:
    """Choose the swizzle of a staged shared-memory tile, or check the one asked for.

    Atoms of 8 rows by the swizzle's span fill the tile; a tile that they don't fill would be rounded up, and no copy
    would fit it.

    Raises
    ------
    ValueError
        If there is no stage, no such mode or swizzle, or the tile has other than two modes, or no whole atoms.

    Examples
    --------
    >>> staged_swizzle((128, 64), 1, 4, 16), staged_swizzle((128, 64), 0, 4, 16, "SW64")
    ('SW128', 'SW64')
    """
    if len(tile) != 2:
        raise ValueError(f"a shared-memory tile has rows and columns, got {tile}; stage slices of a tile of more modes")
    if contiguous_mode not in (0, 1):
        raise ValueError(f"contiguous_mode must be 0 (MN-major) or 1 (K-major), got {contiguous_mode}")
    if stages < 1:
        raise ValueError(f"a staged tile needs at least 1 stage, got {stages}")
    along, across = tile[contiguous_mode], tile[1 - contiguous_mode]
    if across < 1 or across % CORE_MATRIX_ROWS:
        raise ValueError(
            f"a shared-memory tile must have a multiple of {CORE_MATRIX_ROWS} across its contiguous mode, got {across} "
            f"of {tile}; use {-(-max(across, 1) // CORE_MATRIX_ROWS) * CORE_MATRIX_ROWS}"
        )
    if swizzle is None:
        return widest_swizzle(along, bits)
    fitting = [mode for mode in SWIZZLE_MODES if along > 0 and along * bits // 8 % span_bytes(mode) == 0]
    for mode in fitting:
        if mode == swizzle:
            return mode
    raise ValueError(
        f"the swizzle of a tile of {along} contiguous elements of {bits} bits must be one of "
        f"{', '.join(fitting) or 'none'}, got {swizzle!r}"
    )


@dataclass(frozen=True)
class StagedTile:
    """A tile of shared memory in GMMA layout atoms, as many times as there are stages.

    Parameters
    ----------
    tile : (int, int)
        Rows and columns of a stage: (M, K) of A, (N, K) of B, (M, N) of an epilogue's subtile.
    stages : int
        Copies of the tile, the slowest mode.
    bits : int
        Width of an element.
    contiguous_mode : 0 or 1
        The mode along which global memory is contiguous. 1 is K-major for operands and row-major for outputs.
    swizzle : str, optional
        "SW128", "SW64", "SW32" or "INTER"; the widest that divides the tile if not given.

    Raises
    ------
    ValueError
        If there is no stage, no such mode or swizzle, or the tile has other than two modes, or no whole atoms.

    Examples
    --------
    >>> tile = StagedTile((128, 64), stages=3, bits=16, contiguous_mode=0)
    >>> print(tile.layout)
    Sw<3,4,3> o smem_ptr[16b](unset) o ((64,2),(8,8),(1,3)):((1,4096),(64,512),(0,8192))
    >>> tile.swizzle, tile.stage_bytes, tile.size_bytes
    ('SW128', 16384, 49152)
    """

    tile: tuple[int, int]
    stages: int
    bits: int
    contiguous_mode: int = 1
    swizzle: SwizzleMode | None = None

    def __post_init__(self) -> None:
        found = staged_swizzle(self.tile, self.contiguous_mode, self.stages, self.bits, self.swizzle)
        object.__setattr__(self, "swizzle", found)

    @property
    def stage_bytes(self) -> int:
        """Bytes of a stage."""
        return self.tile[0] * self.tile[1] * self.bits // 8

    @property
    def lines(self) -> int:
        """Lines of a stage across its contiguous mode."""
        return self.tile[1 - self.contiguous_mode]

    @property
    def line_bytes(self) -> int:
        """Bytes of a line: contiguous elements as far as the swizzle spans."""
        assert self.swizzle is not None
        return span_bytes(self.swizzle)

    @property
    def size_bytes(self) -> int:
        """Bytes of all stages."""
        return self.stages * self.stage_bytes

    @property
    def alignment_bytes(self) -> int:
        """Required alignment: the period of every swizzle, at which descriptors have base offset 0."""
        return pattern_bytes("SW128")

    @property
    def layout(self) -> ComposedLayout:
        """(rows, columns, stages) -> offset in elements, with the swizzle of byte addresses."""
        return _layout(self)


@dataclass(frozen=True)
class DenseTile(StagedTile):
    """Tile of shared memory without swizzle, its contiguous elements adjacent, as TMA moves it.

    A layout for stmatrix, ldmatrix and TMA alone; operands of wgmma are in atoms. Where what is contiguous takes an odd
    number of 16-byte units, eight neighbours of them are in different banks as they lie.

    Examples
    --------
    >>> print(DenseTile((64, 24), stages=2, bits=16).layout)
    Sw<0,4,3> o smem_ptr[16b](unset) o (64,24,2):(24,1,1536)
    """

    @property
    def line_bytes(self) -> int:
        """Bytes of a line: all contiguous elements."""
        return self.stage_bytes // self.lines

    @property
    def layout(self) -> ComposedLayout:
        """(rows, columns, stages) -> offset in elements, without swizzle."""
        rows, columns = self.tile
        stride = (columns, 1) if self.contiguous_mode == 1 else (1, rows)
        plain = Layout((rows, columns, self.stages), (*stride, rows * columns))
        return ComposedLayout(byte_swizzle("INTER"), SmemPtr(self.bits), plain)


def staged_subtile(tile: tuple[int, int], stages: int, bits: int, contiguous_mode: int = 1) -> StagedTile:
    """Stage a subtile of an epilogue: swizzled, unless it has no bank conflicts without a swizzle.

    Parameters
    ----------
    tile, stages, bits, contiguous_mode
        As of `StagedTile`.

    Raises
    ------
    ValueError
        As `StagedTile` does.

    Examples
    --------
    >>> staged_subtile((64, 48), 2, 16).swizzle, type(staged_subtile((64, 56), 2, 16)).__name__
    ('SW32', 'DenseTile')
    """
    units = tile[contiguous_mode] * bits // 128
    return (DenseTile if units % 2 and units > 1 else StagedTile)(tile, stages, bits, contiguous_mode)


@lru_cache(maxsize=256)
def _layout(staged: StagedTile) -> ComposedLayout:
    assert staged.swizzle is not None
    atom = gmma_layout_atom(
        "MN" if staged.contiguous_mode == 0 else "K", staged.swizzle, staged.bits, pointer_swizzle=True
    )
    # Atoms follow one another along the non-contiguous mode first: then the 8-row core-matrix groups of one swizzle
    # span are adjacent, and one descriptor stride (SBO) steps over all of them.
    order = (0, 1, 2) if staged.contiguous_mode == 1 else (1, 0, 2)
    found = tile_to_shape(atom, (*staged.tile, staged.stages), order)
    assert isinstance(found, ComposedLayout)
    return found
