"""A Llama-style decoder layer in plain torch: the model in which linear layers are compared."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional


@dataclass(frozen=True)
class LlamaSizes:
    """Sizes of a decoder layer; Llama 3 8B's by default.

    Attributes
    ----------
    hidden : int
        Features of the residual stream.
    intermediate : int
        Features within the MLP.
    heads, key_heads : int
        Of queries, and of keys and values; the former a multiple of the latter.
    theta : float
        Base of the rotary embedding.
    """

    hidden: int = 4096
    intermediate: int = 14336
    heads: int = 32
    key_heads: int = 8
    theta: float = 500_000.0


class LlamaLayer(torch.nn.Module):
    """A decoder layer: RMS norm, rotary attention with grouped queries, and a SwiGLU MLP, each with its residual.

    A function (batch, tokens, hidden) -> (batch, tokens, hidden); all seven linear layers are `torch.nn.Linear`s
    without bias.

    Parameters
    ----------
    sizes : LlamaSizes
    device, dtype
        Of the parameters.
    """

    def __init__(
        self,
        sizes: LlamaSizes | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.sizes = sizes = sizes or LlamaSizes()
        head = sizes.hidden // sizes.heads

        def linear(inputs: int, outputs: int) -> torch.nn.Linear:
            return torch.nn.Linear(inputs, outputs, bias=False, device=device, dtype=dtype)

        self.attention_norm = torch.nn.RMSNorm(sizes.hidden, device=device, dtype=dtype)
        self.q_proj = linear(sizes.hidden, sizes.hidden)
        self.k_proj = linear(sizes.hidden, head * sizes.key_heads)
        self.v_proj = linear(sizes.hidden, head * sizes.key_heads)
        self.o_proj = linear(sizes.hidden, sizes.hidden)
        self.mlp_norm = torch.nn.RMSNorm(sizes.hidden, device=device, dtype=dtype)
        self.gate_proj = linear(sizes.hidden, sizes.intermediate)
        self.up_proj = linear(sizes.hidden, sizes.intermediate)
        self.down_proj = linear(sizes.intermediate, sizes.hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the layer."""
        x = x + self.attend(self.attention_norm(x))
        hidden = self.mlp_norm(x)
        update: torch.Tensor = self.down_proj(functional.silu(self.gate_proj(hidden)) * self.up_proj(hidden))
        return x + update

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        """Compute causal self-attention."""

        def split(y: torch.Tensor, heads: int) -> torch.Tensor:
            apart: torch.Tensor = y.unflatten(-1, (heads, -1))
            return apart.transpose(1, 2)

        q = self.rotate(split(self.q_proj(x), self.sizes.heads))
        k = self.rotate(split(self.k_proj(x), self.sizes.key_heads))
        v = split(self.v_proj(x), self.sizes.key_heads)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        result: torch.Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return result

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        """Turn each pair of features (i, i + half) by an angle that grows with the position."""
        tokens, features = x.shape[-2:]
        positions = torch.arange(tokens, device=x.device, dtype=torch.float32)
        steps = torch.arange(0, features, 2, device=x.device, dtype=torch.float32)
        angles = torch.outer(positions, self.sizes.theta ** (-steps / features))
        cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        low, high = x.chunk(2, dim=-1)
        return torch.cat((low * cosine - high * sine, high * cosine + low * sine), dim=-1)
