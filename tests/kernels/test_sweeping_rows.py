"""The choice of threads of rows is found again from times."""

import json
from dataclasses import asdict

import pytest

pytest.importorskip("torch")
pytest.importorskip("cutlass")

from cutepy.kernels.rows.tiling import RowFit, tile_rows
from tests.kernels import sweeping_rows


@pytest.mark.parametrize("operation", sweeping_rows.FITS)
def test_every_tiling_that_is_chosen_is_tried(operation):
    for columns in sweeping_rows.COLUMNS:
        staged = sweeping_rows.staged_of(operation, columns)
        tried = sweeping_rows.tilings(operation, columns)
        assert tile_rows(columns, 8, sweeping_rows.FITS[operation], staged) in tried
        assert all(tiling.columns >= columns for tiling in tried)


def test_a_fit_is_found_by_the_times_of_its_tilings(tmp_path, capsys):
    journal, best = tmp_path / "times.jsonl", RowFit(16, 8, 256, 32, 16, 256)
    with journal.open("w") as lines:
        for columns in sweeping_rows.COLUMNS:
            fastest = tile_rows(columns, 8, best, sweeping_rows.staged_of("softmax", columns))
            for tiling in {fastest, *sweeping_rows.tilings("softmax", columns)}:
                entry = {"operation": "softmax", "columns": columns, "tiling": asdict(tiling)}
                lines.write(json.dumps(entry | {"us": 1.0 if tiling == fastest else 2.0}) + "\n")
    (times,) = sweeping_rows.read(journal).values()
    found = sweeping_rows.fitted("softmax", times)
    assert sweeping_rows.slowdown("softmax", times, found) == 1
    assert sweeping_rows.slowdown("softmax", times, sweeping_rows.FITS["softmax"]) > 1
    sweeping_rows.main(["--fit", str(journal)])
    assert f"softmax fitted {found}: 1.000" in capsys.readouterr().out
