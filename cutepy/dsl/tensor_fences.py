"""The fences of tcgen05 around other synchronisation of threads (traced).

References
----------
PTX ISA, "tcgen05.fence".
"""

from __future__ import annotations

from typing import Any

from cutepy.dsl.traced_names import at_the_caller
from cutepy.dsl.version import require

_nvvm = require("cutlass._mlir.dialects.nvvm", "tcgen05_fence", "Tcgen05FenceKind")


@at_the_caller  # type: ignore[untyped-decorator]
def before_thread_sync(*, loc: Any = None, ip: Any = None) -> None:  # noqa: ANN401
    """Order this thread's asynchronous tcgen05 operations before its next arrival."""
    _nvvm.tcgen05_fence(_nvvm.Tcgen05FenceKind.BEFORE_THREAD_SYNC, loc=loc, ip=ip)


@at_the_caller  # type: ignore[untyped-decorator]
def after_thread_sync(*, loc: Any = None, ip: Any = None) -> None:  # noqa: ANN401
    """Order this thread's asynchronous tcgen05 operations after its last wait."""
    _nvvm.tcgen05_fence(_nvvm.Tcgen05FenceKind.AFTER_THREAD_SYNC, loc=loc, ip=ip)
