"""Tiles: shapes that shared memory and wgmma take, with their bytes and registers."""

from cutepy.layouts import Layout, LayoutError, sm90
from cutepy.layouts.sm90 import arch
from cutepy.runtime.dtypes import DTYPES

SUBTILE_COLUMNS = 8
WIDEST_COLUMNS = 64
"""Columns of 16 bits in a span of the widest swizzle."""
"""Columns of a matrix of stmatrix: each thread of a warp holds four accumulators of 16 rows of them."""
_MULTIPLIED_AS = {"float32": "tf32"}
WGMMA_DTYPES = ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2", "int8", "uint8")
"""Torch's names of what wgmma multiplies."""


def tile_bytes(rows: int, columns: int, bits: int) -> int:
    """Count the bytes of one dense shared-memory tile.

    Examples
    --------
    >>> tile_bytes(128, 64, 16)
    16384
    """
    return rows * columns * bits // 8


def accumulator_registers(tile_m: int, tile_n: int, warpgroups: int) -> int:
    """Count the fp32 accumulator registers each thread holds for a tile split over `warpgroups` along M.

    Examples
    --------
    >>> accumulator_registers(128, 256, 2)
    128
    """
    return tile_m * tile_n // (warpgroups * arch.WARPGROUP_THREADS)


def accumulator_dtype(operand_dtype: str) -> str:
    """Return the accumulator type of wgmma for products of a type: int32 for integers, else float32.

    Examples
    --------
    >>> accumulator_dtype("uint8"), accumulator_dtype("float8_e5m2")
    ('int32', 'float32')
    """
    return "int32" if operand_dtype in ("int8", "uint8") else "float32"


_LARGEST = {"int8": 128, "uint8": 255}


def longest_sum(a_dtype: str, b_dtype: str) -> int:
    """Return the largest number of products of two integer types whose sum always fits in int32.

    Examples
    --------
    >>> longest_sum("int8", "int8"), longest_sum("uint8", "uint8")
    (131071, 33025)
    """
    return (2**31 - 1) // (_LARGEST[a_dtype] * _LARGEST[b_dtype])


def wgmma_tiling(
    a_dtype: str, b_dtype: str, tile_n: int, warpgroups: int | tuple[int, int], *, a_in_registers: bool = False
) -> sm90.TiledMMA:
    """Tile wgmma atoms 64 x `tile_n` x (32 bytes of K), one for each warpgroup, along M, or along M and N.

    They sum in fp32, and products of integers in s32, which saturates.

    Parameters
    ----------
    a_dtype, b_dtype : str
        Torch's names; float32 is multiplied as tf32.
    warpgroups : int or (int, int)
        Along M, one above another; or along M and N. An atom has `tile_n` columns, for any number of them.
    a_in_registers : bool
        True if A comes from registers (RS), not from shared memory (SS).

    Raises
    ------
    LayoutError
        If there is no such instruction.
    ValueError
        If torch has no such dtypes, or there are no warpgroups.

    Examples
    --------
    >>> print(wgmma_tiling("float16", "float16", 256, 2))
    TiledMMA(SM90_64x256x16_F32F16F16_SS, (2,1,1):(1,0,0), <_,_,_>)
    >>> wgmma_tiling("float16", "float16", 256, (1, 2)).tile_shape
    (64, 512, 16)
    >>> wgmma_tiling("float32", "float32", 128, 1).traits.name, wgmma_tiling("int8", "uint8", 128, 1).traits.name
    ('SM90_64x128x8_F32TF32TF32_SS_TN', 'SM90_64x128x32_S32S8U8_SS_TN_SATURATE')
    """
    if unknown := [dtype for dtype in (a_dtype, b_dtype) if dtype not in DTYPES]:
        raise ValueError(f"dtypes go by torch's names, such as float16, got {', '.join(map(repr, unknown))}")
    if refused := [dtype for dtype in (a_dtype, b_dtype) if dtype not in WGMMA_DTYPES]:
        parts = "; multiply real and imaginary parts on their own" if "complex" in refused[0] else ""
        raise LayoutError(
            "wgmma_tiling",
            (a_dtype, b_dtype),
            f"wgmma multiplies {', '.join(WGMMA_DTYPES)}, and no {refused[0]}{parts}",
        )
    along_m, along_n = (warpgroups, 1) if isinstance(warpgroups, int) else warpgroups
    if min(along_m, along_n) < 1:
        raise ValueError(f"MMAs need 1 warpgroup or more, got {warpgroups}")
    bits = DTYPES[a_dtype].bits
    a, b = (_MULTIPLIED_AS.get(dtype, DTYPES[dtype].ptx).upper() for dtype in (a_dtype, b_dtype))
    sums = DTYPES[accumulator_dtype(a_dtype)].ptx.upper()
    source, suffix = "RS" if a_in_registers else "SS", "" if bits == 16 else "_TN"
    suffix += "_SATURATE" if sums == "S32" else ""
    atom = f"SM90_{arch.WGMMA_M}x{tile_n}x{256 // bits}_{sums}{a}{b}_{source}{suffix}"
    return sm90.TiledMMA(sm90.wgmma_traits(atom), Layout((along_m, along_n, 1)))


