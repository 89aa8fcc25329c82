"""LinearLayout: a linear map over F2 between named dimensions of powers of two, given by its bases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..drawable import Drawable
from ..errors import LayoutError
from ..grids.grid import Grid
from ..writer import ReadOnly
from . import f2
from .bits import log2_size, pack, unpack

Bases = Mapping[str, Sequence[Sequence[int] | int]]
"""In-dimension -> for each of its bits, lowest first, the coordinates in the out-dimensions; an int for a single."""


class LinearLayout(ReadOnly, Drawable):
    """A linear map over F2: named inputs -> named outputs, ``f(x ^ y) == f(x) ^ f(y)``.

    What Triton calls by this name. Each bit of an input contributes its *basis*, and bases add by exclusive or. The
    first dimension of either side is the fastest where dimensions are taken together.

    Parameters
    ----------
    bases : mapping
        In-dimension -> one basis for each bit of it, lowest first; a basis has a coordinate for each out-dimension.
        An int stands for the coordinate in a single one.
    out_dims : mapping or sequence of str
        Out-dimension -> its size, a power of two. Names alone get the smallest sizes that hold the bases.

    Examples
    --------
    Two registers of each of eight lanes hold a tile of 4 by 4:

    >>> layout = LinearLayout({"register": [[0, 1]], "lane": [[0, 2], [1, 0], [2, 0]]}, {"dim0": 4, "dim1": 4})
    >>> layout(1, 5), layout.apply({"register": 1, "lane": 5})
    ((2, 3), {'dim0': 2, 'dim1': 3})
    >>> layout.in_dims, layout.is_invertible
    ({'register': 2, 'lane': 8}, True)
    >>> print(layout)
     - register=1 -> (0, 1)
     - lane=1 -> (0, 2)
       lane=2 -> (1, 0)
       lane=4 -> (2, 0)
    where out dims are: [dim0 (size 4), dim1 (size 4)]

    Raises
    ------
    LayoutError
        If a size is no power of two, or a basis has not one coordinate below the size for each out-dimension.

    References
    ----------
    "Linear Layouts: Robust Code Generation of Efficient Tensor Computation Using F2", arXiv 2505.23819. Triton,
    ``include/triton/Tools/LinearLayout.h``.
    """

    __slots__ = ("_columns", "_in_bits", "_out_bits")
    _columns: tuple[int, ...]
    _in_bits: dict[str, int]
    _out_bits: dict[str, int]

    def __init__(self, bases: Bases, out_dims: Mapping[str, int] | Sequence[str]) -> None:
        rows = {name: [_basis(basis) for basis in of_dim] for name, of_dim in bases.items()}
        if not isinstance(out_dims, Mapping):
            out_dims = _smallest_sizes(rows, tuple(out_dims))
        out_bits = {name: log2_size("LinearLayout", name, size) for name, size in out_dims.items()}
        columns = []
        for name, of_dim in rows.items():
            for i, basis in enumerate(of_dim):
                if len(basis) != len(out_dims) or any(
                    not 0 <= x < size for x, size in zip(basis, out_dims.values(), strict=True)
                ):
                    sizes = ", ".join(f"{key} {size}" for key, size in out_dims.items())
                    raise LayoutError(
                        "LinearLayout",
                        (f"{name}={1 << i}", basis),
                        f"a basis has one coordinate from 0 for each out-dimension, below its size ({sizes})",
                    )
                columns.append(pack(basis, out_bits.values()))
        self._set(tuple(columns), {name: len(of_dim) for name, of_dim in rows.items()}, out_bits)

    def _set(self, columns: tuple[int, ...], in_bits: dict[str, int], out_bits: dict[str, int]) -> None:
        object.__setattr__(self, "_columns", columns)
        object.__setattr__(self, "_in_bits", in_bits)
        object.__setattr__(self, "_out_bits", out_bits)

    @classmethod
    def of_columns(
        cls, columns: Iterable[int], in_dims: Mapping[str, int], out_dims: Mapping[str, int]
    ) -> LinearLayout:
        """Make a layout of its matrix: a column for each bit of all inputs, first dimension lowest; outputs likewise.

        >>> LinearLayout.of_columns([2, 1], {"i": 4}, {"o": 4})
        LinearLayout({'i': [[2], [1]]}, {'o': 4})
        """
        columns = tuple(columns)
        in_bits = {name: log2_size("of_columns", name, size) for name, size in in_dims.items()}
        out_bits = {name: log2_size("of_columns", name, size) for name, size in out_dims.items()}
        if len(columns) != sum(in_bits.values()):
            condition = f"need a column for each of {sum(in_bits.values())} input bits, got {len(columns)}"
            raise LayoutError("of_columns", (list(columns),), condition)
        if any(column < 0 or column >> sum(out_bits.values()) for column in columns):
            condition = f"columns must be below {1 << sum(out_bits.values())}, the size of all outputs"
            raise LayoutError("of_columns", (list(columns),), condition)
        return cls._raw(columns, in_bits, out_bits)

    @classmethod
    def _raw(cls, columns: Iterable[int], in_bits: dict[str, int], out_bits: dict[str, int]) -> LinearLayout:
        layout = object.__new__(cls)
        layout._set(tuple(columns), dict(in_bits), dict(out_bits))
        return layout

    @classmethod
    def identity(cls, size: int, in_dim: str, out_dim: str) -> LinearLayout:
        """Make the identity from one dimension to another.

        >>> LinearLayout.identity(4, "lane", "dim0")
        LinearLayout({'lane': [[1], [2]]}, {'dim0': 4})
        """
        return cls.strided(size, 1, in_dim, out_dim)

    @classmethod
    def strided(cls, size: int, stride: int, in_dim: str, out_dim: str) -> LinearLayout:
        """Make ``i -> stride * i``; both powers of two.

        >>> LinearLayout.strided(4, 2, "lane", "dim0")
        LinearLayout({'lane': [[2], [4]]}, {'dim0': 8})
        """
        bits, step = log2_size("strided", in_dim, size), log2_size("strided", "stride", stride)
        return cls._raw((1 << (i + step) for i in range(bits)), {in_dim: bits}, {out_dim: bits + step})

    @classmethod
    def zeros(cls, size: int, in_dim: str, out_dim: str, out_size: int = 1) -> LinearLayout:
        """Make the map of a dimension to 0: a broadcast.

        >>> LinearLayout.zeros(4, "warp", "dim0")
        LinearLayout({'warp': [[0], [0]]}, {'dim0': 1})
        """
        bits = log2_size("zeros", in_dim, size)
        return cls._raw((0,) * bits, {in_dim: bits}, {out_dim: log2_size("zeros", out_dim, out_size)})

    def __reduce__(self) -> tuple[object, ...]:
        return LinearLayout, (self.bases, self.out_dims)

    # Properties

    def _picture_(self, *, title: str | None = None) -> Grid:
        """Draw the matrix over F2."""
        from .pictures import matrix_grid

        return matrix_grid(self, title)

    @property
    def in_dims(self) -> dict[str, int]:
        """In-dimension -> size."""
        return {name: 1 << bits for name, bits in self._in_bits.items()}

    @property
    def out_dims(self) -> dict[str, int]:
        """Out-dimension -> size."""
        return {name: 1 << bits for name, bits in self._out_bits.items()}

    @property
    def bases(self) -> dict[str, list[list[int]]]:
        """In-dimension -> a basis for each of its bits, lowest first."""
        widths = self._out_bits.values()
        return {name: [list(unpack(c, widths)) for c in self.columns_of(name)] for name in self._in_bits}

    @property
    def columns(self) -> tuple[int, ...]:
        """The matrix: for each bit of all inputs the outputs taken together, first dimensions lowest."""
        return self._columns

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the inputs: the domain, as a CuTe layout's shape."""
        return tuple(self.in_dims.values())

    def columns_of(self, in_dim: str) -> tuple[int, ...]:
        """Return the columns of one in-dimension's bits; none for an unknown dimension."""
        start = 0
        for name, bits in self._in_bits.items():
            if name == in_dim:
                return self._columns[start : start + bits]
            start += bits
        return ()

    def size(self) -> int:
        """Return the number of inputs."""
        return 1 << len(self._columns)

    def rank(self) -> int:
        """Return the dimension of the image: log2 of the number of distinct outputs.

        >>> LinearLayout({"i": [1, 2, 3]}, ["o"]).rank()
        2
        """
        return f2.rank(self._columns)

    def kernel(self) -> list[dict[str, int]]:
        """Return a basis of the inputs that map to 0: inputs that differ by one of them share an output.

        >>> LinearLayout({"i": [1, 2, 3]}, ["o"]).kernel()
        [{'i': 7}]
        """
        return [self._inputs(mask) for mask in f2.kernel(self._columns)]

    @property
    def is_injective(self) -> bool:
        """True if no two inputs have the same output."""
        return self.rank() == len(self._columns)

    @property
    def is_surjective(self) -> bool:
        """True if every output is reached."""
        return self.rank() == sum(self._out_bits.values())

    @property
    def is_invertible(self) -> bool:
        """True if the map is injective and surjective."""
        return self.is_injective and self.is_surjective

    # Evaluation

    def __call__(self, *inputs: Any) -> Any:  # noqa: ANN401 - int, or a tuple for several out-dimensions
        """Map inputs, one for each in-dimension or all as one tuple or integer, to the output or a tuple of outputs."""
        if len(inputs) == 1 and isinstance(inputs[0], tuple):
            inputs = inputs[0]
        if len(inputs) == 1 != len(self._in_bits):
            index = inputs[0]
        elif len(inputs) == len(self._in_bits):
            index = self._index(dict(zip(self._in_bits, inputs, strict=True)))
        else:
            raise LayoutError(
                "LinearLayout", (inputs,), f"need {len(self._in_bits)} inputs ({', '.join(self._in_bits)})"
            )
        if not 0 <= index < self.size():
            raise LayoutError("LinearLayout", (inputs,), f"an input must be from 0 to {self.size() - 1}, got {index}")
        outputs = unpack(f2.times(self._columns, index), self._out_bits.values())
        return outputs[0] if len(outputs) == 1 else outputs

    def apply(self, inputs: Mapping[str, int]) -> dict[str, int]:
        """Map named inputs to named outputs."""
        if set(inputs) != set(self._in_bits):
            raise LayoutError("apply", (dict(inputs),), f"need exactly the inputs {', '.join(self._in_bits)}")
        outputs = unpack(f2.times(self._columns, self._index(inputs)), self._out_bits.values())
        return dict(zip(self._out_bits, outputs, strict=True))

    def _index(self, inputs: Mapping[str, int]) -> int:
        for name, bits in self._in_bits.items():
            if not 0 <= inputs[name] < 1 << bits:
                condition = f"{name} must be from 0 to {(1 << bits) - 1}, got {inputs[name]}"
                raise LayoutError("LinearLayout", (dict(inputs),), condition)
        return pack([inputs[name] for name in self._in_bits], self._in_bits.values())

    def _inputs(self, index: int) -> dict[str, int]:
        return dict(zip(self._in_bits, unpack(index, self._in_bits.values()), strict=True))

    # Derived layouts

    def compose(self, outer: LinearLayout) -> LinearLayout:
        """Return this map followed by another: ``x -> outer(self(x))``. Triton's order; CuTe's is the other.

        The outputs of this one are the inputs of `outer` by name, in any order; none larger than there.

        >>> inner = LinearLayout({"i": [2, 1]}, ["m"])
        >>> inner.compose(LinearLayout({"m": [4, 1]}, ["o"]))
        LinearLayout({'i': [[1], [4]]}, {'o': 8})
        """
        self._check_same("compose", self._out_bits, outer, outer._in_bits)
        for name, bits in self._out_bits.items():
            if bits > outer._in_bits[name]:
                condition = f"output {name} has size {1 << bits}, the input of that name {1 << outer._in_bits[name]}"
                raise LayoutError("compose", (self, outer), condition)
        aligned = self.transpose_outs(outer._in_bits)
        widths = aligned._out_bits.values()
        wide = (pack(unpack(column, widths), outer._in_bits.values()) for column in aligned._columns)
        return self._raw((f2.times(outer._columns, column) for column in wide), self._in_bits, outer._out_bits)

    def __mul__(self, other: LinearLayout) -> LinearLayout:
        """Return the product: of dimensions that both have, the bits of `other` come above those of this one.

        Dimensions are in an order that is that of both, or else in that of this layout.

        >>> LinearLayout.identity(2, "lane", "dim0") * LinearLayout.identity(4, "lane", "dim1")
        LinearLayout({'lane': [[1, 0], [0, 1], [0, 2]]}, {'dim0': 2, 'dim1': 4})
        """
        if not isinstance(other, LinearLayout):
            return NotImplemented
        names = _merged(self._out_bits, other._out_bits)
        out_bits = {name: self._out_bits.get(name, 0) + other._out_bits.get(name, 0) for name in names}
        bases: dict[str, list[int]] = {name: [] for name in _merged(self._in_bits, other._in_bits)}
        for part, raised in ((self, 0), (other, 1)):
            for name in part._in_bits:
                for column in part.columns_of(name):
                    at = dict(zip(part._out_bits, unpack(column, part._out_bits.values()), strict=True))
                    shifted = [at.get(out, 0) << self._out_bits.get(out, 0) * raised for out in names]
                    bases[name].append(pack(shifted, out_bits.values()))
        columns = [column for of_dim in bases.values() for column in of_dim]
        return self._raw(columns, {name: len(of_dim) for name, of_dim in bases.items()}, out_bits)

    def left_divide(self, tile: LinearLayout) -> LinearLayout:
        """Return the layout of tiles: the `rest` with ``tile * rest == self``.

        Raises
        ------
        LayoutError
            If there is none: the lowest bits are not those of `tile`, or higher ones reach into it. The first basis
            that differs is named.

        Examples
        --------
        >>> layout = LinearLayout({"register": [[1], [2], [16]], "lane": [[4], [8]]}, {"dim0": 32})
        >>> layout.left_divide(LinearLayout.identity(4, "register", "dim0"))
        LinearLayout({'register': [[4]], 'lane': [[1], [2]]}, {'dim0': 8})
        """
        for what, tiles, ours in (("in", tile._in_bits, self._in_bits), ("out", tile._out_bits, self._out_bits)):
            for name, bits in tiles.items():
                if bits > ours.get(name, -1):
                    condition = f"the tile's {what}-dimension {name} has size {1 << bits}, the layout"
                    found = f"has {1 << ours[name]}" if name in ours else "has none"
                    raise LayoutError("left_divide", (self, tile), f"{condition} {found}")
        columns, in_bits = [], {}
        lowest = [tile._out_bits.get(name, 0) for name in self._out_bits]
        out_bits = {name: bits - low for (name, bits), low in zip(self._out_bits.items(), lowest, strict=True)}
        for name in self._in_bits:
            inner = [
                dict(zip(tile._out_bits, unpack(c, tile._out_bits.values()), strict=True))
                for c in tile.columns_of(name)
            ]
            for i, column in enumerate(self.columns_of(name)):
                at = unpack(column, self._out_bits.values())
                if i < len(inner):
                    required = tuple(inner[i].get(out, 0) for out in self._out_bits)
                    if at != required:
                        condition = f"{name}={1 << i} must be {required}, as in the tile, got {at}"
                        raise LayoutError("left_divide", (self, tile), condition)
                    continue
                if any(x & ((1 << low) - 1) for x, low in zip(at, lowest, strict=True)):
                    condition = f"{name}={1 << i} -> {at} reaches into the tile"
                    raise LayoutError("left_divide", (self, tile), condition)
                columns.append(pack([x >> low for x, low in zip(at, lowest, strict=True)], out_bits.values()))
            in_bits[name] = self._in_bits[name] - len(inner)
        return self._raw(columns, in_bits, out_bits)

    def invert(self) -> LinearLayout:
        """Return the inverse: outputs -> inputs.

        Raises
        ------
        LayoutError
            If it is not invertible: an input that goes where 0 goes, or an output that is not reached.

        Examples
        --------
        >>> LinearLayout({"i": [1, 3]}, {"o": 4}).invert()
        LinearLayout({'o': [[1], [3]]}, {'i': 4})
        """
        repeated = self.kernel()
        if repeated:
            condition = f"not injective: {repeated[0]} and 0 have one output"
            raise LayoutError("invert", (self,), condition, "take pseudoinvert, which picks one")
        return self.pseudoinvert()

    def pseudoinvert(self) -> LinearLayout:
        """Return a right inverse: outputs -> inputs that are mapped to them, with the earliest bits.

        Of several inputs the one in the span of the first independent bits is taken: ``x -> f(x)`` undone up to the
        kernel.

        Raises
        ------
        LayoutError
            If some output is not reached: the smallest is named.

        Examples
        --------
        >>> LinearLayout({"i": [0, 2, 1, 4]}, {"o": 8}).pseudoinvert()
        LinearLayout({'o': [[4], [2], [8]]}, {'i': 16})
        """
        span = f2.Echelon(self._columns)
        columns = []
        for i in range(sum(self._out_bits.values())):
            mask = span.solve(1 << i)
            if mask is None:
                missed = dict(zip(self._out_bits, unpack(1 << i, self._out_bits.values()), strict=True))
                raise LayoutError("invert", (self,), f"not surjective: no input is mapped to {missed}")
            columns.append(mask)
        return self._raw(columns, self._out_bits, self._in_bits)

    def invert_and_compose(self, other: LinearLayout) -> LinearLayout:
        """Return this map followed by the pseudo-inverse of another: the input of `other` with the same output.

        Raises
        ------
        LayoutError
            If `other` does not reach the values of this one.

        Examples
        --------
        >>> a = LinearLayout({"lane": [[1], [2]]}, {"dim0": 4})
        >>> b = LinearLayout({"register": [[2]], "lane": [[1]]}, {"dim0": 4})
        >>> a.invert_and_compose(b)
        LinearLayout({'lane': [[0, 1], [1, 0]]}, {'register': 2, 'lane': 2})
        """
        self._check_same("invert_and_compose", self._out_bits, other, other._out_bits)
        widths = other._out_bits.values()
        aligned = self.transpose_outs(other._out_bits)
        span, columns = f2.Echelon(other._columns), []
        for i, column in enumerate(aligned._columns):
            at = unpack(column, aligned._out_bits.values())
            fits = all(x >> bits == 0 for x, bits in zip(at, widths, strict=True))
            mask = span.solve(pack(at, widths)) if fits else None
            if mask is None:
                condition = f"the second layout does not reach {at}, where {self._inputs(1 << i)} goes in the first"
                raise LayoutError("invert_and_compose", (self, other), condition)
            columns.append(mask)
        return self._raw(columns, self._in_bits, other._in_bits)

    def sublayout(self, in_dims: Iterable[str], out_dims: Iterable[str]) -> LinearLayout:
        """Return the map from some inputs, the others 0, to some outputs.

        >>> LinearLayout({"i": [[1, 0]], "j": [[1, 1]]}, ["o", "p"]).sublayout(["j"], ["p"])
        LinearLayout({'j': [[1]]}, {'p': 2})
        """
        ins, outs = set(in_dims), set(out_dims)
        for wanted, known in ((ins, self._in_bits), (outs, self._out_bits)):
            _check_names("sublayout", self, wanted <= set(known), sorted(wanted), known)
        kept = {name: bits for name, bits in self._out_bits.items() if name in outs}
        columns = []
        for name in (name for name in self._in_bits if name in ins):
            for column in self.columns_of(name):
                at = dict(zip(self._out_bits, unpack(column, self._out_bits.values()), strict=True))
                columns.append(pack([at[out] for out in kept], kept.values()))
        return self._raw(columns, {name: bits for name, bits in self._in_bits.items() if name in ins}, kept)

    def transpose_ins(self, names: Iterable[str]) -> LinearLayout:
        """Return the same map with its in-dimensions in another order."""
        names = list(names)
        _check_names("transpose_ins", self, sorted(names) == sorted(self._in_bits), names, self._in_bits)
        columns = [column for name in names for column in self.columns_of(name)]
        return self._raw(columns, {name: self._in_bits[name] for name in names}, self._out_bits)

    def transpose_outs(self, names: Iterable[str]) -> LinearLayout:
        """Return the same map with its out-dimensions in another order.

        >>> LinearLayout({"i": [[1, 2]]}, ["o", "p"]).transpose_outs(["p", "o"])
        LinearLayout({'i': [[2, 1]]}, {'p': 4, 'o': 2})
        """
        names = list(names)
        _check_names("transpose_outs", self, sorted(names) == sorted(self._out_bits), names, self._out_bits)
        out_bits = {name: self._out_bits[name] for name in names}
        columns = []
        for column in self._columns:
            at = dict(zip(self._out_bits, unpack(column, self._out_bits.values()), strict=True))
            columns.append(pack([at[name] for name in names], out_bits.values()))
        return self._raw(columns, self._in_bits, out_bits)

    def reshape_ins(self, in_dims: Mapping[str, int]) -> LinearLayout:
        """Return the same map with its inputs, taken together, split into other dimensions.

        >>> LinearLayout({"thread": [1, 2, 4]}, ["o"]).reshape_ins({"lane": 4, "warp": 2})
        LinearLayout({'lane': [[1], [2]], 'warp': [[4]]}, {'o': 8})
        """
        bits = self._reshaped("reshape_ins", in_dims, self._in_bits)
        return self._raw(self._columns, bits, self._out_bits)

    def reshape_outs(self, out_dims: Mapping[str, int]) -> LinearLayout:
        """Return the same map with its outputs, taken together, split into other dimensions.

        >>> LinearLayout({"i": [1, 4]}, {"o": 8}).reshape_outs({"row": 2, "column": 4})
        LinearLayout({'i': [[1, 0], [0, 2]]}, {'row': 2, 'column': 4})
        """
        bits = self._reshaped("reshape_outs", out_dims, self._out_bits)
        return self._raw(self._columns, self._in_bits, bits)

    def flatten_ins(self, name: str = "index") -> LinearLayout:
        """Return the same map of one input: all taken together."""
        return self._raw(self._columns, {name: len(self._columns)}, self._out_bits)

    def flatten_outs(self, name: str = "index") -> LinearLayout:
        """Return the same map to one output: all taken together."""
        return self._raw(self._columns, self._in_bits, {name: sum(self._out_bits.values())})

    def _reshaped(self, operation: str, dims: Mapping[str, int], now: dict[str, int]) -> dict[str, int]:
        bits = {name: log2_size(operation, name, size) for name, size in dims.items()}
        if sum(bits.values()) != sum(now.values()):
            condition = f"sizes must multiply to {1 << sum(now.values())}, got {1 << sum(bits.values())}"
            raise LayoutError(operation, (self, dict(dims)), condition)
        return bits

    def _check_same(
        self, operation: str, mine: Mapping[str, int], other: LinearLayout, theirs: Mapping[str, int]
    ) -> None:
        if set(mine) != set(theirs):
            condition = f"dimensions must have the same names, got {', '.join(mine)} and {', '.join(theirs)}"
            raise LayoutError(operation, (self, other), condition)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LinearLayout):
            return self._columns == other._columns and all(
                list(mine.items()) == list(theirs.items())
                for mine, theirs in ((self._in_bits, other._in_bits), (self._out_bits, other._out_bits))
            )
        return NotImplemented

    def __hash__(self) -> int:
        return hash((self._columns, *self._in_bits.items(), *self._out_bits.items()))

    def __repr__(self) -> str:
        return f"LinearLayout({self.bases!r}, {self.out_dims!r})"

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} (size {size})" for name, size in self.out_dims.items())
        if not self._in_bits:
            return f"(empty layout with out-dims [{sizes}])" if sizes else "(empty layout)"
        lines = []
        for name, of_dim in self.bases.items():
            if not of_dim:
                lines.append(f" - {name} is a size 1 dimension")
            for i, basis in enumerate(of_dim):
                lines.append(f" {' ' if i else '-'} {name}={1 << i} -> ({', '.join(map(str, basis))})")
        return "\n".join([*lines, f"where out dims are: [{sizes}]"])


