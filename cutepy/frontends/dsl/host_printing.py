"""Tensors that host code prints, where those in host memory are shown to the DSL as in global memory.

`cute.print_tensor` in host code takes tensors in host memory only, which is decided by type as it is traced. On a
backend all tensors are in host memory, so the type of the pointer is all that stands in the way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cutepy.dsl.version import require

_DEVICE_CODE = ("cuda.kernel", "gpu.func", "gpu.module")


def print_from_host(original: Callable[..., Any], view: Any, **options: Any) -> Any:  # noqa: ANN401
    """Print a tensor: in host code, one in global memory by a pointer to host memory."""
    ir = require("cutlass._mlir.dialects.cute", "MemRefType")
    if not isinstance(view.type, ir.MemRefType) or _is_in_kernel():
        return original(view, **options)
    cute = require("cutlass.cute", "make_ptr", "make_tensor", "AddressSpace")
    tensor = require("cutlass.cute.tensor", "_Tensor")._Tensor(view)
    pointer = tensor.iterator
    if pointer.memspace != cute.AddressSpace.gmem:
        return original(view, **options)
    host = cute.make_ptr(pointer.dtype, pointer.toint(), cute.AddressSpace.generic, assumed_align=pointer.alignment)
    return original(cute.make_tensor(host, tensor.layout).value, **options)


def _is_in_kernel() -> bool:
    """Return whether the traced code is in a kernel."""
    ir = require("cutlass._mlir.ir", "InsertionPoint")
    owner = ir.InsertionPoint.current.block.owner
    while owner is not None:
        if owner.operation.name in _DEVICE_CODE:
            return True
        owner = getattr(owner, "parent", None)
    return False