def staged_columns(tile_n: int, bits: int, mn_major: bool, cluster_m: int = 1) -> int:
    """Return the columns of B in a stage of a tile: whole spans of the widest swizzle where B is MN-major.

    The last span's other columns are those that the next tile begins with. In narrower swizzles wgmma reads slowly: on
    an H200, 2026-11-23, 1617x1080x4688 took 56 us by 128x112, whose B had 32 bytes, and cuBLAS 34. A tile of half a
    span or less keeps its own, and so does one that CTAs of a cluster could not load such spans of.

    Examples
    --------
    >>> [staged_columns(n, 16, True) for n in (32, 48, 144, 192)], staged_columns(144, 16, True, cluster_m=2)
    ([32, 64, 192, 192], 144)
    """
    spans = -(-tile_n // WIDEST_COLUMNS)
    widens = mn_major and bits == 16 and 2 * tile_n > WIDEST_COLUMNS and spans % cluster_m == 0
    return spans * WIDEST_COLUMNS if widens else tile_n


def multiplied_columns(staged: int, mma_n: int, major: str) -> int:
    """Return the number of a stage's columns of B that MMAs of `mma_n` columns multiply, by the major of B.

    Where a stage has as many as `staged_columns` gives for `mma_n`, that is `mma_n`; else all.

    Examples
    --------
    >>> multiplied_columns(192, 144, "MN"), multiplied_columns(288, 144, "MN"), multiplied_columns(144, 144, "K")
    (144, 288, 144)
    """
    return mma_n if staged == staged_columns(mma_n, 16, major == "MN") else staged


def check_stages(a: tuple[int, int], b: tuple[int, int], mma: tuple[int, int, int]) -> None:
    """Check tiles (M, K) of A and (N, K) of B, of the columns that are multiplied, against MMAs of `mma` (M, N, K).

    Raises
    ------
    ValueError
        If they don't fit each other or the MMAs.

    Examples
    --------
    >>> check_stages((128, 64), (256, 64), (128, 256, 16))
    """
    (m, k), (n, b_k) = a, b
    if k != b_k:
        raise ValueError(f"a stage of A and one of B must have the same extent along K, got {k} and {b_k}")
    for name, extent, unit in (("M", m, mma[0]), ("N", n, mma[1]), ("K", k, mma[2])):
        if extent % unit:
            wide = -(-extent // unit) * unit
            raise ValueError(
                f"the {name} of a stage must be a multiple of {unit}, that of all MMAs, got {extent}; use {wide}"
            )


def check_ring_stages(a: int, b: int, ring: int) -> None:
    """Check that A and B have the stages of their ring.

    Raises
    ------
    ValueError
        If they have not.

    Examples
    --------
    >>> check_ring_stages(4, 4, 4)
    """
    if not a == b == ring:
        raise ValueError(f"A and B must have the {ring} stages of their ring, got {a} and {b}")


def check_whole_columns(tile_columns: int, columns: int, along_n: int) -> None:
    """Check subtiles of warpgroups that lie along N, so many of them: each has columns of its own of every subtile.

    Raises
    ------
    ValueError
        If subtiles have not all columns of the tile: one warpgroup would have none of some.

    Examples
    --------
    >>> check_whole_columns(512, 512, 2), check_whole_columns(512, 32, 1)
    (None, None)
    """
    if along_n > 1 and columns != tile_columns:
        raise ValueError(
            f"a subtile of accumulators of {along_n} warpgroups along N must have all {tile_columns} columns of the "
            f"tile, got {columns}"
        )


def check_stacked(block: str, along_n: int) -> None:
    """Check that a block's warpgroups lie one above another, along M.

    Raises
    ------
    ValueError
        If some lie along N: it would take their columns for the first ones'.

    Examples
    --------
    >>> check_stacked("a promoted loop", 1)
    """
    if along_n > 1:
        raise ValueError(
            f"{block} takes warpgroups along M only, got {along_n} along N; use 1 along N, or a block for each one's "
            "columns"
        )


def check_subtile(rows: int, columns: int, warpgroups: int) -> None:
    """Check the epilogue subtiles that `warpgroups`, one above another, move between accumulators and shared memory.

    A warpgroup holds its 64 rows of all columns, columns after one another, and moves blocks of 16 rows by 8 columns.

    Raises
    ------
    ValueError
        If the threads could not move them: values would be stored in wrong places.

    Examples
    --------
    >>> check_subtile(128, 32, 2)
    """
    fitting = arch.WGMMA_M * warpgroups
    if rows != fitting or columns < 1 or columns % SUBTILE_COLUMNS:
        wide = -(-max(columns, 1) // SUBTILE_COLUMNS) * SUBTILE_COLUMNS
        raise ValueError(
            f"an epilogue subtile of {warpgroups} warpgroups must have {fitting} rows, {arch.WGMMA_M} for each, and a "
            f"multiple of {SUBTILE_COLUMNS} columns, got ({rows}, {columns}); use ({fitting}, {wide})"
        )


def check_subtile_columns(tile_columns: int, columns: int) -> None:
    """Check that the columns of an output tile are whole epilogue subtiles of so many.

    Raises
    ------
    ValueError
        If not: a subtile would have columns of two rows of subtiles.

    Examples
    --------
    >>> check_subtile_columns(128, 32)
    """
    if tile_columns % columns:
        fitting = [str(n) for n in range(SUBTILE_COLUMNS, tile_columns + 1, SUBTILE_COLUMNS) if tile_columns % n == 0]
        raise ValueError(
            f"the columns of an epilogue subtile must divide the tile's {tile_columns}, got {columns}; use "
            f"{', '.join(fitting[:-1])}{' or ' if fitting[:-1] else ''}{fitting[-1]}"
        )


def check_smem(plan: sm90.SmemPlan) -> None:
    """Check that a plan fits in the shared memory of a CTA.

    Raises
    ------
    ValueError
        If it is too much.

    Examples
    --------
    >>> check_smem(sm90.SmemPlan.of(sA=sm90.StagedTile((128, 64), 4, 16)))
    """
    if not plan.fits:
        largest = max(plan, key=lambda region: region.size_bytes)
        raise ValueError(
            f"the plan of shared memory must fit a CTA: {plan.overrun}; {largest.name} takes most, {largest.size_bytes}"
        )


MBARRIER_BITS = 64


def check_room(region: sm90.SmemRegion, count: int, bits: int, holder: str) -> None:
    """Check that a region has room for a given number of elements of a given number of bits.

    Raises
    ------
    ValueError
        If it was planned for fewer, or for others.

    Examples
    --------
    >>> barriers = sm90.SmemPlan.of(barriers=sm90.SmemArray(8, bits=64))["barriers"]
    >>> check_room(barriers, 8, 64, "a ring of 4 stages")
    """
    planned = region.content
    if not isinstance(planned, sm90.SmemArray) or planned.count < count or planned.bits != bits:
        raise ValueError(
            f"{region.name} was planned as {planned}, and {holder} needs {count} elements of {bits} bits; plan "
            f"SmemArray({count}, bits={bits})"
        )


def check_region(region: sm90.SmemRegion, bits: int | None) -> None:
    """Check the element width that a region is used with; None, if unspecified, which arrays allow.

    Raises
    ------
    ValueError
        If it was planned for another, or a staged tile has none.

    Examples
    --------
    >>> check_region(sm90.SmemPlan.of(sA=sm90.StagedTile((128, 64), 4, 16))["sA"], 16)
    """
    if bits is None and isinstance(region.content, sm90.StagedTile):
        raise ValueError(f"the staged tile {region.name} needs an element type of {region.bits} bits, got none")
    if bits is not None and bits != region.bits:
        raise ValueError(f"{region.name} was planned for elements of {region.bits} bits, got a type of {bits}")
