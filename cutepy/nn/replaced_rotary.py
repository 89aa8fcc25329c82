"""Rotary embeddings in modules of other classes: calls of a function `apply_rotary_pos_emb` become cutepy's.

Hugging Face's modules call a function of their own file. A module gets a class whose `forward` has the same code, and
another function of that name.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any

import torch

from cutepy.nn.code_names import code_of, names_of
from cutepy.nn.derived_classes import derives
from cutepy.ops.normalising import DTYPES
from cutepy.ops.operation import past_modes
from cutepy.ops.rotaries import rotary

FUNCTION = "apply_rotary_pos_emb"
"""Name of the function that rotates queries and keys (batch, heads, tokens, head) by cosines and sines."""


class Rotation:
    """Function (q, k, cos, sin) -> rotated q and k; it computes by `cutepy.ops.rotary` if that takes the arguments.

    Calls with other arguments, shapes or dtypes are passed on.

    Parameters
    ----------
    theirs : callable
        The function in whose place it stands.
    """

    def __init__(self, theirs: Callable[..., Any]) -> None:
        self.theirs = theirs

    @past_modes
    def __call__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        *others: Any,  # noqa: ANN401
        **named: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Rotate: q, k (batch, heads, tokens, head), cos, sin (1 or batch, tokens, head), whose halves are equal."""
        if others or named or not (_takes(q, cos, sin) and _takes(k, cos, sin)):
            return self.theirs(q, k, cos, sin, *others, **named)
        half = q.shape[-1] // 2
        has_rows = cos.shape[0] != 1  # for each sequence
        cos, sin = (each[..., :half].reshape(-1, half) for each in (cos, sin))
        return _rotated(q, cos, sin, has_rows=has_rows), _rotated(k, cos, sin, has_rows=has_rows)


def _takes(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> bool:
    """Return whether cutepy rotates heads."""
    if x.dtype not in DTYPES or cos.dtype not in DTYPES or sin.dtype not in DTYPES or x.dim() != 4:
        return False
    if cos.requires_grad or sin.requires_grad:  # of learned frequencies
        return False
    of_x, of_cos = x.shape, cos.shape
    if len(of_cos) != 3 or of_cos != sin.shape or of_x[3] % 2:
        return False
    return of_cos[0] in (1, of_x[0]) and of_cos[1] == of_x[2] and of_cos[2] == of_x[3]


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, has_rows: bool) -> torch.Tensor:
    batch, heads, tokens, head = x.shape
    x = x.transpose(1, 2)
    if not has_rows:
        return rotary(x, cos, sin).transpose(1, 2)
    # One sequence, whose tokens have a row of the tables each.
    x = x.reshape(1, batch * tokens, heads, head)
    return rotary(x, cos, sin).view(batch, tokens, heads, head).transpose(1, 2)


def rotates(module: torch.nn.Module) -> bool:
    """Return whether a module's own code calls a function that is known here."""
    return FUNCTION in {*names_of(type(module))}


def adopt_rotation(module: torch.nn.Module, model: torch.nn.Module) -> str | None:
    """Replace the rotary embedding of a module that `rotates`, in place; return the reason if that is refused."""
    kind = type(module)
    theirs = code_of(kind).__globals__.get(FUNCTION)
    if isinstance(theirs, Rotation):
        return "it is cutepy's"
    if not callable(theirs):
        return f"{kind.__name__} has no function {FUNCTION} of its file"
    if reason := _refusal(theirs) or _refusal_of_tables(model):
        return reason
    if _with(kind.forward, Rotation(theirs)) is None:
        return f"the forward of {kind.__name__} is decorated in a way that is not known"
    module.__class__ = _rotating(kind, theirs)
    return None


@derives
def _rotating(kind: type[torch.nn.Module], theirs: Callable[..., Any]) -> type[torch.nn.Module]:
    """Derive from `kind` the class whose `forward` calls cutepy's function in the place of theirs."""
    names = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (kind,), {**names, "forward": _with(kind.forward, Rotation(theirs))})


def _with(function: Callable[..., Any], rotation: Rotation) -> Callable[..., Any] | None:
    """Make a function of the same code that calls the rotation, with its decorators; None if they are unknown."""
    if not isinstance(function, FunctionType):
        return None
    inner, names, cells = getattr(function, "__wrapped__", None), function.__globals__, function.__closure__
    if inner is None:
        names = names | {FUNCTION: rotation}
    else:
        own = _with(inner, rotation)
        if own is None or not any(cell.cell_contents is inner for cell in cells or ()):
            return None
        cells = tuple(CellType(own) if cell.cell_contents is inner else cell for cell in cells or ())
    made = FunctionType(function.__code__, names, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__doc__, made.__qualname__ = function.__doc__, function.__qualname__
    if inner is not None:
        made.__wrapped__ = own  # type: ignore[attr-defined]
    return made


def _refusal(theirs: Callable[..., Any]) -> str | None:
    """Call a function, and return the reason why it does not compute `cutepy.ops.rotary`; None if it does."""
    chance = torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, heads, 3, 8, generator=chance) for heads in (4, 2))
    cos, sin = (torch.randn(2, 3, 4, generator=chance).repeat(1, 1, 2) for _ in range(2))
    try:
        found = theirs(q, k, cos, sin)
    except Exception as error:  # of whatever somebody's function does
        return f"{FUNCTION} does not take queries, keys, cosines and sines alone: {type(error).__name__}"
    wanted = Rotation(theirs)(q, k, cos, sin)
    if len(found) == 2 and all(torch.allclose(x, y, atol=1e-5) for x, y in zip(found, wanted, strict=True)):
        return None
    return f"{FUNCTION} computes something else than cutepy.ops.rotary"


def _refusal_of_tables(model: torch.nn.Module) -> str | None:
    """Return the reason why a model's cosines may not have two equal halves; None if they have."""
    found = [module for module in model.modules() if "RotaryEmbedding" in type(module).__name__]
    if not found:
        return "the model has no RotaryEmbedding whose cosines could be tried"
    for module in found:
        device = next((each.device for each in module.buffers()), torch.device("cpu"))
        try:
            with torch.no_grad():
                tables = module(torch.zeros(1, 3, 8, device=device), torch.arange(3, device=device)[None])
            halves = [each.chunk(2, -1) for each in tables]
        except Exception as error:  # of whatever somebody's forward does
            return f"{type(module).__name__} does not take states and positions alone: {type(error).__name__}"
        if not all(torch.equal(*each) for each in halves):
            return f"{type(module).__name__} gives cosines or sines of different halves"
    return None
