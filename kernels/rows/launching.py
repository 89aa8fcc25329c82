"""Launches of kernels whose CTAs, or clusters, have rows of a tiling (traced)."""

from collections.abc import Callable
from typing import Any

import cutlass.cute as cute
from cuda.bindings.driver import CUstream


def launch_rows(
    kernel: Callable,
    name: str,
    tiling: Any,
    groups,
    stream: CUstream,
    *arguments,
    is_cluster: bool = True,
) -> None:
    """Launch a kernel as a programmatic dependent on so many groups of rows, each a CTA's, or a cluster's, at a time.

    Parameters
    ----------
    kernel : callable
        Decorated by `cute.kernel`.
    name : str
        Of the kernel, behind "cutepy_".
    tiling : RowTiling
    groups : Int32
        As of `groups_of`; or fewer, of a kernel whose CTAs go through several.
    *arguments
        Of the kernel.
    is_cluster : bool
        False if the CTAs that part a row know nothing of each other.
    """
    kernel.set_name_prefix(f"cutepy_{name}", remove_cutlass_symbol=True, keep_mangled_name=False)
    kernel(*arguments).launch(
        grid=(groups * tiling.ctas, 1, 1),
        block=(tiling.cta, 1, 1),
        cluster=(tiling.ctas, 1, 1) if is_cluster and tiling.ctas > 1 else None,
        stream=stream,
        use_pdl=True,
    )


def groups_of(tensor: cute.Tensor, tiling: Any):
    """Return the groups of rows of a tensor (rows, columns)."""
    return cute.ceil_div(cute.size(tensor, mode=[0]), tiling.rows)
