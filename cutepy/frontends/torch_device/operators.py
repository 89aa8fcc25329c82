"""Torch's operators on device `cuda`, computed by the CPU's kernels.

Tensors of the served device are real `cuda` tensors, so the dispatcher sends every operator that has no kernel of its
own for CUDA, which in a CPU build of torch is nearly all, to a fallback: it computes on CPU tensors of the same memory.
Composite operators, autograd, autocast, and custom operators with a kernel for CUDA work as on a GPU, in all threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch

from cutepy.frontends import stream_state
from cutepy.frontends.stream_state import Capture, captures
from cutepy.frontends.torch_device import accuracy, cuda_only, storage, touches
from cutepy.frontends.torch_device.devices import index_of
from cutepy.frontends.torch_device.errors import NotServedError

_NUMBERS = (bool, int, float, complex)

# Operators whose indices may be on the CPU, as on a GPU.
_TAKES_HOST_TENSORS = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")

_WAITED_FOR = {
    f"aten::{name}"
    for name in """_local_scalar_dense equal masked_select nonzero _unique _unique2 unique_consecutive unique_dim
    unique_dim_consecutive""".split()
}
"""Operators that return a number, or results of extents that depend on values: on a GPU the host waits for them."""


@cache
def _is_view(operator: Any) -> bool:  # noqa: ANN401
    """Return whether an operator returns an alias of its argument and computes nothing."""
    returns = operator._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def _on_host(operator: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    """Compute an operator on the CPU tensors that share the memory of its arguments."""
    if _is_view(operator):
        return operator._op_dk(torch._C.DispatchKey.CPU, *args, **kwargs)
    capture = captures.keeping(stream_state.current())
    if capture is None:
        return _computed(operator, args, kwargs)
    if operator._schema.name in _WAITED_FOR:
        captures.refuse_waiting(stream_state.current())
    _, written = touches.arguments_of(operator, args, kwargs)
    return _kept(capture, lambda: _computed(operator, args, kwargs), written, _draws(operator))


def _computed(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
    try:
        result = _Call(operator).compute(args, kwargs)
        touches.operator_touched(operator, args, kwargs, result)
        return result
    except NotImplementedError as error:
        reason = str(error).partition("\n")[0]
        raise NotServedError(f"{operator} is not served on the simulated cuda device: {reason}") from error


# Where the current stream is captured for a graph, operators are kept, to be computed at each replay. They are computed
# at once as well, to know the results' extents, but leave what they write as it was; later into the same memory.


@cache
def _draws(operator: Any) -> bool:  # noqa: ANN401
    """Return whether an operator draws random numbers."""
    return torch.Tag.nondeterministic_seeded in operator.tags


def _kept(
    capture: Capture, compute: Callable[[], Any], written: Sequence[torch.Tensor] = (), draws: bool = False
) -> Any:  # noqa: ANN401
    with touches.hidden(), _unchanged(written), torch.random.fork_rng([], enabled=draws):
        result = compute()
    capture.keep(stream_state.current(), lambda place: _refill(result, compute()))
    return result


@contextmanager
def _unchanged(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """Undo writes to tensors of the device meanwhile; a tensor that gets other memory keeps that."""
    before = [(t, t.data_ptr(), storage.host(t).clone()) for t in tensors if t.is_cuda and t.numel()]
    try:
        yield
    finally:
        for tensor, address, content in before:
            if tensor.data_ptr() == address and tensor.shape == content.shape:
                storage.host(tensor).copy_(content)


def _refill(old: Any, new: Any) -> None:  # noqa: ANN401
    if isinstance(old, torch.Tensor):
        if old is not new and old.numel():
            _copied(old, new)
    elif isinstance(old, (list, tuple)):
        for one, other in zip(old, new, strict=True):
            _refill(one, other)


def _keeping(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that is kept where a stream is captured."""

    def call(*args: Any, out: torch.Tensor | None = None, **kwargs: Any) -> Any:  # noqa: ANN401
        named = kwargs if out is None else {**kwargs, "out": out}
        capture = captures.keeping(stream_state.current())
        if capture is None:
            return kernel(*args, **named)
        return _kept(capture, lambda: kernel(*args, **named), () if out is None else (out,))

    return call


# Torch makes tensors of Python's numbers where an operator takes tensors, and shows them to Python as numbers again.
# They don't promote types as other tensors do: an overload for numbers knows that.


