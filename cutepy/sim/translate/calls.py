"""Calls of functions and of the system, and the stack of local memory.

References
----------
PTX ISA, "Control Flow Instructions: call, ret", "Stack Manipulation Instructions". PTX Writer's Guide to
Interoperability, "System Calls". CUDA C++ Programming Guide, "Dynamic Global Memory Allocation", "Formatted Output".
"""

from __future__ import annotations

from collections.abc import Callable

from cutepy.sim.ptx.linking import SLOT_BYTES, CallSite
from cutepy.sim.ptx.model import Instruction, Operand, Register, Symbol
from cutepy.sim.semantics.types import kind_of
from cutepy.sim.translate.emitter import Emitter, instruction


@instruction("call")
def _call(e: Emitter, i: Instruction) -> None:
    site = e.linked.sites.get(i.index)
    if site is None:
        raise e.unknown("its operands are of a form that is not known")
    target, frame, *dynamic = i.operands
    base = e.read(frame, "u8")
    function = "None"
    if isinstance(target, Symbol):
        callee = e.linked.callees.get(e.linked.names.get(target.name, 0))
        if callee is None:
            _system_call(e, target.name, site, base)
            return
        function = e.constant(callee, f"CALLEE_{callee.start}")
    else:
        function = e.read(target, "u8")
    top = f"{base} + {e.immediate(site.frame_bytes, 'u8')}"
    if dynamic:
        top = _rounded(e, f"{top} + {e.read(dynamic[0], 'u8')}", SLOT_BYTES)
    place = e.constant(site, f"SITE_{i.index}")
    e.ending = f"return m.calls.enter(g, {e.site}, {place}, {function}, {base}, {top}, {e.after})"


def _rounded(e: Emitter, value: str, unit: int) -> str:
    """Return the expression of a value rounded up to a multiple of a power of two."""
    return f"(({value} + {e.immediate(unit - 1, 'u8')}) & {e.immediate(-unit, 'u8')})"


_SystemCall = Callable[[Emitter, list[str]], str]


def _system_call(e: Emitter, name: str, site: CallSite, base: str) -> None:
    if name not in _SYSTEM_CALLS:
        raise e.refused(
            f"{name} is not defined in this module, and no call of the system that is simulated "
            f"({', '.join(_SYSTEM_CALLS)}); compile what defines it into the same PTX, without -rdc=true"
        )
    parameters, result, write = _SYSTEM_CALLS[name]
    if len(site.arguments) != len(parameters):
        raise e.refused(f"{name} takes {len(parameters)} arguments, got {len(site.arguments)}")
    values = [
        e.temporary(f"m.memory.load(g, {e.site}, 'local', {base} + {e.immediate(offset, 'u8')}, {kind_of(kind)}, 1)")
        for (offset, _), kind in zip(site.arguments, parameters, strict=True)
    ]
    call = write(e, values)
    if result and site.results:
        at = f"{base} + {e.immediate(site.results[0][0], 'u8')}"
        e.emit(f"m.memory.store(g, {e.site}, 'local', {at}, ({call},))")
    else:
        e.emit(call)


_SYSTEM_CALLS: dict[str, tuple[tuple[str, ...], bool, _SystemCall]] = {
    "vprintf": (("u64", "u64"), True, lambda e, a: f"m.printing.write(g, {e.site}, {a[0]}, {a[1]})"),
    "__assertfail": (
        ("u64", "u64", "u32", "u64", "u64"),
        False,
        lambda e, a: f"m.printing.assert_failed(g, {e.site}, {', '.join(a[:4])})",
    ),
    "malloc": (("u64",), True, lambda e, a: f"m.heap.allocate(g, {e.site}, {a[0]})"),
    "free": (("u64",), False, lambda e, a: f"m.heap.free(g, {e.site}, {a[0]})"),
}
"""Types of the parameters, whether there is a result, and what writes the call."""


@instruction("alloca")
def _alloca(e: Emitter, i: Instruction) -> None:
    destination, size, *alignment, dynamic, end = i.operands
    pointer, taken = e.items(destination)
    unit = max([SLOT_BYTES, *(getattr(number, "value", 1) for number in alignment)])
    bottom = e.read(end, "u8")
    start = e.temporary(_rounded(e, f"{bottom} + {e.read(dynamic, 'u8')}", unit))
    bytes_ = e.temporary(f"{_wide(e, size)} - {bottom}")
    e.write(pointer, start, "u8")
    e.write(taken, f"{start} + {bytes_}", "u8")


def _wide(e: Emitter, size: Operand) -> str:
    if isinstance(size, Register):
        return f"{e.read(size, f'u{size.bits // 8}')}.astype(u8)"
    return e.read(size, "u8")


@instruction("stacksave")
def _stacksave(e: Emitter, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    e.write(i.operands[0], f"{e.read(i.operands[1], 'u8')}.astype({kind})", kind)


@instruction("stackrestore")
def _stackrestore(e: Emitter, i: Instruction) -> None:
    (taken,) = e.items(i.operands[0])
    e.write(taken, _wide(e, i.operands[1]), "u8")
