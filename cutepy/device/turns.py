"""Ping-pong order of consumers, by named barriers (traced)."""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute

from cutepy.device import rules
from cutepy.device.marks import mark
from cutepy.device.primitives import select


@dataclass(frozen=True)
class PingpongOrder:
    """Ping-pong order of consumers: each has a named barrier, at which it waits for its turn.

    The consumer of the tile before arrives at the barrier when its own turn ends. A consumer waits at a ring of
    stages only for its own tiles. It must therefore know that the stages of the tile between have been full, or it
    mistakes the parity of an earlier round for its own. The consumer of that tile hands over after its waits, which
    ensures that.

    Attributes
    ----------
    barrier : int
        The number of the first consumer's named barrier; the others' follow.
    consumer : Int32
        Index of this thread's consumer.
    threads : int
        Threads of one consumer.
    consumers : int
        Consumers that take turns.
    """

    barrier: int
    consumer: cutlass.Int32
    threads: int
    consumers: int = 2

    def __post_init__(self) -> None:
        for number in range(self.consumers):
            rules.check_barrier(self.barrier + number)
        rules.check_turn_threads(self.threads)

    @cute.jit
    def wait(self, is_first):
        """Wait until the consumer of the tile before has handed over; return at once before the first tile."""
        if not is_first:
            with mark("turn"):
                cute.arch.barrier(barrier_id=self.barrier + self.consumer, number_of_threads=2 * self.threads)

    @cute.jit
    def hand_over(self, has_next):
        """Let the consumer of the next tile continue, if there is one."""
        if has_next:
            if cutlass.const_expr(self.consumers == 2):
                following = 1 - self.consumer
            else:
                following = select(self.consumer == self.consumers - 1, 0, self.consumer + 1)
            with mark("hand-over"):
                cute.arch.barrier_arrive(barrier_id=self.barrier + following, number_of_threads=2 * self.threads)

    @cute.jit
    def begin(self):
        """Let the first consumer begin, where each one always waits and hands over: see `end`."""
        self.hand_over(self.consumer == self.consumers - 1)

    @cute.jit
    def end(self):
        """Take the last turn that was handed over, in the first consumer."""
        self.wait(self.consumer != 0)
