"""GEMM of cutepy as an extension: 21 kernels, chosen by the heuristic's model."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from cutepy.aot.gemm_tiles import EXPORTED, config_of, cost_of
from cutepy.aot.spec import Extension, Op
from cutepy.aot.symbols import SM_COUNT, of
from cutepy.aot.variant import SM_COUNT_ARGUMENT, Variant
from cutepy.host.specs import TensorSpec
from cutepy.kernels.gemm.config import GemmConfig
from cutepy.kernels.gemm.elements import FLOAT8, INTEGERS, SUMS
from cutepy.kernels.gemm.output_signature import OutputMajor
from cutepy.kernels.gemm.signature import Activation, GemmSignature, OperandMajor

_MAJORS: dict[str, OperandMajor] = {"k": "k", "m": "mn", "n": "mn"}
_EXTENTS = {"a": ("m", "k"), "b": ("n", "k"), "c": ("m", "n"), "d": ("m", "n")}

DEFAULT_DTYPES = ("float16", "bfloat16")


def gemm_extension(
    name: str = "cutepy_gemm",
    *,
    dtypes: Sequence[str] = DEFAULT_DTYPES,
    majors: Sequence[str] = ("kk",),
    out_dtype: str | None = None,
    out_major: OutputMajor = "row",
    c: bool = False,
    bias: bool = False,
    activations: Sequence[Activation] = (),
    batch_modes: Sequence[int] = (0,),
    tiles: Sequence[tuple[int, int]] | None = None,
    version: str = "0.1.0",
) -> Extension:
    """Describe an extension with one operation, `gemm(a, b, c=None, bias=None, activation=None)`.

    D = activation(A B^T + C + bias) with A (M, K), B (N, K), C and D (M, N), bias (N,), or batches of all but bias. The
    arguments choose which of c, bias, activation and batches the operation and its documentation have. The extension
    has 21 kernels for each combination of dtype, majors, batch, C, bias and activation. A call launches the kernel that
    the heuristic's model expects to be fastest (`cutepy.aot.gemm_tiles`). `cutepy.ops.gemm` has more kernels, decision
    trees that correct the model, and winners of tuning. docs/export.md shows how to add a kernel.

    Parameters
    ----------
    name : str
        Of the package.
    dtypes : sequence of str
        Of A and B: float16, bfloat16, float8_e4m3fn, float8_e5m2, int8, uint8, or float32, which is rounded to tf32
        whatever torch's settings are.
    majors : sequence of str
        The contiguous extent of A and of B: "kk", "kn", "mk" or "mn". 8-bit and 32-bit operands are "kk".
    out_dtype : str, optional
        Of D, C and bias; by default that of A and B, bfloat16 for 8-bit floats, and int32 for integers, which takes no
        C, bias or activation. Integer sums that int32 doesn't hold, which needs a K above 33025, saturate.
    out_major : "row" or "col"
        "row" if N is the contiguous extent of D and C.
    c, bias : bool
        True if callers may pass these.
    activations : sequence of str
        Activations that callers may ask for: "relu", "gelu", "gelu_tanh", "silu".
    batch_modes : sequence of int
        Dimensions of a batch: 0 for matrices, 1 to 3 for batches of them.
    tiles : sequence of (int, int), optional
        tile_m and tile_n to choose from; by default all.
    version : str
        Of the package.

    Raises
    ------
    ValueError
        If there is no such kernel or tile.

    Examples
    --------
    >>> described = gemm_extension(dtypes=["float16"], tiles=[(128, 256), (64, 112), (128, 192)])
    >>> [variant.label for variant in described.ops[0].variants]  # doctest: +NORMALIZE_WHITESPACE
    ['float16_kk_128x256x64_cluster2x1', 'float16_kk_128x192x64_cluster2x1_pingpong',
     'float16_kk_64x112x64_cluster1x2_split2']
    """
    known = {(choice.tile.m, choice.tile.n) for choice in EXPORTED}
    if unknown := [tile for tile in tiles or () if tuple(tile) not in known]:
        raise ValueError(f"tiles must be of {', '.join(f'{m}x{n}' for m, n in sorted(known))}, got {unknown}")
    variants: list[Variant] = []
    for pair in majors:
        if len(pair) != 2 or pair[0] not in "km" or pair[1] not in "kn":
            raise ValueError(f"majors must be kk, kn, mk or mn, got {pair!r}")
    # Plain ones first: the exported example is made of these.
    addends = product(sorted(batch_modes), (False, True)[: 1 + c], (False, True)[: 1 + bias], (None, *activations))
    for (modes, with_c, with_bias, activation), dtype, pair in product(list(addends), dtypes, majors):
        out = out_dtype or (SUMS if dtype in INTEGERS else "bfloat16" if dtype in FLOAT8 else dtype)
        signature = GemmSignature.standard(
            a_dtype=dtype,
            b_dtype=dtype,
            out_dtype=out,
            a_major=_MAJORS[pair[0]],
            b_major=_MAJORS[pair[1]],
            out_major=out_major,
            c_dtype=out if with_c else None,
            c_major=out_major if with_c else None,
            bias_dtype=out if with_bias else None,
            activation=activation,
            batch_modes=modes,
        )
        parts = [dtype, pair, f"batch{modes}" * bool(modes), "c" * with_c, "bias" * with_bias, activation or ""]
        variants += _variants(signature, activation, "_".join(filter(None, parts)), tiles)
    op = Op(
        "gemm",
        variants,
        results=("d",),
        doc=_doc(c, bias, activations, batch_modes, [variant.tensors for variant in variants]),
        zero_if_empty=True,
        reference=_reference(c, bias, activations),
        tolerance=_tolerance([variant.tensors for variant in variants]),
        test_extents=[
            {"m": m, "n": n, "k": k, **{f"batch{mode}": 2 + mode for mode in range(max(batch_modes))}}
            for m, n, k in _TEST_SHAPES
        ],
        matmul=min(batch_modes) == 0,
    )
    return Extension(name, [op], version=version, description="Matrix multiplication on NVIDIA Hopper.")


_TEST_SHAPES = ((256, 256, 256), (1, 512, 128), (1000, 520, 264), (4096, 4096, 512), (64, 4096, 4096), (2048, 96, 1024))
_FUNCTIONS: Mapping[Activation, str] = {
    "relu": "torch.relu",
    "gelu": "torch.nn.functional.gelu",
    "gelu_tanh": "lambda x: torch.nn.functional.gelu(x, approximate='tanh')",
    "silu": "torch.nn.functional.silu",
}


def _doc(
    c: bool,
    bias: bool,
    activations: Sequence[Activation],
    batch_modes: Sequence[int],
    tensors: Sequence[Mapping[str, TensorSpec]],
) -> str:
    """Describe the operation: of C, bias, activations and batches only those that it has."""
    sums = " + ".join(["A B^T", *["C"] * c, *["bias"] * bias])
    result = f"activation({sums})" if activations else sums
    kinds = {"int32" if each["a"].dtype in INTEGERS else "fp32" for each in tensors}
    shapes = ["A (M, K)", "B (N, K)", "C and D (M, N)" if c else "D (M, N)", *["bias (N,)"] * bias]
    text = f"Compute D = {result}, {' or '.join(sorted(kinds))} inside: {', '.join(shapes)}"
    if any(batch_modes):
        text += f"; {'or ' if 0 in batch_modes else ''}batches of all{' but bias' if bias else ''}"
    left_out = [f"{' and '.join(names)} may be left out"] if (names := ["C"] * c + ["bias"] * bias) else []
    chosen = [f"activation may be {', '.join(activations)}, or none"] if activations else []
    return f"{'; '.join([text, *left_out, *chosen])}."


def _reference(c: bool, bias: bool, activations: Sequence[Activation]) -> str:
    """Write the reference expression of the exported test."""
    text = "torch.matmul(a.float(), b.float().mT)"
    text += "".join(f" + (0 if {name} is None else {name}.float())" for name in ["c"] * c + ["bias"] * bias)
    if not activations:
        return text
    functions = ", ".join(f"'{name}': {_FUNCTIONS[name]}" for name in activations)
    return f"{{None: lambda x: x, {functions}}}[activation]({text})"


def _tolerance(tensors: Sequence[Mapping[str, TensorSpec]]) -> dict[str, float]:
    """Bound the error of sums of up to 4096 products of standard normal numbers: order of sums, rounding of D.

    The sums are about 64 in size, and their fp32 accumulators are truncated at each of some hundred steps: 1e-2 at
    most. Of products of 8-bit floats the tensor core keeps about 14 bits while it sums them. Rounded to tf32, 64 such
    products err by 64 * 4e-4 in the mean square; six times that is 0.15. Activations, of slopes up to 1.13, add no more
    than the bound leaves.
    """
    bfloat16 = any(each["d"].dtype == "bfloat16" for each in tensors)
    dtypes = {each["a"].dtype for each in tensors}
    atol = 0.5 if dtypes & set(FLOAT8) else 0.15 if "float32" in dtypes else 1e-2
    return {"rtol": 1.6e-2 if bfloat16 else 2e-3, "atol": atol}


def _variants(
    signature: GemmSignature, activation: Activation | None, label: str, tiles: Sequence[tuple[int, int]] | None
) -> Iterator[Variant]:
    """Return the kernels of a signature, each with its cost."""
    arguments = _arguments(signature)
    matrices = {name: spec for name, spec in arguments.items() if isinstance(spec, TensorSpec) and name != "bias"}
    requires = [_spans(name, spec) for name, spec in matrices.items()]
    for config, cost in candidates(signature):
        if tiles is None or (config.tile_m, config.tile_n) in tiles:
            yield Variant(
                _kernel(config),
                arguments,
                cost=cost,
                requires=requires,
                choices={"activation": activation} if activation else {},
                label=f"{label}_{_label(config)}",
            )


def _label(config: GemmConfig) -> str:
    tile = f"{config.tile_m}x{config.tile_n}x{config.tile_k}_cluster{config.cluster_m}x{config.cluster_n}"
    return tile + "_pingpong" * (config.consumers > 1) + f"_split{config.split_k}" * (config.split_k > 1)


def candidates(signature: GemmSignature) -> Iterator[tuple[GemmConfig, Callable[..., float]]]:
    """Return the extension's candidates, each with its cost: the first one of least cost is chosen."""
    names = ("m", "n", "k", SM_COUNT, *_batch(signature))
    for choice in EXPORTED:
        yield config_of(choice, signature), of(names, cost_of(choice, signature))


