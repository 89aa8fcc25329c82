"""A language model in the style of Hugging Face's Llama: names, functions, modules that `cutepy.nn.replace` meets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes of a model.

    Attributes
    ----------
    classes, hidden, intermediate, layers : int
    heads, key_heads, head : int
        Of queries, of keys and values, and columns of each.
    """

    classes: int = 256
    hidden: int = 2048
    intermediate: int = 5632
    layers: int = 4
    heads: int = 16
    key_heads: int = 4
    head: int = 128


class LlamaRMSNorm(torch.nn.Module):
    """RMS normalisation, whose result is rounded before the weight too."""

    def __init__(self, hidden: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden))
        self.variance_epsilon = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise rows."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * wide.to(x.dtype)


class LlamaRotaryEmbedding(torch.nn.Module):
    """Cosines and sines of positions, each twice."""

    inv_freq: torch.Tensor

    def __init__(self, head: int, theta: float = 10_000.0) -> None:
        super().__init__()
        self.register_buffer("inv_freq", theta ** (-torch.arange(0, head, 2).float() / head), persistent=False)

    @torch.no_grad()
    def forward(self, x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute tables (batch, tokens, head) of the dtype of x."""
        angles = position_ids[..., None].float() * self.inv_freq.float()
        angles = torch.cat((angles, angles), -1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    """Turn pairs of columns by a right angle."""
    low, high = x.chunk(2, -1)
    return torch.cat((-high, low), -1)


def apply_rotary_pos_emb(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate queries and keys."""
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


class LlamaMLP(torch.nn.Module):
    """Gated feed-forward layer."""

    def __init__(self, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (torch.nn.Linear(hidden, intermediate, bias=False) for _ in range(2))
        self.down_proj = torch.nn.Linear(intermediate, hidden, bias=False)
        self.act_fn = torch.nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the layer."""
        result: torch.Tensor = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        return result


class LlamaAttention(torch.nn.Module):
    """Causal attention of rotated queries and keys."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.head = config.head
        self.q_proj = torch.nn.Linear(config.hidden, config.heads * config.head, bias=False)
        self.k_proj, self.v_proj = (
            torch.nn.Linear(config.hidden, config.key_heads * config.head, bias=False) for _ in range(2)
        )
        self.o_proj = torch.nn.Linear(config.heads * config.head, config.hidden, bias=False)

    def forward(self, x: torch.Tensor, position_embeddings: Sequence[torch.Tensor]) -> torch.Tensor:
        """Compute the layer."""
        shape = *x.shape[:-1], -1, self.head
        q, k, v = (project(x).view(shape).transpose(1, 2) for project in (self.q_proj, self.k_proj, self.v_proj))
        cos, sin = position_embeddings
        q, k = apply_rotary_pos_emb(q, k, cos, sin)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        result: torch.Tensor = self.o_proj(mixed.transpose(1, 2).reshape(*x.shape[:-1], -1))
        return result


class LlamaDecoderLayer(torch.nn.Module):
    """Attention and a feed-forward layer, each with its norm and residual."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.self_attn = LlamaAttention(config)
        self.mlp = LlamaMLP(config.hidden, config.intermediate)
        self.input_layernorm, self.post_attention_layernorm = (LlamaRMSNorm(config.hidden) for _ in range(2))

    def forward(self, x: torch.Tensor, position_embeddings: Sequence[torch.Tensor]) -> torch.Tensor:
        """Compute the layer."""
        x = x + self.self_attn(self.input_layernorm(x), position_embeddings)
        result: torch.Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return result


class LlamaForCausalLM(torch.nn.Module):
    """Loss of the next class of each token."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(config.classes, config.hidden)
        self.layers = torch.nn.ModuleList(LlamaDecoderLayer(config) for _ in range(config.layers))
        self.norm = LlamaRMSNorm(config.hidden)
        self.rotary_emb = LlamaRotaryEmbedding(config.head)
        self.lm_head = torch.nn.Linear(config.hidden, config.classes, bias=False)
        self.loss = torch.nn.CrossEntropyLoss()
        for parameter in self.parameters():
            if parameter.dim() == 2:
                torch.nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Compute the loss of tokens (batch, tokens), whose next ones are the labels."""
        x = self.embed_tokens(tokens)
        tables = self.rotary_emb(x, torch.arange(tokens.shape[1], device=tokens.device)[None])
        for layer in self.layers:
            x = layer(x, tables)
        logits = self.lm_head(self.norm(x))
        result: torch.Tensor = self.loss(logits.flatten(0, 1).float(), labels.flatten())
        return result
