"""mma.sync: the synchronous matrix multiply-accumulate of a warp, on fragments in registers.

References
----------
PTX ISA, "Warp Level Matrix Instructions: mma", "Matrix Fragments for mma.m16n8k4" to "mma.m16n8k32".
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from cutepy.layouts.sm90.arch import DTYPE_BITS
from cutepy.sim import floats
from cutepy.sim.deadlock import refuse_a_part
from cutepy.sim.lanes import WARP, Array
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.translate.emitter import Emitter, instruction
from cutepy.sim.wgmma import to_numbers

if TYPE_CHECKING:
    from cutepy.sim.group import Group
    from cutepy.sim.machine import Machine

M, N = 16, 8
_WORD = 32


@instruction("mma.sync.aligned", accepts="m16n8k4 m16n8k8 m16n8k16 m16n8k32 row col satfinite tf32")
def _mma(e: Emitter, i: Instruction) -> None:
    d, a, b, c = i.operands
    types = [p for p in i.parts if p in DTYPE_BITS][-4:]
    shape = re.search(r"m16n8k(\d+)\.row\.col", i.opcode)
    if shape is None or len(types) != 4 or types[0] != types[3] or types[0] not in ("f32", "f16", "s32"):
        raise e.unknown("this shape or these types")
    values = [", ".join(e.read(item, "u4") for item in e.items(operand)) for operand in (a, b, c)]
    names = f"{int(shape[1])}, {tuple(types[:3])}, {'satfinite' in i.parts}"
    call = f"m.mma.multiply(g, {e.site}, ({values[0]},), ({values[1]},), ({values[2]},), {names})"
    result = e.temporary(call)
    for position, item in enumerate(e.items(d)):
        e.write(item, f"{result}[{position}]", "u4")


@cache
def operand_index(rows: int, k: int, bits: int) -> Array:
    """Return (lane, element) -> position in a row-major (rows, K) matrix: A with 16 rows, B transposed with 8."""
    lane = np.arange(WARP)[:, None]
    pack = _WORD // bits
    halves = rows // 8
    register, part = np.divmod(np.arange(rows * k // WARP)[None, :], pack)
    row = lane // 4 + 8 * (register % halves)
    column = lane % 4 * pack + part + 4 * pack * (register // halves)
    position: Array = row * k + column
    return position


@cache
def accumulator_index() -> Array:
    """Return (lane, element) -> position in a row-major (16, 8) matrix."""
    lane, element = np.arange(WARP)[:, None], np.arange(4)[None, :]
    position: Array = (lane // 4 + 8 * (element // 2)) * N + lane % 4 * 2 + element % 2
    return position


class WarpMma:
    """Matrix products of warps."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def multiply(
        self,
        g: Group,
        i: Instruction,
        a: tuple[Array, ...],
        b: tuple[Array, ...],
        c: tuple[Array, ...],
        k: int,
        types: tuple[str, str, str],
        saturate: bool,
    ) -> list[Array]:
        """Return the registers of D = A B + C."""
        if not g.threads.full:
            refuse_a_part(self._machine, g, i, WARP, f"{i.opcode} needs all lanes of each warp")
        d, a_type, b_type = types
        left = self._matrix(g, a, a_type, operand_index(M, k, DTYPE_BITS[a_type])).reshape(-1, M, k)
        right = self._matrix(g, b, b_type, operand_index(N, k, DTYPE_BITS[b_type])).reshape(-1, N, k)
        product = np.matmul(left, right.swapaxes(1, 2)).reshape(g.ctas.count, -1, M * N)
        elements = product[:, :, accumulator_index()]
        addend = self._words(g, c).view({"f32": "f4", "s32": "i4", "f16": "f2"}[d])
        if d == "s32":
            total = elements.astype(np.int64) + addend
            result = (np.clip(total, -(2**31), 2**31 - 1) if saturate else total).astype(np.int32)
        else:
            result = floats.canonical(elements + addend.astype(np.float32)).astype(addend.dtype)
        words = np.ascontiguousarray(result).view(np.uint32).reshape(g.ctas.count, g.threads.count, -1)
        return [words[..., n] for n in range(words.shape[2])]

    def _words(self, g: Group, registers: tuple[Array, ...]) -> Array:
        """Return registers by (CTA, warp, lane, register)."""
        shape = (g.ctas.count, g.threads.count)
        words = np.stack([np.broadcast_to(r, shape) for r in registers], axis=-1)
        return np.ascontiguousarray(words).reshape(g.ctas.count, -1, WARP, len(registers))

    def _matrix(self, g: Group, registers: tuple[Array, ...], kind: str, index: Array) -> Array:
        elements = self._words(g, registers).view(f"u{DTYPE_BITS[kind] // 8}")
        matrix = np.empty((*elements.shape[:2], index.size), elements.dtype)
        matrix[:, :, index] = elements
        return to_numbers(matrix, kind)
