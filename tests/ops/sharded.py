"""Operations on DTensors of all placements against the same on plain tensors, in whole numbers, which are exact.

`check_all(mesh)` runs on every rank of a process group. `python -m tests.ops.sharded RANK SIZE FILE` is one of gloo's.
"""

import copy
import itertools
import sys

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

import cutepy
from cutepy import ops
from cutepy.epilogues import Column, Row, Scalar, Tile, amax
from cutepy.nn import replace
from cutepy.ops import quantise
from cutepy.testing.numerics import relative_error
from tests.ops import operations

E4M3 = torch.float8_e4m3fn


def whole(*shape, dtype=torch.bfloat16, seed=0, most=2):
    """Draw whole numbers, small enough for all sums to be exact."""
    chance = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randint(-most, most + 1, shape, generator=chance).to(dtype)


def ends(*values):
    return torch.tensor(values, dtype=torch.int32)


@cutepy.epilogue
def all_kinds(acc, bias: Row, scale: Column, added: Tile, factor: Scalar):
    y = (acc * scale + bias) * factor + added
    return {"y": y, "rows": y.sum(1), "columns": y.sum(0), "all": y.sum()}


@cutepy.epilogue
def gated(acc, bias: Row):
    gate, up = acc.interleaved(2)
    return (gate + bias) * up


@cutepy.epilogue
def largest(acc):
    return {"y": acc, "amax": amax(acc), "rows": acc.max(1)}


@cutepy.epilogue
def indexed(acc):
    return acc * (acc.column + 2 * acc.row + 4 * acc.product)


def gemm(a, b, c=None, bias=None, **options):
    return ops.gemm(a, b, c=c, bias=bias, **options)


def gemm_out(a, b, out, bias=None):
    ops.gemm(a, b, out=out, bias=bias)
    return out


def added_to_itself(a, b, out):
    return ops.gemm(a, b, c=out, out=out)


def rotated_into_cache(q, k, keys):
    """Rotate q and k; other arguments are the same on all ranks."""
    others = (
        whole(2, 1, 2, 8, seed=1),
        whole(9, 3, dtype=torch.float32, most=1),
        whole(9, 3, dtype=torch.float32, seed=1),
        torch.zeros(2, 5, 2, 8).bfloat16(),
        ends(1, 3),
    )
    if isinstance(q, DTensor):
        others = [distribute(each, q.device_mesh, [Replicate()] * q.device_mesh.ndim) for each in others]
    v, cos, sin, values, lengths = others
    return ops.rotary_cached(q, k, v, cos, sin, keys, values, lengths), keys, values


def grouped(a, b, groups, **options):
    return ops.grouped_gemm(a, b, **{"counts" if a.dim() == b.dim() == 3 else "offs": groups}, **options)


def grouped_out(a, b, groups, out):
    return grouped(a, b, groups, out=out)


def biased_groups(a, b, groups, bias):
    return grouped(a, b, groups, epilogue=added_bias, bias=bias)


@cutepy.epilogue
def added_bias(acc, bias: Row):
    return acc + bias


def with_all_kinds(a, b, bias, scale, added, factor):
    return ops.gemm(a, b, epilogue=all_kinds, bias=bias, scale=scale, added=added, factor=factor)


def with_gate(a, b, bias):
    return ops.gemm(a, b, epilogue=gated, bias=bias)


def with_largest(a, b):
    return ops.gemm(a, b, epilogue=largest)


def with_indices(a, b):
    return ops.gemm(a, b, epilogue=indexed)


def scaled(a, b, scale_a, scale_b, bias=None):
    return ops.scaled_gemm(a, b, scale_a, scale_b, bias=bias, out_dtype=torch.float32)


def scaled_groups(a, b, scale_a, scale_b, groups):
    key = "counts" if a.dim() == b.dim() == 3 else "offs"
    return ops.scaled_grouped_gemm(a, b, scale_a, scale_b, out_dtype=torch.float32, **{key: groups})


