"""Attention up to its launches: tensors that are refused, and those that kernels get."""

import math

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy.host.launches import Launches  # noqa: E402
from cutepy.kernels.attention import reference  # noqa: E402
from cutepy.kernels.attention.config import Lengths  # noqa: E402
from cutepy.ops import (  # noqa: E402
    attention,
    attention_arguments,
    attention_decode,
    attention_gradients,
    decode_attention,
    dot_product_attention,
    latent_attention,
    quantised_attention,
    scaled_dot_product_attention,
    varlen_attention,
)
from cutepy.ops.attention_functions import check_scoring  # noqa: E402
from cutepy.ops.varlen_attention import _AttentionArguments, _to_launch  # noqa: E402

BIASED = (
    "(t0: f32[1])\n  v0 = acc()\n  v1 = head_index()\n  v2 = gather(v1, 't0')\n  v3 = add(v0, v2)\n  return score: v3"
)


def test_tensors_that_functions_use_are_beside_the_queries():
    q = torch.zeros(1, 8, 2, 64)
    check_scoring(q, None, [torch.zeros(2)], BIASED, (1, 8, 8))
    with refuses(ValueError):
        check_scoring(q, None, [torch.zeros(2, device="meta")], BIASED, (1, 8, 8))


def given(count, keys, **options):
    """Make the arguments of so many sequences, of as many queries and keys."""
    begins = [each * torch.arange(count + 1, dtype=torch.int32) for each in (4, keys)]
    plain = {"q_begins": begins[0], "k_begins": begins[1], "tables": [], "functions": "", "page": 0, "scale": 1.0}
    plain |= {"most_queries": 4, "most_keys": keys, "deterministic": False}
    return _AttentionArguments(**(dict.fromkeys(_AttentionArguments._fields) | plain | options))


def test_sinks_alone_are_the_sums_where_there_are_no_keys():
    q, k = torch.randn(2, 5, 3, 64).bfloat16(), torch.zeros(2, 0, 3, 64).bfloat16()
    sinks, weights = torch.randn(3, requires_grad=True), torch.randn(2, 3, 5)
    with cutepy.simulate():
        o, lse = cutepy.ops.attention(q.requires_grad_(), k, k, sinks=sinks, return_lse=True)
        ((lse * weights).sum() + o.float().sum()).backward()
    assert not o.any()
    assert torch.equal(lse, sinks.detach()[:, None].expand_as(lse))
    torch.testing.assert_close(sinks.grad, weights.sum((0, 2)))
    assert not q.grad.any()


@pytest.mark.parametrize("keys", [0, 1, 5])
def test_keys_that_are_none_are_launched_as_one_that_no_sequence_has(keys):
    q, (k, v) = torch.ones(12, 2, 64), (torch.ones(3 * keys, 2, head) for head in (64, 80))
    asked = given(3, keys)
    got_k, got_v, launched = _to_launch(q, k, v, asked)
    if keys:
        assert (got_k, got_v, launched) == (k, v, asked)
    else:
        assert (got_k.shape, got_v.shape) == ((1, 2, 64), (1, 2, 80))
        assert launched.k_begins.tolist() == [0] * 4


