"""Transposes of 8-bit tiles in shared memory: limits."""

from cutepy.layouts import sm90

TRANSPOSED = (16, 32)
"""Rows, and places along K, of a block that a warp transposes at once: four 8x8 matrices of pairs of bytes."""


def check_transposes(loaded: sm90.StagedTile, staged: sm90.StagedTile, warps: int) -> None:
    """Check tiles (rows, K): one as it is loaded, contiguous along rows, and one as wgmma reads it, along K.

    Raises
    ------
    ValueError
        If elements are not of 8 bits, the tiles differ, are contiguous otherwise or no whole blocks, or nobody is to
        transpose them.

    Examples
    --------
    >>> loaded = sm90.StagedTile((128, 224), 2, bits=8, contiguous_mode=0)
    >>> check_transposes(loaded, sm90.StagedTile((128, 224), 2, bits=8), 3)
    """
    rows, columns = TRANSPOSED
    if loaded.tile != staged.tile or loaded.tile[0] % rows or loaded.tile[1] % columns:
        raise ValueError(
            f"tiles must be the same (rows, K), a multiple of {rows} by one of {columns}, got {loaded.tile} and "
            f"{staged.tile}"
        )
    if (loaded.bits, staged.bits, loaded.contiguous_mode, staged.contiguous_mode) != (8, 8, 0, 1):
        raise ValueError(
            f"8-bit tiles are transposed from contiguous mode 0 to 1, got {loaded.bits} bits of mode "
            f"{loaded.contiguous_mode} and {staged.bits} bits of mode {staged.contiguous_mode}"
        )
    if warps < 1:
        raise ValueError(f"1 warp or more must transpose, got {warps}")