def scaled_with_all_kinds(a, b, scale_a, scale_b, bias, scale, added):
    operands = {"added": added, "factor": 2.0, "scale": scale, "bias": bias}  # in another order than the function's
    return ops.scaled_gemm(a, b, scale_a, scale_b, epilogue=all_kinds, **operands)


def scales(*shape):
    return 2.0 ** whole(*shape, dtype=torch.float32, most=1)


def cases():
    """List functions, their tensors, and the positions of those that require grad."""
    yield "matrices", gemm, (whole(5, 7), whole(6, 7)), (0, 1)
    yield "bias and c", gemm, (whole(4, 6), whole(8, 6), whole(4, 8, dtype=torch.float32), whole(8)), (0, 1, 2, 3)
    yield "c of one row", gemm, (whole(4, 6), whole(8, 6), whole(1, 8)), (0, 2)
    yield "leading dimensions", gemm, (whole(2, 4, 6), whole(8, 6), None, whole(8)), (0, 1, 3)
    yield "a batch", gemm, (whole(2, 4, 6), whole(2, 8, 6)), (0, 1)
    yield "a broadcast batch", gemm, (whole(2, 1, 4, 6), whole(3, 8, 6)), (0, 1)
    yield "a vector", gemm, (whole(6), whole(8, 6), None, whole(8)), (0, 1, 3)
    relu = lambda a, b, bias: ops.gemm(a, b, bias=bias, activation="relu")  # noqa: E731
    yield "activation", relu, (whole(4, 6), whole(8, 6), whole(8)), (0, 1, 2)
    yield "columns first", lambda a, b: ops.gemm(a, b, out_major="col"), (whole(4, 6), whole(8, 6)), (0, 1)
    yield "integers", gemm, (whole(4, 6, dtype=torch.int8), whole(8, 6, dtype=torch.int8)), ()
    yield "out", gemm_out, (whole(4, 6), whole(8, 6), whole(4, 8), whole(8)), ()
    yield "out that is c", added_to_itself, (whole(4, 6), whole(8, 6), whole(4, 8)), ()
    yield (
        "epilogue",
        with_all_kinds,
        (whole(4, 6), whole(8, 6), whole(8), whole(4), whole(4, 8), torch.tensor(2.0)),
        (0, 1, 2),
    )
    yield "gate", with_gate, (whole(4, 6), whole(8, 6), whole(4)), (0, 1, 2)
    yield "gate of parts that don't divide", with_gate, (whole(4, 6), whole(6, 6), whole(3)), (0, 1, 2)
    yield "largest", with_largest, (whole(4, 6), whole(8, 6)), (0, 1)
    yield "largest without gradients", with_largest, (whole(4, 6), whole(8, 6)), ()
    yield "indices", with_indices, (whole(2, 4, 6), whole(2, 8, 6)), (0, 1)
    yield "epilogue of leading dimensions", with_gate, (whole(2, 4, 6), whole(8, 6), whole(4)), (0, 1, 2)
    yield "epilogue of a batch", with_gate, (whole(2, 4, 6), whole(2, 8, 6), whole(2, 4)), (0, 1, 2)
    yield "groups of rows", grouped, (whole(6, 8), whole(2, 4, 8), ends(2, 6)), (0, 1)
    yield "groups of columns", grouped, (whole(2, 6, 8), whole(4, 8), ends(2, 4)), (0, 1)
    yield "groups of k", grouped, (whole(6, 8), whole(4, 8), ends(2, 8)), (0, 1)
    yield "groups of matrices", grouped, (whole(2, 6, 8), whole(2, 4, 8), ends(6, 6)), (0, 1)
    yield "groups out", grouped_out, (whole(6, 8), whole(2, 4, 8), ends(2, 4), whole(6, 4)), ()
    yield "groups of rows with biases", biased_groups, (whole(6, 8), whole(2, 4, 8), ends(2, 6), whole(2, 4)), (0, 1, 3)
    yield "groups of matrices, biases", biased_groups, (whole(2, 6, 8), whole(2, 4, 8), ends(6, 6), whole(2, 4)), (0, 3)
    a, b = whole(4, 512, dtype=E4M3), whole(256, 512, dtype=E4M3)
    yield "scales of tensors", scaled, (a, b, scales(), scales(), whole(256)), (4,)
    yield "scales of rows", scaled, (a, b, scales(4, 1), scales(256, 1), whole(256)), (4,)
    yield "scales of blocks", scaled, (a, b, scales(4, 4), scales(2, 4)), ()
    few = whole(2, 3, 128, dtype=E4M3), whole(6, 128, dtype=E4M3), scales(2, 3, 1), scales()
    given = (whole(*shape, dtype=torch.float32) for shape in ((6,), (2, 3), (2, 3, 6)))
    yield "scales before an epilogue", scaled_with_all_kinds, (*few, *given), (4, 5, 6)
    short = whole(4, 160, dtype=E4M3), whole(136, 160, dtype=E4M3)
    yield "blocks that don't divide", scaled, (*short, scales(4, 2), scales(2, 2)), ()
    rows = whole(6, 256, dtype=E4M3), whole(2, 256, 256, dtype=E4M3)
    yield "scaled groups of rows", scaled_groups, (*rows, scales(6, 2), scales(2, 2, 2), ends(2, 6)), ()
    each = whole(2, 6, 256, dtype=E4M3), whole(2, 256, 256, dtype=E4M3)
    yield "scaled groups of matrices", scaled_groups, (*each, scales(2, 6, 1), scales(2, 256, 1), ends(6, 6)), ()
    heads = whole(2, 3, 4, 16), whole(2, 5, 2, 16), whole(2, 5, 2, 32)
    yield "attention", lambda q, k, v: ops.attention(q, k, v, causal=True, return_lse=True), heads, ()
    yield "gradients of attention", ops.attention, (*heads[:2], whole(2, 5, 2, 16, seed=1)), (0, 1, 2)
    capped = lambda q, k, v, sinks: ops.attention(q, k, v, soft_cap=4.0, sinks=sinks, return_lse=True)  # noqa: E731
    yield "attention with functions", capped, (*heads, whole(4, dtype=torch.float32)), ()
    eighths = [whole(*x.shape, dtype=E4M3) for x in heads]
    quantised = lambda q, k, v, a, b, c: ops.attention(  # noqa: E731
        q, k, v, q_scale=a, k_scale=b, v_scale=c, return_lse=True
    )
    yield "attention of 8 bits", quantised, (*eighths, scales(2, 4), scales(2, 2), scales(2, 2)), ()
    masked = lambda q, k, v: ops.attention(q, k, v, soft_cap=4.0, mask=lambda b, h, i, j: j - h <= i)  # noqa: E731
    tokens, lengths = (whole(6, 4, 16), whole(9, 2, 16), whole(9, 2, 16, seed=2)), (ends(0, 2, 6), ends(0, 4, 9))
    packed = lambda q, k, v, a, b: ops.attention_varlen(  # noqa: E731
        q, k, v, cu_seqlens_q=a, cu_seqlens_k=b, causal=True, soft_cap=4.0, return_lse=True
    )
    yield "attention of sequences", packed, (*tokens, *lengths), ()
    summed = lambda q, k, v, a, b, sinks: ops.attention_varlen(  # noqa: E731
        q, k, v, cu_seqlens_q=a, cu_seqlens_k=b, sinks=sinks
    )
    yield "gradients of sequences", summed, (*tokens, *lengths, whole(4, dtype=torch.float32)), (0, 1, 2, 5)
    small = [whole(*x.shape, dtype=E4M3) for x in tokens]
    packed = lambda q, k, v, n, m, a, b, c: ops.attention_varlen(  # noqa: E731
        q, k, v, cu_seqlens_q=n, cu_seqlens_k=m, q_scale=a, k_scale=b, v_scale=c, return_lse=True
    )
    yield "attention of sequences of 8 bits", packed, (*small, *lengths, *(scales(2, 2) for _ in range(3))), ()
    cached = lambda q, k, v, n, a, b, c: ops.attention_decode(  # noqa: E731
        q, k, v, cache_seqlens=n, q_scale=a, k_scale=b, v_scale=c, return_lse=True
    )
    yield "cached keys of 8 bits", cached, (*eighths, ends(3, 5), *(scales(2, 2) for _ in range(3))), ()
    cached = lambda q, k, v, n, sinks: ops.attention_decode(  # noqa: E731
        q, k, v, cache_seqlens=n, soft_cap=4.0, sinks=sinks, return_lse=True
    )
    yield "attention with cached keys", cached, (*heads, ends(3, 5), whole(4, dtype=torch.float32)), ()
    latent = lambda q, rows, n: ops.attention_mla(q, rows, cache_seqlens=n, causal=True, return_lse=True)  # noqa: E731
    yield "latent attention", latent, (whole(2, 3, 4, 576), whole(2, 5, 576, seed=1), ends(3, 5)), ()
    rows = ops.quantise_mla_cache(whole(2, 5, 576, seed=1))
    yield "latent attention of 8 bits", latent, (whole(2, 3, 4, 576), rows, ends(3, 5)), ()
    # Rows of as many 1 as -1, whose norms are they, and all sums exact.
    ones = torch.tensor([1.0, -1.0, -1.0, 1.0, 1.0, 1.0, -1.0, -1.0]).bfloat16().expand(4, 8)
    ones = ones * torch.tensor([[1.0], [-1.0], [-1.0], [1.0]]).bfloat16()
    rms = lambda x, weight: ops.rms_norm(x, (8,), weight, eps=0.0)  # noqa: E731
    yield "root mean squares", rms, (ones.reshape(2, 2, 8), whole(8)), (0, 1)
    centred = lambda x, weight, bias, residual: ops.layer_norm(  # noqa: E731
        x, (8,), weight, bias, eps=0.0, residual=residual
    )
    yield "normal layers", centred, (3 * ones, whole(8), whole(8, seed=1), -2 * ones), (0, 1, 2, 3)
    for block in ((1, 0), (1, 128)):
        eighths = lambda x, weight, residual, block=block: ops.rms_norm(  # noqa: E731
            x, (8,), weight, eps=0.0, residual=residual, out_dtype=E4M3, scale=block
        )
        yield f"norms of 8 bits {block}", eighths, (3 * ones, whole(8), -2 * ones), ()
    divided = lambda x, scale: ops.layer_norm(x, (8,), eps=0.0, out_dtype=E4M3, scale=scale)  # noqa: E731
    yield "norms of 8 bits", divided, (ones.reshape(2, 2, 8), scales()), ()
    measured = lambda x, weight, scale: ops.rms_norm(  # noqa: E731
        x, (8,), weight, eps=0.0, out_dtype=E4M3, scale=scale, return_amax=True
    )
    yield "norms of 8 bits with their largest", measured, (ones.reshape(2, 2, 8), whole(8), scales()), ()
    yield "gradients with functions", masked, (*heads[:2], whole(2, 5, 2, 16, seed=1)), (0, 1, 2)
    yield "softmax", ops.softmax, (whole(4, 2, dtype=torch.float32, most=0),), (0,)
    yield "logarithm of softmax", ops.log_softmax, (whole(4, 2, dtype=torch.float32, most=0),), (0,)
    apart = torch.tensor([[0.0, 128, 256], [256, 0, 128], [0, 256, 128], [128, 0, 256]])  # exponentials are 0 and 1
    entropy = lambda x, labels, weight: ops.cross_entropy(x, labels, weight, reduction="none")  # noqa: E731
    yield "cross entropy", entropy, (apart, ends(2, 1, 0, -100), whole(3, dtype=torch.float32)), (0,)
    for reduction in ("sum", "mean"):
        joined_losses = lambda *given, r=reduction: ops.cross_entropy(*given, reduction=r)  # noqa: E731
        yield (
            f"{reduction} of losses",
            joined_losses,
            (apart, ends(2, 1, 0, -100), 2.0 ** whole(3, dtype=torch.float32)),
            (0,),
        )
    linear = lambda x, matrix, labels, **named: ops.linear_cross_entropy(  # noqa: E731
        x, matrix, labels, out_dtype=torch.float32, **named
    )
    scores = torch.eye(4).repeat(1, 2).bfloat16(), 128 * torch.eye(3, 8).bfloat16(), ends(2, 1, 0, -100)
    for reduction in ("sum", "none"):
        yield f"linear {reduction}", lambda *given, r=reduction: linear(*given, reduction=r), scores, (0, 1)
    pieces = whole(12, 6).split((6, 2, 4))
    joined = lambda x, *weights: ops.joined_linear(x, weights)  # noqa: E731
    yield "joined products", joined, (whole(2, 4, 6), *pieces), (0, 1, 2, 3)
    biased = lambda x, w, v, a, b: ops.joined_linear(x, (w, v), (a, b))  # noqa: E731
    yield "joined products with biases", biased, (whole(4, 6), *pieces[:2], whole(6), whole(2)), (0, 1, 2, 3, 4)
    yield "topk", lambda x: ops.topk(x, 3)[0], (torch.arange(32.0).reshape(4, 8).cos(),), (0,)
    yield "sample", lambda x: ops.sample(x, seed=1), (whole(4, 8, dtype=torch.float32),), ()
    turned = whole(2, 3, 4, 8), whole(9, 3, dtype=torch.float32, most=1), whole(9, 3, dtype=torch.float32, seed=1)
    yield "rotary", lambda x, cos, sin: ops.rotary(x, cos, sin, 2), turned, (0,)
    yield "rotary with positions", ops.rotary, (*turned, torch.tensor([[0, 8, 3], [1, 1, 2]])), (0,)
    new = whole(2, 1, 4, 8), whole(2, 1, 2, 8), torch.zeros(2, 5, 2, 8).bfloat16()
    yield "rotary into a cache", rotated_into_cache, new, ()
    zeros, ups = whole(2, 4, 6, most=0), whole(2, 4, 6)
    yield "gated", ops.swiglu, (zeros, ups), (0, 1)
    yield "gated halves", ops.geglu, (torch.cat((zeros, ups), -1),), (0,)
    for block in ((0, 0), (1, 0), (1, 128), (128, 128)):
        x = whole(256, 256, dtype=torch.float32)
        yield f"quantise {block}", lambda x, block=block: quantise(x, block), (x,), ()
        q, scale = quantise(x, block)
        yield f"dequantise {block}", ops.dequantise, (q, scales(*scale.shape)), ()
    yield "quantise a batch", lambda x: quantise(x), (whole(2, 4, 256, dtype=torch.float32),), ()
    yield "quantise a row", lambda x: quantise(x), (whole(256, dtype=torch.float32),), ()


