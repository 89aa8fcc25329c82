"""Loads, stores and atomics, matrices, and asynchronous copies by threads.

References
----------
PTX ISA, "Data Movement and Conversion Instructions": ld, ldu, st, prefetch, cp.async, st.async, ldmatrix, stmatrix;
"Parallel Synchronization and Communication Instructions": atom, red; "Memory Consistency Model".
"""

from __future__ import annotations

from dataclasses import replace

from cutepy.sim.ptx.instruction_set import SPACES, reduction_of
from cutepy.sim.ptx.model import Address, FrameSlot, Immediate, Instruction, Operand, Register, Sink, Symbol, Vector
from cutepy.sim.semantics.types import kind_of
from cutepy.sim.translate.emitter import Emitter, instruction, is_type, mechanism

mechanism("cp.async.commit_group", "copies.commit")
mechanism("discard", "memory.discard", "address value")  # leaves what is there, which becomes undefined


def space_of(i: Instruction) -> str:
    """Return the state space that an opcode names; "generic" if none."""
    for part in i.parts[1:]:
        name = part.partition("::")[0]
        if name in SPACES:
            return "shared_cluster" if part == "shared::cluster" else name
    return "generic"


def _check_hint(e: Emitter, i: Instruction, operands: int) -> None:
    """Check that the instruction has a cache policy as its last operand just if the opcode has `.L2::cache_hint`."""
    if len(i.operands) != operands + ("L2::cache_hint" in i.parts):
        raise e.unknown(f"{len(i.operands)} operands")


@instruction("ld", "ldu", refuses="b128")
def _ld(e: Emitter, i: Instruction) -> None:
    d, address = i.operands[:2]
    _check_hint(e, i, 2)
    kind = kind_of(i.parts[-1])
    space = space_of(i)
    if space == "param" and isinstance(address, Address) and isinstance(address.base, Symbol):
        _ld_param(e, i, kind)
        return
    items = e.items(d)
    if space == "param" and isinstance(address, Address) and isinstance(address.base, FrameSlot):
        space = "local"
    at, shift = e.address(address), ""
    if space == "param":
        at = f"m.parameter_address({at})"
    elif space == "global" and isinstance(address, Address) and isinstance(address.base, Register):
        base = replace(address, offset=0)
        at, shift = (e.address(base), f", {address.offset}") if address.base.bits == 64 else (at, "")
    call = f"m.memory.load(g, {e.site}, {space!r}, {at}, {kind}, {len(items)}{shift})"
    if len(items) == 1:
        e.write(items[0], call, kind)
        return
    e.write_all(d, call, kind)


def _ld_param(e: Emitter, i: Instruction, kind: str) -> None:
    d, address = i.operands
    assert isinstance(address, Address)
    assert isinstance(address.base, Symbol)
    size = int(kind[1:])
    for position, item in enumerate(e.items(d)):
        offset = address.offset + position * size
        e.write(item, f"m.parameter({address.base.name!r}, {offset}, {kind!r})", kind)


@instruction("st", refuses="b128")
def _st(e: Emitter, i: Instruction) -> None:
    address, source = i.operands[:2]
    _check_hint(e, i, 2)
    kind = kind_of(i.parts[-1])
    space = space_of(i)
    values = e.read_all(source, kind, wide=True)
    if space == "param" and isinstance(address, Address) and isinstance(address.base, FrameSlot):
        space = "local"
    e.emit(f"m.memory.store(g, {e.site}, {space!r}, {e.address(address)}, {values})")


@instruction("st.bulk")
def _st_bulk(e: Emitter, i: Instruction) -> None:
    address, size, _ = i.operands
    e.emit(f"m.memory.clear(g, {e.site}, {space_of(i)!r}, {e.address(address)}, {e.read(size, 'u8')})")


