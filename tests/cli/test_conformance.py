"""`cutepy tutorial --check`: every tensor equals its vector, and one that does not fails the command."""

import json
from importlib.resources import files
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cutepy.cli import conformance
from cutepy.cli.app import app

GOLDEN = Path(__file__).parents[1] / "golden"
RELEASES = {"4.7.0": "tutorial.jsonl", "3.5.1": "tutorial_cutlass351.jsonl"}


def vectors():
    return json.loads(files("cutepy.cli").joinpath("conformance.json").read_text())


def test_every_tensor_equals_its_vector():
    lines = []
    assert conformance.run(lines.append) == 0
    text = "\n".join(lines)
    assert "DIFFERS" not in text
    assert lines[-1] == "505 of 505 tensors and descriptors equal C++ CuTe's."
    for tensor in ("sA", "sB", "tCsA", "tCsB", "tCrA", "tCrB", "tCgC", "tCrC", "LBO", "SBO"):
        assert tensor in text


@pytest.mark.parametrize(
    "path", [("tCrC",), ("atoms", "K_SW64", "3.5.1", "tCsB"), ("atoms", "MN_SW32", "tCrB_at_0xc400", 1, 2, 3)]
)
def test_a_wrong_vector_fails_the_command(monkeypatch, path):
    wrong = vectors()
    node = wrong
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = "wrong"
    monkeypatch.setattr(conformance.json, "loads", lambda _: wrong)
    result = CliRunner().invoke(app, ["tutorial", "--check"])
    assert result.exit_code == 1
    assert "wrong  DIFFERS" in result.output
    assert "504 of 505 tensors" in result.output


@pytest.mark.parametrize("release", RELEASES)
def test_the_kept_vectors_are_the_references(release):
    kept = vectors()
    for line in (GOLDEN / RELEASES[release]).read_text().splitlines():
        row = json.loads(line)
        op, (name, *place), out = row["op"], row["in"], row["out"]
        atom = kept["atoms"][name]
        if op.startswith(("tCrA_desc@", "tCrB_desc@")):
            mn, k, stage = place
            assert atom[op.replace("_desc@", "_at_")][mn][stage][k] == out
        elif op.startswith("tCgC_"):
            order = "column" if "col" in op else "row"
            assert kept["tCgC"][str(place[0])][order] == out
        elif op == "tCrC":
            assert kept["tCrC"] == out
        elif op.startswith("mma_"):
            assert kept["mma"][op.removeprefix("mma_")] == out
        elif op in ("atom", "cosize_sA"):
            assert atom[op] == out
        elif op != "sA_tensor_layout":
            assert atom[release][op.removesuffix("_layout")] == out
