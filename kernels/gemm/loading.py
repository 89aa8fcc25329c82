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
    scales = scale_stages(signature, tile_mnk).values()
    if not any(signature.by_threads) and all(stage.by_tma for stage in scales):
        return None
    first, tma_bytes = _first_warp(signature, dynamic), sum(stage.tma_bytes for stage in scales)
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


def staged_columns(signature: GemmSignature, tile_n: int, cluster_m: int) -> int:
    """Give the columns of B in a stage of a tile: more of an MN-major one that TMA loads (`rules.staged_columns`)."""
    widens = signature.b_major == "mn" and not signature.by_threads[1]
    return rules.staged_columns(tile_n, signature.operand_bits, widens, cluster_m)


def scale_stages(signature: GemmSignature, tile_mnk: tuple[int, int, int]) -> dict[str, rules.ScaleStage]:
    """Tell what a stage holds of the scales of A and of B: "sScaleA" and "sScaleB", of what has some along K.

    Examples
    --------
    >>> types = {"a_dtype": "float8_e4m3fn", "b_dtype": "float8_e4m3fn", "out_dtype": "float16"}
    >>> blocks = GemmSignature(**types, scale_rows=(1, 128), tma_scales=(True, False))
    >>> scale_stages(blocks, (64, 128, 256))["sScaleA"]
    ScaleStage(places=64, k_blocks=2, by_tma=True)
    """
    rows, k_blocks = signature.scale_rows or (0, 0), tile_mnk[2] // rules.K_BLOCK
    each = zip(("sScaleA", "sScaleB"), tile_mnk[:2], rows, signature.tma_scales, strict=True)
    return {
        name: rules.ScaleStage(rules.staged_scales(tile, of), k_blocks, by_tma) for name, tile, of, by_tma in each if of
    }


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

    Fewer are enough for scales alone: each of their threads arrives on the stage's barrier.
    """
    if not any(signature.by_threads):
        rows = zip(signature.scale_rows or (), signature.tma_scales, strict=False)
        return _OTHER_WARPS if any(of == 1 and not by_tma for of, by_tma in rows) else _PRODUCER_WARPS - 1
    return _OTHER_WARPS if signature.added or dynamic else 0
