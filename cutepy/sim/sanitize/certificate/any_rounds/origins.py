"""Origins of values at a loop's entry: constants, the path taken, or the one number that bounds the loop.

Of two launches whose threads go the same ways up to a loop, but for how often it is to go around, a register holds the
same where all that it was made from are constants, the thread's place, and what is made from those. What is a multiple
of the number that bounds the loop, and a constant, differs by that multiple. Nothing is known of the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cutepy.sim.ptx.model import Immediate, Register, Special, Symbol, registers_in
from cutepy.sim.sanitize.certificate.any_rounds.affine import is_plain, linear, signed
from cutepy.sim.translate.effects import read

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction, Operand
    from cutepy.sim.sanitize.certificate.dependence import Dependence, NaturalLoop

PURE = frozenset(
    """mov add sub mul mad shl shr shf and or xor not lop3 min max neg abs selp set setp rem div bfe bfi prmt cvt
    shfl""".split()
)
"""Opcodes that are deterministic in their operands; for a shuffle, in the other lanes' operands too."""
_PLACE = frozenset(
    """tid ntid laneid ctaid nctaid clusterid nclusterid cluster_ctaid cluster_ctarank cluster_nctaid
    cluster_nctarank""".split()
)


class Origin(NamedTuple):
    """Value as `factor` x the result of the instruction `root` + `offset`, clamped to a range.

    Attributes
    ----------
    factor, offset : int
        With factor 0 it is the offset.
    root : int
        An instruction, by index; -1 if it is a constant.
    least, most : int or None
        Where it is cut off.
    is_known : bool
        If not, it is whatever constants and the thread's place make on the way that was gone.
    """

    factor: int
    offset: int
    root: int
    least: int | None = None
    most: int | None = None
    is_known: bool = True

    @property
    def is_cut(self) -> bool:
        """True if the value is clamped."""
        return self.least is not None or self.most is not None


_OF_THE_WAY = Origin(0, 0, -1, is_known=False)


class Origins:
    """Follows values back.

    Parameters
    ----------
    code : Dependence
    loops : sequence of NaturalLoop
        All of it.
    """

    def __init__(self, code: Dependence, loops: Sequence[NaturalLoop]) -> None:
        self._code, self._loops = code, loops

    def of(self, makers: Sequence[Instruction], head: int, inside: frozenset[int]) -> tuple[Origin, ...] | None:
        """Return what a value may be, where a loop is come to, that one of several instructions outside of it made.

        Parameters
        ----------
        makers : sequence of Instruction
        head : int
            The block where rounds of the loop begin.
        inside : frozenset of int
            The instructions of the loop, by index. What they make depends on how often it goes around.
        """
        found: list[Origin] = []
        for i in makers:
            if self._is_of_the_way(i, inside, set()):
                number = _constant(i)
                found.append(_OF_THE_WAY if number is None else Origin(0, number, -1))
                continue
            one = self._follow(i, head, inside)
            if one is None or (len(makers) > 1 and self._around(self._code.block_of(one[1]))):
                return None
            found.append(one[0])
        return tuple(found)

    def _follow(self, i: Instruction, head: int, inside: frozenset[int]) -> tuple[Origin, Instruction] | None:
        """Follow a sum with one unknown part back to where that comes from; returns the instruction there, too."""
        if i.predicate is not None or i.index in inside:
            return None
        root = Origin(1, 0, i.index), i
        if i.parts[0] in ("min", "max"):
            if not is_plain(i) or not isinstance(i.operands[2], Immediate):
                return root
            below = self._operand(i.operands[1], i, head, inside)
            if below is None or below[0].is_cut:
                return None
            number = signed(i.operands[2].value, 64 if "64" in i.parts[-1] else 32)
            cut = below[0]._replace(most=number) if i.parts[0] == "min" else below[0]._replace(least=number)
            return cut, below[1]
        parts = linear(i)
        unknown = [] if parts is None else [(o, by) for o, by in parts[0] if not isinstance(o, Immediate)]
        if parts is None or len(unknown) != 1:
            return root
        operand, factor = unknown[0]
        below = self._operand(operand, i, head, inside)
        if below is None:
            return root
        if below[0].is_cut:
            return None
        offset = parts[1] + sum(by * signed(o.value, 64) for o, by in parts[0] if isinstance(o, Immediate))
        return Origin(below[0].factor * factor, below[0].offset * factor + offset, below[0].root), below[1]

    def _operand(
        self, operand: Operand, i: Instruction, head: int, inside: frozenset[int]
    ) -> tuple[Origin, Instruction] | None:
        """Follow an operand, if the value that its maker made last is the one that it has here."""
        if not isinstance(operand, Register):
            return None
        makers = self._code.makers(self._code.block_of(i), i, operand.index)
        if len(makers) != 1 or makers[0].index == i.index:
            return None
        (maker,) = makers
        if self._around(self._code.block_of(maker)):
            is_of_now = self._is_of_the_round(maker, head) and self._is_of_the_round(i, head)
            if not (is_of_now and self._code.dominates(maker, i)):
                return None
        return self._follow(maker, head, inside)

    def _is_of_the_way(self, i: Instruction, inside: frozenset[int], met: set[int]) -> bool:
        """Tell whether constants, the thread's place and the way say all of what an instruction makes."""
        if i.index in met:
            return True
        met.add(i.index)
        if i.index in inside or i.parts[0] not in PURE or not all(map(is_same, _inputs(i))):
            return False
        makers = [self._code.makers(self._code.block_of(i), i, r.index) for r in read(i)]
        return all(some and all(self._is_of_the_way(one, inside, met) for one in some) for some in makers)

    def _around(self, block: int) -> frozenset[int]:
        """Return the loops around a block, by their heads."""
        return frozenset(loop.head for loop in self._loops if block in loop.blocks)

    def _is_of_the_round(self, i: Instruction, head: int) -> bool:
        """Tell whether an instruction runs in each round of each loop around it and a block, before the block does."""
        block = self._code.block_of(i)
        return block != head and block in self._code.above[head] and self._around(block) <= self._around(head)


def _inputs(i: Instruction) -> Iterator[Operand]:
    return (o for o in i.operands[1:] if not list(registers_in(o)))


def is_same(operand: Operand) -> bool:
    """Tell whether an operand is a constant, or says the place of a thread."""
    if isinstance(operand, Special):
        return operand.name.removeprefix("%").partition(".")[0] in _PLACE
    return isinstance(operand, (Immediate, Symbol))


def _constant(i: Instruction) -> int | None:
    """Return the number that an instruction gives to a register, if it is one."""
    if i.parts[0] != "mov" or not is_plain(i) or i.predicate is not None or not isinstance(i.operands[1], Immediate):
        return None
    return signed(i.operands[1].value, 64 if "64" in i.parts[-1] else 32)
