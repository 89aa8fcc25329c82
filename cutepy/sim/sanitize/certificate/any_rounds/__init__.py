"""Extension of a certificate to any number of further rounds of a kernel's loops: the interface of this room.

No module outside of the room imports another one of it. `LaunchRounds` and `RoundNotes` collect the rounds while a
launch runs. `Extension` says of loops in one certificate whether they may make further rounds. `any_rounds` combines
the certificates of several launches.

Code. A register steers a loop if it reaches an address of shared memory or of an mbarrier, an operand of
synchronisation, or a branch over these, over a collective of a warp, a `trap` or a write of such a register. The state
of a loop is the steering registers that come around it, without the exits. Counters used only modulo n count by their
remainder.

Comparisons that steer, a < b, are taken apart from the state. Both sides must be sums of counters, of values that the
loop doesn't change, and of at most one bound, which a loop's exit compares with a counter. With p rounds more, a - b
must not change its sign: before and in the window (where rounds are inserted) if only the bound moves; in and after
the window if the counters move too.

Run. Two rounds p apart begin in the same state. All lanes' rounds over at least 2p rounds are equal p apart: the same
operations, at the same barriers, each barrier advanced by as many phases for all its users, mbarriers by an even
number. Loops that share barriers, or lanes of a warp or warpgroup, go together. Rounds that count in a phase without
completing it are refused.

Sufficiency. Let T be the run and T' the run with one period inserted. By the code T' is what the threads do.
Two maps take T into T': one is the identity up to where the first thread leaves its loop, the other shifts everything
after the last thread entered its loop. Both keep program order, phases and counts, so both keep paths of →.

- Premises 1 to 5 compare neighbouring phases of one barrier. One of the maps reaches both: the run must have no late
  operation in a phase, or its neighbours, that also has operations from before the last thread entered.
- A thread's last access to the same bytes is at most one period old, so a whole period of each thread must lie between
  the two cuts.
- Paths from before the loop to after it pass a thread's rounds, by program order.

T' has more rounds than T, so induction gives any number. Launches with each remainder together give every number.

Constants that end a loop. The conditions of the exits are followed back through the rounds, over data and branches.
Each comparison met there, whose sides are counters with a known start and constants, turns in some round if the
counters go on. The extension ends before the first of these rounds. A start or bound clamped by `min` counts as the
constant.
"""

from cutepy.sim.sanitize.certificate.any_rounds.bounds import arguments_of
from cutepy.sim.sanitize.certificate.any_rounds.extensions import Extension
from cutepy.sim.sanitize.certificate.any_rounds.launch_rounds import LaunchRounds
from cutepy.sim.sanitize.certificate.any_rounds.loops import heads as round_heads
from cutepy.sim.sanitize.certificate.any_rounds.remainders import AnyRounds, any_rounds
from cutepy.sim.sanitize.certificate.any_rounds.rounds import RoundNotes

__all__ = ["AnyRounds", "Extension", "LaunchRounds", "RoundNotes", "any_rounds", "arguments_of", "round_heads"]
