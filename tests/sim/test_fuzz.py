"""The fuzz target at a size for every run: some changed texts and random programs; and that it can fail."""

import random

import pytest

from cutepy.sim.machine import loaded_module
from tests.sim.fuzz import programs, texts


@pytest.mark.parametrize("seed", range(4))
def test_changed_texts_are_modules_or_errors_with_their_place(seed):
    rng, text = random.Random(seed), texts.HANDWRITTEN.read_text()
    said = [texts.outcome(texts.changed(rng, text), translates=n % 8 == 0) for n in range(40)]
    assert any(said)
    assert not all(said)


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
