"""Integer arithmetic, bits and shifts.

References
----------
PTX ISA, "Integer Arithmetic Instructions", "Logic and Shift Instructions".
"""

from __future__ import annotations

from cutepy.sim.ptx.model import Immediate, Instruction
from cutepy.sim.translate.emitter import Emitter, instruction, kind_of

_INTEGER_LETTERS = "bus"


def is_integer(ptx_type: str) -> bool:
    """Tell whether a PTX type is an integer or untyped bits, and not packed or a predicate."""
    return ptx_type[0] in _INTEGER_LETTERS and ptx_type[1:].isdigit()


def emit_integer(e: Emitter, i: Instruction) -> bool:
    """Translate an arithmetic instruction if its type is an integer one."""
    parts = i.parts
    if not is_integer(parts[-1]):
        return False
    kind = kind_of(parts[-1])
    operation, modifiers = parts[0], parts[1:-1]
    d, *sources = i.operands
    if operation in ("mul", "mad") and modifiers:
        return _multiply(e, i, kind, modifiers[0])
    if operation in ("add", "sub", "neg", "mul") and "sat" not in modifiers:
        kind = "u" + kind[1:]  # the low bits do not depend on the sign
    a = e.read(sources[0], kind)
    if operation in ("neg", "abs"):
        e.write(d, f"-{a}" if operation == "neg" else f"abs_({a})", kind)
        return True
    b = e.read(sources[1], kind)
    if operation in ("add", "sub") and "sat" in modifiers:
        e.write(d, f"alu.add_saturated({a}, {b}, {operation == 'sub'})", kind)
    elif operation in ("add", "sub", "mul"):
        e.write(d, f"{a} {dict(add='+', sub='-', mul='*')[operation]} {b}", kind)
    elif operation in ("min", "max"):
        value = f"{operation}imum({a}, {b})"
        e.write(d, f"maximum({value}, {e.immediate(0, kind)})" if "relu" in modifiers else value, kind)
    elif operation in ("div", "rem"):
        e.write(d, f"alu.{operation}({a}, {b})", kind)
    else:
        return False
    return True


def _multiply(e: Emitter, i: Instruction, kind: str, half: str) -> bool:
    d, *sources = i.operands
    if half == "lo":
        kind = "u" + kind[1:]
    a, b = (e.read(source, kind) for source in sources[:2])
    out = kind
    if half == "wide":
        out = f"{kind[0]}{2 * int(kind[1:])}"
        value = f"{a}.astype({out}) * {b}.astype({out})"
    elif half == "hi":
        value = f"alu.mul_hi({a}, {b})"
    elif half == "lo":
        value = f"{a} * {b}"
    else:
        return False
    if i.parts[0] == "mad":
        value = f"{value} + {e.read(sources[2], out)}"
    e.write(d, value, out)
    return True


@instruction("mul24", "mad24")
def _mul24(e: Emitter, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    d, a, b, *c = i.operands
    eight = e.immediate(8, kind)
    x, y = (f"(({e.read(s, kind)} << {eight}) >> {eight})" for s in (a, b))
    if i.parts[1] != "lo":
        raise e.unknown("only .lo is known")
    e.write(d, f"{x} * {y}" + (f" + {e.read(c[0], kind)}" if c else ""), kind)


@instruction("sad")
def _sad(e: Emitter, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    a, b, c = (e.read(s, kind) for s in i.operands[1:])
    e.write(i.operands[0], f"{c} + where({a} < {b}, {b} - {a}, {a} - {b})", kind)


@instruction("and", "or", "xor")
def _logic(e: Emitter, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    a, b = (e.read(s, kind) for s in i.operands[1:])
    e.write(i.operands[0], f"{a} {dict(zip(('and', 'or', 'xor'), '&|^', strict=True))[i.parts[0]]} {b}", kind)


@instruction("not")
def _not(e: Emitter, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    e.write(i.operands[0], f"~{e.read(i.operands[1], kind)}", kind)


@instruction("cnot")
def _cnot(e: Emitter, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    e.write(i.operands[0], f"({e.read(i.operands[1], kind)} == 0).astype({kind})", kind)


@instruction("shl", "shr")
def _shift(e: Emitter, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    d, a, amount = i.operands
    x = e.read(a, kind)
    left = i.parts[0] == "shl"
    if isinstance(amount, Immediate) and 0 <= amount.value < 8 * int(kind[1:]):
        e.write(d, f"{x} {'<<' if left else '>>'} {e.immediate(amount.value, kind)}", kind)
    else:
        e.write(d, f"alu.shift_{'left' if left else 'right'}({x}, {e.read_wide(amount, 'u4')})", kind)


@instruction("shf")
def _funnel(e: Emitter, i: Instruction) -> None:
    a, b, c = (e.read(s, "u4") for s in i.operands[1:])
    e.write(i.operands[0], f"alu.funnel({a}, {b}, {c}, {i.parts[1] == 'l'}, {i.parts[2] == 'clamp'})", "u4")


@instruction("popc", "clz", "brev")
def _count(e: Emitter, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    e.write(i.operands[0], f"alu.{i.parts[0]}({e.read(i.operands[1], kind)})", kind if i.parts[0] == "brev" else "u4")


@instruction("bfind")
def _bfind(e: Emitter, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    e.write(i.operands[0], f"alu.bfind({e.read(i.operands[1], kind)}, {'shiftamt' in i.parts})", "u4")


@instruction("bfe")
def _bfe(e: Emitter, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    d, a, position, length = i.operands
    e.write(d, f"alu.bfe({e.read(a, kind)}, {e.read(position, 'u4')}, {e.read(length, 'u4')})", kind)


@instruction("bfi")
def _bfi(e: Emitter, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    d, a, b, position, length = i.operands
    x, y = e.read(a, kind), e.read(b, kind)
    e.write(d, f"alu.bfi({x}, {y}, {e.read(position, 'u4')}, {e.read(length, 'u4')})", kind)


@instruction("prmt")
def _prmt(e: Emitter, i: Instruction) -> None:
    if i.parts[1:] != ("b32",):
        raise e.unknown("only the default mode of prmt is known")
    a, b, c = (e.read(s, "u4") for s in i.operands[1:])
    e.write(i.operands[0], f"alu.prmt({a}, {b}, {c})", "u4")


@instruction("lop3")
def _lop3(e: Emitter, i: Instruction) -> None:
    d, *sources, table = i.operands
    if not isinstance(table, Immediate) or len(sources) != 3:
        raise e.unknown("only lop3 with a constant table and no predicate is known")
    a, b, c = (e.read(s, "u4") for s in sources)
    e.write(d, f"alu.lop3({a}, {b}, {c}, {table.value})", "u4")


@instruction("dp4a")
def _dp4a(e: Emitter, i: Instruction) -> None:
    a, b, c = (e.read(s, "u4") for s in i.operands[1:])
    e.write(i.operands[0], f"alu.dot4({a}, {b}, {c}, {i.parts[1] == 's32'}, {i.parts[2] == 's32'})", "u4")
