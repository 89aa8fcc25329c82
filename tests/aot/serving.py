"""Run the pieces of Python that tests send, in one process: torch takes seconds to import.

Each piece comes as a line of JSON and runs in a namespace of its own, with the exported extension imported; what it
prints, or the traceback, goes back as another.
"""

import contextlib
import ctypes
import io
import json
import sys
import traceback

import torch

driver = ctypes.CDLL("libcuda.so.1")
stand_in = ctypes.PyDLL("libc10_cuda.so")
stand_in.make.restype = ctypes.py_object
import example_ops  # noqa: E402

CODES = {torch.float16: 5, torch.float32: 6, torch.complex64: 9, torch.bfloat16: 15}  # c10::ScalarType


def tensor(shape, dtype=torch.float16, strides=None, device=0):
    """Make a tensor that says it is on a GPU."""
    strides = torch.empty(shape, device="meta").stride() if strides is None else strides
    integers = ctypes.c_int64 * len(shape)
    return stand_in.make(len(shape), integers(*shape), integers(*strides), CODES[dtype], device)


def meta(*shape, dtype=torch.float16):
    """Make a tensor without memory."""
    return torch.empty(shape, dtype=dtype, device="meta")


def count(name):
    """Read one of the driver's counters."""
    return ctypes.c_int.in_dll(driver, name).value


def show(call):
    """Print what a call makes, or the first line of its error."""
    try:
        result = call()
        if result is not None:
            result = tuple(result.shape), result.stride(), str(result.dtype), str(result.device)
        print(result)
    except Exception as error:
        print(type(error).__name__ + ": " + str(error).splitlines()[0])


def main():
    """Serve until there is no more."""
    names = {x.__name__: x for x in (ctypes, torch, example_ops, tensor, meta, count, show)} | {"driver": driver}
    for line in sys.stdin:
        ctypes.c_int.in_dll(driver, "launches").value = 0
        if "torch._dynamo" in sys.modules:
            torch._dynamo.reset()
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec(json.loads(line), dict(names))
            answer = {"printed": printed.getvalue()}
        except BaseException:
            answer = {"failed": traceback.format_exc()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
