"""A row has the same bits in any batch where that is asked for."""

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy import simulate  # noqa: E402
from cutepy.epilogues import amax, silu, sum_of_squares  # noqa: E402
from cutepy.kernels.gemm import GemmSignature  # noqa: E402
from cutepy.kernels.gemm.heuristic.choice import choose, select_config  # noqa: E402
from cutepy.kernels.gemm.results import added_in_pairs  # noqa: E402
from cutepy.kernels.grouped import select_grouped  # noqa: E402
from cutepy.ops import (  # noqa: E402
    batch_invariant,
    gemm,
    grouped_gemm,
    quantise,
    scaled_gemm,
    scaled_grouped_gemm,
)
from cutepy.runtime.invariance import INVARIANCE  # noqa: E402

HALF = GemmSignature.standard(a_dtype="float16", b_dtype="float16", out_dtype="float16")


def test_k_is_whole_within_the_context():
    assert choose(HALF, 64, 64, 8192).config.split_k > 1
    context = batch_invariant()
    with context:
        with context:
            pass
        assert choose(HALF, 64, 64, 8192).config.split_k == 1
    assert choose(HALF, 64, 64, 8192).config.split_k > 1


def test_k_of_groups_is_whole_within_the_context():
    problem = HALF, "m", (64, 64, 8192), 4
    assert select_grouped(*problem).config.gemm.split_k > 1
    with batch_invariant():
        assert select_grouped(*problem).config.gemm.split_k == 1
    assert select_grouped(*problem).config.gemm.split_k > 1


@pytest.mark.dsl
def test_a_call_is_not_answered_by_the_kernel_of_another_mode():
    torch.manual_seed(0)
    a, b = torch.randn(72, 512).half(), torch.randn(16, 512).half()
    with simulate() as run:
        gemm(a[:16], b)
        with batch_invariant():
            alone, among = gemm(a[:16], b), gemm(a, b)
    parts = [launch.grid[2] for launch in run.launches]
    assert parts[0] > 1
    assert parts[1:] == [1, 1]
    assert torch.equal(alone, among[:16])


def of_groups():
    a, b = torch.randn(16, 1024).half(), torch.randn(2, 48, 1024).half()
    return lambda: grouped_gemm(a, b, offs=torch.tensor([9, 16], dtype=torch.int32))


def of_scales():
    (a, scale_a), (b, scale_b) = quantise(torch.randn(8, 4096)), quantise(torch.randn(48, 4096), (128, 128))
    return lambda: scaled_gemm(a, b, scale_a, scale_b)


@pytest.mark.dsl
@pytest.mark.integration
@pytest.mark.parametrize("make", [of_groups, of_scales])
def test_other_products_are_not_answered_by_the_kernel_of_another_mode(make):
    torch.manual_seed(0)
    multiply = make()
    with simulate() as run:
        multiply()
        with batch_invariant():
            multiply()
        multiply()
    before, within, after = [launch.grid[2] for launch in run.launches]
    assert before == after > within == 1


A, B = torch.randn(16, 1024).half(), torch.randn(48, 1024).half()


@cutepy.epilogue
def doubled(acc):
    return acc * 2.0


def products():
    """Give functions of tensors, and the tensors, whose K is in parts outside of the context."""
    (x, by_128), (w, squares) = quantise(torch.randn(16, 4096)), quantise(torch.randn(48, 4096), (128, 128))
    matrices, ends = torch.randn(2, 48, 1024).half(), torch.tensor([9, 16], dtype=torch.int32)
    experts = w.view(torch.uint8).expand(2, 48, 4096).contiguous().view(w.dtype)
    of_experts = squares.expand(2, 1, 32).contiguous()
    return {
        "plain": (gemm, (A, B)),
        "out": (lambda a, b, out: gemm(a, b, out=out.clone()), (A, B, torch.empty(16, 48).half())),
        "epilogue": (lambda a, b: gemm(a, b, epilogue=doubled), (A, B)),
        "scales": (scaled_gemm, (x, w, by_128, squares)),
        "vmap": (torch.vmap(gemm, in_dims=(0, None)), (A.view(8, 2, 1024), B)),
        "groups": (lambda a, b, ends: grouped_gemm(a, b, offs=ends), (A, matrices, ends)),
        "groups, epilogue": (lambda a, b, e: grouped_gemm(a, b, offs=e, epilogue=doubled), (A, matrices, ends)),
        "groups, scales": (
            lambda a, b, s, t, e: scaled_grouped_gemm(a, b, s, t, offs=e),
            (x, experts, by_128, of_experts, ends),
        ),
    }


