"""Attention of cutepy, and its gradients, as an extension: kernels of each dtype, extent of a row and mask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

from cutepy.aot.spec import Extension, Op
from cutepy.aot.variant import SM_COUNT_ARGUMENT, Variant
from cutepy.host.specs import TensorSpec
from cutepy.kernels.attention.choice import LARGEST_HEAD, SHORT, choose_backward, choose_forward, for_batches
from cutepy.kernels.attention.config import BackwardConfig, ForwardConfig

_UNIT = 8
"""Elements of 16 bytes, of which TMA's strides are multiples."""


def attention_extension(
    name: str = "cutepy_attention",
    *,
    dtypes: Sequence[str] = ("bfloat16",),
    heads: Sequence[int] = (64, 128),
    backward: bool = False,
    version: str = "0.1.0",
) -> Extension:
    """Describe an extension with the operation `attention(q, k, v, scale, mask=None)`, which returns o and lse.

    It is `cutepy.ops.attention` without windows: q (batch, m, heads, head), k and v (batch, n, kv_heads, head), whose
    mask is None or "causal", and lse (batch, heads, m).

    Gradients are another operation, `attention_backward(grad_o, q, k, v, o, lse, stats, sums, scale, mask=None)`, which
    returns dq, dk and dv. It writes to memory that callers make: stats (batch, heads, 2, padded) and sums
    (batch, heads, padded, width), float32. `padded` is m, rounded up to a multiple of 640, which all kernels' tiles
    divide; `width` is head, rounded up to a multiple of 64.

    Parameters
    ----------
    name : str
        Of the package.
    dtypes : sequence of str
        "float16", "bfloat16".
    heads : sequence of int
        Extents of a row, multiples of 16 up to 256.
    backward : bool
        True for the gradients too.
    version : str
        Of the package.

    Raises
    ------
    ValueError
        If there is no such kernel.

    Examples
    --------
    >>> described = attention_extension(heads=[128])
    >>> [variant.label for variant in described.ops[0].variants]
    ['bfloat16_128_full', 'bfloat16_128_causal']
    >>> described = attention_extension(heads=[128], backward=True)
    >>> [variant.label for variant in described.ops[1].variants]
    ['bfloat16_128_full', 'bfloat16_128_causal_few', 'bfloat16_128_causal_many']
    """
    if unknown := [dtype for dtype in dtypes if dtype not in ("float16", "bfloat16")]:
        raise ValueError(f"dtypes must be of float16, bfloat16, got {', '.join(unknown)}")
    if wrong := [head for head in heads if head % 16 or not 16 <= head <= LARGEST_HEAD]:
        raise ValueError(f"heads must be multiples of 16 up to {LARGEST_HEAD}, got {', '.join(map(str, wrong))}")
    variants = [
        variant
        for dtype, head, mask in product(dtypes, heads, (None, "causal"))
        for variant in _forward_variants(dtype, head, mask)
    ]
    wide = "[t.float().transpose(1, 2) for t in (q, k, v)]"
    options = "is_causal=mask == 'causal', scale=scale, enable_gqa=True"
    op = Op(
        "attention",
        variants,
        results=("o", "lse"),
        doc="Compute softmax(scale q k^T) v of each head, and the logarithms of the sums; mask may be causal, or none.",
        reference=f"(lambda q, k, v: (torch.nn.functional.scaled_dot_product_attention(q, k, v, {options})"
        ".transpose(1, 2), (scale * q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT).masked_fill(torch.ones("
        "q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(1) & (mask == 'causal'), -torch.inf)"
        f".logsumexp(-1)))(*{wide})",
        tolerance={"rtol": 2e-2, "atol": 2e-2},
        test_extents=[{"batch": 2, "m": tokens, "n": tokens, "heads": 4, "kv_heads": 2} for tokens in (200, 1, 1100)],
        test_numbers={"scale": 0.125},
    )
    ops = [op, _backward(dtypes, heads)] if backward else [op]
    return Extension(name, ops, version=version, description="Attention on NVIDIA Hopper.")


def _forward_variants(dtype: str, head: int, mask: str | None) -> Iterator[Variant]:
    """Return the kernels of a mask."""
    few, many = (
        for_batches(choose_forward(dtype, head, head, queries, left=False, right=mask == "causal"), queries)
        for queries in (SHORT, SHORT + 1)
    )
    yield from _of_queries(_variant, few, many, dtype, head, mask)


def _of_queries(
    make: Callable[..., Variant],
    few: object,
    many: object,
    dtype: str,
    head: int,
    mask: str | None,
) -> Iterator[Variant]:
    """Return one kernel, or one for few queries and one for many."""
    label = f"{dtype}_{head}_{mask or 'full'}"
    if few == many:
        yield make(few, label, mask)
    else:
        yield make(few, f"{label}_few", mask, cost=lambda m: m)
        yield make(many, f"{label}_many", mask, cost=lambda m: m * 0 + SHORT + 0.5)


