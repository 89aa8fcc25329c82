"""Floating point arithmetic.

float32 and float64 follow IEEE 754 as PTX does. f16 and bf16 are computed in a wider type such that one rounding at
the end is exact (`floats.narrow_operation`).

References
----------
PTX ISA, "Floating Point Instructions", "Half Precision Floating Point Instructions".
"""

from __future__ import annotations

from cutepy.sim.ptx.model import Immediate, Instruction, Operand
from cutepy.sim.semantics.types import kind_of
from cutepy.sim.translate.emitter import Emitter, instruction

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_APPROXIMATE = {
    "ex2": "ex2",
    "lg2": "lg2",
    "rcp": "rcp",
    "rsqrt": "rsqrt",
    "tanh": "tanh",
    "sin": "sine",
    "cos": "cosine",
}
_ROUNDINGS = ("rn", "rz", "rm", "rp")
_OUT_OF_BOUNDS = "0x7FF7"
"""The NaN of 16 bits that stands for out of bounds, of either sign: what TMA fills in, as measured on an H200."""
_HALVES = ("f16", "bf16", "f16x2", "bf16x2")


def rounding_of(i: Instruction) -> str:
    """Return the rounding that an instruction names; to nearest even if none."""
    return next((p for p in i.parts[1:] if p in _ROUNDINGS), "rn")


@instruction("add", "sub", "mul", "mad", accepts="rn rz rm rp ftz sat")
@instruction("fma", accepts="rn rz rm rp ftz sat relu oob")
@instruction("div", accepts="rn rz rm rp ftz approx full")
@instruction("min", "max", accepts="ftz NaN relu xorsign abs")
@instruction("neg", "abs", accepts="ftz")
def _arithmetic(e: Emitter, i: Instruction) -> None:
    kind = i.parts[-1]
    if kind in ("f32", "f64"):
        if "oob" in i.parts:
            raise e.unknown(".oob is for 16-bit floats")
        values = [e.read(s, kind_of(kind)) for s in i.operands[1:]]
        e.write(i.operands[0], _compute(e, i, values, kind), kind_of(kind))
    elif kind in _HALVES and i.parts[0] in ("neg", "abs"):
        _half_sign(e, i, kind)
    elif kind in _HALVES:
        _half(e, i, kind)
    else:
        raise e.unknown()


def _compute(e: Emitter, i: Instruction, values: list[str], kind: str) -> str:
    """Return the expression of an operation on values of a float kind."""
    operation, modifiers = i.parts[0], set(i.parts[1:-1])
    flush = "ftz" in modifiers and kind == "f32"
    rounding = rounding_of(i)
    if flush:
        values = [e.temporary(f"floats.flush({v})") for v in values]
    if operation in ("min", "max"):
        text = _extreme(e, operation, modifiers, values)
    elif operation in ("fma", "mad"):
        name = "floats.fma(" if rounding == "rn" else f"floats.directed('fma', {rounding!r}, "
        text = f"{name}{', '.join(values)})"
    elif operation == "div" and modifiers & {"approx", "full"}:
        text = f"floats.div_approx({values[0]}, {values[1]}, {'full' in modifiers}, {flush})"
    elif operation in _INFIX and rounding != "rn":
        text = f"floats.directed({operation!r}, {rounding!r}, {values[0]}, {values[1]})"
    elif operation in _INFIX:
        text = f"{values[0]} {_INFIX[operation]} {values[1]}"
    elif operation == "neg":
        text = f"-{values[0]}"
    elif operation == "abs":
        text = f"abs_({values[0]})"
    else:
        raise e.unknown()
    if "sat" in modifiers:
        text = f"floats.saturate({text})"
    elif operation not in ("min", "max"):
        if kind == "f32":
            text = f"floats.canonical({text})"
        elif operation in ("add", "sub", "mul", "mad", "fma", "neg", "abs"):
            text = f"floats.last_nan({text}, {', '.join(values)})"
    if flush and (operation in ("mul", "fma", "mad") or (operation == "div" and not modifiers & {"approx", "full"})):
        name = "fma" if operation == "mad" else operation
        return f"floats.flush_tiny({text}, {name!r}, {rounding!r}, {', '.join(values)})"
    return f"floats.flush({text})" if flush else text


