"""Main loop of one output tile with A in registers (traced)."""

from collections.abc import Callable
from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import warpgroup

from cutepy.device import rules
from cutepy.device.main_loop import MainLoop, nothing
from cutepy.device.marks import mark
from cutepy.device.operand import OperandLoad, Step, make_operand_load, put
from cutepy.device.pipeline import TmaRing
from cutepy.device.product import make_product
from cutepy.device.staging import check_operands
from cutepy.dsl.atoms import operand_types


def as_staged(values, step):
    """Return A as staged: the default `change`."""
    return values


@dataclass(frozen=True)
class RegisterLoop(MainLoop):
    """C = f(A) B^T of one output tile, as `MainLoop`, but with A in registers (wgmma's RS form), after f.

    All threads of the consumer warpgroups take part. Each waits for a stage to be *full*, loads what it holds of A into
    registers, and issues the MMAs: a stage in two halves along K, each with registers of its own and one group of MMAs.
    While the tensor cores work on one half, the threads load, and change, the other. So:

    - registers are filled again only after a `wait_group` covers the group that reads them, which is the one before the
      youngest;
    - `wgmma.fence` comes after they are filled, and before the MMAs that read them;
    - a stage, of which the threads read A and the MMAs B, is released when its second group has finished, after the
      first of the next stage was issued. What threads read TMA overwrites, so that each fences its reads, and a warp's
      lanes meet, before one of them arrives at *empty*.

    The producer waits for *empty*, as for `MainLoop`: positions and phases are the ring's.

    Attributes
    ----------
    ring : TmaRing
        Ring of the stages; this thread's warp is one of its consumers.
    product : Product
        MMAs of a stage, with A in registers, and the accumulators.
    load : OperandLoad
        Reads A; its `tile` tells where the elements are.
    """

    load: OperandLoad

    @cute.jit
    def multiply(self, state, k_tiles, hand_over: Callable = nothing, change: Callable = as_staged):
        """Multiply `k_tiles` stages, at least one, from `state` on; return the state after them. tCrC is valid then.

        Parameters
        ----------
        hand_over : callable
            Called when the last MMAs have been issued, and not waited for, as by `MainLoop`.
        change : callable
            (values, step) -> values, called while traced, for each `Step`: what this thread holds of A for one MMA
            along K, a tensor as it was staged, in the order of `load.tile.registers`, becomes a tensor or vector of the
            MMA's elements, or of some that are then converted to them.
        """
        self.ring.wait(state)
        for half in cutlass.range_constexpr(2):
            self.fill(half, cutlass.Int32(0), state.index, change)
            self.issue(half, state.index, accumulate=half != 0)
        read = state.clone()
        state.advance()
        for tile in cutlass.range(1, k_tiles, unroll=1):
            self.ring.wait(state)
            for half in cutlass.range_constexpr(2):
                # All but the youngest group have finished: also the one that read the registers to be filled.
                with mark("multiply", read.index):
                    warpgroup.wait_group(1)
                if cutlass.const_expr(half == 1):
                    # That group was the last of the stage before.
                    self.release(read)
                self.fill(half, tile, state.index, change)
                self.issue(half, state.index, accumulate=True)
            read.advance()
            state.advance()
        hand_over()
        # The accumulators in registers are valid from here on.
        with mark("multiply", read.index):
            warpgroup.wait_group(0)
        self.release(read)
        return state

    def fill(self, half: int, tile, stage, change: Callable):
        """Load A of one half of a stage into its registers, through `change`."""
        tiled_mma = self.product.tiled_mma
        with mark("fill", stage):
            for step in rules.step_halves(self.load.steps)[half]:
                at = Step(tile, stage, step * tiled_mma.get_tile_size(2))
                put(change(self.load.read(at), at), self.product.tCrA[step], operand_types(tiled_mma)[0])

    def issue(self, half: int, stage, accumulate: bool):
        """Issue the MMAs of one half of a stage as one group."""
        self.product.issue(b=stage, accumulate=accumulate, steps=rules.step_halves(self.load.steps)[half])

    @cute.jit
    def release(self, state):
        """Release a stage, once for this warp, when threads have read A, and MMAs B."""
        # TMA overwrites A through the async proxy, which the release does not order: this fence does.
        cute.arch.fence_proxy("async.shared", space="cta")
        # One lane releases the stage for the warp, so the other lanes must have read their part before it does.
        cute.arch.sync_warp()
        self.ring.release(state)


def make_register_loop(
    ring: TmaRing,
    tiled_mma: cute.TiledMma,
    sA: cute.Tensor,
    sB: cute.Tensor,
    tidx: cutlass.Int32,
) -> RegisterLoop:
    """Make the loop over the stages of `sA` (M, K, stages) and `sB` (N, K, stages), and its accumulators.

    Parameters
    ----------
    sA : Tensor
        Stages of A, K-major, of the MMA's type or any type that `change` converts to it.
    tidx : Int32
        Index among the threads of `tiled_mma`.

    Raises
    ------
    TypeError
        If B's stages hold another element type than the MMAs multiply.
    ValueError
        If the stages are not the ring's, are fewer than 2, have not one K, or the MMAs don't fill them, of which there
        must be 2 along K, with A from registers; A is staged MN-major, or B otherwise than the MMAs read it; or the
        accumulators don't fit into registers.
    """
    check_operands(ring, tiled_mma, sA, sB)
    load = make_operand_load(tiled_mma, sA, tidx)
    return RegisterLoop(ring, make_product(tiled_mma, cute.size(sA, mode=[0]), sB, tidx), load)
