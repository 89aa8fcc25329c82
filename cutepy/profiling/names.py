"""Names of kernels as people read them."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from typing import Any

LONGEST = 80


@cache
def short_name(name: str) -> str:
    """Return a kernel's name without its template's arguments and parameters, in at most `LONGEST` characters.

    Examples
    --------
    >>> short_name("_Z5scalePff")
    'scale'
    >>> short_name("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int, float)")
    'at::native::vectorized_elementwise_kernel'
    >>> short_name("sm90_xmma_gemm_bf16bf16_bf16f32_f32_nn_n")
    'sm90_xmma_gemm_bf16bf16_bf16f32_f32_nn_n'
    """
    text = _demangled(name) if name.startswith("_Z") else name
    text = text.replace("(anonymous namespace)::", "")
    text = re.sub(r"^(void|auto) ", "", text)
    if "<" in text or "(" in text:
        text = _without_brackets(text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _without_brackets(text: str) -> str:
    """Remove the brackets of a name, and everything after the parameters."""
    kept: list[str] = []
    depth = 0
    for n, character in enumerate(text):
        if character in "<(":
            if depth == 0 and character == "(" and kept:
                break
            depth += 1
        elif character in ">)" and text[n - 1] != "-":
            depth -= depth > 0
        elif not depth:
            kept.append(character)
    return "".join(kept).strip() or text


@cache
def _demangler() -> Any:  # noqa: ANN401 - a foreign function, or None
    for library in ("libstdc++.so.6", "libc++abi.so.1"):
        try:
            found = ctypes.CDLL(library).__cxa_demangle
        except (OSError, AttributeError):
            continue
        found.restype = ctypes.c_void_p
        found.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
        return found
    return None


def _demangled(name: str) -> str:
    """Return a name of C++ as C++ has it; as it is where no library of C++ is found."""
    demangle = _demangler()
    if demangle is None:
        return name
    status = ctypes.c_int()
    address = demangle(name.encode(), None, None, ctypes.byref(status))
    if not address:
        return name
    text = ctypes.string_at(address).decode(errors="replace")
    _free()(address)
    return text


@cache
def _free() -> Any:  # noqa: ANN401 - a foreign function
    free = ctypes.CDLL(None).free
    free.argtypes, free.restype = [ctypes.c_void_p], None
    return free
