"""Barriers, mbarriers, bulk copies, TMA, wgmma, clusters and the control of a thread.

References
----------
PTX ISA, "Parallel Synchronization and Communication Instructions": bar, barrier.cluster, mbarrier, griddepcontrol,
tensormap; "Asynchronous Copy"; "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions"; "Control Flow
Instructions"; "Miscellaneous Instructions": setmaxnreg, nanosleep, trap.
"""

from __future__ import annotations

from cutepy.sim.ptx.bodies import BEYOND
from cutepy.sim.ptx.instruction_set import reduction_of
from cutepy.sim.ptx.model import Address, Immediate, Instruction, Operand, Register, Sink
from cutepy.sim.semantics.types import kind_of
from cutepy.sim.translate.effects import accumulators
from cutepy.sim.translate.emitter import PARK, Emitter, instruction, mechanism
from cutepy.sim.translate.movement import gather

mechanism("barrier.cluster.arrive", "cluster.arrive")
mechanism("barrier.cluster.wait", "cluster.wait", parks=True)
# Observers see fences and griddepcontrol: launches run one after the other, and there is nothing to wait for.
mechanism("fence membar griddepcontrol", "fence")
mechanism("fence.proxy.tensormap::generic.acquire", "tensormaps.acquire", "address -")
mechanism("mbarrier.init", "mbarriers.init", "address u4")
mechanism("mbarrier.inval", "mbarriers.invalidate", "address")
mechanism("mbarrier.expect_tx", "mbarriers.expect_tx", "address u4")
mechanism("mbarrier.complete_tx", "mbarriers.complete_tx", "address u4")
mechanism("cp.async.bulk.commit_group", "bulk.commit")
mechanism("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic", "tensormaps.copy", "address address -")
mechanism("wgmma.fence.sync.aligned", "wgmma.fence")
mechanism("wgmma.commit_group.sync.aligned", "wgmma.commit")
mechanism("trap brkpt", "trap")


@instruction("bar", "barrier")
def _bar(e: Emitter, i: Instruction) -> None:
    operation = next(p for p in i.parts[1:] if p not in ("cta", "aligned"))
    if operation == "warp":
        members = e.read(i.operands[0], "u4")
        gather(e, members)
        e.emit(f"m.warp.sync(g, {e.site}, {members})")
        return
    operands = list(i.operands)
    if operation == "red":
        _bar_red(e, i, operands.pop(0), operands.pop(), operands)
        return
    identity = e.read(operands[0], "u4")
    count = e.read(operands[1], "u4") if len(operands) > 1 else "None"
    if operation == "arrive":
        e.emit(f"if not m.barriers.arrive(g, {e.site}, {identity}, {count}): {PARK}")
    else:
        e.emit(f"if not m.barriers.sync(g, {e.site}, {identity}, {count}): {PARK}")


def _bar_red(e: Emitter, i: Instruction, d: Operand, predicate: Operand, operands: list[Operand]) -> None:
    identity = e.read(operands[0], "u4")
    count = e.read(operands[1], "u4") if len(operands) > 1 else "None"
    operation, kind = next(p for p in i.parts if p in ("popc", "and", "or")), i.parts[-1]
    held = e.read(predicate, "pred")
    result = e.temporary(f"m.barriers.reduce(g, {e.site}, {identity}, {count}, {operation!r}, {held})")
    e.emit(f"if {result} is None: {PARK}")
    e.write(d, result, kind_of(kind))


@instruction("mbarrier.try_wait", "mbarrier.test_wait")
def _mbarrier_wait(e: Emitter, i: Instruction) -> None:
    d, address, state = i.operands[:3]
    parity = "parity" in i.parts
    token = e.read(state, "u4" if parity else "u8")
    may_wait = i.parts[1] == "try_wait"
    # The result is None where the lanes had better wait and run this block again.
    done = e.temporary(f"m.mbarriers.wait(g, {e.site}, {e.address(address)}, {token}, {parity}, {may_wait})")
    e.emit(f"if {done} is None: {PARK}")
    e.write(d, done, "pred")


