"""Products of tensors of any shapes and strides: each operand is copied at most once, and the result is right."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from hypothesis import HealthCheck, given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy.epilogues import Tile  # noqa: E402
from cutepy.host.launches import Launches  # noqa: E402
from cutepy.kernels.gemm import copies, op, select_config  # noqa: E402
from cutepy.kernels.gemm.heuristic.choice import ChosenKernel  # noqa: E402
from cutepy.kernels.gemm.reference import gemm_reference  # noqa: E402
from cutepy.ops import gemm, multiply  # noqa: E402

pytestmark = [pytest.mark.integration, pytest.mark.dsl]

F16 = torch.float16


@cutepy.epilogue
def added(acc, tile: Tile):
    return acc + tile


@cutepy.epilogue
def doubled(acc):
    return acc * 2


EXTENTS = st.sampled_from([1, 2, 3, 5, 8, 16, 24])


@st.composite
def tensors(draw, shape, dtype=F16, expand=True):
    """Small whole numbers in any order in memory, with gaps, steps and an offset; batches may be repeated."""
    rank = len(shape)
    repeated = [expand and d < rank - 1 and draw(st.integers(0, 3)) == 0 for d in range(rank)]
    order = draw(st.one_of(st.just(list(range(rank))), st.permutations(range(rank))))
    steps = [draw(st.sampled_from([1, 1, 1, 2])) for _ in range(rank)]
    gaps = [draw(st.sampled_from([0, 0, 0, 1, 8])) for _ in range(rank)]
    stored = [1 if repeated[d] else shape[d] * steps[d] + gaps[d] for d in order]
    offset, count = draw(st.sampled_from([0, 0, 0, 1, 8])), torch.Size(stored).numel()
    generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    values = torch.randint(-3, 4, (offset + count,), generator=generator).to(dtype)
    whole = values[offset:].view(stored).permute([order.index(d) for d in range(rank)])
    cuts = (slice(0, 1) if repeated[d] else slice(0, shape[d] * steps[d], steps[d]) for d in range(rank))
    return whole[tuple(cuts)].expand(shape)


@st.composite
def problems(draw, ranks=5):
    """Draw a, b and out, or None for a new result."""
    batch = [draw(st.sampled_from([1, 2, 2, 3])) for _ in range(draw(st.integers(0, ranks)))]
    m, n, k = (draw(EXTENTS) for _ in range(3))
    of_a, of_b = ([1 if draw(st.integers(0, 3)) == 0 else extent for extent in batch] for _ in range(2))
    if draw(st.booleans()):
        of_b = []  # all rows meet one matrix
    a, b = draw(tensors((*of_a, m, k))), draw(tensors((*of_b, n, k)))
    shape = (*torch.broadcast_shapes(of_a, of_b), m, n)
    out = draw(st.one_of(st.none(), tensors(shape, draw(st.sampled_from([F16, torch.float32])), expand=False)))
    return a, b, out


@pytest.fixture
def watched(monkeypatch):
    """Multiply in plain torch what would be launched; count launches, and refuse to copy a copy."""
    made, launches = [], []

    def straight(_device, signature, m, n, k, batch):
        return ChosenKernel(False, select_config(signature, m, n, k, batch=batch))

    def kernel(a, b, c, out, _sm_count, bias, _workspace):
        launches.append(a.shape)
        m, n, k = a.shape[-2], b.shape[-2], min(a.shape[-1], b.shape[-1])
        assert not a[..., k:].any(), "beyond the end of the other TMA fills in zeros"
        assert not b[..., k:].any()
        result = gemm_reference(a[..., :k], b[..., :k], None if c is None else c[..., :m, :n], bias)
        out[...] = float("nan")  # beyond the rows of A and of B, what the kernel writes means nothing
        out[..., :m, :n] = result

    def watching(tensor, *arguments):
        result = copy(tensor, *arguments)
        if tensor.device.type != "meta":
            assert all(tensor.untyped_storage().data_ptr() != of.untyped_storage().data_ptr() for of in made)
            made.append(result)
        return result

    copy = copies.padded_copy
    monkeypatch.setattr(multiply, "_launches", Launches())
    monkeypatch.setattr(op, "compile_gemm", lambda _: kernel)
    monkeypatch.setattr(op, "choose_on", straight)
    monkeypatch.setattr(copies, "padded_copy", watching)
    return made, launches


def multiplied(a, b, out):
    """Give the result; whole numbers make it exact."""
    if out is None:
        return gemm(a, b)
    whole = torch.empty(0, dtype=out.dtype).set_(out.untyped_storage())
    before, written = whole.clone(), torch.zeros_like(whole, dtype=torch.bool)
    written.as_strided(out.shape, out.stride(), out.storage_offset()).fill_(True)
    result = gemm(a, b, out=out)
    assert torch.equal(whole[~written], before[~written]), "written to between the elements of out"
    return result


@pytest.mark.deep
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(drawn=problems())
def test_operands_are_copied_once_at_most(watched, drawn):
    a, b, out = drawn
    for list_ in watched:
        list_.clear()
    with cutepy.simulate():
        found = multiplied(a, b, out)
    assert torch.equal(found.double(), gemm_reference(a, b))
    made, launches = watched
    assert launches
    assert len(made) <= 2 * len(launches)


@settings(max_examples=15)
@given(problems(ranks=3))
def test_the_kernel_computes_what_float64_does(drawn):
    a, b, out = drawn
    with cutepy.simulate():
        found = multiplied(a, b, out)
    assert torch.equal(found.double(), gemm_reference(a, b))


REPEATED = {
    "a shared, odd n": lambda: (numbers(2, 8), numbers(3, 8).expand(4, 3, 8), 0),
    "a repeated, odd n": lambda: (numbers(2, 8).expand(4, 2, 8), numbers(3, 8), 0),
    "both repeated": lambda: (numbers(1, 3, 64).expand(8, 3, 64), numbers(1, 9, 64).expand(8, 9, 64), 0),
    "one row, repeated": lambda: (numbers(1, 8).expand(4, 8), numbers(3, 8), 1),
    "one element, repeated": lambda: (numbers(1, 1, 1).expand(5, 3, 16), numbers(10, 16), 1),
    "odd k": lambda: (numbers(2, 7).expand(4, 2, 7), numbers(3, 7), 2),
}


def test_an_address_within_16_bytes_costs_a_copy_of_whole_units(watched):
    """K = 2 does without where an operand is not contiguous along it; a copy is, and is filled up."""
    a, b = numbers(2, 8).T, numbers(17)[1:].view(2, 8).T
    with cutepy.simulate():
        for _ in range(2):
            assert torch.equal(gemm(a, b).double(), gemm_reference(a, b))
            assert torch.equal(gemm(b, a).double(), gemm_reference(b, a))
    made, launches = watched
    assert (len(made), len(launches)) == (4, 4)


def apart(rows, columns, elements, begin=0):
    """Rows that are so many elements longer than they seem, from one of the first."""
    return numbers(begin + rows * (columns + elements))[begin:].view(rows, columns + elements)[:, :columns]


LOADED = {
    "k of 4 bytes": lambda: (numbers(3, 10), numbers(40, 10)),
    "k of 8 bytes": lambda: (numbers(3, 12), numbers(40, 12)),
    "k of 8 bytes, n of 2": lambda: (numbers(3, 12), numbers(41, 12)),
    "rows 4 bytes apart": lambda: (numbers(3, 16), apart(40, 16, 2)),
    "begins within 8 bytes": lambda: (numbers(3, 16), apart(40, 16, 0, begin=2)),
    "m and n of 4 bytes": lambda: (numbers(16, 10).T, numbers(16, 42).T),
    "a batch": lambda: (numbers(2, 3, 12), numbers(2, 40, 12)),
    "a batch that shares b": lambda: (numbers(3, 2, 12).transpose(0, 1), numbers(40, 12)),
    "two batches that share b by rows": lambda: (numbers(2, 3, 12), numbers(40, 12)),
}
COPIED = {
    "k of 2 bytes": (lambda: (numbers(3, 11), numbers(40, 11)), 2),
    "begins within 4 bytes": (lambda: (numbers(3, 16), apart(40, 16, 0, begin=1)), 1),
    "k of 4 bytes, one begins within these": (lambda: (numbers(3, 10), apart(40, 10, 0, begin=1)), 1),
    "k of 8 bytes, as one row, repeated": (lambda: (numbers(1, 12).expand(4, 12), numbers(40, 12)), 1),
}


@pytest.mark.parametrize("name", LOADED)
def test_what_threads_load_is_not_copied_where_copies_cost_more(watched, name):
    a, b = LOADED[name]()
    with cutepy.simulate():
        found = gemm(a, b)
    made, launches = watched
    assert (made, len(launches)) == ([], 1)
    assert torch.equal(found.double(), gemm_reference(a, b))


@pytest.mark.parametrize("name", COPIED)
def test_what_threads_do_not_load_is_copied(watched, name):
    operands, expected = COPIED[name]
    a, b = operands()
    with cutepy.simulate():
        found = gemm(a, b)
    made, launches = watched
    assert (len(made), len(launches)) == (expected, 1)
    assert torch.equal(found.double(), gemm_reference(a, b))


def test_what_threads_load_is_copied_where_that_costs_less(watched, monkeypatch):
    monkeypatch.setattr(copies, "loads_pay", lambda *_: False)
    a, b = LOADED["k of 8 bytes"]()
    with cutepy.simulate():
        assert torch.equal(gemm(a, b).double(), gemm_reference(a, b))
    made, launches = watched
    assert [copy.shape for copy in made] == [(3, 16), (40, 16)]
    assert launches == [(3, 16)]


@pytest.mark.parametrize("epilogue", [None, doubled])
def test_what_begins_elsewhere_is_taken_anew(monkeypatch, epilogue):
    """Threads that loaded pieces of 8 bytes from within would fault."""
    monkeypatch.setattr(multiply, "_launches", Launches())
    a = numbers(3, 16)
    for begin in (4, 2, 1, 0, 1, 2, 4):
        b = apart(40, 16, 0, begin)
        assert b.stride() == (16, 1)
        with cutepy.simulate():
            found = gemm(a, b, epilogue=epilogue) if epilogue else gemm(a, b)
        assert torch.equal(found.double(), gemm_reference(a, b) * (2 if epilogue else 1))


@pytest.mark.parametrize("pays", [True, False])
def test_an_epilogue_takes_what_threads_load_as_it_lies(monkeypatch, pays):
    made, asked = [], []

    def padded_copy(tensor, *how):
        made.extend([] if tensor.device.type == "meta" else [tensor.shape])
        return copy(tensor, *how)

    def rule(*times):
        asked.append(times)
        return pays

    copy = copies.padded_copy
    monkeypatch.setattr(multiply, "_launches", Launches())
    monkeypatch.setattr(copies, "padded_copy", padded_copy)
    monkeypatch.setattr(copies, "loads_pay", rule)
    a, b, tile = numbers(3, 12), numbers(40, 12), numbers(3, 41)[:, :40]
    with cutepy.simulate():
        found = gemm(a, b, epilogue=added, tile=tile)
    assert torch.equal(found.double(), gemm_reference(a, b) + tile.double())
    assert made == ([] if pays else [a.shape, b.shape]) + [tile.shape]
    ((by_threads_us, by_tma_us, copied_bytes),) = asked
    assert by_threads_us > by_tma_us > 0
    assert copied_bytes == [2 * 3 * 12, 2 * 40 * 12]


def numbers(*shape):
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(0)).to(F16)


@pytest.mark.parametrize("name", REPEATED)
def test_what_is_repeated_is_not_copied_but_for_rows(watched, name):
    a, b, expected = REPEATED[name]()
    with cutepy.simulate():
        found = gemm(a, b)
    made, launches = watched
    assert (len(made), len(launches)) == (expected, 1)
    assert torch.equal(found.double(), gemm_reference(a, b))


def test_copies_are_joined_as_the_result_is(watched):
    """The longer mode is the rows, though the other is the closer one in `a`."""
    a, b = numbers(8, 3, 7), numbers(5, 7)
    with cutepy.simulate():
        found = gemm(a[:, :2], b)
    assert torch.equal(found.double(), gemm_reference(a[:, :2], b))
    made, launches = watched
    assert made[0].stride() == (64, 8, 1)
    assert launches == [(16, 8)], "one product of matrices"


@pytest.mark.parametrize("shape", [(2, 5, 12), (32, 4, 10), (5, 7, 12)])
def test_a_gradient_of_one_number_repeated(watched, shape):
    layer = cutepy.nn.Linear(shape[-1], 10, dtype=F16)
    x = numbers(*shape).requires_grad_()
    with cutepy.simulate():
        layer(x).sum().backward()
    expected = layer.weight.detach().double().sum(0).expand(shape)
    torch.testing.assert_close(x.grad.double(), expected, rtol=2e-3, atol=2e-3)
