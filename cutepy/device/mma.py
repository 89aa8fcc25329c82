"""TiledMMAs from SM90 wgmma atoms, and MMAs of single rows of atoms (traced)."""

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import warpgroup

from cutepy.device.rules import wgmma_tiling
from cutepy.dsl.atoms import to_tiled_mma
from cutepy.dsl.element_types import dtype_of


def make_tiled_mma(
    a_dtype: type[cutlass.Numeric],
    b_dtype: type[cutlass.Numeric],
    *,
    a_contiguous_mode: int,
    b_contiguous_mode: int,
    tile_n: int,
    warpgroups: int | tuple[int, int],
    a_in_registers: bool = False,
) -> cute.TiledMma:
    """Make the TiledMMA of `warpgroups` WGMMA atoms 64 x `tile_n` x (32 bytes of K), stacked along M, or along M and N.

    B is read from shared memory through descriptors, and so is A (the SS form), or it comes from registers (RS), where
    it is K-major; accumulators, fp32 or, of integers, s32, stay in registers. Float32 is multiplied as tf32, and staged
    as TFloat32. A contiguous mode of 1 is K-major; 0 is MN-major, which only 16-bit types have: the transpose bits of
    the instruction exist for them alone.

    Raises
    ------
    ValueError
        If there is no such instruction for the types or majors.
    """
    if {a_contiguous_mode, b_contiguous_mode} - {0, 1}:
        raise ValueError(f"contiguous modes must be 0 or 1, got {a_contiguous_mode} and {b_contiguous_mode}")
    if a_in_registers and a_contiguous_mode != 1:
        raise ValueError(f"an A in registers is K-major, got a contiguous mode of {a_contiguous_mode}; use 1")
    if a_dtype.width != 16 and {a_contiguous_mode, b_contiguous_mode} != {1}:
        raise ValueError(f"wgmma reads only 16-bit operands MN-major, got {a_dtype} and {b_dtype}; make both K-major")
    if a_dtype.width == 16 and a_dtype is not b_dtype:
        raise ValueError(f"wgmma takes 16-bit operands of one type, got {a_dtype} and {b_dtype}; convert one")
    majors = ("MN", "K")
    tiling = wgmma_tiling(dtype_of(a_dtype), dtype_of(b_dtype), tile_n, warpgroups, a_in_registers=a_in_registers)
    return to_tiled_mma(tiling, majors[a_contiguous_mode], majors[b_contiguous_mode])


def with_accumulate(tiled_mma: cute.TiledMma, accumulate: bool) -> cute.TiledMma:
    """Return a copy of a TiledMMA with its ACCUMULATE field (scale-d) set.

    `TiledMma.set` changes the object in place, and a value made inside a device loop must not outlive the loop.
    """
    twin = tiled_mma.__new_from_mlir_values__(tiled_mma.__extract_mlir_values__())
    twin.set(warpgroup.Field.ACCUMULATE, accumulate)
    return twin


@cute.jit
def issue_rows(
    tiled_mma: cute.TiledMma,
    tCrA: cute.Tensor,
    tCrB: cute.Tensor,
    tCrC: cute.Tensor,
    rows: cutlass.Constexpr,
    steps: cutlass.Constexpr,
    stage: cutlass.Int32,
):
    """Issue some MMAs of one pipeline stage as one wgmma group: C = A[rows, steps, stage] B[steps, stage]^T.

    `rows` is one of A's blocks of 64 rows for each warpgroup, `steps` a range of MMAs along K; tCrC (MMA, 1, 1) holds
    that block alone. Otherwise as `Product.issue`.
    """
    warpgroup.fence()  # as in `Product.issue`
    for step in cutlass.range_constexpr(steps.start, steps.stop):
        atom = with_accumulate(tiled_mma, step != steps.start)
        a, b = (cute.append_ones(each) for each in (tCrA[(None, rows, step, stage)], tCrB[(None, 0, step, stage)]))
        cute.gemm(atom, tCrC, a, b, tCrC)
    warpgroup.commit_group()
