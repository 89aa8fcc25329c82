"""Softmax, losses, rotations and gated activations on a Hopper GPU: random problems against float64."""

import random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from cutepy.kernels.rows.tiling import MOST_COLUMNS  # noqa: E402
from cutepy.ops import (  # noqa: E402
    cross_entropy,
    geglu,
    linear_cross_entropy,
    log_softmax,
    quantise,
    rotary,
    sample,
    softmax,
    swiglu,
    topk,
)
from cutepy.ops.linear_cross_entropies import rows_of_chunk  # noqa: E402
from cutepy.ops.quantising import by_torch  # noqa: E402
from cutepy.ops.samples import _reference as plain_samples, _signed  # noqa: E402
from tests.ops.rows import DTYPES, check_close  # noqa: E402
from tests.ops.test_cross_entropy import expected as expected_loss  # noqa: E402
from tests.ops.test_rotary import expected as expected_rotation  # noqa: E402


class Draw:
    """Random choices and tensors of one problem."""

    def __init__(self, seed, device, most, most_elems):
        self.chance, self.device, self.most, self.most_elems = random.Random(seed), device, most, most_elems
        self.generator = torch.Generator(device).manual_seed(seed)

    def extents(self):
        """Draw rows and columns by their logarithms."""
        columns = int(self.most ** self.chance.random())
        columns = min(-(-columns // 64) * 64, self.most) if self.chance.random() < 0.5 else columns
        return max(1, int(min(20000, self.most_elems // columns) ** self.chance.random())), columns

    def tensor(self, *shape, dtype=None):
        """Draw normal numbers, rows of which may be further apart than they are long."""
        dtype = dtype or self.chance.choice(DTYPES)
        room = self.chance.choice([0, 0, 1, 8])
        whole = torch.randn(*shape[:-1], shape[-1] + room, generator=self.generator, device=self.device)
        return whole.to(dtype)[..., : shape[-1]]


def compare(function, reference, *inputs, draw, dtype=None, roundings=1):
    """Compare a function's result and gradients with those of float64."""
    own = [each.detach().requires_grad_() for each in inputs]
    wide = [each.detach().double().requires_grad_() for each in inputs]
    y, want = function(*own), reference(*wide)
    check_close(y, want, dtype)
    dy = torch.randn(y.shape, generator=draw.generator, device=draw.device).to(y.dtype)
    grads = torch.autograd.grad(y, own, dy)
    wanted = torch.autograd.grad(want, wide, dy.double())
    for grad, each in zip(grads, wanted, strict=True):
        check_close(grad, each, max((grad.dtype, y.dtype), key=lambda dtype: torch.finfo(dtype).eps), roundings)


def check_softmax(draw):
    rows, columns = draw.extents()
    name = draw.chance.choice(["softmax", "log_softmax"])
    own, theirs = {"softmax": (softmax, torch.softmax), "log_softmax": (log_softmax, torch.log_softmax)}[name]
    compare(own, lambda x: theirs(x, -1), draw.tensor(rows, columns) * 3, draw=draw)


def check_loss(draw):
    rows, columns = draw.extents()
    labels = torch.randint(columns, (rows,), generator=draw.generator, device=draw.device)
    labels[1::3] = -100
    options = {
        "reduction": draw.chance.choice(["none", "mean", "sum"]),
        "label_smoothing": draw.chance.choice([0.0, 0.1]),
        "z_loss": draw.chance.choice([0.0, 1e-3]),
    }
    weight = draw.tensor(columns, dtype=torch.float32).abs() + 0.1 if draw.chance.random() < 0.3 else None

    def loss(x):
        return cross_entropy(x, labels, weight, out_dtype=torch.float32, **options)

    compare(loss, lambda x: expected_loss(x, labels, weight, **options), draw.tensor(rows, columns) * 3, draw=draw)


def check_linear_loss(draw):
    rows, classes = draw.extents()
    features, dtype = draw.chance.choice([64, 200, 512, 1000]), draw.chance.choice([torch.float16, torch.bfloat16])
    labels = torch.randint(classes, (rows,), generator=draw.generator, device=draw.device)
    labels[1::3] = -100
    options = {
        "reduction": draw.chance.choice(["none", "mean", "sum"]),
        "label_smoothing": draw.chance.choice([0.0, 0.1]),
        "z_loss": draw.chance.choice([0.0, 1e-3]),
    }
    chunk_rows = draw.chance.choice([None, None, max(100, rows // 6), 4096])

    def loss(x, matrix, bias):
        given = {"linear_bias": bias, "chunk_rows": chunk_rows, "out_dtype": torch.float32}
        return linear_cross_entropy(x, matrix, labels, **given, **options)

    def reference(x, matrix, bias):
        logits = torch.nn.functional.linear(x, matrix, bias)
        logits = logits + (logits.detach().to(dtype).double() - logits.detach())  # logits are rounded
        return expected_loss(logits, labels, None, **options)

    given = draw.tensor(rows, features, dtype=dtype), draw.tensor(classes, features, dtype=dtype) / features**0.5
    chunks = -(-rows // (chunk_rows or rows_of_chunk(rows, features)))
    compare(loss, reference, *given, draw.tensor(classes, dtype=dtype), draw=draw, dtype=dtype, roundings=chunks)


def check_rotary(draw):
    batch, tokens, heads = (draw.chance.randint(1, most) for most in (4, 300, 40))
    width = draw.chance.choice([1, 8, 16, 24, 32, 64, 128])
    head = 2 * width + draw.chance.choice([0, 0, 1, 8, 64])
    angles = torch.rand(500, width, generator=draw.generator, device=draw.device) * 6
    dtype = draw.chance.choice(DTYPES)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    drawn = torch.randint(500, (batch, tokens), generator=draw.generator, device=draw.device)
    positions = draw.chance.choice([None, 200, drawn, drawn[0].int()])
    places = positions
    if not isinstance(positions, torch.Tensor):
        places = torch.arange(tokens, device=draw.device) + (positions or 0)
    kind = draw.chance.random() < 0.5, draw.chance.random() < 0.5

    def reference(x):
        return expected_rotation(x, cos, sin, places.expand(batch, tokens).long(), *kind)

    x = draw.tensor(batch, tokens, heads, head)
    compare(lambda x: rotary(x, cos, sin, positions, *kind), reference, x, draw=draw)


def check_gated(draw):
    rows, columns = draw.extents()
    functional = torch.nn.functional
    own, theirs = draw.chance.choice([(swiglu, functional.silu), (geglu, functional.gelu)])
    dtype = draw.chance.choice(DTYPES)
    gate, up = (draw.tensor(rows, columns, dtype=dtype) for _ in range(2))
    compare(own, lambda gate, up: theirs(gate) * up, gate, up, draw=draw)


def check_topk(draw):
    rows, columns = draw.extents()
    k, largest = max(1, int(min(1024, columns) ** draw.chance.random())), draw.chance.random() < 0.7
    x = draw.tensor(rows, columns)
    if draw.chance.random() < 0.3:
        x = x.round()  # many are equal
    values, indices = topk(x, k, largest=largest)
    wanted = torch.sort(x, dim=-1, descending=largest, stable=True)
    assert torch.equal(indices, wanted.indices[:, :k])
    assert torch.equal(values, wanted.values[:, :k])
    dy = draw.tensor(rows, k, dtype=x.dtype)
    own, theirs = (x.detach().requires_grad_() for _ in range(2))
    (grad,) = torch.autograd.grad(topk(own, k, largest=largest).values, own, dy)
    (want,) = torch.autograd.grad(theirs.gather(1, indices), theirs, dy)
    assert torch.equal(grad, want)


def check_sample(draw):
    rows, columns = draw.extents()
    options = {
        "temperature": draw.chance.choice([0.0, 0.7, 1.0]),
        "top_k": draw.chance.choice([None, None, 1, 50]),
        "top_p": draw.chance.choice([None, None, 0.3, 0.9]),
        "seed": draw.chance.getrandbits(64),
        "offset": draw.chance.getrandbits(20),
    }
    x = draw.tensor(rows, columns) * 3
    found = sample(x, **options)
    given = (_signed(options["seed"]), options["offset"], options["temperature"], options["top_k"] or 0)
    k = given[3] if given[3] < columns else 0
    wanted = plain_samples(x, None, *given[:3], k, 1.0 if options["top_p"] is None else options["top_p"])
    # A class whose score is another's but for a rounding, or that is the last that may be drawn.
    assert int((found != wanted).sum()) <= 1 + rows // 100


def check_quantise(draw):
    rows, columns = draw.extents()
    x, block = draw.tensor(rows, columns), draw.chance.choice([(0, 0), (1, 0), (1, 128)])
    dtype = draw.chance.choice([torch.float8_e4m3fn, torch.int8])
    for found, wanted in zip(quantise(x, block, dtype), by_torch(x, block, dtype), strict=True):
        assert torch.equal(found.float(), wanted.float())


CHECKS = {
    "softmax": check_softmax,
    "cross_entropy": check_loss,
    "linear_cross_entropy": check_linear_loss,
    "rotary": check_rotary,
    "gated": check_gated,
    "topk": check_topk,
    "sample": check_sample,
    "quantise": check_quantise,
}


def check(name, seed, device, most=MOST_COLUMNS, most_elems=1 << 24):
    """Draw a problem of a function, and compare its result and gradients."""
    try:
        CHECKS[name](Draw(seed, device, most, most_elems))
    except Exception as error:
        error.add_note(f"{name}, seed {seed}")
        raise


@pytest.mark.gpu
@pytest.mark.first(4)
@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("seed", range(10))
def test_random_problems_are_those_of_float64(name, seed):
    for n in range(30):
        check(name, 1000 * seed + n, "cuda")


@pytest.mark.dsl
@pytest.mark.parametrize("name", CHECKS)
def test_random_problems_are_drawn_well(name):
    """The same in the simulator, of few."""
    import cutepy

    with cutepy.simulate():
        check(name, 3, "cpu", most=300, most_elems=1000)


@pytest.mark.dsl
@pytest.mark.integration
def test_threads_with_64_elements_are_traced_without_a_warning(monkeypatch):
    """Warnings are errors here."""
    import cutepy

    monkeypatch.setattr("cutepy.kernels.rows.tiling.FILLING_CTAS", 1)  # no pieces of fewer elements
    x = torch.randn(1, 30000).bfloat16()
    with cutepy.simulate() as run:
        values, _ = topk(x, 2)
    assert run.launches
    assert torch.equal(values, x.sort(descending=True).values[:, :2])
