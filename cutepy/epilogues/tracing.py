"""`epilogue`: trace a Python function by one run on recording values, and keep the graph."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, ClassVar

from cutepy.epilogues.constants import number_for
from cutepy.epilogues.errors import EpilogueError, Line, raising_line
from cutepy.epilogues.graph import Graph, Operand
from cutepy.epilogues.operations import Shape, Type
from cutepy.epilogues.trace import Trace
from cutepy.epilogues.values import Value, numpys_refusal


class Scalar(Value):
    """Annotation of a number: a Python float at each call, or a tensor of one element on the device."""

    kind: ClassVar[tuple[Shape, Type]] = ("scalar", "f32")


class Integer(Value):
    """Annotation of a 32-bit integer: a Python int at each call, or an integer tensor of one element on the device."""

    kind: ClassVar[tuple[Shape, Type]] = ("scalar", "i32")


class Row(Value):
    """Annotation of a row: a tensor (N,) of floats, one for each column of the value it is combined with.

    Where the product is a batch, (..., N) with the batch's extents has a row for each of its products.
    """

    kind: ClassVar[tuple[Shape, Type]] = ("row", "f32")


class Column(Value):
    """Annotation of a column: a tensor (M,) of floats, one for each row."""

    kind: ClassVar[tuple[Shape, Type]] = ("column", "f32")


class Tile(Value):
    """Annotation of a matrix: a tensor (M, N) of floats, one for each element of the value it is combined with."""

    kind: ClassVar[tuple[Shape, Type]] = ("tile", "f32")


RESERVED = ("a", "activation", "b", "epilogue", "out", "out_dtype", "out_major")
"""Parameter names of `gemm` that no operand may have; a test compares them with its signature.

