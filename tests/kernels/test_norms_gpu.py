"""Normalisations on a Hopper GPU: random problems against float64, and tensors of more than 2^31 elements."""

import random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from cutepy.kernels.rows.tiling import MOST_COLUMNS  # noqa: E402
from cutepy.ops import dequantise, layer_norm, rms_norm  # noqa: E402

F16, BF16, F32, E4M3 = torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn
ROUNDOFF = {F16: 2.0**-11, BF16: 2.0**-8, F32: 2.0**-18}


def apart(found, wanted, least=0.0):
    return float((found.double() - wanted).norm() / wanted.norm().clamp(min=max(least, 1e-30)))


def check(seed, device, most=MOST_COLUMNS, most_elems=1 << 24):
    """Draw a problem: widths by their logarithm, any dtypes, operands and strides; compare results and gradients."""
    chance = random.Random(seed)
    generator = torch.Generator(device).manual_seed(seed)
    columns = int(most ** chance.random())
    columns = -(-columns // 64) * 64 if chance.random() < 0.5 else columns
    columns = min(max(columns, 16), most)
    rows = max(1, int(min(20000, most_elems // columns) ** chance.random()))
    room = chance.choice([0, 0, 1, 8])

    def drawn(*shape):
        dtype = chance.choice([F16, BF16, BF16, F32])
        return torch.randn(*shape[:-1], shape[-1] + room, generator=generator, device=device).to(dtype)[
            ..., : shape[-1]
        ]

    x, centres = drawn(rows, columns), chance.random() < 0.5
    weight = drawn(columns) if chance.random() < 0.8 else None
    bias = drawn(columns) if centres and chance.random() < 0.8 else None
    residual = drawn(rows, columns) if chance.random() < 0.5 else None
    told = f"seed {seed}: {rows}x{columns} {x.dtype} {centres=} {room=}"
    leaves = [each.detach().requires_grad_() if each is not None else None for each in (x, weight, bias, residual)]
    wide = [each.detach().double().requires_grad_() if each is not None else None for each in leaves]
    total = wide[0] if residual is None else wide[0] + wide[3]
    normal = total - total.mean(-1, keepdim=True) if centres else total
    normal = normal * (normal.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    normal = normal if weight is None else normal * wide[1]
    normal = normal if bias is None else normal + wide[2]
    vectors = leaves[1:3] if centres else leaves[1:2]
    function = layer_norm if centres else rms_norm
    found = function(leaves[0], (columns,), *vectors, eps=1e-5, residual=residual if residual is None else leaves[3])
    found = found if isinstance(found, tuple) else (found,)
    wanted = (normal, total)[: len(found)]
    for one, other in zip(found, wanted, strict=True):
        assert apart(one.detach(), other.detach()) < ROUNDOFF[one.dtype], told
    grads = [torch.randn(each.shape, generator=generator, device=device).to(each.dtype) for each in found]
    given = [each for each in leaves if each is not None]
    own = torch.autograd.grad(found, given, grads)
    theirs = torch.autograd.grad(wanted, [each for each in wide if each is not None], [each.double() for each in grads])
    loosest = max(ROUNDOFF[x.dtype], ROUNDOFF[found[-1].dtype])
    for grad, want, leaf in zip(own, theirs, given, strict=True):
        assert apart(grad, want) < 4 * max(loosest, ROUNDOFF[leaf.dtype]), told
    with torch.no_grad():
        scale = chance.choice([(1, 0), (1, 128)])
        quantised, scales, *_ = function(
            x, (columns,), *vectors, eps=1e-5, residual=residual, out_dtype=E4M3, scale=scale
        )
        assert apart(dequantise(quantised, scales, torch.float64), normal.detach()) < 2.0**-4, told
        given = {"residual": residual, "out_dtype": E4M3, "scale": torch.ones((), device=device), "return_amax": True}
        amaxes = [function(x, (columns,), *vectors, eps=1e-5, **given)[1] for _ in range(2)]
        assert torch.equal(*amaxes), told
        assert apart(amaxes[0], normal.detach().abs().amax()) < 4 * ROUNDOFF[F32], told


@pytest.mark.gpu
@pytest.mark.first(1)
@pytest.mark.parametrize("seed", range(10))
def test_random_problems_are_those_of_float64(seed):
    for n in range(30):
        check(1000 * seed + n, "cuda")


@pytest.mark.dsl
def test_random_problems_are_drawn_well():
    """The same in the simulator, of few."""
    import cutepy

    with cutepy.simulate():
        check(3, "cpu", most=600, most_elems=2000)


@pytest.mark.gpu
@pytest.mark.deep
@pytest.mark.parametrize("function", [rms_norm, layer_norm])
def test_more_than_two_to_the_31_elements(function):
    rows, columns = (1 << 18) + 3, 8192
    x = torch.randn(rows, columns, device="cuda", dtype=BF16).requires_grad_()
    weight = torch.randn(columns, device="cuda", dtype=BF16)
    y = function(x, (columns,), weight)
    (dx,) = torch.autograd.grad(y, x, y.detach())
    few = x.detach()[-5:].clone().requires_grad_()
    wanted = function(few, (columns,), weight)
    assert torch.equal(y[-5:], wanted)
    assert torch.equal(dx[-5:], torch.autograd.grad(wanted, few, wanted.detach())[0])


@pytest.mark.gpu
def test_a_graph_replays_a_norm():
    x, weight = torch.randn(64, 4096, device="cuda", dtype=BF16), torch.ones(4096, device="cuda", dtype=BF16)
    rms_norm(x, (4096,), weight)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = rms_norm(x, (4096,), weight)
    x.copy_(torch.randn_like(x))
    graph.replay()
    assert torch.equal(y, rms_norm(x, (4096,), weight))
