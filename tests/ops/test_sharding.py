"""DTensors: every operation has a sharding, and computes what it does of plain tensors wherever these lie."""

import subprocess
import sys

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")

from torch import distributed  # noqa: E402
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor  # noqa: E402

import cutepy.ops  # noqa: E402
from cutepy.epilogues.graph import Graph  # noqa: E402
from cutepy.epilogues.scores import trace_scores  # noqa: E402
from cutepy.kernels.gemm.scales import TENSOR, Block  # noqa: E402
from cutepy.ops.distributed import Letter, Sharding, _choose, aligned, letters, register_rule  # noqa: E402
from cutepy.ops.registration import _registered  # noqa: E402
from cutepy.ops.shardings import (  # noqa: E402
    of_attention,
    of_attention_backward,
    of_attention_decode,
    of_attention_varlen,
    of_attention_varlen_backward,
    of_cross_entropy,
    of_cross_entropy_backward,
    of_cross_entropy_backward_,
    of_dequantise,
    of_epilogue,
    of_gemm,
    of_gemm_out,
    of_grouped,
    of_grouped_out,
    of_quantise,
    of_quantised_attention,
    of_scored_attention,
    of_scored_attention_backward,
    of_softmax,
    of_softmax_backward,
)

IDENTITY = cutepy.epilogues.identity.text
NO_FUNCTIONS = None, [], ""
"""Sinks, tables and text that attention of sequences takes."""

pytestmark = pytest.mark.skipif(not distributed.is_available(), reason="needs torch.distributed")


def test_every_operation_has_a_sharding():
    own = {name: operation for name, operation in _registered.items() if name.startswith("cutepy::")}
    assert len(own) >= 8  # gemm, gemm_out and those of groups, each with its invariant one
    assert [name for name, operation in own.items() if operation.sharding is None] == []
    # And each is among the cases of the comparison, by the function that calls it.
    from tests.ops import sharded

    called = {"cutepy::gemm", "cutepy::gemm_out", "cutepy::grouped_gemm", "cutepy::grouped_gemm_out"}
    called |= {"cutepy::attention", "cutepy::attention_backward", "cutepy::attention_decode", "cutepy::attention_mla"}
    called |= {"cutepy::attention_varlen", "cutepy::attention_varlen_backward", "cutepy::quantised_attention_varlen"}
    called |= {"cutepy::norm", "cutepy::norm_backward", "cutepy::norm_quantised"}
    called |= {"cutepy::scored_attention", "cutepy::scored_attention_backward", "cutepy::quantised_attention"}
    called |= {"cutepy::softmax", "cutepy::softmax_backward", "cutepy::cross_entropy"}
    called |= {"cutepy::cross_entropy_backward", "cutepy::cross_entropy_backward_", "cutepy::rotary"}
    called |= {"cutepy::mean_of_losses"}
    called |= {"cutepy::rotary_cached"}
    called |= {"cutepy::linear_cross_entropy", "cutepy::linear_losses", "cutepy::quantise"}
    called |= {"cutepy::topk", "cutepy::sample"}
    called |= {"cutepy::gated", "cutepy::gated_backward", "cutepy::joined_linear", "cutepy::joined_linear_gradient"}
    assert {name.removesuffix("_invariant") for name in own} == called, "add a case to tests/ops/sharded.py"
    assert len(list(sharded.cases())) > 40


def test_letters_follow_broadcasting():
    full = letters("b", "m", "n")
    assert aligned(torch.empty(1, 8), full, (2, 4, 8)) == (None, Letter("n"))
    assert aligned(torch.empty(2, 1, 8), full, (2, 1, 8)) == full
    assert aligned(torch.empty(1), (), ()) == (None,)


def test_k_is_sharded_where_partial_sums_add_up():
    a, b = torch.empty(4, 16, device="meta"), torch.empty(8, 16, device="meta")
    assert of_gemm(a, b, [], [], "", cutepy.epilogues.relu.text).along == ("b0", "n")
    found = of_gemm(a, b, [], [], "", cutepy.epilogues.silu.text)
    assert isinstance(found, Sharding)
    assert found.along == ("b0", "n")
    assert of_gemm(a, b, [], [], "", IDENTITY).along == ("b0", "n", "k")


