"""Run the pieces of Python that tests send, in processes that need not import torch, which takes seconds.

Each piece comes as a line of JSON, with more variables of the environment. It runs in a process that is forked for it,
or in the one that all pieces that stay share; what it prints, or how it failed, goes back as another line.
"""

import contextlib
import ctypes
import io
import json
import os
import sys
import traceback

import torch

CODES = {torch.float16: 5, torch.float32: 6, torch.complex64: 9, torch.bfloat16: 15}  # c10::ScalarType
names = {"ctypes": ctypes, "torch": torch}


def load(libraries, site):
    """Load what stands for the driver and for torch's CUDA, then the extension, for all further pieces."""
    global driver, stand_in
    driver, stand_in, _ = (ctypes.PyDLL(path, ctypes.RTLD_GLOBAL) for path in libraries)
    stand_in.make.restype = ctypes.py_object
    sys.path.insert(0, site)
    import example_ops

    names.update({x.__name__: x for x in (example_ops, tensor, meta, count, show)}, driver=driver)


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


def run(code, environment):
    """Run a piece; gives the answer."""
    if "driver" in names:
        ctypes.c_int.in_dll(driver, "launches").value = 0
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    os.environ.update(environment)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(code, {**names, "load": load})
        return {"printed": printed.getvalue()}
    except BaseException:
        return {"failed": printed.getvalue() + traceback.format_exc()}


class Process:
    """A process that is forked from this one and runs pieces; this one stays as it is."""

    def __init__(self):
        asked, ask = os.pipe()
        answered, answer = os.pipe()
        self.id = os.fork()
        if self.id == 0:
            os.close(ask)
            os.dup2(2, 1)  # of the processes that it starts
            with os.fdopen(asked) as lines, os.fdopen(answer, "w") as answers:
                for line in lines:
                    print(json.dumps(run(*json.loads(line))), file=answers, flush=True)
            os._exit(0)
        os.close(asked)
        os.close(answer)
        self.ask, self.answers = os.fdopen(ask, "w"), os.fdopen(answered)

    def answer(self, *piece):
        """Run a piece; gives its answer."""
        print(json.dumps(piece), file=self.ask, flush=True)
        return self.answers.readline() or json.dumps({"failed": "the process died"})

    def end(self):
        """End it, and wait until it has ended."""
        self.ask.close()
        os.waitpid(self.id, 0)
        self.answers.close()


def main():
    """Serve until there is no more."""
    staying = None
    for line in sys.stdin:
        *piece, stays = json.loads(line)
        process = staying if stays and staying is not None else Process()
        print(process.answer(*piece).strip(), flush=True)
        if stays:
            staying = process
        else:
            process.end()
    if staying is not None:
        staying.end()


if __name__ == "__main__":
    main()
