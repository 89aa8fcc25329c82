"""Attention in modules of other classes: calls of torch's `scaled_dot_product_attention` become cutepy's.

The module keeps its own code for projections, positions, masks and caches; only the attention itself is replaced. Three
kinds of modules are replaced so: `torch.nn.MultiheadAttention`, modules that call
`torch.nn.functional.scaled_dot_product_attention`, and modules of Hugging Face's models, which look up a function.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from cutepy.kernels.attention.choice import LARGEST_HEAD
from cutepy.nn.code_names import code_of, names_of
from cutepy.nn.derived_classes import derives
from cutepy.ops.attention_arguments import DTYPES
from cutepy.ops.decode_attention import attention_decode
from cutepy.ops.dense_gemm import gemm
from cutepy.ops.dot_product_attention import scaled_dot_product_attention
from cutepy.ops.operation import PassesOperations

_TORCHS: Any = torch.nn.functional.scaled_dot_product_attention
_FUNCTIONS, _NAME = "ALL_ATTENTION_FUNCTIONS", "cutepy"
"""The table of functions that Hugging Face's modules look theirs up in, and the name of cutepy's there."""


class AttentionMode(PassesOperations, TorchFunctionMode):
    """Context in which `torch.nn.functional.scaled_dot_product_attention` is cutepy's, where cutepy computes it.

    Other calls, such as those of float32 outside of autocast or of heads beyond 256 columns, stay torch's. Under
    `torch.compile(fullgraph=True)` no code within may call `Tensor.unflatten`, of which torch's compiler (2.13) makes
    no graph in a mode; `Tensor.view` does the same.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:  # noqa: ANN401
        """Call cutepy's function in place of torch's."""
        if func is _TORCHS:
            given = {**dict(zip(_PARAMETERS, args, strict=False)), **(kwargs or {})}
            if _takes(given):
                return _attend(**given)
        return func(*args, **kwargs) if kwargs else func(*args)


_PARAMETERS = tuple(inspect.signature(scaled_dot_product_attention).parameters)


def _takes(given: dict[str, Any]) -> bool:
    """Return whether cutepy computes a call with these arguments."""
    tensors = given["query"], given["key"], given["value"]
    return _are_taken(*tensors) and all([each.dim() >= 3 and each.shape[-1] <= LARGEST_HEAD for each in tensors])