def _batch(signature: GemmSignature) -> list[str]:
    return [f"batch{mode}" for mode in range(signature.batch_modes)]


def _kernel(config: GemmConfig) -> Callable[..., object]:
    from cutepy.kernels.gemm.standard import StandardGemm

    return StandardGemm(config)


def _arguments(signature: GemmSignature) -> dict[str, object]:
    """Describe the arguments as the kernels take them in process, with one name for extents that must be equal.

    In process `operands` asks for contiguous extents of whole 16 bytes; here the specs do. What is empty never gets
    as far as a kernel here.
    """
    from cutepy.kernels.gemm.compilation import examples

    made: dict[str, object] = {}
    for name, spec in examples(signature).items():
        if name == SM_COUNT:
            made[name] = SM_COUNT_ARGUMENT
        elif spec is None or name == "bias":
            made[name] = spec
        else:
            assert isinstance(spec, TensorSpec)
            assert spec.strides is not None
            shape = (*_batch(signature), *_EXTENTS[name])
            contiguous = shape[spec.strides.index(1)]
            divisibility = {**spec.divisibility, contiguous: spec.divisibility[f"{name}_pitch"]}
            made[name] = replace(spec, shape=shape, divisibility=divisibility, nonempty=())
    return made


def _spans(name: str, spec: TensorSpec) -> Callable[..., bool]:
    """Require that rows don't overlap: their stride spans the contiguous extent."""
    assert spec.strides is not None
    return of((f"{name}_pitch", str(spec.shape[spec.strides.index(1)])), operator.ge)
