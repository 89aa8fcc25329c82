"""Products whose operands threads load as they lie, on a Hopper GPU: whole numbers, bit for bit."""

import random
from unittest import mock

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.gpu

from cutepy.host.launches import Launches  # noqa: E402
from cutepy.kernels.gemm import copies  # noqa: E402
from cutepy.kernels.gemm.reference import gemm_reference  # noqa: E402
from cutepy.ops import gemm, multiply  # noqa: E402
from tests.ops.test_thread_loads import PAIRS, laid_out  # noqa: E402

F32, I32 = torch.float32, torch.int32


def on_gpu(tensor):
    """Move a tensor with its strides, and its place within 16 bytes."""
    storage = tensor.untyped_storage().cuda()
    empty = torch.empty(0, dtype=tensor.dtype, device="cuda")
    return empty.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


def cases(count, seed):
    """Draw operands in units of 4 or 8 bytes, of few rows and of many."""
    chance = random.Random(seed)
    for index in range(count):
        dtypes = chance.choice(PAIRS[:-1])
        size, largest = dtypes[0].itemsize, chance.choice((64, 300, 1200, 4000))
        unit, batch = chance.choice((4, 8)) // size, chance.choice(((), (), (3,)))
        m, n, k = (chance.randint(1, largest) for _ in "mnk")
        majors = [chance.choice(("k", "mn")) if size == 2 else "k" for _ in "ab"]
        pairs = zip((m, n), majors, strict=True)
        rows = [extent if major == "k" else -(-extent // unit) * unit for extent, major in pairs]
        begin, gap = (unit * chance.randint(0, 3) for _ in "ab")
        shapes = [(*batch, extent, -(-k // unit) * unit) for extent in rows]
        yield pytest.param(shapes, dtypes, majors, gap, begin, id=f"{index}-{m}x{n}x{k}")


@pytest.mark.parametrize("pays", [True, None])
@pytest.mark.parametrize(("shapes", "dtypes", "majors", "gap", "begin"), list(cases(60, seed=20261124)))
def test_random_products(shapes, dtypes, majors, gap, begin, pays):
    """With whatever threads can load, and as the rule says."""
    a, b = (
        on_gpu(laid_out(shape, dtype, major, gap, begin, seed))
        for seed, (shape, dtype, major) in enumerate(zip(shapes, dtypes, majors, strict=True))
    )
    rule = mock.Mock(return_value=True) if pays else copies.loads_pay
    out_dtype = I32 if dtypes[0] == torch.int8 else F32
    with mock.patch.object(copies, "loads_pay", rule), mock.patch.object(multiply, "_launches", Launches()):
        for _ in range(2):  # the second call takes the short way
            found = gemm(a, b, out_dtype=out_dtype)
            assert torch.equal(found.double(), gemm_reference(a, b)), (a.shape, b.shape)


def test_few_rows_times_a_large_matrix_without_a_copy():
    """1x4097x4098, whose copies would move three times the bytes of B: the memory in use tells that none is made."""
    a, b = (on_gpu(laid_out((rows, 4098), torch.bfloat16, "k", 0, 0, rows)) for rows in (1, 4097))
    gemm(a, b)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found = gemm(a, b, out_dtype=F32)
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before < 2**20
    assert torch.equal(found.double(), gemm_reference(a, b))
