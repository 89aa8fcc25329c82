"""Which warps of the producer load A and B: one that lets TMA do it, or more, by cp.async, where TMA doesn't reach."""

from typing import NamedTuple

from cutepy.device import rules
from cutepy.kernels.gemm.signature import GemmSignature
from cutepy.layouts.sm90 import arch

_PRODUCER_WARPS, _TILE_WARPS = 4, 2
"""Of the producer's warps, two at most are TMA's, for A and B and for the tiles that an epilogue reads."""


class Loading(NamedTuple):
    """Who loads what by threads.

    Attributes
    ----------
    first_warp : int
        The first that loads; it also starts TMA for the other operand. The warps before it have other work.
    threads : int
        From there on.
    tma_bytes : int
        Of a stage, by TMA.
    """

    first_warp: int
    threads: int
    tma_bytes: int


def find_loading(signature: GemmSignature, tile_mnk: tuple[int, int, int]) -> Loading | None:
    """Tell which warps load operands by threads; None where TMA loads both.

    Raises
    ------
    ValueError
        If threads can't share a tile.
    """
    if not any(signature.by_threads):
        return None
    first, threads, tma_bytes = _first_warp(signature), _threads(signature), 0
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
    (by_a, by_b), threads = signature.by_threads, _threads(signature)
    return by_a / (threads * signature.a_align), by_b / (threads * signature.b_align)


def _first_warp(signature: GemmSignature) -> int:
    return _TILE_WARPS if signature.added else 0


def _threads(signature: GemmSignature) -> int:
    return (_PRODUCER_WARPS - _first_warp(signature)) * arch.WARP_THREADS
