"""What the hardware does beside arithmetic: copies, barriers, atomics, matrix products, and what warps exchange."""
