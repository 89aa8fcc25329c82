"""Workspaces of accumulators in global memory: shapes, and limits on threads and values."""

from cutepy.layouts.sm90 import arch

FLAGS = 16
"""Flags of a place, one for each consumer warp, 12 at most: 64 bytes, so that few places share a line."""


def workspace_shapes(places: int, tile_m: int, tile_n: int) -> tuple[tuple[int, int], tuple[int]]:
    """Return the shapes of the flags (int32) and sums (fp32) of a workspace: of so many CTAs, a tile for each at most.

    Examples
    --------
    >>> workspace_shapes(132, 128, 256)
    ((132, 16), (4325376,))
    """
    return (places, FLAGS), (places * tile_m * tile_n,)


def check_workspace(registers: int, threads: int) -> None:
    """Check that threads with a given number of fp32 values each can store them in a workspace.

    Raises
    ------
    ValueError
        If values are not whole vectors, or there are more warps than flags.

    Examples
    --------
    >>> check_workspace(64, 256)
    """
    if registers < 4 or registers % 4:
        raise ValueError(f"a thread must store a multiple of 4 values, got {registers}")
    if threads % arch.WARP_THREADS or not 0 < threads <= FLAGS * arch.WARP_THREADS:
        raise ValueError(f"threads must be 1 to {FLAGS} whole warps, one flag each, got {threads}")
