"""Arithmetic of floats.

float32 and float64 follow IEEE 754 as PTX does. f16 and bf16 are computed in a wider type such that one rounding at
the end is exact ("narrow_operation").

References
----------
PTX ISA, "Floating Point Instructions", "Half Precision Floating Point Instructions".
"""

from __future__ import annotations

from cutepy.sim.ptx.model import Immediate, Instruction, Operand
from cutepy.sim.semantics.builder import Builder, V, meaning
from cutepy.sim.semantics.types import kind_of

HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_ROUNDINGS = ("rn", "rz", "rm", "rp")
_OUT_OF_BOUNDS = 0x7FF7
"""The NaN of 16 bits that stands for out of bounds, of either sign: what TMA fills in, as measured on an H200."""
_NAN = 0x7FFF


def rounding_of(i: Instruction) -> str:
    """Return the rounding that an instruction names; to nearest even if none."""
    return next((p for p in i.parts[1:] if p in _ROUNDINGS), "rn")


def half_bits(b: Builder[V], operand: Operand, kind: str) -> list[V]:
    """Return the bits of an f16 or bf16 operand, or of both halves of a packed one."""
    if isinstance(operand, Immediate) and operand.float_bits:
        raise b.unknown("a float constant of 16 bits")
    if not kind.endswith("x2"):
        return [b.read(operand, "u2")]
    whole = b.read(operand, "u4")
    return [b.part(whole, 0, 16), b.part(whole, 16, 16)]


def widen_halves(b: Builder[V], operand: Operand, kind: str, flush: bool = False) -> list[V]:
    """Return the float32 values of an f16 or bf16 operand, or of both halves of a packed one."""
    name = kind.removesuffix("x2")
    bits = half_bits(b, operand, kind)
    if flush and name == "f16":
        bits = [b.floats("flush", 16, x) for x in bits]
    return [b.floats("widen", 32, x, given=(name,)) for x in bits]


def narrow(b: Builder[V], value: V, kind: str, rounding: str = "rn") -> V:
    """Return the bits of a float rounded to f16 or bf16."""
    return b.floats("narrow", 16, value, given=(kind.removesuffix("x2"), rounding))


def write_halves(b: Builder[V], destination: Operand, results: list[V]) -> None:
    """Write the bits of one value of 16 bits, or of two, packed."""
    b.write(destination, b.joined(*results) if len(results) == 2 else results[0])


@meaning("fma")
def arithmetic(b: Builder[V], i: Instruction) -> None:
    """Compute add, sub, mul, mad, fma, div, min, max, neg or abs of floats."""
    kind = i.parts[-1]
    if kind in ("f32", "f64"):
        values = [b.read(s, kind_of(kind)) for s in i.operands[1:]]
        b.write(i.operands[0], _computed(b, i, values))
    elif kind == "f32x2":
        pairs = [b.read(s, kind_of(kind)) for s in i.operands[1:]]
        b.write(i.operands[0], b.joined(*(_computed(b, i, [b.part(p, n, 32) for p in pairs]) for n in (0, 32))))
    elif i.parts[-2] == "f32":  # operands of 16 bits, of which all but the last are, and a result of float32
        *halves, last = i.operands[1:]
        values = [widen_halves(b, s, kind)[0] for s in halves]
        b.write(i.operands[0], _computed(b, i, [*values, b.read(last, "f4")]))
    elif i.parts[0] in ("neg", "abs"):
        _half_sign(b, i, kind)
    else:
        _half(b, i, kind)


def _computed(b: Builder[V], i: Instruction, values: list[V]) -> V:
    """Return the result of an operation on values of 32 or 64 bits."""
    operation, modifiers, bits = i.parts[0], {*i.parts[1:-1]}, values[0].bits
    operation = "fma" if operation == "mad" else operation
    flush, rounding, approximate = "ftz" in modifiers and bits == 32, rounding_of(i), modifiers & {"approx", "full"}
    if flush:
        values = [b.floats("flush", bits, v) for v in values]
    if operation in ("min", "max"):
        value = _extreme(b, operation, modifiers, values)
    elif approximate:
        value = b.floats("div_approx", bits, *values, given=("full" in modifiers, flush))
    elif rounding != "rn":
        value = b.floats("directed", bits, *values, given=(operation, rounding))
    else:
        value = b.floats(operation, bits, *values)
    if "sat" in modifiers:
        value = b.floats("saturate", bits, value)
    elif bits == 32 and operation not in ("min", "max"):
        value = b.floats("canonical", bits, value)
    elif operation not in ("min", "max", "div"):
        value = b.floats("last_nan", bits, value, *values)
    if flush and not approximate and operation in ("mul", "fma", "div"):
        return b.floats("flush_tiny", bits, value, *values, given=(operation, rounding))
    return b.floats("flush", bits, value) if flush else value


def _extreme(b: Builder[V], operation: str, modifiers: set[str], values: list[V]) -> V:
    bits = values[0].bits
    name = operation + ("_nan" if "NaN" in modifiers else "")
    found, *others = [b.floats("abs", bits, x) for x in values] if "abs" in modifiers else values
    for other in others:
        found = b.floats(name, bits, found, other)
    return b.floats("xor_sign", bits, found, *values) if "xorsign" in modifiers else found


