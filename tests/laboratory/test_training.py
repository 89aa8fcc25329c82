"""The training run without a GPU: steps of a small model, the comparison of losses, and the table."""

import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from tests.laboratory import training  # noqa: E402
from tests.laboratory.llama_model import LlamaConfig  # noqa: E402
from tests.laboratory.training import Contender, Run  # noqa: E402

SMALL = LlamaConfig(hidden=32, intermediate=48, layers=1, heads=4, key_heads=2, head=16)
DOCS = Path(__file__).parents[2] / "docs"


def losses(contender, steps=8):
    step = training.trainer(contender, SMALL, "cpu")
    tokens = training.batches(training.corpus(DOCS), (2, 16), contender.seed, "cpu")
    return [float(step(*next(tokens))) for _ in range(steps)]


@pytest.mark.integration
def test_losses_fall_from_the_same_weights_on_the_same_tokens(monkeypatch, capsys):
    monkeypatch.setattr(training, "RATE", 0.02)
    torchs, again, own = losses(Contender()), losses(Contender()), losses(Contender(replaces=True))
    assert "apply_rotary_pos_emb" in capsys.readouterr().out
    assert torchs == again
    assert math.isclose(torchs[0], math.log(256), rel_tol=0.02)
    assert torchs[-1] < torchs[0] - 0.5
    assert own[0] == pytest.approx(torchs[0], rel=1e-3)
    assert own == pytest.approx(torchs, rel=0.02)
    assert losses(Contender(seed=1), 1) != torchs[:1]


def runs(**others):
    parts = dict.fromkeys([*training.KINDS, "others", "none runs", "launches"], 2.0)
    curves = {"torch": [3.0] * 60, "torch, another seed": [3.1] * 60, **others}
    return {name: Run(losses, 7.0, parts) for name, losses in curves.items()}


def test_losses_beyond_the_noise_are_told():
    assert training.complaint(runs(cutepy=[3.05] * 60)) is None
    assert "further" in training.complaint(runs(cutepy=[3.05] * 20 + [3.3] * 40))
    assert "no numbers" in training.complaint(runs(cutepy=[3.0] * 59 + [math.nan]))


def test_the_table_has_losses_distances_and_parts():
    lines = training.table(runs(cutepy=[3.0] * 40 + [3.5] * 20)).splitlines()
    assert lines[3].split() == ["cutepy", "3.0000", "3.0000", "3.5000", "0.1667", "7"]
    assert lines[5].split()[3:] == [*training.KINDS, "others", "none", "runs", "launches"]