What only other operations take they refuse themselves (`cutepy.ops.checking`).
"""
_KINDS = {kind.__name__: kind.kind for kind in (Scalar, Integer, Row, Column, Tile)}


class Epilogue:
    """Function of a product's fp32 accumulators, applied before the store; made by `cutepy.epilogue`.

    Within another epilogue it is a function of values. With tensors it is the reference: the same graph in torch, in
    fp32, differentiable. Two are equal if they compute the same.

    Attributes
    ----------
    graph : Graph
    text, line : str
        The graph's.
    name : str
    function : callable
        That was traced.
    defaults : mapping of str to float
        Of scalars.
    """

    def __init__(self, graph: Graph, name: str, function: Callable[..., Any], defaults: Mapping[str, float]) -> None:
        functools.update_wrapper(self, function)
        self.graph, self.text, self.line, self.name = graph, graph.text, graph.line, name
        self.function, self.defaults = function, dict(defaults)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Epilogue) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"epilogue {self.name}{self.text}"

    def __reduce__(self) -> str:
        """Pickle as functions do, by its name in its module; a copy is itself."""
        return self.function.__qualname__

    def __fx_create_arg__(self, tracer: Any) -> Any:  # noqa: ANN401
        """Become an attribute of the module where torch.fx traces a call with this argument."""
        name = f"_epilogue_{self.name}".replace("<lambda>", "lambda")
        while getattr(tracer.root, name, self) != self:
            name += "_"
        setattr(tracer.root, name, self)
        return tracer.create_node("get_attr", name, (), {})

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Operands beside the accumulators."""
        return self.graph.operands

    def bind(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Bind an argument, or the default, to each operand.

        Raises
        ------
        EpilogueError
            If one is missing, or there is no such operand.
        """
        names = [operand.name for operand in self.operands]
        for name in given:
            if name not in names:
                has = f"it has {', '.join(map(str, self.operands))}" if names else "it has none"
                raise EpilogueError(f"{self.name} has no operand {name}; {has}")
        for operand in self.operands:
            if given.get(operand.name) is None and operand.name not in self.defaults:
                raise EpilogueError(f"{self.name} needs its operand {operand!s}; pass {operand.name}=")
        return {name: self.defaults[name] if given.get(name) is None else given[name] for name in names}

    def pack(self, results: Any) -> Any:  # noqa: ANN401
        """Return results in the function's form: one, a tuple, or a dict."""
        names = [result.name for result in self.graph.results]
        if names == [""]:
            return results[0]
        return tuple(results) if names[0] == "0" else dict(zip(names, results, strict=True))

    def __call__(self, acc: Any, /, *operands: Any, **named: Any) -> Any:  # noqa: ANN401
        """Compute from values, within another epilogue, or from tensors: accumulators (..., M, N) and operands."""
        if isinstance(acc, Value):
            return self.function(acc, *operands, **named)
        from cutepy.epilogues.reference import compute

        if len(operands) > len(self.operands):
            raise EpilogueError(f"{self.name} has {len(self.operands)} operands, got {len(operands)}")
        given = dict(zip((operand.name for operand in self.operands), operands, strict=False))
        if twice := given.keys() & named.keys():
            raise EpilogueError(f"{self.name} got its operand {min(twice)} twice")
        return self.pack(compute(self.graph, acc, self.bind({**given, **named})))


def epilogue(function: Callable[..., Any]) -> Epilogue:
    """Make an epilogue of a function: a decorator.

    The function takes the accumulators, and operands that are annotated `Scalar`, `Integer`, `Row`, `Column` or `Tile`.
    It runs once, now, and its Python code sees no numbers of them. It returns a value, a tuple of them, or a dict.

    Parameters
    ----------
    function : callable
        Scalars may have defaults.

    Raises
    ------
    EpilogueError
        If it does something that an epilogue can't express; the message has the line.

    Examples
    --------
    >>> from cutepy.epilogues import Row, Scalar, epilogue, relu
    >>> @epilogue
    ... def scaled(acc, bias: Row, scale: Scalar = 1.0):
    ...     return relu(acc * scale + bias)
    >>> scaled
    epilogue scaled(bias: row, scale: scalar)
      v0 = acc()
      v1 = operand('bias')
      v2 = operand('scale')
      v3 = mul(v0, v2)
      v4 = add(v3, v1)
      v5 = const(0.0)
      v6 = le(v4, v5)
      v7 = where(v6, v5, v4)
      return v7
    """
    torch = sys.modules.get("torch")  # without torch.compile nothing is compiled
    if torch is not None and torch.compiler.is_dynamo_compiling():
        raise EpilogueError(
            "an epilogue can't be made within a function that torch.compile traces, which can't follow how; decorate "
            "it outside, and pass what differs from call to call as an operand"
        )
    if not isinstance(function, FunctionType):
        raise EpilogueError(f"an epilogue is made of a function, got {function!r}; write `def f(acc, ...)`")
    code = function.__code__
    line = Line(code.co_filename, code.co_firstlineno, function.__name__)
    operands, defaults = _declared(function, line)
    trace = Trace(operands, line)
    acc = Value(trace, trace.add("acc"))
    given = {operand.name: Value(trace, trace.add("operand", value=operand.name)) for operand in operands}
    returned = run(lambda: function(acc, **given), line)
    named = _named(returned, line)
    for name, value in named:
        _check_result(name, value, trace, line)
    try:
        graph = trace.graph([(name, value.index) for name, value in named])
    except EpilogueError as error:
        raise error if error.line else EpilogueError.at(str(error), line) from None
    return Epilogue(graph, function.__name__, function, defaults)


def run(call: Callable[[], object], line: Line) -> object:
    """Call a function of values; errors of Python and NumPy about these are raised with the line."""
    try:
        return call()
    except TypeError as error:
        if Value.__name__ not in str(error):
            raise
        raise EpilogueError.at(_refusal(str(error)), raising_line(error) or line) from error


def _refusal(message: str) -> str:
    """Describe the supported operations, where Python or NumPy refused a value."""
    if "ufunc" in message:
        return numpys_refusal("NumPy")
    return f"{message}; a value takes operators, comparisons and cutepy.epilogues' functions"


def _declared(function: FunctionType, line: Line) -> tuple[list[Operand], dict[str, float]]:
    parameters = list(inspect.signature(function).parameters.values())
    by_place = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    if not parameters or parameters[0].kind not in by_place:
        raise EpilogueError.at("an epilogue takes the accumulators first: `def f(acc, ...)`", line)
    operands, defaults = [], {}
    for parameter in parameters[1:]:
        operand = _operand(parameter, line)
        operands.append(operand)
        if parameter.default is not parameter.empty:
            defaults[operand.name] = _default(operand, parameter.default, line)
    return operands, defaults


def _operand(parameter: inspect.Parameter, line: Line) -> Operand:
    """Return the operand that a parameter declares."""
    name, annotation = parameter.name, parameter.annotation
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise EpilogueError.at(
            f"each operand is a parameter of its own, such as `{name}: Row`, got `{str(parameter).partition(':')[0]}`; "
            "write one for each",
            line,
        )
    # a postponed or quoted annotation is text
    kind = (
        annotation.strip("'\"").rpartition(".")[2]
        if isinstance(annotation, str)
        else getattr(annotation, "__name__", "")
    )
    if kind not in _KINDS:
        raise EpilogueError.at(
            f"operand {name} must be annotated {', '.join(_KINDS)}, such as `{name}: Row`, "
            f"got {'nothing' if annotation is parameter.empty else annotation}",
            line,
        )
    if parameter.kind == parameter.POSITIONAL_ONLY:
        raise EpilogueError.at(f"operands are passed by name, so {name} must come after the `/`, or without one", line)
    if not re.fullmatch(r"[a-zA-Z]\w*", name, re.ASCII):
        raise EpilogueError.at(
            f"operands are named by ASCII letters, digits and _, and begin with a letter, got {name}", line
        )
    if name in RESERVED:
        raise EpilogueError.at(
            f"no operand can be named {name}, since `gemm` takes {', '.join(RESERVED)} itself; give it another name",
            line,
        )
    return Operand(name, *_KINDS[kind])


def _default(operand: Operand, given: object, line: Line) -> float:
    """Check an operand's default."""
    number = number_for(operand.name, operand.type, given, line) if operand.shape == "scalar" else None
    if number is None:
        kind = "an integer" if operand.type == "i32" else "a number"
        raise EpilogueError.at(
            f"operand {operand.name} must have {kind} as its default and be a scalar, or have none, got "
            f"{given!r} of a {operand.shape}",
            line,
        )
    return number


def _named(returned: object, line: Line) -> list[tuple[str, Any]]:
    if isinstance(returned, dict):
        for name in returned:
            # names that begin with digits are reserved for results of a tuple
            if not isinstance(name, str) or not re.fullmatch(r"[a-zA-Z_]\w*", name, re.ASCII):
                raise EpilogueError.at(
                    f"results are named by ASCII letters, digits and _, text that begins with no digit, got {name!r}",
                    line,
                )
        named = list(returned.items())
    elif isinstance(returned, (tuple, list)):
        named = [(str(n), value) for n, value in enumerate(returned)]
    else:
        named = [("", returned)]
    if not named:
        raise EpilogueError.at(f"an epilogue gives one result at least, got {returned!r}", line)
    return named


def _check_result(name: str, value: object, trace: Trace, line: Line) -> None:
    which = f"result {name}" if name else "its result"
    if not isinstance(value, Value) or value.trace is not trace:
        raise EpilogueError.at(f"{which} must be a value that it computed, got {value!r}; return one", line)
    node = value.node
    if node.op == "reduce":
        return
    if node.shape != "tile" or node.type != "f32":
        what = {"f32": "floats", "i32": "integers", "bool": "truth values"}[node.type]
        raise EpilogueError.at(
            f"{which} must be floats of each element of a tile, or their reduction, got {what} of a {node.shape}; "
            + (
                "add 0.0 to them" if node.shape == "tile" else "it doesn't depend on the product, so compute it outside"
            ),
            node.line or line,
        )
