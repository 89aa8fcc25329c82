"""Matrices of warps: mma, wmma, and the transposition of a matrix in registers.

References
----------
PTX ISA, "Warp Level Matrix Instructions": wmma.load, wmma.store, wmma.mma, mma, mma.sp, movmatrix.
"""

from __future__ import annotations

import re

from cutepy.sim.arithmetic.fragments import BITS, Fragment, Product
from cutepy.sim.ptx.model import Immediate, Instruction, Operand
from cutepy.sim.semantics.types import kind_of
from cutepy.sim.translate.emitter import Emitter, instruction
from cutepy.sim.translate.memory import space_of

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")


def _shape(i: Instruction) -> tuple[int, int, int]:
    m, n, k = next(match.groups() for part in i.parts if (match := _SHAPE.fullmatch(part)))
    return int(m), int(n), int(k)


def _product(e: Emitter, i: Instruction, selector: int | None = None) -> Product:
    parts = i.parts
    types = [p for p in parts if p in BITS]
    if len(types) == 2:
        types = [types[0], "f16", "f16", types[1]]  # wmma tells those of A and B where they may differ
    d, a, b, c = types
    bits = next((p for p in parts if p in ("xor", "and")), "")
    if "popc" in parts and a != "b1":
        raise e.unknown(f".popc of {a}, which only ptxas takes")
    first, second = (p for p in parts if p in ("row", "col"))
    kind = next((p.removeprefix("kind::") for p in parts if p.startswith("kind::")), "")
    count = next((int(p[-2]) for p in parts if p.startswith("scale_vec")), _SCALES.get(kind, 0))
    scale_type = parts[-1] if count else ""
    return Product(
        *_shape(i), d, a, b, c, "satfinite" in parts, bits, (first, second), selector, kind, count, scale_type
    )


_SCALES = {"mxf8f6f4": 1, "mxf4": 2}
"""Scale factors of a row where the opcode does not say it."""


def _multiply(e: Emitter, i: Instruction, p: Product, metadata: str = "") -> None:
    kind = "f8" if p.a == "f64" else "u4"
    d, *operands = i.operands[:4]
    arguments = ", ".join(e.read_all(operand, kind) for operand in operands)
    scales = [_scales(e, *pair) for pair in (i.operands[-4:-2], i.operands[-2:])] if p.scales else []
    more = f"{metadata or '()'}, ({', '.join(scales)})" if scales else metadata
    name = e.constant(p, f"PRODUCT_{i.index}")
    result = e.temporary(f"m.mma.multiply(g, {e.site}, {name}, {arguments}{more and ', ' + more})")
    for position, item in enumerate(e.items(d)):
        e.write(item, f"{result}[{position}]", kind)


def _scales(e: Emitter, data: Operand, selectors: Operand) -> str:
    (factors,), (byte, thread) = e.items(data), e.items(selectors)
    return f"({e.read(factors, 'u4')}, {e.read(byte, 'u2')}, {e.read(thread, 'u2')})"


@instruction("mma.sync.aligned", refuses="or rz rm rp")
def _mma(e: Emitter, i: Instruction) -> None:
    _multiply(e, i, _product(e, i))


@instruction("mma.sp.sync.aligned", "mma.sp::ordered_metadata.sync.aligned")
def _mma_sparse(e: Emitter, i: Instruction) -> None:
    selector = i.operands[5]
    assert isinstance(selector, Immediate)
    _multiply(e, i, _product(e, i, selector.value), f"({e.read(i.operands[4], 'u4')},)")


@instruction("wmma.mma")
def _wmma_mma(e: Emitter, i: Instruction) -> None:
    if {"rz", "rm", "rp"} & set(i.parts):
        raise e.refused("wmma of f64 is rounded to nearest only here; use .rn")
    _multiply(e, i, _product(e, i))


@instruction("wmma.load")
def _wmma_load(e: Emitter, i: Instruction) -> None:
    destination, address, *stride = i.operands
    fragment = _fragment(i)
    kind = "f8" if fragment.kind == "f64" else "u4"
    name = e.constant(fragment, f"FRAGMENT_{i.index}")
    call = f"m.wmma.load(g, {e.site}, {name}, {space_of(i)!r}, {e.address(address)}, {_stride(e, stride)})"
    e.write_all(destination, call, kind)


@instruction("wmma.store")
def _wmma_store(e: Emitter, i: Instruction) -> None:
    address, source, *stride = i.operands
    fragment = _fragment(i)
    name = e.constant(fragment, f"FRAGMENT_{i.index}")
    values = e.read_all(source, "f8" if fragment.kind == "f64" else "u4")
    e.emit(f"m.wmma.store(g, {e.site}, {name}, {space_of(i)!r}, {e.address(address)}, {_stride(e, stride)}, {values})")


def _stride(e: Emitter, stride: list[Operand]) -> str:
    return "".join(e.read(one, "u4") for one in stride) or "None"


def _fragment(i: Instruction) -> Fragment:
    major = next(p for p in i.parts if p in ("row", "col"))
    return Fragment(i.parts[2], *_shape(i), i.parts[-1], major)


@instruction("movmatrix.sync.aligned.m8n8.trans")
def _movmatrix(e: Emitter, i: Instruction) -> None:
    e.write(i.operands[0], f"m.wmma.transpose(g, {e.site}, {e.read(i.operands[1], kind_of('b32'))})", "u4")