def _half(b: Builder[V], i: Instruction, kind: str) -> None:
    name, modifiers, operation = kind.removesuffix("x2"), {*i.parts[1:-1]}, i.parts[0]
    flush = "ftz" in modifiers
    if rounding_of(i) != "rn":
        raise b.unknown("16-bit floats are rounded to nearest only")
    wide = [widen_halves(b, s, kind, flush) for s in i.operands[1:]]
    results = []
    for part, values in enumerate(zip(*wide, strict=True)):
        if operation in ("min", "max"):
            value = _extreme(b, operation, modifiers, [*values])
        else:
            value = b.floats("narrow_operation", 32, *values, given=(operation, name))
        for modifier, limit in (("sat", "saturate"), ("relu", "relu"), ("ftz", "flush_half")):
            value = b.floats(limit, 32, value) if modifier in modifiers else value
        result = narrow(b, value, name)
        if "oob" in modifiers:
            bits = (half_bits(b, s, kind)[part] for s in i.operands[1:3])
            first, second = (
                b.compare("eq", b.and_(x, b.constant(16, 0x7FFF)), b.constant(16, _OUT_OF_BOUNDS)) for x in bits
            )
            result = b.select(b.or_(first, second), b.constant(16, 0), result)
        results.append(result)
    write_halves(b, i.operands[0], results)


def _half_sign(b: Builder[V], i: Instruction, kind: str) -> None:
    """Negate or take the absolute value: a matter of one bit, except for NaNs."""
    size, sign = b.constant(16, 0x7FFF), b.constant(16, 0x8000)
    infinity = b.constant(16, 0x7F80 if kind.startswith("b") else 0x7C00)
    results = []
    for bits in half_bits(b, i.operands[1], kind):
        changed = b.xor(bits, sign) if i.parts[0] == "neg" else b.and_(bits, size)
        result = b.select(b.compare("ugt", b.and_(bits, size), infinity), b.constant(16, _NAN), changed)
        results.append(b.floats("flush", 16, result) if "ftz" in i.parts else result)
    write_halves(b, i.operands[0], results)


@meaning("rcp", "sqrt", "ex2", "lg2", "rsqrt", "tanh", "sin", "cos")
def _function(b: Builder[V], i: Instruction) -> None:
    operation, kind, flush, rounding = i.parts[0], i.parts[-1], "ftz" in i.parts, rounding_of(i)
    if kind in HALVES:
        results = [narrow(b, b.floats(operation, 32, x), kind) for x in widen_halves(b, i.operands[1], kind)]
        if flush:  # bf16 has float32's range
            exponent, sign = b.constant(16, 0x7F80), b.constant(16, 0x8000)
            results = [b.select(b.is_zero(b.and_(r, exponent)), b.and_(r, sign), r) for r in results]
        write_halves(b, i.operands[0], results)
        return
    x = b.read(i.operands[1], kind_of(kind))
    bits, is_single = x.bits, kind == "f32"
    flush = flush and (is_single or "approx" in i.parts)  # rcp.rn.ftz.f64 is rcp.rn.f64
    if flush:  # of float64 the upper words are what is computed with
        x = b.floats("flush" if is_single else "upper_part", bits, x)
    given = () if rounding == "rn" else (operation, rounding)
    value = b.floats("directed" if given else operation, bits, x, given=given)
    if is_single:
        value = b.floats("canonical", bits, value)
    if flush and is_single and operation == "rcp" and given:
        value = b.floats("flush_tiny", bits, value, x, given=given)
    elif flush:
        value = b.floats("flush" if is_single else "high_word", bits, value)
    b.write(i.operands[0], value)


@meaning("copysign")
def _copysign(b: Builder[V], i: Instruction) -> None:
    sign, size = (b.read(s, kind_of(i.parts[-1])) for s in i.operands[1:])
    b.write(i.operands[0], b.floats("copysign", size.bits, size, sign))


@meaning("testp")
def _testp(b: Builder[V], i: Instruction) -> None:
    a = b.read(i.operands[1], kind_of(i.parts[-1]))
    size = b.and_(a, b.constant(a.bits, (1 << a.bits - 1) - 1))
    infinity = b.constant(a.bits, 0x7F800000 if a.bits == 32 else 0x7FF << 52)
    relation = {"finite": "ult", "infinite": "eq", "number": "ule", "notanumber": "ugt"}.get(i.parts[1])
    if relation is not None:
        b.write(i.operands[0], b.compare(relation, size, infinity))
        return
    is_small = b.compare("ult", size, b.constant(a.bits, 0x00800000 if a.bits == 32 else 1 << 52))
    is_subnormal = b.and_(is_small, b.invert(b.is_zero(size)))
    if i.parts[1] == "subnormal":
        b.write(i.operands[0], is_subnormal)
    else:  # the ISA takes zeros for normal
        b.write(i.operands[0], b.and_(b.compare("ult", size, infinity), b.invert(is_subnormal)))
