"""Which registers steer an instruction that synchronises, or accesses shared memory, and as what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cutepy.sim.ptx.model import Address, Register, Sink, registers_in
from cutepy.sim.translate.effects import written
from cutepy.sim.translate.state_spaces import state_spaces

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction, Operand

_SYNCHRONISES = frozenset("mbarrier bar barrier cp".split())
_ACCESSES = frozenset("ld ldu st ldmatrix stmatrix red atom wmma".split())
_ORDERS = _SYNCHRONISES | frozenset(
    """fence membar wgmma setmaxnreg griddepcontrol tensormap elect shfl vote match redux activemask brx""".split()
)
_ELSEWHERE = frozenset(("global", "local", "param", "const"))
_CONSTANT = frozenset(("param", "const"))


def synchronises(i: Instruction) -> bool:
    """Tell whether an instruction is an operation on a barrier, or a copy."""
    return i.parts[0] in _SYNCHRONISES


def is_relevant(i: Instruction) -> bool:
    """Tell whether an instruction synchronises, or accesses shared memory."""
    if i.parts[0] in _ACCESSES:
        return not _ELSEWHERE & {part.partition("::")[0] for part in i.parts}
    return i.parts[0] in _ORDERS


def loads(i: Instruction) -> bool:
    """Tell whether an instruction takes what somebody may write, or what others give `bar.red`, into registers."""
    return bool(written(i)) and not _CONSTANT.issuperset(state_spaces(i).loads)


def sinks(i: Instruction) -> Iterator[tuple[Register, str]]:
    """Yield the registers that steer synchronisation or accesses to shared memory, and as what."""
    name, operands = i.parts[0], i.operands
    if name in ("bar", "barrier", "mbarrier", "setmaxnreg", "brx"):
        for n, operand in enumerate(operands):
            if isinstance(operand, (Address, Sink)) or not (n == 0 and written(i)):
                yield from ((r, "synchronisation") for r in registers_in(_plain(operand)))
    elif name in ("cp", "red", "st") and ("bulk" in i.parts or "async" in i.parts):
        yield from _of_copy(i)
    elif name in _ACCESSES:
        if is_relevant(i):
            yield from ((r, "an address") for o in operands if isinstance(o, Address) for r in registers_in(_plain(o)))
            if name == "wmma" and isinstance(operands[-1], Register):  # how far rows lie apart
                yield operands[-1], "an address"
    elif name == "wgmma" and "mma_async" in i.parts:
        yield from ((r, "an address") for o in operands[1:3] if isinstance(o, Register) for r in registers_in(o))
    elif name == "tensormap":
        yield from ((r, "an address") for o in operands if isinstance(o, Address) for r in registers_in(_plain(o)))
    elif name in ("elect", "shfl", "vote", "match", "redux"):
        yield from ((r, "the lanes that take part") for r in registers_in(operands[-1]))


def _of_copy(i: Instruction) -> Iterator[tuple[Register, str]]:
    """Yield what steers an asynchronous copy: where it is in shared memory, its mbarrier, how much it brings."""
    spaces = [part.partition("::")[0] for part in i.parts if part.partition("::")[0] in ("shared", "global")]
    spaces += ["shared"]  # its mbarrier
    addresses = 0
    is_bulk = "bulk" in i.parts
    hinted = "cache_hint" in {part.rpartition("::")[2] for part in i.parts}
    for operand in i.operands[:-1] if hinted else i.operands:
        if isinstance(operand, Address):
            space = spaces[min(addresses, len(spaces) - 1)]
            addresses += 1
            if space == "shared" or operand.coordinates is not None:
                yield from ((r, "an address") for r in registers_in(_plain(operand)))
        elif is_bulk and i.parts[0] == "cp":
            yield from ((r, "synchronisation") for r in registers_in(operand))


def _plain(operand: Operand) -> Operand:
    """Return an operand without coordinates in a tensor, which move what is copied and not where to."""
    return operand.base if isinstance(operand, Address) else operand
