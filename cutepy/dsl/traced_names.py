"""What traced code takes from the DSL, wherever its version has it."""

from cutepy.dsl.version import first, require

SmemAllocator = first("cutlass.memory:SmemAllocator", "cutlass.utils:SmemAllocator")
"""Gives out the shared memory of a CTA."""

MemScopeKind = require("cutlass._mlir.dialects.nvvm", "MemScopeKind").MemScopeKind
"""Scopes of arrivals at mbarriers, that of the CTA by default."""

at_the_caller = first("cutlass.cutlass_dsl:dsl_user_op", "cutlass.base_dsl.dsl:dsl_user_op")
"""Decorate a function with `loc` and `ip` so that what it traces is said to come from the line that calls it."""
