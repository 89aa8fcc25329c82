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
_MMA_SHAPES = {
    (8, 8, 4): "f16 f64",
    (16, 8, 4): "tf32 f64",
    (16, 8, 8): "f16 bf16 tf32 f64",
    (16, 8, 16): "f16 bf16 s8 u8 e4m3 e5m2 f64",
    (16, 8, 32): "s8 u8 s4 u4 e4m3 e5m2",
    (8, 8, 16): "s8 u8",
    (8, 8, 32): "s4 u4",
    (16, 8, 64): "s4 u4",
    (8, 8, 128): "b1",
    (16, 8, 128): "b1",
    (16, 8, 256): "b1",
}
_SPARSE_SHAPES = {
    (16, 8, 8): "tf32",
    (16, 8, 16): "f16 bf16 tf32",
    (16, 8, 32): "f16 bf16 s8 u8",
    (16, 8, 64): "s8 u8 s4 u4 e4m3 e5m2",
    (16, 8, 128): "s4 u4",
}
_WMMA_SHAPES = {
    (16, 16, 16): "f16 bf16 s8 u8",
    (8, 32, 16): "f16 bf16 s8 u8",
    (32, 8, 16): "f16 bf16 s8 u8",
    (16, 16, 8): "tf32",
    (8, 8, 4): "f64",
    (8, 8, 32): "s4 u4",
    (8, 8, 128): "b1",
}
_NAMES = " ".join(sorted({f"m{m}n{n}k{k}" for m, n, k in (*_MMA_SHAPES, *_SPARSE_SHAPES, *_WMMA_SHAPES)}))
_MODIFIERS = f"{_NAMES} row col satfinite xor and popc tf32 s4 u4 rn"


def _shape(e: Emitter, i: Instruction, known: dict[tuple[int, int, int], str], kind: str) -> tuple[int, int, int]:
    match = _SHAPE.search(i.opcode)
    shape = (int(match[1]), int(match[2]), int(match[3])) if match else (0, 0, 0)
    if kind not in known.get(shape, "").split():
        raise e.unknown("this shape or these types")
    return shape


def _words(e: Emitter, operand: Operand, kind: str) -> str:
    return f"({', '.join(e.read(item, kind) for item in e.items(operand))},)"


def _product(
    e: Emitter, i: Instruction, known: dict[tuple[int, int, int], str], selector: int | None = None
) -> Product:
    parts = i.parts
    types = [p for p in parts if p in BITS]
    if parts[0] == "wmma" and len(types) == 2:
        types = [types[0], "f16", "f16", types[1]]  # those of A and B are told where they may differ
    if len(types) != 4:
        raise e.unknown("this shape or these types")
    d, a, b, c = types
    m, n, k = _shape(e, i, known, a)
    if (
        b not in known[m, n, k].split()
        or BITS[b] != BITS[a]
        or (c != d and not (parts[0] == "wmma" or (m, n, k) == (8, 8, 4)))
    ):
        raise e.unknown("this shape or these types")
    bits = next((p for p in parts if p in ("xor", "and")), "")
    if "popc" in parts and a != "b1":
        raise e.unknown(f".popc of {a}, which only ptxas takes")
    first, second, *_ = [p for p in parts if p in ("row", "col")]
    is_told = (m, n, k, a) == (8, 8, 4, "f16")
    if (first, second) != ("row", "col") and parts[0] == "mma" and not is_told:
        raise e.unknown("A must be .row and B .col")
    return Product(m, n, k, d, a, b, c, "satfinite" in parts, bits, (first, second), selector)


def _multiply(e: Emitter, i: Instruction, p: Product, metadata: str = "") -> None:
    kind = "f8" if p.a == "f64" else "u4"
    d, *operands = i.operands[:4]
    arguments = ", ".join(_words(e, operand, kind) for operand in operands)
    name = e.constant(p, f"PRODUCT_{i.index}")
    result = e.temporary(f"m.mma.multiply(g, {e.site}, {name}, {arguments}{metadata})")
    for position, item in enumerate(e.items(d)):
        e.write(item, f"{result}[{position}]", kind)


