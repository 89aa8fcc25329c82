"""The interface between the routes and a family of kernels that compute products."""

from typing import Literal, Protocol

from cutepy.kernels.gemm.signature import GemmSignature
from cutepy.layouts.sm90 import SmemPlan

WorkspaceKind = Literal["flags", "sums"]


class ProductConfig(Protocol):
    """Protocol of a configuration whose kernel is called as the GEMM is.

    Attributes
    ----------
    signature : GemmSignature
        Signature of the kernel.
    kernels : (str, str)
        "package.module:name" of what makes it of a configuration: called as `StandardGemm` is, and as `Gemm` is.
    name : str
        As profilers show it.
    tile_m, tile_n : int
        Output tile of a CTA.
    epi_n : int
        Columns whose epilogue is computed together.
    cluster : (int, int, int)
        CTAs along M, N and K.
    workspace : "flags", "sums" or None
        Kind of workspace (`cutepy.kernels.gemm.workspaces`): flags only, sums too, or none.
    smem : SmemPlan
        Plan of a CTA's shared memory.
    is_batch_invariant : bool
        True if the bits of a row do not depend on the batch.
    """

    def __hash__(self) -> int: ...
    @property
    def signature(self) -> GemmSignature: ...  # noqa: D102
    @property
    def kernels(self) -> tuple[str, str]: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def tile_m(self) -> int: ...  # noqa: D102
    @property
    def tile_n(self) -> int: ...  # noqa: D102
    @property
    def epi_n(self) -> int: ...  # noqa: D102
    @property
    def cluster(self) -> tuple[int, int, int]: ...  # noqa: D102
    @property
    def workspace(self) -> WorkspaceKind | None: ...  # noqa: D102
    @property
    def smem(self) -> SmemPlan: ...  # noqa: D102
    @property
    def is_batch_invariant(self) -> bool: ...  # noqa: D102
