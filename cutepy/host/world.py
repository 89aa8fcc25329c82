"""Which names of Python, torch, numpy and the DSL a traced program may use.

A traced program that asks for the environment, a clock, chance, the machine or the state of a library bakes the answer
into its PTX, where no content of the program tells of it. Of the standard library, torch and numpy, hence only what
answers from its arguments alone is let pass, by a list; all else is taken to read the world. Of the DSL, which is
there to be traced, a list says what does.
"""

import re
from pathlib import Path, PurePath

# Modules of which everything is a function of its arguments, but for what `_BUT` names.
_PURE = frozenset(
    {"abc", "array", "ast", "base64", "binascii", "bisect", "builtins", "cmath", "collections", "collections.abc"}
    | {"colorsys", "contextlib", "copy", "copyreg", "dataclasses", "difflib", "enum", "fractions", "functools"}
    | {"graphlib", "hashlib", "heapq", "itertools", "keyword", "math", "numbers", "numpy.dtypes", "operator", "pprint"}
    | {
        "re",
        "re._compiler",
        "re._parser",
        "statistics",
        "string",
        "struct",
        "textwrap",
        "types",
        "typing",
        "unicodedata",
    }
    | {"zlib", "__future__"}
)
_BUT: dict[str, frozenset[str]] = {
    "builtins": frozenset({"__import__", "breakpoint", "compile", "input", "open"}),
    "contextlib": frozenset({"chdir"}),
    "hashlib": frozenset({"file_digest"}),
}
# Of other modules, these names.
_ONLY: dict[str, frozenset[str]] = {
    "datetime": frozenset({"MAXYEAR", "MINYEAR", "UTC", "time", "timedelta", "timezone"}),
    "inspect": frozenset({"Parameter", "Signature", "cleandoc", "getmro", "isclass", "isfunction", "signature"}),
    "io": frozenset({"BytesIO", "StringIO"}),
    "json": frozenset({"JSONDecodeError", "JSONDecoder", "JSONEncoder", "dumps", "loads"}),
    "logging": frozenset({"CRITICAL", "DEBUG", "ERROR", "INFO", "NOTSET", "WARNING", "getLogger", "Logger"})
    | {"critical", "debug", "error", "exception", "info", "log", "warning"},
    "os": frozenset({"PathLike", "curdir", "extsep", "fsdecode", "fsencode", "fspath", "linesep", "name", "pardir"})
    | {"pathsep", "sep", "strerror"},
    "os.path": frozenset({"basename", "commonpath", "commonprefix", "curdir", "dirname", "extsep", "isabs", "join"})
    | {"normcase", "normpath", "pardir", "pathsep", "sep", "split", "splitdrive", "splitext"},
    "pathlib": frozenset({"PurePath", "PurePosixPath", "PureWindowsPath"}),
    "reprlib": frozenset({"recursive_repr"}),  # which dataclasses use since Python 3.13
    "sys": frozenset({"byteorder", "float_info", "hash_info", "hexversion", "implementation", "int_info", "intern"})
    | {"maxsize", "maxunicode", "platform", "version", "version_info"},
    "warnings": frozenset({"warn"}),
    "torch": frozenset({"Size", "Tensor", "device", "dtype", "finfo", "iinfo", "layout", "memory_format", "nn", "ops"})
    | {"channels_last", "channels_last_3d", "contiguous_format", "inf", "nan", "pi", "e", "preserve_format"}
    | {"sparse_coo", "sparse_csr", "strided", "broadcast_shapes", "typename", "SymInt", "SymFloat", "SymBool"},
    "torch.nn": frozenset({"Module", "Parameter"}),
    "torch.nn.modules.module": frozenset({"Module"}),
    "torch.nn.parameter": frozenset({"Parameter"}),
    "numpy": frozenset({"abs", "absolute", "all", "allclose", "any", "arange", "arccos", "arcsin", "arctan", "arctan2"})
    | {"argmax", "argmin", "argsort", "array", "array_equal", "asarray", "ascontiguousarray", "atleast_1d"}
    | {"bincount", "bitwise_and", "bitwise_count", "bitwise_or", "bitwise_xor", "broadcast_shapes", "broadcast_to"}
    | {"cbrt", "ceil", "clip", "concatenate", "copysign", "cos", "cosh", "cross", "cumprod", "cumsum", "diag", "diff"}
    | {"divide", "divmod", "dot", "dtype", "e", "einsum", "equal", "exp", "exp2", "expm1", "eye", "fabs", "finfo"}
    | {"flip", "float_power", "floor", "floor_divide", "fmax", "fmin", "fmod", "frexp", "full", "gcd", "generic"}
    | {"greater", "greater_equal", "hypot", "identity", "iinfo", "indices", "inf", "inner", "integer", "floating"}
    | {"invert", "isclose", "isfinite", "isin", "isinf", "isnan", "isscalar", "issubdtype", "kron", "lcm", "ldexp"}
    | {"left_shift", "less", "less_equal", "linspace", "log", "log10", "log1p", "log2", "logical_and", "logical_not"}
    | {"logical_or", "logspace", "matmul", "max", "maximum", "mean", "median", "meshgrid", "min", "minimum", "mod"}
    | {"moveaxis", "multiply", "nan", "ndarray", "ndim", "negative", "newaxis", "nonzero", "not_equal", "number"}
    | {"ones", "outer", "pad", "pi", "polyval", "power", "prod", "promote_types", "ravel", "ravel_multi_index"}
    | {"remainder", "repeat", "reshape", "result_type", "right_shift", "rint", "roll", "round", "searchsorted"}
    | {"shape", "sign", "sin", "sinh", "size", "sort", "split", "sqrt", "square", "squeeze", "stack", "std"}
    | {"subtract", "sum", "swapaxes", "take", "tan", "tanh", "tensordot", "tile", "trace", "transpose", "tri", "tril"}
    | {"triu", "trunc", "unique", "unravel_index", "unsignedinteger", "signedinteger", "var", "vstack", "hstack"}
    | {"where", "zeros", "add", "bool", "bool_", "bytes_", "str_", "object_", "void", "ufunc"},
}
_DTYPE = re.compile(
    r"q?u?int\d*(x\d)?|bfloat16|b?float\d*(_e\dm\d\w*)?|complex\d*|half|single|double|longdouble|long|short|bool|c?float"
    r"|cdouble|chalf|cfloat|bits\w+|float4_\w+|intp|uintp|intc|uintc|longlong|ulonglong|ushort|ulong|byte|ubyte"
)
_ALIASES = {
    "_abc": "abc",
    "_collections_abc": "collections.abc",
    "_io": "io",
    "_pydatetime": "datetime",
    "_sre": "re",
    "genericpath": "os.path",
    "json.decoder": "json",
    "json.encoder": "json",
    "nt": "os",
    "ntpath": "os.path",
    "numpy._core._multiarray_umath": "numpy",
    "numpy._core.multiarray": "numpy",
    "pathlib._local": "pathlib",
    "posix": "os",
    "posixpath": "os.path",
    "torch._C": "torch",
}
# Modules that a traced program may hand about as values.
_HARMLESS = frozenset({"cmath", "dataclasses", "enum", "functools", "itertools", "math", "operator", "typing"})
_HARDWARE = frozenset({"HardwareInfo"})
_STATE_OF_THE_DSL = ("cutlass.base_dsl.env_manager", "cutlass.base_dsl.runtime.cuda")
READING_METHODS = frozenset(
    {"__subclasses__", "iterdir", "read_bytes", "read_text"}
    | {
        "__globals__",
        "ag_frame",
        "cr_frame",
        "f_back",
        "f_builtins",
        "f_globals",
        "f_lineno",
        "f_locals",
        "gi_frame",
        "tb_frame",
    }
)
"""Attributes that read files, who called whom, or what classes there are.

They are told by their names, since paths and frames are come by in many ways.
"""

