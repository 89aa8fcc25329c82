"""Epilogues of products as Python functions: `cutepy.epilogue`, and the functions to write them with.

Examples
--------
>>> import cutepy
>>> from cutepy.epilogues import Row, Scalar, Tile, silu
>>> @cutepy.epilogue
... def swiglu(acc, bias: Row, scale: Scalar, residual: Tile):
...     gate, up = acc.interleaved(2)
...     return silu(gate * scale + bias) * up + residual
>>> swiglu.operands[0]
Operand(name='bias', shape='row', type='f32', width=2)
"""

from cutepy.epilogues.errors import EpilogueError as EpilogueError
from cutepy.epilogues.functions import (
    ACTIVATIONS as ACTIVATIONS,
    amax as amax,
    clamp as clamp,
    cos as cos,
    dropout as dropout,
    erf as erf,
    exp as exp,
    exp2 as exp2,
    floor as floor,
    geglu as geglu,
    geglu_tanh as geglu_tanh,
    gelu as gelu,
    gelu_tanh as gelu_tanh,
    glu as glu,
    identity as identity,
    leaky_relu as leaky_relu,
    log as log,
    log2 as log2,
    maximum as maximum,
    minimum as minimum,
    reglu as reglu,
    relu as relu,
    relu_squared as relu_squared,
    rsqrt as rsqrt,
    sigmoid as sigmoid,
    silu as silu,
    sin as sin,
    softplus as softplus,
    sqrt as sqrt,
    sum_of_squares as sum_of_squares,
    swiglu as swiglu,
    tanh as tanh,
    tanh_approx as tanh_approx,
    uniform as uniform,
)
from cutepy.epilogues.graph import Graph as Graph, Node as Node, Operand as Operand, Result as Result
from cutepy.epilogues.tracing import (
    Column as Column,
    Epilogue as Epilogue,
    Integer as Integer,
    Row as Row,
    Scalar as Scalar,
    Tile as Tile,
    epilogue as epilogue,
)
from cutepy.epilogues.values import Value as Value, where as where

__all__ = [
    "ACTIVATIONS",
    "Column",
    "Epilogue",
    "EpilogueError",
    "Graph",
    "Integer",
    "Node",
    "Operand",
    "Result",
    "Row",
    "Scalar",
    "Tile",
    "Value",
    "amax",
    "clamp",
    "cos",
    "dropout",
    "epilogue",
    "erf",
    "exp",
    "exp2",
    "floor",
    "geglu",
    "geglu_tanh",
    "gelu",
    "gelu_tanh",
    "glu",
    "identity",
    "leaky_relu",
    "log",
    "log2",
    "maximum",
    "minimum",
    "reglu",
    "relu",
    "relu_squared",
    "rsqrt",
    "sigmoid",
    "silu",
    "sin",
    "softplus",
    "sqrt",
    "sum_of_squares",
    "swiglu",
    "tanh",
    "tanh_approx",
    "uniform",
    "where",
]
