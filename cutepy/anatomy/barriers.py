"""Barriers of a kernel: the instructions that initialise, arrive and wait, and expected bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cutepy.anatomy.mmas import site_of
from cutepy.anatomy.model import Barrier, Party
from cutepy.anatomy.values import Values
from cutepy.anatomy.watch import Key, LaunchRecord, SeenParty, thread_ranges
from cutepy.sim import ClusterBarrier, NamedBarrier
from cutepy.sim.ptx import Address, Function, Immediate, Instruction, Operand
from cutepy.sim.ptx.barrier_names import stage_of

_ORDER = ("init", "expect_tx", "arrive", "complete_tx", "sync", "wait")
Found = dict[Key | None, dict[tuple[str, int], SeenParty]]
"""Operations by barrier (None: its address is unknown), then by action and index of the instruction."""


def names_of(initialised: Mapping[int, Instruction]) -> dict[int, str]:
    """Name mbarriers by address: the source's name, or the address."""
    return {address: stage_of(address, initialised)[0] or f"{address:#x}" for address in initialised}


def static_barriers(function: Function, values: Values) -> tuple[Found, dict[int, Instruction]]:
    """Find operations on barriers in a function, and initialisations of mbarriers at constant addresses."""
    found: Found = {}
    initialised: dict[int, Instruction] = {}
    acting = [(i, action) for i in function.instructions if (action := _action(i)) is not None]
    # Initialisations come first: others may act on stages of a loop, of which only the first is known.
    for i, action in sorted(acting, key=lambda pair: pair[1] != "init"):
        key, amount = _operands(i, action, values, initialised)
        party = found.setdefault(key, {}).setdefault((action, i.index), SeenParty(i))
        if amount is not None:
            party.amounts.add(amount)
        if action == "init" and isinstance(key, int):
            initialised.setdefault(key, i)
    return found, initialised


def barriers_of(
    values: Values, seen: LaunchRecord | None, names: Mapping[int, str], found: Found
) -> tuple[Barrier, ...]:
    """List the barriers of a function, with equal ones as the stages of one."""
    every: Found = dict(seen.barriers.items()) if seen is not None else found
    groups: dict[object, list[Key | None]] = {}
    for key, parties in every.items():
        groups.setdefault(_alike(key, parties, names), []).append(key)
    counts = {p.instruction.index: _thread_count(p.instruction, values) for q in every.values() for p in q.values()}
    barriers = [_barrier(keys, every, names, counts, seen is not None) for keys in groups.values()]
    return tuple(sorted(barriers, key=lambda b: (b.kind != "mbarrier", b.addresses or (1 << 62,), b.name)))


def _action(i: Instruction) -> str | None:
    traits = i.traits
    if traits.kind == "async_copy" and traits.arrives:
        return None
    if traits.arrives:
        return "arrive"
    if traits.barrier == "mbarrier":
        return "wait" if traits.tries else next((p for p in i.parts if p in ("init", "expect_tx", "complete_tx")), None)
    if traits.barrier == "cluster":
        return "wait"
    if traits.barrier == "named":
        return "sync"
    return "complete_tx" if traits.brings_bytes else None


def _operands(
    i: Instruction, action: str, values: Values, initialised: Mapping[int, Instruction]
) -> tuple[Key | None, int | None]:
    """Return the first barrier that an instruction acts on, and its count or bytes."""
    if i.traits.barrier == "cluster":
        return ClusterBarrier(), None
    if i.traits.barrier == "named":
        number = values.always(_bar_operands(i)[0]) if _bar_operands(i) else None
        return (None if number is None else NamedBarrier(number)), None
    addresses = [n for n, x in enumerate(i.operands) if isinstance(x, Address) and x.coordinates is None]
    if not addresses:
        return None, None
    at = addresses[-1] if action == "complete_tx" and i.traits.barrier != "mbarrier" else addresses[0]
    address, stays = values.address(i.operands[at])
    amount = None
    rest = i.operands[at + 1 :]
    if rest and i.traits.kind == "barrier" and action != "wait":
        amount = values.always(rest[0])
    return (address if stays or address in initialised else None), amount