@pytest.mark.parametrize("is_used", [False, True])
def test_rows_that_no_kernel_writes_have_seen_no_key(is_used, monkeypatch):
    monkeypatch.setattr(varlen_attention, "plan_forward", lambda *_, **__: lambda *_: None)
    monkeypatch.setattr(
        varlen_attention, "maker_of", lambda like, shape, dtype: lambda: like.new_full(shape, 7.0, dtype=dtype)
    )
    q = torch.ones(12, 2, 64, dtype=torch.float16)
    asked = given(3, 4, q_used=torch.zeros(3, dtype=torch.int32) if is_used else None)
    run = varlen_attention._find_launch(q, q, q, asked, 1, None)
    o, lse = run(q, q, q, asked, asked.lengths, ())
    assert set(o.unique().tolist()) == {0.0 if is_used else 7.0}
    assert set(lse.unique().tolist()) == {-math.inf if is_used else 7.0}
    assert (o.shape, lse.shape) == ((12, 2, 64), (2, 12))


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_scales_of_blocks_are_passed_to_a_kernel_of_blocks_for_each_block(blocks, monkeypatch):
    asked_for, passed = [], []
    monkeypatch.setattr(
        quantised_attention,
        "find_launch",
        lambda *_, block, **__: (asked_for.append(block), lambda *given: passed.append(given))[1],
    )
    size = quantised_attention.BLOCK
    q, k = (torch.zeros(1, n, 2, 64).to(torch.float8_e4m3fn) for n in (4 * size, blocks * size))
    scales = torch.ones(1, 2, 1), torch.ones(1, 2, blocks), None
    asked = quantised_attention._AttentionRequest(
        q, k, k, *scales, None, [], [], "", [], 1.0, None, None, torch.float16
    )
    quantised_attention._find_launch(asked)(asked[:3], None, [], [], scales)
    ((*_, of_kernel),) = passed
    assert asked_for == [size if blocks > 1 else 0]
    assert [s if s is None else s.shape[2] for s in of_kernel] == [4 if blocks > 1 else 1, blocks, None]


@pytest.mark.parametrize(("queries", "heads"), [(1, 3), (2, 3), (4, 1)])
def test_rows_of_queries_and_heads_are_a_latent_kernels(queries, heads, monkeypatch):
    def launch(rows, keys, o, lse, lengths, table):
        assert (rows.shape, keys.shape) == ((2, queries * heads, 576), (80, 576))
        number = torch.arange(queries * heads)
        o.copy_(number[:, None].expand(o.shape))
        lse.copy_(number.expand(lse.shape))

    monkeypatch.setattr(latent_attention, "plan", lambda *_, **__: launch)
    q, cache = torch.zeros(2, queries, heads, 576).bfloat16(), torch.zeros(2, 40, 576).bfloat16()
    o, lse = latent_attention._find_launch(q, cache, None, None, 1.0, causal=False)(q, cache, None, None)
    number = torch.arange(queries * heads).view(queries, heads)
    assert torch.equal(o.float(), number[..., None].expand(2, queries, heads, 512).float())
    assert torch.equal(lse, number.T.expand(2, heads, queries).float())


