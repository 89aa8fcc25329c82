"""Which warps of the producer load A and B: one that lets TMA do it, or more, where cp.async loads some, or scales."""

from typing import NamedTuple

from cutepy.device import rules
from cutepy.kernels.gemm.signature import GemmSignature
from cutepy.layouts.sm90 import arch

_PRODUCER_WARPS, _OTHER_WARPS = 4, 2
"""Of the producer's warps, two at most are TMA's, for A and B and for the tiles that an epilogue reads."""
LOAD_WARP, TILE_LOAD_WARP, SPARE_WARP = 0, 1, 2
"""Who lets TMA load A and B, and the tiles; who has nothing to load where TMA loads all."""


class Loading(NamedTuple):
    """Who loads what by threads: operands that TMA doesn't reach, and scales.

    Attributes
    ----------
    first_warp : int
        The first that loads; it also starts TMA for the other operands. The warps before it have other work.
    threads : int
        From there on.
    tma_bytes : int
        Of a stage, by TMA.
    """

    first_warp: int
    threads: int
    tma_bytes: int


def dealing_warp(loading: Loading | None) -> int:
    """Tell which warp deals tiles out while a launch runs: one that loads nothing."""
    return SPARE_WARP if loading is None else LOAD_WARP


def find_loading(signature: GemmSignature, tile_mnk: tuple[int, int, int], dynamic: bool = False) -> Loading | None:
    """Tell which warps load operands or scales by threads; None where TMA loads all.

    One is left to deal tiles out where that is `dynamic`.

    Raises
    ------
    ValueError
        If threads can't share a tile.
    """
    if not any(signature.by_threads) and not any(signature.scale_rows or ()):
        return None
    first, tma_bytes = _first_warp(signature, dynamic), 0
    threads = (_PRODUCER_WARPS - first) * arch.WARP_THREADS
    for extent, align, major, copied in zip(
        tile_mnk[:2],
        (signature.a_align, signature.b_align),
        (signature.a_major, signature.b_major),
        signature.by_threads,
        strict=True,
    ):
        tile = extent, tile_mnk[2]
        if copied:
            rules.check_pieces(tile, int(major == "k"), signature.operand_bits, align, threads)
        else:
            tma_bytes += rules.tile_bytes(*tile, signature.operand_bits)
    return Loading(first, threads, tma_bytes)


def copies_per_byte(signature: GemmSignature) -> tuple[float, float]:
    """Count the cp.async of each thread that loads, for each byte of A, and of B; 0 where TMA loads.

    Examples
    --------
    >>> types = {"a_dtype": "float16", "b_dtype": "float16", "out_dtype": "float16"}
    >>> copies_per_byte(GemmSignature(**types, b_align=8))
    (0.0, 0.0009765625)
    """
    (by_a, by_b), warps = signature.by_threads, _PRODUCER_WARPS - _first_warp(signature)
    threads = warps * arch.WARP_THREADS
    return by_a / (threads * signature.a_align), by_b / (threads * signature.b_align)


def _first_warp(signature: GemmSignature, dynamic: bool = False) -> int:
    """Tell which warp is the first that loads by threads: those before it let TMA load, or deal tiles out.

    Two are enough for scales alone: each of their threads arrives on the stage's barrier.
    """
    return _OTHER_WARPS if signature.added or dynamic or not any(signature.by_threads) else 0
