"""Arguments of public operations that are no tensors, or that only other libraries have: one clear error for each."""

import inspect
import re

import numpy as np
import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from cutepy import ops  # noqa: E402
from cutepy.ops.foreign_arguments import _HARMLESS, _REMEDIES  # noqa: E402


def rows(*shape):
    return torch.ones(shape, dtype=torch.bfloat16)


def whole(*values):
    return torch.tensor(values, dtype=torch.int32)


def bytes_of(*shape):
    return torch.ones(shape).to(torch.float8_e4m3fn)


Q, HEADS_FIRST, PACKED, ONE, CACHE = (
    rows(*shape) for shape in ((2, 8, 4, 64), (2, 4, 8, 64), (16, 4, 64), (2, 1, 4, 64), (4, 16, 4, 64))
)
LATENT_Q, LATENT = rows(2, 1, 4, 576), rows(4, 16, 576)
TABLE, LENGTHS, BOUNDS = torch.zeros(2, 2, dtype=torch.int32), whole(20, 20), whole(0, 8, 16)
X, W, LABELS, COS = rows(4, 64), rows(32, 64), torch.zeros(4, dtype=torch.int64), torch.ones(8, 32)
VALUES, SCALES = ops.quantise(rows(4, 128))

ATTENTION = {"q": Q, "k": Q, "v": Q, "alibi_slopes": torch.ones(4)}
OF_HEADS_FIRST = {"query": HEADS_FIRST, "key": HEADS_FIRST, "value": HEADS_FIRST}
VARLEN = {"q": PACKED, "k": PACKED, "v": PACKED, "cu_seqlens_q": BOUNDS, "cu_seqlens_k": BOUNDS}
DECODE = {"q": ONE, "k_cache": CACHE, "v_cache": CACHE, "cache_seqlens": LENGTHS, "block_table": TABLE}
SCALED = {"scale_a": torch.ones(16)}
CALLS = {
    "attention": ATTENTION | {"sinks": torch.ones(4)},
    "attention_decode": DECODE,
    "attention_mla": {"q": LATENT_Q, "cache": LATENT, "cache_seqlens": LENGTHS, "block_table": TABLE},
    "attention_varlen": VARLEN,
    "cross_entropy": {"input": X, "target": LABELS, "weight": torch.ones(64)},
    "dequantise": {"x": VALUES, "scale": SCALES},
    "dequantise_mla_cache": {"rows": ops.quantise_mla_cache(LATENT)},
    "flash_attn_func": ATTENTION,
    "flash_attn_varlen_func": VARLEN,
    "flash_attn_with_kvcache": DECODE,
    "flash_mla_with_kvcache": {
        "q": LATENT_Q,
        "k_cache": LATENT,
        "block_table": TABLE,
        "cache_seqlens": LENGTHS,
    },
    "flex_attention": OF_HEADS_FIRST,
    "geglu": {"gate": X, "up": X},
    "gemm": {"a": X, "b": W, "c": rows(4, 32), "bias": rows(32), "out": rows(4, 32)},
    "grouped_gemm": {"a": rows(16, 64), "b": rows(2, 32, 64), "offs": whole(8, 16)},
    "joined_linear": {"x": X, "weights": (W, W)},
    "layer_norm": {"input": X, "normalized_shape": (64,), "weight": rows(64), "bias": rows(64), "residual": X},
    "linear_cross_entropy": {
        "input": X,
        "linear_weight": W,
        "target": LABELS,
        "linear_bias": rows(32),
        "weight": torch.ones(32),
    },
    "log_softmax": {"input": X},
    "quantise": {"x": rows(4, 128)},
    "quantise_mla_cache": {"rows": LATENT},
    "rms_norm": {"input": X, "normalized_shape": (64,), "weight": rows(64), "residual": X},
    "rotary": {"x": Q, "cos": COS, "sin": COS},
    "rotary_cached": {
        "q": ONE,
        "k": ONE,
        "v": ONE,
        "cos": COS,
        "sin": COS,
        "keys": CACHE,
        "values": CACHE,
        "lengths": whole(1, 1),
        "table": TABLE,
    },
    "sample": {"logits": X, "seed": 1},
    "scaled_dot_product_attention": OF_HEADS_FIRST,
    "scaled_gemm": {"a": bytes_of(16, 64), "b": bytes_of(32, 64), "scale_b": torch.ones(32)} | SCALED,
    "scaled_grouped_gemm": {
        "a": bytes_of(16, 64),
        "b": bytes_of(2, 32, 64),
        "scale_b": torch.ones(2, 32),
        "offs": whole(8, 16),
    }
    | SCALED,
    "softmax": {"input": X},
    "swiglu": {"gate": X, "up": X},
    "topk": {"input": X, "k": 2},
}
TENSORS = [
    (name, argument)
    for name, given in CALLS.items()
    for argument, value in given.items()
    if isinstance(value, torch.Tensor)
]


