"""Ctrl-C stops a simulated launch, wherever it comes, and leaves everything usable."""

import signal
import subprocess
import sys
import textwrap

import cutlass
import cutlass.cute as cute
import numpy as np
import pytest

import cutepy
from cutepy.dsl.traced_names import SmemAllocator
from cutepy.frontends.dsl import host_programs
from cutepy.runtime import execution, host_calls
from cutepy.sim import Observer

pytestmark = pytest.mark.dsl


@cute.kernel
def count_device(a: cute.Tensor, times: cutlass.Int32):
    smem = SmemAllocator().allocate_tensor(cutlass.Int32, cute.make_layout(32), 16)
    tid = cute.arch.thread_idx()[0]
    smem[tid] = tid + 7
    for _ in range(times):
        a[tid] = a[tid] + 1
        cute.arch.sync_threads()  # so that each step loads and stores


@cute.jit
def count(a: cute.Tensor, times: cutlass.Int32):
    count_device(a, times).launch(grid=(1, 1, 1), block=(32, 1, 1))
    count_device(a, times).launch(grid=(1, 1, 1), block=(32, 1, 1))


class Interrupting(Observer):
    """Press Ctrl-C at the nth access to global memory."""

    def __init__(self, at):
        self.accesses, self._at = 0, at

    def on_access(self, access):
        if access.space == "global":
            self.accesses += 1
            if self.accesses == self._at:
                signal.raise_signal(signal.SIGINT)


def test_ctrl_c_ends_the_call_and_what_ran_can_be_seen():
    a = np.zeros(32, np.int32)
    before = signal.getsignal(signal.SIGINT)
    observer = Interrupting(11)
    with cutepy.simulate(observers=[observer]) as run:
        with pytest.raises(KeyboardInterrupt):
            count(a, 100)
        assert signal.getsignal(signal.SIGINT) is before
        (launch,) = run.launches  # the second was not begun
        assert observer.accesses == 11
        np.testing.assert_array_equal(a, 5)
        np.testing.assert_array_equal(run.smem(dtype="int32")[:32], np.arange(32) + 7)
        assert launch.seconds > 0
        assert launch.instructions["ld"] >= 5
        assert run.instructions == launch.instructions
        count(a, 1)
        assert len(run.launches) == 3
    assert execution.EXECUTION.backend is None
    with cutepy.simulate() as run:
        count(a, 1)
    np.testing.assert_array_equal(a, 9)


def test_ctrl_c_between_two_launches_of_a_host_function(monkeypatch):
    """It comes in the frame that C code calls, where raising it would lose it."""
    a = np.zeros(32, np.int32)
    with cutepy.simulate() as run:
        count(a, 1)
        serve = host_calls.serve
        calls = []

        def interrupted(*args):
            answer = serve(*args)
            calls.append(args[1])
            if calls.count("_cudaLaunchKernelEx") == 1 and calls[-1] == "_cudaLaunchKernelEx":
                signal.raise_signal(signal.SIGINT)
            return answer

        monkeypatch.setattr(host_calls, "serve", interrupted)
        host_programs._programs.clear()
        with pytest.raises(KeyboardInterrupt):
            count(a, 1)
        assert len(run.launches) == 3


SCRIPT = """
import sys
sys.modules["torch"] = None  # which takes seconds to import, and is not needed
import cutlass, cutlass.cute as cute, numpy as np
import cutepy, cutepy.sim
from cutepy.runtime.execution import EXECUTION


@cute.kernel
def forever(a: cute.Tensor):
    while a[0] >= 0:
        a[0] = a[0] + 1
        cute.arch.sync_threads()


@cute.jit
def host(a: cute.Tensor, once: cutlass.Constexpr):
    forever(a).launch(grid=(1, 1, 1), block=(32, 1, 1))


class Tells(cutepy.sim.Observer):
    accesses = 0

    def on_access(self, access):
        self.accesses += 1
        if self.accesses == 1000:
            print("runs", flush=True)


a = np.zeros(1, np.int64)
try:
    with cutepy.simulate(observers=[Tells()]) as run:
        host(a, False)
except KeyboardInterrupt:
    assert EXECUTION.backend is None
    (launch,) = run.launches
    print("stopped", int(a[0]) > 0, launch.instructions["st"] > 0, flush=True)
with cutepy.simulate() as run:
    a[0] = -1
    host(a, False)
print("again", len(run.launches), flush=True)
"""


@pytest.mark.integration
def test_a_real_signal_stops_a_kernel_that_runs_for_ever(tmp_path):
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert output.split("\n")[:2] == ["stopped True True", "again 1"], errors
    assert errors == ""


traced = []


@cute.jit
def interrupted_while_traced(a: cute.Tensor):
    traced.append("begins")
    signal.raise_signal(signal.SIGINT)
    count_device(a, cutlass.Int32(1)).launch(grid=(1, 1, 1), block=(32, 1, 1))
    traced.append("ends")


WAYS = {
    "called": interrupted_while_traced,
    "compiled": lambda a: cutepy.compile(interrupted_while_traced, cutepy.TensorSpec("int32", (32,)), cache=False),
    "compiled by the DSL": lambda a: cute.compile(interrupted_while_traced, cute.runtime.from_dlpack(a)),
}


@pytest.mark.parametrize("way", ["called", *(pytest.param(way, marks=pytest.mark.integration) for way in [*WAYS][1:])])
def test_ctrl_c_while_the_dsl_traces_is_held_until_it_has(way):
    """An exception in Python that C++ code calls would end the process."""
    a, before = np.zeros(32, np.int32), signal.getsignal(signal.SIGINT)
    traced.clear()
    with cutepy.simulate() as run:
        with pytest.raises(KeyboardInterrupt):
            WAYS[way](a)
        assert traced == ["begins", "ends"]
        assert not run.launches
        assert signal.getsignal(signal.SIGINT) is before
        count(a, 1)
    np.testing.assert_array_equal(a, 2)