@pytest.mark.parametrize(
    ("epilogue", "shapes", "along"),
    [
        (IDENTITY, ((4, 16), (8, 16)), ("b0", "n")),
        (cutepy.epilogues.relu.text, ((3, 4, 16), (3, 8, 16)), ("b0", "m", "n")),
        (IDENTITY, ((2, 4, 16), (8, 16)), ("b1", "b0", "n")),
    ],
)
def test_results_that_are_written_to_have_letters_and_hold_no_parts(epilogue, shapes, along):
    """As inputs, behind A and B and before scales; not sharded along what they don't have."""
    (a, b), scales = (_meta(*shape) for shape in shapes), (_meta(), _meta(), (0, 0, 0, 0))
    of_result = of_gemm(a, b, [], [], "", epilogue)
    found = of_gemm_out(a, b, [], [], "", epilogue, [_meta(*a.shape[:-1], 8)], *scales)
    assert isinstance(found, Sharding)
    assert found == Sharding((*of_result.inputs, *of_result.outputs, (), ()), (), along)


def test_reduced_results_are_written_to_along_what_each_has():
    a, b = _meta(4, 16), _meta(8, 16)
    epilogue = cutepy.epilogue(lambda acc: {"y": acc, "most": acc.max(1)}).graph.text
    outs = [_meta(4, 8), _meta(4)]
    assert of_gemm_out(a, b, [], [], "", epilogue, outs).along == ("b0",)
    counts, matrices = _meta(2), _meta(2, 4, 16)
    found = of_grouped_out(matrices, matrices, counts, "m", [], [], "", IDENTITY, [_meta(2, 4, 4)])
    assert found.along == ("g", "n")
    assert found.inputs == (
        *of_grouped(matrices, matrices, counts, "m", [], [], "", IDENTITY).inputs,
        *found.inputs[3:],
    )
    assert found.inputs[3:] == (letters("g", "m", "n"),)


@pytest.mark.parametrize(
    ("scales", "letters_of", "along"),
    [
        (((), ()), ((), ()), ("b0", "n", "k")),
        (((256, 1), (384, 1)), (("b0", None), ("n", None)), ("b0", "n", "k")),
        (
            ((256, 2), (3, 2)),
            (("b0", Letter("k", 128)), (Letter("n", 128), Letter("k", 128))),
            ("b0", "n", "k"),
        ),
    ],
)
def test_scaled_products_are_sharded_with_their_scales(scales, letters_of, along):
    from cutepy.ops import scaled

    a, b = _meta(256, 256).to(torch.float8_e4m3fn), _meta(384, 256).to(torch.float8_e4m3fn)
    options = {"out_dtype": torch.bfloat16, "epilogue": None, "out_major": "row", "use_fast_accum": True}
    found = scaled._sharding(a, b, *(_meta(*scale) for scale in scales), **options, bias=_meta(384))
    of_a, of_b, of_bias, *of_scales = found.inputs
    assert (of_a, of_b, of_bias) == (letters("b0", "k"), letters("n", "k"), letters("n"))
    assert tuple(of_scales) == tuple(letters(*each) for each in letters_of)
    assert found.along == along