def _bar_operands(i: Instruction) -> tuple[Operand, ...]:
    return i.operands[1:] if i.traits.votes else i.operands


def _thread_count(i: Instruction, values: Values) -> int | None:
    """Return the number of threads that a named barrier expects, where the instruction contains it."""
    if i.traits.barrier != "named":
        return None
    operands = _bar_operands(i)
    count = operands[1:2]
    if not count or (i.traits.votes and len(operands) < 3):
        return None
    return count[0].value if isinstance(count[0], Immediate) else values.always(count[0])


def _alike(key: Key | None, parties: Mapping[tuple[str, int], SeenParty], names: Mapping[int, str]) -> object:
    """Return the common facts of a ring's stages."""
    if not isinstance(key, int):
        return key
    name = names.get(key, "")
    amounts = frozenset(n for (action, _), p in parties.items() if action == "init" for n in p.amounts)
    if name and name != f"{key:#x}":
        made = next((p.instruction for (action, _), p in parties.items() if action == "init"), None)
        return name, amounts, made and site_of([made]).lines
    done = frozenset(
        (action, p.instruction.source or index) for (action, index), p in parties.items() if action != "init"
    )
    return amounts, done


def _barrier(
    keys: list[Key | None], every: Found, names: Mapping[int, str], counts: Mapping[int, int | None], launched: bool
) -> Barrier:
    groups: dict[tuple[str, object], list[SeenParty]] = {}
    for key in keys:
        for (action, index), party in every[key].items():
            said = _expects(action, party.instruction)
            groups.setdefault((said, site_of([party.instruction]).lines or index), []).append(party)
    parties = [_party(action, group, launched) for (action, _), group in groups.items()]
    parties.sort(key=lambda party: _ORDER.index(party.action) if party.action in _ORDER else len(_ORDER))
    first = keys[0]
    if isinstance(first, int):
        addresses = tuple(sorted(key for key in keys if isinstance(key, int)))
        known = {amount for party in parties if party.action == "init" for amount in party.amounts}
        name = names.get(addresses[0], "")
        return Barrier("mbarrier", name, addresses, known.pop() if len(known) == 1 else None, tuple(parties))
    if first is None:
        kind = "bar" if all(p.instruction.traits.meets for p in every[None].values()) else "mbarrier"
        return Barrier(kind, "", (), None, tuple(parties))
    if isinstance(first, ClusterBarrier):
        return Barrier("cluster", "", (), None, tuple(parties))
    expected = {counts[index] for (_, index) in every[first]}
    return Barrier("bar", str(first), (), expected.pop() if len(expected) == 1 else None, tuple(parties))


def _expects(action: str, i: Instruction) -> str:
    """Distinguish an arrival that expects bytes from a plain one: both events are of one instruction."""
    return "expect_tx" if action == "arrive" and i.traits.announces_bytes else action


def _party(action: str, group: list[SeenParty], launched: bool) -> Party:
    instructions = {p.instruction.index: p.instruction for p in group}
    amounts: Iterable[int] = {amount for p in group for amount in p.amounts}
    if action == "expect_tx" and len(list(amounts)) > 1:
        amounts = {amount for amount in amounts if amount > 1} or amounts  # the arrival itself, beside the bytes
    site = site_of(instructions.values())
    if not launched:
        return Party(action, site, amounts=tuple(sorted(amounts)))
    threads = {thread for p in group for thread in p.threads}
    # An instruction that arrives and expects bytes is two events.
    once = {(id(p)): p for p in group}.values()
    times = sum(p.times for p in once)
    if action == "expect_tx" and any(p.instruction.traits.arrives for p in group):
        times //= 2
    waited = sum(p.waited for p in group)
    return Party(action, site, thread_ranges(threads), times, waited, tuple(sorted(amounts)))
