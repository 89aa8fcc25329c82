"""Roles of the producer's warps: one issues TMA, or several load by cp.async where TMA cannot reach."""

from typing import NamedTuple

from cutepy.device import rules
from cutepy.kernels.gemm.signature import GemmSignature
from cutepy.layouts.sm90 import arch

_PRODUCER_WARPS, _OTHER_WARPS = 4, 2
"""Warps of the producer; two at most issue TMA: for A and B, and for the epilogue's tile operands."""
LOAD_WARP, TILE_LOAD_WARP, SPARE_WARP = 0, 1, 2
"""Warp that issues TMA for A and B; for tile operands; and the first that is idle where TMA loads all."""


class Loading(NamedTuple):
    """Operands and scales that threads load by cp.async, and the warps that do.

    Attributes
    ----------
    first_warp : int
        The first that loads; it also starts TMA for the other operands. The warps before it have other work.
    threads : int
        From there on.
    tma_bytes : int
        Bytes of a stage that TMA delivers.
    """

    first_warp: int
    threads: int
    tma_bytes: int


def dealing_warp(loading: Loading | None) -> int:
    """Return the warp that fetches tiles for dynamic scheduling: one that loads nothing."""
    return SPARE_WARP if loading is None else LOAD_WARP


def find_loading(signature: GemmSignature, tile_mnk: tuple[int, int, int], dynamic: bool = False) -> Loading | None:
    """Return the warps that load operands or scales by threads; None where TMA loads all.

    With `dynamic`, one warp stays free to fetch tiles.

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
    """Return the columns of B in a stage: more than the tile's for an MN-major B by TMA (`rules.staged_columns`)."""
    widens = signature.b_major == "mn" and not signature.by_threads[1]
    return rules.staged_columns(tile_n, signature.operand_bits, widens, cluster_m)


def scale_stages(signature: GemmSignature, tile_mnk: tuple[int, int, int]) -> dict[str, rules.ScaleStage]:
    """Return the shapes of the scales in a stage, "sScaleA" and "sScaleB", of operands with scales along K.

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
    """Return each loading thread's cp.async count for each byte of A, and of B; 0 where TMA loads.

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
    """Return the first warp that loads by threads; the warps before it issue TMA or fetch tiles.

    Fewer are enough for scales alone: each of their threads arrives on the stage's barrier.
    """
    if not any(signature.by_threads):
        rows = zip(signature.scale_rows or (), signature.tma_scales, strict=False)
        return _OTHER_WARPS if any(of == 1 and not by_tma for of, by_tma in rows) else _PRODUCER_WARPS - 1
    return _OTHER_WARPS if signature.added or dynamic else 0
