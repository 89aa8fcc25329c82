"""The examiner checks the premises of each launch of a run, and writes its certificate."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from cutepy.sim.machine.lanes import WARP
from cutepy.sim.machine.launch import cancels_clusters
from cutepy.sim.mechanisms.register_pool import held_at_launch
from cutepy.sim.ptx.source_lines import line_of
from cutepy.sim.sanitize.certificate.certificates import Certificate
from cutepy.sim.sanitize.certificate.elections import ElectedInstructions, Elections, elected
from cutepy.sim.sanitize.certificate.premises import Premises, announces
from cutepy.sim.sanitize.certificate.steering import steering, steering_stores, undecided
from cutepy.sim.sanitize.certificate.weak_memory import described, synchronises_by, unfenced
from cutepy.sim.sanitize.order.tries import tries
from cutepy.sim.sanitize.order.uses import Uses

if TYPE_CHECKING:
    from collections.abc import Callable

    from cutepy.sim.machine.events import Access, CancelRequest
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.sanitize.certificate.steering import Steering
    from cutepy.sim.sanitize.certificate.violations import Violation
    from cutepy.sim.sanitize.order.clocks import Clocks
    from cutepy.sim.sanitize.order.tries import Try
    from cutepy.sim.sanitize.order.wave import Wave
    from cutepy.sim.translate import Program

_PROGRESS = "each thread runs again and again until it ends, and each copy and MMA completes"
_MODEL = "copies, barriers and fences do what the PTX ISA says, as docs/certificate.md reads it"
_DEPENDENT = "griddepcontrol: what other grids of the stream do meanwhile"
_FLAGS = "{} memory that threads synchronise by: atomics and flags"
_OTHERS = "launches of other sizes, or with other values that steer; results"
_ABSENT = "{} of the grid's {} CTAs, which were not chosen to run, and what they and the others do to each other"
_LINES = 5
_TOLD_OTHERWISE = ("barrier-outlived", "unannounced-bytes")
"""Kinds of violations that refuse a certificate only: the sanitizer looks for ended mbarriers and bytes itself."""


class Examiner:
    """Examines launches one after another.

    Parameters
    ----------
    violated : callable
        Called with each `Violation`.

    Attributes
    ----------
    certificates : list of Certificate
        Of the launches that have ended.
    peeks : frozenset of int
        The peeks of the launch that runs, by index of the instruction.
    guesses : frozenset of int
        Its guesses.
    is_steered : bool
        True if something that depends on the schedule may steer it.
    elections : tuple of Elections
        Operations of elected lanes, by the mask of their election.
    """

    def __init__(self, violated: Callable[[Violation], None]) -> None:
        self._violated = violated
        self.certificates: list[Certificate] = []
        self.peeks: frozenset[int] = frozenset()
        self.guesses: frozenset[int] = frozenset()
        self.is_steered = False
        self.elections: tuple[Elections, ...] = ()
        self._launch: Launch | None = None
        self._launches: list[Launch] = []  # whose certificates are written

    def begin(self, launch: Launch, program: Program) -> None:
        """Begin with a launch."""
        found, steered, self._stores, self._may_announce, weak = _studied(program)
        chosen = _elected(program, launch.block[0] % WARP == 0 or launch.block[1:] == (1, 1))
        self._tries: dict[int, Try] = {one.instruction.index: one for one in found}
        self.peeks = frozenset(one.instruction.index for one in found if one.is_peek)
        self.guesses = frozenset(one.instruction.index for one in found if one.is_guess)
        instructions = program.function.instructions
        self._reasons: dict[str, None] = {}
        self._ctas = self._operations = self._cancelled = 0
        has_tensor_memory = any(i.traits.kind == "tcgen05" for i in instructions)
        self._memories = ("shared", "tensor") if has_tensor_memory else ("shared",)
        asks = any(i.traits.takes_registers for i in instructions)
        self._registers = held_at_launch(program.function) if asks else None
        self._assumptions = dict.fromkeys((_PROGRESS, _MODEL))
        self._uncovered = (
            _OTHERS,
            *map(_FLAGS.format, synchronises_by(instructions)),
            *weak,
            *((_DEPENDENT,) if any(i.traits.orders_grids for i in instructions) else ()),
        )
        self.elections = tuple(Elections(one, launch.slot_bytes, self.assume) for one in chosen)
        for one in steered:
            self._refuse_steering(one)
        if cancels_clusters(launch):
            self._refuse("launch control decides, at each launch anew, which CTA does the work of which cluster")
        self.is_steered = bool(steered)
        self._launch = launch

    def access(self, clocks: Clocks, access: Access) -> None:
        """Check whether an access depends on the schedule and steers, and whether it writes tensor maps."""
        for election in self.elections:
            election.access(clocks, access)
        steered = self._stores.get(access.instruction.index)
        if steered is not None and undecided(access):
            self._refuse_steering(steered)

    def cancel(self, request: CancelRequest) -> None:
        """Take the CTAs of a cluster that does not begin for such as have run."""
        if request.first_cta is not None:
            self._cancelled += request.ctas.residents.cluster_size

    def assume(self, what: str) -> None:
        """Take something for granted, beyond the PTX ISA."""
        self._assumptions[what] = None

    def premises(self, wave: Wave) -> Premises:
        """Return the premises of CTAs that become resident."""
        told = self._violation, self._refuse, self.assume
        return Premises(wave, self._tries, self._may_announce, self._registers, *told)

    def leave(self, premises: Premises) -> None:
        """Check the remaining state when CTAs have ended."""
        premises.end()
        self._ctas += premises.ctas
        self._operations += premises.operations

    def verdict(self, hazards: int) -> str:
        """Tell whether a deadlocked launch deadlocks in every schedule."""
        if self._reasons:
            return f"other schedules may not hang: {next(iter(self._reasons))}"
        if hazards:
            return "other schedules may not hang: a reported hazard decides it"
        return "every schedule hangs: what has run synchronises in the same way in each"

    def finish(self, hazards: int) -> None:
        """Write the certificate of a launch that has ended."""
        launch = self._launch
        if launch is None:
            return
        if hazards:
            self._refuse("this launch has hazards, which are reported, allowed, or told as advisories")
        if self._ctas + self._cancelled < len(launch.order):
            self._refuse(f"{self._ctas} of {len(launch.order)} CTAs were run to their end")
        if launch.absent_ctas:
            absent = _ABSENT.format(launch.absent_ctas, launch.ctas)
            self._uncovered = (absent, *self._uncovered)
        reasons = tuple(self._reasons)
        more = (f"and {len(reasons) - _LINES} more",) if len(reasons) > _LINES else ()
        self.certificates.append(
            Certificate(
                launch.name,
                launch.grid,
                launch.block,
                launch.cluster,
                self._ctas,
                self._operations,
                (*reasons[:_LINES], *more),
                tuple(self._assumptions),
                self._uncovered,
                self._memories,
            )
        )
        self._launches.append(launch)
        self._launch = None

    def withdraw(self, launch: Launch, reason: str) -> None:
        """Refuse a launch, whether or not its certificate is written."""
        if launch is self._launch:
            self._reasons = {reason: None, **self._reasons}
        for n, one in enumerate(self._launches):
            if one is launch:
                written = self.certificates[n]
                self.certificates[n] = replace(written, reasons=tuple(dict.fromkeys((reason, *written.reasons))))

    def _refuse_steering(self, one: Steering) -> None:
        self._refuse(
            f"{one.value} ({line_of(one.source)}) reaches {one.role}: `{one.use.text.strip()}` ({line_of(one.use)})"
        )

    def _refuse(self, reason: str) -> None:
        self._reasons[reason] = None

    def _violation(self, violation: Violation) -> None:
        if violation.kind in _TOLD_OTHERWISE:
            self._refuse(f"{violation.where}, {violation.after}: {violation.diagnosis}")
        else:
            self._violated(violation)


@lru_cache(maxsize=16)
def _elected(program: Program, has_whole_rows: bool) -> tuple[ElectedInstructions, ...]:
    """Return the instructions that elected lanes execute, by a program's code."""
    return elected(program.flow, has_whole_rows=has_whole_rows)


@lru_cache(maxsize=16)
def _studied(
    program: Program,
) -> tuple[list[Try], list[Steering], dict[int, Steering], bool, tuple[str, ...]]:
    """Return the facts of a program's code, for any launch.

    That is its tries, what steers, what stores may steer, if it announces bytes, and what no schedule shows.
    """
    uses = Uses(program.flow)
    found = tries(program.flow, uses)
    announced = announces(program.function.instructions)
    weak = described(unfenced(program.flow))
    steered = steering(program.flow, uses, found)
    return found, steered, steering_stores(program.flow, uses, found), announced, weak
