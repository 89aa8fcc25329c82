"""Consistency of stages in shared memory with MMAs, copies and registers, checked while a kernel is traced."""

import cutlass
import cutlass.cute as cute

from cutepy.device import rules
from cutepy.device.mma import make_tiled_mma
from cutepy.device.pipeline import TmaRing
from cutepy.dsl.atoms import a_source, operand_majors, operand_types
from cutepy.dsl.launch_facts import launched
from cutepy.layouts.sm90 import arch


def contiguous_mode(tensor) -> int | None:
    """Return the contiguous mode of the first two of a tensor or layout; None if neither or both are contiguous.

    Parameters
    ----------
    tensor : Tensor or Layout
        Without the swizzle.
    """
    found = [mode for mode in (0, 1) if _has_neighbours(tensor.shape[mode], tensor.stride[mode])]
    return found[0] if len(found) == 1 else None


def _has_neighbours(shape, stride) -> bool:
    """Return whether the stride of some step along a mode is known to be one element."""
    if isinstance(stride, tuple):
        return any(map(_has_neighbours, shape, stride))
    return isinstance(stride, int) and stride == 1 and not (isinstance(shape, int) and shape == 1)


def check_operands(ring: TmaRing, tiled_mma: cute.TiledMma, sA: cute.Tensor, sB: cute.Tensor) -> None:
    """Check the stages `sA` (M, K, stages) and `sB` (N, K, stages) of a ring against the MMAs.

    An A that passes through registers may be of any type.

    Raises
    ------
    TypeError
        If stages hold another element type than the MMAs multiply.
    ValueError
        If they don't fit each other, the MMAs or the ring, or lie otherwise than the MMAs read them.
    """
    check_factors(tiled_mma, sA, sB)
    rules.check_readers(ring.consumer_warps, tiled_mma.size, launched().threads)
    rules.check_ring_stages(cute.size(sA, mode=[2]), cute.size(sB, mode=[2]), ring.stages)


def check_factors(tiled_mma: cute.TiledMma, a: cute.Tensor | tuple[int, int], sB: cute.Tensor) -> None:
    """Check A, stages (M, K, stages) or the extents (M, K) of one in registers, and the stages `sB` against the MMAs.

    Raises
    ------
    TypeError
        If stages hold another element type than the MMAs multiply.
    ValueError
        If they don't fit each other or the MMAs, lie otherwise than the MMAs read them, or the kernel has fewer threads
        than the MMAs.
    """
    extents = a if isinstance(a, tuple) else (cute.size(a, mode=[0]), cute.size(a, mode=[1]))
    rules.check_threads(tiled_mma.size, launched().threads)
    rules.check_stages(
        extents,
        (multiplied_columns(tiled_mma, sB), cute.size(sB, mode=[1])),
        tuple(tiled_mma.get_tile_size(mode) for mode in range(3)),
    )
    operands = zip("AB", (a, sB), operand_types(tiled_mma), operand_majors(tiled_mma), strict=True)
    for name, staged, multiplied, major in operands:
        if name == "B" or a_source(tiled_mma) == "smem":
            rules.check_multiplied(name, staged.element_type.__name__, multiplied.__name__)
            rules.check_operand_major(name, contiguous_mode(staged), major)


def check_accumulators(tiled_mma: cute.TiledMma, tile_mn: tuple[int, int]) -> None:
    """Check that the registers of an MMA's threads can hold the accumulators of a tile.

    Raises
    ------
    ValueError
        If they can't.
    """
    warpgroups = tiled_mma.size // arch.WARPGROUP_THREADS
    rules.check_accumulators(tile_mn, warpgroups, mma_n=tiled_mma.shape_mnk[1])


def along_n(tiled_mma: cute.TiledMma) -> int:
    """Count the warpgroups of MMAs that lie along N."""
    return tiled_mma.get_tile_size(1) // tiled_mma.shape_mnk[1]


def multiplied_columns(tiled_mma: cute.TiledMma, sB: cute.Tensor) -> int:
    """Count the columns of the stages `sB` that MMAs multiply; a stage may have more (`rules.staged_columns`).

    It may not where warpgroups lie along N, as the columns beyond are behind those of the last one only.
    """
    if along_n(tiled_mma) > 1:
        return cute.size(sB, mode=[0])
    return rules.multiplied_columns(cute.size(sB, mode=[0]), tiled_mma.get_tile_size(1), operand_majors(tiled_mma)[1])


def make_fragment_b(tiled_mma: cute.TiledMma, sB: cute.Tensor, tidx: cutlass.Int32) -> cute.Tensor:
    """Make the descriptors (MMA, MMA_N, MMA_K, stages) of stages.

    For a stage with more columns than the MMAs multiply, the descriptors are those of MMAs that would multiply all:
    they do not contain the number of columns.
    """
    staged = cute.size(sB, mode=[0])
    if multiplied_columns(tiled_mma, sB) < staged:
        modes = {"a_contiguous_mode": 1, "b_contiguous_mode": 0}
        tiled_mma, tidx = make_tiled_mma(*operand_types(tiled_mma), **modes, tile_n=staged, warpgroups=1), 0
    return tiled_mma.make_fragment_B(tiled_mma.get_slice(tidx).partition_B(sB))


def transposed(staged: cute.Tensor) -> cute.Tensor:
    """View stages (rows, columns, stages) as (columns, rows, stages): the same memory as the transposed operand."""
    return cute.make_tensor(staged.iterator, cute.select(staged.layout, [1, 0, 2]))


def hold_address(staged: cute.Tensor) -> cute.Tensor:
    """Return stages whose address the compiler keeps in a register.

    A value that a shuffle has added is opaque to the compiler. Otherwise the compiler, which knows where shared memory
    begins, would compute the descriptor of the first stage anew in each stage, by four dependent instructions between a
    barrier and the first MMA after it.
    """
    zero = cute.assume(cute.arch.make_warp_uniform(cutlass.Int32(0)), divby=arch.pattern_bytes("SW128"))
    return cute.make_tensor(staged.iterator + zero, staged.layout)
