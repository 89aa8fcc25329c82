"""Blackwell's GEMM on torch tensors: checks, results, one launch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from cutepy.device.sm100.rules import BLOCK_FACTORS, BLOCK_ROWS, BLOCK_WORDS, LANES
from cutepy.epilogues import Epilogue
from cutepy.epilogues.functions import identity
from cutepy.epilogues.graph import Graph
from cutepy.epilogues.reference import broadcasts, check_operand
from cutepy.host.architecture import chosen_arch
from cutepy.host.compilation import compile
from cutepy.host.declared import Deferred
from cutepy.host.function import Function
from cutepy.host.specs import TensorSpec
from cutepy.kernels.gemm.compilation import SOURCES, operand_spec, output_examples
from cutepy.kernels.gemm.operands import (
    OPERAND_MAJORS,
    OUTPUT_MAJORS,
    UNIT_BYTES,
    Description,
    dtype_name,
    whole_units,
)
from cutepy.kernels.gemm.output_signature import MAX_BATCH_MODES, OutputMajor
from cutepy.kernels.gemm.results import finished, partial_description, result_descriptions
from cutepy.kernels.sm100.config import UmmaGemmConfig
from cutepy.kernels.sm100.signature import FLOAT4, UmmaGemmSignature
from cutepy.runtime.devices import DEVICES
from cutepy.runtime.execution import EXECUTION

ARCHES = ("sm_100a", "sm_103a")
"""Architectures that the kernel is compiled for."""


def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
    epilogue: Epilogue = identity,
    out_dtype: torch.dtype | None = None,
    out_major: OutputMajor = "row",
    config: UmmaGemmConfig | None = None,
    **operands: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Compute an epilogue of a @ b.mT, summed in fp32, on a B200 or B300, or as `cutepy.simulate` models one.

    Tensors stay where they are: what TMA can't reach is refused. Nothing here was run on hardware, so the default
    configuration is not tuned.

    Parameters
    ----------
    a : Tensor, (M, K) or (batch..., M, K), float16, bfloat16, float8_e4m3fn, float8_e5m2 or float4_e2m1fn_x2
        Contiguous along M or K, float4_e2m1fn_x2 along K, which has two elements a byte: (M, K / 2).
    b : Tensor, (N, K) or (batch..., N, K), of a's dtype, or the other 8-bit float
        The batch is a's, of three dimensions at most.
    scale_a, scale_b : Tensor, optional
        Scale factors of blocks along K, as `block_scales` arranges them, and cuBLAS and `torch._scaled_mm` take them:
        float8_e4m3fn for each 16 elements of float4_e2m1fn_x2, float8_e8m0fnu for each 32 of these, or of 8-bit
        floats.
    epilogue : Epilogue
        Function of the fp32 sums, made by `cutepy.epilogue`.
    out_dtype : float16, bfloat16 or float32, optional
        Of the results that the epilogue doesn't round; a's if not given, bfloat16 of narrower operands.
    out_major : "row" or "col"
        Contiguous extent of the results' matrices: N, or M.
    config : UmmaGemmConfig, optional
        Tiles, stages and CTAs. Default: 256 x 256 by two CTAs, and smaller where the product is.
    **operands
        The epilogue's operands by name, as of `cutepy.ops.gemm`.

    Returns
    -------
    Tensor, tuple or dict
        As the epilogue returns its results.

    Raises
    ------
    TypeError
        If an argument is no tensor, or of another dtype.
    ValueError
        If shapes, strides, devices or the architecture don't fit; the message names the argument.

    Examples
    --------
    >>> import cutepy
    >>> a, b = torch.ones(128, 64).half(), torch.ones(96, 64).half()
    >>> with cutepy.simulate(arch="sm_100a"):  # doctest: +SKIP
    ...     d = gemm(a, b)
    """
    graph = epilogue.graph
    given = tuple(epilogue.bind(operands).values())
    *batch, m, n, k = _extents(a, b)
    signature = _signature(graph, a, b, given, (*batch, m, n), scale_a, scale_b, out_dtype, out_major)
    if config is None:
        config = default_config(signature, m, n)
    elif config.signature != signature:
        raise ValueError(f"config must be of these tensors' signature {signature}, got {config.signature}")
    arch, sm_count = _gpu(a.device)
    scales = [
        _scales(name, scale, rows, k, batch, signature)
        for name, scale, rows in (("scale_a", scale_a, m), ("scale_b", scale_b, n))
    ]
    passed = [_operand(operand, value, (*batch, m, n)) for operand, value in zip(graph.operands, given, strict=True)]
    descriptions = result_descriptions(graph, Description.of(a), Description.of(b), (*batch, m), out_dtype, out_major)
    buffers = []
    for place, (result, description) in enumerate(zip(graph.results, descriptions, strict=True)):
        if graph.reduction(result) is not None:
            buffers.append(partial_description(graph, place, config.epi_n, tuple(batch), m, n, a.device).new())
        else:
            buffers.append(_buffer(description.shape, description.dtype, out_major, a.device))
    kernel = compile_gemm(config, arch)
    kernel(_bytes(a), _bytes(b), tuple(passed) or None, tuple(buffers), sm_count, *scales)
    results = []
    for result, description, buffer in zip(graph.results, descriptions, buffers, strict=True):
        reduction = graph.reduction(result)
        if reduction is not None:
            results.append(finished(buffer, reduction).to(description.dtype))
        else:
            results.append(_trimmed(buffer))
    return epilogue.pack(results)


