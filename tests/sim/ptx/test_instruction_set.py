"""The table of instructions: its words are explained, and each instruction that runs, or is spelled, has a row."""

import pytest

from cutepy.sim.ptx.instruction_set import CLASSES, EFFECTS, ROWS, traits
from cutepy.sim.semantics import MEANINGS
from cutepy.sim.translate.emitter import provided


def test_the_words_of_rows_are_those_that_are_explained():
    assert {effect for row in ROWS.values() for effect in row.effects} == set(EFFECTS)
    assert {row.kind for row in ROWS.values()} | {"float", "integer"} == {*CLASSES, "arithmetic"}


def test_each_instruction_has_a_row():
    assert [name for name in (*provided(), *MEANINGS) if not traits(name).is_known] == []


@pytest.mark.parametrize("name", sorted(MEANINGS))
def test_an_instruction_with_a_meaning_is_plain(name):
    assert traits(name).is_plain


@pytest.mark.parametrize(
    ("opcode", "loads", "stores"),
    [("ldmatrix.sync.aligned.m8n8.x4.b16", ("shared",), ()), ("something.new", ("generic",), ("generic",))],
)
def test_state_spaces_of_opcodes_that_name_none(opcode, loads, stores):
    assert (traits(opcode).loads, traits(opcode).stores) == (loads, stores)
