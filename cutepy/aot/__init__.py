"""Ahead-of-time export of kernels: a PyTorch extension, or a C library, without the DSL."""

from typing import TYPE_CHECKING

from cutepy.extras import loaded_on_use

if TYPE_CHECKING:
    from cutepy.aot.attention import attention_extension as attention_extension
    from cutepy.aot.c_library import c as c
    from cutepy.aot.gemm import gemm_extension as gemm_extension
    from cutepy.aot.loading import load as load
    from cutepy.aot.names import SpecError as SpecError
    from cutepy.aot.spec import Extension as Extension, Op as Op
    from cutepy.aot.torch_extension import extension as extension
    from cutepy.aot.variant import SM_COUNT_ARGUMENT as SM_COUNT_ARGUMENT, Variant as Variant

__all__ = [
    "SM_COUNT_ARGUMENT",
    "Extension",
    "Op",
    "SpecError",
    "Variant",
    "attention_extension",
    "c",
    "extension",
    "gemm_extension",
    "load",
]

__getattr__, __dir__ = loaded_on_use(
    __name__,
    {
        "SM_COUNT_ARGUMENT": "variant",
        "Extension": "spec",
        "Op": "spec",
        "SpecError": "names",
        "Variant": "variant",
        "c": "c_library",
        "extension": "torch_extension",
        "attention_extension": "attention",
        "gemm_extension": "gemm",
        "load": "loading",
    },
)
