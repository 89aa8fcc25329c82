"""Extension of a certificate to any number of further rounds of a kernel's loops: the interface of this room.

No module outside of the room imports another one of it. `LaunchRounds` and `RoundNotes` collect the rounds while a
launch runs. `Extension` says of loops in one certificate whether they may make further rounds. `any_rounds` combines
the certificates of several launches. docs/certificate_reference.md has the proof.
"""

from cutepy.sim.sanitize.certificate.any_rounds.bounds import arguments_of
from cutepy.sim.sanitize.certificate.any_rounds.extensions import Extension
from cutepy.sim.sanitize.certificate.any_rounds.launch_rounds import LaunchRounds
from cutepy.sim.sanitize.certificate.any_rounds.loops import heads as round_heads
from cutepy.sim.sanitize.certificate.any_rounds.remainders import AnyRounds, any_rounds
from cutepy.sim.sanitize.certificate.any_rounds.rounds import RoundNotes

__all__ = ["AnyRounds", "Extension", "LaunchRounds", "RoundNotes", "any_rounds", "arguments_of", "round_heads"]
