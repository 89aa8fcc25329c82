"""CUDA as the accelerator that torch's C++ code was built for, which its autograd engine asks for on device tensors.

A CPU build has hooks for CUDA that say it was not built, and refuse the rest. While the device is served, a copy of
their table of virtual methods takes its place, with two answers changed: it was built, and no device has a context
that would have to be kept current, so that the engine looks for no streams of its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

_HOOKS = "_ZN2at6detail12getCUDAHooksEv"
_BEFORE = 2
"""Words before the first method of a table: the offset to the top, and the type."""

_METHODS = 64
"""More than the virtual methods of the interface."""

_IS_BUILT, _HAS_PRIMARY_CONTEXT = 2, 4
"""Places in the table, of `AcceleratorHooksInterface`; its destructor has two."""


@contextmanager
def accelerating() -> Iterator[None]:
    """Let torch's C++ code find CUDA as its accelerator while the context is active.

    Raises
    ------
    ImportError
        If this torch's hooks are not as this was written for.
    """
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    try:
        get_hooks = getattr(library, _HOOKS)
    except AttributeError as error:
        raise ImportError(
            f"serving the cuda device needs at::detail::getCUDAHooks, which torch {torch.__version__} does not export; "
            "torch 2.13 does"
        ) from error
    get_hooks.restype, get_hooks.argtypes = ctypes.c_void_p, []
    table_of_hooks = ctypes.c_void_p.from_address(get_hooks())
    before = table_of_hooks.value
    assert before is not None
    word = ctypes.sizeof(ctypes.c_void_p)
    table_type = ctypes.c_void_p * (_BEFORE + _METHODS)
    table = table_type(*table_type.from_address(before - _BEFORE * word))
    kind = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)
    yes, no = kind(lambda _: True), kind(lambda *_: False)
    table[_BEFORE + _IS_BUILT] = ctypes.cast(yes, ctypes.c_void_p).value
    table[_BEFORE + _HAS_PRIMARY_CONTEXT] = ctypes.cast(no, ctypes.c_void_p).value
    table_of_hooks.value = ctypes.addressof(table) + _BEFORE * word
    try:
        if torch._C._accelerator_getAccelerator().type != "cuda":
            raise ImportError(f"torch {torch.__version__} has other hooks for CUDA than torch 2.13, which is served")
        yield
    finally:
        table_of_hooks.value = before
