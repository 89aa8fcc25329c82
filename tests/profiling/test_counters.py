"""Counters as ncu prints them, with a stand-in for ncu."""

import lzma
import sys
from pathlib import Path

import pytest

from cutepy.profiling import counters
from cutepy.profiling.counters import CountersError, count, read
from tests.messages import refuses

HEAD = (
    '"ID","Process ID","Kernel Name","Stream","dram__throughput.avg.pct_of_peak_sustained_elapsed",'
    '"gpu__time_duration.sum","l1tex__throughput.avg.pct_of_peak_sustained_active",'
    '"lts__throughput.avg.pct_of_peak_sustained_elapsed",'
    '"sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_active",'
    '"sm__inst_issued.avg.pct_of_peak_sustained_active",'
    '"smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",'
    '"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"\n'
    '"","","","","%","ns","%","%","%","%","inst","inst"\n'
)
PRODUCT = '"0","7","void gemm<128>(Params)","7","21.5","178,300","44","40.2","91.25","12.5","3.25","0.5"\n'
COPY = '"1","7","copy","7","92.1","120,000","30","50","n/a","5","0","40"\n'
SMALL = '"2","7","add","7","1.5","2,100","0.5","2","0","1.5","",""\n'


def test_the_busiest_unit_bounds_a_launch():
    product, copy, small = read(f"==PROF== Connected\n{HEAD}{PRODUCT}{COPY}==PROF== Disconnected\n{SMALL}")
    assert (product.kernel, product.ns, product.bound) == ("void gemm<128>(Params)", 178_300, "tensor cores")
    assert product.busy["issue slots"] == 12.5
    assert product.stalls == {"barrier": 3.25, "long scoreboard": 0.5}
    assert (copy.bound, "tensor cores" in copy.busy, max(copy.stalls, key=copy.stalls.get)) == (
        "DRAM",
        False,
        "long scoreboard",
    )
    assert (small.bound, small.stalls) == ("latency", {})
    assert str(small).startswith("add: 2.1 us, bound by latency")


def test_launches_of_a_real_gpu_are_bound_as_their_counters_say():
    found = read(lzma.open(Path(__file__).parent / "recordings" / "h200_counters.csv.xz", "rt").read())
    assert [each.bound for each in found] == [
        "tensor cores",  # a product of 4096 x 4096 x 4096
        "L2",
        "DRAM",
        "latency",  # 512 x 512 x 512
        "tensor cores",
        "DRAM",
        "tensor cores",  # attention
        "tensor cores",
        "tensor cores",
        "latency",
        "DRAM",  # 16,384 rows of an RMS norm: L2 is at 92%, and DRAM at 81%, of which a copy gets no more
        "latency",
        "DRAM",
        "issue slots",
        "latency",
    ]
    assert found[0].busy["tensor cores"] == 95.18
    assert max(found[0].stalls, key=found[0].stalls.get) == "barrier"


def test_no_report_is_no_launch():
    assert read("") == read("==PROF== Connected\n") == read(HEAD) == []


NCU = """#!{python}
import pathlib, sys
at = sys.argv.index("--log-file")
assert sys.argv[at + 2 :][1:] == ["script.py", "--flag"], sys.argv
pathlib.Path(sys.argv[at + 1]).write_text({text!r})
sys.exit({code})
"""


@pytest.fixture
def ncu(tmp_path, monkeypatch):
    def install(text, code=0):
        path = tmp_path / "ncu"
        path.write_text(NCU.format(python=sys.executable, text=text, code=code))
        path.chmod(0o755)
        monkeypatch.setattr(counters.shutil, "which", lambda name: str(path))

    return install


def test_a_script_is_run_under_ncu(ncu):
    ncu(HEAD + PRODUCT)
    (found,) = count("script.py", ["--flag"], 1)
    assert found.bound == "tensor cores"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU counters\n", 1),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded\n", 9),
        ("==PROF== Connected\n", 0),
    ],
    ids=["permission", "broken", "nothing"],
)
def test_machines_without_counters(text, code, ncu):
    ncu(text, code)
    with refuses(CountersError):
        count("script.py", ["--flag"], 1)


def test_without_ncu(monkeypatch):
    monkeypatch.setattr(counters.shutil, "which", lambda name: None)
    with refuses(CountersError):
        count("script.py", [], 1)
