"""What is not served."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn


class NotServedError(NotImplementedError):
    """A part of the CUDA interface that the simulated device does not have was used."""


def not_served(name: str) -> Callable[..., Any]:
    """Return a function that refuses by name."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise NotServedError(
            f"{name} is not served on the simulated cuda device; use what simulates (docs: The simulator), "
            "or run this on a GPU"
        )

    refuse.__name__ = refuse.__qualname__ = name.rpartition(".")[2]
    return refuse
