"""Compile the kernel of a configuration, unless a cache in memory or on disk has it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from cutepy.device import rules
from cutepy.host.compilation import compile
from cutepy.host.declared import Deferred
from cutepy.host.function import Function
from cutepy.host.parallel_compilation import Variant
from cutepy.host.specs import TensorSpec
from cutepy.kernels.gemm.families import ProductConfig
from cutepy.kernels.gemm.gpu import HOPPER
from cutepy.kernels.gemm.operands import UNIT_BYTES
from cutepy.kernels.gemm.output_signature import OutputSignature
from cutepy.kernels.gemm.signature import GemmSignature

SOURCES = ("cutepy.epilogues", "cutepy.layouts", "cutepy.device", "cutepy.kernels.gemm")
"""Packages whose source, with a configuration, is the key of a compiled kernel; each family of kernels adds its own."""

INSTEAD = "use cutepy.ops.gemm, which takes empty tensors"
"""Operation to name in errors about matrices without elements."""


def examples(signature: GemmSignature) -> Mapping[str, TensorSpec | int | None]:
    """Describe the arguments of a signature's standard kernels: A, B, C, D, the number of SMs to fill, and the bias.

    Raises
    ------
    ValueError
        If the signature has scales along K, which these kernels don't take, or operands of other names.
    """
    others = [str(operand) for operand in signature.graph.operands if operand.name not in ("c", "bias")]
    if any(signature.scale_rows or ()) or others:
        raise ValueError(
            f"compile_gemm's kernels take C and a bias, and no scales along K, got scale_rows {signature.scale_rows} "
            f"and {', '.join(others) or 'no other operands'}; use cutepy.ops.gemm or scaled_gemm with an epilogue, or "
            "compile_fused"
        )
    types = dict(zip((operand.name for operand in signature.graph.operands), signature.operand_types, strict=True))
    modes, bias = signature.batch_modes, types.get("bias")
    return {
        "a": operand_spec("a", signature.a_dtype, signature.a_major, modes, signature.a_align),
        "b": operand_spec("b", signature.b_dtype, signature.b_major, modes, signature.b_align),
        "c": tile_spec("c", *types["c"], modes) if "c" in types else None,
        "d": tile_spec("d", signature.out_dtype, signature.out_major, modes),
        "sm_count": 1,
        "bias": TensorSpec(bias[0], ("n",), align=getattr(torch, bias[0]).itemsize) if bias else None,
    }


def workspace_examples(config: ProductConfig) -> Mapping[str, Any]:
    """Describe the workspace of a configuration's kernels: flags and sums (`rules.workspace_shapes`), or nothing.

    With a dynamic tile counter only, the workspace is one flag and no sums.
    """
    if config.workspace is None:
        return {}
    flags = TensorSpec("int32", ("slots", rules.FLAGS), align=4)
    sums = TensorSpec("float32", ("sums",), align=UNIT_BYTES) if config.workspace == "sums" else None
    return {"workspace": (flags, sums)}


def operand_spec(
    name: str, dtype: str, major: str, batch_modes: int, align: int, free_mode: int | None = None
) -> TensorSpec:
    """Describe A or B with at least one element: with K = 0 no stage would ever become full.

    Only the extent of `free_mode` may be 0: the mode along which ragged groups follow one another.
    """
    spec = tile_spec(name, dtype, major, batch_modes, align)
    free = None if free_mode is None else spec.shape[batch_modes + free_mode]
    return replace(spec, nonempty=tuple(extent for extent in spec.names if extent != free))


def tile_spec(name: str, dtype: str, major: str, batch_modes: int, align: int = UNIT_BYTES) -> TensorSpec:
    """Describe matrices, or batches of them, whose address and row pitch are multiples of so many bytes; 16 for TMA."""
    pitch, batch = f"{name}_pitch", [f"{name}_batch{mode}" for mode in range(batch_modes)]
    steps = [f"{extent}_stride" for extent in batch]
    return TensorSpec(
        dtype,
        (*batch, f"{name}_rows", f"{name}_columns"),
        strides=(*steps, pitch, 1) if major in ("k", "row") else (*steps, 1, pitch),
        divisibility=dict.fromkeys((*steps, pitch), align // getattr(torch, dtype).itemsize),
        align=align,
    )


def sources_of(config: ProductConfig) -> tuple[str, ...]:
    """Return the packages whose sources are the key of a configuration's compiled kernel.

    Examples
    --------
    >>> from cutepy.kernels.gemv import GemvConfig
    >>> half = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    >>> sources_of(GemvConfig(signature=half))[-2:]
    ('cutepy.kernels.gemm', 'cutepy.kernels.gemv')
    """
    families = (kernel.partition(":")[0].rpartition(".")[0] for kernel in config.kernels)
    return tuple(dict.fromkeys((*SOURCES, *families)))


def variant(config: ProductConfig) -> Variant:
    """Return the `Variant` that `cutepy.compile_many` compiles for a configuration."""
    kernel = Deferred(config.kernels[0], config)
    named: dict[str, Any] = {**examples(config.signature), **workspace_examples(config)}
    return Variant(kernel, named=named, name=config.name, sources=sources_of(config), arch=HOPPER)


def check_flags(*arguments: Any) -> None:  # noqa: ANN401
    """Check that the flags of a workspace, the last argument, are 0, if they are in the host's memory.

    Raises
    ------
    ValueError
        If not: tiles would be left out, or summed before all of their sums are there.
    """
    flags = arguments[-1][0] if isinstance(arguments[-1], tuple) else None
    if isinstance(flags, torch.Tensor) and flags.device.type == "cpu" and flags.any():
        place = flags.nonzero()[0].tolist()
        raise ValueError(
            f"the workspace's flags must be 0 before the first launch, as each launch leaves them, got "
            f"{flags[tuple(place)]} at {tuple(place)}: the kernel would skip tiles or add sums too early; allocate "
            "the workspace with torch.zeros, and again after a failed launch"
        )


def _finished(function: Function, config: ProductConfig) -> Function:
    """Return a kernel with its callers' guarantees and its shared-memory plan."""
    if config.workspace is not None:
        function = function.with_check(check_flags)
    return function.without_lazy_check().with_smem_plan(config.smem).with_empty_hint(INSTEAD)


