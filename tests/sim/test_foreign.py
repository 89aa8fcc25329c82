"""The runner of other people's kernels: what it finds, what it says of each case, and the table that it writes."""

import json
from dataclasses import replace

import pytest

from tests.messages import pins, refuses
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


@pytest.mark.first(2)
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


@pytest.mark.deep
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


RACY = """
import cutepy
import numpy as np
import torch

PTX = '''.version 8.7
.target sm_90a
.address_size 64
.visible .entry tickets(.param .u64 x) {
    .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %rd<3>;
    ld.param.u64 %rd0, [x];
    mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 31; setp.ne.u32 %p, %r1, 0; @%p bra END;
    atom.relaxed.gpu.global.add.u32 %r2, [%rd0], 1;
    shr.u32 %r0, %r0, 5; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd1, %rd1, %rd0; st.global.u32 [%rd1+4], %r2;
    st.global.u32 [%rd0+20], %r2;
END: ret;
}'''

def test_tickets():
    tickets = torch.zeros(8, dtype=torch.int32, device="cuda")
    for _ in range(2):
        cutepy.load_ptx(PTX).launch("tickets", grid=1, block=128, args=(tickets,))
    assert True

class TestNone:
    def test_none(self):
        pass

def call(number):
    assert number == 3 and __name__ != "__main__"
    test_tickets()
"""


@pytest.mark.dsl
@pytest.mark.integration
@pytest.mark.parametrize("form", ["call", pytest.param("test", marks=pytest.mark.deep)])
def test_what_runs_is_sanitized_and_schedules_of_it_are_played(tmp_path, form):
    (tmp_path / "test_racy.py").write_text(RACY)
    (source,) = sources(str(tmp_path))
    chosen = replace(source, kind="script", arguments="-c 'call(3)'") if form == "call" else source.functions()[0]
    (found,) = examined(chosen, Choice(seconds=60, schedules=5))
    assert (found["outcome"], found["reason"]) == ("passed", "")
    assert (found["launches"], found["kernels"], found["schedules"]) == (2, ["tickets"], 5)  # one kernel and grid
    assert "unordered-write" in found["hazards"]
    assert "unordered-write" in found["report"]
    assert any("bytes differ" in witness for witness in found["witnesses"])
    pins(found["differ"][0])
    assert (found["certified"], sum(found["uncertified"].values())) == (0, 2)
    lines = list(table.sanitized([found]))
    assert lines[-1].startswith("- a value that") or lines[-1].startswith("- this launch has hazards")
    assert any(line.startswith("- unordered-write, which a schedule shows") for line in lines)


@pytest.mark.deep
@pytest.mark.dsl
@pytest.mark.integration
def test_what_runs_is_sanitized_where_no_schedules_are_asked_for(tmp_path):
    (tmp_path / "test_racy.py").write_text(RACY)
    (source,) = sources(str(tmp_path))
    (found,) = examined(source.functions()[0], Choice(seconds=60, schedules=0))
    assert (found["outcome"], found["launches"], found["schedules"]) == ("passed", 2, 0)
    assert "unordered-write" in found["hazards"]


def test_each_test_of_a_file_may_be_a_source(tmp_path):
    (tmp_path / "test_racy.py").write_text(RACY)
    (source,) = sources(str(tmp_path))
    assert [one.name for one in source.functions()] == [
        "test_racy.py::test_tickets",
        "test_racy.py::TestNone::test_none",
    ]


def test_files_whose_functions_are_called_are_not_run_as_scripts(tmp_path):
    (tmp_path / "05-layer-norm.py").write_text("if __name__ == '__main__': pass")
    (found,) = sources(str(tmp_path), catalogue.calls)
    assert found.arguments.startswith("-c 'test_layer_norm(")


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


def test_scripts_of_both_gpus_get_arguments_by_architecture():
    path = "/CuTeDSL/experimental/primitives/tma/tma_load_store.py"
    assert catalogue.arguments(path) == [""]
    assert len(catalogue.arguments(path, "sm_100a")) == 3
    assert "test_matmul_warp_specialized" in catalogue.calls("/tutorials/gluon/08-warp-specialization.py", "sm_100a")[1]
    assert len(catalogue.calls("/tutorials/gluon/08-warp-specialization.py")) == 1


def test_what_is_for_other_hardware_is_not_tried(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_process", None)
    folder = tmp_path / "CuTeDSL" / "cute" / "blackwell"
    folder.mkdir(parents=True)
    (folder / "mma.py").write_text("if __name__ == '__main__': pass")
    (found,) = examined(*sources(str(tmp_path)))
    assert (found["outcome"], found["reason"]) == ("other hardware", "for Blackwell")


@pytest.mark.parametrize(
    ("path", "archs"),
    [
        ("/cute/blackwell/kernel/dense_gemm/dense_gemm.py", ["sm_100a", "sm_103a"]),
        ("/cute/blackwell/kernel/blockscaled_gemm/sm103_dense_blockscaled_gemm_persistent.py", ["sm_103a"]),
        ("/cute/blackwell_geforce/kernel/dense_gemm.py", ["sm_120a"]),
        ("/cute/hopper/kernel/dense_gemm/dense_gemm.py", ["sm_90a"]),
        ("/experimental/primitives/mbarrier.py", ["sm_90a", "sm_100a", "sm_103a", "sm_120a"]),
        ("/cute/blackwell/kernel/distributed/all_reduce_simple.py", []),
    ],
)
def test_sources_are_tried_on_the_architectures_that_they_are_for(path, archs):
    assert [arch for arch in catalogue.ARCHS if catalogue.not_tried(path, arch) == ("", "")] == archs


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
    assert lines[2] == "| A | 1 |  | 5 |  | 1 |  |  |  |  | 10 |"
    assert lines[3] == "| B |  | 1 |  |  |  |  |  |  |  | 2 |"
    assert "- Error: N at N / &lt;x>: `bad0`, `bad1`, `bad2` and 2 more" in lines
    assert sum("reads out of bounds" in line for line in lines) == 1


def test_the_table_is_put_between_the_marks_of_a_page(tmp_path, monkeypatch):
    page, kept = tmp_path / "page.md", tmp_path / "record.jsonl"
    page.write_text(PAGE)
    kept.write_text(json.dumps(record("one", "wrong")) + "\n" + json.dumps(record("one", "passed")) + "\n")
    monkeypatch.setattr("sys.argv", ["foreign", "--record", str(kept), "--write", str(page)])
    assert main() == 0  # of two lines of a case, the last counts
    text = page.read_text()
    pins(text)
    page.write_text("none")
    with refuses(ValueError):
        main()
