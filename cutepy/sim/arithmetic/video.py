"""Video instructions: arithmetic on bytes and halves of registers, selected, saturated, merged or accumulated.

References
----------
PTX ISA, "Scalar Video Instructions", "SIMD Video Instructions".
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}


@dataclass(frozen=True)
class Video:
    """A video instruction.

    Attributes
    ----------
    operation : str
        Such as "add", without the v and the number.
    d, a, b : str
        "u32" or "s32".
    select_a, select_b : str
        The part of a scalar operand, such as "h1", or which parts are the lanes of a SIMD operand; "" for all.
    part : str
        Of a scalar result, where it is put into c; of a SIMD one, the lanes that are written. "" for all.
    lanes : int
        1, 2 or 4.
    saturate : bool
    secondary : str
        "add", "min" or "max" with c, or nothing.
    comparison, mode : str
        Of vset; "clamp" or "wrap" of shifts.
    """

    operation: str
    d: str
    a: str
    b: str
    select_a: str = ""
    select_b: str = ""
    part: str = ""
    lanes: int = 1
    saturate: bool = False
    secondary: str = ""
    comparison: str = ""
    mode: str = ""


def scalar(v: Video, a: Array, b: Array, c: Array) -> Array:
    """Return the result of a scalar video instruction, of registers as uint32."""
    result = _operate(v, _part(a, v.select_a, v.a == "s32"), _part(b, v.select_b, v.b == "s32"))
    width = {"": 32, "b": 8, "h": 16}[v.part[:1]]
    if v.saturate:
        result = _saturated(result, width, v.d == "s32")
    if v.secondary:
        other = c.view(np.int32).astype(np.int64) if v.d == "s32" else c.astype(np.int64)
        whole = _low(result, 32, v.d == "s32") if v.secondary != "add" else result
        combine = {"add": np.add, "min": np.minimum, "max": np.maximum}[v.secondary]
        return _bits(combine(whole, other))
    if not v.part:
        return _bits(result)
    shift = width * int(v.part[1])
    mask = ((1 << width) - 1) << shift
    return _bits((result << shift) & mask | c.astype(np.int64) & ~mask)


def simd(v: Video, a: Array, b: Array, c: Array) -> Array:
    """Return the result of a SIMD video instruction, of registers as uint32."""
    width = 32 // v.lanes
    both = a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32)
    order = "".join(str(n) for n in range(2 * v.lanes)[::-1])
    choices = (v.select_a[1:] or order[v.lanes :], v.select_b[1:] or order[: v.lanes])
    written = [int(x) for x in v.part[1:]] if v.part else list(range(v.lanes))
    accumulated = v.secondary == "add"
    total = c.astype(np.int64)
    for lane in written:
        values = []
        for chosen, kind in zip(choices, (v.a, v.b), strict=True):
            shift = np.uint64(width * int(chosen[v.lanes - 1 - lane]))
            values.append(_low((both >> shift).astype(np.int64), width, kind == "s32"))
        result = _operate(v, *values)
        if v.saturate:
            result = _saturated(result, width, v.d == "s32")
        if accumulated:
            total = total + result
        else:
            mask = ((1 << width) - 1) << (width * lane)
            total = (result << (width * lane)) & mask | total & ~mask
    return _bits(total)


def multiply_add(
    v: Video, a: Array, b: Array, c: Array, negate_product: bool, negate_c: bool, plus_one: bool, scale: int
) -> Array:
    """Return the result of vmad: a product of parts, added to c, shifted and saturated."""
    signed = "s32" in (v.a, v.b) or negate_product or negate_c
    x, y = (_part(r, s, k == "s32").astype(object) for r, s, k in ((a, v.select_a, v.a), (b, v.select_b, v.b)))
    product = x * y
    addend = (c.view(np.int32) if signed else c).astype(object)
    if not plus_one:
        product = -product if negate_product else product
        addend = -addend if negate_c and not negate_product else addend
    total = (product + addend + int(plus_one)) >> scale
    if v.saturate:
        low, high = (-(2**31), 2**31 - 1) if signed else (0, 2**32 - 1)
        total = np.clip(total, low, high)
    return np.asarray((total % 2**32).astype(np.uint32))


def _operate(v: Video, a: Array, b: Array) -> Array:
    name = v.operation
    if name in ("add", "sub"):
        return a + b if name == "add" else a - b
    if name == "absdiff":
        return np.asarray(np.abs(a - b))
    if name in ("min", "max"):
        return np.asarray(np.minimum(a, b) if name == "min" else np.maximum(a, b))
    if name == "avrg":
        total = a + b
        return (total + (total >= 0)) >> 1
    if name == "set":
        return np.asarray(_COMPARISONS[v.comparison](a, b)).astype(np.int64)
    amount = b & 31 if v.mode == "wrap" else np.minimum(b, 32)
    return np.asarray(a << amount if name == "shl" else a >> amount)


def _part(register: Array, selector: str, signed: bool) -> Array:
    """Return the part of a register that a selector names, such as ".b3", as int64."""
    width = {"": 32, "b": 8, "h": 16}[selector[:1]]
    shift = width * int(selector[1:] or 0)
    return _low(register.astype(np.int64) >> shift, width, signed)


def _low(value: Array, width: int, signed: bool) -> Array:
    """Return the low bits of a value, as a number with or without a sign."""
    low = value & ((1 << width) - 1)
    return np.asarray(low - ((low >> (width - 1) & 1) << width) if signed else low)


def _saturated(value: Array, width: int, signed: bool) -> Array:
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    return np.clip(value, low, high)


def _bits(value: Array) -> Array:
    return np.asarray((value & 0xFFFFFFFF).astype(np.uint32))
