"""Parameters of a compiled function, and explanations of refused arguments.

The compiled host code checks every call, in nanoseconds. The checks here run when it has refused one, and say so in
terms of the caller: which argument, which dimension, and what it had to be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cache
from typing import Any

from cutepy.dsl.tma_requirements import refused_stride
from cutepy.host.specs import TensorSpec, described_kind, dtype_name, element_strides
from cutepy.runtime.packed import plain_number

_PARTS = ("float16", "float32", "float64")
"""Element types of the parts of complex numbers."""
_REFUSED = re.compile(r"(Mismatched type|Out of bound value) on argument #(\d+) when calling")


class ArgumentError(ValueError):
    """Error of an argument that a compiled function does not take."""


class NotOnGpuError(ArgumentError):
    """Error of a tensor in host memory, on a call that launches on a GPU."""


class EmptyArgumentError(ArgumentError):
    """Error of a tensor that has no elements along a dimension where a compiled function needs some."""


@dataclass(frozen=True)
class Parameter:
    """Parameter of a compiled function.

    Attributes
    ----------
    name : str
        As in the `@cute.jit` function.
    kind : str
        "tensor", "pointer", "scalar", "none", "tuple" (also a named one), "structure" (a dataclass), "constant": a
        field of one, or of a named tuple, that is compiled in, which callers repeat, or pass None for; or "stream": one
        that callers leave out, and that compiled code can't ask for, as there is no tensor whose GPU it would be of.
    spec : TensorSpec or None
        Spec of a tensor.
    number : str
        Type of the example of a number, which decides what is compiled: "int", "float", "bool", or the DSL's. Of a
        structure, its class's name; of a constant, its text.
    items : tuple of Parameter
        Parts of a tuple or structure.
    """

    name: str
    kind: str
    spec: TensorSpec | None = None
    number: str = ""
    items: tuple[Parameter, ...] = ()

    @property
    def is_plain(self) -> bool:
        """True if compiled code takes arguments as callers pass them."""
        return self.kind not in ("structure", "pointer", "constant", "stream") and all(
            item.is_plain for item in self.items
        )

    def __str__(self) -> str:
        if self.items or self.kind in ("tuple", "structure"):
            return f"{self.name}: {self.number}({', '.join(map(str, self.items))})"
        return f"{self.name}: {self.spec if self.spec is not None else self.kind}"

    def to_json(self) -> dict[str, Any]:
        """Convert the parameter to JSON's types."""
        spec = {name: _listed(value) for name, value in asdict(self.spec).items()} if self.spec else None
        items = [item.to_json() for item in self.items]
        return {"name": self.name, "kind": self.kind, "spec": spec, "number": self.number, "items": items}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Parameter:
        """Convert the output of `to_json` back."""
        spec = TensorSpec(**data["spec"]) if data["spec"] else None
        items = tuple(cls.from_json(item) for item in data["items"])
        return cls(data["name"], data["kind"], spec, data["number"], items)


def _listed(value: object) -> object:
    """Convert a tuple to a list, as JSON has it."""
    return list(value) if isinstance(value, tuple) else value


def check_arguments(function: str, parameters: Sequence[Parameter], arguments: Sequence[Any]) -> None:
    """Raise for the first argument that the parameters do not admit.

    Raises
    ------
    TypeError
        If there are too few or too many, or one is of another kind.
    ArgumentError
        If a tensor has another dtype, rank, extent, stride or alignment, or two disagree about a name.
    """
    if len(arguments) != len(parameters):
        expected = [str(parameter) for parameter in parameters if parameter.kind != "stream"]
        raise TypeError(f"{function} takes {len(expected)} arguments ({', '.join(expected)}), got {len(arguments)}")
    bound: dict[str, tuple[int, str]] = {}
    device: tuple[str, object] | None = None
    for name, parameter, argument in flattened(parameters, arguments):
        if parameter.kind == "none" and argument is not None:
            raise TypeError(f"argument {name} must be None, as it was when compiled, got {type(argument).__name__}")
        if parameter.kind == "constant" and not _is_repeated(parameter, argument):
            raise ArgumentError(f"argument {name} must be {parameter.number}, as when compiled, got {argument!r}")
        if parameter.kind == "pointer" and not isinstance(argument, int):
            raise TypeError(f"argument {name} must be an address or a tensor, got {described_kind(name, argument)}")
        if parameter.kind == "scalar" and plain_number(argument) is None:
            item = f"; pass its value, {name}.item()" if getattr(argument, "shape", None) == () else ""
            raise TypeError(f"argument {name} must be a number, got {type(argument).__name__}{item}")
        if parameter.kind == "scalar":
            _check_range(name, argument)
        if parameter.spec is not None:
            _check_tensor(name, parameter.spec, argument, bound)
            if hasattr(argument, "is_cuda"):  # arrays of other libraries may be anywhere: they are copied to the GPU
                device = device or (name, argument.device)
                if argument.device != device[1]:
                    raise ArgumentError(
                        f"argument {name}: must be on {device[1]} as argument {device[0]} is, got {argument.device}"
                    )


