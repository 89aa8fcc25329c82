"""Operations in programs that were traced within `batch_invariant`: others of the same arguments, which enter it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cutepy.ops.distributed import Rule
from cutepy.ops.operation import Operation, P, R
from cutepy.ops.registration import register
from cutepy.runtime.invariance import batch_invariant

SUFFIX = "_invariant"
"""Of their names."""


def register_both(
    schema: str,
    *,
    sharding: Rule,
    vmap: Callable[..., Any] | None = None,
    **options: Any,  # noqa: ANN401
) -> Callable[[Callable[P, R]], Operation[P, R]]:
    """Make an operation as `register` does, and the one that stands for it where it is called within the context.

    Both are sharded alike. The mode is one of the process, which a traced program knows nothing of when it runs.
    """

    def decorate(kernel: Callable[P, R]) -> Operation[P, R]:
        operation = register(schema, vmap=vmap, **options)(kernel)
        name, _, rest = schema.partition("(")
        within = batch_invariant()
        rule = None if vmap is None else within(vmap)
        invariant = register(f"{name}{SUFFIX}({rest}", vmap=rule, **options)(within(kernel))
        operation.invariant = invariant.op
        for each in (operation, invariant):
            each.shard_by(sharding)
        return operation

    return decorate
