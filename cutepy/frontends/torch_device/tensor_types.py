"""`torch.cuda.FloatTensor` and its like: types of tensors by their elements, which make, convert and tell them.

References
----------
PyTorch: "torch.Tensor: Data types"; `torch.Tensor.type`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cutepy.frontends.torch_device.errors import not_served

NAMES = {
    "BFloat16Tensor": torch.bfloat16,
    "BoolTensor": torch.bool,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "ShortTensor": torch.int16,
}
"""Type -> that of its elements."""


class TensorType(type):
    """Type of dense tensors on the device, such as `torch.cuda.FloatTensor`; called as the CPU's type is."""

    dtype: torch.dtype

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Tensor) and instance.is_cuda and instance.dtype == cls.dtype

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:  # noqa: ANN401
        """Make a tensor of extents, of a sequence of values, or of another tensor."""
        made: torch.Tensor = getattr(torch, cls.__name__)(*args, **kwargs)
        return made.to("cuda")


_types = {name: TensorType(name, (), {"dtype": dtype, "is_cuda": True}) for name, dtype in NAMES.items()}
for _each in _types.values():
    _each.__module__ = "torch.cuda"


def of(name: str) -> TensorType:
    """Return the type of a name."""
    return _types[name]


def serve(put: Callable[[Any, str, Any], None]) -> None:
    """Let methods of torch take these types and their names; sparse ones are refused by name."""
    convert, default = torch.Tensor.type, torch.set_default_tensor_type

    def converted(tensor: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:  # noqa: ANN401
        kind = _types.get(dtype.removeprefix("torch.cuda.")) if isinstance(dtype, str) else dtype
        if kind is None or not isinstance(kind, TensorType):
            return convert(tensor, dtype, non_blocking, **kwargs) if dtype is not None else convert(tensor)
        return tensor.to("cuda", kind.dtype)

    def set_default(t: Any) -> None:  # noqa: ANN401
        if isinstance(t, TensorType) or str(t).startswith("torch.cuda."):
            instead = "use torch.set_default_dtype and torch.set_default_device"
            not_served("torch.set_default_tensor_type of a type of the device", instead)()
        default(t)

    put(torch.Tensor, "type", converted)
    put(torch, "set_default_tensor_type", set_default)
    for name in NAMES:
        if hasattr(torch.cuda.sparse, name):
            put(torch.cuda.sparse, name, not_served(f"torch.cuda.sparse.{name}"))
