"""A shared library with the names of the CUDA runtime, each of which calls Python: made by the C compiler once.

A library that nvcc builds with ``-cudart none`` calls functions of these names, and the dynamic linker resolves them to
this library. x86-64 only.
"""

from __future__ import annotations

import atexit
import ctypes
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_SOURCE = """
static void *targets[{count}] __attribute__((used));
void **cutepy_targets(void) {{ return targets; }}
long cutepy_nothing(void) {{ return 0; }}
{jumps}
"""
_JUMP = '__attribute__((naked)) void {name}(void) {{ __asm__("jmp *targets+{offset}(%rip)"); }}'


def provide(functions: Mapping[str, Any]) -> tuple[ctypes.CDLL, Mapping[str, Any]]:
    """Let the names be found by libraries that are loaded from now on.

    Parameters
    ----------
    functions : mapping of str to ctypes function
        Name -> Python function.

    Returns
    -------
    tuple
        Objects that must live as long as the functions.

    Raises
    ------
    RuntimeError
        If there is no C compiler, or it fails.
    """
    jumps = "\n".join(_JUMP.format(name=name, offset=8 * n) for n, name in enumerate(functions))
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "stand_in.c"), Path(folder, "libstand_in.so")
        source.write_text(_SOURCE.format(count=len(functions), jumps=jumps))
        command = ["cc", "-shared", "-fPIC", "-O1", "-w", str(source), "-o", str(made)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except FileNotFoundError:
            raise RuntimeError("host code of CUDA C++ needs a C compiler, as nvcc does; there is no `cc`") from None
        except subprocess.CalledProcessError as error:
            raise RuntimeError(f"`{' '.join(command)}` failed: {error.stderr.strip()}") from None
        library = ctypes.CDLL(str(made), mode=ctypes.RTLD_GLOBAL)
    library.cutepy_targets.restype = ctypes.POINTER(ctypes.c_void_p)
    targets = library.cutepy_targets()
    for n, function in enumerate(functions.values()):
        targets[n] = ctypes.cast(function, ctypes.c_void_p).value
    # Host code unregisters its modules as the process ends, after Python has.
    atexit.register(_end, targets, len(functions), ctypes.cast(library.cutepy_nothing, ctypes.c_void_p).value)
    return library, functions


def _end(targets: Any, count: int, nothing: int | None) -> None:  # noqa: ANN401
    for n in range(count):
        targets[n] = nothing
