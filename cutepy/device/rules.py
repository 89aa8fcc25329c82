"""Say, before anything compiles, what a pipelined TMA -> WGMMA kernel may ask of a Hopper SM.

Everything here is plain Python on plain integers: which swizzle a shared-memory tile takes, how many bytes a
pipeline stage holds, how many threads arrive on a barrier, how many registers an accumulator costs. Kernel
configurations are validated with these rules and the traced code is built from the same ones.
"""

from cutepy.layouts.sm90 import arch

SWIZZLE_ALIGNMENT_BYTES = arch.pattern_bytes("SW128")
"""The 128-byte swizzle repeats every 8 rows of 128 bytes; a tile that starts on this boundary sees base offset 0."""


MAX_TRANSACTION_BYTES = 2**20 - 16
"""What an mbarrier counts in one phase, in 16 bytes: its count has 20 bits."""

MAX_CLUSTER_CTAS = 16
"""With the non-portable cluster size allowed."""

ATOM_ROWS = 8
"""Rows of a GMMA layout atom: of its core matrices."""

SUBTILE_COLUMNS = 16
"""Columns of what a four-matrix stmatrix moves."""


def widest_swizzle(contiguous_elems: int, bits: int) -> arch.SwizzleMode:
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
    for mode in sorted(arch.SWIZZLE_MODES, key=arch.span_bytes, reverse=True):
        if extent_bytes % arch.span_bytes(mode) == 0 and extent_bytes > 0:
            return mode
    raise ValueError(
        f"the contiguous extent of a shared-memory tile must be a multiple of 16 bytes, got {contiguous_elems} "
        f"elements of {bits} bits; widen the tile to {-(-extent_bytes // 16) * 128 // bits} elements"
    )


