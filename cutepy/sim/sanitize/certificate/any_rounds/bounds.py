"""Bounds of loops: the numbers that limit their rounds, and the other instructions that these numbers affect.

Further rounds of a loop are a launch in which some number is another: an extent that is a parameter, or what is loaded.
What is said of them holds where all else that steers is as it was; so where that number steers something else, too, a
reader wants to know it. It is advice: the number is followed from the loops' exits back to where it comes from, and
from there to what it steers, and no claim rests on that. Through memory it is not followed: where it is stored, all
that is loaded may be it. A branch that decides whether a loop is
entered does not count: what is said is said of loops that are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from cutepy.sim.ptx.model import Address, Register, Special, Symbol, Vector, registers_in, type_bits
from cutepy.sim.sanitize.certificate.any_rounds.origins import PURE, is_same
from cutepy.sim.sanitize.certificate.dependence import Walk
from cutepy.sim.translate.effects import read, written
from cutepy.sim.translate.operand_roles import loads
from cutepy.sim.translate.state_spaces import state_spaces

if TYPE_CHECKING:
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.ptx.model import Instruction, Operand
    from cutepy.sim.sanitize.certificate.dependence import Dependence

_MEMORY = ("", 0)
"""Place of all that is loaded from memory, or of parameters from anywhere: it may all be one number."""

SMEM_SIZE = "%dynamic_smem_size"
"""As which a launch's dynamic shared memory is known, of which other special registers tell, too."""

_TYPE = re.compile(r"pred|tf32|e4m3|e5m2|(b|s|u|f|bf)\d+(x\d)?")
_Place = tuple[str, int]
"""Place of a number: a parameter, and how many bytes into it; or a special register, or an instruction."""
_SAYS_THE_PLACE = frozenset("cvta mapa getctarank elect vote match redux".split())
"""Opcodes that are deterministic in their operands, beside `origins.PURE`."""


class Argument(NamedTuple):
    """A part of a parameter, or what a special register holds, by name: so many bytes, from an offset on."""

    name: str
    offset: int
    size_bytes: int


