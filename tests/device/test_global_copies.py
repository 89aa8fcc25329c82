"""Rows copied by threads in vectors: right and clean for any extents, alignments and types; as wide as was declared."""

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

from functools import cache  # noqa: E402

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402
from hypothesis import HealthCheck, given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device import rules  # noqa: E402
from cutepy.device.global_copies import make_row_vectors  # noqa: E402
from cutepy.dsl.traced_names import SmemAllocator  # noqa: E402

THREADS = 64


class Copy:
    """Y = X, converted: a CTA for each row, and one more, which has nothing to do."""

    def __init__(self, streams=False):
        self.streams = streams

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        rows = cute.size(x) if cutlass.const_expr(cute.rank(x) == 1) else cute.size(x, mode=[0])
        self.kernel(x, y).launch(grid=(rows + 1, 1, 1), block=(THREADS, 1, 1))

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        to = make_row_vectors(y, make_row_vectors(x).elems)
        source = make_row_vectors(x, to.elems)
        row, tidx = cute.arch.block_idx()[0], cute.arch.thread_idx()[0]
        for vector in cutlass.range(tidx, source.count, THREADS, unroll=1):
            to.store(source.load(row, vector, self.streams), row, vector)


class Stage(Copy):
    """Y = X, by way of shared memory."""

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        source = make_row_vectors(x)
        to = make_row_vectors(y, source.elems)
        row, tidx = cute.arch.block_idx()[0], cute.arch.thread_idx()[0]
        held = SmemAllocator().allocate_tensor(
            x.element_type, cute.make_layout((source.elems, THREADS)), byte_alignment=16
        )
        for vector in cutlass.range(tidx, source.count, THREADS, unroll=1):
            source.stage(row, vector, held[None, tidx])
            cute.arch.cp_async_commit_group()
            cute.arch.cp_async_wait_group(0)
            to.store(held[None, tidx], row, vector)


def spec(name, dtype, align, divisor, columns=1):
    return cutepy.TensorSpec(
        dtype, ("m", "n"), strides=(name, 1), divisibility={name: divisor} | {"n": columns}, align=align
    )