@instruction("mma.sync.aligned", accepts=_MODIFIERS)
def _mma(e: Emitter, i: Instruction) -> None:
    _multiply(e, i, _product(e, i, _MMA_SHAPES))


@instruction("mma.sp.sync.aligned", "mma.sp::ordered_metadata.sync.aligned", accepts=_MODIFIERS)
def _mma_sparse(e: Emitter, i: Instruction) -> None:
    selector = i.operands[5]
    assert isinstance(selector, Immediate)
    _multiply(e, i, _product(e, i, _SPARSE_SHAPES, selector.value), f", ({e.read(i.operands[4], 'u4')},)")


@instruction("wmma.mma", accepts=f"{_MODIFIERS} sync aligned rz rm rp")
def _wmma_mma(e: Emitter, i: Instruction) -> None:
    if {"rz", "rm", "rp"} & set(i.parts):
        raise e.refused("wmma of f64 is rounded to nearest only here; use .rn")
    _multiply(e, i, _product(e, i, _WMMA_SHAPES))


_PLACES = "sync aligned row col global shared shared::cta shared::cluster a b c d s4 u4"


@instruction("wmma.load", accepts=f"{_NAMES} {_PLACES}")
def _wmma_load(e: Emitter, i: Instruction) -> None:
    destination, address, *stride = i.operands
    fragment = _fragment(e, i, i.parts[2])
    kind = "f8" if fragment.kind == "f64" else "u4"
    name = e.constant(fragment, f"FRAGMENT_{i.index}")
    result = e.temporary(
        f"m.wmma.load(g, {e.site}, {name}, {space_of(i)!r}, {e.address(address)}, {_stride(e, stride)})"
    )
    for position, item in enumerate(e.items(destination)):
        e.write(item, f"{result}[{position}]", kind)


@instruction("wmma.store", accepts=f"{_NAMES} {_PLACES}")
def _wmma_store(e: Emitter, i: Instruction) -> None:
    address, source, *stride = i.operands
    fragment = _fragment(e, i, i.parts[2])
    name = e.constant(fragment, f"FRAGMENT_{i.index}")
    values = _words(e, source, "f8" if fragment.kind == "f64" else "u4")
    e.emit(f"m.wmma.store(g, {e.site}, {name}, {space_of(i)!r}, {e.address(address)}, {_stride(e, stride)}, {values})")


def _stride(e: Emitter, stride: list[Operand]) -> str:
    return "".join(e.read(one, "u4") for one in stride) or "None"


def _fragment(e: Emitter, i: Instruction, operand: str) -> Fragment:
    kind = i.parts[-1]
    match = _SHAPE.search(i.opcode)
    shape = (int(match[1]), int(match[2]), int(match[3])) if match else (0, 0, 0)
    allowed = {
        "f16": "f16 f32",
        "bf16": "f32",
        "tf32": "f32",
        "f64": "f64",
    }
    kinds = _WMMA_SHAPES.get(shape, "").split()
    if operand in "cd":
        kinds = sorted({one for k in kinds for one in allowed.get(k, "s32").split()})
    major = next(p for p in i.parts if p in ("row", "col"))
    if kind not in kinds or (BITS[kind] < 8 and major != ("col" if operand == "b" else "row")):
        raise e.unknown("this shape or these types")
    return Fragment(operand, *shape, kind, major)


@instruction("movmatrix.sync.aligned.m8n8.trans")
def _movmatrix(e: Emitter, i: Instruction) -> None:
    if i.parts[-1] != "b16":
        raise e.unknown("only b16")
    e.write(i.operands[0], f"m.wmma.transpose(g, {e.site}, {e.read(i.operands[1], kind_of('b32'))})", "u4")
