"""What traced code takes from the DSL, wherever its version has it."""

from cutepy.dsl.version import first

SmemAllocator = first("cutlass.memory:SmemAllocator", "cutlass.utils:SmemAllocator")
"""Gives out the shared memory of a CTA."""
