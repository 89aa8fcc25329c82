"""Launch latent attention: compile if necessary, and call the kernels."""

from collections.abc import Callable
from functools import cache

import torch

from cutepy.host.compilation import compile
from cutepy.host.declared import Deferred
from cutepy.host.function import Function
from cutepy.host.launches import maker_of
from cutepy.host.specs import TensorSpec, dtype_name
from cutepy.kernels.gemm.gpu import HOPPER, gpu_of
from cutepy.kernels.mla.config import COMBINING_WARPS, HEAD, KEYS, LATENT, QUANTISED_BYTES, ROWS, MlaConfig
from cutepy.runtime.invariance import INVARIANCE

CTAS_PER_SM = 8
"""CTAs of combined rows that an SM has at one time: 2048 threads."""
SOURCES = ("cutepy.layouts", "cutepy.device", "cutepy.kernels.mla")
"""Packages whose source, with a configuration, is the key of a compiled kernel."""


def parts_of(row_tiles: int, sm_count: int, uneven: int = 0) -> int:
    """Return into how many parts the keys of all sequences are dealt, for each tile of rows: a CTA an SM.

    Where tiles of rows see other numbers of keys, equal parts of a tile's keys are no equal work. There are `uneven`
    CTAs then, if each has all keys of a sequence: enough of them fill the SMs better, the longest first.

    Examples
    --------
    >>> parts_of(2, 132), parts_of(200, 132), parts_of(64, 132, uneven=4 * 64)
    (66, 1, 1)
    """
    return 1 if uneven >= sm_count else max(sm_count // row_tiles, 1)


def plan(
    q: torch.Tensor,
    cache: torch.Tensor,
    scale: float,
    sharing: int,
    *,
    causal: bool,
    page: int,
    most_keys: int,
    has_lengths: bool,
    pitch: int | None = None,
    count: int | None = None,
) -> Callable[..., None]:
    """Compile latent attention for tensors of this description, which have elements and have been checked.

    Parameters
    ----------
    q : Tensor (sequences, rows, 576)
        Rows of all heads of a token adjoin.
    cache : Tensor (keys, 576), or, of bytes, (keys, 656)
        All sequences' keys, or all pages'.
    scale : float
        Factor of the scores, positive.
    sharing : int
        Rows of a token.
    causal : bool
        True if a query sees no key after its position.
    page : int
        Keys of a page; 0 if keys are not in pages.
    most_keys : int
        Keys that a sequence may have.
    has_lengths : bool
        True if sequences have other numbers of keys.
    pitch : int, optional
        Rows of the cache from one page, or sequence, to the next; as many as it has keys if not given.
    count : int, optional
        Parts of the keys, for each tile of rows; one for each SM that these share if not given.

    Returns
    -------
    callable
        Takes q, the cache, O (sequences, rows, 512), the logarithms (sequences, rows), fp32, lengths and table.
    """
    row_tiles = -(-q.shape[1] // ROWS)
    if count is None:
        # By whole tiles of keys.
        is_uneven = causal and q.shape[1] >= KEYS * sharing
        count = parts_of(row_tiles, gpu_of(q.device).sm_count, row_tiles * q.shape[0] if is_uneven else 0)
    is_split = count > 1 and not INVARIANCE.on
    # The masks of a causal kernel leave no registers for what CTAs that share keys need.
    cluster = 1 if row_tiles % 2 or causal else 2
    config = MlaConfig(
        dtype=dtype_name(q.dtype),
        causal=causal,
        page=page,
        quantised=cache.dtype == torch.uint8,
        is_split=is_split,
        cluster=cluster,
    )
    function = compile_mla(config, has_lengths=has_lengths, has_pitch=pitch is not None)
    if not is_split:
        return lambda q, cache, o, lse, lengths, table: function(
            q, cache, o, lse, None, None, None, scale, sharing, q.shape[0], lengths, table, pitch
        )
    # Rows of few sequences have many partial results.
    warps = COMBINING_WARPS if count >= COMBINING_WARPS * q.shape[0] else 1
    combine = compile_combine(config, warps, has_lengths=has_lengths)
    ctas = CTAS_PER_SM * gpu_of(q.device).sm_count
    (sequences, rows), slots = q.shape[:2], 2 * count
    make_parts, make_lses = (maker_of(q, shape, torch.float32) for shape in ((slots, rows, LATENT), (slots, rows)))
    make_owners = maker_of(q, (row_tiles, sequences, 2), torch.int32)

    def launch(
        q: torch.Tensor,
        cache: torch.Tensor,
        o: torch.Tensor,
        lse: torch.Tensor,
        lengths: torch.Tensor | None,
        table: torch.Tensor | None,
    ) -> None:
        parts, lses, owners = make_parts(), make_lses(), make_owners()
        function(q, cache, o, lse, parts, lses, owners, scale, sharing, count, lengths, table, pitch)
        combine(parts, lses, owners, o, lse, sharing, most_keys, ctas, lengths)

    return launch


@cache
def compile_mla(config: MlaConfig, *, has_lengths: bool, has_pitch: bool = False) -> Function:
    """Compile the kernel of a configuration, unless memory or disk has it; needs no GPU."""
    q = TensorSpec(
        config.dtype,
        ("sequences", "rows", HEAD),
        strides=("q_sequence", "q_row", 1),
        divisibility={"q_sequence": 8, "q_row": 8},
        nonempty=("sequences", "rows"),
    )
    element, columns, step = ("uint8", QUANTISED_BYTES, 16) if config.quantised else (config.dtype, HEAD, 8)
    cached = TensorSpec(element, ("keys", columns), strides=("key", 1), divisibility={"key": step}, nonempty=("keys",))
    o, lse, lengths = _results(config, has_lengths=has_lengths)
    partial = _partial() if config.is_split else (None, None, None)
    table = TensorSpec("int32", ("sequences", "pages"), align=4) if config.page else None
    pitch = 1 if has_pitch else None
    kernel = Deferred("cutepy.kernels.mla.kernel:Mla", config)
    found = compile(kernel, q, cached, o, lse, *partial, 1.0, 1, 1, lengths, table, pitch, arch=HOPPER, sources=SOURCES)
    return found.without_lazy_check().with_smem_plan(config.smem)


@cache
def compile_combine(config: MlaConfig, warps: int, *, has_lengths: bool) -> Function:
    """Compile the kernel that combines partial results, unless memory or disk has it; needs no GPU."""
    o, lse, lengths = _results(config, has_lengths=has_lengths)
    kernel = Deferred("cutepy.kernels.mla.combine:Combine", config, warps)
    return compile(kernel, *_partial(), o, lse, 1, 1, 1, lengths, arch=HOPPER, sources=SOURCES).without_lazy_check()


def _partial() -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """Describe partial results, the logarithms of their sums, and their owners."""
    return (
        TensorSpec("float32", ("slots", "rows", LATENT)),
        TensorSpec("float32", ("slots", "rows")),
        TensorSpec("int32", ("row_tiles", "sequences", 2)),
    )


def _results(config: MlaConfig, *, has_lengths: bool) -> tuple[TensorSpec, TensorSpec, TensorSpec | None]:
    """Describe O, the logarithms of the rows' sums, and the lengths."""
    return (
        TensorSpec(config.dtype, ("sequences", "rows", LATENT)),
        TensorSpec("float32", ("sequences", "rows")),
        TensorSpec("int32", ("sequences",), align=4) if has_lengths else None,
    )
