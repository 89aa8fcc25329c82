"""Pipelines of stages: the ring of A and B, and the ring of tile operands (traced)."""

import cutlass.cute as cute

from cutepy.device.pipeline import MixedRing, TmaRing
from cutepy.kernels.gemm.config import GemmConfig
from cutepy.kernels.gemm.loading import Loading


def make_rings(config: GemmConfig, loading: Loading | None, barriers: cute.Pointer):
    """Make the ring of A and B, and the ring of tile operands, None if there are none."""
    plane = (config.cluster_m, config.cluster_n)
    if loading is None:
        ring = TmaRing(barriers, config.stages, config.stage_bytes, config.consumer_warps, plane)
    else:
        copied = any(config.signature.by_threads)  # or only scales are loaded by threads, and no wgmma reads these
        ring = MixedRing(
            barriers, config.stages, loading.tma_bytes, config.consumer_warps, plane, loading.threads, fenced=copied
        )
    if not config.signature.added:
        return ring, None
    after = barriers + 2 * config.stages
    return ring, TmaRing(after, config.c_stages, config.c_stage_bytes, config.consumer_warps)