@instruction("mbarrier.arrive", "mbarrier.arrive_drop")
def _mbarrier_arrive(e: Emitter, i: Instruction) -> None:
    operands = list(i.operands)
    d: Operand = Sink() if isinstance(operands[0], Address) else operands.pop(0)
    address, *count = operands
    expects = "expect_tx" in i.parts
    number = e.read(count[0], "u4") if count else "None"
    drop = i.parts[1] == "arrive_drop"
    call = f"m.mbarriers.arrive(g, {e.site}, {e.address(address)}, {number}, {expects}, {drop})"
    if isinstance(d, Sink):
        e.emit(call)
    else:
        e.write(d, call, "u8")


@instruction("mbarrier.pending_count")
def _mbarrier_pending(e: Emitter, i: Instruction) -> None:
    e.write(i.operands[0], f"m.mbarriers.pending_count({e.read(i.operands[1], 'u8')})", "u4")


@instruction("cp.async.bulk")
def _bulk(e: Emitter, i: Instruction) -> None:
    destination = i.parts[3]
    if destination == "global":
        to, source, size, *more = i.operands
        kept = ", " + e.read_wide(more[-1], "u2") if "cp_mask" in i.parts else ""
        e.emit(f"m.bulk.store(g, {e.site}, {e.address(to)}, {e.address(source)}, {e.read(size, 'u4')}, None{kept})")
        return
    to, source, size, barrier, *more = i.operands
    mask = "None"
    if any(p.startswith("multicast") for p in i.parts):
        mask = e.read_wide(more[0], "u2")
    arguments = f"{e.address(to)}, {e.address(source)}, {e.read(size, 'u4')}, {e.address(barrier)}"
    if i.parts[4].startswith("shared"):
        e.emit(f"m.bulk.to_peer(g, {e.site}, {arguments}, None)")
    else:
        e.emit(f"m.bulk.load(g, {e.site}, {arguments}, {mask})")


@instruction("cp.reduce.async.bulk")
def _bulk_reduce(e: Emitter, i: Instruction) -> None:
    to, source, size, *more = i.operands
    reduction = reduction_of(i.parts), i.parts[-1]
    arguments = f"{e.address(to)}, {e.address(source)}, {e.read(size, 'u4')}"
    if i.parts[4] == "global":
        e.emit(f"m.bulk.store(g, {e.site}, {arguments}, {reduction})")
    else:
        e.emit(f"m.bulk.to_peer(g, {e.site}, {arguments}, {e.address(more[0])}, {reduction})")


def _coordinates(e: Emitter, address: Operand) -> tuple[str, str]:
    if not isinstance(address, Address) or address.coordinates is None:
        raise e.unknown("a tensor coordinate must be given")
    bare = Address(address.base, address.offset)
    return e.address(bare), "(" + ", ".join(e.read(c, "i4") for c in address.coordinates) + ",)"


@instruction("cp.async.bulk.tensor")
def _tensor(e: Emitter, i: Instruction) -> None:
    if i.parts[5] != "global":
        _tensor_load(e, i)
        return
    tensor, source = i.operands[:2]
    descriptor, coordinates = _coordinates(e, tensor)
    e.emit(f"m.tma.store(g, {e.site}, {descriptor}, {coordinates}, {e.address(source)}, None{_no_offsets(i)})")


def _no_offsets(i: Instruction) -> str:
    """Return the argument that tells a store in im2col mode, which has no offsets, from one in tiled mode."""
    return ", ()" if "im2col_no_offs" in i.parts else ""


def _tensor_load(e: Emitter, i: Instruction) -> None:
    to, tensor, barrier, *more = i.operands
    descriptor, coordinates = _coordinates(e, tensor)
    offsets = "None"
    if "im2col" in i.parts:
        given = [e.read_wide(x, "u2") for x in e.items(more.pop(0))]
        if not isinstance(tensor, Address) or len(tensor.coordinates or ()) != len(given) + 2:
            raise e.unknown("im2col mode takes an offset for each of W, H and D")
        offsets = f"({', '.join(given)},)"
    mask = e.read_wide(more[0], "u2") if any(p.startswith("multicast") for p in i.parts) else "None"
    where = f"{e.address(to)}, {descriptor}, {coordinates}, {e.address(barrier)}"
    e.emit(f"m.tma.load(g, {e.site}, {where}, {mask}, {offsets})")


