"""Examples of a function's arguments: conversion to parameters, and to the DSL's examples."""

from __future__ import annotations

import copy
import functools
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from cutepy.host.arguments import Parameter
from cutepy.host.specs import PointerSpec, TensorSpec
from cutepy.runtime.packed import plain_number

_SETTINGS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "arch": ((str, NoneType), 'a name such as "sm_100a", or None'),
    "options": ((str,), "the compiler's options in one string"),
    "cache": ((bool, NoneType), "True, False or None"),
    "sources": ((tuple, list), "a tuple of names of packages and paths"),
    "verify": ((bool, NoneType), "True, False or None"),
    "timeline": ((bool, NoneType), "True, False or None"),
}


@dataclass(frozen=True)
class Example:
    """Example of one parameter of a function.

    Attributes
    ----------
    parameter : Parameter or None
        Parameter that callers pass; None for constexpr values, and for streams, which compiled code asks for.
    value : object
        Value for the DSL, with a TensorSpec or PointerSpec in place of memory.
    keyword_only : bool
        True if the function takes it by name only.
    """

    parameter: Parameter | None
    value: object = None
    keyword_only: bool = False

    @property
    def is_stream(self) -> bool:
        """True if the parameter is the stream of a call."""
        return isinstance(self.value, _Stream)


class _Stream:
    """Placeholder of the stream that is current at a call."""


def bind(
    function: Callable[..., Any],
    arguments: Sequence[object],
    named: Mapping[str, object],
    settings: Mapping[str, object] | None = None,
) -> dict[str, Example]:
    """Bind an example to each parameter of a function; a stream parameter needs none.

    A parameter is for a stream if its annotation, its example or its default says so, or if its name does and nothing
    else is said of it.

    Parameters
    ----------
    function : callable
    arguments, named
        The examples.
    settings : mapping, optional
        Values of the caller's own parameters whose names a parameter of the function may have, too.

    Raises
    ------
    TypeError
        If an example is missing, superfluous, or nothing that can be compiled for.
    """
    if isinstance(function, functools.partial):
        raise TypeError("a functools.partial can't be compiled; pass its function, and its arguments as examples")
    signature = inspect.signature(function)
    _check_self(function)
    scope = _scope(function)
    streams = {name for name, p in signature.parameters.items() if _is_for_stream(name, p, scope)}
    by_position = _placed(function, signature, streams, arguments)
    if twice := by_position.keys() & named.keys():
        raise TypeError(f"{_name(function)} got two examples of {', '.join(sorted(twice))}")
    for name, value in (settings or {}).items():
        _check_setting(name, value, function, None if name in by_position else signature.parameters.get(name))
    given = {**by_position, **named}
    if unknown := given.keys() - signature.parameters.keys():
        raise TypeError(f"{_name(function)} has no parameter {', '.join(sorted(unknown))}")
    examples: dict[str, Example] = {}
    extents: dict[int, str] = {}
    for name, parameter in signature.parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"{_name(function)} must name its parameters to be compiled, got *{name}")
        only = parameter.kind is parameter.KEYWORD_ONLY
        value = given.get(name, parameter.default)
        says = name in streams and _says_stream(parameter.annotation, scope)
        none = value is parameter.empty or (value is None and (says or name not in given))
        if _is_stream_value(value) or (name in streams and none):
            examples[name] = Example(None, _Stream(), only)
        elif value is parameter.empty:
            what = "a TensorSpec, a tensor, a number or None"
            what += _by_position(name, parameter) if name in (settings or {}) else ""
            raise TypeError(f"{_name(function)} needs an example of {name}: {what}")
        elif says:
            raise TypeError(f"{name} is a stream, the one that is current at each call; got an example {value!r}")
        else:
            examples[name] = _example(name, value, parameter.annotation, extents, keyword_only=only)
    if not any(_specs(parameters(examples.values()))):
        # Compiled code gets the current stream from a tensor's device: without a tensor, callers pass it.
        passed = {name: Parameter(name, "stream") for name, example in examples.items() if example.is_stream}
        examples.update({name: replace(examples[name], parameter=stream) for name, stream in passed.items()})
    return examples