def default_config(signature: UmmaGemmSignature, m: int, n: int) -> UmmaGemmConfig:
    """Return a configuration for a product of M x N: not measured.

    Examples
    --------
    >>> half = UmmaGemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    >>> default_config(half, 4096, 4096).traits.shape_mnk, default_config(half, 64, 96).traits.shape_mnk
    ((256, 256, 16), (128, 128, 16))
    """
    return UmmaGemmConfig(signature=signature, ctas=2 if m > LANES else 1, tile_n=256 if n > 128 else 128)


@cache
def compile_gemm(config: UmmaGemmConfig, arch: str = "sm_100a", *, cache: bool | None = None) -> Function:
    """Compile the kernel of a configuration, unless memory or disk has it; needs no GPU.

    The result is called with A, B, a tuple of the epilogue's operands (None if there is none), a tuple of its results,
    partial reductions among them, the number of SMs to fill, and the scale factors of A and B, or None: as
    `UmmaGemm` takes them. `cache` is that of `cutepy.compile`.
    """
    if arch not in ARCHES:
        raise ValueError(f"arch must be {' or '.join(ARCHES)}, got {arch}")
    signature, modes = config.signature, config.signature.batch_modes
    dtypes = ["uint8" if dtype == FLOAT4 else dtype for dtype in (signature.a_dtype, signature.b_dtype)]
    majors = signature.a_major, signature.b_major
    a, b = (
        operand_spec(name, dtype, major, modes, UNIT_BYTES)
        for name, dtype, major in zip("ab", dtypes, majors, strict=True)
    )
    outputs = output_examples(signature, lambda _: modes)
    scales = [None if signature.scaling is None else _scale_spec(name, modes) for name in ("scale_a", "scale_b")]
    kernel = Deferred("cutepy.kernels.sm100.kernel:UmmaGemm", config)
    compiled = compile(
        kernel,
        a=a,
        b=b,
        **outputs,
        sm_count=1,
        scale_a=scales[0],
        scale_b=scales[1],
        arch=arch,
        cache=cache,
        sources=(*SOURCES, "cutepy.kernels.sm100"),
    )
    return compiled.without_lazy_check().with_smem_plan(config.smem)