@pytest.mark.parametrize(("queries", "heads", "kv_heads"), [(1, 2, 2), (1, 4, 2), (3, 2, 2), (3, 4, 2), (3, 4, 1)])
def test_rows_of_heads_that_share_keys_are_a_decoding_kernels(queries, heads, kv_heads, monkeypatch):
    """A row is of one query and one of the heads that share keys: all heads of a query follow each other."""
    group = heads // kv_heads

    def launch(q, k, v, o, lse, *rest):
        assert q.shape == o.shape == (2, queries * group, kv_heads, 64)
        number = torch.arange(queries * group)
        head = torch.arange(kv_heads)
        o.copy_((100 * head + number[:, None])[..., None].expand(o.shape))
        lse.copy_((100 * head[:, None] + number).expand(lse.shape))

    monkeypatch.setattr(decode_attention, "plan_decode", lambda *_, **__: launch)
    q, k = torch.zeros(2, queries, heads, 64).bfloat16(), torch.zeros(2, 40, kv_heads, 64).bfloat16()
    plain = {"tables": [], "functions": "", "scale": 1.0, "common": 0}
    asked = decode_attention._AttentionArguments(
        **(dict.fromkeys(decode_attention._AttentionArguments._fields) | plain)
    )
    o, lse = decode_attention._find_launch(q, k, k, asked)(q, k, k, None, None, ())
    for query in range(queries):
        for head in range(heads):
            expected = 100 * (head // group) + query * group + head % group
            assert o[0, query, head].unique().tolist() == [expected]
            assert lse[:, head, query].tolist() == [expected] * 2


def launched_alone(monkeypatch):
    """Have calls launch as if on a GPU that nothing else sees; return the list of results that launches are given."""
    written = []

    def plan(q, k, v, *how):
        def launch(q, k, v, o, lse):
            written.append((o, lse))
            o.fill_(2.0)

        return launch

    monkeypatch.setattr(dot_product_attention, "only_launches", lambda *_: True)
    monkeypatch.setattr(dot_product_attention, "plan_forward", plan)
    monkeypatch.setattr(dot_product_attention, "_launches", Launches())
    monkeypatch.setattr(attention_arguments, "_unread", {})
    return written


def test_logarithms_that_nobody_asks_for_share_memory(monkeypatch):
    written = launched_alone(monkeypatch)
    few, many = (torch.ones(2, n, 3, 64, dtype=torch.float16) for n in (8, 40))
    for q in (few, many, few):
        o = attention(q, few, few)
        assert (o.shape, o.dtype, o.is_contiguous(), o.unique().item()) == (q.shape, q.dtype, True, 2.0)
        assert (written[-1][1].shape, written[-1][1].dtype) == ((2, 3, q.shape[1]), torch.float32)
    begins = [lse.data_ptr() for _, lse in written]
    assert begins[0] == begins[2] != begins[1]
    assert written[0][0].data_ptr() != written[2][0].data_ptr(), "the output is new"


@pytest.mark.parametrize(("queries", "heads"), [(1, 2), (1, 4), (3, 4)])
def test_logarithms_of_decoding_that_nobody_asks_for_share_memory(queries, heads, monkeypatch):
    written = []

    def launch(q, k, v, o, lse, *rest):
        written.append(lse)
        o.fill_(2.0)

    monkeypatch.setattr(decode_attention, "only_launches", lambda *_: True)
    monkeypatch.setattr(decode_attention, "plan_decode", lambda *_, **__: launch)
    monkeypatch.setattr(decode_attention, "_launches", Launches())
    monkeypatch.setattr(attention_arguments, "_unread", {})
    q, cache = torch.ones(2, queries, heads, 64).bfloat16(), torch.ones(2, 40, 2, 64).bfloat16()
    found = [attention_decode(q, cache, cache) for _ in range(2)]
    assert found[0].data_ptr() != found[1].data_ptr(), "the output is new"
    assert all((o.shape, o.unique().item()) == (q.shape, 2.0) for o in found)
    assert written[0].data_ptr() == written[1].data_ptr()
    assert written[0].shape == (2, 2, queries * heads // 2)


def test_outputs_alone_of_no_keys_and_of_rows_that_are_copied(monkeypatch):
    written = launched_alone(monkeypatch)
    q = torch.ones(1, 8, 2, 64, dtype=torch.float16)
    assert not attention(q, q[:, :0], q[:, :0]).any()
    assert not written
    odd = torch.ones(1, 8, 2, 65, dtype=torch.float16)[..., 1:]
    assert attention(odd, q, q).unique().item() == 2.0
    with refuses(ValueError):
        attention(q, q[:, :, :, :32], q)


def test_torchs_signature_is_a_view_of_the_output(monkeypatch):
    launched_alone(monkeypatch)
    q, k = (torch.ones(2, 4, n, 64, dtype=torch.float16).transpose(1, 2).contiguous().transpose(1, 2) for n in (8, 5))
    o = scaled_dot_product_attention(q, k, k, is_causal=True)
    assert (o.shape, o.transpose(1, 2).is_contiguous()) == (q.shape, True)
    assert [entry[2] for entry in dot_product_attention._launches] == [3], "torch aligns the first query and key"


@pytest.fixture
def computing(monkeypatch):
    """Have calls launch as if on a GPU that nothing else sees; launches compute."""

    def plan(q, k, v, *how):
        def launch(q, k, v, o, lse):
            for result, found in zip((o, lse), reference.forward(q, k, v, *how), strict=True):
                result.copy_(found)

        return launch

    def plan_backward(q, k, v, *how, **_):
        def launch(do, q, k, v, o, lse, dlse, grads):
            for grad, found in zip(grads, reference.backward(do, q, k, v, dlse, *how), strict=True):
                grad.copy_(found)

        return launch

    monkeypatch.setattr(dot_product_attention, "only_launches", bool)
    monkeypatch.setattr(dot_product_attention, "plan_forward", plan)
    monkeypatch.setattr(dot_product_attention, "plan_backward", plan_backward)
    monkeypatch.setattr(dot_product_attention, "_launches", Launches())
    monkeypatch.setattr(dot_product_attention, "_of_gradients", Launches())


def shifted(tensor):
    """Copy a tensor to where no row begins at a multiple of 16 bytes."""
    return torch.cat((tensor.new_zeros(*tensor.shape[:-1], 1), tensor), -1)[..., 1:]


def apart(tensor):
    """View a tensor of which rows are not contiguous."""
    return tensor.mT.contiguous().mT


def after_tokens(tensor):
    """Copy a tensor to memory with heads after tokens."""
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


@pytest.mark.parametrize("placed", [torch.clone, after_tokens, shifted, apart])
@pytest.mark.parametrize(
    ("of_query", "of_key", "causal"),
    [((2, 4, 8, 16), (2, 2, 5, 16), True), ((2, 4, 4, 16), (2, 4, 4, 16), True), ((1, 1, 8, 16), (1, 1, 1, 16), False)],
)
def test_heads_before_tokens_are_as_heads_behind_them(of_query, of_key, causal, placed, computing):
    q, k, v = (placed(torch.randn(shape).half()) for shape in (of_query, of_key, of_key))
    right = of_query[2] - of_key[2] if causal else None
    options = {"is_causal": causal, "enable_gqa": True}

    def behind():
        turned = [each.transpose(1, 2) for each in (q, k, v)]
        return attention(*turned, window=(None, right)).transpose(1, 2)

    for _ in range(2):
        found, wanted = scaled_dot_product_attention(q, k, v, **options), behind()
        assert torch.equal(found, wanted)
        assert found.stride() == wanted.stride()
    given = [each.requires_grad_() for each in (q, k, v)]
    for do in (torch.randn(of_query).half(), torch.ones(of_query).half(), torch.ones(()).half().expand(of_query)):
        found, wanted = scaled_dot_product_attention(q, k, v, **options), behind()
        assert torch.equal(found, wanted)
        assert found.stride() == wanted.stride()
        pairs = zip(*(torch.autograd.grad(o, given, do) for o in (found, wanted)), strict=True)
        for grad, want in pairs:
            assert torch.equal(grad, want)
            assert grad.stride() == want.stride()


def test_heads_before_tokens_of_no_keys_or_queries(computing):
    q, none = torch.ones(2, 3, 4, 16, requires_grad=True, dtype=torch.float16), torch.ones(2, 3, 0, 16).half()
    for query, key in ((q, none), (none, q)):
        o = scaled_dot_product_attention(query, key, key)
        assert o.shape == query.shape
        assert not o.any()
        with torch.no_grad():
            again = scaled_dot_product_attention(query, key, key)
        assert (again.shape, again.stride()) == (o.shape, o.stride())
        o.sum().backward()
    assert not q.grad.any()


def test_autograd_sees_heads_before_tokens(computing):
    given = [torch.randn(2, 3, 8, 16).half().requires_grad_() for _ in "qkv"]
    o = scaled_dot_product_attention(*given)
    grads = torch.autograd.grad(o.sum(), given, create_graph=True)
    assert all(each.shape == (2, 3, 8, 16) for each in grads)
    with refuses(NotImplementedError):
        torch.autograd.grad(grads[0].sum(), given)
    o = scaled_dot_product_attention(*given)
    with torch.no_grad():
        given[0].zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()


def test_gradients_of_tensors_alike_are_planned_once(monkeypatch):
    planned = []
    launch = lambda *given: given[8]  # noqa: E731
    monkeypatch.setattr(attention_gradients, "plan_backward", lambda *_, **__: planned.append(1) or launch)
    monkeypatch.setattr(attention_gradients, "_plans", Launches())
    q, lse = torch.ones(6, 2, 64).bfloat16(), torch.zeros(1, 2, 6)
    for count, scale, wanted in ((2, 1.0, 1), (2, 1.0, 1), (3, 1.0, 2), (3, 2.0, 3), (2, 1.0, 3)):
        lengths = Lengths(*2 * [torch.zeros(count + 1, dtype=torch.int32)])
        asked = attention_gradients.GradientSettings(scale, None, None, False, "", most_keys=6)
        given = (q,) * 5, lse, None, (q,) * 3, asked, [], q.new_empty(0), (), lengths
        assert attention_gradients.launch_gradients(*given) == lengths.tensors
        assert len(planned) == wanted
