"""`trace_scores`: trace score and mask functions of attention, as FlexAttention takes them, and keep their graph.

The functions are those of one element: its score, its batch, head, query and key. They use tensors as they like, by
closure, as globals, as arguments or attributes, and index them by what they compute: a torch function mode sees each
use, and makes the tensor a table of the graph.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from cutepy.epilogues.errors import EpilogueError, Line, callers_line
from cutepy.epilogues.functions import mixed, tanh_approx
from cutepy.epilogues.graph import Graph, Table
from cutepy.epilogues.operations import Type
from cutepy.epilogues.trace import Trace
from cutepy.epilogues.tracing import run
from cutepy.epilogues.values import Value, apply_torch, lift

ScoreFunction = Callable[..., Any]
"""`score(s, b, h, i, j, **operands)`: the score of query i and key j of head h in batch b, from s, its scaled product.

Parameters named `queries` and `keys` are given the numbers of queries and keys.
"""
MaskFunction = Callable[..., Any]
"""`mask(b, h, i, j, **operands)`: whether query i sees key j."""

WeightFunction = Callable[..., Any]
"""`weight(b, h, i, j, **operands)`: the factor of the probability of query i and key j, after the softmax."""

SCORE, MASK, WEIGHT = "score", "mask", "weight"
"""Names of a graph's results; what is left as it is has none."""
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class TracedScores(NamedTuple):
    """Graph of a score function and a mask function, and the tensors that are its tables.

    Attributes
    ----------
    graph : Graph
        Its results are named "score", "mask" and "weight".
    tensors : tuple of Tensor
    computes : bool
        True if a function computed with tensors while it was traced, so that their values may decide the graph.
    """

    graph: Graph
    tensors: tuple[torch.Tensor, ...]
    computes: bool = False

    def __bool__(self) -> bool:
        return bool(self.graph.results)


class ScoreTrace(Trace):
    """Record of a score and a mask function so far, with the tensors that they have used."""

    noun = "a score or mask function"
    remedy = "it may use tensors, indexed by integers that it computes, such as `bias[h]`"

    def __init__(self, line: Line) -> None:
        super().__init__((), line)
        self.tensors: list[torch.Tensor] = []

    def table_of(self, tensor: torch.Tensor) -> Table:
        """Return the table of a tensor: the same for each use.

        Raises
        ------
        EpilogueError
            If its elements are of a type that no kernel computes with, or it has none.
        """
        with torch._C.DisableTorchFunction():  # the function did not ask
            return self._table_of(tensor)

    def _table_of(self, tensor: torch.Tensor) -> Table:
        for table, known in zip(self.tables, self.tensors, strict=True):
            if known is tensor:
                return table
        kind: Type = "f32" if tensor.dtype in _FLOATS else "i32" if tensor.dtype in _INTEGERS else "bool"
        if kind == "bool" and tensor.dtype != torch.bool:
            raise EpilogueError.at(
                f"tensors of a score or mask function hold floats, integers or truth values, got {tensor.dtype}; "
                "convert it outside",
                callers_line(),
            )
        if tensor.numel() == 0:
            raise EpilogueError.at(
                f"a tensor without elements is indexed, of shape {tuple(tensor.shape)}", callers_line()
            )
        self.tables.append(Table(f"t{len(self.tables)}", kind, tensor.dim()))
        self.tensors.append(tensor)
        return self.tables[-1]

    def scalar_of(self, given: object) -> int | None:
        """Return the node of a tensor's only element."""
        if isinstance(given, IndexedValue):
            return given.value().index
        if not isinstance(given, torch.Tensor):
            return None
        if given.dim():
            raise EpilogueError.at(
                f"a tensor is used for one element at a time, got one of shape {tuple(given.shape)}; index it by "
                "integers, such as `bias[h]`",
                callers_line(),
            )
        return self.add("gather", value=self.table_of(given).name)