def parameters(examples: Iterable[Example]) -> tuple[Parameter, ...]:
    """List the parameters that callers pass."""
    return tuple(example.parameter for example in examples if example.parameter is not None)


def classes(examples: Mapping[str, Example]) -> list[str]:
    """List the names of the parameters whose examples are classes, which are compiled in, however annotated."""
    return [name for name, e in examples.items() if e.parameter is None and isinstance(e.value, type)]


def to_dsl(examples: Mapping[str, Example]) -> tuple[list[Any], dict[str, Any]]:
    """Convert examples to the DSL's: positional, and by name."""
    from cutepy.dsl.fakes import Symbols, fake_stream

    symbols = Symbols(_divisibility(parameters(examples.values())))
    positional, named = [], {}
    for name, example in examples.items():
        if example.is_stream:
            value = fake_stream(asked_for=example.parameter is None)
        elif example.parameter is None:
            value = example.value
        else:
            value = _stand_in(example.value, symbols)
        if example.keyword_only:
            named[name] = value
        else:
            positional.append(value)
    return positional, named


def _placed(
    function: Callable[..., Any], signature: inspect.Signature, streams: set[str], arguments: Sequence[object]
) -> dict[str, object]:
    """Assign positional examples to parameters, skipping streams that were left out, wherever they are."""
    positional = [p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    placed: dict[str, object] = {}
    waiting = list(arguments)
    for at, parameter in enumerate(positional):
        needed = sum(p.name not in streams for p in positional[at + 1 :])
        left_out = parameter.name in streams and waiting and not _is_stream_value(waiting[0]) and len(waiting) <= needed
        if waiting and not left_out:
            placed[parameter.name] = waiting.pop(0)
    if waiting and not any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values()):
        raise TypeError(f"{_name(function)} takes {len(positional)} examples by position, got {len(arguments)}")
    return placed


def check_settings(settings: Mapping[str, object]) -> None:
    """Refuse unknown settings of `cutepy.compile`.

    Raises
    ------
    TypeError
    """
    for name, value in settings.items():
        kinds, what = _SETTINGS[name]
        if not isinstance(value, kinds):
            raise TypeError(f"{name} must be {what}, got {value!r}")


def _check_setting(name: str, value: object, function: Callable[..., Any], parameter: inspect.Parameter | None) -> None:
    """Refuse an unknown setting, and one that may be meant for a parameter of that name without example."""
    kinds, _ = _SETTINGS[name]
    if parameter is not None and not (isinstance(value, kinds) and value in (None, "", ())):
        raise TypeError(
            f"{_name(function)} has a parameter {name}, and {name}={value!r} is for cutepy.compile itself"
            + _by_position(name, parameter)
        )
    check_settings({name: value})


def _by_position(name: str, parameter: inspect.Parameter) -> str:
    if parameter.kind is parameter.KEYWORD_ONLY:
        return f"; rename the parameter, since {name}= is a setting of cutepy.compile"
    return f"; give it by position, since {name}= is a setting of cutepy.compile"


def _check_self(function: Callable[..., Any]) -> None:
    """Refuse a bound method that the DSL would take for a method of its first argument."""
    method = function if inspect.ismethod(function) else getattr(function, "__call__", None)  # noqa: B004
    if inspect.ismethod(method) and not isinstance(method.__self__, type):
        first = next(iter(inspect.signature(method.__func__).parameters), "self")
        if first != "self":
            raise TypeError(
                f"the first parameter of {_name(function)} must be called self, as the DSL asks; got {first}"
            )


def _example(name: str, value: object, annotation: object, extents: dict[int, str], *, keyword_only: bool) -> Example:
    if "Constexpr" in str(annotation):
        return Example(None, value, keyword_only)
    if isinstance(value, type):
        if annotation is not inspect.Parameter.empty and get_origin(annotation) is not type:
            raise TypeError(
                f"the example of {name} is the class {value.__qualname__}; annotate the parameter as cutlass.Constexpr "
                f"or type[...], rather than {annotation}"
            )
        return Example(None, value, keyword_only)
    value = _normal(value)
    return Example(_parameter(name, value, extents), value, keyword_only)