def placements(tensor):
    """List how a tensor may lie along one dimension of a mesh."""
    if tensor is None:
        return [None]
    partial = [Partial()] if tensor.dtype in (torch.bfloat16, torch.float32) and tensor.dim() else []
    return [Replicate(), *map(Shard, range(tensor.dim())), *partial]


def distribute(tensor, mesh, placed, grad=False):
    """Place a tensor that each rank has whole; of a partial sum each dimension's first rank has 3 too much."""
    if tensor is None:
        return None
    local = tensor
    for dim, placement in enumerate(placed):
        if placement.is_partial():
            local = local + 3 if mesh.get_local_rank(dim) == 0 else torch.full_like(local, -3)
            if mesh.size(dim) == 1:
                local = local - 3
            elif mesh.get_local_rank(dim) > 1:
                local = torch.zeros_like(local)
    replicated = [p if p.is_partial() else Replicate() for p in placed]
    made = DTensor.from_local(local, mesh, replicated, run_check=False)
    if list(placed) != replicated:
        made = made.redistribute(placements=placed)
    return made.detach().requires_grad_(grad)


def flat(results):
    if isinstance(results, dict):
        results = list(results.values())
    return list(results) if isinstance(results, (tuple, list)) else [results]


def gathered(tensor):
    """Give all of a DTensor; 8-bit floats as bytes, since gloo sends no such floats."""
    if tensor.dtype != E4M3:
        return tensor.full_tensor()
    local, whole_of = tensor.to_local().view(torch.uint8), {"shape": tensor.shape, "stride": tensor.stride()}
    as_bytes = DTensor.from_local(local, tensor.device_mesh, tensor.placements, run_check=False, **whole_of)
    return as_bytes.full_tensor().view(E4M3)


