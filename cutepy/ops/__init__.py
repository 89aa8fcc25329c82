"""Kernels as operations of PyTorch: `gemm`, grouped and scaled ones, `attention`, and `register` for your own.

Importing it imports torch, which then knows all operations, as exported programs need that are loaded; the DSL only
once something must be compiled.
"""

from cutepy.extras import require

require("cutepy.ops", "numpy", "torch")

# ruff: noqa: E402 - what is missing is told before the rest is imported
from cutepy.ops.block_masks import block_mask as block_mask
from cutepy.ops.decode_attention import (
    attention_decode as attention_decode,
    flash_attn_with_kvcache as flash_attn_with_kvcache,
)
from cutepy.ops.dot_product_attention import (
    attention as attention,
    flash_attn_func as flash_attn_func,
    scaled_dot_product_attention as scaled_dot_product_attention,
)
from cutepy.ops.flex import flex_attention as flex_attention
from cutepy.ops.grouped import grouped_gemm as grouped_gemm
from cutepy.ops.latent_attention import (
    attention_mla as attention_mla,
    flash_mla_with_kvcache as flash_mla_with_kvcache,
)
from cutepy.ops.operation import Operation as Operation
from cutepy.ops.products import gemm as gemm
from cutepy.ops.quantising import dequantise as dequantise, quantise as quantise
from cutepy.ops.registration import register as register
from cutepy.ops.scaled import scaled_gemm as scaled_gemm, scaled_grouped_gemm as scaled_grouped_gemm
from cutepy.ops.varlen_attention import (
    attention_varlen as attention_varlen,
    flash_attn_varlen_func as flash_attn_varlen_func,
)
from cutepy.runtime.invariance import batch_invariant as batch_invariant

__all__ = [
    "Operation",
    "attention",
    "attention_decode",
    "attention_mla",
    "attention_varlen",
    "batch_invariant",
    "block_mask",
    "dequantise",
    "flash_attn_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "flash_mla_with_kvcache",
    "flex_attention",
    "gemm",
    "grouped_gemm",
    "quantise",
    "register",
    "scaled_dot_product_attention",
    "scaled_gemm",
    "scaled_grouped_gemm",
]