def conversion(parameters: Sequence[Parameter]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Plan how arguments become those of compiled code: dataclasses become tuples, and pointers addresses.

    Streams, which callers leave out, are inserted, and so is None for the last parameters where it is their only value.
    An argument of another kind than its parameter is left as it is, to be refused.

    Returns
    -------
    callable
        Takes and returns a tuple of arguments.
    """
    count = sum(parameter.kind != "stream" for parameter in parameters)
    kinds = [parameter.kind for parameter in parameters if parameter.kind != "stream"]
    fewest = next((n for n in range(count, 0, -1) if kinds[n - 1] != "none"), 0)
    streams = [n for n, parameter in enumerate(parameters) if parameter.kind == "stream"]
    takes = [(n, _taking(p)) for n, p in enumerate(parameters) if not p.is_plain and p.kind != "stream"]

    def convert(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        if not streams and not takes and not fewest <= len(arguments) < count:
            return arguments
        given = [*arguments]
        if fewest <= len(given) < count:
            given += [None] * (count - len(given))
        if len(given) == count:
            for n in streams:
                given.insert(n, _current_stream())
        if len(given) == len(parameters):
            for n, take in takes:
                given[n] = take(given[n])
        return (*given,)

    return convert


def _current_stream() -> int:
    """Return torch's current stream of the current GPU."""
    import torch

    return int(torch.cuda.current_stream().cuda_stream) if torch.cuda.is_available() else 0


def _taking(parameter: Parameter) -> Callable[[Any], Any]:
    """Return the function that converts a parameter's argument to the form of compiled code."""
    if parameter.kind == "constant":
        return lambda argument: None if _is_repeated(parameter, argument) else argument
    if parameter.kind == "pointer":
        return _address
    takes = [None if item.is_plain else _taking(item) for item in parameter.items]
    is_plain = not any(takes)

    def take(argument: Any) -> Any:  # noqa: ANN401
        if not isinstance(argument, tuple) and is_structure(argument):
            argument = tuple(field_values(argument))
        if is_plain or not isinstance(argument, (tuple, list)) or len(argument) != len(takes):
            return argument
        return tuple(each if take is None else take(each) for take, each in zip(takes, argument, strict=True))

    return take


def _address(argument: Any) -> Any:  # noqa: ANN401
    """Return the address of a tensor, or of another library's pointer."""
    if hasattr(argument, "data_ptr"):
        return argument.data_ptr()
    if hasattr(argument, "__array_interface__") and hasattr(argument, "__dlpack__"):
        return argument.__array_interface__["data"][0]
    if hasattr(argument, "__tvm_ffi_opaque_ptr__"):
        return int(argument.__tvm_ffi_opaque_ptr__())
    return getattr(argument, "value", argument)  # a pointer of ctypes


def _is_repeated(parameter: Parameter, argument: object) -> bool:
    return argument is None or repr(argument) == parameter.number


def is_structure(argument: Any) -> bool:  # noqa: ANN401
    """Return whether an argument is a dataclass, which is passed as its fields, and no tensor or number."""
    return is_dataclass(argument) and not isinstance(argument, type) and not hasattr(argument, "__dlpack__")


@cache
def _field_names(structure: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(structure))


def field_values(structure: Any) -> list[Any]:  # noqa: ANN401
    """Return the values of a dataclass's fields."""
    kind: type = type(structure)
    return [getattr(structure, name) for name in _field_names(kind)]


def leaves(arguments: Sequence[Any]) -> Iterator[Any]:
    """Return each argument, and those in tuples, lists and dataclasses."""
    for argument in arguments:
        if is_structure(argument):
            yield from leaves(field_values(argument))
        elif isinstance(argument, (tuple, list)):
            yield from leaves(argument)
        else:
            yield argument


def may_be_lazy(parameter: Parameter) -> bool:
    """Return whether compiled code would accept the imaginary part of a conjugated tensor, which has even strides.

    Only such parts come negated out of torch. An odd stride refuses them, where the extent is never 1.
    """
    spec = parameter.spec
    if spec is None or spec.dtype not in _PARTS:
        return False
    return not any(
        isinstance(stride, int)
        and stride % 2 == 1
        and (extent if isinstance(extent, int) else spec.divisibility.get(extent, 1)) > 1
        for extent, stride in zip(spec.shape, spec.expected_strides, strict=True)
    )


def nonempty(parameters: Sequence[Parameter], prefix: str = "") -> dict[str, tuple[int, ...]]:
    """List the dimensions of tensors whose extents are never 0, by the tensor's name with its place in tuples.

    Examples
    --------
    >>> nonempty([Parameter("a", "tensor", TensorSpec("float16", ("m", "k"), nonempty=("k",)))])
    {'a': (1,)}
    """
    found: dict[str, tuple[int, ...]] = {}
    for parameter in parameters:
        name, spec = prefix + parameter.name, parameter.spec
        if spec is not None and spec.nonempty:
            found[name] = tuple(n for n, extent in enumerate(spec.shape) if extent in spec.nonempty)
        found |= nonempty(parameter.items, name)
    return found


def is_lazy(tensor: Any) -> bool:  # noqa: ANN401
    """Return whether a torch tensor is lazily negated or conjugated, as `x.conj().imag` is."""
    return hasattr(tensor, "is_neg") and (tensor.is_neg() or tensor.is_conj() or tensor._is_zerotensor())


def flattened(
    parameters: Sequence[Parameter], arguments: Sequence[Any], prefix: str = ""
) -> Iterator[tuple[str, Parameter, Any]]:
    """Return each parameter that is no tuple, with its argument, by a name with its place in tuples."""
    for parameter, argument in zip(parameters, arguments, strict=True):
        name = prefix + parameter.name
        if parameter.kind not in ("tuple", "structure"):
            yield name, parameter, argument
            continue
        if not isinstance(argument, (tuple, list)) or len(argument) != len(parameter.items):
            got = f"one of {len(argument)}" if isinstance(argument, (tuple, list)) else type(argument).__name__
            raise TypeError(f"argument {name} must be a tuple of {len(parameter.items)}, got {got}")
        yield from flattened(parameter.items, argument, name)


def _check_range(name: str, argument: object) -> None:
    """Check that a number fits into the 64 bits of a call."""
    number = plain_number(argument)
    if isinstance(number, int) and not -(2**63) <= number < 2**63:
        raise ArgumentError(f"argument {name}: must be from -2**63 to 2**63 - 1, got {number}")


def refused_number(text: str, parameters: Sequence[Parameter], arguments: Sequence[Any]) -> Exception | None:
    """Explain a number that compiled code refused, from its error text; None for another error.

    Its text is as "Mismatched type on argument #1 when calling: `f(a: Tensor([n0], float32), n: int32)`, expected int".
    """
    found = _REFUSED.search(text)
    if found is None or int(found[2]) >= len(parameters) or parameters[int(found[2])].kind != "scalar":
        return None
    name, argument = parameters[int(found[2])].name, arguments[int(found[2])]
    if found[1] == "Out of bound value":
        limits = text.rpartition("expected to be in ")[2]
        return ArgumentError(f"argument {name}: must be in {limits}, got {argument}")
    expected = text.rpartition("expected ")[2]
    return TypeError(f"argument {name} must be of type {expected}, got {argument!r} of type {type(argument).__name__}")


def refused_for_tma(text: str, parameters: Sequence[Parameter], arguments: Sequence[Any]) -> Exception | None:
    """Explain a tensor that TMA can't address, with the declaration to add; None for another error."""
    if not text.startswith("argument ") or "TMA needs" not in text:
        return None
    found = refused_stride(text)
    for name, parameter, tensor in flattened(parameters, arguments) if found else ():
        assert found is not None
        refused, stride, multiple = found
        spec = parameter.spec
        if name == refused and spec is not None and stride in (strides := element_strides(tensor)):
            dimension = strides.index(stride)
            decides = spec.decides_stride(dimension)
            extents: dict[object, int] = dict(zip(spec.shape, tensor.shape, strict=True))
            extent = extents.get(decides, stride)
            # otherwise the rows are apart by choice
            if decides is not None and stride % extent == 0 and extent % multiple:
                text += (
                    f"; pad {decides} to a multiple of {multiple}, and declare divisibility={{{decides!r}: {multiple}}}"
                )
    return ArgumentError(text)


def _check_tensor(name: str, spec: TensorSpec, tensor: Any, bound: dict[str, tuple[int, str]]) -> None:  # noqa: ANN401
    if getattr(tensor, "is_nested", False) or str(getattr(tensor, "layout", "torch.strided")) != "torch.strided":
        raise TypeError(f"argument {name} must be a dense tensor, got a sparse or nested one; convert it")
    shows_memory = hasattr(tensor, "data_ptr") or hasattr(tensor, "__dlpack__")
    if not hasattr(tensor, "shape") or not hasattr(tensor, "dtype") or not shows_memory:
        raise TypeError(f"argument {name} must be a tensor, {spec}, got {described_kind(name, tensor)}")
    if getattr(tensor, "is_meta", False) or hasattr(tensor, "fake_mode"):
        raise ArgumentError(f"argument {name}: must have memory, got a tensor without any, on device {tensor.device}")
    if not getattr(tensor.dtype, "isnative", True):
        raise ArgumentError(
            f"argument {name}: must have this machine's byte order, got {tensor.dtype}; "
            "pass array.astype(array.dtype.newbyteorder('='))"
        )
    if is_lazy(tensor):
        raise ArgumentError(
            f"argument {name}: must have its values in memory, got a tensor that torch negates, conjugates or "
            "zeroes when it is read; pass tensor.resolve_conj().resolve_neg(), or a clone"
        )
    if dtype_name(tensor.dtype) != spec.dtype:
        raise ArgumentError(f"argument {name}: dtype must be {spec.dtype}, got {dtype_name(tensor.dtype)}")
    shape, strides = tuple(tensor.shape), element_strides(tensor)
    if len(shape) != len(spec.shape):
        raise ArgumentError(f"argument {name}: must have {len(spec.shape)} dimensions, {spec}, got shape {shape}")
    for dimension, (extent, expected) in enumerate(zip(shape, spec.shape, strict=True)):
        _check_value(name, f"dim {dimension}", extent, expected, spec, bound)
    for dimension, (stride, wanted) in enumerate(zip(strides, spec.expected_strides, strict=True)):
        if shape[dimension] > 1 and wanted is not None:  # the stride of an extent of 1 is never used
            _check_value(name, f"stride {dimension}", stride, wanted, spec, bound)
    address = tensor.data_ptr() if hasattr(tensor, "data_ptr") else tensor.__array_interface__["data"][0]
    if address % spec.align:
        raise ArgumentError(
            f"argument {name}: must start at a multiple of {spec.align} bytes, got address 0x{address:x}; "
            "pass a copy, or compile for less with TensorSpec(..., align=)"
        )


def _check_value(
    name: str, where: str, value: int, expected: int | str, spec: TensorSpec, bound: dict[str, tuple[int, str]]
) -> None:
    if isinstance(expected, int):
        if value != expected:
            raise ArgumentError(f"argument {name}: {where} is {value}, must be {expected}")
        return
    known, where_known = bound.setdefault(expected, (value, f"argument {name}, {where}"))
    if known != value:
        raise ArgumentError(f"argument {name}: {where} is {value}, must equal {expected} = {known} ({where_known})")
    divisor = spec.divisibility.get(expected, 1)
    if value % divisor:
        raise ArgumentError(f"argument {name}: {where} is {value}, must be a multiple of {divisor} ({expected})")
    if where.startswith("dim") and value < 1 and expected in spec.nonempty:
        raise EmptyArgumentError(f"argument {name}: {where} is {value}, must be at least 1 ({expected})")
    if where.startswith("dim") and value >= 2**31:
        raise ArgumentError(f"argument {name}: {where} is {value}, must be below 2**31, which 32-bit extents hold")
