"""Reproducers, on a GPU that the simulator plays: what they launch, what they compare, and what they say."""

import ctypes
import json
import runpy
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import cutepy
from cutepy.frontends import load_ptx
from cutepy.frontends.backend import Simulator
from cutepy.frontends.dsl.execution import executing_on
from cutepy.sim import Run
from cutepy.sim.machine.schedule import Schedule
from cutepy.sim.replay.reproducers import gpu_runner
from tests.messages import pins, refuses
from tests.sim.replay.kernels import RACE, module


class SimulatedGpu:
    """A stand-in for `gpu_runner.Gpu`; allocations are memory of this process."""

    policy = None
    launches = 0

    def __init__(self):
        self.blocks = {}

    def call(self, name, *arguments):
        getattr(self, name)(*arguments)

    def cuMemAlloc_v2(self, base, size):
        block = np.zeros(size.value, np.uint8)
        base._obj.value = block.ctypes.data
        self.blocks[block.ctypes.data] = block

    def cuMemcpyHtoD_v2(self, to, data, size):
        ctypes.memmove(to.value, data, size.value)

    def cuMemcpyDtoH_v2(self, block, address, size):
        ctypes.memmove(block, address.value, size.value)

    def cuModuleGetGlobal_v2(self, variable, size, module, name):
        data = module.variable(name.decode())
        variable._obj.value, size._obj.value = data.ctypes.data, data.nbytes

    def has_ended(self, streams, seconds):
        return True

    def cuCtxSynchronize(self):
        pass

    def load(self, ptx):
        return load_ptx(ptx)

    def function(self, module, name, smem_bytes, cluster):
        return module, name

    def stream(self, is_first):
        return is_first

    def launch(self, function, what, parameters, stream):
        loaded, name = function
        if name == "fill":
            return
        type(self).launches += 1
        with cutepy.simulate(policy=self.policy):
            loaded.launch(
                name, what["grid"], what["block"], parameters, smem=what["smem_bytes"], known=self.blocks.values()
            )


def test_a_kernel_is_asked_for_with_the_ctas_of_its_cluster():
    asked = []
    gpu = SimpleNamespace(load=lambda ptx: f"module of {ptx}", function=lambda *given: asked.append(given))
    launch = {"cluster": [2, 3, 4], "ptx": "a", "delayed_ptx": "b", "kernel": "k", "smem_bytes": 5, "sides": []}
    for delays in (None, (0, 1)):
        gpu_runner.PreparedLaunches._function(SimpleNamespace(gpu=gpu, what={}), launch, delays)
    assert asked == [("module of a", "k", 5, 24), ("module of b", "k", 5, 24)]


def hazard_of(body, size=64):
    x = np.zeros(size, np.uint32)
    run = Run((), None, sanitize=True, replay=True)
    with executing_on(Simulator(run)):
        module(body).launch("k", 1, 64, (x,))
    return run.hazards[0]


@pytest.fixture
def hazard():
    return hazard_of(RACE)


@pytest.fixture
def script(hazard, tmp_path):
    return hazard.reproducer(tmp_path / "race.py")


def told(script, monkeypatch, capsys, way, policy=None):
    names = runpy.run_path(str(script))
    what = names["WHAT"]
    monkeypatch.setattr(gpu_runner, "Gpu", SimulatedGpu)
    monkeypatch.setattr(SimulatedGpu, "policy", policy)
    assert gpu_runner.child(what, way, 3) == 0
    return what, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_as_it_is_the_launch_comes_to_what_the_simulator_came_to(script, monkeypatch, capsys):
    for way in ("as it is", "the first side delayed"):
        what, lines = told(script, monkeypatch, capsys, way)
        assert lines == [{"digest": what["expected"]}] * 3
    assert what["ways"] == ["as it is", "the first side delayed", "the second side delayed"]


def test_what_differs_is_told_with_its_place(script, monkeypatch, capsys):
    what, lines = told(script, monkeypatch, capsys, "as it is", "schedule:0")
    assert all(line["digest"] != what["expected"] for line in lines)
    pins(lines[0]["what"])


