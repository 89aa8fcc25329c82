"""Measured constants: numbers out of records, the file, and every kernel in the simulator."""

import json
import re
import shutil
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import cutepy
from cutepy.binaries import disassemble
from cutepy.binaries.ptxas import assemble
from tests.time import instructions, shared_memory, tensor_cores
from tests.time.constants import CONSTANTS
from tests.time.machine import RECORDS_BYTES, Figure, Launch, Machine, Records, Simulated, figure, quantiles
from tests.time.measure import BENCHMARKS, constant, constants, run, table
from tests.time.ptx import RECORD_WORDS, timed

needs_ptxas = pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas on PATH")


class Linear(Machine):
    """A machine on which a launch of n turns takes so many cycles more for each turn, after a first slow launch."""

    def __init__(self, overhead: int, turn: int) -> None:
        self.overhead, self.turn, self.launches = overhead, turn, 0

    def records(self, ptx, n, launch, data=None):
        """Make up records."""
        self.launches += 1
        words = np.zeros((launch.grid, launch.block // 32, RECORD_WORDS), np.uint64)
        words[:, :, 1] = self.overhead + self.turn * n + (5000 if self.launches == 1 else 0)
        return Records(words, launch)


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(1, 1000))
def test_slope_is_a_turn_without_overhead(overhead, turn):
    """Two numbers of turns tell the cycles of one; the first launch does not count."""
    assert Linear(overhead, turn).slope("", (10, 30), Launch(2, 64)) == Figure(turn, 0.0)


@settings(max_examples=50)
@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=20))
def test_figure_is_a_sample_or_between_two(samples):
    """The median lies within the samples, and equal samples have no spread."""
    made = figure(samples)
    assert min(samples) <= made.value <= max(samples)
    assert figure([samples[0]] * 4).spread == 0


def test_cycles_of_a_cta_reach_from_the_first_warp_to_the_last():
    """Records of two CTAs of two warps."""
    words = np.zeros((2, 2, RECORD_WORDS), np.uint64)
    words[:, :, :2] = [[[10, 20], [12, 50]], [[7, 8], [5, 6]]]
    words[:, :, 2:4] = [[[100, 200], [101, 300]], [[90, 150], [95, 160]]]
    records = Records(words.reshape(-1), Launch(2, 64))
    assert records.cycles.tolist() == [40, 3]
    assert records.span_ns == 210


def test_quantiles_of_a_distribution():
    """Names say the percentage."""
    assert quantiles(np.arange(101)) == {f"p{q}": float(q) for q in (0, 5, 25, 50, 75, 95, 100)}


def test_constant_tells_what_left_its_range():
    """The spread is the largest of a table; one number outside marks the constant."""
    inside = constant("smem.latency", {"lds32": Figure(23.0, 0.01), "lds64": Figure(25.0, 0.2)})
    assert inside["value"] == {"lds32": 23.0, "lds64": 25.0}
    assert (inside["unit"], inside["spread"], inside["from"]) == ("cycles", 0.2, "shared_memory.latency")
    assert "outside" not in inside
    assert constant("smem.latency", {"lds32": Figure(500.0), "lds64": Figure(25.0)})["outside"] == [18, 90]
    assert constant("power.limit_w", None)["value"] is None


def test_each_constant_has_a_benchmark():
    """Names in the table of constants are those of functions."""
    assert {row.benchmark for row in CONSTANTS.values()} == {*BENCHMARKS}
    assert all(row.low < row.high for row in CONSTANTS.values())


_WORKER = """
import json, sys, time
left = sys.argv[1:]
print(json.dumps({"gpu": "none", "sms": 4}), flush=True)
for name in left:
    if name == "barriers.named":
        print(json.dumps({"benchmark": name, "error": "CudaError: it broke"}), flush=True)
        sys.exit()
    if name == "barriers.fences":
        time.sleep(60)
    if name == "barriers.grid":
        sys.exit("lost")
    made = {"barrier.sync": {"value": 9.0, "unit": "cycles", "from": name, "spread": 0.0}}
    print(json.dumps({"benchmark": name, "constants": made, "seconds": 0.1}), flush=True)
"""


def test_failures_leave_the_rest(tmp_path):
    """An error, a hang and an early end each cost one benchmark, whose constants say so."""
    names = ["barriers.named", "barriers.fences", "barriers.threads", "barriers.grid"]
    out = tmp_path / "gpu.json"
    made = run(names, out, (sys.executable, "-c", _WORKER), 2)
    assert json.loads(out.read_text()) == made
    found = made["constants"]
    assert [*found] == [*CONSTANTS]
    assert found["barrier.sync"]["value"] == 9.0
    assert found["barrier.named_handover"]["value"] is None
    assert found["barrier.named_handover"]["error"] == "CudaError: it broke"
    assert "2 s" in found["fence"]["error"]
    assert found["grid.barrier"]["value"] is None
    assert (made["gpu"], made["sms"]) == ("none", 4)
    assert len(table(made).splitlines()) == len(CONSTANTS) + 4


def test_file_keeps_constants_of_other_benchmarks(tmp_path):
    """Benchmarks that are asked for are measured again, the others' numbers stay."""
    out = tmp_path / "gpu.json"
    run(["barriers.threads"], out, (sys.executable, "-c", _WORKER), 10)
    made = run(["barriers.named"], out, (sys.executable, "-c", _WORKER), 10)
    assert made["constants"]["barrier.sync"]["value"] == 9.0


