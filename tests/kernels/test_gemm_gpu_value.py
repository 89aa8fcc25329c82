"""The GPU that is chosen for: what torch says of it, and that all who choose take the whole of it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")

from cutepy.host.function import WrongDeviceError  # noqa: E402
from cutepy.kernels.gemm import GemmSignature, gpu, select_config, tuned  # noqa: E402
from cutepy.kernels.gemm.gpu import H100, H200, Gpu, gpu_of  # noqa: E402
from cutepy.kernels.gemm.heuristic.choice import choose, chosen_us, expected_us  # noqa: E402
from cutepy.kernels.gemv.choice import fastest  # noqa: E402
from cutepy.kernels.grouped import select_grouped  # noqa: E402
from cutepy.runtime import devices  # noqa: E402
from cutepy.suites import gemm_tuning  # noqa: E402
from cutepy.suites.gemm_problems import GemmProblem  # noqa: E402
from cutepy.suites.gemm_tuning import GemmTunable, settings_of  # noqa: E402

HALF = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
BFLOAT16 = replace(HALF, a_dtype="bfloat16", b_dtype="bfloat16")
BLOCKS = GemmSignature(a_dtype="float8_e4m3fn", b_dtype="float8_e4m3fn", out_dtype="bfloat16", scale_rows=(1, 128))
HOPPER = {"major": 9, "minor": 0, "multi_processor_count": 132}


@pytest.fixture
def says(monkeypatch):
    """Let torch say something of GPUs; gives those that it was asked about."""
    asked = []

    def say(**properties):
        def get_device_properties(index):
            asked.append(index)
            return SimpleNamespace(**HOPPER | properties)

        monkeypatch.setattr(torch.cuda, "get_device_properties", get_device_properties)
        return asked

    gpu._asked.cache_clear()
    yield say
    gpu._asked.cache_clear()


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ({"memory_clock_rate": 3_201_000, "memory_bus_width": 6016}, H200),
        ({"memory_clock_rate": 2_619_000, "memory_bus_width": 5120}, H100),
        ({"total_memory": 150 * 10**9}, H200),
        ({"total_memory": 85 * 10**9}, H100),
        (
            {"multi_processor_count": 114, "memory_clock_rate": 1_593_000, "memory_bus_width": 5120},
            Gpu(114, 2.04),
        ),
    ],
)
def test_memory_is_as_fast_as_its_clock_and_width_say_or_else_its_size(says, told, found):
    says(**told)
    assert gpu_of(torch.device("cuda", 0)) == found


def test_a_gpu_that_is_no_hopper_is_refused(says, monkeypatch):
    says(major=8)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA A100")
    with refuses(WrongDeviceError):
        gpu_of(torch.device("cuda", 0))


def test_a_gpu_is_asked_once_and_the_current_one_is_meant_where_none_is_named(says, monkeypatch):
    asked = says(total_memory=85 * 10**9)
    assert [gpu_of(torch.device("cuda", index)) for index in (0, 0)] == [H100, H100]
    assert asked == [0]
    says(total_memory=150 * 10**9)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert [gpu_of(torch.device("cuda", index)) for index in (None, 0, 1)] == [H200, H100, H200]
    assert asked == [0, 1]


def test_the_simulator_stands_for_an_h200(monkeypatch, says):
    assert gpu_of(torch.device("cpu")) == H200
    says()
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: devices.H200.properties)
    assert gpu_of(torch.device("cuda", 0)) == H200


@pytest.mark.parametrize("values", [(0, 4.92), (132, 0.0)])
def test_no_gpu_is_without_sms_or_memory(values):
    with refuses(ValueError):
        Gpu(*values)


def test_fewer_sms_may_be_named_alone():
    few, extents = Gpu(114, H200.memory_tbs), (1000, 3000, 1000)
    assert select_config(HALF, *extents, sm_count=114) == select_config(HALF, *extents, 114)
    assert select_config(HALF, *extents, 114) == select_config(HALF, *extents, gpu=few) != select_config(HALF, *extents)
    groups = (HALF, "m", (4096, 7168, 4096), 8)
    assert select_grouped(*groups, sm_count=114) == select_grouped(*groups, 114)
    assert select_grouped(*groups, 114) == select_grouped(*groups, gpu=few) != select_grouped(*groups)


def test_slow_memory_and_few_sms_take_longer():
    for slower in (H100, replace(H200, sm_count=66)):
        assert expected_us(512, 8192, 4096, 16, slower) > expected_us(512, 8192, 4096, 16, H200)
        assert expected_us(64, 4096, 4096, 16, slower, batch=8) > expected_us(64, 4096, 4096, 16, H200, batch=8)
        assert chosen_us(HALF, 512, 8192, 4096, gpu=slower) > chosen_us(HALF, 512, 8192, 4096)


@pytest.mark.parametrize(
    "choices",
    [
        [lambda gpu, n=n: choose(HALF, 128, n, 4096, gpu=gpu) for n in (1000, 4096)],
        [lambda gpu, m=m: fastest(HALF, m, 14336, 4096, gpu=gpu) for m in (4, 8)],
        [lambda gpu, m=m: tuned.default(tuned.problem_of(HALF, m, 14336, 4096), gpu) for m in (4, 8)],
        [lambda gpu, n=n: select_grouped(HALF, "m", (2048, n, 2048), 32, gpu=gpu) for n in (4096, 7168)],
    ],
    ids=["choose", "fastest", "default", "select_grouped"],
)
def test_each_gpu_has_choices_of_its_own(choices):
    for other in (H100, replace(H200, sm_count=66)):
        assert any(choice(other) != choice(H200) for choice in choices)


@pytest.mark.parametrize(("signature", "groups"), [(BFLOAT16, 8), (BFLOAT16, 64), (BLOCKS, 8)])
@pytest.mark.parametrize(("n", "k"), [(4096, 7168), (7168, 4096)])
def test_experts_have_the_choices_that_were_measured_on_both(signature, groups, n, k):
    """The tables of timed/history.md, but for blocks of 64 experts: an H100's times are of the H200's choices."""
    asked = signature, "m", (4096, n, k), groups
    assert select_grouped(*asked, gpu=H100) == select_grouped(*asked)


def test_tuning_compares_with_what_is_chosen_for_the_gpu_at_hand(monkeypatch):
    problem = GemmProblem(4, 14336, 4096, "float16")
    settings = settings_of(problem)
    monkeypatch.setattr(gemm_tuning, "gpu_of", lambda _: H100)
    assert GemmTunable([problem]).default(settings) == tuned.default(settings, H100) != tuned.default(settings)
