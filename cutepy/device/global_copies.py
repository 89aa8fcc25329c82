"""Vector copies of rows between global memory and registers, up to 16 bytes, predicated at the end (traced).

For kernels without MMA, such as normalisations, whose threads each read and write some places of a row. No thread waits
for another, and no shared memory is used. Loads are complete when their values are used. Stores are visible to later
launches, and to other threads once they are ordered, as any store is.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int64
from cutlass.cute.nvgpu import cpasync

from cutepy.device import rules
from cutepy.dsl.version import require

nvgpu = require("cutlass.cute.nvgpu", "CopyG2ROp", "CopyR2GOp")


def load_vector(start: cute.Pointer, elems: int, exists=None, streams: bool = False) -> cute.Tensor:
    """Load neighbouring elements of global memory into registers at once.

    Parameters
    ----------
    start : Pointer
        Address of the first element, a known multiple of the vector's bytes.
    elems : int
        Number of elements, of 16 bytes in all at most.
    exists : Boolean, optional
        If false nothing is read, and all are zero.
    streams : bool
        True if the elements are read once, so that they should not displace anything in L1.

    Returns
    -------
    Tensor, ((elems, 1), 1)
    """
    kind, priorities = start.dtype, nvgpu.CacheEvictionPriority
    priority = priorities.NO_ALLOCATE if streams else priorities.EVICT_NORMAL
    bits = elems * kind.width
    atom = cute.make_copy_atom(nvgpu.CopyG2ROp(), kind, num_bits_per_copy=bits, l1c_evict_priority=priority)
    one = cute.make_layout(((elems, 1), 1))
    loaded, predicate = cute.make_rmem_tensor(one, kind), None
    if exists is not None:
        loaded.fill(kind(0.0))
        predicate = _predicate(exists)
    cute.copy(atom, cute.make_tensor(start, one), loaded, pred=predicate)
    return loaded


def store_vector(values: cute.Tensor, start: cute.Pointer, exists=None) -> None:
    """Store a vector of registers to neighbouring elements of global memory at once, unless `exists` is false.

    Parameters
    ----------
    values : Tensor
        Values of the type of `start`, 16 bytes at most.
    start : Pointer
        Address of the destination, a known multiple of the vector's bytes.
    """
    kind, elems = start.dtype, cute.size(values)
    atom = cute.make_copy_atom(nvgpu.CopyR2GOp(), kind, num_bits_per_copy=elems * kind.width)
    one = cute.make_layout(((elems, 1), 1))
    predicate = None if exists is None else _predicate(exists)
    cute.copy(atom, cute.make_tensor(values.iterator, one), cute.make_tensor(start, one), pred=predicate)


def _predicate(exists) -> cute.Tensor:
    predicate = cute.make_rmem_tensor((1, 1), Boolean)
    predicate[0] = exists
    return predicate


@dataclass(frozen=True)
class RowVectors:
    """Vectors of the rows of a tensor in global memory: (row, vector) -> elements.

    Threads of a CTA take vectors that are next to one another at a time: vector `tidx`, then `tidx + threads`, and so
    on, so that a warp reads whole lines of memory.

    Attributes
    ----------
    tensor : Tensor, (rows, columns)
        The columns contiguous.
    elems : int
        Elements of a vector: a power of 2, 16 bytes in all at most.
    ragged : bool
        True if a row may end within a vector.
    """

    tensor: cute.Tensor
    elems: int
    ragged: bool

    @property
    def count(self):
        """Vectors in a row, of which the last may have fewer elements."""
        return cute.ceil_div(cute.size(self.tensor, mode=[1]), self.elems)

    @cute.jit
    def load(self, row, vector, streams: cutlass.Constexpr = False):
        """Load a vector into registers, (elems,); elements beyond the last row or column are zero, and are not read.

        `streams`: True if the vector is read once, and needn't stay in L1.
        """
        start, exists, whole = self._place(row, vector)
        values = cute.make_rmem_tensor(self.elems, self.tensor.element_type)
        values.store(load_vector(start, self.elems, whole, streams).load().reshape((self.elems,)))
        if cutlass.const_expr(self.ragged):
            if exists & (whole ^ True):
                for slot in cutlass.range_constexpr(self.elems):
                    if vector * self.elems + slot < cute.size(self.tensor, mode=[1]):
                        values[slot] = load_vector(start + slot, 1)[0]
        return values

    @cute.jit
    def stage(self, row, vector, slot):
        """Begin to copy a vector into shared memory, (elems,), by cp.async; elements beyond the row are zero.

        This thread alone may read the slot, after `cp_async_wait_group`. A slot has 4 bytes at least.
        """
        start, exists, whole = self._place(row, vector)
        bits = self.elems * self.tensor.element_type.width
        cache = cpasync.LoadCacheMode.GLOBAL if bits == 128 else cpasync.LoadCacheMode.ALWAYS
        copy = cute.make_copy_atom(cpasync.CopyG2SOp(cache_mode=cache), slot.element_type, num_bits_per_copy=bits)
        one = cute.make_layout(((self.elems, 1), 1))
        source, target = cute.make_tensor(start, one), cute.make_tensor(slot.iterator, one)
        if cutlass.const_expr(self.ragged):
            if exists & (whole ^ True):
                slot.store(self.load(row, vector).load())
            else:
                cute.copy(copy, source, target, pred=_predicate(whole))
        else:
            cute.copy(copy, source, target, pred=_predicate(whole))

    @cute.jit
    def store(self, values, row, vector):
        """Convert registers to the tensor's type, and store those that exist as a vector.

        Parameters
        ----------
        values : Tensor, (elems,)

        Raises
        ------
        ValueError
            If they are more or fewer.
        """
        rules.check_vector(cute.size(values), self.elems)
        start, exists, whole = self._place(row, vector)
        kind = self.tensor.element_type
        narrow = cute.make_rmem_tensor(self.elems, kind)
        narrow.store(values.load().to(kind))
        store_vector(narrow, start, whole)
        if cutlass.const_expr(self.ragged):
            if exists & (whole ^ True):
                for slot in cutlass.range_constexpr(self.elems):
                    if vector * self.elems + slot < cute.size(self.tensor, mode=[1]):
                        store_vector(cute.make_tensor(narrow.iterator + slot, cute.make_layout(1)), start + slot)

    def _place(self, row, vector):
        """Return the start of a vector, and whether any of its elements exist, and all do."""
        rows, columns = (cute.size(self.tensor, mode=[mode]) for mode in (0, 1))
        first = vector * self.elems
        offset = Int64(row) * Int64(self.tensor.stride[0]) + Int64(first)
        start = self.tensor.iterator + cute.assume(offset, divby=self.elems)
        here = (row < rows) & (row >= 0)
        return start, here & (first < columns), here & (first + self.elems <= columns)


def make_row_vectors(tensor: cute.Tensor, most: int = 0) -> RowVectors:
    """Split the rows of a tensor into the widest vectors that its declared alignment allows.

    Parameters
    ----------
    tensor : Tensor, (columns,) or (rows, columns)
        Of elements of whole bytes, the columns contiguous. What its address and the stride of its rows are multiples of
        decides (`align` and `divisibility` of `cutepy.TensorSpec`); the extents may be any. (columns,) is one row.
    most : int
        No more elements than these, if not 0: those of another tensor that is met element by element.

    Raises
    ------
    ValueError
        If it is no such tensor.
    """
    rank = cute.rank(tensor)
    stride = tensor.stride[rank - 1] if rank in (1, 2) else None
    rules.check_rows(rank, isinstance(stride, int) and stride == 1)
    if rank == 1:
        layout = cute.make_layout((1, cute.size(tensor)), stride=(0, 1))
        tensor = cute.make_tensor(tensor.iterator, layout)
    known = cute.get_divisibility(tensor.stride[0])
    elems = rules.vector_elems(tensor.element_type.width, tensor.iterator.alignment, known, most)
    return RowVectors(tensor, elems, cute.get_divisibility(tensor.shape[1]) % elems != 0)
