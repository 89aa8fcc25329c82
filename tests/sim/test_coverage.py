"""Coverage of instructions: each one provided is executed, see `coverage`."""

from __future__ import annotations

import pytest

from cutepy.sim.ptx.tokens import PtxSyntaxError
from cutepy.sim.translate.emitter import refused_modifier
from tests.messages import refuses
from tests.sim import opcode_runner
from tests.sim.coverage import LISTED, missing, provided, recording


def test_every_listed_spelling_is_known():
    assert len(LISTED) == 210
    refused = {spelling: refused_modifier(spelling) for spelling in LISTED}
    assert not {spelling: part for spelling, part in refused.items() if part is not None}


@pytest.mark.parametrize("name", ["mul24", "add.s64", "mma.sync.aligned"])
def test_what_is_not_executed_is_missing(name):
    assert name in provided()
    assert missing(set(provided())) == []
    assert missing(set(provided()) - {name}) == [name]


def test_only_what_ran_is_recorded():
    """Instructions behind a branch that no lane takes, and those of the runner, do not count."""
    with recording() as executed:
        opcode_runner.launch("bra.uni END;\nadd.f32 %f1, %f1, %f1;\nEND: abs.f32 %f1, %f1;", after="neg.f32 %f1, %f1;")
    assert executed == {"bra.uni", "abs.f32"}


def test_a_test_that_fails_to_reach_its_instruction_is_not_covered():
    with recording() as executed, refuses(PtxSyntaxError):
        opcode_runner.launch("frobnicate.b32 %r1;", assembles=False)
    assert executed == set()