@pytest.mark.parametrize("dims", [0, 1, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses_and_softmaxes_are_sharded_along_their_rows(dims, weighted):
    extents, names = (2, 3, 4)[:dims], [f"b{n}" for n in range(dims)]
    logits, rows, weight = _meta(*extents, 5), _meta(*extents), _meta(5) if weighted else None
    full, of_rows, vectors = letters(*names, None), letters(*names), ((None,),) * weighted
    loss = of_cross_entropy(logits, rows, weight)
    assert (loss.inputs, loss.outputs) == ((full, of_rows, *vectors), (of_rows, of_rows))
    gradient = of_cross_entropy_backward(rows, logits, rows, weight)
    assert (gradient.inputs, gradient.outputs) == ((of_rows, full, of_rows, *vectors, of_rows), (full,))
    own = of_cross_entropy_backward_(rows, logits, rows, weight)
    assert (own.inputs, own.outputs) == (gradient.inputs, ())
    softmax, backward = of_softmax(logits), of_softmax_backward(logits, logits)
    assert (softmax.inputs, softmax.outputs, backward.inputs) == ((full,), (full,), (full, full))
    for each in (loss, gradient, own, softmax, backward):
        assert sorted(each.along) == names


def test_extents_that_groups_part_stay_whole():
    rows, matrices, counts = (torch.empty(*shape, device="meta") for shape in ((4, 16), (2, 4, 16), (2,)))
    assert of_grouped(matrices, matrices, counts, "m", [], [], "", IDENTITY).along == ("g", "n", "k")
    assert of_grouped(rows, matrices, counts, "m", [], [], "", IDENTITY).along == ("n", "k")
    assert of_grouped(matrices, rows, counts, "n", [], [], "", IDENTITY).along == ("m", "k")
    assert of_grouped(rows, rows, counts, "k", [], [], "", IDENTITY).along == ("m", "n")


@pytest.mark.parametrize(
    ("rows", "scale", "block", "along"),
    [
        ((256,), (2, 2), Block(128, 128), ("b0", "n", "k")),
        ((2, 256), (4, 2), Block(128, 128), ("n", "k")),  # blocks of rows that leading dimensions part
        ((2, 256), (2, 256, 2), Block(1, 128), ("b1", "b0", "n", "k")),
        ((2, 256), (512, 2), Block(1, 128), ("n", "k")),  # rows of all leading dimensions in one
        ((2, 256), (), TENSOR, ("b1", "b0", "n", "k")),
    ],
)
def test_rows_that_scales_do_not_part_stay_whole(rows, scale, block, along):
    a, b = torch.empty(*rows, 256, device="meta"), torch.empty(384, 256, device="meta")
    scales = [(torch.empty(scale, device="meta"), block), (torch.empty(3, 2, device="meta"), Block(128, 128))]
    assert of_epilogue(Graph.parse(IDENTITY), a, b, [], "", scales).along == along


def _meta(*shape):
    return torch.empty(shape, device="meta")


@pytest.mark.parametrize(
    ("block", "scale", "quantised"),
    [
        (TENSOR, (), ()),
        (Block(1, 0), (256, 1), ("b0",)),
        (Block(1, 128), (256, 2), ("b0", "k")),
        (Block(128, 128), (2, 2), ("b0", "k")),
    ],
)
def test_what_shares_no_scale_is_quantised_apart_and_all_is_dequantised_apart(block, scale, quantised):
    x, scale = _meta(256, 256), _meta(*scale)
    assert of_quantise(x, tuple(block), scale).along == quantised
    assert {*of_dequantise(x, scale, block).along} == {"b0", "k"}


def test_attention_is_sharded_along_what_no_function_counts():
    q, k = _meta(2, 3, 4, 16), _meta(2, 5, 2, 16)
    none = (None, [], [])

    def along(sharding, inputs):
        assert len(sharding.inputs) == inputs  # of each tensor that is given, as these are taken one by one
        return sharding.along

    backward = (q, q, k, k, q, q)
    assert along(of_attention(q, k, k), 3) == ("b", "h")
    assert along(of_attention_backward(*backward, None), 6) == ("b", "h")
    assert along(of_attention_backward(*backward, q), 7) == ("b", "h")
    assert along(of_attention_varlen(q[0], k[0], k[0], _meta(3), _meta(3), None, None, None, *NO_FUNCTIONS), 5) == (
        "h",
    )
    used = _meta(3), _meta(3), _meta(2), _meta(2)
    assert along(of_attention_varlen(q[0], k[0], k[0], *used, None, *NO_FUNCTIONS, 9), 7) == ("h",)
    packed = [x[0] for x in backward]
    assert along(of_attention_varlen_backward(*packed, None, _meta(3), None, None, None, None, *NO_FUNCTIONS), 7) == (
        "h",
    )
    assert along(of_attention_varlen_backward(*packed, q[0], *used, None, *NO_FUNCTIONS, 9), 11) == ("h",)
    assert along(of_attention_decode(q, k, k, _meta(2), _meta(2, 3), *NO_FUNCTIONS), 5) == ("b", "h")
    assert along(of_scored_attention(q, k, k, *none, ""), 3) == ("b", "h")
    assert along(of_scored_attention(q, k, k, _meta(4), [_meta(9)], [_meta(2, 2)], ""), 6) == ()
    assert along(of_scored_attention_backward(*backward, q, _meta(4), [], [], ""), 8) == ("b", "h")
    sharding = of_quantised_attention(q, k, k, _meta(2, 4, 1), None, _meta(2, 2, 1), *none, "")
    assert along(sharding, 5) == ("b", "h")
    assert sharding.inputs[3:] == (letters("b", "h", None), letters("b", Letter("h", 2), None))
    for sinks, of_sinks in ((None, (None,)), (_meta(4), letters("h"))):
        found = of_scored_attention_backward(*backward, None, sinks, [], [], "").outputs
        assert found[3:] == (of_sinks, (None,))
    for function, counted in ((lambda s, b, h, i, j: s * h, "h"), (lambda s, b, h, i, j: s * b + i, "b")):
        functions, free = trace_scores(function).graph.text, tuple({"b", "h"} - {counted})
        assert along(of_scored_attention(q, k, k, *none, functions), 3) == free
        assert along(of_scored_attention_backward(*backward, None, *none, functions), 6) == free
        given = _meta(2), None, _meta(4), [_meta(9)], functions
        assert along(of_attention_decode(q, k, k, *given), 6) == free
        given = _meta(3), _meta(3), None, *given
        assert along(of_attention_varlen(q[0], k[0], k[0], *given), 8) == free[: free == ("h",)]
        found = of_attention_varlen_backward(*packed, None, *given)
        assert along(found, 11) == free[: free == ("h",)]
        assert found.outputs[3] == letters("h")


def in_parts(function, sharding, tensors, name, ways):
    """Compute a function of each part of tensors that a letter parts, and join the results as a sharding says."""

    def dim_of(names):
        return next((dim for dim, letter in enumerate(names) if letter is not None and letter.name == name), None)

    dims = [dim_of(names) for names in sharding.inputs]
    parts = [[x] * ways if dim is None else x.chunk(ways, dim) for x, dim in zip(tensors, dims, strict=True)]
    results = zip(*(function(*part) for part in zip(*parts, strict=True)), strict=True)
    return [torch.cat(each, dim_of(names)) for each, names in zip(results, sharding.outputs, strict=True)]


@pytest.mark.parametrize(
    ("name", "ways"), [("packed", 3), ("cached", 3), ("paged", 3), ("paged by its batch", 2), ("by its batch", 2)]
)
def test_parts_of_attention_are_parts_of_the_whole(name, ways):
    from tests.ops.sharded import ends, whole

    heads = [whole(2, rows, count, 16, seed=rows) for rows, count in ((3, 6), (16, 3), (16, 3))]
    letter = "b" if name.endswith("batch") else "h"
    if name == "packed":
        tensors = [x.flatten(0, 1) for x in heads] + [ends(0, 3, 6), ends(0, 16, 32)]
        rule = of_attention_varlen(*tensors, None, None, None, *NO_FUNCTIONS)

        def computed(q, k, v, a, b):
            return cutepy.ops.attention_varlen(q, k, v, cu_seqlens_q=a, cu_seqlens_k=b, return_lse=True)
    elif name.startswith("paged"):
        pages = [x.flatten(0, 1).unflatten(0, (4, 8)) for x in heads[1:]]
        tensors = [heads[0], *pages, ends(13, 3), torch.tensor([[3, 1], [0, 2]], dtype=torch.int32)]
        rule = of_attention_decode(*tensors, *NO_FUNCTIONS)

        def computed(q, k, v, lengths, table):
            return cutepy.ops.attention_decode(q, k, v, cache_seqlens=lengths, block_table=table, return_lse=True)
    else:
        tensors = [*heads, ends(13, 3)]
        rule = of_attention_decode(*tensors, None, *NO_FUNCTIONS)

        def computed(q, k, v, lengths):
            return cutepy.ops.attention_decode(q, k, v, cache_seqlens=lengths, return_lse=True)

    assert letter in rule.along
    for whole_of, joined in zip(computed(*tensors), in_parts(computed, rule, tensors, letter, ways), strict=True):
        torch.testing.assert_close(joined, whole_of)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "devices", "divide"),
    [(6, 3, 3, True), (6, 3, 2, False), (4, 1, 2, False), (3, 3, 3, True), (0, 0, 3, False)],
)
@pytest.mark.parametrize("rule", [of_attention, of_attention_varlen, of_attention_decode])
def test_heads_that_share_keys_go_to_one_device(rule, heads, kv_heads, devices, divide):
    from torch.testing._internal.distributed.fake_pg import FakeStore

    batch, counts = () if rule is of_attention_varlen else (1,), (heads, kv_heads, kv_heads)
    rest = {of_attention: [], of_attention_varlen: [(3,), (3,)], of_attention_decode: [(1,), (1, 4)]}[rule]
    distributed.init_process_group("fake", rank=0, world_size=devices, store=FakeStore())
    try:
        mesh = distributed.device_mesh.init_device_mesh("cpu", (devices,))
        given = [distribute_tensor(torch.zeros(*batch, 9, n, 16), mesh, [Shard(len(batch) + 1)]) for n in counts]
        given += [distribute_tensor(torch.zeros(shape), mesh, [Replicate()]) for shape in rest]
        others = {of_attention: (), of_attention_varlen: (None, None, None, *NO_FUNCTIONS)}.get(rule, NO_FUNCTIONS)
        (chosen,) = _choose(rule(*(_meta(*x.shape) for x in given), *others), given, mesh)
        assert (chosen == "h") == divide
    finally:
        distributed.destroy_process_group()