def _extreme(e: Emitter, operation: str, modifiers: set[str], values: list[str]) -> str:
    if len(values) != 2:
        raise e.unknown(f"{operation} of three values is not in sm_90")
    if "xorsign" in modifiers:
        a, b = (e.temporary(v) for v in values)
        values = [f"abs_({a})", f"abs_({b})"]
    text = f"floats.{operation}imum{'_nan' if 'NaN' in modifiers else ''}({values[0]}, {values[1]})"
    return f"floats.xor_sign({text}, {a}, {b})" if "xorsign" in modifiers else text


def half_bits(e: Emitter, operand: Operand, kind: str) -> list[str]:
    """Return the bits of an f16 or bf16 operand, or of both halves of a packed one."""
    name = kind.removesuffix("x2")
    if isinstance(operand, Immediate) and operand.float_bits:
        raise e.unknown("a float constant of 16 bits")
    if kind != name:
        bits = e.read(operand, "u4")
        return [f"{bits}.astype(u2)", f"({bits} >> 16).astype(u2)"]
    return [e.read(operand, "u2")]


def widen_halves(e: Emitter, operand: Operand, kind: str, flush: bool = False) -> list[str]:
    """Return the float32 values of an f16 or bf16 operand, or of both halves of a packed one."""
    halves = half_bits(e, operand, kind)
    if kind.startswith("b"):
        return [f"minifloat.bf16_to_f32({h})" for h in halves]
    return [f"floats.flush({h}.view(f2)).astype(f4)" if flush else f"{h}.view(f2).astype(f4)" for h in halves]


def narrow(expression: str, name: str, rounding: str = "rn") -> str:
    """Return the bits of a float rounded to f16 or bf16."""
    return f"minifloat.to_{name}({expression}{'' if rounding == 'rn' else f', {rounding!r}'})"


def pack(low: str, high: str) -> str:
    """Return two 16-bit values as one of 32."""
    return f"({low}).astype(u4) | (({high}).astype(u4) << 16)"


def write_halves(e: Emitter, destination: Operand, results: list[str]) -> None:
    """Write the bits of one value of 16 bits, or of two, packed."""
    if len(results) == 2:
        e.write(destination, pack(*results), "u4")
    else:
        e.write(destination, results[0], "u2")


def _half(e: Emitter, i: Instruction, kind: str) -> None:
    name, modifiers = kind.removesuffix("x2"), set(i.parts[1:-1])
    flush = "ftz" in modifiers
    if rounding_of(i) != "rn":
        raise e.unknown("16-bit floats are rounded to nearest only")
    wide = [widen_halves(e, s, kind, flush) for s in i.operands[1:]]
    results = []
    for part in range(len(wide[0])):
        values = [w[part] for w in wide]
        if i.parts[0] in ("min", "max"):
            text = _extreme(e, i.parts[0], modifiers, values)
        else:
            text = f"floats.narrow_operation({i.parts[0]!r}, {name!r}, {', '.join(values)})"
        if "sat" in modifiers:
            text = f"floats.saturate({text})"
        if "relu" in modifiers:
            text = f"floats.relu({text})"
        result = narrow(f"floats.flush_half({text})" if flush else text, name)
        if "oob" in modifiers:
            outside = [f"(({half_bits(e, s, kind)[part]} & 0x7FFF) == {_OUT_OF_BOUNDS})" for s in i.operands[1:3]]
            result = f"where({' | '.join(outside)}, 0, {result}).astype(u2)"
        results.append(result)
    write_halves(e, i.operands[0], results)


