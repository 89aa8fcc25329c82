"""Examples of a function's arguments, as people give them: what each stands for, to us and to the DSL."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from cutepy.dsl.packed import plain_number
from cutepy.host.arguments import Parameter
from cutepy.host.specs import TensorSpec

_ADVICE = (
    "; if it is a stream, annotate it as cuda.bindings.driver.CUstream: launches then go to the stream that is current "
    "at each call, and calls leave it out"
)

_SETTINGS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "options": ((str,), "the compiler's options in one string"),
    "cache": ((bool, NoneType), "True, False or None"),
}


@dataclass(frozen=True)
class Example:
    """What one parameter of a function is compiled for.

    Attributes
    ----------
    parameter : Parameter or None
        What callers pass; None for streams and constexpr values, which they don't.
    constant : tuple
        The constexpr value, in a tuple of one; empty where there is none.
    number : object
        The example of a number.
    keyword_only : bool
        Whether the function takes it by name only.
    """

    parameter: Parameter | None
    constant: tuple[object, ...] = ()
    number: object = None
    keyword_only: bool = False


def bind(
    function: Callable[..., Any],
    arguments: Sequence[object],
    named: Mapping[str, object],
    settings: Mapping[str, object] | None = None,
) -> dict[str, Example]:
    """Give each parameter of a function its example; one for a stream needs none.

    Parameters
    ----------
    function : callable
    arguments, named
        The examples.
    settings : mapping, optional
        What was given for those of the caller's own parameters that a parameter of the function may be called like.

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
    streams = [name for name, p in signature.parameters.items() if _is_stream(p.annotation, scope)]
    # Streams may be left out wherever they stand, so what comes after one may have to move up.
    positional = [
        name for name, p in signature.parameters.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(arguments) <= len(positional) - len([name for name in streams if name in positional]):
        positional = [name for name in positional if name not in streams]
    if len(arguments) > len(positional) and not any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values()):
        raise TypeError(f"{_name(function)} takes {len(positional)} examples by position, got {len(arguments)}")
    by_position = dict(zip(positional, arguments, strict=False))
    if twice := by_position.keys() & named.keys():
        raise TypeError(f"{_name(function)} got two examples of {', '.join(sorted(twice))}")
    for name, value in (settings or {}).items():
        _check_setting(name, value, function, None if name in by_position else signature.parameters.get(name))
    given = {**by_position, **named}
    if unknown := given.keys() - signature.parameters.keys():
        raise TypeError(f"{_name(function)} has no parameter {', '.join(sorted(unknown))}")
    examples = {}
    for name, parameter in signature.parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"{_name(function)} must name its parameters to be compiled, got *{name}")
        if name not in given and name not in streams and parameter.default is parameter.empty:
            what = f"a TensorSpec, a tensor, a number or None{_ADVICE if _may_be_stream(name) else ''}"
            what += _by_position(name, parameter) if name in (settings or {}) else ""
            raise TypeError(f"{_name(function)} needs an example of {name}: {what}")
        if name not in given and name not in streams and parameter.default is None and _may_be_stream(name):
            raise TypeError(f"{_name(function)} would launch on the default stream, with {name} = None{_ADVICE}")
        value = given.get(name, None if name in streams else parameter.default)
        only = parameter.kind is parameter.KEYWORD_ONLY
        examples[name] = _example(name, value, parameter.annotation, stream=name in streams, keyword_only=only)
    return examples


def parameters(examples: Iterable[Example]) -> tuple[Parameter, ...]:
    """List what callers pass."""
    return tuple(example.parameter for example in examples if example.parameter is not None)


def constants(examples: Mapping[str, Example]) -> list[tuple[str, object]]:
    """List the constexpr values, which are part of what is compiled, by name."""
    return [(name, example.constant[0]) for name, example in examples.items() if example.constant]


def classes(examples: Mapping[str, Example]) -> list[str]:
    """List the names of the parameters whose examples are classes, which are compiled in, however annotated."""
    return [name for name, value in constants(examples) if isinstance(value, type)]


def to_dsl(examples: Mapping[str, Example]) -> tuple[list[Any], dict[str, Any]]:
    """Make the DSL's examples of ours: positional, and by name."""
    from cutepy.dsl.fakes import Symbols, fake_stream

    symbols = Symbols(_divisibility(parameters(examples.values())))
    positional, named = [], {}
    for name, example in examples.items():
        if example.constant:
            value = example.constant[0]
        elif example.parameter is None:
            value = fake_stream()
        else:
            value = _stand_in(example.parameter, example.number, symbols)
        if example.keyword_only:
            named[name] = value
        else:
            positional.append(value)
    return positional, named


def _check_setting(name: str, value: object, function: Callable[..., Any], parameter: inspect.Parameter | None) -> None:
    """Refuse a setting that is none, and one that may be meant for the parameter of that name, which has no example."""
    kinds, what = _SETTINGS[name]
    if parameter is not None and not (isinstance(value, kinds) and value in (None, "")):
        raise TypeError(
            f"{_name(function)} has a parameter {name}, and {name}={value!r} is for cutepy.compile itself"
            + _by_position(name, parameter)
        )
    if not isinstance(value, kinds):
        raise TypeError(f"{name} must be {what}, got {value!r}")


