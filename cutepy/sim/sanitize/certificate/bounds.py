"""What the number that bounds loops steers beside how often they go around: over all of the kernel's code.

Further rounds of a loop are a launch in which some number is another: an extent that is a parameter, or what is loaded.
What is made of that number may steer something else, before the loops, in them, or after them. A branch that decides
whether a loop is entered does not count: what is said is said of loops that are. Nor may anything else end a loop: a
second way out, or the lesser of that number and another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cutepy.sim.ptx.model import Address, Immediate, Register, Symbol, Vector, type_bits
from cutepy.sim.sanitize.certificate.affine import signed
from cutepy.sim.sanitize.certificate.natural_loops import dominators
from cutepy.sim.sanitize.certificate.sinks import loads, sinks
from cutepy.sim.translate.effects import read, written

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.order.uses import Uses
    from cutepy.sim.translate.control_flow import ControlFlow

_MEMORY = ("", 0)
"""Where what is loaded from memory comes from: it may all be one number."""
_STORES = frozenset("st stmatrix red atom".split())

_Place = tuple[str, int]
"""Where a number comes from: a parameter, and how many bytes into it."""


class Bounded(NamedTuple):
    """A loop whose number of rounds is asked.

    Attributes
    ----------
    head : int
        The block where its rounds begin.
    blocks : frozenset of int
    compared : frozenset of int
        The comparisons in it that are known not to turn, by index.
    """

    head: int
    blocks: frozenset[int]
    compared: frozenset[int]


class Bounds:
    """Follows what bounds loops to all that it steers.

    Parameters
    ----------
    flow : ControlFlow
    uses : Uses
    reaching : callable
        Yields the instructions that may have made what is read somewhere: by block, instruction (None for its branch)
        and number of the register.
    over : sequence of sequence of int
        Of each block, those whose branch decides whether it runs.
    is_relevant : sequence of bool
        Whether a block synchronises, or accesses shared memory.
    outcomes : set of int
        The instructions that do nothing but pass on the outcomes of tries, by index.
    """

    def __init__(
        self,
        flow: ControlFlow,
        uses: Uses,
        reaching: Callable[[int, Instruction | None, int], Iterable[Instruction]],
        over: Sequence[Sequence[int]],
        is_relevant: Sequence[bool],
        outcomes: set[int],
    ) -> None:
        self._flow, self._uses, self._reaching = flow, uses, reaching
        self._over, self._is_relevant, self._outcomes = over, is_relevant, outcomes
        self._block = {i.index: n for n, block in enumerate(flow.blocks) for i in block.instructions}
        self._loads = [i for block in flow.blocks for i in block.instructions if i.parts[0] == "ld" and self._places(i)]
        self._above = dominators(flow)[1]
        self._found: dict[tuple[Bounded, ...], Instruction | None] = {}

    def steered(self, together: tuple[Bounded, ...]) -> Instruction | None:
        """Return what tells how many rounds loops are to make, and steers more than that; None if nothing does.

        Parameters
        ----------
        together : tuple of Bounded
            Loops that make further rounds together.
        """
        if together not in self._found:
            self._found[together] = self._look(together)
        return self._found[together]

    def _look(self, together: tuple[Bounded, ...]) -> Instruction | None:
        slices = [self._slice(one) for one in together]
        sources = {place for found, _ in slices for place in found}
        if not sources:
            return None
        for one, (_, visited) in zip(together, slices, strict=True):
            ways = [branch for n in self._leaving(one) if (branch := self._flow.blocks[n].branch) is not None]
            cut = [i for i, r in visited if self._is_cut(i, one) and (i.index, r) in self._made_of(sources)]
            if ways[1:] or cut:
                return (cut or ways)[-1]
        compared = frozenset[int]().union(*(one.compared for one in together))
        return self._steered(
            sources, compared, {n for one in together for n in (*self._leaving(one), *self._entering(one))}
        )

    def _steered(self, sources: set[_Place], compared: frozenset[int], decided: set[int]) -> Instruction | None:
        """Return what is steered by numbers, but for some comparisons, and some branches: an operation, or a condition.

        Parameters
        ----------
        sources : set of (str, int)
            Where these numbers come from.
        compared, decided : set of int
            The comparisons, by index, and the branches, by block.
        """
        waiting: list[tuple[int, Instruction | None, Register, Instruction | None]] = []
        done: set[tuple[int, int | None, int]] = set()
        sides: set[int] = set()

        def decide(block: int) -> None:
            for over in self._over[block]:
                condition = self._flow.blocks[over].condition
                if over not in decided and condition is not None:
                    decided.add(over)
                    waiting.append((over, None, condition[0], None))

        for n, block in enumerate(self._flow.blocks):
            if self._is_relevant[n]:
                decide(n)
            waiting += [(n, i, register, i) for i in block.instructions for register, _ in sinks(i)]
        while waiting:
            at, use, register, by = waiting.pop()
            key = at, None if use is None else use.index, register.index
            if key in done:
                continue
            done.add(key)
            for i in self._reaching(at, use, register.index):
                if i.index in self._outcomes:
                    continue
                decide(self._block[i.index])
                if i.index in compared:
                    for where in self._making(i, sides):
                        decide(where)
                    continue
                if self._places(i).get(register.index) in sources or (loads(i) and self._is_stored(sources)):
                    return by or i
                waiting += [(self._block[i.index], i, r, by or i) for r in read(i)]
        return None

    def _making(self, i: Instruction, done: set[int]) -> Iterator[int]:
        """Yield the blocks where what an instruction reads is made, and what that is made of."""
        waiting = [i]
        while waiting:
            one = waiting.pop()
            for maker in (m for r in read(one) for m in self._reaching(self._block[one.index], one, r.index)):
                if maker.index not in done:
                    done.add(maker.index)
                    waiting.append(maker)
                    yield self._block[maker.index]

    def _leaving(self, one: Bounded) -> list[int]:
        """Return the blocks of a loop that may leave it."""
        return [n for n in one.blocks if set(self._flow.blocks[n].successors) - one.blocks]

    def _entering(self, one: Bounded) -> list[int]:
        """Return the blocks whose branch decides whether a loop is come to."""
        found = []
        for n in self._above[one.head] - one.blocks:
            sides = self._flow.blocks[n].successors
            for side, other in (sides, sides[::-1]) if len(sides) == 2 else ():
                if side in self._above[one.head] and one.head not in self._flow.blocks_between(other, n):
                    found.append(n)
        return found

    def _is_cut(self, i: Instruction, one: Bounded) -> bool:
        """Tell whether an instruction makes a loop end by more than one number: not by at least 1, say."""
        if i.parts[0] in ("min", "max"):
            least = (
                signed(i.operands[2].value, type_bits(i.parts[-1])) if isinstance(i.operands[2], Immediate) else None
            )
            return least is None or (least > 0 if i.parts[0] == "min" else least < 0)
        return self._block[i.index] in one.blocks and i.parts in (("and", "pred"), ("or", "pred"))

    def _slice(self, one: Bounded) -> tuple[set[_Place], list[tuple[Instruction, int]]]:
        """Return where the numbers come from that say how often a loop goes around, and what is made of them."""
        found: set[_Place] = set()
        conditions = {n: self._flow.blocks[n].condition for n in self._leaving(one)}
        waiting: list[tuple[int, Instruction | None, Register]] = []
        waiting += [(n, None, condition[0]) for n, condition in conditions.items() if condition is not None]
        visited: dict[tuple[int, int], Instruction] = {}
        while waiting:
            at, use, register = waiting.pop()
            for i in self._reaching(at, use, register.index):
                if (i.index, register.index) in visited or i.index in self._outcomes:
                    continue
                visited[i.index, register.index] = i
                places = self._places(i)
                if register.index in places:
                    found.add(places[register.index])
                    continue
                waiting += [(self._block[i.index], i, r) for r in read(i)]
                for over in self._over[self._block[i.index]]:
                    condition = self._flow.blocks[over].condition
                    if over in one.blocks and over not in conditions and condition is not None:
                        waiting.append((over, None, condition[0]))
        return found, [(i, register) for (_, register), i in visited.items()]

    def _made_of(self, sources: set[_Place]) -> set[tuple[int, int]]:
        """Return what is made of numbers from some places: instructions and registers, by number."""
        waiting = [
            (i, register) for i in self._loads for register, place in self._places(i).items() if place in sources
        ]
        found = {(i.index, register) for i, register in waiting}
        while waiting:
            i, register = waiting.pop()
            for use in (use for _, use in self._uses.after(i, register) if use is not None):
                for r in written(use):
                    if (use.index, r.index) not in found:
                        found.add((use.index, r.index))
                        waiting.append((use, r.index))
        return found

    def _places(self, i: Instruction) -> dict[int, _Place]:
        """Return where what an instruction loads comes from, by number of the register."""
        address = i.operands[1] if len(i.operands) > 1 else None
        if i.parts[0] != "ld" or not isinstance(address, Address):
            return {}
        to = i.operands[0]
        items = to.items if isinstance(to, Vector) else (to,)
        registers = [item for item in items if isinstance(item, Register)]
        if not {"param", "const"} & {part.partition("::")[0] for part in i.parts}:
            return {r.index: _MEMORY for r in registers}
        base = address.base
        if isinstance(base, Register):
            makers = list(self._reaching(self._block[i.index], i, base.index))
            bases = [m.operands[1] for m in makers if m.parts[0] == "mov" and isinstance(m.operands[1], Symbol)]
            base = bases[0] if len(makers) == len(bases) == 1 else base
        name, first = (base.name, base.offset) if isinstance(base, Symbol) else (f"{base}", 0)
        return {r.index: (name, first + address.offset + n * r.bits // 8) for n, r in enumerate(registers)}

    def _is_stored(self, sources: set[_Place]) -> bool:
        """Tell whether what is made of numbers from some places is stored."""
        made = self._made_of(sources)
        for at, block in enumerate(self._flow.blocks):
            for i in (i for i in block.instructions if i.parts[0] in _STORES):
                values = [o for o in i.operands if not isinstance(o, Address)]
                items = [r for o in values for r in (o.items if isinstance(o, Vector) else (o,))]
                for r in (r for r in items if isinstance(r, Register)):
                    if any((m.index, r.index) in made for m in self._reaching(at, i, r.index)):
                        return True
        return False