def staged_swizzle(
    tile: tuple[int, int], contiguous_mode: int, stages: int, bits: int, swizzle: str | None = None
) -> arch.SwizzleMode:
    """Choose the swizzle of a staged shared-memory tile, or check the one asked for.

    Atoms of 8 rows by the swizzle's span fill the tile; a tile that they don't fill would be rounded up, and no copy
    would fit it.

    Raises
    ------
    ValueError
        If there is no stage, no such mode or swizzle, or the tile is not made of whole atoms.

    Examples
    --------
    >>> staged_swizzle((128, 64), 1, 4, 16), staged_swizzle((128, 64), 0, 4, 16, "SW64")
    ('SW128', 'SW64')
    """
    if contiguous_mode not in (0, 1):
        raise ValueError(f"contiguous_mode must be 0 (MN-major) or 1 (K-major), got {contiguous_mode}")
    if stages < 1:
        raise ValueError(f"a staged tile needs at least 1 stage, got {stages}")
    along, across = tile[contiguous_mode], tile[1 - contiguous_mode]
    if across < 1 or across % ATOM_ROWS:
        raise ValueError(
            f"a shared-memory tile must have a multiple of {ATOM_ROWS} across its contiguous mode, got {across} of "
            f"{tile}; use {-(-max(across, 1) // ATOM_ROWS) * ATOM_ROWS}"
        )
    if swizzle is None:
        return widest_swizzle(along, bits)
    fitting = [mode for mode in arch.SWIZZLE_MODES if along > 0 and along * bits // 8 % arch.span_bytes(mode) == 0]
    for mode in fitting:
        if mode == swizzle:
            return mode
    raise ValueError(
        f"the swizzle of a tile of {along} contiguous elements of {bits} bits must be one of "
        f"{', '.join(fitting) or 'none'}, got {swizzle!r}"
    )


def check_subtile(rows: int, columns: int, warpgroups: int) -> None:
    """Check the epilogue subtiles that `warpgroups` move between accumulators and shared memory.

    A warpgroup holds its 64 rows of all columns, columns after one another, and moves blocks of 16 by 16.

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


def check_subtile_registers(accumulators: int, subtile: int) -> None:
    """Check that a thread's accumulators are whole subtiles.

    Raises
    ------
    ValueError
        If not.

    Examples
    --------
    >>> check_subtile_registers(64, 16)
    """
    if accumulators % subtile:
        raise ValueError(
            f"subtiles must divide the {accumulators} accumulators of a thread, got subtiles of {subtile}; use columns "
            "that divide the tile's"
        )


def check_ring(stages: int, stage_bytes: int, consumer_warps: int, cluster_mn: tuple[int, int]) -> None:
    """Check a ring of stages that TMA fills.

    Raises
    ------
    ValueError
        If its barriers could not count what it announces.

    Examples
    --------
    >>> check_ring(4, 32768, 8, (2, 1))
    """
    if stages < 1:
        raise ValueError(f"a ring needs at least 1 stage, got {stages}")
    if not 0 < stage_bytes <= MAX_TRANSACTION_BYTES or stage_bytes % 16:
        raise ValueError(
            f"a stage must be filled by 16 to {MAX_TRANSACTION_BYTES} bytes, a multiple of 16, got {stage_bytes}"
        )
    if consumer_warps < 1:
        raise ValueError(f"a ring needs at least 1 consumer warp, got {consumer_warps}: nobody would free its stages")
    cluster_m, cluster_n = cluster_mn
    if cluster_m < 1 or cluster_n < 1 or cluster_m * cluster_n > MAX_CLUSTER_CTAS:
        raise ValueError(f"a cluster has 1 to {MAX_CLUSTER_CTAS} CTAs, got {cluster_mn}")


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


def empty_barrier_arrivals(consumer_warps: int, cluster_mn: tuple[int, int]) -> int:
    """Count the arrivals that free one stage of a TMA pipeline: one per consumer warp of every CTA that reads it.

    A CTA's stage is filled by the CTAs in its row and column of the cluster (they multicast A along N and B
    along M), so each consumer warp tells each of those `cm + cn - 1` CTAs. Too high a count deadlocks (the
    producer waits for arrivals that never come); too low a count races (TMA overwrites a tile still being read).

    Examples
    --------
    >>> empty_barrier_arrivals(8, (1, 1)), empty_barrier_arrivals(8, (2, 1)), empty_barrier_arrivals(8, (2, 2))
    (8, 16, 24)
    """
    return consumer_warps * (cluster_mn[0] + cluster_mn[1] - 1)


def check_exchange(parts: int, registers: int) -> None:
    """Check how many CTAs exchange partial sums, and how many of them a thread holds of a subtile.

    Raises
    ------
    ValueError
        If no cluster has so many CTAs, or the values can't be sent four at a time.

    Examples
    --------
    >>> check_exchange(4, 16)
    """
    if not 2 <= parts <= MAX_CLUSTER_CTAS:
        raise ValueError(f"2 to {MAX_CLUSTER_CTAS} CTAs of a cluster exchange sums, got {parts}")
    if registers < 4 or registers % 4:
        raise ValueError(
            f"sums are sent four at a time, so a thread must hold a multiple of 4 of a subtile, got {registers}; use "
            "subtiles of more columns"
        )


def owners(parts: int, subtiles: int) -> int:
    """Count the CTAs that finish subtiles of a tile whose K is shared by `parts` CTAs.

    Examples
    --------
    >>> owners(8, 4), owners(2, 4)
    (4, 2)
    """
    return min(parts, subtiles)


def partial_bytes(registers: int, threads: int) -> int:
    """Count the bytes of one CTA's fp32 sums of a subtile.

    Examples
    --------
    >>> partial_bytes(16, 128)
    8192
    """
    return 4 * registers * threads


def exchange_bytes(parts: int, subtiles: int, registers: int, threads: int) -> int:
    """Count the bytes in which a CTA takes the other parts' sums of the subtiles that it finishes.

    Examples
    --------
    >>> exchange_bytes(4, 2, 16, 128)
    24576
    """
    most = -(-subtiles // owners(parts, subtiles))
    return most * (parts - 1) * partial_bytes(registers, threads)


PARTIAL_ROWS = 16
"""Rows of an accumulator that one warp holds, so that it can reduce over them by itself."""


def check_widths(columns: int, widest: int) -> None:
    """Check that the columns of an accumulator subtile can be parted in turn, down to what a tile store takes.

    Raises
    ------
    ValueError
        If parts would be narrower than 16 columns.

    Examples
    --------
    >>> check_widths(32, 2)
    """
    if columns % (SUBTILE_COLUMNS * widest):
        raise ValueError(
            f"an epilogue subtile whose columns are interleaved in {widest} parts must have a multiple of "
            f"{SUBTILE_COLUMNS * widest} columns, got {columns}"
        )


def partial_shape(dim: int | None, m: int, n: int, columns: int) -> tuple[int, int]:
    """Give the shape of what a product's partial reductions are written to: over the columns (1), rows (0), or all.

    Examples
    --------
    >>> partial_shape(1, 100, 64, 32), partial_shape(0, 100, 64, 32), partial_shape(None, 100, 64, 32)
    ((2, 100), (7, 64), (7, 2))
    """
    strips, warps = -(-n // columns), -(-m // PARTIAL_ROWS)
    return {1: (strips, m), 0: (warps, n), None: (warps, strips)}[dim]