def _backward(dtypes: Sequence[str], heads: Sequence[int]) -> Op:
    """Describe the operation of the gradients."""
    variants: list[Variant] = []
    for dtype, head, mask in product(dtypes, heads, (None, "causal")):
        few, many = (
            choose_backward(dtype, head, head, left=False, right=mask == "causal", is_short=is_short)
            for is_short in (mask == "causal", False)
        )
        variants += _of_queries(_backward_variant, few, many, dtype, head, mask)
    # P and dS of probabilities that are not normalised, since lse is a tensor like others in the test.
    p = "(scale * q @ k.mT - lse[..., None]).exp().masked_fill(torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, "
    p += "device=q.device).triu(1) & (mask == 'causal'), 0)"
    ds = "p * (do @ v.mT - (do * o).sum(-1, True))"
    grads = "(scale * ds @ k, scale * (ds.mT @ q), p.mT @ do)"
    together = "(g[0], *(t.unflatten(1, (n, -1)).sum(2) for t in g[1:]))"
    each = "[(t if t.shape[2] == q.shape[2] else t.repeat_interleave(q.shape[2] // t.shape[2], 2)).float()"
    each += ".transpose(1, 2) for t in (grad_o, q, k, v, o)]"
    return Op(
        "attention_backward",
        variants,
        results=("dq", "dk", "dv"),
        mutates=("stats", "sums"),
        doc="Compute the gradients of attention's q, k and v from that of o; stats and sums are scratch memory.",
        reference=f"(lambda do, q, k, v, o, n: (lambda p: (lambda ds: (lambda g: tuple(t.transpose(1, 2) for t in "
        f"{together}))({grads}))({ds}))({p}))(*{each}, k.shape[2])",
        # Twice the error of P and dS that are rounded to bfloat16, of rows of 256, where gradients are about 90.
        tolerance={"rtol": 2e-2, "atol": 6.0},
        test_extents=[
            {"batch": 2, "m": tokens, "n": tokens, "padded": tokens, "heads": 4, "kv_heads": 2}
            for tokens in (200, 1, 1100)
        ],
        test_numbers={"scale": 0.03},
    )


def _backward_variant(
    config: BackwardConfig, label: str, mask: str | None, cost: Callable[..., float] | None = None
) -> Variant:
    from cutepy.kernels.attention.exported import ExportedBackward

    arguments: dict[str, object] = {
        each: _rows(config.dtype, each, tokens, count, config.head)
        for each, tokens, count in (
            ("grad_o", "m", "heads"),
            ("q", "m", "heads"),
            ("k", "n", "kv_heads"),
            ("v", "n", "kv_heads"),
            ("o", "m", "heads"),
            ("dq", "m", "heads"),
            ("dk", "n", "kv_heads"),
            ("dv", "n", "kv_heads"),
        )
    }
    padded = {"padded": config.tile_q}
    arguments["lse"] = TensorSpec("float32", ("batch", "heads", "m"))
    arguments["stats"] = TensorSpec("float32", ("batch", "heads", 2, "padded"), divisibility=padded)
    arguments["sums"] = TensorSpec("float32", ("batch", "heads", "padded", config.width), divisibility=padded)
    return Variant(
        ExportedBackward(config),
        arguments | {"scale": 1.0, "sm_count": SM_COUNT_ARGUMENT},
        cost=cost,
        requires=[lambda heads, kv_heads: heads // kv_heads * kv_heads == heads, lambda padded, m: padded >= m],
        choices={} if mask is None else {"mask": mask},
        label=label,
    )


def _variant(config: ForwardConfig, label: str, mask: str | None, cost: Callable[..., float] | None = None) -> Variant:
    from cutepy.kernels.attention.exported import ExportedForward

    arguments: dict[str, object] = {
        each: _rows(config.dtype, each, tokens, count, config.head)
        for each, tokens, count in (
            ("q", "m", "heads"),
            ("k", "n", "kv_heads"),
            ("v", "n", "kv_heads"),
            ("o", "m", "heads"),
        )
    }
    arguments["lse"] = TensorSpec("float32", ("batch", "heads", "m"))
    return Variant(
        ExportedForward(config),
        arguments | {"scale": 1.0, "sm_count": SM_COUNT_ARGUMENT},
        cost=cost,
        requires=[lambda heads, kv_heads: heads // kv_heads * kv_heads == heads],
        choices={} if mask is None else {"mask": mask},
        label=label,
    )


def _rows(dtype: str, name: str, tokens: str, heads: str, head: int) -> TensorSpec:
    """Describe (batch, tokens, heads, head), of any strides that TMA takes."""
    strides = tuple(f"{name}_{mode}" for mode in ("batch", "token", "head"))
    shape = ("batch", tokens, heads)
    divisibility = dict.fromkeys(strides, _UNIT)
    return TensorSpec(dtype, (*shape, head), strides=(*strides, 1), divisibility=divisibility, nonempty=shape)