class IndexedValue:
    """A tensor of which some leading indices are given: `bias[b]`, which `[h]` follows."""

    def __init__(self, trace: ScoreTrace, tensor: torch.Tensor, indices: tuple[Value, ...]) -> None:
        self.trace, self.tensor, self.indices = trace, tensor, indices

    def __getitem__(self, index: object) -> Value | IndexedValue:
        """Give further indices: a value once there are as many as dimensions."""
        given = [*index] if isinstance(index, tuple) else [index]
        for each in given:
            if isinstance(each, (slice, list)) or each is None or each is Ellipsis or isinstance(each, bool):
                raise EpilogueError.at(
                    f"a tensor is indexed by one integer for each dimension, got {each!r}; slice it outside",
                    callers_line(),
                )
        added = tuple(lift(self.trace, each) for each in given)
        for value in added:
            if value.node.type != "i32":
                raise EpilogueError.at(
                    f"a tensor is indexed by integers, got {value!r}; use torch.where to choose", callers_line()
                )
        found = IndexedValue(self.trace, self.tensor, (*self.indices, *added))
        if len(found.indices) > self.tensor.dim():
            raise EpilogueError.at(
                f"a tensor of shape {tuple(self.tensor.shape)} takes {self.tensor.dim()} indices, got "
                f"{len(found.indices)}",
                callers_line(),
            )
        return found.value() if len(found.indices) == self.tensor.dim() else found

    def value(self) -> Value:
        """Return the element; there must be an index for each dimension."""
        if len(self.indices) != self.tensor.dim():
            raise EpilogueError.at(
                f"a tensor is used for one element at a time, got {len(self.indices)} indices of one of shape "
                f"{tuple(self.tensor.shape)}; give one for each dimension",
                callers_line(),
            )
        name = self.trace.table_of(self.tensor).name
        return Value(self.trace, self.trace.add("gather", [each.index for each in self.indices], name))

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: object,
        arguments: tuple[Any, ...] = (),
        named: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Compute torch's functions as of its value: a tensor that lacks indices has none."""
        return _computed(function, arguments, named or {})