@cache
def _tensor_positions(operator: Any) -> tuple[int, ...]:  # noqa: ANN401
    """Return which arguments of an operator are tensors."""
    return tuple(n for n, a in enumerate(operator._schema.arguments) if str(a.type) in ("Tensor", "Optional[Tensor]"))


@cache
def _takes_number(packet: Any, position: int) -> bool:  # noqa: ANN401
    """Return whether an overload of an operator takes a number as an argument."""
    schemas = [getattr(packet, name)._schema for name in packet.overloads()]
    return any(position < len(s.arguments) and str(s.arguments[position].type) == "number" for s in schemas)


class _Call:
    """One call of an operator: which CPU tensor stands for which of the device's."""

    def __init__(self, operator: Any) -> None:  # noqa: ANN401
        self._operator = operator
        self._pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._on_device = True

    def compute(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """Call the operator on the host."""
        operator, down = self._operator, [self.down(a) for a in args]
        numbers = [n for n in _tensor_positions(operator) if n < len(down) and isinstance(down[n], _NUMBERS)]
        if numbers and all(_takes_number(operator.overloadpacket, n) for n in numbers):
            operator = operator.overloadpacket
        else:
            for n in numbers:
                down[n] = torch.tensor(down[n], device="cpu")
        named = {k: self.down(v, is_output=k == "out") for k, v in kwargs.items()}
        with torch._C._AutoDispatchBelowAutograd():
            result = accuracy.call(operator, down, named)
            self._resize_outputs()
            return self.up(result)

    def down(self, value: Any, *, is_output: bool = False) -> Any:  # noqa: ANN401
        """Replace tensors and devices of `cuda` in an argument by the CPU's."""
        if isinstance(value, torch.Tensor):
            return self._down_tensor(value, is_output)
        if isinstance(value, torch.device):
            self._on_device = value.type == "cuda"
            if not self._on_device:
                return value
            index_of(value)
            return torch.device("cpu")
        if isinstance(value, (list, tuple)):
            return type(value)([self.down(v) for v in value])
        return value

    def _down_tensor(self, tensor: torch.Tensor, is_output: bool) -> torch.Tensor:
        if not tensor.is_cuda:
            if tensor.dim() and tensor.device.type == "cpu" and self._operator._schema.name not in _TAKES_HOST_TENSORS:
                raise RuntimeError(
                    f"Expected all tensors to be on the same device, but {self._operator} got one of shape "
                    f"{tuple(tensor.shape)} on cpu beside those on cuda:0"
                )
            return tensor
        # Memory of a capsule can't be resized. Operators resize empty outputs; losses that of one element, and back.
        if is_output and not tensor.dim():
            alias = torch.empty(0, dtype=tensor.dtype, device="cpu")
        elif tensor.numel():
            alias = storage.host(tensor)
        else:
            alias = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
        self._pairs.append((alias, tensor))
        return alias

    def _resize_outputs(self) -> None:
        """Give outputs that were allocated anew the operator's results."""
        for alias, tensor in self._pairs:
            if alias.shape != tensor.shape:
                _take(tensor, storage.served(alias))
            elif alias.numel() and alias.data_ptr() != tensor.data_ptr():
                storage.host(tensor).copy_(alias)

    def up(self, result: Any) -> Any:  # noqa: ANN401
        """Replace CPU tensors in a result by the device's."""
        if isinstance(result, torch.Tensor):
            for alias, tensor in self._pairs:
                if result is alias:
                    return tensor
            return storage.served(result) if self._on_device and result.device.type == "cpu" else result
        if isinstance(result, (list, tuple)):
            return type(result)([self.up(r) for r in result])
        return result


def _take(tensor: torch.Tensor, source: torch.Tensor) -> None:
    """Make a tensor one of the memory and the extents of another."""
    kernel = torch.ops.aten.set_.source_Storage_storage_offset._op_dk
    kernel(torch._C.DispatchKey.CPU, tensor, source.untyped_storage(), 0, list(source.shape), list(source.stride()))


# Operators that move data between devices or allocate, and those whose general kernel insists on real CUDA.


def _copy(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    stream = stream_state.current()
    if (capture := captures.keeping(stream)) is None:
        return _copied(target, source, non_blocking)
    if not non_blocking and not (target.is_cuda and source.is_cuda):
        captures.refuse_waiting(stream)
    capture.keep(stream, lambda place: _copied(target, source, True))
    return target


def _copied(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    to = storage.host(target) if target.is_cuda else target
    to.copy_(storage.host(source) if source.is_cuda else source)
    touches.copy_touched(target, source, non_blocking)
    return target


def _empty(
    size: list[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    index_of(device)
    like = torch.empty(size, dtype=dtype, layout=layout, device="meta", memory_format=memory_format)
    return storage.empty(like.shape, like.stride(), like.dtype)


def _empty_strided(
    size: list[int],
    stride: list[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    index_of(device)
    return storage.empty(size, stride, dtype or torch.get_default_dtype())


def _resize(tensor: torch.Tensor, size: list[int], *, memory_format: torch.memory_format | None = None) -> torch.Tensor:
    grown = storage.served(torch.empty(size, dtype=tensor.dtype, device="cpu"))
    kept = min(tensor.numel(), grown.numel())
    if kept:
        grown.view(-1)[:kept].copy_(tensor.reshape(-1)[:kept])
    _take(tensor, grown)
    return tensor


def _zero(tensor: torch.Tensor) -> torch.Tensor:
    def zero(stream: int) -> None:
        storage.zero(tensor)
        if tensor.numel():
            touches.tensor_touched("aten::zero_", tensor, writes=True)

    stream_state.issue(stream_state.current(), zero)
    return tensor


def _set_storage(
    tensor: torch.Tensor, source: torch.UntypedStorage, offset: int, size: list[int], stride: list[int]
) -> torch.Tensor:
    kernel = torch.ops.aten.set_.source_Storage_storage_offset._op_dk
    kernel(torch._C.DispatchKey.CPU, tensor, source, offset, size, stride)
    return tensor


def _set_whole_storage(tensor: torch.Tensor, source: torch.UntypedStorage) -> torch.Tensor:
    return _set_storage(tensor, source, 0, [source.nbytes() // tensor.dtype.itemsize], [1])


def _layer_norm(
    tensor: torch.Tensor,
    normalized_shape: list[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, ...]:
    # CUDA's kernel computes 16-bit inputs in float32 throughout; the CPU's rounds on the way.
    scale, shift = (None if t is None else storage.host(t).float() for t in (weight, bias))
    normed, mean, rstd = torch.native_layer_norm(storage.host(tensor).float(), normalized_shape, scale, shift, eps)
    return storage.served(normed.to(tensor.dtype)), storage.served(mean), storage.served(rstd)


def _with_output_type(operator: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a product whose result has a type of its own: cuBLAS sums in float32 and rounds once, to that type."""

    def multiply(*args: Any, out: torch.Tensor | None = None, **scalars: Any) -> torch.Tensor:  # noqa: ANN401
        *tensors, dtype = args
        call = _Call(operator)
        result = operator(*(call.down(t).float() for t in tensors), **scalars).to(dtype)
        if out is None:
            return storage.served(result)
        return out.resize_(result.shape).copy_(result)

    return multiply


_WITH_OUTPUT_TYPE = {
    f"{name}.{overload}": _keeping(_with_output_type(getattr(torch.ops.aten, name).default))
    for name in ("mm", "addmm", "bmm", "baddbmm")
    for overload in ("dtype", "dtype_out")
}

_OWN_KERNELS = {
    **_WITH_OUTPUT_TYPE,
    "copy_": _copy,
    "empty.memory_format": _empty,
    "empty_strided": _empty_strided,
    "native_layer_norm": _keeping(_layer_norm),
    "resize_": _resize,
    "zero_": _zero,
    "set_.source_Storage": _set_whole_storage,
    "set_.source_Storage_storage_offset": _set_storage,
}


_OWN_KERNELS |= {name: _keeping(kernel) for name, kernel in cuda_only.KERNELS.items()}
_ON_HOST = "convolution convolution_backward".split()
"""Operators that would choose one that CUDA alone has."""


@contextmanager
def serving_operators() -> Iterator[None]:
    """Compute operators on tensors of device `cuda` by the CPU's kernels while the context is active."""
    fallback = torch.library.Library("_", "IMPL")
    own = torch.library.Library("aten", "IMPL")
    try:
        fallback.fallback(_on_host, "CUDA")
        for name, function in _OWN_KERNELS.items():
            own.impl(name, function, "CUDA")
        for name in _ON_HOST:
            own.impl(name, partial(_on_host, getattr(torch.ops.aten, name).default), "CUDA")
        yield
    finally:
        own._destroy()
        fallback._destroy()
