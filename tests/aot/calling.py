"""Call exported C libraries over the stand-in's driver; runs in a process of its own, given the libraries' paths."""

import ctypes
import sys

driver = ctypes.CDLL(sys.argv[1])
library = ctypes.CDLL(sys.argv[2]) if len(sys.argv) > 2 else None
STREAM = 0x57
_CODES = {"float16": (2, 16), "float32": (2, 32), "bfloat16": (4, 16)}


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("kind", ctypes.c_int32),
        ("index", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Launch(ctypes.Structure):
    _fields_ = (
        ("extents", ctypes.c_uint32 * 6),
        ("smem_bytes", ctypes.c_uint32),
        ("cluster", ctypes.c_uint32 * 3),
        ("stream", ctypes.c_uint64),
        ("kernel", ctypes.c_uint64),
        ("device", ctypes.c_int32),
        ("programmatic", ctypes.c_int32),
    )


def tensor(shape, dtype="float16", strides=None, address=4096, device=0, kind=2):
    """Describe a tensor that is nowhere."""
    extents = (ctypes.c_int64 * len(shape))(*shape)
    steps = None if strides is None else (ctypes.c_int64 * len(shape))(*strides)
    return Tensor(address, kind, device, len(shape), *_CODES[dtype], 1, extents, steps, 0)


def call(name, *arguments):
    """Call a function on the stream; gives its error, or an empty string."""
    prefix = name.rpartition(".")[0]
    function = getattr(library, name.replace(".", "_"))
    passed = list(map(_passed, arguments))
    if not function(*passed, ctypes.c_void_p(STREAM)):
        return ""
    error = getattr(library, f"{prefix}_error")
    error.restype = ctypes.c_char_p
    return error().decode()


def _passed(argument):
    kinds = {
        float: ctypes.c_double,
        int: ctypes.c_int64,
        str: lambda text: text.encode(),
        type(None): lambda none: none,
    }
    return ctypes.byref(argument) if isinstance(argument, Tensor) else kinds[type(argument)](argument)


def gemm(a, b, d, c=None, bias=None, activation=None):
    """Call the GEMM; gives its error."""
    return call("example_ops.gemm", a, b, c, d, bias, activation)


def count(name):
    """Read one of the driver's counters."""
    return ctypes.c_int.in_dll(driver, name).value


def set_driver(**values):
    """Set variables of the driver."""
    for name, value in values.items():
        ctypes.c_int.in_dll(driver, name).value = value


def current_device():
    """Tell which device is current in this thread."""
    device = ctypes.c_int()
    driver.cuCtxGetDevice(ctypes.byref(device))
    return device.value


def last():
    """Give the last launch: grid, block, cluster, shared memory, stream, device."""
    launch = Launch.in_dll(driver, "last")
    x = tuple(launch.extents)
    return x[:3], x[3:], tuple(launch.cluster), launch.smem_bytes, launch.stream, launch.device


def is_programmatic():
    """Tell whether the last launch may begin while what is before it ends."""
    return bool(Launch.in_dll(driver, "last").programmatic)


def begin_capture(number):
    """Let all streams take part in a capture, whose graph is empty; 0 for none."""
    driver.begin_capture(ctypes.c_uint64(number))


def parameter():
    """Read the parameter that was asked for by `wanted_parameter`, as a float."""
    return ctypes.c_float.in_dll(driver, "parameter").value