@cache
def compile_gemm(config: ProductConfig) -> Function:
    """Compile the kernel of a configuration with a standard epilogue, unless memory or disk has it; needs no GPU.

    The result is called with tensors A, B, C (or None) and D, the number of SMs to fill, and the bias (or None), which
    with `stream_k` or `dynamic` a workspace follows: flags, 0 at first, and sums, or None. That flags are 0 is checked
    in the simulator; on a GPU results are wrong, without a word, if they aren't. It tells its `ptx`, `sass` and
    `resources`. Callers see to it that no tensor is one that torch negates when it reads it: that is not checked. A
    and B without elements are refused: `cutepy.ops.gemm` takes them, and needs no kernel.

    Raises
    ------
    ValueError
        If the signature has scales along K, or an epilogue whose operands have other names (`compile_fused`).
    """
    asked = variant(config)
    return _finished(compile(asked.function, **asked.named, arch=asked.arch, sources=asked.sources), config)


def fused_examples(
    signature: GemmSignature,
    modes: Callable[[str], int] | None = None,
    free_mode: Callable[[str], int | None] = lambda _: None,
) -> Mapping[str, Any]:
    """Describe the arguments of the kernels of a signature with an epilogue.

    `modes` tells the modes of a batch, by default the signature's, of "sA", "sB", "sC" (operands that are tiles), "sD"
    (results), "row" and "column" (other operands); `free_mode` the mode of "sA" and "sB" whose extent may be 0, if any.
    """
    modes = modes or (lambda _: signature.batch_modes)
    return {
        "a": operand_spec("a", signature.a_dtype, signature.a_major, modes("sA"), signature.a_align, free_mode("sA")),
        "b": operand_spec("b", signature.b_dtype, signature.b_major, modes("sB"), signature.b_align, free_mode("sB")),
        **output_examples(signature, modes),
        "sm_count": 1,
        "scale_a": _scales_spec("scale_a", signature, 0, modes("sA")),
        "scale_b": _scales_spec("scale_b", signature, 1, modes("sB")),
    }


def output_examples(signature: OutputSignature, modes: Callable[[str], int]) -> Mapping[str, Any]:
    """Describe an epilogue's operands and results, as `fused_examples` does."""
    graph = signature.graph
    operands: list[Any] = []
    for operand, (dtype, major) in zip(graph.operands, signature.operand_types, strict=True):
        if not dtype:
            operands.append(1 if operand.type == "i32" else 1.0)
        elif major:
            operands.append(tile_spec(operand.name, dtype, major, modes("sC")))
        elif operand.shape == "scalar":
            operands.append(TensorSpec(dtype, (1,), align=getattr(torch, dtype).itemsize))
        else:
            operands.append(_vector_spec(operand.name, dtype, modes(operand.shape)))
    dtypes = {kind.place: kind.dtype for kind in signature.stored}
    results: list[Any] = []
    for place in range(len(graph.results)):
        name = f"result{place}"
        if place in dtypes:
            results.append(tile_spec(name, dtypes[place], signature.out_major, modes("sD")))
        else:
            batch = [f"{name}_batch{mode}" for mode in range(modes("sD"))]
            results.append(TensorSpec("float32", (*batch, f"{name}_rows", f"{name}_columns"), align=4))
    return {"operands": tuple(operands) or None, "results": tuple(results)}


def _scales_spec(name: str, signature: GemmSignature, place: int, batch_modes: int) -> TensorSpec | None:
    """Describe the scales of A or B that differ along K: of any strides that TMA can have; None if there are none."""
    rows = signature.scale_rows
    if not rows or not rows[place]:
        return None
    extents = (*(f"{name}_batch{mode}" for mode in range(batch_modes)), f"{name}_places", f"{name}_blocks")
    strides = tuple(f"{extent}_step" for extent in extents)
    if not signature.tma_scales[place]:
        return TensorSpec("float32", extents, strides=strides, align=4)
    *batch, _, k = strides
    units = dict.fromkeys((*batch, k), rules.TMA_BYTES // 4)
    return TensorSpec("float32", extents, strides=(*batch, 1, k), divisibility=units, align=rules.TMA_BYTES)


def _vector_spec(name: str, dtype: str, batch_modes: int) -> TensorSpec:
    """Describe rows or columns: one for each product of a batch, any stride apart."""
    batch = [f"{name}_batch{mode}" for mode in range(batch_modes)]
    steps = [f"{extent}_stride" for extent in batch]
    return TensorSpec(dtype, (*batch, name), strides=(*steps, 1), align=getattr(torch, dtype).itemsize)


@cache
def compile_fused(config: ProductConfig) -> Function:
    """Compile the kernel of a configuration with any epilogue, unless memory or disk has it; needs no GPU.

    The result is called with A, B, a tuple of the operands (None if there is none), a tuple of the results, partial
    reductions among them (`cutepy.device.rules.partial_shape`), the number of SMs to fill, and the scales of A and B
    for every 128 of K, or None. A and B have elements.
    """
    kernel = Deferred(config.kernels[1], config)
    arguments: dict[str, Any] = {**fused_examples(config.signature), **workspace_examples(config)}
    return _finished(compile(kernel, **arguments, arch=HOPPER, sources=sources_of(config)), config)
