"""Which functions of Python, torch, numpy and the DSL answer differently from one run to the next.

A traced program that calls one bakes the answer into its PTX, where no content of the program tells of it.
"""

_MODULES = frozenset(
    {"_random", "getpass", "glob", "importlib.metadata", "importlib.resources", "numpy.random", "platform", "random"}
    | {"secrets", "select", "shutil", "socket", "subprocess", "tempfile", "time", "torch.backends", "torch.cuda"}
    | {"torch.distributed", "torch.random", "urllib.request", "uuid", "cutlass.base_dsl.runtime.cuda"}
)
_PURE_OS = frozenset({"fsdecode", "fsencode", "fspath", "strerror", "get_terminal_size"})
_NAMES: dict[str, frozenset[str]] = {
    "builtins": frozenset({"__import__", "input", "open"}),
    "_io": frozenset({"open", "open_code", "FileIO"}),
    "os.path": frozenset(
        {"abspath", "exists", "expanduser", "expandvars", "getatime", "getctime", "getmtime", "getsize", "isdir"}
        | {"isfile", "islink", "ismount", "lexists", "realpath", "samefile"}
    ),
    "datetime": frozenset({"date.today", "datetime.now", "datetime.today", "datetime.utcnow"}),
    "importlib": frozenset({"__import__", "import_module", "reload"}),
    "json": frozenset({"load"}),
    "numpy": frozenset({"fromfile", "genfromtxt", "load", "loadtxt", "memmap"}),
    "pathlib": frozenset({"Path.cwd", "Path.home"}),
    "pickle": frozenset({"load"}),
    "pkgutil": frozenset({"get_data"}),
    "sys": frozenset({"stdin"}),
    "threading": frozenset({"current_thread", "get_ident", "get_native_id"}),
    "torch": frozenset(
        {"get_default_device", "get_default_dtype", "get_num_threads", "initial_seed", "is_grad_enabled", "load"}
        | {
            "bernoulli",
            "multinomial",
            "normal",
            "rand",
            "rand_like",
            "randint",
            "randn",
            "randn_like",
            "randperm",
            "seed",
        }
    ),
}
_NAMES["io"] = _NAMES["_io"]
_ALIASES = {"genericpath": "os.path", "ntpath": "os.path", "posixpath": "os.path", "nt": "os", "posix": "os"}
_HARDWARE = frozenset({"HardwareInfo"})
READING_METHODS = frozenset({"iterdir", "read_bytes", "read_text"})
"""Methods of paths that read files, told by their names since paths are made in many ways."""


def reads_world(module: str, name: str) -> bool:
    """Tell whether `name` (dotted) of a module reads the environment, files, clocks, chance or the machine.

    Examples
    --------
    >>> reads_world("posix", "getcwd"), reads_world("posixpath", "join"), reads_world("time", "time")
    (True, False, True)
    """
    module = _ALIASES.get(module, module)
    if module == "os":
        return name.partition(".")[0] not in _PURE_OS and not name[:1].isupper() and name not in ("path", "sep")
    if name in _NAMES.get(module, ()) or (module.startswith("cutlass") and name in _HARDWARE):
        return True
    if module.startswith("cuda.bindings") and name.startswith(("cu", "nvrtc")) and not name[2:3].isupper():
        return True
    parts = module.split(".")
    inside = any(".".join(parts[:count]) in _MODULES for count in range(1, len(parts) + 1))
    return inside and not name[:1].isupper()  # their classes, such as torch.cuda.Stream, are fine to mention
