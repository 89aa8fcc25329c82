"""Instructions over the lanes of a warp, with the results of `translate`'s: what is not here numpy computes.

References
----------
PTX ISA, "Integer Arithmetic Instructions", "Floating Point Instructions", "Comparison and Selection Instructions",
"Logic and Shift Instructions", "Data Movement and Conversion Instructions".
"""

from __future__ import annotations

from collections.abc import Callable

from cutepy.sim.native.lanes import Lanes, UnsupportedError, width
from cutepy.sim.native.writer import Value
from cutepy.sim.ptx.model import Address, Immediate, Instruction, Register, Symbol, Vector
from cutepy.sim.translate import LOCAL_WINDOW, SHARED_WINDOW
from cutepy.sim.translate.comparison import _BOOLEANS, _OPERATORS, _UNSIGNED
from cutepy.sim.translate.emitter import kind_of, split_pair, translator_of
from cutepy.sim.translate.floating import rounding_of
from cutepy.sim.translate.integer import is_integer
from cutepy.sim.translate.memory import space_of

Writes = Callable[[Lanes, Instruction], None]
_TABLE: dict[str, Writes] = {}
_CANONICAL = 0x7FFFFFFF
_TINY = 0x00800000
_LOGIC = {"and": "and", "or": "or", "xor": "xor"}


def _of(*names: str) -> Callable[[Writes], Writes]:
    def register(function: Writes) -> Writes:
        _TABLE.update(dict.fromkeys(names, function))
        return function

    return register


def write_instruction(lanes: Lanes, i: Instruction) -> None:
    """Write an instruction; a store is another matter.

    Raises
    ------
    UnsupportedError
        If numpy computes it.
    """
    if i.parts[0] not in _TABLE or translator_of(i.opcode) is None:
        raise UnsupportedError
    lanes.instruction = i
    try:
        _TABLE[i.parts[0]](lanes, i)
    except (AssertionError, LookupError, StopIteration, TypeError, ValueError) as error:
        raise UnsupportedError from error


def _need(condition: object) -> None:
    if not condition:
        raise UnsupportedError


# Moves and memory.


@_of("mov")
def _mov(e: Lanes, i: Instruction) -> None:
    d, s = i.operands
    kind = kind_of(i.parts[-1])
    w = e.w
    if isinstance(s, Vector):
        bits = width(kind) // len(s.items)
        value = w.constant(width(kind), 0)
        for n, item in enumerate(s.items):
            part = w.resized(e.read(item, f"u{bits // 8}"), width(kind))
            value = w.binary("or", value, w.binary("shl", part, w.constant(width(kind), n * bits)))
        e.write(d, value)
    elif isinstance(d, Vector):
        bits = width(kind) // len(d.items)
        whole = e.read(s, kind)
        for n, item in enumerate(d.items):
            shifted = w.binary("lshr", whole, w.constant(whole.bits, n * bits)) if n else whole
            e.write(item, w.resized(shifted, bits))
    elif isinstance(s, Register):
        e.write(d, e.register(s.index))
    else:
        e.write(d, e.read(s, kind))


