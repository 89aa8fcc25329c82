"""wgmma: asynchronous matrix multiply-accumulate of a warpgroup.

- ``issue``: MMAs as they are issued, committed and waited for.
- ``registers``: accumulators and fragments of A, as registers and as matrices.
- ``operands``: tiles in shared memory, found by their descriptors.
- ``products``: what completed MMAs compute.

References
----------
PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
"""
