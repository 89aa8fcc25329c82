"""The runner of other people's kernels: what it finds, what it says of each case, and the table that it writes."""

import json

import pytest

from tests.sim.foreign import catalogue, processes, table
from tests.sim.foreign.__main__ import main
from tests.sim.foreign.child import judged
from tests.sim.foreign.processes import Choice, examine
from tests.sim.foreign.sources import sources

SCRIPTS = {
    "right.py": "import torch\nassert torch.ones(3, device='cuda').sum() == 3",
    "wrong.py": "import torch\nassert torch.ones(3, device='cuda').sum() == 4, 'three is not four\\n(of 3)'",
    "dies.py": "import os\nos.abort()",
    "waits.py": "import time\ntime.sleep(60)",
}
OUTCOMES = {
    "right.py": ("passed", ""),
    "wrong.py": ("wrong", "AssertionError: three is not four"),
    "dies.py": ("refused", "died with -6"),
    "waits.py": ("timed out", "after 8 s"),
}
TESTS = """
import os
import pytest
import torch

@pytest.mark.parametrize("size", [8, 8192, 16, 32])
def test_sizes(size):
    assert size <= 32 and torch.ones(size, device="cuda").is_cuda

@pytest.mark.parametrize("of", ["them", "all"])
def test_that_skips(of):
    pytest.skip("needs two GPUs")

@pytest.mark.parametrize("n", range(9))
def test_large(n):
    if n % 2:
        pytest.skip("odd" if n % 3 else "")
    assert n % 2

def test_that_dies():
    os.abort()

def test_last():
    pass
"""
PAGE = "# Page\n\n<!-- foreign: begin -->\nold\n<!-- foreign: end -->\n\nThe end.\n"


def examined(source, choice=None, done=()):
    found = []
    examine(source, choice or Choice(seconds=60), frozenset(done), found.append)
    return found


@pytest.mark.dsl
@pytest.mark.integration
@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts(tmp_path, name):
    (tmp_path / name).write_text(
        f"if __name__ == '__main__':\n    {SCRIPTS[name].replace(chr(10), chr(10) + '    ')}\n"
    )
    (source,) = sources(str(tmp_path))
    (found,) = examined(source, Choice(seconds=8 if name == "waits.py" else 60))
    outcome, reason = OUTCOMES[name]
    assert (found["case"], found["outcome"]) == (name, outcome)
    assert found["reason"].startswith(reason)


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (AssertionError("three\nfour"), "wrong", "AssertionError: three"),
        (SystemExit(3), "wrong", "exit code 3"),
        (SystemExit(0), "passed", ""),
        (SystemExit(), "passed", ""),
        (ModuleNotFoundError("No module named 'x'"), "not installed", "ModuleNotFoundError: No module named 'x'"),
        (NotImplementedError("a is not served"), "refused", "NotImplementedError: a is not served"),
        (ValueError("\n\x1b[91merror:\x1b[0m it failed\n  hint"), "refused", "ValueError: error: it failed"),
        (KeyError(), "refused", "KeyError: "),
    ],
)
def test_errors_are_judged(error, outcome, reason):
    assert judged(error) == (outcome, reason)


@pytest.mark.dsl
@pytest.mark.integration
def test_notebooks_run_cell_by_cell(tmp_path):
    cells = ["import torch\nx = torch.ones(3, device='cuda')", "%pwd", "assert x.sum() == 3", "x.y"]
    text = {"cells": [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]}
    (tmp_path / "notebook.ipynb").write_text(json.dumps(text))
    (found,) = examined(*sources(str(tmp_path)))
    assert (found["outcome"], found["reason"]) == ("refused", "AttributeError: 'Tensor' object has no attribute 'y'")


@pytest.mark.dsl
@pytest.mark.integration
def test_some_parameter_sets_of_tests_are_run_and_a_process_goes_on_after_another_that_died(tmp_path):
    (tmp_path / "test_these.py").write_text(TESTS)
    (source,) = sources(str(tmp_path))
    found = examined(source, Choice(sets=2, extent=64, seconds=60))
    assert {fact["case"].partition("[")[0].rpartition("::")[2] for fact in found} == {
        *("test_sizes", "test_that_skips", "test_large", "test_that_dies", "test_last")
    }
    outcomes = sorted(fact["outcome"] for fact in found)
    assert outcomes == ["passed"] * 3 + ["refused", "skipped"] + ["wrong"] * 2
    assert "test_these.py::test_sizes[8192]" not in {fact["case"] for fact in found}
    again = examined(source, Choice(sets=2, extent=64, seconds=60), {fact["case"] for fact in found})
    assert again == []


def test_scripts_get_the_arguments_of_the_catalogue(tmp_path):
    folder = tmp_path / "CuTeDSL" / "cute" / "hopper" / "kernel" / "dense_gemm"
    folder.mkdir(parents=True)
    (folder / "dense_gemm.py").write_text("if __name__ == '__main__': pass")
    (folder / "library.py").write_text("x = 1")
    found = list(sources(str(tmp_path)))
    assert {source.suite for source in found} == {"CUTLASS, CuTeDSL/cute/hopper"}
    assert [source.arguments for source in found] == catalogue.arguments((folder / "dense_gemm.py").as_posix())
    (given,) = sources(f"{folder / 'dense_gemm.py'} --mnkl '1, 2'")
    assert given.arguments == "--mnkl '1, 2'"


def test_what_is_for_other_hardware_is_not_tried(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_process", None)
    folder = tmp_path / "CuTeDSL" / "cute" / "blackwell"
    folder.mkdir(parents=True)
    (folder / "mma.py").write_text("if __name__ == '__main__': pass")
    (found,) = examined(*sources(str(tmp_path)))
    assert (found["outcome"], found["reason"]) == ("other hardware", "for Blackwell")


def record(case, outcome, reason="", suite="A", seconds=1.5):
    return {"suite": suite, "source": case, "case": case, "outcome": outcome, "reason": reason, "seconds": seconds}


def test_the_table_counts_outcomes_and_groups_reasons():
    records = [
        record("one", "passed"),
        *(record(f"bad{n}", "refused", f"Error: 0x7f{n} at {n}.5 | <x>") for n in range(5)),
        record("elementwise_apply.py --M 129 --N 264", "refused", "MemoryAccessError"),
        record("other", "wrong", "AssertionError", suite="B"),
    ]
    lines = list(table.lines(records))
    assert lines[2] == "| A | 1 |  | 5 |  | 1 |  |  |  | 10 |"
    assert lines[3] == "| B |  | 1 |  |  |  |  |  |  | 2 |"
    assert "- Error: N at N / &lt;x>: `bad0`, `bad1`, `bad2` and 2 more" in lines
    assert sum("reads out of bounds" in line for line in lines) == 1


def test_the_table_is_put_between_the_marks_of_a_page(tmp_path, monkeypatch):
    page, kept = tmp_path / "page.md", tmp_path / "record.jsonl"
    page.write_text(PAGE)
    kept.write_text(json.dumps(record("one", "wrong")) + "\n" + json.dumps(record("one", "passed")) + "\n")
    monkeypatch.setattr("sys.argv", ["foreign", "--record", str(kept), "--write", str(page)])
    assert main() == 0  # of two lines of a case, the last counts
    text = page.read_text()
    assert text.startswith("# Page\n\n<!-- foreign: begin -->\n| | passed |")
    assert text.endswith("| A | 1 |  |  |  |  |  |  |  | 2 |\n<!-- foreign: end -->\n\nThe end.\n")
    page.write_text("none")
    with pytest.raises(ValueError, match="must have the lines"):
        main()
