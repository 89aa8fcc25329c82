"""`cutepy bench compile`: what it prints, and that what it measures keeps to its limits."""

import json

import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")
pytest.importorskip("cutlass")

from cutepy.cli.app import app
from cutepy.suites import compilation
from cutepy.suites.compilation import COLD, DECLARED, DSL, DSL_LINES, LIMITS_MS, OPS, WARM, Start


def test_medians_and_ratios_are_printed(monkeypatch, tmp_path):
    times = {
        DSL: (0.5, 0.6, 0.9),
        DSL_LINES: (0.8, 0.8, 0.8),
        COLD: (0.7, 0.72, 2.0),
        WARM: (0.05,) * 3,
        DECLARED: (0.02,) * 3,
        OPS: (0.06,) * 3,
    }
    asked = []

    def measure(rounds):
        asked.append(rounds)
        return {name: [Start(s, s, name not in LIMITS_MS) for s in spent] for name, spent in times.items()}

    monkeypatch.setattr(compilation, "measure", measure)
    monkeypatch.setenv("COLUMNS", "160")
    result = CliRunner().invoke(app, ["bench", "compile", "--rounds", "3", "--json", str(tmp_path / "x.json")])
    assert result.exit_code == 0, result.output
    assert asked == [3]
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.output.splitlines() if "│" in line]
    assert rows == [
        [DSL, "600", "500 to 900", "1.00", "0.75", ""],
        [DSL_LINES, "800", "800 to 800", "1.33", "1.00", ""],
        [COLD, "720", "700 to 2000", "1.20", "0.90", "1.2 x"],
        [WARM, "50", "50 to 50", "", "", "200 ms"],
        [DECLARED, "20", "20 to 20", "", "", "60 ms"],
        [OPS, "60", "60 to 60", "", "", "150 ms"],
    ]
    saved = json.loads((tmp_path / "x.json").read_text())
    assert saved["wall_ms"][COLD] == pytest.approx([700, 720, 2000])
    assert "cores" in saved["environment"]["cpu"]


@pytest.mark.dsl
@pytest.mark.deep
def test_compiling_costs_little_more_than_the_dsls_own_and_finding_less():
    # The processor's time, and the least of it: other work on the machine slows everything at times. On a machine that
    # is busy, what reads much memory suffers most; hence the distance from the limits of `cutepy.suites.compilation`.
    starts = compilation.measure(rounds=4)
    best = {name: min(start.processor_s for start in found) for name, found in starts.items()}
    assert best[COLD] < 1.5 * best[DSL_LINES]
    assert best[COLD] < 1.9 * best[DSL]
    assert best[WARM] < 0.4 * best[DSL]
    assert best[OPS] < 0.4 * best[DSL]
    assert best[DECLARED] < 0.1 * best[DSL]