@pytest.mark.integration
def test_the_script_needs_nothing_but_a_driver_and_says_so_if_there_is_none(script):
    done = subprocess.run([sys.executable, "-I", str(script), "2"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "unordered-read: tile[32] (shared memory at 0x80) of k" in done.stdout
    assert "as it is: 0 launches" in done.stdout
    assert "VERDICT race: as it is: error" in done.stdout
    assert "libcuda.so.1" in done.stdout or "cuInit" in done.stdout


def concluded(what, outcomes, monkeypatch, capsys):
    """Return the exit status and what is printed, if the ways come to these lines and ends."""
    monkeypatch.setattr(gpu_runner, "run", lambda script, way, launches: outcomes[way])
    monkeypatch.setattr(sys, "argv", ["race.py", "2"])
    return gpu_runner.main("race.py", what), capsys.readouterr().out


def test_what_hangs_and_what_differs_is_the_verdict(script, monkeypatch, capsys):
    what = runpy.run_path(str(script))["WHAT"]
    right = {"digest": what["expected"]}
    wrong = {"digest": "0" * 32, "what": "there", "is_other_order": False}
    ways = {
        "as it is": ([right, right], ""),
        "the first side delayed": ([right, wrong], ""),
        "the second side delayed": ([], "hang: no end after 10 s"),
    }
    status, out = concluded(what, ways, monkeypatch, capsys)
    assert status == 1
    pins(out)


def launched(script, monkeypatch, capsys, policy=None, change=None):
    """Return what is printed of a GPU that the simulator plays; `change` is done to memory after each launch."""
    if change is not None:
        whole = SimulatedGpu.launch

        def launch(gpu, *arguments):
            whole(gpu, *arguments)
            change(next(iter(gpu.blocks.values())))

        monkeypatch.setattr(SimulatedGpu, "launch", launch)
    what, lines = told(script, monkeypatch, capsys, "as it is", policy)
    return concluded(what, dict.fromkeys(what["ways"], (lines, "")), monkeypatch, capsys)


@pytest.mark.integration
def test_a_gpu_that_does_as_the_simulator_shows_nothing(script, monkeypatch, capsys):
    status, out = launched(script, monkeypatch, capsys)
    assert (status, out.splitlines()[-1]) == (0, "VERDICT race: nothing differs")


@pytest.mark.integration
def test_always_the_values_of_another_order_is_a_verdict(hazard, script, monkeypatch, capsys):
    status, out = launched(script, monkeypatch, capsys, hazard.replay().policy)
    assert (status, out.splitlines()[-1]) == (1, "VERDICT race: always values of another order than the simulator's")
    pins(out)


@pytest.mark.integration
@pytest.mark.parametrize("policy", [None, "other order"])
def test_values_of_no_order_are_said_not_to_be_the_simulators(policy, hazard, script, monkeypatch, capsys):
    def change(block):
        block[block == 31] = 30  # in an element that the hazard does not change

    policy = None if policy is None else hazard.replay().policy
    status, out = launched(script, monkeypatch, capsys, policy, change)
    assert status == 1
    said = "VERDICT race: values differ from the simulator's in every launch, delayed or not: "
    assert out.splitlines()[-1].startswith(said)


UNWRITTEN = RACE + "xor.b32 %r40, %r41, %r0; st.global.u32 [%rd1+256], %r40;"


@pytest.mark.integration
@pytest.mark.parametrize("byte", [0x5A])
def test_what_registers_that_nothing_wrote_decide_is_not_compared(byte, tmp_path, monkeypatch, capsys):
    hazard = hazard_of(UNWRITTEN, 128)
    script = hazard.reproducer(tmp_path / "race.py")
    policy = hazard.replay().policy
    whole = Schedule.run

    def run(schedule, *arguments):
        schedule.fill_registers(byte)
        whole(schedule, *arguments)

    monkeypatch.setattr(Schedule, "run", run)
    assert runpy.run_path(str(script))["WHAT"]["memory"][0]["undetermined"] == [[256, 512]]
    pins(launched(script, monkeypatch, capsys)[1])
    pins(launched(script, monkeypatch, capsys, policy)[1])


def test_a_launch_that_the_simulator_could_not_end_is_not_compared_with_it():
    told = {"b": {"what": "4 bytes", "is_other_order": False}}
    assert gpu_runner.verdict(None, {"as it is": gpu_runner.Counter(b=2)}, {}, told) == []
    ends = {"as it is": "hang: no end after 10 s"}
    assert gpu_runner.verdict(None, {"as it is": gpu_runner.Counter()}, ends, told) == ["as it is: hang"]


TWO = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry first(.param .u64 y) {
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [y]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd0, %rd0, %rd1;
    griddepcontrol.launch_dependents;
    add.u32 %r1, %r0, 1;
    st.global.u32 [%rd0], %r1;
    ret;
}
.visible .entry second(.param .u64 y, .param .u64 z) {
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [y]; ld.param.u64 %rd2, [z]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd0, %rd0, %rd1; add.u64 %rd2, %rd2, %rd1;
    ld.global.u32 %r1, [%rd0];
    st.global.u32 [%rd2], %r1;
    ret;
}
"""


def early_access(between=lambda y: None):
    y, run = np.arange(500, 564, dtype=np.uint32), Run((), None, sanitize=True, replay=True)
    backend, z = Simulator(run), np.zeros(64, np.uint32)
    with executing_on(backend):
        loaded = load_ptx(TWO)
        loaded.launch("first", 1, 64, (y,))
        between(y)
        loaded.launch("second", 1, 64, (y, z), programmatic=True)
    return run.hazards[0]


class OneStream(SimulatedGpu):
    """Runs the launches of a stream in the order that is said."""

    swapped = False

    def __init__(self):
        super().__init__()
        self.waiting = []

    def launch(self, *arguments):
        self.waiting.append(arguments)

    def has_ended(self, streams, seconds):
        for arguments in reversed(self.waiting) if self.swapped else self.waiting:
            super().launch(*arguments)
        self.waiting.clear()
        return True


@pytest.mark.integration
@pytest.mark.parametrize(("swapped", "said"), [(False, "nothing differs"), (True, "always values of another order")])
def test_a_hazard_of_two_launches_has_both_in_its_script(swapped, said, tmp_path, monkeypatch, capsys):
    script = early_access().reproducer(tmp_path / "early.py")
    what = runpy.run_path(str(script))["WHAT"]
    assert [(one["kernel"], one["programmatic"], one["sides"]) for one in what["launches"]] == [
        ("first", False, [0]),
        ("second", True, [1]),
    ]
    monkeypatch.setattr(gpu_runner, "Gpu", OneStream)
    monkeypatch.setattr(OneStream, "swapped", swapped)
    outcomes = {}
    for way in what["ways"]:
        assert gpu_runner.child(what, way, 2) == 0
        outcomes[way] = [json.loads(line) for line in capsys.readouterr().out.splitlines()], ""
    _, out = concluded(what, outcomes, monkeypatch, capsys)
    assert f"VERDICT early: {said}" in out


def test_the_later_of_two_launches_is_played_first():
    witness = early_access().replay()
    assert witness.kind == "values"
    pins(witness.what)


def test_what_the_host_changes_between_two_launches_is_refused(tmp_path):
    def change(y):
        y[3] = 77

    with refuses(ValueError):
        early_access(change).reproducer(tmp_path / "early.py")


def test_a_launch_that_does_not_end_is_a_hang(script, monkeypatch, capsys):
    monkeypatch.setattr(SimulatedGpu, "has_ended", lambda *_: False)
    monkeypatch.setattr(gpu_runner, "Gpu", SimulatedGpu)
    what = runpy.run_path(str(script))["WHAT"]
    assert gpu_runner.child(what, "as it is", 3) == gpu_runner.HUNG
    assert not capsys.readouterr().out


def test_pointers_that_are_left_in_memory_are_those_of_the_simulator(tmp_path, monkeypatch, capsys):
    hazard = hazard_of(RACE + "st.global.u64 [%rd0+512], %rd0;\n", 256)
    script = hazard.reproducer(tmp_path / "race.py")
    what, lines = told(script, monkeypatch, capsys, "as it is")
    assert lines == [{"digest": what["expected"]}] * 3


def test_what_fills_shared_memory_runs_first_in_a_stream_of_its_own(script):
    what = runpy.run_path(str(script))["WHAT"]
    for way, (_, _, filled, _) in gpu_runner.WAYS.items():
        prepared = gpu_runner.PreparedLaunches(SimulatedGpu(), what, way)
        assert prepared.streams == [True] + [False] * filled
        names = [(function[1], stream) for function, _, _, stream in prepared.launches]
        assert names == [("fill", False)] * filled + [("k", True)]
