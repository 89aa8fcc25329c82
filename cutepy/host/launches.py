"""What is done for tensors of one description, found once and looked up by all later calls."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import torch

Launch = TypeVar("Launch")

_MOST = 4096


class Launches(dict[tuple[Any, ...], Launch]):
    """Launches by all that decides them; where there are too many, all are forgotten."""

    def keep(self, key: tuple[Any, ...], launch: Launch) -> Launch:
        """Keep what was found; gives it."""
        if len(self) >= _MOST:
            self.clear()
        self[key] = launch
        return launch


def described(*values: object) -> list[Any]:
    """Give all of tensors that decides what is launched: but for addresses, of what these are multiples, up to 16."""
    key: list[Any] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            key += (value.shape, value.stride(), value.dtype, value.device, math.gcd(value.data_ptr(), 16))
        else:
            key.append(type(value))
    return key
