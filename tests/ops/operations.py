"""The operations of products as torch knows them, called with what `gemm` has names for."""

import torch

import cutepy.ops  # noqa: F401 - torch knows them once it is imported
from cutepy.epilogues.standard import standard


def arguments(a, b, bias=None, activation=None, c=None):
    """Give the first arguments of `cutepy::gemm` and `cutepy::gemm_out`."""
    tensors = [tensor for tensor in (c, bias) if tensor is not None]
    epilogue = standard(c is not None, bias is not None, activation)
    return a, b, tensors, [], "t" * len(tensors), epilogue.text


def gemm(a, b, bias=None, activation=None, out_dtype=None, c=None, out_major="row"):
    """Call `cutepy::gemm`."""
    return torch.ops.cutepy.gemm(*arguments(a, b, bias, activation, c), out_dtype, out_major)[0]


def gemm_out(a, b, bias, activation, out, c=None):
    """Call `cutepy::gemm_out`."""
    torch.ops.cutepy.gemm_out(*arguments(a, b, bias, activation, c), [out])
