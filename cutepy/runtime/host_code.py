"""Host code in memory: its object loaded, its calls served."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from cutepy.runtime.host_abi import address_of, cuda_error_setters, is_host_function
from cutepy.runtime.host_calls import HostCalls
from cutepy.runtime.objects import LoadedObject, undefined_symbols

if TYPE_CHECKING:
    from cutepy.layouts.sm90 import SmemPlan


_ERRORS = cuda_error_setters(lambda code: f"the host code of a compiled function returned CUDA error {code}")


class ServedHost:
    """Host object in memory, whose CUDA calls are served in this process.

    Parameters
    ----------
    image : bytes
        Relocatable ELF object.
    entry : str
        Symbol of the entry.
    ptx : str
        The kernels that it launches.
    errors : mapping of str to int
        Addresses of the functions by which the entry raises errors.
    plan : SmemPlan, optional
        By which the kernels share memory.

    Attributes
    ----------
    calls : HostCalls
        Receiver of its launches and failures.
    address : int
        Of the entry.
    """

    def __init__(
        self, image: bytes, entry: str, ptx: str, errors: Mapping[str, int], plan: SmemPlan | None = None
    ) -> None:
        self.calls = HostCalls(ptx, plan)
        names = [name for name in undefined_symbols(image) if is_host_function(name)]
        self._functions: dict[str, Any] = {**self.calls.callbacks(names), **_ERRORS}
        addresses = {name: address_of(f) for name, f in self._functions.items()}
        self._object = load_host(image, {**addresses, **errors}.__getitem__)
        self.address = self._object.addresses[entry]
        self._library = ctypes.c_void_p()

    def load_kernels(self) -> None:
        """Run the host code that loads its kernels, where its entry doesn't.

        Raises
        ------
        RuntimeError
            If it fails.
        """
        load, to_device = (self._object.addresses.get(name, 0) for name in ("cuda_init", "cuda_load_to_device"))
        if load:
            code = self.calls.cuda_dialect_init_library_once(ctypes.addressof(self._library), load, to_device)
            self.calls.check(code)


def load_host(image: bytes, serve: Callable[[str], int]) -> LoadedObject:
    """Load host code with its calls bound to addresses; functions of the C library are this process's."""
    process, symbols = ctypes.CDLL(None), {}
    for name in undefined_symbols(image):
        if is_host_function(name):
            symbols[name] = serve(name)
        elif hasattr(process, name):
            symbols[name] = address_of(getattr(process, name))
    return LoadedObject(image, symbols)