@cache
def compiled(dtypes, aligns, columns=1, streams=False):
    x, y = (
        spec(name, dtype, align, max(align // dtype.itemsize, 1), columns)
        for name, dtype, align in zip("xy", dtypes, aligns, strict=True)
    )
    return cutepy.compile(Copy(streams), x, y)


def placed(rows, columns, dtype, align, value):
    """Give a matrix at a multiple of so many bytes and of no more, as its rows are, and what is around it."""
    unit = max(align // dtype.itemsize, 1)
    pitch = (columns // unit + 1 + (columns // unit) % 2) * unit  # an odd number of units
    held = torch.full((unit + (rows + 1) * pitch,), value).to(dtype)
    return held[unit:].as_strided((rows, columns), (pitch, 1)), held


F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
TYPES = [
    (F16, F16),
    (BF16, F32),
    (F32, BF16),
    (torch.int8, torch.int8),
    (torch.uint8, F32),
    (torch.float8_e4m3fn, torch.float8_e4m3fn),
    (F32, torch.float8_e4m3fn),
    (torch.float8_e5m2, F16),
    (torch.int32, torch.int32),
    (torch.int64, torch.int64),
    (torch.float64, torch.float64),
]


@pytest.mark.parametrize("dtypes", TYPES, ids=str)
@settings(deadline=None, max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(
    rows=st.integers(1, 3),
    columns=st.one_of(st.integers(1, 20), st.integers(1, 1500)),
    aligns=st.sampled_from([(16, 16), (16, 4), (8, 16), (1, 1), (4, 8)]),
)
def test_rows_are_copied_and_nothing_else(dtypes, rows, columns, aligns):
    aligns = tuple(max(align, dtype.itemsize) for align, dtype in zip(aligns, dtypes, strict=True))
    x, _ = placed(rows, columns, dtypes[0], aligns[0], 96)
    y, around = placed(rows, columns, dtypes[1], aligns[1], 80)
    x.copy_(torch.randint(0, 8, (rows, columns)))
    with cutepy.simulate(sanitize=True) as run:
        compiled(dtypes, aligns)(x, y)
    assert torch.equal(y.double(), x.double())
    y.fill_(80)
    assert (around.double() == 80).all()
    assert not run.hazards


@pytest.mark.integration
@pytest.mark.parametrize(("dtype", "align"), [(F16, 16), (F32, 8)])
def test_rows_are_staged_up_to_their_ends(dtype, align):
    torch.manual_seed(0)
    elems = align // dtype.itemsize
    kernel = cutepy.compile(Stage(), *(spec(name, dtype, align, elems) for name in "xy"))
    for columns in (1, elems, 2 * elems + 1, THREADS * elems + elems - 1):
        x, _ = placed(3, columns, dtype, align, 96)
        y, around = placed(3, columns, dtype, align, 80)
        x.copy_(torch.randint(1, 8, x.shape))
        with cutepy.simulate(sanitize=True) as run:
            kernel(x, y)
        assert torch.equal(y, x)
        y.fill_(80)
        assert (around == 80).all()
        assert not run.hazards


@pytest.mark.parametrize(
    ("dtypes", "aligns", "columns", "loads", "stores"),
    [
        ((F16, F16), (16, 16), 8, "v4.b32", "v4.b32"),
        ((F16, F16), (16, 4), 8, ".b32", ".b32"),
        ((BF16, F32), (16, 16), 8, "v2.b32", "v4.b32"),
        ((torch.int8, torch.int8), (16, 16), 16, "v4.b32", "v4.b32"),
    ],
)
def test_vectors_are_as_wide_as_was_declared(dtypes, aligns, columns, loads, stores):
    lines = compiled(dtypes, aligns, columns, True).ptx.splitlines()
    read = [line for line in lines if "ld.global" in line]
    written = [line for line in lines if "st.global" in line]
    assert len(read) == len(written) == 1, "of whole vectors, without a tail"
    assert loads in read[0]
    assert "L1::no_allocate" in read[0]
    assert stores in written[0]


class Rows:
    """Y = X of vectors (n,)."""

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=(1, 1, 1), block=(32, 1, 1))

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        source, to = make_row_vectors(x), make_row_vectors(y)
        for vector in cutlass.range(cute.arch.thread_idx()[0], source.count, 32, unroll=1):
            to.store(source.load(0, vector), 0, vector)


@pytest.mark.parametrize("n", [1, 7, 300])
def test_a_vector_is_one_row(n):
    x = torch.randn(n)
    y = torch.zeros(n)
    with cutepy.simulate(sanitize=True) as run:
        cutepy.compile(Rows(), *(cutepy.TensorSpec("float32", ("n",)) for _ in "xy"))(x, y)
    assert torch.equal(x, y)
    assert not run.hazards


@pytest.mark.parametrize(
    "shape",
    [
        (4, 8, 8),
        (8, 8),
    ],
)
def test_other_tensors_are_refused_while_they_are_traced(shape):
    x = torch.zeros(shape).mT
    with cutepy.simulate(), refuses(ValueError):
        Copy()(x, x)


def test_what_vectors_can_be():
    assert [rules.vector_elems(16, align, 0) for align in (2, 4, 8, 16, 32)] == [1, 2, 4, 8, 8]
    assert [rules.vector_elems(16, 16, stride) for stride in (1, 2, 12, 24)] == [1, 2, 4, 8]
    assert [rules.vector_elems(32, 16, 0, most) for most in (1, 2, 3, 8)] == [1, 2, 2, 4]
    with refuses(ValueError):
        rules.vector_elems(4, 16, 0)
    with refuses(ValueError):
        rules.vector_elems(32, 2, 0)
    with refuses(ValueError):
        rules.check_vector(4, 8)
