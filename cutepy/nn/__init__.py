"""PyTorch modules on cutepy's kernels, and the replacement of a model's own modules by them.

Importing it imports torch, which then knows the operations of `cutepy.ops`.
"""

from cutepy.extras import require

require("cutepy.nn", "numpy", "torch")

# ruff: noqa: E402 - a missing extra is reported before the rest is imported
from cutepy.nn.attention import Attention as Attention, KeyValueCache as KeyValueCache
from cutepy.nn.gated import GatedMLP as GatedMLP
from cutepy.nn.linear import Linear as Linear, replace_linears as replace_linears
from cutepy.nn.losses import CrossEntropyLoss as CrossEntropyLoss
from cutepy.nn.norms import LayerNorm as LayerNorm, RMSNorm as RMSNorm
from cutepy.nn.replaced_attention import MultiheadAttention as MultiheadAttention
from cutepy.nn.replacing import Replacement as Replacement, replace as replace

__all__ = [
    "Attention",
    "CrossEntropyLoss",
    "GatedMLP",
    "KeyValueCache",
    "LayerNorm",
    "Linear",
    "MultiheadAttention",
    "RMSNorm",
    "Replacement",
    "replace",
    "replace_linears",
]