def arguments_of(launch: Launch) -> tuple[tuple[str, bytes], ...]:
    """Return the arguments of a launch by name, as certificates keep them: parameters, and dynamic shared memory."""
    size = launch.dynamic_smem_bytes.to_bytes(4, "little")
    return (*launch.parameters.items(), (SMEM_SIZE, size))


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
    code : Dependence
    """

    def __init__(self, code: Dependence) -> None:
        self._code = code
        self._found: dict[tuple[Bounded, ...], Instruction | None] = {}
        self._besides: dict[tuple[Bounded, ...], tuple[Argument, ...] | None] = {}

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

    def besides(self, together: tuple[Bounded, ...]) -> tuple[Argument, ...] | None:
        """Return what of a launch's arguments steers, but for what bounds loops; None if what is loaded does.

        Where the addresses lie that arguments give, of global memory, steers nothing.

        Parameters
        ----------
        together : tuple of Bounded
            Loops that make further rounds together.
        """
        if together not in self._besides:
            self._besides[together] = self._look_besides(together)
        return self._besides[together]

    def _look_besides(self, together: tuple[Bounded, ...]) -> tuple[Argument, ...] | None:
        code, bounding = self._code, {place for one in together for place in self._sources(one)}
        walk: Walk[None] = Walk(code, lambda over, _: False, lambda _: None)
        for n in code.above:
            if code.is_relevant[n]:
                walk.decide(n)
            for i in code.flow.blocks[n].instructions:
                for register, _ in code.steering_operands(i):
                    walk.begin(n, i, register, None)
        found = set()
        for i, index, _ in walk.values():
            walk.decide(code.block_of(i))
            place = self._places(i).get(index)
            if place is not None and place not in bounding:
                if place == _MEMORY:
                    return None
                found.add(Argument(*place, _bits(i) // 8))
            if not loads(i):
                walk.pass_on(i, None)
        return tuple(sorted(found))

    def _look(self, together: tuple[Bounded, ...]) -> Instruction | None:
        code, sources = self._code, {place for one in together for place in self._sources(one)}
        is_stored, compared = self._is_stored(sources), {index for one in together for index in one.compared}
        free = {n for one in together for n in (*code.leaving(one.blocks), *self._entering(one))}
        walk: Walk[Instruction | None] = Walk(code, lambda over, _: over in free, lambda _: None)
        for n, block in enumerate(code.flow.blocks):
            if code.is_relevant[n]:
                walk.decide(n)
            for i in block.instructions:
                for steering, _ in code.steering_operands(i):
                    walk.begin(n, i, steering, i)
        for i, register, by in walk.values():
            walk.decide(code.block_of(i))
            if i.index in compared:
                for maker in code.behind(i):
                    walk.decide(code.block_of(maker))
            elif self._places(i).get(register) in sources or (is_stored and loads(i)):
                return by or i
            else:
                walk.pass_on(i, by or i)
        return None

    def _entering(self, one: Bounded) -> list[int]:
        """Return the blocks whose branch decides whether a loop is come to, not how often one before goes around."""
        found = []
        flow, above = self._code.flow, self._code.above[one.head]
        loops = self._code.loops
        assert not isinstance(loops, int)
        elsewhere = frozenset().union(*(loop.blocks for loop in loops if one.head not in loop.blocks))
        for n in above - one.blocks - elsewhere:
            sides = flow.blocks[n].successors
            for side, other in (sides, sides[::-1]) if len(sides) == 2 else ():
                if side in above and one.head not in flow.blocks_between(other, n):
                    found.append(n)
        return found

    def _sources(self, one: Bounded) -> set[_Place]:
        """Return where the numbers come from that say how often a loop goes around."""
        code, leaving = self._code, self._code.leaving(one.blocks)
        walk: Walk[None] = Walk(code, lambda over, _: over not in one.blocks or over in leaving, lambda _: None)
        for n in leaving:
            condition = code.flow.blocks[n].condition
            if condition is not None:
                walk.begin(n, None, condition[0], None)
        found: set[_Place] = set()
        for i, register, _ in walk.values():
            place = self._places(i).get(register)
            if place is not None:
                found.add(place)
            else:
                walk.decide(code.block_of(i))
            if not loads(i):
                walk.pass_on(i, None)
        return found

    def _places(self, i: Instruction) -> dict[int, _Place]:
        """Return where what an instruction loads comes from, by number of the register."""
        if loads(i):
            return {r.index: _MEMORY for r in written(i)}
        address = i.operands[1] if len(i.operands) > 1 else None
        if i.parts[0] != "ld" or not isinstance(address, Address):
            named = [o.name for o in _flat(i.operands[1:]) if isinstance(o, Special) and not is_same(o)]
            if not named and (read(i) or i.parts[0] in PURE | _SAYS_THE_PLACE):
                return {}
            place = (named or [i.opcode])[0]
            return {r.index: (SMEM_SIZE if place.endswith("smem_size") else place, 0) for r in written(i)}
        base, bytes_apart = address.base, _bits(i) // 8
        if isinstance(base, Register):
            makers = self._code.makers(self._code.block_of(i), i, base.index)
            bases = [m.operands[1] for m in makers if m.parts[0] == "mov" and isinstance(m.operands[1], Symbol)]
            if not len(makers) == len(bases) == 1:
                return {r.index: _MEMORY for r in written(i)}
            base = bases[0]
        name, first = (base.name, base.offset) if isinstance(base, Symbol) else (f"{base}", 0)
        found = ((r, first + address.offset + n * bytes_apart) for n, r in enumerate(_flat(i.operands[:1])))
        return {r.index: (name, offset) for r, offset in found if isinstance(r, Register)}

    def _is_stored(self, sources: set[_Place]) -> bool:
        """Tell whether what is made of numbers from some places is stored."""
        code, instructions = self._code, self._code.instructions.values()
        places = ((i, register, place) for i in instructions for register, place in self._places(i).items())
        made = code.made_from((i, register) for i, register, place in places if place in sources)
        for i in (i for i in instructions if state_spaces(i).stores):
            for r in (r for o in i.operands if not isinstance(o, Address) for r in registers_in(o)):
                if any((m.index, r.index) in made for m in code.makers(code.block_of(i), i, r.index)):
                    return True
        return False


def _bits(i: Instruction) -> int:
    """Return the bits of an instruction's last type, before how it rounds or saturates; 32 if it has none."""
    return type_bits(next((part for part in reversed(i.parts) if _TYPE.fullmatch(part)), "b32"))


def _flat(operands: Sequence[Operand]) -> list[Operand]:
    """Return operands, and of vectors their items."""
    return [one for o in operands for one in (o.items if isinstance(o, Vector) else (o,))]