def _normal(value: Any) -> Any:  # noqa: ANN401
    """Convert tensors and pointers to specs, and foreign numbers to Python's; DSL numbers select their type."""
    if (parts := _parts(value)) is not None:
        return _rebuilt(value, [part.value if part.is_constant else _normal(part.value) for part in parts])
    if isinstance(value, (type, TensorSpec, PointerSpec)):
        return value
    if _is_dsl_value(value):
        from cutepy.dsl.fakes import from_dsl_pointer, in_global_memory

        if hasattr(value, "element_type") and hasattr(value, "shape"):
            return in_global_memory(value)
        if hasattr(value, "memspace") and hasattr(value, "dtype"):
            return PointerSpec(**from_dsl_pointer(value))
        return value
    if hasattr(value, "dtype") and hasattr(value, "shape") and plain_number(value) is None:
        return TensorSpec.like(value)
    if (number := plain_number(value)) is None:
        return value
    return number if isinstance(number, bool) else int(number) if isinstance(number, int) else float(number)


def _parameter(name: str, value: Any, extents: dict[int, str]) -> Parameter:  # noqa: ANN401
    """Describe the parameter that callers pass for an example; `extents` names the DSL's symbolic integers by identity.

    Raises
    ------
    TypeError
        If it is nothing that they could pass.
    """
    if value is None:
        return Parameter(name, "none")
    if isinstance(value, TensorSpec):
        return Parameter(name, "tensor", value)
    if isinstance(value, PointerSpec):
        return Parameter(name, "pointer", number=str(value))
    if (parts := _parts(value)) is not None:
        items = tuple(replace(_part_parameter(name, part, extents), name=part.place) for part in parts)
        if isinstance(value, tuple):
            return Parameter(name, "tuple", items=items)
        return Parameter(name, "structure", items=items, number=type(value).__qualname__)
    if _is_dsl_value(value):
        if hasattr(value, "element_type") and hasattr(value, "shape"):
            from cutepy.dsl.fakes import described_fake

            return Parameter(name, "tensor", TensorSpec(**described_fake(value, extents)))
        if {"Numeric", "SymInt"} & {base.__name__ for base in type(value).__mro__}:
            return Parameter(name, "scalar", number=type(value).__name__)
        raise TypeError(
            f"the example of {name} must be a TensorSpec, a tensor, a number, None or a constexpr value, "
            f"got the DSL's {type(value).__name__}; say TensorSpec(dtype, shape), with names for what varies"
        )
    if isinstance(value, (bool, int, float)):
        return Parameter(name, "scalar", number=type(value).__name__)
    raise TypeError(
        f"the example of {name} is the constant {value!r}; annotate the parameter as cutlass.Constexpr, or pass what "
        "it is made of as parameters apart"
    )


def _part_parameter(name: str, part: _Part, extents: dict[int, str]) -> Parameter:
    if part.is_constant:
        return Parameter(part.place, "constant", number=repr(part.value))
    return _parameter(name + part.place, part.value, extents)


def _stand_in(value: Any, symbols: Any) -> Any:  # noqa: ANN401
    from cutepy.dsl.fakes import fake_pointer, fake_tensor

    if isinstance(value, TensorSpec):
        return fake_tensor(
            value.dtype,
            value.shape,
            symbols,
            strides=value.strides,
            stride_order=value.stride_order,
            align_bytes=value.align,
        )
    if isinstance(value, PointerSpec):
        return fake_pointer(value.dtype, value.space, value.align)
    if (parts := _parts(value)) is not None:
        return _rebuilt(value, [_stand_in_for(part, symbols, named=hasattr(value, "_fields")) for part in parts])
    if isinstance(value, (bool, int, float)) or (_is_dsl_value(value) and hasattr(value, "value")):
        return type(value)(1)  # any name will do, and the DSL names functions after their parameters
    return value


