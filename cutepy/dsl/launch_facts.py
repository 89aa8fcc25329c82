"""Launch facts of the kernel that is being traced: threads, and clusters in DSL versions after 4.6.2."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from cutepy.dsl.version import require

_KERNEL = "cuda.kernel"
_THREADS, _FACTS = "nvvm.reqntid", "cutlass_launch_facts"  # attributes of the kernel's operation
_CLUSTERS, _CLUSTER = "cluster_launch", "exact_cluster_dim"  # among the facts


class Launch(NamedTuple):
    """Known facts about the CTAs of a kernel; None for facts that only the launch's call determines.

    Attributes
    ----------
    threads : int or None
        Of a CTA.
    cluster : (int, int, int) or None
        CTAs of a cluster along its modes.
    """

    threads: int | None = None
    cluster: tuple[int, int, int] | None = None


def launched() -> Launch:
    """Return the known facts of the kernel that is being traced; none outside of one, or in older DSL versions."""
    kernel = kernel_operation()
    return Launch() if kernel is None else Launch(_threads(kernel.attributes), _cluster(kernel.attributes))


def kernel_operation() -> Any:  # noqa: ANN401
    """Return the operation of the kernel that is being traced; None outside of one, or in older DSL versions."""
    ir = require("cutlass._mlir.ir", "InsertionPoint")
    try:
        operation = ir.InsertionPoint.current.block.owner.operation
    except ValueError:  # nothing is being traced
        return None
    while operation is not None and operation.name != _KERNEL:
        operation = operation.parent
    return operation


def _threads(attributes: Any) -> int | None:  # noqa: ANN401
    return math.prod(attributes[_THREADS]) if _THREADS in attributes else None


def _cluster(attributes: Any) -> tuple[int, int, int] | None:  # noqa: ANN401
    facts = attributes[_FACTS] if _FACTS in attributes else {}
    if _CLUSTER in facts:
        m, n, k = facts[_CLUSTER]
        return m, n, k
    return (1, 1, 1) if _CLUSTERS in facts and not facts[_CLUSTERS].value else None
