"""Modules of PyTorch on cutepy's kernels, and the swap of a model's own for them.

Importing it imports torch, which then knows the operations of `cutepy.ops`.
"""

from cutepy.nn.linear import Linear as Linear, replace_linears as replace_linears

__all__ = ["Linear", "replace_linears"]
