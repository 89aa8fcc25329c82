"""Reproducers, on a GPU that the simulator plays: what they launch, what they compare, and what they say."""

import ctypes
import json
import runpy
import subprocess
import sys

import numpy as np
import pytest

import cutepy
from cutepy.frontends import load_ptx
from cutepy.frontends.backend import Simulator
from cutepy.frontends.dsl.execution import executing_on
from cutepy.sim import Run
from cutepy.sim.machine.schedule import Schedule
from cutepy.sim.replay.reproducers import gpu_runner
from tests.sim.replay.kernels import RACE, module


class SimulatedGpu:
    """What `gpu_runner.Gpu` is to a script; allocations are memory of this process."""

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
    gpu_runner.child(what, way, 3)
    return what, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_as_it_is_the_launch_comes_to_what_the_simulator_came_to(script, monkeypatch, capsys):
    for way in ("as it is", "the first side delayed"):
        what, lines = told(script, monkeypatch, capsys, way)
        assert lines == [{"digest": what["expected"]}] * 3
    assert what["ways"] == ["as it is", "the first side delayed", "the second side delayed"]


def test_what_differs_is_told_with_its_place(script, monkeypatch, capsys):
    what, lines = told(script, monkeypatch, capsys, "as it is", "schedule:0")
    assert all(line["digest"] != what["expected"] for line in lines)
    assert lines[0]["what"].startswith("31 bytes, first at 132 ")
    assert "of a tensor of shape (64,) and type uint32" in lines[0]["what"]


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
    assert "VERDICT race: the first side delayed: other values; the second side delayed: hang" in out
    assert "2 launches, 1 as simulated, 0 as in another order; there" in out


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


def test_a_gpu_that_does_as_the_simulator_shows_nothing(script, monkeypatch, capsys):
    status, out = launched(script, monkeypatch, capsys)
    assert (status, out.splitlines()[-1]) == (0, "VERDICT race: nothing differs")


def test_always_the_values_of_another_order_is_a_verdict(hazard, script, monkeypatch, capsys):
    status, out = launched(script, monkeypatch, capsys, hazard.replay().policy)
    assert (status, out.splitlines()[-1]) == (1, "VERDICT race: always values of another order than the simulator's")
    assert "3 launches, 0 as simulated, 3 as in another order; 32 bytes, first at 0 of" in out


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


@pytest.mark.parametrize("byte", [0, 0x5A, 0xFF])
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
    assert launched(script, monkeypatch, capsys)[1].endswith("VERDICT race: nothing differs\n")
    assert "always values of another order" in launched(script, monkeypatch, capsys, policy)[1]


def test_a_launch_that_the_simulator_could_not_end_is_not_compared_with_it():
    told = {"b": {"what": "4 bytes", "is_other_order": False}}
    assert gpu_runner.verdict(None, {"as it is": gpu_runner.Counter(b=2)}, {}, told) == []
    ends = {"as it is": "hang: no end after 10 s"}
    assert gpu_runner.verdict(None, {"as it is": gpu_runner.Counter()}, ends, told) == ["as it is: hang"]