def test_the_table_has_all_operations():
    """Others make no results of tensors: a class, contexts, and functions that make operations or masks."""
    public = {name for name in ops.__all__ if name in CALLS}
    assert set(ops.__all__) - public == {"Operation", "TopK", "batch_invariant", "block_mask", "register"}


@pytest.mark.parametrize(("name", "argument"), TENSORS)
def test_arguments_that_are_no_tensors_are_refused_by_name(name, argument):
    call, given = getattr(ops, name), CALLS[name]
    values = [[1.0], given[argument].float().numpy(), np.ones(2)]
    if inspect.signature(call).parameters[argument].annotation == "torch.Tensor":
        values.append(None)
    for value in values:
        kind = type(value).__name__
        with pytest.raises(TypeError, match=re.escape(f"{argument} must be a torch.Tensor, got {kind}; ")):
            call(**given | {argument: value})


@pytest.mark.parametrize("name", CALLS)
def test_calls_of_the_table_are_taken(name):
    getattr(ops, name)(**CALLS[name])


FOREIGN = {
    "flash_attn_func": ("qv", "attention_chunk", "learnable_sink", "mask_mod", "num_splits", "return_lse", "score_mod"),
    "flash_attn_varlen_func": ("seqused_q", "seqused_k", "page_table", "pack_gqa"),
    "flash_attn_with_kvcache": (
        *("k", "v", "rotary_cos", "rotary_sin", "rotary_seqlens", "cache_batch_idx", "cache_leftpad", "num_splits"),
        *("cu_seqlens_q", "cu_seqlens_k_new", "max_seqlen_q", "scheduler_metadata", "sm_margin", "qv"),
    ),
    "flash_mla_with_kvcache": ("indices", "attn_sink", "extra_k_cache", "topk_length", "descale_q"),
    "flex_attention": ("kernel_options", "return_aux"),
}


@pytest.mark.parametrize(("name", "argument"), [(name, each) for name, those in FOREIGN.items() for each in those])
def test_arguments_of_other_libraries_are_refused_with_the_call_to_make(name, argument):
    call, given = getattr(ops, name), CALLS[name]
    for value in (None, *_HARMLESS.get(argument, ())):
        call(**given | {argument: value})
    with refuses(TypeError):
        call(**given | {argument: 3})
    with pytest.raises(TypeError, match=f"{argument} must be left out of {name}, got Tensor; "):
        call(**given | {argument: torch.ones(2)})


def test_arguments_that_no_library_has_are_refused_with_those_that_there_are():
    with refuses(TypeError):
        ops.flash_attn_func(Q, Q, Q, casual=True)


def test_each_argument_of_other_libraries_is_tested():
    tested = {argument for those in FOREIGN.values() for argument in those}
    assert set(_REMEDIES) - tested <= {
        "rotary_interleaved",
        "descale_k",
        "extra_indices_in_kvcache",
        "extra_topk_length",
    }
    assert set(_HARMLESS) <= set(_REMEDIES)


def test_a_cache_by_sequence_numbers_is_one_of_pages():
    """The remedy for cache_batch_idx computes what it stands for."""
    q, cache = torch.randn(2, 1, 4, 64).bfloat16(), torch.randn(4, 16, 4, 64).bfloat16()
    numbers, lengths = whole(3, 1), whole(16, 9)
    by_pages = ops.flash_attn_with_kvcache(q, cache, cache, lengths, block_table=numbers[:, None])
    assert torch.equal(by_pages, ops.flash_attn_with_kvcache(q, cache[numbers], cache[numbers], lengths))