def _merged(a: Iterable[str], b: Iterable[str]) -> list[str]:
    """Return the union of two lists of names, in the order of both if they agree on their common names."""
    first, second = list(a), list(b)
    merged: list[str] = []
    i = j = 0
    while i < len(first) and j < len(second):
        if first[i] not in second:
            merged.append(first[i])
            i += 1
        elif second[j] not in first:
            merged.append(second[j])
            j += 1
        else:
            merged.append(first[i])
            i, j = i + 1, j + 1
    return list(dict.fromkeys([*merged, *first, *second]))


def _check_names(operation: str, layout: LinearLayout, right: bool, names: Sequence[str], known: Iterable[str]) -> None:
    if not right:
        condition = f"need dimensions of {', '.join(known)}, each once, got {', '.join(names)}"
        raise LayoutError(operation, (layout,), condition)


def _basis(basis: Sequence[int] | int) -> tuple[int, ...]:
    return (basis,) if isinstance(basis, int) else tuple(basis)


def _smallest_sizes(rows: Mapping[str, list[tuple[int, ...]]], names: tuple[str, ...]) -> dict[str, int]:
    bases = [basis for of_dim in rows.values() for basis in of_dim if len(basis) == len(names)]
    return {name: 1 << max((basis[i].bit_length() for basis in bases), default=0) for i, name in enumerate(names)}