def _by_position(name: str, parameter: inspect.Parameter) -> str:
    if parameter.kind is parameter.KEYWORD_ONLY:
        return f"; rename the parameter, since {name}= is a setting of cutepy.compile"
    return f"; give it by position, since {name}= is a setting of cutepy.compile"


def _check_self(function: Callable[..., Any]) -> None:
    """Refuse a method of an object that the DSL would take for a function of the object."""
    method = function if inspect.ismethod(function) else getattr(function, "__call__", None)  # noqa: B004
    if inspect.ismethod(method) and not isinstance(method.__self__, type):
        first = next(iter(inspect.signature(method.__func__).parameters), "self")
        if first != "self":
            raise TypeError(
                f"the first parameter of {_name(function)} must be called self, as the DSL asks; got {first}"
            )


def _example(name: str, value: object, annotation: object, *, stream: bool, keyword_only: bool) -> Example:
    if stream:
        if value is not None and not _may_be_stream(type(value).__name__):
            raise TypeError(f"{name} is a stream, the one that is current at each call; got an example {value!r}")
        return Example(None, keyword_only=keyword_only)
    if "Constexpr" in str(annotation):
        return Example(None, (value,), keyword_only=keyword_only)
    if _may_be_stream(type(value).__name__):
        raise TypeError(f"the example of {name} is a stream, which {name} is not known to be{_ADVICE}")
    if isinstance(value, type):
        if annotation is not inspect.Parameter.empty and get_origin(annotation) is not type:
            raise TypeError(
                f"the example of {name} is the class {value.__qualname__}; annotate the parameter as cutlass.Constexpr "
                f"or type[...], rather than {annotation}"
            )
        return Example(None, (value,), keyword_only=keyword_only)
    value = _with_plain_numbers(value)
    return Example(_parameter(name, value), number=value, keyword_only=keyword_only)


def _with_plain_numbers(value: Any) -> Any:  # noqa: ANN401
    """Make numpy's scalars and members of enumerations Python's numbers; those of the DSL say what to compile for."""
    if type(value) in (tuple, list):
        return tuple(map(_with_plain_numbers, value))
    if isinstance(value, type) or _is_dsl_value(value) or (number := plain_number(value)) is None:
        return value
    return number if isinstance(number, bool) else int(number) if isinstance(number, int) else float(number)


def _parameter(name: str, value: Any) -> Parameter:  # noqa: ANN401
    """Tell what callers pass for an example.

    Raises
    ------
    TypeError
        If it is nothing that they could pass.
    """
    if value is None:
        return Parameter(name, "none")
    if isinstance(value, TensorSpec):
        return Parameter(name, "tensor", value)
    if _is_dsl_value(value):
        if "Numeric" in {base.__name__ for base in type(value).__mro__}:
            return Parameter(name, "scalar", number=type(value).__name__)
        raise TypeError(
            f"the example of {name} must be a TensorSpec, a tensor, a number, None or a constexpr value, "
            f"got the DSL's {type(value).__name__}; say TensorSpec(dtype, shape), with names for what varies"
        )
    if hasattr(value, "dtype") and hasattr(value, "shape") and not isinstance(value, type):
        return Parameter(name, "tensor", TensorSpec.like(value))
    if isinstance(value, (bool, int, float)):
        return Parameter(name, "scalar", number=type(value).__name__)
    if type(value) is tuple:
        items = (_parameter(f"{name}[{n}]", item) for n, item in enumerate(value))
        named = tuple(replace(item, name=f"[{n}]") for n, item in enumerate(items))
        return Parameter(name, "tuple", items=named)
    raise TypeError(
        f"the example of {name} is the constant {value!r}; annotate the parameter as cutlass.Constexpr, or pass what "
        "it is made of as parameters apart"
    )


def _stand_in(parameter: Parameter, example: Any, symbols: Any) -> Any:  # noqa: ANN401
    from cutepy.dsl.fakes import fake_tensor

    if parameter.spec is not None:
        spec = parameter.spec
        return fake_tensor(
            spec.dtype,
            spec.shape,
            symbols,
            strides=spec.strides,
            stride_order=spec.stride_order,
            align_bytes=spec.align,
        )
    if parameter.kind == "tuple":
        return tuple(_stand_in(p, e, symbols) for p, e in zip(parameter.items, example, strict=True))
    return example


def _divisibility(parameters: Iterable[Parameter]) -> dict[str, int]:
    """Combine what all tensors say of a name."""
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
    """Give the names that annotations written as strings may use."""
    plain = inspect.unwrap(function if inspect.isroutine(function) else type(function).__call__)
    return getattr(plain, "__globals__", {})


def _is_stream(annotation: Any, scope: Mapping[str, Any]) -> bool:  # noqa: ANN401
    """Tell whether an annotation says `CUstream`, also as text, as optional, and with metadata."""
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, dict(scope))
        except Exception:  # names that exist for type checkers only
            return re.search(r"\bCUstream\b", str(annotation)) is not None
    if get_origin(annotation) in (Union, UnionType, Annotated):
        return any(_is_stream(part, scope) for part in get_args(annotation))
    return getattr(annotation, "__name__", "") == "CUstream"


def _may_be_stream(name: str) -> bool:
    return "stream" in name.lower()


def _is_dsl_value(value: object) -> bool:
    return not isinstance(value, type) and type(value).__module__.partition(".")[0] == "cutlass"


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)