def block_scales(scales: torch.Tensor) -> torch.Tensor:
    """Arrange scale factors (batch..., rows, K / vector) in blocks of 128 rows by 4 factors, padded with zeros.

    The factor of row r and place k of a block is its byte 16 (r mod 32) + 4 (r / 32) + k.

    Returns
    -------
    Tensor, (batch..., row blocks, K blocks, 512)

    Examples
    --------
    >>> block_scales(torch.ones(200, 6).to(torch.float8_e4m3fn)).shape
    torch.Size([2, 2, 512])
    """
    *batch, rows, places = scales.shape
    row_blocks, k_blocks = -(-rows // BLOCK_ROWS), -(-places // BLOCK_FACTORS)
    padded = scales.new_zeros((*batch, row_blocks * BLOCK_ROWS, k_blocks * BLOCK_FACTORS), dtype=torch.uint8)
    padded[..., :rows, :places] = scales.view(torch.uint8)
    parted = padded.view(*batch, row_blocks, 4, 32, k_blocks, BLOCK_FACTORS)
    order = (-5, -2, -3, -4, -1)
    blocks = parted.permute(*range(len(batch)), *(parted.dim() + place for place in order)).contiguous()
    return blocks.view(*batch, row_blocks, k_blocks, 4 * BLOCK_WORDS).view(scales.dtype)


def _extents(a: torch.Tensor, b: torch.Tensor) -> tuple[int, ...]:
    """Return the batch, M, N and K of a product, having checked its operands."""
    for name, tensor in (("a", a), ("b", b)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
        if not 2 <= tensor.dim() <= 2 + MAX_BATCH_MODES:
            raise ValueError(f"{name} must have 2 to {2 + MAX_BATCH_MODES} dimensions, got {tensor.dim()}")
        if 0 in tensor.shape:
            raise ValueError(f"{name} must have elements, got shape {tuple(tensor.shape)}")
        if tensor.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"{name} must not require grad: the kernel has no backward pass; use torch.no_grad()")
    if a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-1]:
        raise ValueError(
            f"a and b must be (batch..., M, K) and (batch..., N, K), got {tuple(a.shape)} and {tuple(b.shape)}; expand "
            "a batch that is shared"
        )
    if a.device != b.device:
        raise ValueError(f"b must be on a's device {a.device}, got {b.device}")
    packed = 2 if dtype_name(a.dtype) == FLOAT4 else 1
    return (*a.shape[:-1], b.shape[-2], a.shape[-1] * packed)


def _gpu(device: torch.device) -> tuple[str, int]:
    """Return the architecture to compile for, and the SMs to fill."""
    if EXECUTION.backend is None and device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        arch, sm_count = f"sm_{properties.major}{properties.minor}a", properties.multi_processor_count
    else:
        arch = chosen_arch()
        sm_count = DEVICES[arch].sm_count
    if arch not in ARCHES:
        raise ValueError(
            f"cutepy.kernels.sm100 is for Blackwell ({', '.join(ARCHES)}), got {arch}; simulate one with "
            'cutepy.simulate(arch="sm_100a"), or use cutepy.ops.gemm on Hopper'
        )
    return arch, sm_count


def _signature(
    graph: Graph,
    a: torch.Tensor,
    b: torch.Tensor,
    given: Sequence[Any],
    shape: tuple[int, ...],
    scale_a: torch.Tensor | None,
    scale_b: torch.Tensor | None,
    out_dtype: torch.dtype | None,
    out_major: OutputMajor,
) -> UmmaGemmSignature:
    """Return the signature of a product of tensors."""
    if (scale_a is None) != (scale_b is None) or (
        scale_a is not None and scale_b is not None and scale_a.dtype != scale_b.dtype
    ):
        kinds = [None if each is None else dtype_name(each.dtype) for each in (scale_a, scale_b)]
        raise ValueError(f"scale_a and scale_b must both be given, of one dtype, got {kinds[0]} and {kinds[1]}")
    types = []
    for operand, value in zip(graph.operands, given, strict=True):
        check_operand(operand, value, shape)
        if not isinstance(value, torch.Tensor):
            types.append(("", ""))
            continue
        if value.device != a.device:
            raise ValueError(f"{operand.name} must be on a's device {a.device}, got {value.device}")
        major = OUTPUT_MAJORS[_contiguous_mode(operand.name, value)] if operand.shape == "tile" else ""
        types.append((dtype_name(value.dtype), major))
    narrow = a.dtype.itemsize == 1
    return UmmaGemmSignature(
        a_dtype=dtype_name(a.dtype),
        b_dtype=dtype_name(b.dtype),
        a_major=OPERAND_MAJORS[_contiguous_mode("a", a)],
        b_major=OPERAND_MAJORS[_contiguous_mode("b", b)],
        scale_dtype=None if scale_a is None else dtype_name(scale_a.dtype),
        out_dtype=dtype_name(out_dtype or (torch.bfloat16 if narrow else a.dtype)),
        out_major=out_major,
        batch_modes=a.dim() - 2,
        epilogue=graph.text,
        operand_types=tuple(types),
    )


