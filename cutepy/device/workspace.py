"""Leave accumulators in global memory for another CTA, and fetch what others have left (traced).

Each warp has a flag of its own for each place: what a thread of it holds is what the same thread of the same warp of
another CTA wants, so warps wait for each other, not CTAs. A place is filled at most once in a launch, and is fetched by
one warp, which puts the flag down again: so a workspace serves any number of launches one after another, replayed by
CUDA graphs too, if its flags were 0 before the first. Launches that may run at one time need workspaces of their own.
What the memory of the sums held before never matters.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute

from cutepy.device import rules
from cutepy.layouts.sm90 import arch

VECTOR = 4
"""fp32 values that a thread moves at once."""


@dataclass(frozen=True)
class WorkspaceSums:
    """The places of a workspace, as the consumer threads of one CTA see them.

    Whoever leaves sums writes them, waits for its warp, and raises the flag by a store that releases at the scope of
    the GPU: a release covers what its thread has seen to be written, so that of the whole warp. Whoever fetches them
    reads the flag by loads that acquire, in one thread, and lets its warp go on.

    Attributes
    ----------
    flags : Tensor, (places, `rules.FLAGS`), int32
    sums : Tensor, (places * threads * registers,), fp32, aligned to 16 bytes
    registers : int
        fp32 values that a thread holds, a multiple of 4.
    threads : int
        Consumer threads.
    tidx : Int32
        Index among these.
    """

    flags: cute.Tensor
    sums: cute.Tensor
    registers: int
    threads: int
    tidx: cutlass.Int32

    def __post_init__(self) -> None:
        rules.check_workspace(self.registers, self.threads)

    def _vectors(self, place):
        """See this thread's values at a place, (4, registers / 4): threads lie beside each other, 16 bytes apart."""
        first = self.sums.iterator + place * (self.registers * self.threads) + self.tidx * VECTOR
        layout = cute.make_layout((VECTOR, self.registers // VECTOR), stride=(1, VECTOR * self.threads))
        return cute.make_tensor(first.align(4 * VECTOR), layout)

    def _flag(self, place):
        warp = cute.arch.make_warp_uniform(self.tidx // arch.WARP_THREADS)
        return self.flags.iterator + (place * rules.FLAGS + warp)

    @cute.jit
    def leave(self, rC, place):
        """Leave what this thread holds at a place; whole warps call."""
        lines = self._vectors(place)
        held = cute.make_tensor(rC.iterator, cute.make_layout((VECTOR, self.registers // VECTOR)))
        for vector in cutlass.range_constexpr(self.registers // VECTOR):
            lines[None, vector].store(held[None, vector].load())
        cute.arch.sync_warp()
        # A shuffle of all lanes tells which warp they are, so it comes before one of them goes a way of its own.
        is_first, flag = cute.arch.lane_idx() == 0, self._flag(place)
        if is_first:
            cute.arch.store(flag, cutlass.Int32(1), sem="release", scope="gpu")

    @cute.jit
    def add_to(self, rC, place):
        """Add what the same thread of another CTA has left at a place, once it has; whole warps call."""
        flag = self._flag(place)
        if cute.arch.lane_idx() == 0:
            raised = cute.arch.load(flag, cutlass.Int32, sem="acquire", scope="gpu")
            while raised == 0:
                raised = cute.arch.load(flag, cutlass.Int32, sem="acquire", scope="gpu")
            # Nobody looks at it again in this launch, and what comes after the launch sees all that it wrote.
            cute.arch.store(flag, cutlass.Int32(0), sem="relaxed", scope="gpu")
        cute.arch.sync_warp()
        lines = self._vectors(place)
        for vector in cutlass.range_constexpr(self.registers // VECTOR):
            line = lines[None, vector].load()
            for v in cutlass.range_constexpr(VECTOR):
                rC[vector * VECTOR + v] = rC[vector * VECTOR + v] + line[v]
