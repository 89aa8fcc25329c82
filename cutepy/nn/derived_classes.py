"""Classes that are derived from those of modules, made once for each, whose modules can be copied and pickled."""

from __future__ import annotations

import copyreg
import functools
from collections.abc import Callable
from typing import Any

import torch

Kind = type[torch.nn.Module]


def derives(maker: Callable[..., Kind]) -> Callable[..., Kind]:
    """Keep the classes that a function of a module makes, by its arguments: a decorator.

    A pickle names the function and its arguments, and not the class, which no module has.

    Examples
    --------
    >>> import pickle
    >>> from cutepy.nn.replaced_attention import _replaced_class
    >>> kind = _replaced_class(torch.nn.Identity)
    >>> kind is _replaced_class(torch.nn.Identity), type(pickle.loads(pickle.dumps(kind()))) is kind
    (True, True)
    """
    made: dict[tuple[Any, ...], Kind] = {}

    @functools.wraps(maker)
    def derived(*given: Any) -> Kind:  # noqa: ANN401
        if given not in made:
            made[given] = maker(*given)
            copyreg.pickle(made[given], lambda module: (_blank, (derived, given), module.__getstate__()))
        return made[given]

    return derived


def _blank(maker: Callable[..., Kind], given: tuple[Any, ...]) -> torch.nn.Module:
    """Make a module of a derived class without a state."""
    kind = maker(*given)
    return kind.__new__(kind)
