"""Kernels as operations of PyTorch: products, `attention`, normalisations, and `register` for your own.

The import registers all operations with torch, so that exported programs can be loaded. The DSL is imported only when
a kernel must be compiled.
"""

from cutepy.extras import require

require("cutepy.ops", "numpy", "torch")

# ruff: noqa: E402 - what is missing is told before the rest is imported
from cutepy.ops.block_masks import block_mask as block_mask
from cutepy.ops.cross_entropies import cross_entropy as cross_entropy
from cutepy.ops.decode_attention import (
    attention_decode as attention_decode,
    flash_attn_with_kvcache as flash_attn_with_kvcache,
)
from cutepy.ops.dense_gemm import gemm as gemm
from cutepy.ops.dot_product_attention import (
    attention as attention,
    flash_attn_func as flash_attn_func,
    scaled_dot_product_attention as scaled_dot_product_attention,
)
from cutepy.ops.flex import flex_attention as flex_attention
from cutepy.ops.gated import geglu as geglu, swiglu as swiglu
from cutepy.ops.grouped import grouped_gemm as grouped_gemm
from cutepy.ops.joined_linears import joined_linear as joined_linear
from cutepy.ops.latent_attention import (
    attention_mla as attention_mla,
    flash_mla_with_kvcache as flash_mla_with_kvcache,
)
from cutepy.ops.latent_cache import (
    dequantise_mla_cache as dequantise_mla_cache,
    quantise_mla_cache as quantise_mla_cache,
)
from cutepy.ops.linear_cross_entropies import linear_cross_entropy as linear_cross_entropy
from cutepy.ops.norms import layer_norm as layer_norm, rms_norm as rms_norm
from cutepy.ops.operation import Operation as Operation
from cutepy.ops.quantising import dequantise as dequantise, quantise as quantise
from cutepy.ops.registration import register as register
from cutepy.ops.rotaries import rotary as rotary
from cutepy.ops.rotary_caches import rotary_cached as rotary_cached
from cutepy.ops.samples import sample as sample
from cutepy.ops.scaled import scaled_gemm as scaled_gemm, scaled_grouped_gemm as scaled_grouped_gemm
from cutepy.ops.selections import TopK as TopK, topk as topk
from cutepy.ops.softmaxes import log_softmax as log_softmax, softmax as softmax
from cutepy.ops.varlen_attention import (
    attention_varlen as attention_varlen,
    flash_attn_varlen_func as flash_attn_varlen_func,
)
from cutepy.runtime.invariance import batch_invariant as batch_invariant

__all__ = [
    "Operation",
    "TopK",
    "attention",
    "attention_decode",
    "attention_mla",
    "attention_varlen",
    "batch_invariant",
    "block_mask",
    "cross_entropy",
    "dequantise",
    "dequantise_mla_cache",
    "flash_attn_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "flash_mla_with_kvcache",
    "flex_attention",
    "geglu",
    "gemm",
    "grouped_gemm",
    "joined_linear",
    "layer_norm",
    "linear_cross_entropy",
    "log_softmax",
    "quantise",
    "quantise_mla_cache",
    "register",
    "rms_norm",
    "rotary",
    "rotary_cached",
    "sample",
    "scaled_dot_product_attention",
    "scaled_gemm",
    "scaled_grouped_gemm",
    "softmax",
    "swiglu",
    "topk",
]
