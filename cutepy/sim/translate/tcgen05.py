"""Instructions of the tensor core of sm_100.

References
----------
PTX ISA, "TensorCore 5th Generation Family Instructions".
"""

from __future__ import annotations

from cutepy.sim.ptx.model import Address, Immediate, Instruction, Operand, Vector
from cutepy.sim.translate.emitter import Emitter, instruction, mechanism

mechanism("tcgen05.alloc", "tcgen05.memory.alloc", "address u4", parks=True)
mechanism("tcgen05.dealloc", "tcgen05.memory.dealloc", "u4 u4")
mechanism("tcgen05.relinquish_alloc_permit", "tcgen05.memory.relinquish")
# Loads and stores are complete where they stand: observers see their fences and waits.
mechanism("tcgen05.fence::before_thread_sync tcgen05.fence::after_thread_sync", "fence")
mechanism("tcgen05.wait::ld tcgen05.wait::st", "fence")
mechanism("tcgen05.cp", "tcgen05.copy", "address u8")
mechanism("tcgen05.shift", "tcgen05.shift", "address")


def _split(operands: list[Operand]) -> str:
    """Return the columns between the halves of a 16x32bx2, and take the operand away."""
    given = next((one for one in operands if isinstance(one, Immediate)), None)
    if given is None:
        return "None"
    operands.remove(given)
    return str(given.value)


@instruction("tcgen05.ld.sync.aligned")
def _ld(e: Emitter, i: Instruction) -> None:
    d, address, *more = i.operands
    call = f"m.tcgen05.memory.load(g, {e.site}, {e.address(address)}, {len(e.items(d))}, {_split(more)})"
    e.write_all(d, call, "u4")


@instruction("tcgen05.ld.red.sync.aligned")
def _ld_red(e: Emitter, i: Instruction) -> None:
    if "16x32bx2" in i.parts:
        raise e.refused(
            "tcgen05.ld.red of 16x32bx2 is not simulated: two threads share a lane, and the ISA does not say "
            "whether each gets the columns of both"
        )
    d, extreme, address = i.operands
    call = f"m.tcgen05.memory.load(g, {e.site}, {e.address(address)}, {len(e.items(d))}, None)"
    found = e.write_all(d, call, "u4")
    e.write(extreme, f"m.tcgen05.memory.reduced({e.site}, {found})", "u4")


@instruction("tcgen05.st.sync.aligned")
def _st(e: Emitter, i: Instruction) -> None:
    address, *more = i.operands
    split = _split(more) if "16x32bx2" in i.parts else "None"
    values = e.read_all(more[0], "u4")
    e.emit(f"m.tcgen05.memory.store(g, {e.site}, {e.address(address)}, {values}, {split})")


@instruction("tcgen05.commit")
def _commit(e: Emitter, i: Instruction) -> None:
    barrier, *mask = i.operands
    masks = e.read_wide(mask[0], "u2") if mask else "None"
    e.emit(f"m.tcgen05.commit(g, {e.site}, {e.address(barrier)}, {masks})")


@instruction("tcgen05.mma")
def _mma(e: Emitter, i: Instruction) -> None:
    d, a, b, *more = i.operands
    metadata = e.address(more.pop(0)) if i.traits.is_sparse else _NONE
    descriptor = e.read(more.pop(0), "u4")
    scales = [e.address(more.pop(0)) for _ in range(2 if "block_scale" in i.parts else 0)]
    disabled = [e.read(item, "u4") for item in e.items(more.pop(0))] if isinstance(more[0], Vector) else []
    accumulates = e.read(more.pop(0), "pred")
    zero_columns, shift = _NONE, 0
    if "ws" in i.parts:
        zero_columns = e.read(more.pop(0), "u8") if more else _NONE
    elif more:
        assert isinstance(more[0], Immediate)
        shift = more[0].value
    from_tensor_memory = isinstance(a, Address)
    first = e.address(a) if from_tensor_memory else e.read(a, "u8")
    e.emit(
        f"m.tcgen05.multiply(g, {e.site}, {e.address(d)}, {first}, {e.read(b, 'u8')}, {descriptor}, {accumulates}, "
        f"{from_tensor_memory}, {_tuple(scales)}, {_tuple(disabled)}, {shift}, {metadata}, {zero_columns})"
    )


_NONE = "0"


def _tuple(expressions: list[str]) -> str:
    return f"({', '.join(expressions)},)" if expressions else "()"
