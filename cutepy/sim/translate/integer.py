"""Integer arithmetic, bits and shifts.

References
----------
PTX ISA, "Integer Arithmetic Instructions", "Logic and Shift Instructions".
"""

from __future__ import annotations

from cutepy.sim.ptx.model import Immediate, Instruction
from cutepy.sim.translate.emitter import Emitter, instruction, kind_of, split_pair

_INTEGER_LETTERS = "bus"


def is_integer(ptx_type: str) -> bool:
    """Tell whether a PTX type is an integer or untyped bits, and not packed or a predicate."""
    return ptx_type[0] in _INTEGER_LETTERS and ptx_type[1:].isdigit()


def emit_integer(e: Emitter, i: Instruction) -> bool:
    """Translate an arithmetic instruction if its type is an integer one."""
    parts = i.parts
    if parts[-1] in ("u16x2", "s16x2"):
        return _packed(e, i)
    if not is_integer(parts[-1]):
        return False
    if {"ftz", "NaN", "xorsign", "approx", "full", "rn", "rz", "rm", "rp"} & set(parts):
        return False
    if "cc" in parts:
        return _with_carry(e, i)
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
    if i.parts[0] == "mad" and "sat" in i.parts:
        if (half, kind) != ("hi", "i4"):
            raise e.unknown(".sat is for mad.hi.sat.s32")
        value = f"alu.add_saturated({value}, {e.read(sources[2], out)}, False)"
    elif i.parts[0] == "mad":
        value = f"{value} + {e.read(sources[2], out)}"
    e.write(d, value, out)
    return True


def _packed(e: Emitter, i: Instruction) -> bool:
    """Translate add, min or max of two 16-bit integers in a register."""
    part = "u2" if i.parts[-1] == "u16x2" else "i2"
    operands = [e.read(s, "u4") for s in i.operands[1:]]
    results = []
    for shift in (0, 16):
        a, b = (f"({x} >> {shift}).astype(u2).view({part})" for x in operands)
        if i.parts[0] == "add":
            value = f"{a} + {b}"
        elif i.parts[0] in ("min", "max"):
            value = f"{i.parts[0]}imum({a}, {b})"
        else:
            return False
        if "relu" in i.parts:
            value = f"maximum({value}, {e.immediate(0, part)})"
        results.append(f"({value}).view(u2).astype(u4)")
    e.write(i.operands[0], f"{results[0]} | ({results[1]} << 16)", "u4")
    return True


def _with_carry(e: Emitter, i: Instruction) -> bool:
    """Translate add.cc, sub.cc and mad.cc, which set the carry that addc, subc and madc take."""
    kind = "u" + kind_of(i.parts[-1])[1:]
    operation = i.parts[0]
    if operation in ("mad", "madc"):
        a = _half_product(e, i)
        b = e.read(i.operands[3], kind)
    else:
        a, b = (e.read(s, kind) for s in i.operands[1:3])
    carry = e.read(i.operands[-1], "pred") if operation in ("addc", "subc", "madc") else "None"
    pair = e.temporary(f"alu.add_with_carry({a}, {b}, {carry}, {operation.startswith('sub')})")
    result, carried = split_pair(i.operands[0])
    e.write(result, f"{pair}[0]", kind)
    if carried is not None:
        e.write(carried, f"{pair}[1]", "pred")
    return True


def _half_product(e: Emitter, i: Instruction) -> str:
    """Return the expression of the half of a product that an instruction names, as unsigned bits."""
    kind = kind_of(i.parts[-1])
    unsigned = "u" + kind[1:]
    if "hi" in i.parts:
        a, b = (e.read(source, kind) for source in i.operands[1:3])
        return f"alu.mul_hi({a}, {b}).view({unsigned})"
    a, b = (e.read(source, unsigned) for source in i.operands[1:3])
    return f"{a} * {b}"


@instruction("addc", "subc", "madc", accepts="cc lo hi")
def _addc(e: Emitter, i: Instruction) -> None:
    _with_carry(e, i)


