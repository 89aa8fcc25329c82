"""The architecture that a function is compiled for: chosen, kept apart in the cache, and asked for by each launch."""

import pickle

import pytest

from tests.messages import refuses

pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import torch  # noqa: E402

import cutepy  # noqa: E402
from cutepy.host.function import WrongDeviceError  # noqa: E402
from cutepy.host.parallel_compilation import Variant  # noqa: E402
from cutepy.host.specs import TensorSpec  # noqa: E402
from cutepy.runtime.ptx_text import tmem_columns  # noqa: E402
from tests.host import inspected, kernels  # noqa: E402

VECTOR = TensorSpec("float32", (32,))


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CUTE_DSL_ARCH", raising=False)


@pytest.fixture(scope="module")
def blackwell():
    return cutepy.compile(inspected.in_tmem, VECTOR, cutlass.Int32(1), arch="sm_100a", cache=False)


def target(function):
    return function.ptx.partition(".target ")[2].split()[0]


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a", "sm_103a"])
def test_a_program_is_for_its_architecture_in_memory_on_disk_and_pickled(arch):
    for _ in range(2):
        made = cutepy.compile(kernels.fill, VECTOR, 1, arch=arch)
        assert (made.program.arch, made.metadata["arch"], target(made)) == (arch, arch, arch)
    assert made.cost().cached
    assert pickle.loads(pickle.dumps(made)).program.arch == arch


@pytest.mark.parametrize("sources", [(), ("tests.host.kernels",)])
def test_architectures_are_programs_of_their_own(sources):
    made = [cutepy.compile(kernels.fill, VECTOR, 1, arch=arch, sources=sources) for arch in ("sm_90a", "sm_100a")] * 2
    again = [cutepy.compile(kernels.fill, VECTOR, 1, arch=f.program.arch, sources=sources) for f in made]
    assert [f.cost().cached for f in again] == [True] * 4
    assert [f.program.arch for f in again] == ["sm_90a", "sm_100a"] * 2


def test_the_simulated_gpu_decides_before_the_variable(monkeypatch):
    assert cutepy.compile(kernels.fill, VECTOR, 1).program.arch == "sm_90a"
    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_103a")
    assert cutepy.compile(kernels.fill, VECTOR, 1).program.arch == "sm_103a"
    with cutepy.simulate(arch="sm_100a"):
        assert cutepy.compile(kernels.fill, VECTOR, 1).program.arch == "sm_100a"
        assert cutepy.compile(kernels.fill, VECTOR, 1, arch="sm_90a").program.arch == "sm_90a"


@pytest.mark.parametrize("arch", ["sm_100", "sm_90", 100])
def test_another_architecture_is_refused(arch):
    with refuses(ValueError if isinstance(arch, str) else TypeError):
        cutepy.compile(kernels.fill, VECTOR, 1, arch=arch)


@pytest.mark.integration
def test_processes_that_compile_are_told_the_architecture():
    variants = [Variant(kernels.fill, (VECTOR, value), arch=arch) for value in (1, 2.0) for arch in (None, "sm_103a")]
    with cutepy.simulate(arch="sm_100a"):
        made = cutepy.compile_many(variants, processes=2, progress=False)
    assert [target(f) for f in made] == ["sm_100a", "sm_103a"] * 2


@pytest.mark.parametrize(("arch", "other"), [("sm_90a", "sm_100a"), ("sm_100a", "sm_90a"), ("sm_100a", "sm_103a")])
def test_a_launch_asks_for_its_gpu(arch, other):
    made, filled = cutepy.compile(kernels.fill, VECTOR, 1.0, arch=arch), torch.zeros(32)
    with cutepy.simulate(arch=arch):
        made(filled, 2.0)
    with cutepy.simulate(arch=other):
        with refuses(WrongDeviceError):
            made(filled, 3.0)
        with refuses(WrongDeviceError):
            made.prepare()
    assert filled.tolist() == [2.0] * 32


@pytest.mark.parametrize("capability", [(9, 0), (10, 3), (12, 0)])
def test_a_gpu_of_another_architecture_is_refused(blackwell, monkeypatch, capability):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "a GPU")
    with refuses(WrongDeviceError):
        blackwell.prepare(0)


def test_tensor_memory_is_among_the_resources(blackwell):
    (computed,) = blackwell.resources
    assert computed.tmem_columns is None
    assert computed.static_smem_bytes + computed.dynamic_smem_bytes >= 4
    assert computed.occupancy.limits["CTAs"] == 32
    (hopper,) = cutepy.compile(kernels.fill, VECTOR, 1, cache=False).resources
    assert hopper.tmem_columns == 0


ALLOC = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], {};"


@pytest.mark.parametrize(
    ("body", "columns"),
    [
        ("ret;", 0),
        (ALLOC.format(64), 64),
        ("mov.b32 %r2, 256;\n" + ALLOC.format("%r2"), 256),
        ("mov.u32 %r2, %tid.x;\n" + ALLOC.format("%r2"), None),
        ("mov.b32 %r2, 256;\nadd.s32 %r2, %r2, 256;\n" + ALLOC.format("%r2"), None),
        (ALLOC.format(64) + ALLOC.format(32), None),
    ],
)
def test_columns_are_those_of_the_one_allocation(body, columns):
    other = f".entry other() {{ {ALLOC.format(512)} ret; }}\n"
    assert tmem_columns(f"{other}.visible .entry k() {{\n{body}\n}}", "k") == columns


def test_a_kernel_in_tensor_memory_runs(blackwell):
    filled = torch.zeros(32)
    with cutepy.simulate(arch="sm_100a", sanitize=True) as run:
        blackwell(filled, 64)
    assert not run.hazards
    assert filled.tolist() == [1.0] * 32