def _are_taken(*tensors: torch.Tensor) -> bool:
    """Return whether tensors have a dtype of cutepy's attention, or get one from autocast."""
    device = tensors[0].device.type
    cast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    dtype = cast or tensors[0].dtype
    if dtype not in DTYPES:
        return False
    return not any([each.is_nested or (cast or each.dtype) != dtype for each in tensors])


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Compute a call; of one new query by the kernels that share its keys among CTAs."""
    tensors = query, key, value
    is_new = attn_mask is None and not (is_causal or dropout_p) and query.dim() == 4 and query.shape[2] == 1
    if is_new and _decodes(query, key, value, enable_gqa=enable_gqa):
        if not (torch.is_grad_enabled() and any(each.requires_grad for each in tensors)):
            q, k, v = (each.transpose(1, 2) for each in tensors)
            o = attention_decode(q, k, v, scale=scale)
            assert isinstance(o, torch.Tensor)  # no logarithms are asked for
            return o.transpose(1, 2)
    return scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def _decodes(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, enable_gqa: bool) -> bool:
    """Return whether the shapes of one new query, keys and values are those of `attention_decode`."""
    has_shape = key.shape[:-1] == value.shape[:-1] and query.shape[0] == key.shape[0]
    has_heads = query.shape[-3] % key.shape[-3] == 0 if enable_gqa else query.shape[-3] == key.shape[-3]
    return has_shape and has_heads and all(each.shape[-1] % 16 == 0 for each in (query, key, value))


class MultiheadAttention(torch.nn.MultiheadAttention):
    """Compute `torch.nn.MultiheadAttention`, by cutepy's kernels where no weights are returned.

    It is made with the same arguments, initialised alike, with the same parameters and state dict. Weights are returned
    unless `need_weights=False` is passed: then torch computes all, and so it does for added keys (`add_bias_kv`,
    `add_zero_attn`), one sequence without a batch, nested tensors, and dtypes that `AttentionMode` leaves to it.

    Examples
    --------
    >>> import torch
    >>> layer = MultiheadAttention(64, 4, batch_first=True, dtype=torch.bfloat16)
    >>> x = torch.randn(2, 10, 64, dtype=torch.bfloat16)
    >>> layer(x, x, x, need_weights=False)[0].shape
    torch.Size([2, 10, 64])
    """

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        key_padding_mask: torch.Tensor | None = None,
        need_weights: bool = True,
        attn_mask: torch.Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend: arguments and results are those of torch's layer."""
        has_all = self.bias_k is None and not self.add_zero_attn and query.dim() == 3
        has_mask = attn_mask is not None or not is_causal  # else torch refuses
        takes = self.head_dim <= LARGEST_HEAD and _are_taken(query, key, value)
        if need_weights or not (has_all and has_mask and takes):
            return super().forward(
                query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal
            )
        q, k, v = self._projected(query, key, value)
        if not self.batch_first:
            q, k, v = (each.transpose(0, 1) for each in (q, k, v))
        q, k, v = (each.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2) for each in (q, k, v))
        is_causal = is_causal and key_padding_mask is None  # then the mask is known to be a causal one
        mask = None if is_causal else self._mask(q, attn_mask, key_padding_mask)
        o = scaled_dot_product_attention(q, k, v, mask, self.dropout if self.training else 0.0, is_causal)
        o = o.transpose(1, 2).flatten(2)
        found: torch.Tensor = gemm(o, self.out_proj.weight, bias=self.out_proj.bias)
        return (found if self.batch_first else found.transpose(0, 1)), None

    def _projected(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> Sequence[torch.Tensor]:
        """Multiply by the weights of queries, keys and values: once, if all three are of one tensor."""
        bias = self.in_proj_bias
        if self._qkv_same_embed_dim and query is key is value:
            return gemm(query, self.in_proj_weight, bias=bias).chunk(3, -1)
        if self._qkv_same_embed_dim:
            weights: Sequence[torch.Tensor] = self.in_proj_weight.chunk(3)
        else:
            weights = [getattr(self, f"{name}_proj_weight") for name in "qkv"]
        biases = (None, None, None) if bias is None else bias.chunk(3)
        given = zip((query, key, value), weights, biases, strict=True)
        return [gemm(each, weight, bias=own) for each, weight, own in given]

    def _mask(
        self, q: torch.Tensor, attn_mask: torch.Tensor | None, key_padding_mask: torch.Tensor | None
    ) -> torch.Tensor | None:
        """Join the masks, true or minus infinity where a key is hidden, to one mask of seen keys, or to an addend."""
        masks = []
        if attn_mask is not None:
            masks.append(attn_mask if attn_mask.dim() == 2 else attn_mask.unflatten(0, (-1, self.num_heads)))
        if key_padding_mask is not None:
            masks.append(key_padding_mask[:, None, None])
        if not masks:
            return None
        if all(each.dtype == torch.bool for each in masks):
            return ~(masks[0] | masks[-1])
        added = [q.new_zeros(()).masked_fill(each, -torch.inf) if each.dtype == torch.bool else each for each in masks]
        return added[0] if len(added) == 1 else added[0] + added[1]


class ReplacedAttention(torch.nn.Module):
    """Base of classes whose `forward` calls torch's attention, and gets cutepy's."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Call the class's own code."""
        with AttentionMode():
            return super().forward(*args, **kwargs)


@derives
def _replaced_class(kind: type[torch.nn.Module]) -> type[torch.nn.Module]:
    """Derive from `kind` the class whose attention is cutepy's."""
    return type(kind.__name__, (ReplacedAttention, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__})


def calls_attention(module: torch.nn.Module) -> bool:
    """Return whether a module's own code calls torch's attention in a way that cutepy can replace."""
    is_torchs = isinstance(module, torch.nn.MultiheadAttention | ReplacedAttention)
    return is_torchs or bool({_TORCHS.__name__, _FUNCTIONS} & {*names_of(type(module))})


def adopt_attention(module: torch.nn.Module) -> str | None:
    """Swap the attention of a module that `calls_attention`, in place, or return the reason against it."""
    kind = type(module)
    if isinstance(module, MultiheadAttention | ReplacedAttention):
        return "it is cutepy's"
    if kind is torch.nn.MultiheadAttention:
        module.__class__ = MultiheadAttention
        return None
    if isinstance(module, torch.nn.MultiheadAttention):
        return f"cutepy.nn has no {kind.__name__}, a class of its own made of MultiheadAttention"
    if _FUNCTIONS in names_of(kind):
        return _adopt_function(module)
    module.__class__ = _replaced_class(kind)
    return None


def _adopt_function(module: torch.nn.Module) -> str | None:
    """Name cutepy's function in a module's own configuration, or say why not.

    The model's configuration stays as it is: masks are made for torch's function.
    """
    config, functions = getattr(module, "config", None), code_of(type(module)).__globals__.get(_FUNCTIONS)
    if config is None or not isinstance(functions, MutableMapping):
        return "it has no configuration that names its attention"
    named = getattr(config, "_attn_implementation", None)
    if named == _NAME:
        return "it is cutepy's"
    if named != "sdpa" or "sdpa" not in functions:
        return f"its attention is {named}; make the model with attn_implementation='sdpa'"
    functions[_NAME] = _ReplacedFunction(functions["sdpa"])
    own = copy.copy(config)
    own._attn_implementation = _NAME
    module.config = own
    return None


class _ReplacedFunction:
    """Function of a model, run so that torch's attention is cutepy's."""

    def __init__(self, theirs: Callable[..., Any]) -> None:
        self.theirs = theirs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        with AttentionMode():
            return self.theirs(*args, **kwargs)