def test_a_rule_gets_arguments_by_position_and_by_name(monkeypatch):
    monkeypatch.setattr("cutepy.ops.distributed._waiting", waiting := [])
    monkeypatch.setattr("cutepy.ops.distributed.dtensor_class", lambda: None)  # nobody has imported it yet
    register_rule("operation", "library", lambda arguments, named: (arguments, named))
    ((*of, rule),) = waiting
    assert of == ["operation", "library"]
    assert rule(None, None, (), (1,), {"x": 2}) == ((1,), {"x": 2})
    assert rule(None, None, (), (1,)) == ((1,), {})


@pytest.mark.parametrize(
    ("extents", "unit", "placed", "plan"),
    [
        ((8, 16, 32), 1, (Shard(0), Replicate()), ["m"]),
        ((8, 16, 32), 1, (Replicate(), Shard(0)), ["n"]),
        ((8, 16, 32), 1, (Shard(1), Shard(1)), ["k"]),
        ((8, 16, 32), 1, (Replicate(), Replicate()), [None]),
        ((8, 64, 32), 1, (Shard(0), Shard(0)), ["n"]),  # the smaller one is gathered
        ((64, 8, 32), 1, (Shard(0), Shard(0)), ["m"]),
        ((7, 16, 32), 1, (Shard(0), Replicate()), ["m"]),  # parts of rows need not be as many
        ((8, 16, 32), 8, (Shard(1), Shard(1)), ["k"]),  # units of K are whole on each of four devices
        ((8, 16, 32), 16, (Shard(1), Shard(1)), ["n"]),
        ((8, 16, 48), 16, (Shard(1), Shard(1)), ["n"]),
    ],
)
def test_what_costs_the_least_is_chosen_and_no_unit_is_parted(extents, unit, placed, plan):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor
    from torch.testing._internal.distributed.fake_pg import FakeStore

    m, n, k = extents
    sharding = Sharding((letters("m", "k"), letters("n", "k")), (letters("m", "n"),), ("m", "n", "k"))
    of_scale = (Letter("k", unit),)
    sharding = sharding._replace(inputs=(*sharding.inputs, of_scale))
    distributed.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (4,))
        shapes = (m, k), (n, k), (k // unit,)
        whole = zip(map(torch.zeros, shapes), (*placed, Replicate()), strict=True)
        given = [DTensor.from_local(x, mesh, [Replicate()], run_check=False).redistribute(mesh, [p]) for x, p in whole]
        assert _choose(sharding, given, mesh) == plan
    finally:
        distributed.destroy_process_group()


def test_one_process_computes_what_plain_tensors_give():
    from torch.distributed.device_mesh import init_device_mesh

    from tests.ops import sharded

    distributed.init_process_group("gloo", rank=0, world_size=1, store=distributed.HashStore())
    try:
        mesh = init_device_mesh("cpu", (1,))
        few = "matrices", "bias and c", "a batch", "gate", "groups of rows", "scales of rows", "quantise a batch"
        sharded.check_all(mesh, few, most=1)
        sharded.check_layers(mesh, "sequences")
        a, b, out = (sharded.whole(*shape) for shape in ((4, 16), (8, 16), (4, 8)))
        a, b = (sharded.distribute(x, mesh, [Replicate()]) for x in (a, b))
        with refuses(ValueError):
            cutepy.ops.gemm(a, b, out=sharded.distribute(out, mesh, [Partial()]))
    finally:
        distributed.destroy_process_group()


@pytest.mark.deep
@pytest.mark.integration
def test_two_processes_compute_what_one_does(tmp_path):
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.ops.sharded", str(rank), "2", str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=170)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(said)
