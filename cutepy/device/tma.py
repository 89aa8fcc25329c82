"""Make TMA copies between global tensors and staged shared memory, and partition both sides (traced)."""

import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync


def make_load(
    tensor: cute.Tensor, staged_layout: cute.ComposedLayout, tile: tuple[int, int], multicast: int
) -> tuple[cute.CopyAtom, cute.Tensor]:
    """Make the copy atom and the coordinate tensor that load `tile` of `tensor` into one stage.

    With `multicast` > 1, that many CTAs of the cluster each load 1/multicast of the tile and deliver it to all.
    """
    op = cpasync.CopyBulkTensorTileG2SOp() if multicast == 1 else cpasync.CopyBulkTensorTileG2SMulticastOp()
    one_stage = cute.slice_(staged_layout, (None, None, 0))
    return cpasync.make_tiled_tma_atom(op, tensor, one_stage, tile, num_multicast=multicast)


def make_store(
    tensor: cute.Tensor, staged_layout: cute.ComposedLayout, tile: tuple[int, int]
) -> tuple[cute.CopyAtom, cute.Tensor]:
    """Make the copy atom and the coordinate tensor that store one stage to `tile` of `tensor`."""
    one_stage = cute.slice_(staged_layout, (None, None, 0))
    return cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), tensor, one_stage, tile)


def partition(
    atom: cute.CopyAtom,
    s_tensor: cute.Tensor,
    g_tensor: cute.Tensor,
    peer: cute.Int32 | int = 0,
    peers: int = 1,
) -> tuple[cute.Tensor, cute.Tensor]:
    """Group each side's tile into one TMA mode: (tile, tile, rest...) -> ((TMA, iterations), rest...).

    `peer` of `peers` is this CTA's rank among those that share the tile by multicast.
    """
    return cpasync.tma_partition(
        atom, peer, cute.make_layout(peers), cute.group_modes(s_tensor, 0, 2), cute.group_modes(g_tensor, 0, 2)
    )


def multicast_masks(cluster_mnk: tuple[int, int, int], block_mnk: tuple[cute.Int32, cute.Int32, cute.Int32]) -> tuple:
    """Give the 16-bit masks of the CTAs that this one's slices of A and of B go to; None where it is alone.

    Ranks run along M first. A goes to the CTAs of this one's row (all N), B to those of its column (all M), of one
    part of K.
    """
    cluster_mn = cluster_mnk[:2]
    cluster = cute.make_layout((1, *cluster_mnk))
    here = (0, *block_mnk)
    a_peers = cpasync.create_tma_multicast_mask(cluster, here, 2) if cluster_mn[1] > 1 else None
    b_peers = cpasync.create_tma_multicast_mask(cluster, here, 1) if cluster_mn[0] > 1 else None
    return a_peers, b_peers
