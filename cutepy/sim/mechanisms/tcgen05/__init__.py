"""The tensor core of sm_100 and its memory: allocation, copies, products, commits.

`tensor_memory` keeps the columns and what warps load and store. `issue` takes operations of single threads, which
`products`, `copies` and `operands` carry out as they complete.

References
----------
PTX ISA, "TensorCore 5th Generation Family Instructions".
"""

from cutepy.sim.mechanisms.tcgen05.issue import TensorCore as TensorCore
