"""Promotion of 8-bit products' accumulators to fp32: blocks of K, scales, and registers."""

from math import gcd
from typing import NamedTuple

from cutepy.device.rules.registers import register_budget
from cutepy.device.rules.tiles import SUBTILE_COLUMNS, accumulator_registers, wgmma_tiling
from cutepy.layouts import sm90
from cutepy.layouts.sm90 import arch

K_BLOCK = 128
"""Elements of K that the tensor cores sum before promotion to fp32; one scale applies to as many."""
_ADDRESSING = 28
"""Further registers of a thread: with 128x192 and 256x128 sums and fewer, ptxas of CUDA 13 spills nothing."""


SCALES_ALIGNMENT_BYTES = 128
"""Alignment of TMA's destination."""
COLUMN_GROUP = 8
"""Columns of an MMA's N within one block of scales: tiles start at multiples of them."""


def block_range(tile: int, rows: int, offset: int) -> tuple[int, int]:
    """Return the least and the greatest block of so many rows that a tile's row can be in, relative to the first row's.

    Tiles start at multiples of their extent, so within a block at multiples of the gcd of both.

    Examples
    --------
    >>> block_range(64, 128, 56), block_range(96, 128, 0), block_range(96, 128, 40), block_range(256, 128, 200)
    ((0, 0), (0, 0), (0, 1), (1, 1))
    """
    return offset // rows, (rows - gcd(tile, rows) + offset) // rows


def row_offsets(tile_m: int, warpgroups: int, rows: int) -> tuple[int, ...]:
    """Return the rows of a tile whose scales a thread holds, relative to its first: two of each 64 rows, or one.

    `rows` is the number of rows of one scale: 1, 128, or 0 where there are no scales.

    Examples
    --------
    >>> row_offsets(256, 2, 1), row_offsets(256, 2, 128)
    ((0, 8, 128, 136), (0, 128))
    """
    if not rows:
        return ()
    held = _held(SUBTILE_COLUMNS, 0) if rows == 1 else (0,)
    return tuple(block + row for block in range(0, tile_m, arch.WGMMA_M * warpgroups) for row in held)


def column_offsets(tile_n: int, rows: int) -> tuple[int, ...]:
    """Return the columns of a tile whose scales a thread holds.

    `rows` is the number of rows of B, columns of the tile, that share a scale: 1, 128, or 0 where there are no scales.
    Columns count from the thread's first; where 128 share a scale, from the tile's first.

    Examples
    --------
    >>> column_offsets(16, 1), column_offsets(128, 128), column_offsets(160, 128)
    ((0, 1, 8, 9), (0,), (0, 128))
    """
    if rows < 2:
        return _held(tile_n, 1) if rows else ()
    _, most = block_range(tile_n, rows, tile_n - COLUMN_GROUP)
    return tuple(range(0, (most + 1) * rows, rows))


def _held(columns: int, mode: int) -> tuple[int, ...]:
    """Return the rows, or columns, of an MMA's accumulators that a thread holds, relative to its first."""
    tiling = wgmma_tiling("float8_e4m3fn", "float8_e4m3fn", columns, 1)
    registers = sm90.AccumulatorCoordinates(tiling, (arch.WGMMA_M, columns)).registers
    return tuple(sorted({register[mode] for register in registers}))


def staged_scales(tile: int, rows: int) -> int:
    """Count the scales in a stage of an operand's tile, for one block of K, wherever the tile begins.

    Examples
    --------
    >>> staged_scales(256, 1), staged_scales(256, 128), staged_scales(192, 128), staged_scales(256, 0)
    (256, 2, 2, 0)
    """
    return block_range(tile, rows, tile - 1)[1] + 1 if rows else 0


def check_tma_scales(rows: tuple[int, int], by_tma: tuple[bool, bool]) -> None:
    """Check that TMA can load scales of A, and of B, with a given number of rows each.

    It reads whole 16 bytes, from a multiple of 16 bytes on. Tiles begin at such rows; blocks of 128 are too few.

    Raises
    ------
    ValueError
        If it can't.

    Examples
    --------
    >>> check_tma_scales((1, 128), (True, True))
    Traceback (most recent call last):
    ...
    ValueError: TMA loads scales of single rows, got tma_scales (True, True) with scale_rows (1, 128); use False where these are not 1
    """  # noqa: E501
    if any(loads and of != 1 for loads, of in zip(by_tma, rows, strict=True)):
        raise ValueError(
            f"TMA loads scales of single rows, got tma_scales {by_tma} with scale_rows {rows}; use False where these "
            "are not 1"
        )