class _Uses(TorchFunctionMode):
    """Torch functions of values become operations; others are computed as they stand, and `computes` tells of them.

    Nothing is computed of `stand_ins`, nor is their shape told: of what they stand for only elements are known.
    """

    computes = False

    def __init__(self, stand_ins: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.stand_ins = stand_ins

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: object,
        arguments: tuple[Any, ...] = (),
        named: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        named = named or {}
        given = _flat(arguments, named)
        if not any(isinstance(each, (Value, IndexedValue)) for each in given):
            if function is not torch.Tensor.dim and any(each is other for each in given for other in self.stand_ins):
                raise EpilogueError.at(
                    "an operand's elements are read, `bias[h]`, or its only one with another value, `s * factor`; got "
                    "a computation of the operand itself, or of its shape; pass the result as an operand",
                    callers_line(),
                )
            # Reading a tensor's shape or dtype is no computation.
            self.computes |= getattr(function, "__name__", "") not in ("__get__", "size", "dim")
            return function(*arguments, **named)
        return _computed(function, arguments, named)


def _flat(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> list[Any]:
    """List arguments, and the elements of those that are tuples, such as indices."""
    given = [*arguments, *named.values()]
    return [part for each in given for part in (each if isinstance(each, (tuple, list)) else (each,))]


def _computed(function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Compute a torch function of values and tensors."""
    traced = next(each for each in _flat(arguments, named) if isinstance(each, (Value, IndexedValue)))
    trace = traced.trace
    assert isinstance(trace, ScoreTrace)
    name = getattr(function, "__name__", str(function)).partition(".")[0]
    if name in ("__getitem__", "index_select", "select", "take") and isinstance(arguments[0], torch.Tensor):
        if name != "__getitem__":
            raise EpilogueError.at(f"torch's {name} has no counterpart in a kernel; write x[i]", callers_line())
        return IndexedValue(trace, arguments[0], ())[arguments[1]]

    def lifted(given: Any) -> Any:  # noqa: ANN401
        if isinstance(given, (torch.Tensor, IndexedValue)):
            scalar = trace.scalar_of(given)
            assert scalar is not None
            return Value(trace, scalar)
        return given

    values = [lifted(each) for each in arguments]
    by_name = {key: lifted(each) for key, each in named.items()}
    if name.startswith("__") and hasattr(Value, name):
        return getattr(values[0], name)(*values[1:])
    return apply_torch(function, values, by_name)


def soft_cap(cap: float) -> ScoreFunction:
    """Return the score function that bends scores to within `cap`: cap * tanh(s / cap), by one instruction.

    Its error is 2^-11 of a score; `cap * torch.tanh(s / cap)` is exact, and slower.
    """

    def capped(s: Value, b: Value, h: Value, i: Value, j: Value) -> Any:  # noqa: ANN401
        return cap * tanh_approx(s * (1.0 / cap))

    return capped


def alibi(slopes: torch.Tensor) -> ScoreFunction:
    """Return the score function that subtracts a slope of the distance of the key from the query's position.

    Positions are aligned at the end: the last query is at the last key.

    Parameters
    ----------
    slopes : Tensor (heads,) or (batch, heads)
    """

    def biased(s: Value, b: Value, h: Value, i: Value, j: Value, queries: Value, keys: Value) -> Any:  # noqa: ANN401
        slope = slopes[h] if slopes.dim() == 1 else slopes[b, h]
        # Floats of rows and of columns are converted once for each, where those of a difference are for each score.
        return s - slope * abs((i + (keys - queries)).float() - j.float())

    return biased


def dropout(probability: float, *seeds: torch.Tensor) -> WeightFunction:
    """Return the weight function that drops keys with a probability, and scales the others to make up for them.

    What is dropped follows from two seeds and the place: batch, head, query and key.

    Parameters
    ----------
    probability : float
    seeds : Tensor (), int32
        Two.
    """

    def weight(b: Value, h: Value, i: Value, j: Value) -> Any:  # noqa: ANN401
        if probability >= 1.0:
            return 0.0
        place = mixed(i ^ mixed(h ^ mixed(b ^ mixed(lift(b.trace, seeds[0])) ^ seeds[1])))
        # Of probabilities beside 1 the largest number alone is kept.
        kept = mixed(j ^ place) >= min(round(probability * 2**32), 2**32 - 1) - 2**31
        return torch.where(kept, 1.0 / (1.0 - probability), 0.0)

    return weight


def trace_scores(
    score: ScoreFunction | Sequence[ScoreFunction] | None = None,
    mask: MaskFunction | None = None,
    operands: Mapping[str, Any] | None = None,
    weight: WeightFunction | None = None,
    stand_ins: Sequence[torch.Tensor] = (),
) -> TracedScores:
    """Trace a score function, a mask function and a weight function to one graph, by one run of each.

    Parameters
    ----------
    score : callable or sequence of callables, optional
        As `torch.nn.attention.flex_attention` takes it; of several each takes the result of the one before.
    mask : callable, optional
        As `torch.nn.attention.flex_attention` takes it.
    operands : mapping of str to Tensor or number, optional
        Passed by name to functions that have such parameters.
    weight : callable, optional
        Of the place of a probability, as `dropout`.
    stand_ins : sequence of Tensor
        Those that stand for others of their dtype and number of dimensions, with other extents and elements.

    Raises
    ------
    EpilogueError
        If a function does something that no kernel can compute; the message has the line.

    Examples
    --------
    >>> import torch
    >>> slopes = torch.tensor([0.5, 0.25])
    >>> print(trace_scores(lambda s, b, h, i, j: s + slopes[h] * (j - i), lambda b, h, i, j: j <= i).graph)
    (t0: f32[1])
      v0 = acc()
      v1 = head_index()
      v2 = row_index()
      v3 = column_index()
      v4 = gather(v1, 't0')
      v5 = sub(v3, v2)
      v6 = float(v5)
      v7 = mul(v4, v6)
      v8 = add(v0, v7)
      v9 = le(v3, v2)
      return score: v8, mask: v9
    """
    given = dict(operands or {})
    scores = () if score is None else (score,) if callable(score) else tuple(score)
    functions = [(SCORE, each) for each in scores]
    functions += [(name, each) for name, each in ((MASK, mask), (WEIGHT, weight)) if each is not None]
    trace = ScoreTrace(_line_of(functions[0][1]) if functions else Line("<unknown>", 0, ""))
    acc = Value(trace, trace.add("acc"))
    places = [Value(trace, trace.add(op)) for op in ("batch_index", "head_index", "row_index", "column_index")]
    counts = {"queries": "row_count", "keys": "column_count"}
    read: set[str] = set()
    uses = _Uses(stand_ins)
    found: dict[str, Value] = {SCORE: acc}
    for name, function in functions:
        arguments = [found[SCORE], *places] if name == SCORE else places
        named = {}
        for parameter in _parameters(function)[len(arguments) :]:
            if parameter in given:
                named[parameter] = given[parameter]
                read.add(parameter)
            elif parameter in counts:
                named[parameter] = Value(trace, trace.add(counts[parameter]))
        own = _line_of(function)
        _check_parameters(name, function, arguments, named, own)
        with uses:
            returned = run(functools.partial(function, *arguments, **named), own)
        found[name] = _result(name, returned, trace, own)
    if unread := given.keys() - read:
        raise EpilogueError(
            f"operand {min(unread)} is read by neither function; leave it out, or name a parameter so, such as "
            f"`def score(s, b, h, i, j, {min(unread)})`"
        )
    unchanged = {SCORE: found[SCORE].index == acc.index, MASK: MASK in found and found[MASK].node.value is True}
    graph = trace.graph([(name, value.index) for name, value in found.items() if not unchanged.get(name)])
    _check(graph)
    names = {table.name for table in graph.tables}
    kept = [tensor for table, tensor in zip(trace.tables, trace.tensors, strict=True) if table.name in names]
    return TracedScores(graph, tuple(kept), uses.computes)


def _check_parameters(
    name: str, function: Callable[..., Any], arguments: list[Value], named: Mapping[str, Any], line: Line
) -> None:
    """Refuse a function that takes others."""
    try:
        inspect.signature(function).bind(*arguments, **named)
    except TypeError as error:
        places = "s, b, h, i, j" if name == SCORE else "b, h, i, j"
        raise EpilogueError.at(
            f"a {name} function must take ({places}), and operands that are passed by name: {error}", line
        ) from None
    except ValueError:  # it does not say what it takes
        return


def _parameters(function: Callable[..., Any]) -> list[str]:
    """List the names of parameters; none where there is no way to tell."""
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def _line_of(function: Any) -> Line:  # noqa: ANN401
    """Return where a function begins, as far as it is known."""
    if not callable(function):
        got, remedy = repr(function), "pass a function"
        if isinstance(function, torch.Tensor):
            got, remedy = "a tensor x", "pass mask=lambda b, h, i, j: x[i, j], or a score, s + x[i, j]"
        raise EpilogueError(f"a score or mask function must be callable, got {got}; {remedy}")
    plain = inspect.unwrap(getattr(function, "func", function))
    code = getattr(plain, "__code__", None)
    name = getattr(plain, "__name__", type(plain).__name__)
    return Line("<unknown>", 0, name) if code is None else Line(code.co_filename, code.co_firstlineno, name)


def _result(name: str, returned: Any, trace: ScoreTrace, line: Line) -> Value:  # noqa: ANN401
    """Return a function's result as a value of the type that it must have."""
    if isinstance(returned, (bool, int, float, Value, torch.Tensor, IndexedValue)):
        value = lift(trace, returned)
        if name in (SCORE, WEIGHT) and value.node.type != "bool":
            return value if value.node.type == "f32" else value * 1.0
        if name == MASK and value.node.type == "bool":
            return value
        what = {"f32": "floats", "i32": "integers", "bool": "truth values"}[value.node.type]
    else:
        what = repr(returned)
    wanted = "whether the key is seen, a truth value; compare" if name == MASK else f"a {name}, a number"
    raise EpilogueError.at(f"a {name} function returns {wanted}, got {what}", line)


def _check(graph: Graph) -> None:
    """Refuse the operations of an epilogue that a score function lacks."""
    for node in graph.nodes:
        if node.op in ("reduce", "part", "product_index"):
            what = {"reduce": "reductions", "part": "parts of columns", "product_index": "indices of products"}[node.op]
            raise EpilogueError.at(f"a score or mask function computes each element by itself, got {what}", node.line)
