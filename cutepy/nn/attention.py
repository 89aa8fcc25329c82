"""`Attention`: projections, rotary embedding and attention of one sequence of tokens, and `KeyValueCache`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from cutepy.nn.adjoining_weights import AdjoiningLayers, join_weights, products
from cutepy.nn.linear import Linear
from cutepy.ops.attention_arguments import ALL_KEYS, Window
from cutepy.ops.decode_attention import attention_decode
from cutepy.ops.dot_product_attention import attention
from cutepy.ops.rotaries import rotary
from cutepy.ops.rotary_caches import rotary_cached

PROJECTIONS = ("q_proj", "k_proj", "v_proj")
"""Names of the layers that are one product."""


@dataclass
class KeyValueCache:
    """Keys and values of tokens that a layer has seen, and their numbers, all on the device.

    Attributes
    ----------
    keys, values : Tensor (batch, tokens, kv heads, head), or, with `table`, (pages, tokens of a page, kv heads, head)
    lengths : Tensor (batch,), int32
        Tokens of each sequence.
    table : Tensor (batch, pages of a sequence), int32, or None
        The numbers of each sequence's pages.

    Examples
    --------
    >>> import torch
    >>> cache = KeyValueCache.empty(2, 100, 4, 64)
    >>> cache.append(*(torch.ones(2, 3, 4, 64, dtype=torch.bfloat16) for _ in range(2)))
    >>> cache.lengths
    tensor([3, 3], dtype=torch.int32)
    """

    keys: torch.Tensor
    values: torch.Tensor
    lengths: torch.Tensor
    table: torch.Tensor | None = None

    @classmethod
    def empty(
        cls,
        batch: int,
        tokens: int,
        kv_heads: int,
        head: int,
        *,
        dtype: torch.dtype = torch.bfloat16,
        device: torch.device | str | None = None,
    ) -> KeyValueCache:
        """Make the cache of a batch of sequences without tokens, for a given number of tokens of each."""
        keys, values = (torch.zeros(batch, tokens, kv_heads, head, dtype=dtype, device=device) for _ in range(2))
        return cls(keys, values, torch.zeros(batch, dtype=torch.int32, device=device))

    def append(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Write the keys and values of new tokens behind those that there are, and count them; nothing is read back.

        Parameters
        ----------
        keys, values : Tensor (batch, tokens, kv heads, head)
            There must be room for them: as for all indices of torch, the device tells.
        """
        positions = self.positions(keys.shape[1])
        if self.table is None:
            first = torch.arange(len(positions), device=positions.device)[:, None]
        else:
            page = self.keys.shape[1]
            first, positions = self.table.gather(1, positions // page), positions % page
        self.keys[first, positions] = keys
        self.values[first, positions] = values
        self.lengths += keys.shape[1]

    def positions(self, tokens: int) -> torch.Tensor:
        """Return the positions of a given number of new tokens, (batch, tokens), int64."""
        return self.lengths[:, None].long() + torch.arange(tokens, device=self.lengths.device)


class Attention(AdjoiningLayers):
    """Compute attention of tokens with each other, or with those of a cache: (batch, tokens, hidden) -> the same.

    Queries, keys and values are products of the input by `q_proj`, `k_proj` and `v_proj`. Queries and keys are rotated
    by their positions, where tables are given. `o_proj` joins the heads.

    Parameters
    ----------
    hidden : int
        Columns of the input and the output.
    heads : int
        Heads of queries.
    kv_heads : int, optional
        Heads of keys and values, each of which `heads / kv_heads` heads of queries share; `heads` if not given.
    head : int, optional
        Columns of a head, a multiple of 16 up to 256; `hidden / heads` if not given.
    causal : bool
        True if a token sees none after it.
    window : (int or None, int or None)
        Tokens before and after a token that it sees, as of `cutepy.ops.attention`.
    scale, soft_cap : float, optional
        As of `cutepy.ops.attention`.
    bias : bool
        True if queries, keys and values have biases.
    out_bias : bool
        True if the output has.
    interleaved : bool
        As of `cutepy.ops.rotary`.

    Attributes
    ----------
    q_proj, k_proj, v_proj, o_proj : Linear

    Raises
    ------
    ValueError
        If the heads don't divide `hidden`, or are no multiple of `kv_heads`.

    Examples
    --------
    >>> import torch
    >>> layer = Attention(256, 4, kv_heads=2, dtype=torch.bfloat16)
    >>> angles = torch.arange(100)[:, None] / 10_000 ** (torch.arange(32) / 32)
    >>> x, cos, sin = torch.randn(1, 10, 256, dtype=torch.bfloat16), angles.cos(), angles.sin()
    >>> y = layer(x, cos, sin)
    >>> cache = layer.cache(1, 100)
    >>> with torch.no_grad():
    ...     parts = [layer(part, cos, sin, cache=cache) for part in (x[:, :8], x[:, 8:9], x[:, 9:])]
    >>> torch.allclose(torch.cat(parts, 1), y, atol=1e-2)
    True
    """

    def __init__(
        self,
        hidden: int,
        heads: int,
        kv_heads: int | None = None,
        head: int | None = None,
        *,
        causal: bool = True,
        window: Window = ALL_KEYS,
        scale: float | None = None,
        soft_cap: float | None = None,
        bias: bool = False,
        out_bias: bool = False,
        interleaved: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        if head is None:
            if hidden % heads:
                raise ValueError(f"hidden must be a multiple of the {heads} heads, got {hidden}; give head too")
            head = hidden // heads
        if heads % kv_heads:
            raise ValueError(f"heads must be a multiple of the {kv_heads} kv_heads, got {heads}")
        self.head, self.causal, self.window, self.interleaved = head, causal, window, interleaved
        self.scale, self.soft_cap = scale, soft_cap
        self.q_proj = Linear(hidden, heads * head, bias=bias, device=device, dtype=dtype)
        self.k_proj = Linear(hidden, kv_heads * head, bias=bias, device=device, dtype=dtype)
        self.v_proj = Linear(hidden, kv_heads * head, bias=bias, device=device, dtype=dtype)
        self.o_proj = Linear(heads * head, hidden, bias=out_bias, device=device, dtype=dtype)
        self.joined_layers = (PROJECTIONS,)
        join_weights(self, PROJECTIONS)

    def forward(
        self,
        x: torch.Tensor,
        cos: torch.Tensor | None = None,
        sin: torch.Tensor | None = None,
        *,
        positions: torch.Tensor | int | None = None,
        cache: KeyValueCache | None = None,
    ) -> torch.Tensor:
        """Attend to the input's tokens, or, with a cache, to those that it has and the input's, which it then has too.

        Parameters
        ----------
        x : Tensor (batch, tokens, hidden), of the weights' dtype
        cos, sin : Tensor (rows, width), optional
            Tables of `cutepy.ops.rotary`, both or none.
        positions : int or Tensor, optional
            Of the tokens, as of `cutepy.ops.rotary`; those behind the cache's if there is one.
        cache : KeyValueCache, optional
            Is written to. The result has no derivatives by the contents of the cache.

        Returns
        -------
        Tensor (batch, tokens, hidden)

        Raises
        ------
        ValueError
            If there is only one of the tables, or gradients are asked for with a cache.
        """
        layers = self.q_proj, self.k_proj, self.v_proj
        q, k, v = (each.unflatten(-1, (-1, self.head)) for each in products(layers, x))
        if (cos is None) != (sin is None):
            raise ValueError("rotary tables must be both cos and sin, or none, got one of them")
        if cache is not None and any(each.requires_grad for each in (q, k, v)):
            raise ValueError("attention with a cache has no gradients; call it within torch.no_grad()")
        is_written = cache is not None and cos is not None and positions is None and cache.keys.dtype == k.dtype
        if cos is not None and sin is not None:
            if cache is not None and is_written:
                given = cos, sin, cache.keys, cache.values, cache.lengths, cache.table
                q = rotary_cached(q, k, v, *given, self.interleaved)
                cache.lengths += x.shape[1]
            else:
                if positions is None and cache is not None:
                    positions = cache.positions(x.shape[1])
                q, k = (rotary(each, cos, sin, positions, self.interleaved) for each in (q, k))
        how: dict[str, Any] = {
            "causal": self.causal,
            "window": self.window,
            "scale": self.scale,
            "soft_cap": self.soft_cap,
        }
        if cache is None:
            o = attention(q, k, v, **how)
        else:
            if not is_written:
                cache.append(k, v)
            o = attention_decode(
                q, cache.keys, cache.values, cache_seqlens=cache.lengths, block_table=cache.table, **how
            )
        assert isinstance(o, torch.Tensor)  # no logarithms are asked for
        found: torch.Tensor = self.o_proj(o.flatten(2))
        return found

    def cache(self, batch: int, tokens: int) -> KeyValueCache:
        """Make an empty cache for a batch of sequences of up to so many tokens, of the weights' dtype and device."""
        weight = self.k_proj.weight
        kv_heads = self.k_proj.out_features // self.head
        return KeyValueCache.empty(batch, tokens, kv_heads, self.head, dtype=weight.dtype, device=weight.device)
