"""Ping-pong order of two consumers, by named barriers (traced)."""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute

from cutepy.device import rules


@dataclass(frozen=True)
class Turns:
    """Two named barriers: each consumer waits at its own, and the other arrives there when its turn ends.

    Who waits at a ring of stages only for every other tile must know that the stages of the tile between have been
    full, or it takes the parity of an earlier round for its own: handing over after these waits tells it so.

    Attributes
    ----------
    barrier : int
        The number of the first consumer's named barrier; the second's is the next.
    consumer : Int32
        Index of this thread's consumer, 0 or 1.
    threads : int
        Threads of one consumer.
    """

    barrier: int
    consumer: cutlass.Int32
    threads: int

    def __post_init__(self) -> None:
        for number in (self.barrier, self.barrier + 1):
            rules.check_barrier(number)
        rules.check_turn_threads(self.threads)

    @cute.jit
    def wait(self, is_first):
        """Wait until the consumer of the tile before has handed over; return at once before the first tile."""
        if not is_first:
            cute.arch.barrier(barrier_id=self.barrier + self.consumer, number_of_threads=2 * self.threads)

    @cute.jit
    def hand_over(self, has_next):
        """Let the consumer of the next tile continue, if there is one."""
        if has_next:
            cute.arch.barrier_arrive(barrier_id=self.barrier + 1 - self.consumer, number_of_threads=2 * self.threads)