def check(function, tensors, wanting, mesh, placed):
    """Compare results and gradients with those of plain tensors."""
    plain = [
        None if tensor is None else tensor.clone().requires_grad_(n in wanting) for n, tensor in enumerate(tensors)
    ]
    given = [distribute(t, mesh, p, n in wanting) for n, (t, p) in enumerate(zip(tensors, placed, strict=True))]
    expected, got = flat(function(*plain)), flat(function(*given))
    for one, other in zip(got, expected, strict=True):
        assert isinstance(one, DTensor)
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        found = gathered(one)
        assert torch.equal(found.float(), other.float()), (found, other)
    if wanting:
        weights = [whole(*each.shape, dtype=torch.float32, seed=1) for each in expected]
        sum((each.float() * w).sum() for each, w in zip(expected, weights, strict=True)).backward()
        own = [distribute(w, mesh, [Replicate()] * mesh.ndim) for w in weights]
        total = sum((each.float() * w).sum() for each, w in zip(got, own, strict=True))
        # What comes is looked at: torch 2.6 gathers what it accumulates where strides are not those of the leaf.
        came = {}
        for n in wanting:
            given[n].register_hook(lambda grad, n=n: came.update({n: grad.placements}))
        total.redistribute(placements=[Replicate()] * mesh.ndim).backward()
    for n in wanting:
        pairs = zip(placed[n], came[n], strict=True)
        assert all(now == then or then.is_partial() for then, now in pairs)
        assert torch.equal(given[n].grad.full_tensor(), plain[n].grad), n