# Of paths, these only change what is there, and strings and dataclasses have methods of these names.
_CHANGING = frozenset({"copy", "move", "rename", "replace"})
# Objects that a program may hold although they answer from outside when asked by these names.
_READERS: dict[str, frozenset[str]] = {
    "datetime.date": frozenset({"fromtimestamp", "today"}),
    "datetime.datetime": frozenset({"astimezone", "fromtimestamp", "now", "timestamp", "today", "utcnow"}),
    "pathlib.Path": frozenset(
        name for name in set(dir(Path)) - set(dir(PurePath)) - _CHANGING if not name.startswith("_")
    ),
}
# And those whose content tells all.
_CONTENTS = frozenset({"argparse.Namespace", "logging.Logger", "logging.RootLogger", "uuid.UUID"})


def reading_attributes(kind: type) -> frozenset[str] | None:
    """Name the attributes by which objects of a pinned class answer from outside; None if it may be any.

    Examples
    --------
    >>> from datetime import date
    >>> sorted(reading_attributes(date)), reading_attributes(range), reading_attributes(type(open))
    (['fromtimestamp', 'today'], frozenset(), frozenset())
    """
    name = f"{_ALIASES.get(kind.__module__, kind.__module__)}.{kind.__qualname__}"
    if issubclass(kind, Path):
        return _READERS["pathlib.Path"]
    if name in _READERS:
        return _READERS[name]
    return None if name not in _CONTENTS and reads_world(kind.__module__, kind.__qualname__) else frozenset()


def reads_world(module: str, name: str) -> bool:
    """Tell whether `name` (dotted) of a pinned module may answer differently from one run to the next.

    Examples
    --------
    >>> reads_world("posix", "getcwd"), reads_world("posixpath", "join"), reads_world("time", "time")
    (True, False, True)
    """
    module = _ALIASES.get(module, module)
    first = name.partition(".")[0]
    top = module.partition(".")[0]
    if top in ("_pytest", "tvm_ffi"):
        return False
    if top == "cutlass":
        return name in _HARDWARE or (module.startswith(_STATE_OF_THE_DSL) and not name[:1].isupper())
    if top == "cuda":
        return name.startswith(("cu", "nvrtc")) and not name[2:3].isupper()
    if module in ("torch", "numpy", "numpy.dtypes") and _DTYPE.fullmatch(first):
        return False
    if module == "torch.utils._contextlib":
        return False  # wrappers of its decorators, such as `torch.no_grad`
    pure = module if module in _PURE or module in _ONLY else module.removeprefix("_")  # such as _operator
    if pure in _PURE:
        return first in _BUT.get(pure, ())
    return first not in _ONLY.get(pure, ())


def is_harmless(module: str) -> bool:
    """Tell whether a pinned module may be handed about as a value: nothing in it reads the world.

    Examples
    --------
    >>> is_harmless("math"), is_harmless("os")
    (True, False)
    """
    return module in _HARMLESS or module == "cutlass" or module.startswith("cutlass.")