@instruction("mul24", "mad24", accepts="lo hi sat")
def _mul24(e: Emitter, i: Instruction) -> None:
    """Multiply 24 bits by 24 bits, and take the lower or upper 32 of the 48 bits."""
    kind = kind_of(i.parts[-1])
    wide = f"{kind[0]}8"
    d, a, b, *c = i.operands
    eight = e.immediate(8, kind)
    x, y = (f"(({e.read(s, kind)} << {eight}) >> {eight})" for s in (a, b))
    sixteen = e.immediate(16, wide)
    product = (
        f"{x} * {y}"
        if i.parts[1] == "lo"
        else f"(({x}.astype({wide}) * {y}.astype({wide})) >> {sixteen}).astype({kind})"
    )
    if "sat" in i.parts:
        if i.opcode != "mad24.hi.sat.s32":
            raise e.unknown(".sat is for mad24.hi.sat.s32")
        e.write(d, f"alu.add_saturated({product}, {e.read(c[0], kind)}, False)", kind)
        return
    e.write(d, product + (f" + {e.read(c[0], kind)}" if c else ""), kind)


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


@instruction("shf", accepts="l r clamp wrap")
def _funnel(e: Emitter, i: Instruction) -> None:
    a, b, c = (e.read(s, "u4") for s in i.operands[1:])
    e.write(i.operands[0], f"alu.funnel({a}, {b}, {c}, {i.parts[1] == 'l'}, {i.parts[2] == 'clamp'})", "u4")


@instruction("popc", "clz", "brev")
def _count(e: Emitter, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    e.write(i.operands[0], f"alu.{i.parts[0]}({e.read(i.operands[1], kind)})", kind if i.parts[0] == "brev" else "u4")


@instruction("bfind", accepts="shiftamt")
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


_PRMT_MODES = ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")


@instruction("prmt", accepts=" ".join(_PRMT_MODES))
def _prmt(e: Emitter, i: Instruction) -> None:
    a, b, c = (e.read(s, "u4") for s in i.operands[1:])
    if i.parts[-1] in _PRMT_MODES:
        c = f"alu.prmt_selector({i.parts[-1]!r}, {c})"
    e.write(i.operands[0], f"alu.prmt({a}, {b}, {c})", "u4")


@instruction("lop3", accepts="and or")
def _lop3(e: Emitter, i: Instruction) -> None:
    destination, *operands = i.operands
    boolean = i.parts[1] if i.parts[1] in ("and", "or") else ""
    table = operands[3]
    assert isinstance(table, Immediate)
    a, b, c = (e.read(s, "u4") for s in operands[:3])
    value = f"alu.lop3({a}, {b}, {c}, {table.value})"
    if not boolean:
        e.write(destination, value, "u4")
        return
    d, p = split_pair(destination)
    assert p is not None
    kept = e.temporary(value)
    q = e.read(operands[4], "pred")
    e.write(p, f"({kept} != 0) {'&' if boolean == 'and' else '|'} {q}", "pred")
    e.write(d, kept, "u4")


@instruction("dp4a")
def _dp4a(e: Emitter, i: Instruction) -> None:
    a, b, c = (e.read(s, "u4") for s in i.operands[1:])
    e.write(i.operands[0], f"alu.dot4({a}, {b}, {c}, {i.parts[1] == 's32'}, {i.parts[2] == 's32'})", "u4")


@instruction("dp2a", accepts="lo hi")
def _dp2a(e: Emitter, i: Instruction) -> None:
    a, b, c = (e.read(s, "u4") for s in i.operands[1:])
    arguments = f"{a}, {b}, {c}, {i.parts[2] == 's32'}, {i.parts[3] == 's32'}, {i.parts[1] == 'hi'}"
    e.write(i.operands[0], f"alu.dot2({arguments})", "u4")


@instruction("szext", accepts="clamp wrap")
def _szext(e: Emitter, i: Instruction) -> None:
    a, b = e.read(i.operands[1], "u4"), e.read(i.operands[2], "u4")
    e.write(i.operands[0], f"alu.szext({a}, {b}, {i.parts[1] == 'clamp'}, {i.parts[2] == 's32'})", "u4")


@instruction("bmsk", accepts="clamp wrap")
def _bmsk(e: Emitter, i: Instruction) -> None:
    a, b = e.read(i.operands[1], "u4"), e.read(i.operands[2], "u4")
    e.write(i.operands[0], f"alu.bmsk({a}, {b}, {i.parts[1] == 'clamp'})", "u4")


@instruction("fns")
def _fns(e: Emitter, i: Instruction) -> None:
    mask, base = e.read(i.operands[1], "u4"), e.read(i.operands[2], "u4")
    e.write(i.operands[0], f"alu.fns({mask}, {base}, {e.read(i.operands[3], 'i4')})", "u4")
