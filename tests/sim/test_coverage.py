"""Every PTX spelling that public Hopper kernels use has a test that executes it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from cutepy.sim.translate.emitter import refused_modifier
from tests.sim import coverage_table, opcode_runner

HERE = Path(__file__).parent
LISTED = [line.split()[1] for line in (HERE / "ptx_opcodes.txt").read_text().splitlines() if not line.startswith("#")]


def untested(spellings: list[str], table: dict[str, tuple[str, ...]]) -> list[str]:
    """Return the spellings that no test executes."""
    return [spelling for spelling in spellings if not table.get(spelling)]


def test_every_listed_spelling_has_a_test():
    assert len(LISTED) == 210
    missing = untested(LISTED, coverage_table.by_spelling())
    assert not missing, f"no test executes {', '.join(missing)}; write one, then {coverage_table.COMMAND}"


def test_every_listed_spelling_is_known():
    refused = {spelling: refused_modifier(spelling) for spelling in LISTED}
    assert not {spelling: part for spelling, part in refused.items() if part is not None}


def test_the_table_names_tests_that_exist():
    """Rows of tests that were renamed or removed are found here; each test checks its own rows as it runs."""
    functions: dict[str, set[str]] = {}
    for test in coverage_table.by_test():
        file, _, name = test.partition("::")
        if file not in functions:
            assert (HERE / file).exists(), f"{file} is gone; write the table anew: {coverage_table.COMMAND}"
            tree = ast.parse((HERE / file).read_text())
            functions[file] = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name.partition("[")[0] in functions[file], (
            f"{test} is gone; write the table anew: {coverage_table.COMMAND}"
        )


def test_the_check_can_fail():
    assert untested(["add.s32", "no.such.spelling"], {"add.s32": ("test",)}) == ["no.such.spelling"]


def test_only_what_ran_is_recorded():
    """Instructions behind a branch that no lane takes, and those of the runner, do not count."""
    opcode_runner.launch("bra.uni END;\nadd.f32 %f1, %f1, %f1;\nEND: abs.f32 %f1, %f1;", after="neg.f32 %f1, %f1;")
    assert opcode_runner.executed == {"bra.uni", "abs.f32"}


def test_a_test_that_fails_to_reach_its_instruction_is_not_covered():
    with pytest.raises(Exception, match="does not know"):
        opcode_runner.launch("frobnicate.b32 %r1;", assembles=False)
    assert opcode_runner.executed == set()
