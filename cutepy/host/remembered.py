"""What `functools.lru_cache` remembers: results of an earlier state of a program, which Python shows to nobody."""

import functools
import gc
from types import BuiltinFunctionType, FunctionType
from typing import Any

from cutepy.host.naming import is_foreign

OF_CACHES = frozenset(functools.WRAPPER_ASSIGNMENTS) | {"__type_params__", "__wrapped__", "cache_parameters"}
"""What `functools.lru_cache` writes on what it returns."""


def behind_cache(cached: Any) -> tuple[Any, list[tuple[object, object]]]:  # noqa: ANN401
    """Give the function behind `functools.lru_cache`, and (arguments, result) of each call that it remembers.

    Python shows them to its garbage collector alone: type, then arguments, result and type of each, then a dict, which
    holds the results itself where their number is not limited, and the function. (None, []) where it is otherwise.
    """
    held = gc.get_referents(cached)
    start = 1 if held and held[0] is type(cached) else 0
    limited = cached.cache_parameters()["maxsize"] is not None
    count = cached.cache_info().currsize if limited else 0
    table, called, mark, *_ = [*held[start + 3 * count :], None, None, None]
    results = [(held[at], held[at + 1]) for at in range(start, start + 3 * count, 3)]
    if not isinstance(table, dict) or not callable(called):
        return None, []
    if not limited:
        results = list(table.items())
    # `mark` stands between positional and named arguments.
    return called, [(_unmarked(key, mark), result) for key, result in results]


def follows_from_arguments(function: Any) -> bool:  # noqa: ANN401
    """Tell whether a function is known to give the same for the same arguments: our own, and pinned packages'."""
    if not isinstance(function, FunctionType):
        return isinstance(function, BuiltinFunctionType)
    return str(function.__globals__.get("__name__")).startswith("cutepy.") or not is_foreign(function)


def _unmarked(key: object, mark: object) -> object:
    if isinstance(key, tuple):
        return tuple(Ellipsis if item is mark else item for item in key)
    return key