def check_all(mesh, names=None, most=None):
    """Check every case with every placement of its tensors."""
    for name, function, tensors, wanting in cases():
        if names is not None and name not in names:
            continue
        each = [list(itertools.product(placements(tensor), repeat=mesh.ndim)) for tensor in tensors]
        each = [[None] if tensor is None else options for tensor, options in zip(tensors, each, strict=True)]
        combinations = list(itertools.product(*each))
        step = 1 if most is None else max(1, len(combinations) // most)
        for placed in combinations[::step]:
            written = placed[{"out": 2, "out that is c": 2, "groups out": 3}.get(name, 0)]
            if "out" in name.split() and any(p.is_partial() for p in written):
                continue
            try:
                check(function, tensors, wanting, mesh, placed)
            except Exception as error:
                raise AssertionError(f"{name}, placed {placed}: {type(error).__name__}: {error}") from error


PLANS = {
    "columns and rows": {"1": ColwiseParallel(), "3": RowwiseParallel()},
    "sequences": {
        "0": SequenceParallel(use_local_output=False),
        "1": ColwiseParallel(input_layouts=Shard(1)),
        "3": RowwiseParallel(output_layouts=Shard(1)),
    },
}


def check_layers(mesh, plan):
    """Compare layers that are parallel by torch's styles with torch's own, and with what one device computes."""
    torch.manual_seed(0)
    base = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 16)).bfloat16()
    with torch.no_grad():
        for each in (base[1], base[3]):
            for parameter in each.parameters():
                parameter.copy_(whole(*parameter.shape, most=1))
    x = whole(2, 6, 16)
    found = []
    for replaced, parallel in ((False, False), (False, True), (True, True)):
        model = copy.deepcopy(base)
        if replaced:
            assert len(replace(model).swapped) == 3
        given = x
        if parallel:
            model = parallelize_module(model, mesh, PLANS[plan])
            given = DTensor.from_local(x, mesh, [Replicate()], run_check=False) if plan == "sequences" else x
            given = given.redistribute(placements=[Shard(1)]) if plan == "sequences" else x
        y = model(given)
        if parallel and plan == "sequences":
            y = DTensor.from_local(y, mesh, [Shard(1)], run_check=False).full_tensor()
        (y.float() ** 2).sum().backward()
        gradients = [p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad for p in model.parameters()]
        if parallel and plan != "sequences":  # a local output of each rank: its gradients are those of all
            gradients = gradients[2:]
        found.append([y.detach(), *gradients[-4:]])
    # Some four roundings to bfloat16 follow one another, of 2**-8 each at most.
    for torchs, ours in zip(found[1], found[2], strict=True):
        assert relative_error(ours, torchs) < 2.0**-6
    assert relative_error(found[2][0], found[0][0]) < 2.0**-6


