"""Addresses of state spaces that the machine knows, and registers of other lanes.

References
----------
PTX ISA, "Data Movement and Conversion Instructions": cvta.param, mapa, getctarank, isspacep, shfl.sync, vote.sync,
match.sync, redux.sync, activemask, elect.sync.
"""

from __future__ import annotations

from cutepy.sim.ptx.model import Immediate, Instruction, Register, Sink
from cutepy.sim.semantics.types import kind_of, split_pair
from cutepy.sim.translate.emitter import Emitter, instruction


@instruction("cvta")
def _cvta(e: Emitter, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    d, s = i.operands
    text = e.read(s, kind)
    if i.parts[-2] in ("param", "param::entry"):
        text = f"m.parameter_address({text}).astype({kind})"
    e.write(d, text, kind)


@instruction("isspacep")
def _isspacep(e: Emitter, i: Instruction) -> None:
    address = i.operands[1]
    is_narrow = isinstance(address, Register) and address.bits == 32
    text = f"{e.read(address, 'u4')}.astype(u8)" if is_narrow else e.read(address, "u8")
    e.write(i.operands[0], f"m.memory.in_space(g, {text}, {_space(i)!r})", "pred")


def _space(i: Instruction) -> str:
    """Return the space that an instruction names; the parameters of an entry are all that there are."""
    return i.parts[1].removesuffix("::entry")


@instruction("mapa")
def _mapa(e: Emitter, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    d, a, rank = i.operands
    generic = "shared" not in i.opcode
    if generic and kind == "u4":
        raise e.refused("a generic address has 64 bits: write mapa.u64, or mapa.shared::cluster.u32")
    e.write(d, f"m.memory.map_address({e.read(a, kind)}, {e.read(rank, 'u4')}, {generic})", kind)


@instruction("getctarank")
def _getctarank(e: Emitter, i: Instruction) -> None:
    e.write(i.operands[0], f"m.memory.rank_of(g, {e.read(i.operands[1], kind_of(i.parts[-1]))})", "u4")


def gather(e: Emitter, mask: str) -> None:
    """Wait for the lanes that a mask names; the instruction begins its block."""
    e.emit(f"if not g.threads.full and (waits := m.gather(g, {e.site}, {mask})): return waits")


@instruction("shfl.sync")
def _shfl(e: Emitter, i: Instruction) -> None:
    d, p = split_pair(i.operands[0])
    a, b, c, mask = i.operands[1:]
    own = e._kinds[a.index] if isinstance(a, Register) else "u4"
    members = e.read(mask, "u4")
    gather(e, members)
    arguments = f"g, {e.site}, {i.parts[2]!r}, {e.read(a, own)}, {e.read(b, 'u4')}, {e.read(c, 'u4')}, {members}"
    if p is None:
        e.write(d, f"m.warp.shuffle({arguments})[0]", own)
    else:
        pair = e.temporary(f"m.warp.shuffle({arguments})")
        e.write(d, f"{pair}[0]", own)
        e.write(p, f"{pair}[1]", "pred")


@instruction("vote.sync")
def _vote(e: Emitter, i: Instruction) -> None:
    d, a, mask = i.operands
    members = e.read(mask, "u4")
    gather(e, members)
    arguments = f"g, {e.site}, {e.read(a, 'pred')}, {members}"
    e.write(d, f"m.warp.vote_{i.parts[2]}({arguments})", kind_of(i.parts[-1]))


@instruction("match")
def _match(e: Emitter, i: Instruction) -> None:
    d, p = split_pair(i.operands[0])
    a, mask = i.operands[1:]
    kind = kind_of(i.parts[-1])
    members = e.read(mask, "u4")
    gather(e, members)
    pair = e.temporary(f"m.warp.match_{i.parts[1]}(g, {e.site}, {e.read(a, kind)}, {members})")
    e.write(d, f"{pair}[0]", "u4")
    if p is not None:
        e.write(p, f"{pair}[1]", "pred")


@instruction("redux.sync")
def _redux(e: Emitter, i: Instruction) -> None:
    d, a, mask = i.operands
    kind = kind_of(i.parts[-1])
    members = e.read(mask, "u4")
    gather(e, members)
    e.write(d, f"m.warp.reduce(g, {e.site}, {i.parts[2]!r}, {e.read(a, kind)}, {members})", kind)


@instruction("activemask")
def _activemask(e: Emitter, i: Instruction) -> None:
    e.write(i.operands[0], "m.warp.active(g)", "u4")


@instruction("elect.sync")
def _elect(e: Emitter, i: Instruction) -> None:
    d, p = split_pair(i.operands[0])
    mask = i.operands[1]
    members = e.read(mask, "u4")
    gather(e, members)
    all_lanes = isinstance(mask, Immediate) and mask.value & 0xFFFFFFFF == 0xFFFFFFFF
    if not all_lanes:
        pair = e.temporary(f"m.warp.elect(g, {e.site}, {members})")
        e.write(d, f"{pair}[0]", "u4")
        if p is not None:
            e.write(p, f"{pair}[1]", "pred")
        return
    if not isinstance(d, Sink):
        e.write(d, "g.threads.leader_lane", "u4")
    if p is not None:
        e.write(p, "g.threads.leaders", "pred")
