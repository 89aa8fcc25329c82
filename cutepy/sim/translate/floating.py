"""Floating point arithmetic, and the arithmetic instructions that integers share with it.

float32 and float64 follow IEEE 754 as PTX does. f16 is computed in float32 and rounded once, which is exact rounding
for one operation; bf16 likewise.

References
----------
PTX ISA, "Floating Point Instructions", "Half Precision Floating Point Instructions".
"""

from __future__ import annotations

from cutepy.sim.ptx.model import Instruction, Operand
from cutepy.sim.translate.emitter import Emitter, instruction, kind_of
from cutepy.sim.translate.integer import emit_integer

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_APPROXIMATE = {"ex2": "ex2", "lg2": "lg2", "rcp": "rcp", "rsqrt": "rsqrt", "tanh": "tanh", "sin": "sine", "cos": "cosine"}
_DIRECTED = {"rz", "rm", "rp"}


@instruction("add", "sub", "mul", "mad", "fma", "div", "rem", "min", "max", "neg", "abs")
def _arithmetic(e: Emitter, i: Instruction) -> None:
    if emit_integer(e, i):
        return
    kind = i.parts[-1]
    if kind in ("f32", "f64"):
        values = [e.read(s, kind_of(kind)) for s in i.operands[1:]]
        e.write(i.operands[0], _compute(e, i, values, kind), kind_of(kind))
    elif kind in ("f16", "bf16", "f16x2", "bf16x2"):
        _half(e, i, kind)
    else:
        raise e.unknown()


def _compute(e: Emitter, i: Instruction, values: list[str], kind: str) -> str:
    """Return the expression of an operation on values of a float kind."""
    operation, modifiers = i.parts[0], set(i.parts[1:-1])
    flush = "ftz" in modifiers and kind == "f32"
    if modifiers & _DIRECTED:
        raise e.unknown("directed rounding is not implemented")
    if flush:
        values = [f"alu.flush({v})" for v in values]
    if operation in _INFIX:
        text = f"{values[0]} {_INFIX[operation]} {values[1]}"
    elif operation in ("fma", "mad"):
        text = f"alu.fma({', '.join(values)})"
    elif operation == "neg":
        text = f"-{values[0]}"
    elif operation == "abs":
        text = f"abs_({values[0]})"
    elif operation in ("min", "max"):
        text = f"{operation}imum({values[0]}, {values[1]})" if "NaN" in modifiers else f"alu.{operation}imum({values[0]}, {values[1]})"
        for extra in values[2:]:
            text = f"alu.{operation}imum({text}, {extra})"
    else:
        raise e.unknown()
    if "sat" in modifiers:
        text = f"alu.saturate({text})"
    if "relu" in modifiers:
        text = f"alu.maximum({text}, {e.immediate(0, 'f4')})"
    return f"alu.flush({text})" if flush else text


def widen_halves(e: Emitter, operand: Operand, kind: str) -> list[str]:
    """Return the float32 values of an f16 or bf16 operand, or of both halves of a packed one."""
    name = kind.removesuffix("x2")
    if kind.endswith("x2"):
        bits = e.read(operand, "u4")
        halves = [f"{bits}.astype(u2)", f"({bits} >> 16).astype(u2)"]
    else:
        halves = [e.read(operand, "u2")]
    return [f"{h}.view(f2).astype(f4)" if name == "f16" else f"minifloat.bf16_to_f32({h})" for h in halves]


def narrow(expression: str, name: str) -> str:
    """Return the bits of float32 rounded to f16 or bf16."""
    return f"({expression}).astype(f2).view(u2)" if name == "f16" else f"minifloat.f32_to_bf16({expression})"


def pack(low: str, high: str) -> str:
    """Return two 16-bit values as one of 32."""
    return f"({low}).astype(u4) | (({high}).astype(u4) << 16)"


def _half(e: Emitter, i: Instruction, kind: str) -> None:
    name = kind.removesuffix("x2")
    wide = [widen_halves(e, s, kind) for s in i.operands[1:]]
    results = [narrow(_compute(e, i, [w[part] for w in wide], kind), name) for part in range(len(wide[0]))]
    if len(results) == 2:
        e.write(i.operands[0], pack(*results), "u4")
    else:
        e.write(i.operands[0], results[0], "u2")


@instruction("ex2", "lg2", "rcp", "rsqrt", "tanh", "sin", "cos", "sqrt")
def _function(e: Emitter, i: Instruction) -> None:
    operation, kind = i.parts[0], i.parts[-1]
    if kind in ("f32", "f64"):
        value = e.read(i.operands[1], kind_of(kind))
        flush = "ftz" in i.parts
        value = f"alu.flush({value})" if flush else value
        text = f"sqrt({value})" if operation == "sqrt" else f"alu.{_APPROXIMATE[operation]}({value})"
        e.write(i.operands[0], f"alu.flush({text})" if flush else text, kind_of(kind))
        return
    name = kind.removesuffix("x2")
    results = [narrow(f"alu.{_APPROXIMATE[operation]}({w})", name) for w in widen_halves(e, i.operands[1], kind)]
    e.write(i.operands[0], pack(*results) if len(results) == 2 else results[0], "u4" if len(results) == 2 else "u2")


@instruction("copysign")
def _copysign(e: Emitter, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    sign, magnitude = (e.read(s, kind) for s in i.operands[1:])
    e.write(i.operands[0], f"copysign({magnitude}, {sign})", kind)


@instruction("testp")
def _testp(e: Emitter, i: Instruction) -> None:
    a = e.read(i.operands[1], kind_of(i.parts[-1]))
    tests = {
        "finite": f"isfinite({a})",
        "infinite": f"isinf({a})",
        "number": f"~isnan({a})",
        "notanumber": f"isnan({a})",
        "normal": f"isfinite({a}) & (abs_({a}) >= finfo({a}.dtype).tiny)",
        "subnormal": f"(abs_({a}) < finfo({a}.dtype).tiny) & ({a} != 0)",
    }
    e.write(i.operands[0], tests[i.parts[1]], "pred")
