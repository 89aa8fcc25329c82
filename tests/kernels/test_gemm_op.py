"""From a problem to its kernel: what TMA reaches, and what is refused before anything is compiled."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutepy  # noqa: E402
import cutepy.ops  # noqa: E402
from cutepy.epilogues.standard import standard  # noqa: E402
from cutepy.host.function import WrongDeviceError  # noqa: E402
from cutepy.kernels.gemm import GemmConfig, GemmSignature, gpu, op  # noqa: E402
from cutepy.kernels.gemm.gpu import H100  # noqa: E402
from cutepy.kernels.gemm.heuristic.choice import ChosenKernel, choose, chosen_us  # noqa: E402
from cutepy.kernels.gemm.operands import MOST_EXTENT, Description, Problem, matrix  # noqa: E402
from cutepy.kernels.gemm.reference import gemm_reference  # noqa: E402
from cutepy.kernels.gemm.tuned import TunedKernel  # noqa: E402

F16, E4M3 = torch.float16, torch.float8_e4m3fn


@pytest.fixture(autouse=True)
def nothing_compiles(monkeypatch):
    """Turn every attempt to compile into a failure."""

    def compile_gemm(_):
        raise AssertionError("reached the compiler")

    monkeypatch.setattr(op, "compile_gemm", compile_gemm)


def described(*shape, stride=None, dtype=F16, device="cpu"):
    return Description(shape, stride or (shape[0] * shape[1], shape[1], 1)[-len(shape) :], dtype, torch.device(device))


def plan(a, b, out, c=None):
    operands = () if c is None else (c,)
    return op.plan_gemm(Problem(standard(c=c is not None).text, a, b, operands, (out,)))


@pytest.mark.parametrize(
    ("shape", "stride", "mode", "pitch"),
    [
        ((16, 24), (24, 1), 1, 24),
        ((16, 24), (1, 16), 0, 16),
        ((16, 24), (1, 32), 0, 32),
        ((1, 24), (5, 1), 1, 24),
        ((24, 1), (1, 5), 0, 24),
        ((24, 1), (1, 1), 0, 24),
        ((8, 8), (8, 1), 1, 8),
    ],
)
def test_majors_are_read_from_the_strides(shape, stride, mode, pitch):
    """The stride of an extent of 1 never matters."""
    assert matrix(described(*shape, stride=stride)) == (mode, (pitch, 1) if mode else (1, pitch), 16)


@pytest.mark.parametrize(
    ("shape", "stride", "expected"),
    [
        ((4, 16, 24), (384, 24, 1), (384,)),
        ((4, 16, 24), (0, 24, 1), (0,)),
        ((4, 16, 24), (24, 96, 1), (24,)),
        ((1, 16, 24), (5, 24, 1), (0,)),
        ((2, 4, 16, 24), (384, 0, 24, 1), (384, 0)),
    ],
)
def test_batch_strides_are_whole_units_or_open(shape, stride, expected):
    found = matrix(described(*shape, stride=stride))
    assert found.stride == (*expected, *stride[-2:])


UNREACHABLE = {
    "neither extent contiguous": described(64, 32, stride=(64, 2)),
    "rows that overlap": described(48, 32, stride=(0, 1)),
    "rows closer than they are long": described(48, 32, stride=(24, 1)),
    "half a unit at the end": described(64, 36),
    "rows half a unit apart": described(64, 32, stride=(36, 1)),
    "matrices half a unit apart": described(2, 64, 32, stride=(64 * 32 + 4, 32, 1)),
    "8 bits along the rows": described(64, 32, stride=(1, 64), dtype=E4M3),
    "8 bits, half a unit": described(64, 24, dtype=E4M3),
    "an extent beyond 32 bits": described(MOST_EXTENT + 1, 8),
    "a stride beyond 40 bits": described(2, 8, stride=(2**39, 1)),
}


@pytest.mark.parametrize("name", UNREACHABLE)
def test_what_tma_does_not_reach(name):
    assert matrix(UNREACHABLE[name]) is None


@pytest.mark.parametrize(
    ("name", "tensor", "expected"),
    [
        ("whole units", described(64, 32), (1, (32, 1), 16)),
        ("8 bytes at the end", described(64, 36), (1, (36, 1), 8)),
        ("4 bytes at the end", described(64, 34), (1, (34, 1), 4)),
        ("2 bytes at the end", described(64, 33), None),
        ("rows 8 bytes apart", described(64, 32, stride=(36, 1)), (1, (36, 1), 8)),
        ("along the rows", described(34, 64, stride=(1, 36)), (0, (1, 36), 4)),
        ("matrices 4 bytes apart", described(2, 64, 32, stride=(64 * 32 + 2, 32, 1)), (1, (64 * 32 + 2, 32, 1), 4)),
        ("begins within 16 bytes", described(64, 32)._replace(address_bytes=8), (1, (32, 1), 8)),
        ("begins within 4 bytes", described(64, 32)._replace(address_bytes=2), None),
        ("8 bits", described(64, 36, dtype=E4M3), (1, (36, 1), 4)),
        ("8 bits along the rows", described(64, 36, stride=(1, 64), dtype=E4M3), None),
        ("rows that overlap", described(48, 32, stride=(0, 1)), None),
        ("one row", described(1, 34, stride=(5, 1)), (1, (34, 1), 4)),
        ("float32, of which TMA makes tf32", described(64, 34, dtype=torch.float32), None),
        ("float32, whole units", described(64, 36, dtype=torch.float32), (1, (36, 1), 16)),
        ("beyond 32 bits", described(MOST_EXTENT + 1, 8), None),
    ],
)
def test_what_threads_reach(name, tensor, expected):
    assert matrix(tensor, by_threads=True) == expected, name
    assert matrix(tensor, is_operand=True) == (expected if expected and expected[2] == 16 else None)


def test_addresses_are_told_up_to_16_bytes():
    whole = torch.empty(64, dtype=F16)
    assert whole.data_ptr() % 16 == 0
    told = [Description.at(whole[start:]).address_bytes for start in (0, 1, 2, 3, 4, 8)]
    assert told == [16, 2, 4, 2, 8, 16]
    assert Description.of(whole[1:]).address_bytes == 16, "not asked for"


def test_what_a_batch_repeats_is_stored_once():
    assert described(3, 4, 5).stored_bytes == 2 * 3 * 4 * 5
    assert described(3, 4, 5, stride=(0, 5, 1)).stored_bytes == 2 * 4 * 5


def test_what_tma_just_reaches():
    assert matrix(described(MOST_EXTENT, 8)) == (1, (8, 1), 16)
    assert matrix(described(2, 8, stride=(2**39 - 8, 1))) == (1, (2**39 - 8, 1), 16)
    assert matrix(described(64, 32, dtype=E4M3)) == (1, (32, 1), 16)
    assert matrix(described(33, 40, stride=(1, 40), dtype=torch.float32)) is None
    assert matrix(described(36, 40, stride=(1, 36), dtype=torch.float32)) == (0, (1, 36), 16)


def test_extents_that_tma_cannot_hold_are_refused_by_name():
    a, b = described(8, 8), described(16, 8)
    with cutepy.simulate():
        for tensors in (
            (described(MOST_EXTENT + 1, 8), b, described(MOST_EXTENT, 16)),
            (a, described(MOST_EXTENT + 1, 8), described(8, MOST_EXTENT + 1)),
        ):
            with refuses(ValueError):
                plan(*tensors)


def test_more_tiles_than_a_kernel_counts_are_refused():
    tensors = described(2**30, 1024, 8), described(2**30, 1024, 8), described(2**30, 1024, 1024)
    tensors = [tensor._replace(stride=(tensor.shape[1] * tensor.shape[2], tensor.shape[2], 1)) for tensor in tensors]
    tensors[2] = tensors[2]._replace(stride=(0, 1024, 1))  # below the limit of strides
    with cutepy.simulate(), refuses(ValueError):
        plan(*tensors)


@pytest.mark.parametrize("batch", [1, 64])
def test_the_tile_is_that_of_the_whole_batch(monkeypatch, batch):
    taken = []
    monkeypatch.setattr(op, "compile_gemm", taken.append)
    matrices = described(batch, 512, 512, stride=(512 * 512, 512, 1))
    with cutepy.simulate():
        plan(matrices, matrices, matrices)
    signature = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16", batch_modes=int(batch > 1))
    assert taken == [choose(signature, 512, 512, 512, batch=batch).config]


@pytest.mark.parametrize("capability", [(8, 0), (10, 0)])
def test_other_gpus_are_refused(monkeypatch, capability):
    gpu._asked.cache_clear()
    told = SimpleNamespace(major=capability[0], minor=capability[1])
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: told)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    with refuses(WrongDeviceError):
        plan(*(described(8, 8, device="cuda:0") for _ in range(3)))


def test_what_was_tuned_counts_as_it_was_timed(monkeypatch):
    lying = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16", b_align=4)
    by_tma, cuda, extents = replace(lying, b_align=16), torch.device("cuda:0"), (16, 64, 4096, 1)
    split = ChosenKernel(False, GemmConfig(signature=lying, tile_m=64, tile_n=64, split_k=2))
    monkeypatch.setattr(op, "tuned", lambda _, signature, *__: TunedKernel(split, 7.0) if signature == lying else None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    monkeypatch.setattr(op, "gpu_of", lambda _: H100)
    assert op.choose_on(cuda, lying, *extents) == split
    assert op.chosen_us_on(cuda, lying, *extents) == 7.0
    assert op.choose_on(cuda, by_tma, *extents) == choose(by_tma, *extents[:3], gpu=H100)
    assert op.choose_on(cuda, by_tma, 128, 4096, 4096, 1) == choose(by_tma, 128, 4096, 4096, gpu=H100)
    assert op.choose_on(cuda, by_tma, 128, 4096, 4096, 1) != choose(by_tma, 128, 4096, 4096)
    assert op.chosen_us_on(cuda, by_tma, *extents) == chosen_us(by_tma, *extents[:3], gpu=H100)
    with cutepy.ops.batch_invariant():
        assert op.choose_on(cuda, lying, *extents) == choose(lying, *extents[:3], gpu=H100)
        assert op.chosen_us_on(cuda, lying, *extents) == chosen_us(lying, *extents[:3], gpu=H100)
    with cutepy.simulate():
        assert op.chosen_us_on(cuda, lying, *extents) == chosen_us(lying, *extents[:3], gpu=H100)


@pytest.mark.parametrize(
    ("settings", "kept"),
    [({}, True), ({"dynamic": True}, True), ({"stream_k": True}, False), ({"split_k": 2}, False)],
    ids=str,
)
def test_where_rows_are_to_be_alike_what_was_tuned_counts_if_it_leaves_k_whole(monkeypatch, settings, kept):
    kind = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    won = ChosenKernel(False, GemmConfig(signature=kind, tile_m=64, tile_n=24, epi_n=24, **settings))
    monkeypatch.setattr(op, "tuned", lambda *_: TunedKernel(won, 7.0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    monkeypatch.setattr(op, "gpu_of", lambda _: H100)
    asked = torch.device("cuda:0"), kind, 512, 512, 4096, 1
    assert op.choose_on(*asked) == won
    with cutepy.ops.batch_invariant():
        assert (op.choose_on(*asked) == won) == kept


def test_the_reference_is_exact():
    a, b = torch.randn(5, 7).half(), torch.randn(3, 7).half()
    expected = [[sum(float(x) * float(y) for x, y in zip(row, column, strict=True)) for column in b] for row in a]
    assert torch.allclose(gemm_reference(a, b), torch.tensor(expected, dtype=torch.float64), rtol=1e-15, atol=1e-15)
    assert torch.equal(gemm_reference(a, b, torch.ones(5, 3)), gemm_reference(a, b) + 1)
