"""Mechanisms of the hardware beside arithmetic: copies, barriers, atomics, matrix products, exchange within warps."""
