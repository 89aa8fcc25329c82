"""The fuzz target at a size for every run: some changed texts and random programs; and that it can fail."""

import random

import pytest

from cutepy.binaries.ptxas import AssemblyError, find_ptxas
from cutepy.sim.machine import loaded_module
from tests.sim.fuzz import programs, statements, texts


def _has_ptxas():
    try:
        return bool(find_ptxas())
    except AssemblyError:
        return False


PTXAS = _has_ptxas()


@pytest.mark.parametrize("seed", range(4))
def test_changed_texts_are_modules_or_errors_with_their_place(seed):
    rng, text = random.Random(seed), texts.HANDWRITTEN.read_text()
    said = [texts.outcome(texts.changed(rng, text), translates=n % 8 == 0) for n in range(40)]
    assert any(said)
    assert not all(said)


@pytest.mark.parametrize("seed", range(2))
def test_random_statements_are_taken_or_errors_with_their_place(seed):
    rng, seeds = random.Random(seed), statements.of_files([texts.HANDWRITTEN.read_text()])
    said = [texts.outcome(statements.module(statements.changed(rng, seeds)), translates=False) for _ in range(300)]
    assert said.count("") > 60
    assert len(said) - said.count("") > 60


@pytest.mark.skipif(not PTXAS, reason="needs ptxas: pip install nvidia-cuda-nvcc")
def test_random_statements_are_taken_where_ptxas_takes_them():
    """Differences that are left are in `tests/sim/fuzz/differences.md`: none is among these."""
    rng, seeds = random.Random(5), statements.of_files([texts.HANDWRITTEN.read_text()])
    for _ in range(60):
        text = statements.module(statements.changed(rng, seeds))
        assert bool(texts.outcome(text, translates=False)) == bool(texts.refusal_of_ptxas(text)), text


@pytest.mark.parametrize("error", [KeyError("x"), RecursionError(), ValueError("no place")])
def test_another_outcome_is_a_mistake(error, monkeypatch):
    def fail(text, file):
        raise error

    monkeypatch.setattr(loaded_module, "load_module", fail)
    with pytest.raises(texts.RawError):
        texts.outcome("")


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_give_what_the_interpreter_gives(seed):
    assert not programs.difference(programs.random_program(random.Random(seed)))


def test_another_result_is_a_difference():
    program = programs.random_program(random.Random(1))
    program.text = program.text.replace("st.global.u64 [%out+0], %d0;", "st.global.u64 [%out+0], 5;")
    assert "expected" in programs.difference(program)
