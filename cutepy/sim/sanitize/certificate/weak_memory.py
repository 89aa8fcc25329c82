"""Weak-memory reorderings: strong accesses of one thread that take effect late, which no schedule here shows.

A simulated schedule is an interleaving: each access takes effect for all threads at once. On a GPU that holds if each
thread has a fence.sc between any two of its strong accesses to different locations. Then fences and coherence put all
these accesses into one order. Without a fence.sc, two threads that each write a word and then read the other's word may
both read the old value (store buffering). Without acquire and release, more reorderings are possible: a thread may see
a flag before the data that the flag guards.

References
----------
PTX ISA, "Memory Consistency Model": "Fence-SC", "Causality Order", "Coherence", "membar, fence"; PTX interoperability,
"Atomics ABI", which puts fence.sc before each access of memory_order_seq_cst.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from cutepy.sim.ptx.instruction_set import OWN_SPACES
from cutepy.sim.ptx.memory_order import CLUSTER, CTA, GPU, WEAK, is_sc, strength
from cutepy.sim.ptx.model import Address, registers_in
from cutepy.sim.ptx.source_lines import line_of
from cutepy.sim.translate import Kernel
from cutepy.sim.translate.control_flow import EXIT
from cutepy.sim.translate.effects import written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.translate.control_flow import ControlFlow

_SHARED = frozenset(("shared", "shared::cta", "shared::cluster"))
_VECTORS = frozenset(("v2", "v4", "v8"))


class _Access(NamedTuple):
    """A strong access since the last fence that covers it, with its address as long as that is unchanged."""

    instruction: int
    scope: int
    address: Address | None


_State = frozenset[_Access]


def synchronises_by(instructions: Sequence[Instruction]) -> tuple[str, ...]:
    """Return the state spaces of a kernel's strong accesses: "global", "shared"; generic ones are "global"."""
    found = {"shared" if _SHARED & {*i.parts} else "global" for i in instructions if _is_strong(i)}
    return tuple(sorted(found))


def unfenced(flow: ControlFlow) -> tuple[Instruction, Instruction] | None:
    """Return two strong accesses to different places that a thread may do with no fence.sc between, or None.

    It is None too where all accesses read, or none does: then nobody can tell.
    """
    instructions = {i.index: i for block in flow.blocks for i in block.instructions}
    strong = [i.traits for i in instructions.values() if _is_strong(i)]
    if not any(one.reads_memory for one in strong) or not any(one.stores for one in strong):
        return None
    shared = CLUSTER if any("cluster" in i.opcode or i.traits.reaches_peers for i in instructions.values()) else CTA
    before: dict[int, _State] = {0: frozenset()}
    waiting = [0]
    while waiting:
        number = waiting.pop()
        state = before[number]
        for i in flow.blocks[number].instructions:
            if _is_strong(i) and not _VECTORS.isdisjoint(i.parts):
                return i, i  # each element is an access, in no order
            if _is_strong(i) or i.traits.calls:
                apart = [one.instruction for one in state if one.address is None or one.address != _address(i)]
                if apart:
                    return instructions[min(apart)], i
            state = _after(state, i, shared)
        for following in flow.blocks[number].successors:
            known = before.get(following)
            joined = state if known is None else known | state
            if following != EXIT and joined != known:
                before[following] = joined
                waiting.append(following)
    return None


@lru_cache(maxsize=64)
def beyond_schedules(kernel: Kernel) -> tuple[str, ...]:
    """Return the effects that schedules of a kernel don't show, as reports name them; empty if there are none."""
    return described(unfenced(kernel.flow))


def described(found: tuple[Instruction, Instruction] | None) -> tuple[str, ...]:
    """Describe the result of `unfenced`."""
    if found is None:
        return ()
    first, second = map(line_of, found)
    return (f"weak memory: strong accesses with no fence.sc between, seen in another order: {first}, then {second}",)


def _is_strong(i: Instruction) -> bool:
    is_access = i.traits.kind in ("memory", "atomic") and not OWN_SPACES & {*i.parts}
    return is_access and strength(i.opcode).scope != WEAK


def _address(i: Instruction) -> Address | None:
    return next((operand for operand in i.operands if isinstance(operand, Address)), None)


def _after(state: _State, i: Instruction, shared: int) -> _State:
    """Return the unfenced accesses after an instruction; `shared` is the scope of all users of shared memory."""
    if is_sc(i.opcode):
        scope = strength(i.opcode).scope
        state = frozenset(one for one in state if one.scope > scope)
    changed = {register.index for register in written(i)}
    if changed:
        state = frozenset(one._replace(address=None) if _moves(one, changed) else one for one in state)
    if not _is_strong(i) and not i.traits.calls:
        return state
    address = _address(i)
    if address is not None and any(r.index in changed for r in registers_in(address)):
        address = None
    widest = shared if _SHARED & {*i.parts} else GPU  # there is one
    return state | {_Access(i.index, min(strength(i.opcode).scope or GPU, widest), address)}


def _moves(one: _Access, changed: set[int]) -> bool:
    return one.address is not None and any(r.index in changed for r in registers_in(one.address))
