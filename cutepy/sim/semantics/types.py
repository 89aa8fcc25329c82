"""Types of PTX as numpy's type codes ("kinds"), and constants of a kind."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from cutepy.sim.ptx.model import Immediate, Operand, Pair, Register, type_bits

_LETTERS = {"b": "u", "u": "u", "s": "i", "f": "f"}


@lru_cache(maxsize=1 << 10)
def kind_of(ptx_type: str) -> str:
    """Return the kind of a PTX type; packed and narrow float types are kinds of bits.

    Examples
    --------
    >>> [kind_of(t) for t in ("f32", "s16", "b64", "bf16", "f16x2", "pred")]
    ['f4', 'i2', 'u8', 'u2', 'u4', 'pred']
    """
    if ptx_type == "pred":
        return "pred"
    width = max(type_bits(ptx_type), 8) // 8
    if "x" in ptx_type or ptx_type.startswith(("bf", "tf", "e")):
        return f"u{width}"
    return f"{_LETTERS[ptx_type[0]]}{width}"


def ptx_name(kind: str) -> str:
    """Return a kind as PTX calls it: "b32" for "u4".

    Examples
    --------
    >>> ptx_name("u4"), ptx_name("f8"), ptx_name("pred")
    ('b32', 'f64', 'pred')
    """
    return kind if kind == "pred" else f"{dict(u='b', i='s', f='f')[kind[0]]}{8 * int(kind[1:])}"


def width(kind: str) -> int:
    """Return the bits of a kind."""
    return 1 if kind == "pred" else 8 * int(kind[1:])


def canonical_bits(register: Register) -> str:
    """Return the unsigned kind of a register's width."""
    return "pred" if register.type == "pred" else f"u{register.bits // 8}"


def is_integer(ptx_type: str) -> bool:
    """Return whether a PTX type is an integer or untyped bits, and not packed or a predicate."""
    return ptx_type[0] in "bus" and ptx_type[1:].isdigit()


def split_pair(operand: Operand) -> tuple[Operand, Operand | None]:
    """Split ``d|p`` into its two destinations."""
    return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, None)


def constant_bits(operand: Immediate, kind: str) -> int:
    """Return the bits of a constant, read as a kind.

    Examples
    --------
    >>> hex(constant_bits(Immediate(-1), "u2")), hex(constant_bits(Immediate(1), "f4"))
    ('0xffff', '0x3f800000')
    """
    value, bits = operand.value, width(kind)
    if kind == "pred":
        return int(bool(value))
    if operand.float_bits and operand.float_bits != bits:
        number = np.array(value, f"u{operand.float_bits // 8}").view(f"f{operand.float_bits // 8}")
        with np.errstate(over="ignore"):  # beyond the narrower type's largest number is infinity
            value = number.astype(f"f{bits // 8}").view(f"u{bits // 8}").item()
    elif kind[0] == "f" and not operand.float_bits:
        value = np.array(float(value), kind).view(f"u{bits // 8}").item()
    return value & (1 << bits) - 1
