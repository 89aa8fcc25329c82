"""mma.sync: the synchronous matrix multiply-accumulate of a warp, on fragments in registers.

References
----------
PTX ISA, "Warp Level Matrix Instructions: mma", "Matrix Fragments for mma.m8n8k4 with .f64 floating point type",
"Matrix Fragments for mma.m16n8k4" to "mma.m16n8k32".
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from cutepy.layouts.sm90.arch import DTYPE_BITS
from cutepy.sim.arithmetic import floats
from cutepy.sim.machine.deadlock import PartOfAUnit
from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.mechanisms.wgmma import to_numbers
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.translate.emitter import Emitter, instruction

if TYPE_CHECKING:
    from cutepy.sim.machine.group import Group

M, N = 16, 8
_WORD = 32


@instruction("mma.sync.aligned", accepts="m8n8k4 m16n8k4 m16n8k8 m16n8k16 m16n8k32 row col satfinite tf32")
def _mma(e: Emitter, i: Instruction) -> None:
    d, a, b, c = i.operands
    types = [p for p in i.parts if p in DTYPE_BITS][-4:]
    shape = re.search(r"m16n8k(\d+)\.row\.col", i.opcode)
    if types == ["f64"] * 4:
        _mma_f64(e, i)
        return
    if shape is None or len(types) != 4 or types[0] != types[3] or types[0] not in ("f32", "f16", "s32"):
        raise e.unknown("this shape or these types")
    values = [", ".join(e.read(item, "u4") for item in e.items(operand)) for operand in (a, b, c)]
    names = f"{int(shape[1])}, {tuple(types[:3])}, {'satfinite' in i.parts}"
    call = f"m.mma.multiply(g, {e.site}, ({values[0]},), ({values[1]},), ({values[2]},), {names})"
    result = e.temporary(call)
    for position, item in enumerate(e.items(d)):
        e.write(item, f"{result}[{position}]", "u4")


def _mma_f64(e: Emitter, i: Instruction) -> None:
    shape = re.search(r"m(8n8k4|16n8k4|16n8k8|16n8k16)\.row\.col", i.opcode)
    if shape is None:
        raise e.unknown("this shape or these types")
    rows, k = (int(extent) for extent in shape[1].split("n8k"))
    a, b, c = (", ".join(e.read(item, "f8") for item in e.items(operand)) for operand in i.operands[1:])
    result = e.temporary(f"m.mma.multiply_f64(g, {e.site}, ({a},), ({b},), ({c},), {rows}, {k})")
    for position, item in enumerate(e.items(i.operands[0])):
        e.write(item, f"{result}[{position}]", "f8")


@cache
def operand_index(rows: int, k: int, bits: int) -> Array:
    """Return (lane, element) -> position in a row-major (rows, K) matrix: A with 8 or 16 rows, B transposed with 8."""
    lane = np.arange(WARP)[:, None]
    pack = max(1, _WORD // bits)
    halves = rows // 8
    register, part = np.divmod(np.arange(rows * k // WARP)[None, :], pack)
    row = lane // 4 + 8 * (register % halves)
    column = lane % 4 * pack + part + 4 * pack * (register // halves)
    position: Array = row * k + column
    return position


@cache
def accumulator_index(rows: int = M) -> Array:
    """Return (lane, element) -> position in a row-major (rows, 8) matrix."""
    lane, element = np.arange(WARP)[:, None], np.arange(rows * N // WARP)[None, :]
    position: Array = (lane // 4 + 8 * (element // 2)) * N + lane % 4 * 2 + element % 2
    return position


class WarpMma:
    """Matrix products of warps."""

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
        self._check_whole(g, i)
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

    def multiply_f64(
        self,
        g: Group,
        i: Instruction,
        a: tuple[Array, ...],
        b: tuple[Array, ...],
        c: tuple[Array, ...],
        rows: int,
        k: int,
    ) -> list[Array]:
        """Return the registers of D = A B + C in float64, summed in numpy's order."""
        self._check_whole(g, i)
        left = self._placed(self._words(g, a), operand_index(rows, k, 64)).reshape(-1, rows, k)
        right = self._placed(self._words(g, b), operand_index(N, k, 64)).reshape(-1, N, k)
        product = np.matmul(left, right.swapaxes(1, 2)).reshape(g.ctas.count, -1, rows * N)
        result = product[:, :, accumulator_index(rows)] + self._words(g, c)
        values = result.reshape(g.ctas.count, g.threads.count, -1)
        return [values[..., n] for n in range(values.shape[2])]

    def _check_whole(self, g: Group, i: Instruction) -> None:
        if not g.threads.full:
            raise PartOfAUnit(g, i, WARP, f"{i.opcode} needs all lanes of each warp")

    def _words(self, g: Group, registers: tuple[Array, ...]) -> Array:
        """Return registers by (CTA, warp, lane, register)."""
        shape = (g.ctas.count, g.threads.count)
        words = np.stack([np.broadcast_to(r, shape) for r in registers], axis=-1)
        return np.ascontiguousarray(words).reshape(g.ctas.count, -1, WARP, len(registers))

    def _matrix(self, g: Group, registers: tuple[Array, ...], kind: str, index: Array) -> Array:
        return to_numbers(self._placed(self._words(g, registers).view(f"u{DTYPE_BITS[kind] // 8}"), index), kind)

    def _placed(self, elements: Array, index: Array) -> Array:
        """Put the elements of fragments, by (CTA, warp, lane, element), where they are in a matrix."""
        matrix = np.empty((*elements.shape[:2], index.size), elements.dtype)
        matrix[:, :, index] = elements
        return matrix
