"""Torch's operators on device `cuda`, computed by the CPU's kernels.

Tensors of the served device are real `cuda` tensors, so the dispatcher sends every operator that has no kernel of its
own for CUDA, which in a CPU build of torch is nearly all, to a fallback: it computes on CPU tensors of the same memory.
Composite operators, autograd, autocast, and custom operators with a kernel for CUDA work as on a GPU, in all threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch

from cutepy.frontends.torch_device import accuracy, cuda_only, storage, streams, touches
from cutepy.frontends.torch_device.errors import NotServedError

_NUMBERS = (bool, int, float, complex)

# Operators whose indices may be on the CPU, as on a GPU.
_TAKES_HOST_TENSORS = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")


@cache
def _is_view(operator: Any) -> bool:  # noqa: ANN401
    """Tell whether an operator returns an alias of its argument and computes nothing."""
    returns = operator._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def _on_host(operator: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    """Compute an operator on the CPU tensors that share the memory of its arguments."""
    if _is_view(operator):
        return operator._op_dk(torch._C.DispatchKey.CPU, *args, **kwargs)
    work = _captured_work()
    if work is None:
        return _computed(operator, args, kwargs)
    target = _changed_in_place(operator, args, kwargs)
    if target is None:
        return _kept(work, lambda: _computed(operator, args, kwargs))
    # Now and at the replay would be once too often.
    work.append(lambda: _computed(operator, args, kwargs))
    return target if operator._schema.returns else None


def _computed(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
    try:
        result = _Call(operator).compute(args, kwargs)
        touches.operator_touched(operator, args, kwargs, result)
        return result
    except NotImplementedError as error:
        reason = str(error).partition("\n")[0]
        raise NotServedError(f"{operator} is not served on the simulated cuda device: {reason}") from error


def _changed_in_place(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
    """Return the argument that an operator reads and writes, or None; it may be named as `out` too."""
    written = [a for a in operator._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    if not written:
        return None
    if not written[0].kwarg_only:
        return args[0]
    out = kwargs.get(written[0].name)
    read = {a.data_ptr() for a in args if isinstance(a, torch.Tensor)}
    return out if isinstance(out, torch.Tensor) and out.numel() and out.data_ptr() in read else None


# Where the current stream is captured for a graph, operators are kept, to be computed at each replay. Those that return
# something new are computed at once as well, to know what it is, and later into the same memory.


def _captured_work() -> list[Callable[[], object]] | None:
    return streams.captures.work_of(streams.current_stream().cuda_stream)


def _kept(work: list[Callable[[], object]], compute: Callable[[], Any]) -> Any:  # noqa: ANN401
    result = compute()
    work.append(lambda: _refill(result, compute()))
    return result


def _refill(old: Any, new: Any) -> None:  # noqa: ANN401
    if isinstance(old, torch.Tensor):
        if old is not new and old.numel():
            _copied(old, new)
    elif isinstance(old, (list, tuple)):
        for one, other in zip(old, new, strict=True):
            _refill(one, other)


def _keeping(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that is kept where a stream is captured."""

    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        work = _captured_work()
        return kernel(*args, **kwargs) if work is None else _kept(work, lambda: kernel(*args, **kwargs))

    return call


# Torch makes tensors of Python's numbers where an operator takes tensors, and shows them to Python as numbers again.
# They don't promote types as other tensors do: an overload for numbers knows that.


@cache
def _tensor_positions(operator: Any) -> tuple[int, ...]:  # noqa: ANN401
    """Return which arguments of an operator are tensors."""
    return tuple(n for n, a in enumerate(operator._schema.arguments) if str(a.type) in ("Tensor", "Optional[Tensor]"))


@cache
def _takes_number(packet: Any, position: int) -> bool:  # noqa: ANN401
    """Tell whether an overload of an operator takes a number as an argument."""
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
            return torch.device("cpu") if self._on_device else value
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
        """Give outputs that were allocated anew what the operator made of them."""
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
    work = _captured_work()
    if work is None:
        return _copied(target, source, non_blocking)
    work.append(lambda: _copied(target, source, True))
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
    return storage.empty(size, stride, dtype or torch.get_default_dtype())


def _resize(tensor: torch.Tensor, size: list[int], *, memory_format: torch.memory_format | None = None) -> torch.Tensor:
    grown = storage.served(torch.empty(size, dtype=tensor.dtype, device="cpu"))
    kept = min(tensor.numel(), grown.numel())
    if kept:
        grown.view(-1)[:kept].copy_(tensor.reshape(-1)[:kept])
    _take(tensor, grown)
    return tensor


def _zero(tensor: torch.Tensor) -> torch.Tensor:
    storage.zero(tensor)
    if tensor.numel():
        touches.tensor_touched("aten::zero_", tensor, writes=True)
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
    "zero_": _keeping(_zero),
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