@instruction("st.async")
def _st_async(e: Emitter, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    address, source, barrier = i.operands
    values = e.read_all(source, kind, wide=True)
    e.emit(f"m.cluster.store_async(g, {e.site}, {e.address(address)}, {values}, {e.address(barrier)})")


@instruction("atom", "red")
def _atom(e: Emitter, i: Instruction) -> None:
    returns = i.traits.has_result
    operation = reduction_of(i.parts)
    _check_hint(e, i, 2 + returns + (operation == "cas"))
    operands = list(i.operands[: 2 + returns + (operation == "cas")])
    if i.parts[-1] == "b128":
        _atom_wide(e, i, operands)
        return
    d = operands.pop(0) if returns else Sink()
    address, *values = operands
    # The ISA's examples have the type before the operation as well: red.global.v2.f32.add, .v8.f16.add.noftz.
    name = next(p for p in reversed(i.parts) if is_type(p))
    kind = kind_of(name)
    start = f"g, {e.site}, {space_of(i)!r}, {e.address(address)}, {operation!r}, {name!r}"
    if isinstance(values[0], Vector):
        call = f"m.atomics.vector({start}, {e.read_all(values[0], kind)})"
        e.write_all(d, call, kind) if returns else e.emit(call)
        return
    arguments = ", ".join(e.read_wide(v, kind) for v in values)
    call = f"m.atomics.apply({start}, ({arguments},))"
    e.write(d, call, kind) if returns else e.emit(call)


def _atom_wide(e: Emitter, i: Instruction, operands: list[Operand]) -> None:
    """Write atom.exch or atom.cas of 128 bits, whose registers are pairs."""
    d, address, *values = operands
    *expected, new = (e.read_all(value, "u8") for value in values)
    start = f"g, {e.site}, {space_of(i)!r}, {e.address(address)}"
    e.write_all(d, f"m.wide_atomics.apply({start}, {expected[0] if expected else '()'}, {new})", "u8")


@instruction("red.async")
def _red_async(e: Emitter, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    address, value, barrier = i.operands
    operation = reduction_of(i.parts)
    e.emit(
        f"m.atomics.reduce_async(g, {e.site}, {e.address(address)}, {operation!r}, {i.parts[-1]!r}, "
        f"{e.read(value, kind)}, {e.address(barrier)})"
    )


@instruction("prefetch", "prefetchu", "applypriority")
def _prefetch(e: Emitter, i: Instruction) -> None:
    """Do nothing: there are no caches here. Only the address of a tensor map is looked at."""
    address = e.address(i.operands[0])
    if "tensormap" in i.parts:
        e.emit(f"m.tensormaps.prefetch(g, {e.site}, {address})")


@instruction("createpolicy")
def _createpolicy(e: Emitter, i: Instruction) -> None:
    e.write(i.operands[0], e.immediate(0, "u8"), "u8")


@instruction("ldmatrix.sync.aligned")
def _ldmatrix(e: Emitter, i: Instruction) -> None:
    d, address = i.operands
    e.write_all(d, f"m.matrix.load(g, {e.site}, {e.address(address)}, {len(e.items(d))})", "u4")


@instruction("stmatrix.sync.aligned")
def _stmatrix(e: Emitter, i: Instruction) -> None:
    address, source = i.operands
    values = e.read_all(source, "u4")
    e.emit(f"m.matrix.store(g, {e.site}, {e.address(address)}, {values})")


@instruction("cp.async.ca", "cp.async.cg")
def _cp_async(e: Emitter, i: Instruction) -> None:
    destination, source, size, *more = i.operands
    assert isinstance(size, Immediate)
    taken = "None"
    if more and isinstance(more[0], Register) and more[0].type == "pred":
        taken = f"where({e.read(more[0], 'pred')}, {e.immediate(0, 'u4')}, {e.immediate(size.value, 'u4')})"
    elif more and not (isinstance(more[0], Register) and more[0].bits == 64):
        taken = e.read(more[0], "u4")
    e.emit(f"m.copies.copy(g, {e.site}, {e.address(destination)}, {e.address(source)}, {size.value}, {taken})")


@instruction("cp.async.wait_group", "cp.async.wait_all")
def _cp_async_wait(e: Emitter, i: Instruction) -> None:
    pending = i.operands[0].value % (1 << 32) if i.operands and isinstance(i.operands[0], Immediate) else 0
    e.emit(f"m.copies.wait(g, {e.site}, {pending}, {i.parts[2] == 'wait_all'})")


@instruction("cp.async.mbarrier.arrive")
def _cp_async_arrive(e: Emitter, i: Instruction) -> None:
    e.emit(f"m.copies.arrive(g, {e.site}, {e.address(i.operands[0])}, {'noinc' in i.parts})")
