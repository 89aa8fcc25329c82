"""Workspace of accumulators in global memory, which one CTA stores and another adds (traced).

Each warp has a flag of its own for each place: a thread's sums go to the same thread of the same warp of another CTA,
so warps wait for each other, not CTAs. A place is filled at most once in a launch, and is read by one warp, which
resets the flag: so a workspace serves any number of launches one after another, replayed by CUDA graphs too, if its
flags were 0 before the first. Launches that may run at one time need workspaces of their own. The initial contents of
the sums never matter.
"""

from collections.abc import Callable
from dataclasses import dataclass

import cutlass
import cutlass.cute as cute

from cutepy.device import rules
from cutepy.device.combining import VECTOR, add
from cutepy.layouts.sm90 import arch


@dataclass(frozen=True)
class WorkspaceSums:
    """Places of a workspace, for the consumer threads of one CTA.

    A CTA that leaves sums writes them, synchronises each warp, and raises the flag by a store with release at the scope
    of the GPU. The release covers all writes that its thread knows, so the sums of the whole warp. A CTA that fetches
    sums reads the flag in one thread of each warp, by loads with acquire, and then lets the warp go on.

    Attributes
    ----------
    flags : Tensor, (slots, `rules.FLAGS`), int32
    sums : Tensor, (slots * threads * registers,), fp32, aligned to 16 bytes
    registers : int
        fp32 values that a thread holds, a multiple of 4.
    threads : int
        Consumer threads.
    tidx : Int32
        Index among these.
    combine : callable
        Joins another CTA's values to a thread's own, as `combining.add` does, the default.
    """

    flags: cute.Tensor
    sums: cute.Tensor
    registers: int
    threads: int
    tidx: cutlass.Int32
    combine: Callable = add

    def __post_init__(self) -> None:
        rules.check_workspace(self.registers, self.threads)

    def _vectors(self, place):
        """View this thread's values at a place, (4, registers / 4): threads are contiguous, 16 bytes apart."""
        first = self.sums.iterator + place * (self.registers * self.threads) + self.tidx * VECTOR
        layout = cute.make_layout((VECTOR, self.registers // VECTOR), stride=(1, VECTOR * self.threads))
        return cute.make_tensor(first.align(4 * VECTOR), layout)

    def _flag(self, place):
        warp = cute.arch.make_warp_uniform(self.tidx // arch.WARP_THREADS)
        return self.flags.iterator + (place * rules.FLAGS + warp)

    @cute.jit
    def leave(self, rC, place):
        """Store this thread's sums at a place; whole warps call."""
        lines = self._vectors(place)
        held = cute.make_tensor(rC.iterator, cute.make_layout((VECTOR, self.registers // VECTOR)))
        for vector in cutlass.range_constexpr(self.registers // VECTOR):
            lines[None, vector].store(held[None, vector].load())
        cute.arch.sync_warp()
        # The shuffle of all lanes that gives the warp's index comes before one of them branches off.
        is_first, flag = cute.arch.lane_idx() == 0, self._flag(place)
        if is_first:
            cute.arch.store(flag, cutlass.Int32(1), sem="release", scope="gpu")

    @cute.jit
    def join(self, rC, place):
        """Wait for the values of the same thread of another CTA at a place, and join them; whole warps call."""
        flag = self._flag(place)
        if cute.arch.lane_idx() == 0:
            raised = cute.arch.load(flag, cutlass.Int32, sem="acquire", scope="gpu")
            while raised == 0:
                raised = cute.arch.load(flag, cutlass.Int32, sem="acquire", scope="gpu")
            # No thread reads the flag again in this launch, and later launches see all of its writes.
            cute.arch.store(flag, cutlass.Int32(0), sem="relaxed", scope="gpu")
        cute.arch.sync_warp()
        lines = self._vectors(place)
        self.combine(rC, lambda vector: lines[None, vector].load())
