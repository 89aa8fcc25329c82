"""Packed entries, loaded for a backend: host code in TVM-FFI's convention, whose CUDA calls are answered here.

The entry of a compiled function checks types, extents, strides, alignment and devices of its arguments in the words
that its callers see on a GPU, and reads its parameters from them. So what is served is the entry itself, and `tvm_ffi`
makes its arguments, as on a GPU: tuples, dataclasses, defaults and streams are its matter.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

from cutepy.dsl.entries import emit_object, parameter_names
from cutepy.dsl.version import require
from cutepy.runtime.device_tensors import DeviceTensor, is_tensor
from cutepy.runtime.host_abi import FUNCTIONS, address_of, error_setters
from cutepy.runtime.host_calls import Backend
from cutepy.runtime.host_code import ServedHost


class ServedEntry:
    """Result of `cute.compile(..., options="--enable-tvm-ffi")`, called on a backend.

    Parameters
    ----------
    function : TVMFFIJitCompiledFunction
    ptx : str
        Its kernels.
    """

    def __init__(self, function: Any, ptx: str) -> None:  # noqa: ANN401
        ffi = require("tvm_ffi", "Function", "from_dlpack")
        library = ctypes.CDLL(require("tvm_ffi.libinfo", "find_libtvm_ffi").find_libtvm_ffi())
        wrapping = require("tvm_ffi.utils.kwargs_wrapper", "make_kwargs_wrapper", "unpack_dataclass_to_tuple")
        names = ("TVMFFIErrorSetRaisedFromCStr", "TVMFFIErrorSetRaisedFromCStrParts")
        real = (FUNCTIONS[name].prototype(address_of(getattr(library, name))) for name in names)
        self._setters = error_setters(*real)
        errors = {name: address_of(setter) for name, setter in self._setters.items()}
        image = emit_object(function.ir_module)
        self._host = ServedHost(image, f"__tvm_ffi_{function.function_name}", ptx, errors)
        self._entry = ffi.Function.__from_extern_c__(self._host.address)
        self._from_dlpack: Callable[[Any], Any] = ffi.from_dlpack
        self._unpacked: Callable[[Any], Any] = wrapping.unpack_dataclass_to_tuple
        self._binder = function.execution_args
        self._backend: Backend | None = None
        self._call = self._named(wrapping.make_kwargs_wrapper, parameter_names(function.ir_module) or ())

    def __call__(self, backend: Backend, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Run the host function; its launches go to the backend.

        Raises
        ------
        TypeError, ValueError
            If the compiled checks refuse an argument, in their words.
        """
        if self._binder.has_pointer_address_arg_specs:
            arguments, named = self._binder.convert_python_pointer_args_for_tvm_ffi(arguments, dict(named))
        result, refused, previous = None, None, self._backend
        self._backend = backend
        try:
            with self._host.calls.launching_on(backend):
                result = self._call(*arguments, **named)
        except Exception as error:
            refused = error
        finally:
            self._backend = previous
        self._host.calls.check(0)
        if refused is not None:
            raise refused
        return result

    def _named(self, wrap: Callable[..., Any], taken: tuple[str, ...]) -> Callable[..., Any]:
        """Let arguments be named and left out, as the function's signature has it; the entry takes them by place."""
        streams = [name for name in self._binder.signature.parameters if name not in taken]
        names, defaults, keywords, keyword_defaults = self._binder.get_kwargs_wrapper_spec(streams)
        if not names and not keywords:
            return self._positional
        wrapped: Callable[..., Any] = wrap(self._positional, names, defaults, keywords, keyword_defaults)
        return wrapped

    def _positional(self, *arguments: Any) -> Any:  # noqa: ANN401
        return self._entry(*map(self._on_device, arguments))

    def _on_device(self, argument: Any) -> Any:  # noqa: ANN401
        """Show tensors, also within tuples and dataclasses, as ones of CUDA's device 0."""
        if is_tensor(argument):
            assert self._backend is not None
            self._backend.adopt(argument)
            return self._from_dlpack(DeviceTensor(argument))
        argument = self._unpacked(argument)  # a dataclass as a tuple, all else as it is
        if isinstance(argument, (tuple, list)):
            return tuple(map(self._on_device, argument))
        return argument
