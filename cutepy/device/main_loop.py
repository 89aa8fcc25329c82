"""Main loop of one output tile: wgmma from the stages of a ring (traced)."""

from collections.abc import Callable
from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import warpgroup

from cutepy.device import rules
from cutepy.device.marks import mark
from cutepy.device.pipeline import TmaRing
from cutepy.device.product import Product, make_product
from cutepy.device.schedulers import Work
from cutepy.device.staging import check_operands


def nothing():
    """Do nothing: the default `hand_over`."""


@dataclass(frozen=True)
class MainLoop:
    """C = A B^T of one output tile, both operands in staged shared memory (wgmma's SS form).

    All threads of the consumer warpgroups take part. Each waits for a stage to be *full*, issues the stage's MMAs as
    one group, and releases the stage before, whose group has finished by then: one group is in flight behind the one
    that was just issued, so that the tensor cores never wait for a release. The producer waits for *empty*.

    Attributes
    ----------
    ring : TmaRing
        Ring of the stages; this thread's warp is one of its consumers.
    product : Product
        MMAs of a stage, and the accumulators.
    """

    ring: TmaRing
    product: Product

    def __post_init__(self) -> None:
        rules.check_overlap(self.ring.stages)

    @property
    def tCrC(self) -> cute.Tensor:
        """Accumulators of this thread, (MMA, MMA_M, MMA_N)."""
        return self.product.tCrC

    def at(self, work: Work, place: tuple):
        """Return the loop for the output tile at a place: this one, for any place."""
        return self

    @cute.jit
    def multiply(self, state, k_tiles, hand_over: Callable = nothing):
        """Multiply `k_tiles` stages, at least one, from `state` on; return the state after them. tCrC is valid then.

        `hand_over` is called when the last MMAs have been issued, before they finish: from then on another warpgroup's
        MMAs may queue up after them.
        """
        self.ring.wait(state)
        with mark("multiply", state.index):
            self.product.issue(a=state.index, b=state.index)
        read = state.clone()
        state.advance()
        for _ in cutlass.range(1, k_tiles, unroll=1):
            self.ring.wait(state)
            with mark("multiply", state.index):
                self.product.issue(a=state.index, b=state.index, accumulate=True)
                state.advance()
                # All but the youngest group have finished, so the stage before has been read and may be refilled while
                # the tensor cores work on the youngest.
                warpgroup.wait_group(1)
            self.ring.release(read)
            read.advance()
        hand_over()
        # The accumulators in registers are valid from here on.
        with mark("multiply", read.index):
            warpgroup.wait_group(0)
        self.ring.release(read)
        return state


def make_main_loop(
    ring: TmaRing, tiled_mma: cute.TiledMma, sA: cute.Tensor, sB: cute.Tensor, tidx: cutlass.Int32
) -> MainLoop:
    """Make the loop over the stages of `sA` (M, K, stages) and `sB` (N, K, stages), and its accumulators.

    Parameters
    ----------
    tidx : Int32
        Index among the threads of `tiled_mma`.

    Raises
    ------
    TypeError
        If the stages hold another element type than the MMAs multiply.
    ValueError
        If the stages are not the ring's, are fewer than 2, have not one K or are not major as the MMAs read them, the
        MMAs don't fill them or take A from registers, or the accumulators don't fit into those.
    """
    check_operands(ring, tiled_mma, sA, sB)
    return MainLoop(ring, make_product(tiled_mma, sA, sB, tidx))