@instruction("cp.reduce.async.bulk.tensor")
def _tensor_reduce(e: Emitter, i: Instruction) -> None:
    tensor, source = i.operands[:2]
    descriptor, coordinates = _coordinates(e, tensor)
    operation = reduction_of(i.parts)
    arguments = f"{descriptor}, {coordinates}, {e.address(source)}, {operation!r}{_no_offsets(i)}"
    e.emit(f"m.tma.store(g, {e.site}, {arguments})")


@instruction("cp.async.bulk.prefetch")
def _bulk_prefetch(e: Emitter, i: Instruction) -> None:
    """Check the tensor map, and let observers see it; nothing is fetched, as there are no caches here."""
    if "tensor" in i.parts:
        descriptor, coordinates = _coordinates(e, i.operands[0])
        e.emit(f"m.tma.prefetch(g, {e.site}, {descriptor}, {coordinates})")


@instruction("cp.async.bulk.wait_group")
def _bulk_wait(e: Emitter, i: Instruction) -> None:
    count = i.operands[0]
    assert isinstance(count, Immediate)
    e.emit(f"m.bulk.wait(g, {e.site}, {count.value % (1 << 32)}, {'read' in i.parts})")


@instruction("tensormap.replace.tile")
def _tensormap_replace(e: Emitter, i: Instruction) -> None:
    field = i.parts[3]
    address, *values = i.operands
    ordinal = 0
    if len(values) == 2:
        assert isinstance(values[0], Immediate)
        ordinal = values[0].value
    kind = kind_of(i.parts[-1])
    e.emit(f"m.tensormaps.replace(g, {e.site}, {e.address(address)}, {field!r}, {ordinal}, {e.read(values[-1], kind)})")


@instruction("wgmma.wait_group.sync.aligned")
def _wgmma_wait(e: Emitter, i: Instruction) -> None:
    count = i.operands[0]
    assert isinstance(count, Immediate)
    e.write_back(e.accumulator_registers)
    e.emit(f"m.wgmma.wait(g, {e.site}, {count.value})")
    e.forget(e.accumulator_registers)


@instruction("wgmma.mma_async.sync.aligned", "wgmma.mma_async.sp.sync.aligned")
def _wgmma(e: Emitter, i: Instruction) -> None:
    _, a, b, *more = i.operands
    sparse = i.traits.is_sparse
    scale_d = more[2 if sparse else 0]
    targets = [r.index for r in accumulators(i)]
    first = e.read(a, "u8") if isinstance(a, Register) else e.read_all(a, "u4")
    second = e.read(b, "u8")
    scale = e.read(scale_d, "pred")
    metadata = f", {e.read(more[0], 'u4')}" if sparse else ""
    e.write_back(targets)
    e.emit(f"m.wgmma.issue(g, {e.site}, {first}, {second}, {scale}{metadata})")
    e.forget(targets)


@instruction("nanosleep", "pmevent", "bra", "ret", "exit")
def _nothing(e: Emitter, i: Instruction) -> None:
    """Do nothing: time is not modelled, and branches end their blocks."""


@instruction("setmaxnreg")
def _setmaxnreg(e: Emitter, i: Instruction) -> None:
    count = i.operands[0]
    assert isinstance(count, Immediate)
    if count.value % 8 or not 24 <= count.value <= 256:
        raise e.refused(f"the register count of setmaxnreg must be a multiple of 8 from 24 to 256, got {count.value}")
    e.emit(f"if not m.registers.set(g, {e.site}, {count.value}, {'inc' in i.parts}): {PARK}")


@instruction(BEYOND)
def _beyond(e: Emitter, i: Instruction) -> None:
    index, count = i.operands
    assert isinstance(count, Immediate)
    e.emit(f"m.beyond(g, {e.site}, {e.read(index, 'u4')}, {count.value})")
