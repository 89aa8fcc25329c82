"""The foundation's GEMM as an extension: every tile that `select_config` may choose, with its rule as conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from cutepy.aot.spec import Extension, Op
from cutepy.aot.variant import SM_COUNT_ARGUMENT, Variant
from cutepy.host.specs import TensorSpec
from cutepy.kernels.gemm.config import TILES, GemmConfig, GemmSignature, OperandMajor, OutputMajor, Tile

_TMA_BYTES = 16
_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float8_e4m3fn": 1, "float8_e5m2": 1}
_MAJORS: dict[str, OperandMajor] = {"k": "k", "m": "mn", "n": "mn"}

DEFAULT_DTYPES = ("float16", "bfloat16")


def gemm_extension(
    name: str = "cutepy_gemm",
    *,
    dtypes: Sequence[str] = DEFAULT_DTYPES,
    majors: Sequence[str] = ("kk",),
    out_dtype: str | None = None,
    out_major: OutputMajor = "row",
    tiles: Sequence[tuple[int, int]] | None = None,
    version: str = "0.1.0",
) -> Extension:
    """Describe an extension with one operation, `gemm(a, b)`: D = A B^T with A (M, K), B (N, K), D (M, N).

    Parameters
    ----------
    name : str
        Of the package.
    dtypes : sequence of str
        Of A and B: float16, bfloat16, float8_e4m3fn, float8_e5m2.
    majors : sequence of str
        The contiguous extent of A and of B: "kk", "kn", "mk" or "mn". 8-bit operands are "kk".
    out_dtype : str, optional
        Of D; by default that of A and B, bfloat16 for 8-bit ones.
    out_major : "row" or "col"
        "row" if N is D's contiguous extent.
    tiles : sequence of (int, int), optional
        tile_m and tile_n to choose from; by default all nine of `select_config`.
    version : str
        Of the package.

    Raises
    ------
    ValueError
        If there is no such kernel or tile.

    Examples
    --------
    >>> described = gemm_extension(dtypes=["float16"], tiles=[(128, 256), (64, 32)])
    >>> [variant.label for variant in described.ops[0].variants]  # doctest: +NORMALIZE_WHITESPACE
    ['float16_kk_128x256_cluster2x1', 'float16_kk_128x256_cluster1x2', 'float16_kk_128x256_cluster1x1',
     'float16_kk_64x32_cluster1x1']
    """
    chosen = [tile for tile in TILES if tiles is None or (tile.tile_m, tile.tile_n) in tiles]
    known = {(tile.tile_m, tile.tile_n) for tile in TILES}
    if unknown := [tile for tile in tiles or () if tuple(tile) not in known]:
        raise ValueError(f"tiles must be of {', '.join(f'{m}x{n}' for m, n in sorted(known))}, got {unknown}")
    variants = []
    for dtype in dtypes:
        for pair in majors:
            if len(pair) != 2 or pair[0] not in "km" or pair[1] not in "kn":
                raise ValueError(f"majors must be kk, kn, mk or mn, got {pair!r}")
            signature = GemmSignature(
                a_dtype=dtype,
                b_dtype=dtype,
                out_dtype=out_dtype or (dtype if _BYTES.get(dtype) != 1 else "bfloat16"),
                a_major=_MAJORS[pair[0]],
                b_major=_MAJORS[pair[1]],
                out_major=out_major,
            )
            variants += [variant for tile in chosen for variant in _variants(signature, f"{dtype}_{pair}", tile)]
    op = Op(
        "gemm",
        variants,
        results=("d",),
        doc="Multiply D = A B^T with fp32 accumulators: A (M, K), B (N, K), D (M, N).",
        zero_if_empty=True,
        reference="torch.mm(a.float(), b.float().t())",
        tolerance=_tolerance([variant.tensors for variant in variants]),
        test_extents=[{"m": m, "n": n, "k": k} for m, n, k in _TEST_SHAPES],
        matmul=True,
    )
    return Extension(name, [op], version=version, description="Matrix multiplication on NVIDIA Hopper.")


_TEST_SHAPES = ((256, 256, 256), (1, 512, 128), (1000, 520, 264), (4096, 4096, 512), (64, 4096, 4096), (2048, 96, 1024))


def _tolerance(tensors: Sequence[Mapping[str, TensorSpec]]) -> dict[str, float]:
    """Bound what sums of up to 4096 products of standard normal numbers differ by: order of sums, rounding of D.

    The sums are about 64 in size, and their fp32 accumulators are truncated at each of some hundred steps: 1e-2 at
    most. Of products of 8-bit floats the tensor core keeps about 14 bits while it sums them.
    """
    bfloat16 = any(each["d"].dtype == "bfloat16" for each in tensors)
    eight_bits = any(_BYTES[each["a"].dtype] == 1 for each in tensors)
    return {"rtol": 1.6e-2 if bfloat16 else 2e-3, "atol": 0.5 if eight_bits else 1e-2}


def _variants(signature: GemmSignature, label: str, tile: Tile) -> Iterator[Variant]:
    """Give the kernels of a tile: `select_config` lays its cluster along M, or N, or does without, by the extents."""
    rows, columns = f"m > {tile.tile_m}", f"n > {tile.tile_n}"
    cases = [
        ((tile.cluster, 1), rows),
        ((1, tile.cluster), f"not {rows} and {columns}"),
        ((1, 1), f"not {rows} and not {columns}"),
    ]
    if tile.cluster == 1:
        cases = [((1, 1), "")]
    for (cluster_m, cluster_n), when in cases:
        config = tile.config(signature, cluster_m, cluster_n)
        clusters = f"ceil_div(m, {tile.tile_m * cluster_m}) * ceil_div(n, {tile.tile_n * cluster_n})"
        slots = "sm_count" if cluster_m * cluster_n == 1 else f"max(sm_count // {cluster_m * cluster_n}, 1)"
        spans = f"ceil_div(k * {signature.operand_bits}, 1024)"
        yield Variant(
            _kernel(config),
            _arguments(signature),
            when=when,
            cost=f"ceil_div({clusters}, {slots}) * ({tile.tile_us} + {spans} * {tile.span_us})",
            requires=_requirements(signature),
            label=f"{label}_{tile.tile_m}x{tile.tile_n}_cluster{cluster_m}x{cluster_n}",
        )


def _kernel(config: GemmConfig) -> Callable[..., object]:
    from cutepy.kernels.gemm.kernel import Gemm

    return Gemm(config)


def _arguments(signature: GemmSignature) -> dict[str, object]:
    a = _matrix(signature.a_dtype, ("m", "k"), "lda", 1 if signature.a_major == "k" else 0)
    b = _matrix(signature.b_dtype, ("n", "k"), "ldb", 1 if signature.b_major == "k" else 0)
    d = _matrix(signature.out_dtype, ("m", "n"), "ldd", 1 if signature.out_major == "row" else 0)
    return {"a": a, "b": b, "c": None, "d": d, "sm_count": SM_COUNT_ARGUMENT}


def _matrix(dtype: str, shape: tuple[str, str], leading: str, contiguous: int) -> TensorSpec:
    """Describe a matrix as TMA takes it: the contiguous extent, the other stride and the address in 16 bytes."""
    unit = _TMA_BYTES // _BYTES[dtype]
    strides = (leading, 1) if contiguous == 1 else (1, leading)
    divisibility = {shape[contiguous]: unit, leading: unit}
    return TensorSpec(dtype, shape, strides=strides, divisibility=divisibility, align=_TMA_BYTES)


def _requirements(signature: GemmSignature) -> tuple[str, ...]:
    """Rows must not overlap: the leading stride spans the contiguous extent."""
    return (
        f"lda >= {'k' if signature.a_major == 'k' else 'm'}",
        f"ldb >= {'k' if signature.b_major == 'k' else 'n'}",
        f"ldd >= {'n' if signature.out_major == 'row' else 'm'}",
    )