def _stand_in_for(part: _Part, symbols: Any, *, named: bool) -> Any:  # noqa: ANN401
    """Make the DSL's example of a part of a tuple or dataclass; in a named tuple the DSL takes numbers as constants."""
    if part.is_constant:
        return part.value
    if named and isinstance(part.value, (bool, int, float)):
        from cutepy.dsl.fakes import dsl_number

        return dsl_number(part.value, part.annotation)
    return _stand_in(part.value, symbols)


class _Part(NamedTuple):
    """Item of a tuple, or field of a named tuple or of a dataclass."""

    place: str
    value: Any
    annotation: object = None

    @property
    def is_constant(self) -> bool:
        """True if it is compiled in."""
        return "Constexpr" in str(self.annotation)


def _parts(value: Any) -> list[_Part] | None:  # noqa: ANN401
    """List the parts of a tuple or dataclass; None for other values."""
    if hasattr(value, "_fields"):
        hints = get_type_hints(type(value))
        return [_Part(f".{name}", item, hints.get(name)) for name, item in zip(value._fields, value, strict=True)]
    if isinstance(value, (tuple, list)):
        return [_Part(f"[{n}]", item) for n, item in enumerate(value)]
    known = isinstance(value, (type, TensorSpec, PointerSpec)) or _is_dsl_value(value)
    if not is_dataclass(value) or known:
        return None
    return [_Part(f".{field.name}", getattr(value, field.name), field.type) for field in fields(value)]


def _rebuilt(value: Any, items: Sequence[Any]) -> Any:  # noqa: ANN401
    """Replace the items of a tuple, or of a copy of a dataclass."""
    if isinstance(value, (tuple, list)):
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    changed = copy.copy(value)
    for field, item in zip(fields(value), items, strict=True):
        object.__setattr__(changed, field.name, item)
    return changed


def _divisibility(parameters: Iterable[Parameter]) -> dict[str, int]:
    """Combine the divisibilities that all tensors declare for a name."""
    combined: dict[str, int] = {}
    for spec in _specs(parameters):
        for name, divisor in spec.divisibility.items():
            combined[name] = math.lcm(combined.get(name, 1), divisor)
    return combined


def _specs(parameters: Iterable[Parameter]) -> Iterator[TensorSpec]:
    for parameter in parameters:
        if parameter.spec is not None:
            yield parameter.spec
        yield from _specs(parameter.items)


def _scope(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the names for annotations written as strings."""
    plain = inspect.unwrap(function if inspect.isroutine(function) else type(function).__call__)
    return getattr(plain, "__globals__", {})


def _is_for_stream(name: str, parameter: inspect.Parameter, scope: Mapping[str, Any]) -> bool:
    if _says_stream(parameter.annotation, scope) or _is_stream_value(parameter.default):
        return True
    return (
        parameter.annotation is parameter.empty
        and parameter.default in (None, parameter.empty)
        and ("stream" in name.lower())
    )


def _says_stream(annotation: Any, scope: Mapping[str, Any]) -> bool:  # noqa: ANN401
    """Return whether an annotation is `CUstream`, also as text, as optional, and with metadata."""
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, dict(scope))
        except Exception:  # names that exist for type checkers only
            return re.search(r"\bCUstream\b", str(annotation)) is not None
    if get_origin(annotation) in (Union, UnionType, Annotated):
        return any(_says_stream(part, scope) for part in get_args(annotation))
    return getattr(annotation, "__name__", "") == "CUstream"


def _is_stream_value(value: object) -> bool:
    """Return whether a value is a stream: CUDA's, torch's, or the DSL's fake one."""
    return not isinstance(value, type) and "stream" in type(value).__name__.lower()


def _is_dsl_value(value: object) -> bool:
    return not isinstance(value, type) and type(value).__module__.partition(".")[0] == "cutlass"


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)