PRODUCTS = products()
OFTEN = ("plain",)


def parts_of(function, *arguments):
    """Tell in how many parts K was, for each launch in turn."""
    with simulate() as run:
        function(*arguments)
    return [launch.grid[2] for launch in run.launches]


@pytest.mark.dsl
@pytest.mark.integration
@pytest.mark.parametrize("name", [n if n in OFTEN else pytest.param(n, marks=pytest.mark.deep) for n in PRODUCTS])
def test_compiled_and_exported_code_enters_the_context(name):
    function, given = PRODUCTS[name]

    class Model(torch.nn.Module):
        def forward(self, *arguments):
            before = function(*arguments)
            with batch_invariant():
                with batch_invariant():
                    within = function(*arguments)
                return before, within, function(*arguments)

    torch._dynamo.reset()
    (many,) = parts_of(function, *given)
    assert many > 1
    compiled = torch.compile(Model(), fullgraph=True, backend="aot_eager")
    for each in (Model(), compiled, compiled, torch.export.export(Model(), given).module()):
        assert parts_of(each, *given) == [many, 1, 1]
    with batch_invariant():
        assert parts_of(compiled, *given) == [1, 1, 1]
    assert not INVARIANCE.on


@pytest.mark.dsl
def test_compiled_code_is_of_the_mode_that_it_runs_in():
    from torch._dynamo.testing import CompileCounterWithBackend  # takes long

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(gemm, fullgraph=True, backend=counter)
    (many,) = parts_of(compiled, A, B)
    for _ in range(2):
        with batch_invariant(), batch_invariant(), batch_invariant():
            assert parts_of(compiled, A, B) == [1]
        assert parts_of(compiled, A, B) == [many]
    assert counter.frame_count == 2


@pytest.mark.dsl
@pytest.mark.integration
def test_derivatives_are_of_the_mode_that_they_are_computed_in():
    def product(a, b):
        with batch_invariant():
            return gemm(a, b)

    torch._dynamo.reset()
    a, b = torch.randn(2048, 16).half().requires_grad_(), torch.randn(16, 16).half().requires_grad_()
    for each in (product, torch.compile(product, fullgraph=True, backend="aot_eager")):
        assert [many > 1 for many in parts_of(lambda of: of(a, b).sum().backward(), each)] == [False, False, True]


@pytest.mark.dsl
def test_what_torch_does_not_compile_is_within_the_context_too():
    @torch.compiler.disable
    def eager(a, b):
        return gemm(a, b)

    @batch_invariant()
    def product(a, b):
        return gemm(a, b), eager(a, b)

    def failing(a, b):
        with batch_invariant():
            eager(a, b[:, :1])

    torch._dynamo.reset()
    for _ in range(2):
        assert parts_of(torch.compile(product, backend="aot_eager"), A, B) == [1, 1]
        with refuses(ValueError):
            torch.compile(failing, backend="aot_eager")(A, B)
        assert not INVARIANCE.on
    assert parts_of(torch.compile(batch_invariant()(gemm), fullgraph=True, backend="aot_eager"), A, B) == [1]


@pytest.mark.dsl
def test_what_others_ask_for_while_compiled_code_runs_is_kept():
    other = batch_invariant()

    @torch.library.custom_op("cutepy_tests::enter", mutates_args=())
    def enter(a: torch.Tensor) -> torch.Tensor:
        other.__enter__()
        return a.clone()

    enter.register_fake(torch.empty_like)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def product(a, b):
        with batch_invariant():
            return gemm(enter(a), b)

    product(A, B)
    assert INVARIANCE.on
    other.__exit__(None, None, None)
    assert not INVARIANCE.on


def test_who_leaves_first_leaves_the_others_within():
    first, second = batch_invariant(), batch_invariant()
    for each in (first, second):
        each.__enter__()
    first.__exit__(None, None, None)
    assert INVARIANCE.on
    second.__exit__(None, None, None)
    with first, first:
        assert INVARIANCE.on
    assert not INVARIANCE.on


@cutepy.epilogue
def reduced(acc):
    return {"y": acc, "squares": sum_of_squares(acc, 1), "most": amax(acc, 1)}


@cutepy.epilogue
def pairs_reduced(acc):
    gate, up = acc.interleaved(2)
    y = silu(gate) * up
    return {"y": y, "sum": y.sum(1)}


