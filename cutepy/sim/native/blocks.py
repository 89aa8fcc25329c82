"""Basic blocks in pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cutepy.sim.native.pieces import CALL_COST, LANE_COST, Piece, is_native, is_native_store, weight
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.translate import Program, translate_end, translate_run
from cutepy.sim.translate.effects import read, written

_LEAST = 20
"""The weight of a piece that is worth a call."""

_WORTH = 0.05
"""Seconds, about, that a block takes before it is cut into pieces."""

BlockFunction = Callable[[Any, list[Any], Any], int]


def hot_blocks(program: Program) -> list[BlockFunction]:
    """Return the functions of a program's blocks, which become machine code where they take long."""
    if not program.hot:
        program.hot += [_hot(program, number) for number in range(len(program.blocks))]
    return program.hot


def _hot(program: Program, number: int) -> BlockFunction:
    instructions, whole = program.flow.blocks[number].instructions, program.blocks[number]
    if not instructions:
        return whole
    return HotBlock(whole, weight(instructions), lambda: in_pieces(program, number))


class HotBlock:
    """A block's translation, which is replaced by pieces once it has taken long.

    Parameters
    ----------
    whole : callable
        The translation.
    size : int
        Instructions.
    pieces : callable
        Makes the pieces.
    """

    def __init__(self, whole: BlockFunction, size: int, pieces: Callable[[], BlockFunction]) -> None:
        self._now = whole
        self._size = size
        self._pieces: Callable[[], BlockFunction] | None = pieces
        self._cost = 0.0

    def __call__(self, g: Any, registers: list[Any], m: Any) -> int:  # noqa: ANN401
        """Run."""
        if self._pieces is not None:
            self._cost += self._size * (CALL_COST + g.ctas.count * g.threads.count * LANE_COST)
            if self._cost > _WORTH:
                self._now, self._pieces = self._pieces(), None
        return self._now(g, registers, m)


def in_pieces(program: Program, number: int) -> BlockFunction:
    """Return a function that runs a block in pieces; numpy's own if none is worth it."""
    block, kinds = program.flow.blocks[number], program.kinds
    cuts = _cuts(block.instructions, kinds, set(program.sets_with))
    # A call is the end of its block, and says where that goes on.
    calls = any(i.parts[0] == "call" for i in block.instructions)
    if calls or not any(kind for kind, _ in cuts) or f"ERROR_{number}" in program.names:
        return program.blocks[number]
    finish, later = translate_end(program, number)
    if block.condition is not None:
        later.add(block.condition[0].index)
    pieces: list[Callable[[Any, list[Any], Any], int | None]] = []
    for kind, instructions in reversed(cuts):
        outputs = sorted({r.index for i in instructions for r in written(i)} & later)
        numpy = translate_run(program, instructions, set(outputs))
        pieces.insert(0, Piece(numpy, instructions, outputs, kinds, kind == "store") if kind else numpy)
        later |= {r.index for i in instructions for r in read(i)}

    def run(g: Any, registers: list[Any], m: Any) -> int:  # noqa: ANN401
        for piece in pieces:
            found = piece(g, registers, m)
            if found is not None:
                return found
        return finish(g, registers, m)

    return run


def _cuts(
    instructions: Sequence[Instruction], kinds: list[str], avoided: set[int]
) -> list[tuple[str, list[Instruction]]]:
    """Cut into runs: of native ones, of stores, each alone, and of others, whose kind is empty."""
    cuts: list[tuple[str, list[Instruction]]] = []
    if any("cc" in i.parts or i.parts[0] in ("addc", "subc", "madc") for i in instructions):
        return [("", list(instructions))]
    for i in instructions:
        if any(r.index in avoided for r in (*read(i), *written(i))):
            kind = ""
        elif i.parts[0] == "st":
            kind = "store" if is_native_store(i, kinds) else ""
        else:
            kind = "run" if is_native(i, kinds) else ""
        if cuts and cuts[-1][0] == kind and kind != "store":
            cuts[-1][1].append(i)
        else:
            cuts.append((kind, [i]))
    joined: list[tuple[str, list[Instruction]]] = []
    for kind, run in cuts:
        kept = "" if kind == "run" and weight(run) < _LEAST else kind
        if joined and not joined[-1][0] and not kept:
            joined[-1][1].extend(run)
        else:
            joined.append((kept, run))
    return joined