class ScaleStage(NamedTuple):
    """Shape of an operand's scales in a stage: (places, K blocks), contiguous along places.

    Attributes
    ----------
    places : int
        Scales of a tile for one block of K.
    k_blocks : int
    by_tma : bool
        True if TMA loads the scales: single rows', which are contiguous.

    Examples
    --------
    >>> by_tma, by_threads = ScaleStage(80, 2, True), ScaleStage(2, 1, False)
    >>> by_tma.stride, by_tma.tma_bytes, by_threads.stride, by_threads.tma_bytes
    (160, 640, 2, 0)
    """

    places: int
    k_blocks: int
    by_tma: bool

    @property
    def stride(self) -> int:
        """Scales from one stage to the next: TMA writes to multiples of 128 bytes."""
        count, unit = self.places * self.k_blocks, SCALES_ALIGNMENT_BYTES // 4 if self.by_tma else 1
        return -(-count // unit) * unit

    @property
    def alignment_bytes(self) -> int:
        """Alignment of the scales in shared memory."""
        return SCALES_ALIGNMENT_BYTES if self.by_tma else 4

    @property
    def tma_bytes(self) -> int:
        """Bytes that TMA delivers."""
        return 4 * self.places * self.k_blocks * self.by_tma


def fitting_buffers(tile_mnk: tuple[int, int, int], warpgroups: int, rows: tuple[int, int], beside: int = 0) -> int:
    """Return 2 if two sets of the MMAs' accumulators fit, with a given number of registers beside them, else 1.

    Examples
    --------
    >>> fitting_buffers((128, 128, 128), 2, (1, 128)), fitting_buffers((64, 64, 256), 1, (1, 128))
    (1, 2)
    """
    try:
        check_promotion(tile_mnk, warpgroups, 2, rows, beside)
    except ValueError:
        return 1
    return 2


def check_promotion(
    tile_mnk: tuple[int, int, int], warpgroups: int, buffers: int, rows: tuple[int, int], beside: int = 0
) -> None:
    """Check that a tile can be summed with promotion: fp32 sums of the tile beside the MMAs' own of 64 rows or more.

    Parameters
    ----------
    tile_mnk : (int, int, int)
        Output tile, and K of a stage.
    warpgroups : int
        Number of warpgroups that share the tile.
    buffers : 1 or 2
        Sets of accumulators of the MMAs; with 2, one block is added up while the next one is multiplied.
    rows : (int, int)
        Rows of A, and of B, that share a scale: 1, 128, or 0 where there are no scales.
    beside : int
        Registers that the epilogue needs while sums are kept.

    Raises
    ------
    ValueError
        If a stage is not whole blocks, has too few for two buffers, or the registers don't suffice.

    Examples
    --------
    >>> check_promotion((256, 128, 128), 2, 1, (1, 128))
    >>> check_promotion((128, 256, 128), 2, 1, (0, 0))
    Traceback (most recent call last):
    ...
    ValueError: 128x256 sums over 2 warpgroups take 128 registers a thread, 1 times 128 are needed for the MMAs', 0 for scales and 28 for the rest: 284 exceed the 232 that a thread of 3 warpgroups can have; use a tile_n of 128, fewer buffers or a smaller tile_m
    """  # noqa: E501
    tile_m, tile_n, tile_k = tile_mnk
    block_m = arch.WGMMA_M * warpgroups
    if tile_k % K_BLOCK:
        raise ValueError(
            f"sums are promoted every {K_BLOCK} elements of K, so a stage must have whole such blocks, got a tile_k of "
            f"{tile_k}; use {-(-tile_k // K_BLOCK) * K_BLOCK}"
        )
    if buffers not in (1, 2):
        raise ValueError(f"the MMAs' sums are in 1 or 2 sets of registers, got {buffers}")
    if buffers > tile_k // K_BLOCK * (tile_m // block_m):
        raise ValueError(
            f"blocks of {block_m} rows and {K_BLOCK} of K take turns at two sets of registers within a stage, got a "
            f"stage of one block; use a tile_k of {2 * tile_k}, or 1 buffer"
        )
    sums = accumulator_registers(tile_m, tile_n, warpgroups)
    partial = accumulator_registers(block_m, tile_n, warpgroups)
    held = len(row_offsets(tile_m, warpgroups, rows[0])), len(column_offsets(tile_n, rows[1]))
    scaled = sum(held)
    others, budget = _ADDRESSING + beside, register_budget(warpgroups).consumer
    needed = sums + buffers * partial + scaled + others
    if needed > budget:
        raise ValueError(
            f"{tile_m}x{tile_n} sums over {warpgroups} warpgroups take {sums} registers a thread, {buffers} times "
            f"{partial} are needed for the MMAs', {scaled} for scales and {others} for the rest: {needed} exceed "
            f"the {budget} that a thread of {1 + warpgroups} warpgroups can have; use a tile_n of {tile_n // 2}, fewer "
            "buffers or a smaller tile_m"
        )