def _contiguous_mode(name: str, tensor: torch.Tensor) -> int:
    """Return which of the last two dimensions TMA takes as contiguous, having checked that it reaches the tensor."""
    size = tensor.dtype.itemsize
    for mode in (1, 0):
        steps = [step * size for place, step in enumerate(tensor.stride()) if place != tensor.dim() - 2 + mode]
        extent = tensor.shape[mode - 2] * size
        if tensor.stride(mode - 2) == 1 and not any(step % UNIT_BYTES for step in steps) and not extent % UNIT_BYTES:
            if tensor.data_ptr() % UNIT_BYTES == 0:
                return mode
    raise ValueError(
        f"{name} must be contiguous along one of its last two dimensions, whose extent, like the address and all other "
        f"strides, is a multiple of {UNIT_BYTES} bytes, got shape {tuple(tensor.shape)} with strides "
        f"{tuple(tensor.stride())} of {size} bytes; copy it into a padded tensor"
    )


def _operand(operand: Any, value: Any, shape: tuple[int, ...]) -> Any:  # noqa: ANN401
    """Return an epilogue's operand as the kernel takes it."""
    if not isinstance(value, torch.Tensor):
        return value
    if operand.shape == "scalar":
        return value.reshape(1)
    if operand.shape == "tile":
        full = (*shape[:-1], shape[-1] // operand.width)
        if not broadcasts(value.shape, full) or value.shape[-2:] != full[-2:]:
            raise ValueError(f"{operand.name} must have shape {full}, but for its batch, got {tuple(value.shape)}")
        return value.expand(full)
    batch, own = shape[:-2], shape[-1] // operand.width if operand.shape == "row" else shape[-2]
    value = value.expand(*batch, own)
    return value if value.stride(-1) == 1 or own == 1 else value.contiguous()


def _buffer(shape: Sequence[int], dtype: torch.dtype, major: str, device: torch.device) -> torch.Tensor:
    """Allocate matrices whose rows, or columns, begin at whole units of 16 bytes."""
    *batch, rows, columns = shape
    if major == "col":
        return _buffer((*batch, columns, rows), dtype, "row", device).mT
    return torch.empty((*batch, rows, whole_units(columns, dtype)), dtype=dtype, device=device)[..., :columns]


def _trimmed(buffer: torch.Tensor) -> torch.Tensor:
    """Return a result without the padding after its rows, or columns."""
    transposed = buffer.stride(-1) != 1
    seen = buffer.mT if transposed else buffer
    packed = seen.contiguous()
    return packed.mT if transposed else packed


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """View packed 4-bit elements as bytes."""
    return tensor.view(torch.uint8) if dtype_name(tensor.dtype) == FLOAT4 else tensor


def _scales(
    name: str, scale: torch.Tensor | None, rows: int, k: int, batch: Sequence[int], signature: UmmaGemmSignature
) -> torch.Tensor | None:
    """View blocks of scale factors as words, (batch..., row blocks, K blocks, words)."""
    if scale is None or signature.scaling is None:
        return None
    along_k = -(-k // (BLOCK_FACTORS * signature.scaling.vector))
    shape = (*batch, -(-rows // BLOCK_ROWS), along_k, 4 * BLOCK_WORDS)
    arranged = tuple(scale.shape) in (shape, (math.prod(shape),))
    if not arranged or not scale.is_contiguous() or scale.data_ptr() % UNIT_BYTES:
        raise ValueError(
            f"{name} must be contiguous blocks {shape} of scale factors, or these flat, at {UNIT_BYTES} bytes, got "
            f"{tuple(scale.shape)}; arrange factors (rows, K / {signature.scaling.vector}) with block_scales"
        )
    return scale.view(torch.uint8).view(shape).view(torch.int32)


def _scale_spec(name: str, batch_modes: int) -> TensorSpec:
    batch = [f"{name}_batch{mode}" for mode in range(batch_modes)]
    return TensorSpec("int32", (*batch, f"{name}_rows", f"{name}_blocks", BLOCK_WORDS))