def check_the_rest(mesh):
    """Inference, autocast, compiled functions, and what is refused."""
    size = mesh.size()
    a, b = (distribute(t, mesh, [Shard(0)]) for t in (whole(4, 16), whole(8, 16)))
    expected = ops.gemm(whole(4, 16), whole(8, 16))
    with torch.inference_mode():
        assert torch.equal(ops.gemm(a, b).full_tensor(), expected)
        assert torch.equal(operations.gemm(a, b).full_tensor(), expected)
    wide = [distribute(t.float(), mesh, [Shard(0)]) for t in (whole(4, 16), whole(8, 16))]
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(ops.gemm(*wide).full_tensor(), expected)
    with ops.batch_invariant():
        assert torch.equal(ops.gemm(a, b).full_tensor(), expected)

    # The placements that cost the least: nothing moves, and the result lies where it is computed.
    rows = ops.gemm(a, distribute(whole(8, 16), mesh, [Replicate()]))
    assert rows.placements == (Shard(0),)
    columns = ops.gemm(distribute(whole(4, 16), mesh, [Replicate()]), b)
    assert columns.placements == (Shard(1),)
    summed = ops.gemm(*(distribute(t, mesh, [Shard(1)]) for t in (whole(4, 16), whole(8, 16))))
    assert summed.placements == (Partial(),)
    same = ops.gemm(*(distribute(t, mesh, [Replicate()]) for t in (whole(4, 16), whole(8, 16))))
    assert same.placements == (Replicate(),)

    # What is added is added once, infinities too.
    c = torch.full((4, 8), -torch.inf)
    by_k = [distribute(t, mesh, [Shard(1)]) for t in (whole(4, 16), whole(8, 16))]
    assert (ops.gemm(*by_k, c=distribute(c, mesh, [Replicate()])).full_tensor() == c).all()

    for function in (
        lambda a, b: ops.gemm(a, b),
        lambda a, b: ops.gemm(a, b, epilogue=gated, bias=distribute(whole(4), mesh, [Replicate()])),
        lambda a, b: ops.dequantise(*quantise(a)),
    ):
        torch._dynamo.reset()
        # Graphs are broken where DTensors are parted before an operation is called, and the eager backend runs parts.
        got = torch.compile(function, backend="aot_eager")(a, b)
        assert torch.equal(got.full_tensor(), function(a, b).full_tensor())
    for wrong, error, message in (
        ((a, whole(8, 16)), TypeError, "must be DTensors"),
        ((a, distribute(whole(8, 12), mesh, [Replicate()])), ValueError, "a's K = 16"),
    ):
        try:
            ops.gemm(*wrong)
        except error as raised:
            assert message in str(raised), raised
        else:
            raise AssertionError(f"{message} is not said")
    out = distribute(whole(4, 8), mesh, [Partial()])
    try:
        ops.gemm(a, b, out=out)
    except ValueError as raised:
        assert "partial sum" in str(raised)
    else:
        raise AssertionError(f"a partial sum is written to by {size} devices")


def main(rank, size, file):
    """Check as one of several processes."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", rank=rank, world_size=size, store=distributed.FileStore(file, size))
    try:
        mesh = init_device_mesh("cpu", (size,))
        check_the_rest(mesh)
        for plan in PLANS:
            check_layers(mesh, plan)
        check_all(mesh, most=16)
    finally:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
