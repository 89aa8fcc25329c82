"""Which registers steer an instruction that synchronises, or accesses shared memory, and as what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cutepy.sim.translate.deciding import deciding
from cutepy.sim.translate.effects import written
from cutepy.sim.translate.state_spaces import state_spaces

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction, Register

_SYNCHRONISES = frozenset("mbarrier bar barrier cp".split())
_CONSTANT = frozenset(("param", "const"))


def synchronises(i: Instruction) -> bool:
    """Tell whether an instruction is an operation on a barrier, or a copy."""
    return i.parts[0] in _SYNCHRONISES


def loads(i: Instruction) -> bool:
    """Tell whether an instruction takes what somebody may write, or what others give `bar.red`, into registers."""
    return bool(written(i)) and not _CONSTANT.issuperset(state_spaces(i).loads)


def sinks(i: Instruction) -> Iterator[tuple[Register, str]]:
    """Yield the registers that steer synchronisation or accesses to shared memory, and as what."""
    yield from ((one.register, one.role) for one in deciding(i) if not one.is_elsewhere)