@_of("cvta")
def _cvta(e: Lanes, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    d, s = i.operands
    value = e.read(s, kind)
    to = i.parts[1] == "to"
    space = i.parts[2] if to else i.parts[1]
    _need(not space.startswith("param"))
    if space.startswith("shared") or space == "local":
        window = e.w.constant(width(kind), SHARED_WINDOW if space.startswith("shared") else LOCAL_WINDOW)
        value = e.w.binary("sub" if to else "add", value, window)
    e.write(d, value)


@_of("ld", "ldu")
def _ld(e: Lanes, i: Instruction) -> None:
    d, address = i.operands[:2]
    _need(len(i.operands) == 2)
    kind = kind_of(i.parts[-1])
    items = d.items if isinstance(d, Vector) else (d,)
    if space_of(i) == "param":
        assert isinstance(address, Address)
        assert isinstance(address.base, Symbol)
        for n, item in enumerate(items):
            offset = address.offset + n * int(kind[1:])
            e.write(
                item, e.input(f"m.parameter({address.base.name!r}, {offset}, {kind!r})", width(kind)), kind[0] == "i"
            )
        return
    values = e.load(i, address, width(kind), len(items))
    for item, value in zip(items, values, strict=True):
        e.write(item, value, kind[0] == "i")


# Integers.


def _integer(e: Lanes, i: Instruction) -> bool:
    parts = i.parts
    if not is_integer(parts[-1]):
        return False
    _need(not {"sat", "relu", "cc"} & set(parts))
    kind = kind_of(parts[-1])
    signed = kind[0] == "i"
    d, *sources = i.operands
    operation, w = parts[0], e.w
    if operation in ("mul", "mad") and len(parts) > 2:
        half = parts[1]
        a, b = (e.read(s, kind) for s in sources[:2])
        if half != "lo":
            _need(half in ("wide", "hi") and a.bits < 64)
            a, b = w.resized(a, 2 * a.bits, signed), w.resized(b, 2 * b.bits, signed)
        value = w.binary("mul", a, b)
        if half == "hi":
            value = w.resized(w.binary("lshr", value, w.constant(value.bits, value.bits // 2)), value.bits // 2)
        if operation == "mad":
            value = w.binary("add", value, e.read(sources[2], f"u{value.bits // 8}"))
        e.write(d, value, signed)
        return True
    a = e.read(sources[0], kind)
    if operation == "neg":
        e.write(d, w.binary("sub", w.constant(a.bits, 0), a), signed)
    elif operation == "abs":
        negative = w.compare("slt", a, w.constant(a.bits, 0))
        e.write(d, w.select(negative, w.binary("sub", w.constant(a.bits, 0), a), a), signed)
    elif operation in ("add", "sub", "mul"):
        e.write(d, w.binary(operation, a, e.read(sources[1], kind)))
    elif operation in ("min", "max"):
        b = e.read(sources[1], kind)
        relation = ("s" if signed else "u") + ("lt" if operation == "min" else "gt")
        e.write(d, w.select(w.compare(relation, a, b), a, b), signed)
    else:
        raise UnsupportedError
    return True


@_of("and", "or", "xor")
def _logic(e: Lanes, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    a, b = (e.read(s, kind) for s in i.operands[1:])
    e.write(i.operands[0], e.w.binary(i.parts[0], a, b))


@_of("not")
def _not(e: Lanes, i: Instruction) -> None:
    e.write(i.operands[0], e.invert(e.read(i.operands[1], kind_of(i.parts[-1]))))


@_of("shl", "shr")
def _shift(e: Lanes, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    d, a, amount = i.operands
    w, x = e.w, e.read(a, kind)
    operation = "shl" if i.parts[0] == "shl" else "ashr" if kind[0] == "i" else "lshr"
    by = e.read_wide(amount, "u4")
    if by.number is not None and by.number < x.bits:
        e.write(d, w.binary(operation, x, w.constant(x.bits, by.number)), kind[0] == "i")
        return
    # By the width or more leaves zeros, or the sign.
    large = w.compare("uge", by, w.constant(32, x.bits))
    most = w.constant(32, x.bits - 1)
    shifted = w.binary(operation, x, w.resized(w.select(large, most, by), x.bits))
    e.write(d, shifted if operation == "ashr" else w.select(large, w.constant(x.bits, 0), shifted), kind[0] == "i")


@_of("shf")
def _funnel(e: Lanes, i: Instruction) -> None:
    w = e.w
    low, high, amount = (e.read(s, "u4") for s in i.operands[1:])
    if "clamp" in i.parts:
        shift = w.select(w.compare("ult", amount, w.constant(32, 32)), amount, w.constant(32, 32))
    else:
        shift = w.binary("and", amount, w.constant(32, 31))
    pair = w.binary("or", w.binary("shl", w.resized(high, 64), w.constant(64, 32)), w.resized(low, 64))
    by = w.resized(shift, 64)
    if i.parts[1] == "l":
        pair = w.binary("lshr", w.binary("shl", pair, by), w.constant(64, 32))
    else:
        pair = w.binary("lshr", pair, by)
    e.write(i.operands[0], w.resized(pair, 32))


@_of("lop3")
def _lop3(e: Lanes, i: Instruction) -> None:
    d, *operands = i.operands
    _need(i.parts[1] not in ("and", "or") and isinstance(operands[3], Immediate))
    table = operands[3].value  # type: ignore[union-attr]
    w = e.w
    inputs = [e.read(s, "u4") for s in operands[:3]]
    inverted = [e.invert(v) for v in inputs]
    value = w.constant(32, 0)
    for row in range(8):
        if table >> row & 1:
            a, b, c = (inputs[n] if row >> (2 - n) & 1 else inverted[n] for n in range(3))
            value = w.binary("or", value, w.binary("and", w.binary("and", a, b), c))
    e.write(d, value)


@_of("prmt")
def _prmt(e: Lanes, i: Instruction) -> None:
    _need(i.parts[-1] == "b32")
    w = e.w
    a, b, selector = (e.read(s, "u4") for s in i.operands[1:])
    _need(selector.number is not None)
    pair = w.binary("or", w.binary("shl", w.resized(b, 64), w.constant(64, 32)), w.resized(a, 64))
    value = w.constant(32, 0)
    for n in range(4):
        nibble = (selector.number or 0) >> 4 * n & 15
        byte = w.resized(w.resized(w.binary("lshr", pair, w.constant(64, 8 * (nibble & 7))), 8), 32)
        if nibble & 8:
            byte = w.binary(
                "lshr",
                w.binary("ashr", w.binary("shl", byte, w.constant(32, 24)), w.constant(32, 31)),
                w.constant(32, 24),
            )
        value = w.binary("or", value, w.binary("shl", byte, w.constant(32, 8 * n)))
    e.write(i.operands[0], value)


@_of("popc", "clz", "brev")
def _count(e: Lanes, i: Instruction) -> None:
    x = e.read(i.operands[1], kind_of(i.parts[-1]))
    if i.parts[0] == "brev":
        e.write(i.operands[0], e.w.intrinsic("bitreverse", x))
    elif i.parts[0] == "popc":
        e.write(i.operands[0], e.w.resized(e.w.intrinsic("ctpop", x), 32))
    else:
        e.write(i.operands[0], e.w.resized(e.w.intrinsic("ctlz", x, more="<{is_zero_poison = false}> "), 32))


# Floats.


def _flushed(e: Lanes, x: Value) -> Value:
    """Replace subnormals by zeros of their sign."""
    w = e.w
    magnitude = w.binary("and", x, w.constant(32, 0x7FFFFFFF))
    sign = w.binary("and", x, w.constant(32, 0x80000000))
    return w.select(w.compare("ult", magnitude, w.constant(32, _TINY)), sign, x)


def _canonical(e: Lanes, x: Value) -> Value:
    return e.w.select(e.w.compare_floats("uno", x, x), e.w.constant(32, _CANONICAL), x)


def _saturated(e: Lanes, x: Value) -> Value:
    """Clamp to [0, 1]; a NaN becomes 0."""
    w = e.w
    zero, one = w.constant(32, 0), w.constant(32, 0x3F800000)
    capped = w.select(w.compare_floats("olt", x, one), x, one)
    return w.select(w.compare_floats("ogt", x, zero), capped, zero)


def _extreme(e: Lanes, operation: str, modifiers: set[str], a: Value, b: Value) -> Value:
    w = e.w
    _need(not modifiers & {"NaN", "xorsign", "relu", "abs"})
    found = w.select(w.compare_floats("olt" if operation == "min" else "ogt", a, b), a, b)
    # Of equal numbers the bits are equal too, or they are zeros of two signs.
    both = w.binary("or" if operation == "min" else "and", a, b)
    found = w.select(w.compare_floats("oeq", a, b), both, found)
    found = w.select(w.compare_floats("uno", b, b), a, found)
    found = w.select(w.compare_floats("uno", a, a), b, found)
    return _canonical(e, found)


_INFIX = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}


@_of("add", "sub", "mul", "mad", "fma", "div", "min", "max", "neg", "abs")
def _arithmetic(e: Lanes, i: Instruction) -> None:
    if _integer(e, i):
        return
    _need(i.parts[-1] == "f32" and rounding_of(i) == "rn")
    operation, modifiers = i.parts[0], set(i.parts[1:-1])
    _need(not modifiers & {"approx", "full", "relu"})
    values = [e.read(s, "f4") for s in i.operands[1:]]
    flush = "ftz" in modifiers
    # What is subnormal before it is rounded is flushed too: numpy sees to that.
    _need(not (flush and operation in ("mul", "fma", "mad", "div")))
    if flush:
        values = [_flushed(e, v) for v in values]
    w = e.w
    if operation in ("min", "max"):
        value = _extreme(e, operation, modifiers, *values)
    elif operation in ("fma", "mad"):
        value = w.floats("intr.fma", *values)
    elif operation in _INFIX:
        value = w.floats(_INFIX[operation], *values)
    elif operation == "neg":
        value = w.binary("xor", values[0], w.constant(32, 0x80000000))
    else:
        value = w.binary("and", values[0], w.constant(32, 0x7FFFFFFF))
    if "sat" in modifiers:
        value = _saturated(e, value)
    elif operation not in ("min", "max"):
        value = _canonical(e, value)
    e.write(i.operands[0], _flushed(e, value) if flush else value)


@_of("sqrt", "rcp", "rsqrt")
def _root(e: Lanes, i: Instruction) -> None:
    _need(i.parts[-1] == "f32" and rounding_of(i) == "rn")
    flush, w = "ftz" in i.parts, e.w
    value = e.read(i.operands[1], "f4")
    value = _flushed(e, value) if flush else value
    if i.parts[0] == "sqrt":
        value = w.floats("intr.sqrt", value)
    else:
        wide = w.float_cast("fpext", value, 64)
        wide = w.floats("intr.sqrt", wide) if i.parts[0] == "rsqrt" else wide
        value = w.float_cast("fptrunc", w.floats("fdiv", w.constant(64, 0x3FF << 52), wide), 32)
    value = _canonical(e, value)
    e.write(i.operands[0], _flushed(e, value) if flush else value)


# Comparison and selection.

_RELATIONS = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}


@_of("setp")
def _setp(e: Lanes, i: Instruction) -> None:
    destination, a, b, *more = i.operands
    p, q = split_pair(destination)
    kind, w = i.parts[-1], e.w
    operation = i.parts[1]
    if kind == "f32":
        x, y = e.read(a, "f4"), e.read(b, "f4")
        if "ftz" in i.parts:
            x, y = _flushed(e, x), _flushed(e, y)
        if operation in ("num", "nan"):
            value = w.compare_floats("ord" if operation == "num" else "uno", x, y)
        elif operation in _OPERATORS:
            value = w.compare_floats("o" + operation, x, y)
        else:
            _need(operation.endswith("u") and operation[:-1] in _OPERATORS)
            value = w.compare_floats("u" + operation[:-1], x, y)
    else:
        _need(is_integer(kind))
        operation = _UNSIGNED.get(operation, operation)
        _need(operation in _RELATIONS)
        x, y = e.read(a, kind_of(kind)), e.read(b, kind_of(kind))
        letter = "" if operation in ("eq", "ne") else "s" if kind_of(kind)[0] == "i" else "u"
        value = w.compare(letter + operation, x, y)
    other = e.invert(value) if q is not None else value
    if more:
        _need(i.parts[2] in _BOOLEANS)
        third = e.read(more[0], "pred")
        value, other = (w.binary(_LOGIC[i.parts[2]], v, third) for v in (value, other))
    e.write(p, value)
    if q is not None:
        e.write(q, other)


@_of("selp")
def _selp(e: Lanes, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    d, a, b, p = i.operands
    e.write(d, e.w.select(e.read(p, "pred"), e.read(a, kind), e.read(b, kind)))


# Conversion.


def _rounded(e: Lanes, x: Value, name: str) -> Value:
    """Round float32 to f16 or bf16, to nearest; NaNs are canonical."""
    w = e.w
    if name == "f16":
        bits = w.float_cast("fptrunc", x, 16)
    else:
        even = w.binary("and", w.binary("lshr", x, w.constant(32, 16)), w.constant(32, 1))
        up = w.binary("add", w.binary("add", x, w.constant(32, 0x7FFF)), even)
        bits = w.resized(w.binary("lshr", up, w.constant(32, 16)), 16)
    return w.select(w.compare_floats("uno", x, x), w.constant(16, 0x7FFF), bits)


@_of("cvt")
def _cvt(e: Lanes, i: Instruction) -> None:
    _need(i.parts[1] != "pack" and not {"sat", "satfinite", "relu", "ftz", "rna"} & set(i.parts))
    to, source = i.parts[-2], i.parts[-1]
    w = e.w
    if to in ("f16x2", "bf16x2"):
        _need(source == "f32" and rounding_of(i) == "rn")
        high, low = (_rounded(e, e.read(s, "f4"), to.removesuffix("x2")) for s in i.operands[1:3])
        high = w.binary("shl", w.resized(high, 32), w.constant(32, 16))
        e.write(i.operands[0], w.binary("or", w.resized(low, 32), high))
    elif is_integer(to) and is_integer(source):
        value = e.read_wide(i.operands[1], kind_of(source))
        bits = width(kind_of(to))
        value = w.resized(value, bits, source[0] == "s")
        e.write(i.operands[0], value, kind_of(to)[0] == "i")
    elif is_integer(source):
        _need(to in ("f32", "f64") and rounding_of(i) == "rn")
        value = e.read_wide(i.operands[1], kind_of(source))
        e.write(i.operands[0], w.from_integer(value, int(to[1:]), source[0] == "s"))
    elif source == "f32" and to in ("f16", "bf16"):
        _need(rounding_of(i) == "rn" and not {"rni", "rzi", "rmi", "rpi"} & set(i.parts))
        e.write(i.operands[0], _rounded(e, e.read(i.operands[1], "f4"), to))
    elif to == "f32" and source in ("f16", "bf16"):
        _need(not {"rni", "rzi", "rmi", "rpi"} & set(i.parts))
        half = e.read(i.operands[1], "u2")
        if source == "f16":
            e.write(i.operands[0], _canonical(e, w.float_cast("fpext", half, 32)))
        else:
            e.write(i.operands[0], w.binary("shl", w.resized(half, 32), w.constant(32, 16)))
    else:
        raise UnsupportedError
