"""Stalls by line, of what ncu 2025.3.1 printed on an H200 (2026-11-30), and with a stand-in for ncu."""

import lzma
import sys
from collections import Counter
from pathlib import Path

import pytest

from cutepy.profiling import counters
from cutepy.profiling.counters import CountersError
from cutepy.profiling.stalls import KernelStalls, LineStalls, read, sample
from tests.messages import refuses

RECORDINGS = Path(__file__).parent / "recordings"


def recorded(name):
    return lzma.open(RECORDINGS / f"h200_{name}.csv.xz", "rt").read()


def test_a_triton_kernel_stalls_where_it_stores_uncoalesced_columns():
    (found,) = read(recorded("stalls_triton"))
    assert found.kernel == "transpose_rows"
    worst = found.lines[0]
    assert (Path(worst.file).name, worst.line, worst.samples) == ("gpu_source_launches.py", 33, 636)
    assert worst.text == "tl.store(y + columns[None, :] * m + rows[:, None], tile)"
    assert sum(worst.stalls.values()) == worst.samples
    assert found.samples == 843
    assert str(found).splitlines()[1].startswith("   75%  gpu_source_launches.py:33: stores at the end")


def test_a_product_of_ours_stalls_at_its_blocks():
    (found,) = read(recorded("stalls_gemm"))
    assert found.samples == 2559
    places = [f"{Path(line.file).name}:{line.line}" for line in found.lines[:4]]
    assert places == ["product.py:73", "pipeline.py:141", "main_loop.py:72", "pipeline.py:121"]
    assert found.lines[0].stalls.most_common(1)[0][0] == "warpgroup arrive"
    assert found.lines[1].stalls.most_common(1)[0][0] == "long sb"  # an mbarrier's wait


def test_a_norm_waits_for_memory():
    (found,) = read(recorded("stalls_norm"))
    assert {Path(line.file).name for line in found.lines[:3]} == {"norm.py", "held_rows.py"}
    assert found.lines[0].stalls.most_common(1)[0][0] == "long sb"


def test_what_is_too_much_is_told():
    line = LineStalls("/a/k.py", 3, "  y[i] = x", 4, excessive_sectors=24, excessive_wavefronts=7)
    line.stalls.update(wait=3, new_reason=1)
    assert str(line) == (
        "k.py:3: a fixed latency 75%, new_reason 25%; 24 sectors too many; 7 wavefronts of shared memory too many"
    )
    assert str(KernelStalls("k", [line])).splitlines()[2] == "        y[i] = x"


def test_a_line_tells_its_two_most_common_stalls():
    line = LineStalls("/a/k.py", 3, "", 10, Counter(wait=5, rare=1, new_reason=4))
    assert str(line) == "k.py:3: a fixed latency 50%, new_reason 40%"


def test_no_page_is_no_line():
    assert read("") == read("==PROF== Connected\n") == []


NCU = """#!{python}
import pathlib, sys
given = sys.argv[1:]
log = pathlib.Path(given[given.index("--log-file") + 1])
if "--import" in given:
    assert given[given.index("--print-source") + 1] == "cuda,sass"
    log.write_text(pathlib.Path(given[given.index("--import") + 1]).read_text())
elif {text!r}:
    assert given[-2:] == ["script.py", "--flag"]
    assert given[given.index("--launch-count") + 1] == "2"
    pathlib.Path(given[given.index("-o") + 1]).write_text({text!r})
else:
    log.write_text("==ERROR== ERR_NVGPUCTRPERM - no permission")
    sys.exit(1)
"""


@pytest.fixture
def ncu(tmp_path, monkeypatch):
    def install(text):
        path = tmp_path / "ncu"
        path.write_text(NCU.format(python=sys.executable, text=text))
        path.chmod(0o755)
        monkeypatch.setattr(counters.shutil, "which", lambda name: str(path))

    return install


PAGE = (
    '"File Path","/a/k.py"\n"Function Name","copy"\n"Line No","Source","Address","Source","# Samples","stall_wait"\n'
    '"7","x = p","-","-","3","3"\n'
)


def test_a_script_is_run_under_ncu_and_its_report_is_read(ncu):
    ncu(PAGE)
    (found,) = sample("script.py", ["--flag"], 2)
    assert (found.kernel, found.samples, found.lines[0].line) == ("copy", 3, 7)


@pytest.mark.parametrize("text", ["", "no lines"], ids=["permission", "no lines"])
def test_machines_and_code_without_samples(text, ncu):
    ncu(text)
    with refuses(CountersError):
        sample("script.py", ["--flag"], 2)
