"""Launches recorded by host code equal the launches that it makes."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402
import torch  # noqa: E402

from cutepy.binaries.cubin import read_resources  # noqa: E402
from cutepy.dsl.program import compile_program  # noqa: E402
from cutepy.dsl.traced_names import SmemAllocator  # noqa: E402
from cutepy.runtime.host_calls import Backend, LaunchRequest  # noqa: E402
from cutepy.runtime.program import LaunchFacts, ServedProgram  # noqa: E402


@cute.kernel
def reverse(x: cute.Tensor):
    staged = SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(256), byte_alignment=16)
    thread = cute.arch.thread_idx()[0]
    staged[thread] = x[thread]
    cute.arch.sync_threads()
    x[thread] = staged[255 - thread]


@cute.jit
def several(x: cute.Tensor, n: cutlass.Int32):
    """Launch with facts that are known, computed from constants, computed from arguments, and conditional."""
    reverse(x).launch(grid=(1, 1, 1), block=(256, 1, 1))
    reverse(x).launch(grid=(n, 1, 1), block=(n, 2, 1), cluster=(n, 1, 1), smem=4096)
    reverse(x).launch(grid=(8, 1, 1), block=(cutlass.Int32(64) * 2, 2, 1), cluster=(2, 2, 1), smem=1024 * n)
    if n > 3:
        reverse(x).launch(grid=(4, 1, 1), block=(256, 1, 1), cluster=(4, 1, 1), smem=2048, cooperative=True)


class Recorder(Backend):
    def __init__(self):
        self.requests: list[LaunchRequest] = []

    def launch(self, request):
        self.requests.append(request)

    def adopt(self, tensor):
        pass


@pytest.fixture(scope="module")
def program():
    x = cute.runtime.make_fake_compact_tensor(cutlass.Float32, (256,), assumed_align=16)
    with pytest.warns(UserWarning, match="Dynamic variable in block size"):
        return compile_program(several, [x, cutlass.Int32(4)])


def test_what_is_constant_is_known(program):
    facts = [(launch.block, launch.cluster, launch.dynamic_smem_bytes) for launch in program.launches]
    assert facts == [
        ((256, 1, 1), (1, 1, 1), 1024),
        (None, None, 4096),
        ((128, 2, 1), (2, 2, 1), None),
        ((256, 1, 1), (4, 1, 1), 2048),
    ]


@pytest.mark.parametrize("n", [2, 4, 8])
def test_what_is_known_is_what_is_launched(program, n):
    recorder = Recorder()
    ServedProgram(program)(recorder, torch.zeros(256), n)
    assert len(recorder.requests) == (4 if n > 3 else 3)
    for request, facts in zip(recorder.requests, program.launches, strict=False):
        assert request.kernel == facts.kernel
        launched = {"block": request.block, "cluster": request.cluster or (1, 1, 1)}
        launched["dynamic_smem_bytes"] = request.dynamic_smem_bytes
        for name, value in launched.items():
            assert getattr(facts, name) in (None, value)


def test_dynamic_shared_memory_is_not_static(program):
    assert [kernel.static_smem_bytes for kernel in read_resources(program.cubin)] == [0] * 4


def test_facts_go_through_json(program):
    assert tuple(LaunchFacts.from_json(launch.to_json()) for launch in program.launches) == program.launches


def test_stages_are_timed(program):
    assert list(program.seconds) == ["trace", "lower", "assemble", "host"]
    assert all(seconds >= 0 for seconds in program.seconds.values())
    assert program.seconds["trace"] > 0 < program.seconds["host"]
