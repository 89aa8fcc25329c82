"""Rules of tcgen05 products: stages, accumulators and epilogue subtiles that fit an MMA."""

from cutepy.layouts import sm100
from cutepy.layouts.sm90 import Major
from cutepy.runtime.dtypes import DTYPES

LANES = 128
"""Rows of a CTA's accumulators: the lanes of tensor memory."""
BLOCK_ROWS, BLOCK_FACTORS, BLOCK_WORDS = 128, 4, 128
"""Rows, scale factors along K and 32-bit words of a block of scale factors."""
LOADED_COLUMNS = (8, 16, 32, 64, 128)
"""Columns that a tcgen05.ld of a warp reads at once."""


def check_stages(name: str, traits: sm100.UmmaTraits, shape: tuple[int, int], dtype: str, major: Major | None) -> None:
    """Check that stages of an operand, (rows, K), have the shape of a CTA's contribution to MMAs.

    Parameters
    ----------
    name : "A" or "B"
    traits : UmmaTraits
    shape : (int, int)
        Rows, of one CTA, and elements along K.
    dtype : str
        Torch's name of the elements.
    major : "K", "MN" or None
        None where it is not known.

    Raises
    ------
    TypeError
        If the elements are of another type.
    ValueError
        If rows, K or major are others.

    Examples
    --------
    >>> pair = sm100.umma_traits("f16", 256, 64, cta_group=2)
    >>> check_stages("B", pair, (32, 64), "float16", "K")
    >>> check_stages("B", pair, (64, 64), "float16", "K")
    Traceback (most recent call last):
    ...
    ValueError: stages of B must have 32 rows, those of a CTA in SM100_MMA_F16BF16_2x1SM_SS<half_t,half_t,float,256,64,K,K>, got 64
    """  # noqa: E501
    m, n, k = traits.shape_mnk
    rows = (m if name == "A" else n) // traits.cta_group
    multiplied = traits.a_dtype if name == "A" else traits.b_dtype
    wanted = traits.descriptor.a_major if name == "A" else traits.descriptor.b_major
    if DTYPES[dtype].ptx != multiplied:
        raise TypeError(f"stages of {name} must hold {multiplied}, which {traits.name} multiplies, got {dtype}")
    if shape[0] != rows:
        raise ValueError(f"stages of {name} must have {rows} rows, those of a CTA in {traits.name}, got {shape[0]}")
    if shape[1] % k:
        raise ValueError(f"stages of {name} must be whole MMAs of {k} elements along K, got {shape[1]}")
    if major not in (wanted, None):
        raise ValueError(f"stages of {name} must be {wanted}-major, as {traits.name} reads them, got {major}-major")


def check_accumulators(traits: sm100.UmmaTraits, plan: sm100.TmemPlan, region: str, sets: int) -> None:
    """Check that a region of tensor memory holds sets of accumulators, of 128 rows a CTA.

    Raises
    ------
    ValueError
        If it doesn't, or the MMA has other rows.

    Examples
    --------
    >>> check_accumulators(sm100.umma_traits("f16", 128, 64), sm100.TmemPlan.of(C=128), "C", 2)
    """
    if traits.shape_mnk[0] != LANES * traits.cta_group:
        raise ValueError(f"a product must have {LANES} rows a CTA, got {traits.name}")
    if sets < 1:
        raise ValueError(f"a product must have 1 set of accumulators or more, got {sets}")
    held = {name: columns for name, _, columns in plan.rows()}
    wanted = sets * traits.shape_mnk[1]
    if held.get(region, 0) < wanted:
        raise ValueError(
            f"{sets} sets of {traits.shape_mnk[1]} columns need a region of {wanted} columns of tensor memory, got "
            f"{region!r} with {held.get(region, 0)}; plan more"
        )


def check_loaded_columns(columns: int, accumulators: int) -> None:
    """Check the columns of subtiles that are read from accumulators of a given number of columns.

    Raises
    ------
    ValueError
        If no load reads so many, or they are no whole subtiles.

    Examples
    --------
    >>> check_loaded_columns(32, 96)
    """
    if columns not in LOADED_COLUMNS:
        known = ", ".join(map(str, LOADED_COLUMNS))
        raise ValueError(f"a subtile of accumulators must have one of {known} columns, got {columns}")
    if accumulators % columns:
        raise ValueError(f"accumulators of {accumulators} columns must be whole subtiles, got {columns}")


def check_row_threads(threads: int | None) -> None:
    """Check that a CTA has the four warps that reach all lanes of tensor memory; None if its threads aren't known.

    Raises
    ------
    ValueError
        If it has fewer: rows of accumulators would never be loaded.

    Examples
    --------
    >>> check_row_threads(192), check_row_threads(None)
    (None, None)
    """
    if threads is not None and threads < LANES:
        raise ValueError(
            f"rows of accumulators need {LANES} threads, one for each lane of tensor memory, got a CTA of {threads}; "
            f"launch it with block=({LANES}, 1, 1) or more"
        )


def check_accumulator_ring(stages: int, warps: int, ctas: int) -> None:
    """Check a ring of accumulators.

    Raises
    ------
    ValueError
        If it has no stage, no reader, or is of other than one CTA or two.

    Examples
    --------
    >>> check_accumulator_ring(2, 4, 1)
    """
    if stages < 1 or warps < 1 or ctas not in (1, 2):
        raise ValueError(
            f"a ring of accumulators needs 1 stage or more, 1 warp that reads or more, and 1 or 2 CTAs, got {stages}, "
            f"{warps} and {ctas}"
        )