def _half_sign(e: Emitter, i: Instruction, kind: str) -> None:
    """Negate or take the absolute value: a matter of one bit, except for NaNs."""
    change = "^ 0x8000" if i.parts[0] == "neg" else "& 0x7FFF"
    halves = [e.temporary(bits) for bits in half_bits(e, i.operands[1], kind)]
    infinity = "0x7F80" if kind.startswith("b") else "0x7C00"
    results = [f"where(({bits} & 0x7FFF) > {infinity}, 0x7FFF, {bits} {change})" for bits in halves]
    if "ftz" in i.parts:
        results = [f"floats.flush(({bits}).view(f2)).view(u2)" for bits in results]
    write_halves(e, i.operands[0], results)


@instruction("rcp", "sqrt", accepts="rn rz rm rp ftz approx")
def _root(e: Emitter, i: Instruction) -> None:
    operation, kind = i.parts[0], i.parts[-1]
    value = e.read(i.operands[1], kind_of(kind))
    flush = "ftz" in i.parts
    if flush:
        value = e.temporary(f"floats.{'flush' if kind == 'f32' else 'upper_part'}({value})")
    if rounding_of(i) != "rn":
        text = f"floats.directed({operation!r}, {rounding_of(i)!r}, {value})"
    else:
        text = f"sqrt({value})" if operation == "sqrt" else f"floats.rcp({value})"
    if kind == "f32":
        text = f"floats.canonical({text})"
    if flush and operation == "rcp" and kind == "f32":
        text = f"floats.flush_tiny({text}, 'rcp', {rounding_of(i)!r}, {value})"
    elif flush:
        text = f"floats.{'flush' if kind == 'f32' else 'high_word'}({text})"
    e.write(i.operands[0], text, kind_of(kind))


@instruction("ex2", "lg2", "rsqrt", "tanh", "sin", "cos", accepts="approx ftz")
def _function(e: Emitter, i: Instruction) -> None:
    function, kind = f"floats.{_APPROXIMATE[i.parts[0]]}", i.parts[-1]
    flush = "ftz" in i.parts
    if kind in ("f32", "f64"):
        value = e.read(i.operands[1], kind_of(kind))
        if flush:
            value = f"floats.{'flush' if kind == 'f32' else 'upper_part'}({value})"
        text = f"{function}({value})"
        if kind == "f32":
            text = f"floats.canonical({text})"
        if flush:
            text = f"floats.{'flush' if kind == 'f32' else 'high_word'}({text})"
        e.write(i.operands[0], text, kind_of(kind))
    elif kind in _HALVES:
        name = kind.removesuffix("x2")
        results = [narrow(f"{function}({w})", name) for w in widen_halves(e, i.operands[1], kind)]
        if flush:  # bf16 has float32's range
            results = [f"where(({r} & 0x7F80) == 0, {r} & 0x8000, {r})" for r in map(e.temporary, results)]
        write_halves(e, i.operands[0], results)
    else:
        raise e.unknown()


@instruction("copysign")
def _copysign(e: Emitter, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    sign, magnitude = (e.read(s, kind) for s in i.operands[1:])
    e.write(i.operands[0], f"copysign({magnitude}, {sign})", kind)


@instruction("testp", accepts="finite infinite number notanumber normal subnormal")
def _testp(e: Emitter, i: Instruction) -> None:
    a = e.read(i.operands[1], kind_of(i.parts[-1]))
    tests = {
        "finite": f"isfinite({a})",
        "infinite": f"isinf({a})",
        "number": f"~isnan({a})",
        "notanumber": f"isnan({a})",
        # The ISA takes zeros for normal.
        "normal": f"isfinite({a}) & ((abs_({a}) >= finfo({a}.dtype).tiny) | ({a} == 0))",
        "subnormal": f"(abs_({a}) < finfo({a}.dtype).tiny) & ({a} != 0)",
    }
    e.write(i.operands[0], tests[i.parts[1]], "pred")
