"""Say, before anything compiles, what a pipelined TMA -> WGMMA kernel may ask of a Hopper SM.

Everything here is plain Python on plain integers: which swizzle a shared-memory tile takes, how many bytes a
pipeline stage holds, how many threads arrive on a barrier, how many registers an accumulator costs. Kernel
configurations are validated with these rules and the traced code is built from the same ones.
"""

from cutepy.layouts.sm90 import arch

SWIZZLE_ALIGNMENT_BYTES = arch.pattern_bytes("SW128")
"""The 128-byte swizzle repeats every 8 rows of 128 bytes; a tile that starts on this boundary sees base offset 0."""


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
