"""Names that traced code imports from the DSL, independent of its version."""

from cutepy.dsl.version import first, require

SmemAllocator = first("cutlass.memory:SmemAllocator", "cutlass.utils:SmemAllocator")
"""Allocator of the shared memory of a CTA."""

MemScopeKind = require("cutlass._mlir.dialects.nvvm", "MemScopeKind").MemScopeKind
"""Scopes of arrivals at mbarriers, that of the CTA by default."""

at_the_caller = first("cutlass.cutlass_dsl:dsl_user_op", "cutlass.base_dsl.dsl:dsl_user_op")
"""Decorate a function with `loc` and `ip` so that its operations get the source line of its caller."""