def assert_rows_are_the_same(multiply, *counts):
    """Compare results of a function for few rows, in ascending counts, with those for the most."""
    with batch_invariant(), simulate(exact_mma=True):
        *few, most = map(multiply, counts)
    for rows, results in zip(counts, few, strict=False):
        for name, result in results.items():
            assert torch.equal(result, most[name][:rows]), (rows, name)


@pytest.mark.dsl
@pytest.mark.parametrize(
    ("each", "n"),
    [
        (reduced, 24),
        pytest.param(reduced, 600, marks=pytest.mark.deep),
        pytest.param(reduced, 8, marks=pytest.mark.deep),
        pytest.param(reduced, 129, marks=pytest.mark.deep),  # results are copied
        pytest.param(pairs_reduced, 176, marks=pytest.mark.integration),
        pytest.param(pairs_reduced, 48, marks=pytest.mark.deep),
    ],
)
def test_what_an_epilogue_reduces_along_rows(each, n):
    torch.manual_seed(n)
    a, b = torch.randn(300, 32).bfloat16(), torch.randn(n, 32).bfloat16()
    counts = (1, 8, 130) if n == 24 else (1, 64, 300)
    assert_rows_are_the_same(lambda rows: gemm(a[:rows], b, epilogue=each, out_dtype=torch.float32), *counts)


@pytest.mark.dsl
@pytest.mark.integration
@pytest.mark.parametrize("block", [(1, 0), pytest.param((1, 128), marks=pytest.mark.deep)])
def test_what_an_epilogue_reduces_of_scaled_sums(block):
    torch.manual_seed(1)
    (a, scale_a), (b, scale_b) = quantise(torch.randn(130, 128), block), quantise(torch.randn(48, 128), block)
    assert_rows_are_the_same(
        lambda rows: scaled_gemm(a[:rows], b, scale_a[:rows], scale_b, epilogue=reduced, out_dtype=torch.float32),
        *(1, 8, 130),
    )


def test_subtiles_whose_sums_are_parts_follow_from_n_alone():
    types = {"a_dtype": "float16", "b_dtype": "float16", "out_dtype": "float16"}
    for each in (reduced, pairs_reduced):
        signature = GemmSignature(**types, epilogue=each.text)
        for n in (8, 16, 24, 48, 130, 600, 4096, 20000):
            found = set()
            for m in (1, 8, 64, 130, 300, 5000):
                for k in (64, 8192):
                    with batch_invariant():
                        transposed, config = choose(signature, m, n, k)
                        assert config == select_config(signature, m, n, k)
                        found.add((transposed, config.epi_n))
            assert len(found) == 1, (each.name, n, found)
    assert choose(GemmSignature(**types, epilogue=reduced.text), 8, 8192, 8192).transposed


def test_parts_are_added_in_an_order_that_no_other_row_decides():
    torch.manual_seed(0)
    for count in (1, 2, 3, 19, 64):
        parts = torch.randn(2, count, 300)
        total = added_in_pairs(parts.clone())
        torch.testing.assert_close(total.double(), parts.double().sum(-2), rtol=1e-5, atol=1e-5)
        for rows in (1, 7, 64):
            assert torch.equal(added_in_pairs(parts[..., :rows].clone()), total[..., :rows])


@pytest.mark.dsl
def test_sums_of_all_kinds_within_the_context():
    @cutepy.epilogue
    def sums(acc):
        return {"rows": acc.sum(1), "columns": acc.sum(0), "all": acc.sum(), "most": acc.max()}

    a, b = torch.randint(-3, 4, (2, 70, 32)).half(), torch.randint(-3, 4, (2, 40, 32)).half()
    with batch_invariant(), simulate():
        got = gemm(a, b, epilogue=sums, out_dtype=torch.float32)
    expected = gemm(a, b, epilogue=sums, out_dtype=torch.float32)
    for name, value in got.items():
        assert torch.equal(value, expected[name]), name


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize(("n", "k"), [(4096, 7168), (264, 14336), (6144, 96)])
def test_rows_alone_and_among_others(dtype, n, k):
    torch.manual_seed(0)
    a, b = (torch.randn(rows, k, device="cuda").to(dtype) for rows in (2048, n))
    with batch_invariant():
        among = gemm(a, b)
        for rows in (1, 7, 64, 192, 700):
            assert torch.equal(gemm(a[:rows], b), among[:rows]), rows
