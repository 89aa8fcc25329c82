"""Declarations of registers."""

import pytest

from cutepy.sim.ptx.model import Register, Vector
from cutepy.sim.ptx.parser import parse_module

ENTRY = ".target sm_90a\n.visible .entry k() {{ {} ret; }}"


def instructions(body):
    return parse_module(ENTRY.format(body)).functions["k"].instructions


@pytest.mark.parametrize("letters", ["xyzw", "rgba"])
def test_a_vector_is_its_elements(letters):
    moves = " ".join(f"mov.s32 v.{x}, {n};" for n, x in enumerate(letters))
    *found, store, _ = instructions(f".reg .v4 .s32 v; .reg .b64 p; {moves} st.global.v4.s32 [p], v;")
    elements = [move.operands[0] for move in found]
    assert all(isinstance(e, Register) and e.type == "s32" for e in elements)
    assert len({e.index for e in elements}) == 4
    assert store.operands[1] == Vector(tuple(elements))


def test_a_vector_is_of_its_block():
    first, second, _ = instructions(
        "{ .reg .v2 .b32 v; mov.b32 v.x, 1; } { .reg .v2 .b32 v; mov.b32 v.x, 1; }"
    )  # fmt: skip
    assert first.operands[0] != second.operands[0]
