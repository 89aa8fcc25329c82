"""The peer cuBLASLt: by a stand-in for the library without a GPU, that keeps what it is told; and on a Hopper GPU."""

import itertools

import pytest

torch = pytest.importorskip("torch")

from cutepy.kernels.gemm.reference import gemm_reference  # noqa: E402
from cutepy.suites.gemm_problems import GemmProblem, buffers, poison, tf32, tolerance  # noqa: E402
from cutepy.testing.numerics import relative_error  # noqa: E402
from tests.laboratory import cublaslt  # noqa: E402

TRANSPOSED = 3, 4
BATCH = 5
PROBLEMS = [
    *(GemmProblem(24, 40, 16, "float16", (), *majors) for majors in itertools.product(("k", "mn"), repeat=2)),
    GemmProblem(8, 64, 16, "bfloat16", (3,), "mn", "k"),
    GemmProblem(8, 64, 16, "float32"),
]


class Library:
    """Multiplies column-major matrices where tensors lie, as cuBLASLt's documentation says."""

    def __init__(self, tensors):
        self.tensors = {tensor.data_ptr(): tensor for tensor in tensors}
        self.said, self.made, self.destroyed = {}, itertools.count(1), []

    def __getattr__(self, name):
        if name.endswith("Create"):
            return self._create
        if name.endswith("SetAttribute"):
            return self._set
        assert name.endswith("Destroy")
        return lambda thing: self.destroyed.append(thing.value)

    def _create(self, thing, *arguments):
        thing._obj.value = next(self.made)
        self.said[thing._obj.value] = {"made of": [getattr(each, "value", each) for each in arguments]}
        return 0

    def _set(self, thing, attribute, value, size):
        self.said[thing.value][attribute] = value._obj.value
        return 0

    def cublasLtMatmulAlgoGetHeuristic(self, handle, product, *rest):
        *_, found, count = rest
        found[0].algorithm.data[0], found[1].status = 7, 1
        count._obj.value = 2
        return 0

    def cublasLtMatmul(self, handle, product, one, *rest):
        first, of_first, second, of_second, _, out, of_out, _, _, algorithm, _, _, _ = rest
        assert algorithm._obj.data[0] == 7
        flags = [self.said[product.value][attribute] for attribute in TRANSPOSED]
        x, y, d = (self._matrix(each, of) for each, of in ((first, of_first), (second, of_second), (out, of_out)))
        x, y = (each.mT if flag else each for each, flag in zip((x, y), flags, strict=True))
        d.copy_(x.double() @ y.double())
        return 0

    def _matrix(self, pointer, layout):
        said = self.said[layout.value]
        _, rows, columns, leading = said["made of"]
        tensor = self.tensors[pointer.value]
        extents, strides = (rows, columns), (1, leading)
        if BATCH in said:
            extents, strides = (said[BATCH], *extents), (said[BATCH + 1], *strides)
        return torch.as_strided(tensor, extents, strides)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_factors_are_described_as_they_lie(monkeypatch, problem):
    monkeypatch.setattr("cutepy.benchmark.buffer_sets", lambda _: 2)
    sets = buffers(problem, "cpu")
    library = Library([*sets.a, *sets.b, *sets.out])
    monkeypatch.setattr(cublaslt, "_library", lambda: library)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: type("Stream", (), {"cuda_stream": 0}))
    cublaslt._handle.cache_clear()
    product = cublaslt._Product(problem, sets)
    (candidate,) = product.candidates()
    product.launch(candidate)(1)
    assert relative_error(sets.out[1], gemm_reference(sets.a[1], sets.b[1])) <= tolerance(problem)
    made = set(library.said) - {cublaslt._handle().value}
    del product
    assert set(library.destroyed) == made
    cublaslt._handle.cache_clear()


def test_what_it_does_not_take():
    for problem in (GemmProblem(64, 64, 64, "int8"), GemmProblem(64, 64, 64, "float16", (2, 2))):
        assert cublaslt.cublaslt(problem, buffers) is None


@pytest.mark.gpu
@pytest.mark.parametrize("problem", [*PROBLEMS, GemmProblem(192, 400, 512, "float8_e4m3fn")], ids=str)
def test_its_fastest_candidate_is_right_on_a_gpu(problem):
    with tf32():
        sets = buffers(problem)
        launch = cublaslt.cublaslt(problem, sets)
        poison(sets.out[0])
        launch(0)
    assert relative_error(sets.out[0], gemm_reference(sets.a[0], sets.b[0])) <= tolerance(problem)