class Unlaunched(Machine):
    """A machine of a GPU's extents that launches nothing: it checks that records fit, and makes them up."""

    def __init__(self) -> None:
        self.launches = 0

    def records(self, ptx, n, launch, data=None):
        """Return records whose clocks grow from launch to launch."""
        launch.check_records()
        self.launches += 1
        words = np.ones((launch.grid, max(1, launch.block // 32), RECORD_WORDS), np.uint64)
        words[:, :, (1, 3)] += np.uint64(1000 * n * self.launches)
        return Records(words, launch)

    def seconds(self, ptx, n, launch, data=None):
        """Return a time that grows from launch to launch."""
        self.records(ptx, n, launch)
        return 1e-6 * self.launches

    def graph_seconds(self, ptx, n, launch, count, cold=False):
        """Return a time that grows from launch to launch."""
        return self.seconds(ptx, n, launch)

    stream_seconds = graph_seconds

    def durations(self, ptx, n, launch, count):
        """Return times that grow from launch to launch."""
        return [self.seconds(ptx, n, launch) for _ in range(count)]

    def turns_seconds(self, kernels, n, count, in_graph=True, data=None, cold=False):
        """Return a time that grows from launch to launch."""
        return max(self.seconds(ptx, n, launch) for ptx, launch in kernels)

    def sequence(self, ptx, n, launch, count, before=None, data=None, cold=False):
        """Check the last launch's records, which begin behind the others'."""
        launch.check_records((count - 1) * launch.records_bytes)
        return [self.records(ptx, n, launch) for _ in range(count)]

    def upload(self, values):
        """Return nothing."""

    def zeros(self, nbytes):
        """Return a size in place of memory."""
        return nbytes

    def address(self, buffer):
        """Return an address."""
        return np.uint64(0)

    def tensor_map(self, *about):
        """Return no map."""
        return bytes(128)

    def download(self, buffer):
        """Return memory that nothing was written to."""
        return np.zeros(buffer, np.uint8)

    prepare = clear = upload

    def flush(self):
        """Evict nothing."""


@pytest.mark.parametrize("name", BENCHMARKS)
def test_records_fit_at_the_extents_of_a_gpu(name):
    """Launches of a GPU's extents leave no record beyond the memory for them."""
    machine = Unlaunched()
    BENCHMARKS[name](machine)
    assert machine.launches


def test_records_that_do_not_fit_are_refused():
    """Each warp leaves 64 bytes; later launches' records begin behind those of earlier ones."""
    Launch(8192, 1024).check_records()
    with pytest.raises(ValueError, match="launch fewer CTAs"):
        Launch(8193, 1024).check_records()
    with pytest.raises(ValueError, match="launch fewer CTAs"):
        Launch(1, 32).check_records(RECORDS_BYTES - 32)


@pytest.mark.integration
def test_kernel_turns_as_often_as_it_is_told():
    """A timed kernel, and threads that skip its turns."""
    text = timed("add.u64 %w5, %w5, 1;", idle="%p2", setup="setp.ne.u32 %p2, %warp, 1;")
    words = Simulated().records(text, 5, Launch(2, 96)).words
    assert words[:, :, 5].tolist() == [[0, 5, 0], [0, 5, 0]]
    assert (words[:, :, 1] > words[:, :, 0]).all()


@pytest.mark.integration
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.deep] * name.startswith("instructions.")) for name in BENCHMARKS]
)
def test_kernels_run_in_the_simulator(name):
    """Every benchmark's kernels end, without a hazard, and it gives the constants that the table names."""
    with cutepy.simulate(sanitize=True):
        made = constants(name, Simulated())
    assert {*made} == {key for key, row in CONSTANTS.items() if row.benchmark == name} - {"l2.bandwidth_cycle"}


@needs_ptxas
@pytest.mark.integration
@pytest.mark.parametrize("name", instructions.CLASSES)
def test_statement_is_one_instruction(name):
    """ptxas folds nothing: the loop has as many instructions of the class as statements."""
    text = disassemble(assemble(instructions.chain(name, 4)).image)
    expected = tuple(instructions.CLASSES[name][2].split())
    loop = Counter(match for match in re.findall(r"\s([A-Z][A-Z0-9_.]+) ", str(text)) if match.startswith(expected))
    assert loop.total() >= instructions.UNROLL


@needs_ptxas
@pytest.mark.parametrize(
    ("n", "source", "sets", "threads"), [(256, "ss", 1, 384), (128, "rs", 2, 128), (256, "rs", 1, 128)]
)
def test_wgmmas_are_not_serialised(n, source, sets, threads):
    """ptxas has registers enough for the groups that are timed."""
    text = tensor_cores.group("bf16", n, source, tensor_cores.COUNTS[source][1], sets=sets, threads=threads)
    assert assemble(text).advice == ()


@needs_ptxas
@pytest.mark.integration
@pytest.mark.parametrize("name", ["lds32", "lds128", "ldmatrix_x4", "sts64", "stmatrix_x4", "atom_add"])
def test_no_access_of_a_turn_is_dropped(name):
    """The time of a turn is divided by its accesses."""
    marked = shared_memory._interval(name).replace("TURN:", "TURN:\nnanosleep.u32 1;", 1)
    text = str(disassemble(assemble(marked).image))
    accesses, turns = (len(re.findall(rf"\s(?:{names})\b", text)) for names in ("LDS|STS|LDSM|STSM|ATOMS", "NANOSLEEP"))
    assert turns >= 1
    assert accesses == turns * shared_memory._UNROLL + 2  # the words are stored before
