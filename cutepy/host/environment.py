"""Environment variables of cutepy: only this module reads them, and only on demand.

An empty variable is an unset one.
"""

import os
import re
from pathlib import Path
from typing import NamedTuple

from cutepy.extras import require

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(r"(\d+)([KMGT]?)", re.IGNORECASE)


class Variable(NamedTuple):
    """Environment variable: its name, its default, and its meaning."""

    name: str
    default: str
    meaning: str

    def read(self) -> str:
        """Read the variable now; return its default where it is unset or empty."""
        return os.environ.get(self.name) or self.default


CUDA_HOME = Variable("CUDA_HOME", "", "A CUDA toolkit, whose `nvdisasm` and `ptxas` serve where no others are found.")
CACHE = Variable("CUTEPY_CACHE", "on", "`off`: compiled programs are neither read from the disk nor kept there.")
CACHE_DIR = Variable(
    "CUTEPY_CACHE_DIR",
    "",
    "The folder to keep compiled programs in. By default the platform's cache folder, on Linux `~/.cache/cutepy`.",
)
CACHE_LIMIT = Variable(
    "CUTEPY_CACHE_LIMIT",
    "4G",
    "How much to keep: bytes, or with K, M, G or T a multiple of 1024 bytes to its power. "
    "Beyond it, the least recently used programs are removed until a sixteenth is free.",
)

TUNED = Variable("CUTEPY_TUNED", "on", "`off`: what `cutepy tune` found is not used; kernels are chosen as without it.")
VERIFY = Variable(
    "CUTEPY_VERIFY",
    "0",
    "`1`: a program that was found by its declared sources is traced too; another program is an error.",
)

ARCH = Variable(
    "CUTE_DSL_ARCH",
    "",
    "The DSL's own: the architecture that kernels are compiled for, and the GPU that `simulate` stands for: `sm_90a` "
    "(an H200, by default), `sm_100a` (a B200), `sm_103a` (a B300) or `sm_120a` (an RTX 5090).",
)

VARIABLES = (CUDA_HOME, CACHE, CACHE_DIR, CACHE_LIMIT, TUNED, VERIFY, ARCH)
"""All variables that cutepy reads."""


def cache_enabled() -> bool:
    """Return whether compiled programs are kept on the disk (`CUTEPY_CACHE`).

    Raises
    ------
    ValueError
        If the variable is neither `on` nor `off`.
    """
    return _is_on(CACHE)


def tuned() -> bool:
    """Return whether winners of tuning are used (`CUTEPY_TUNED`).

    Raises
    ------
    ValueError
        If the variable is neither `on` nor `off`.
    """
    return _is_on(TUNED)


def _is_on(variable: Variable) -> bool:
    value = variable.read()
    if value not in ("on", "off"):
        raise ValueError(f"{variable.name} must be on or off, got {value!r}; unset it for {variable.default}")
    return value == "on"


def verify() -> bool:
    """Return whether declared sources are verified (`CUTEPY_VERIFY`).

    Raises
    ------
    ValueError
        If the variable is neither 0 nor 1.
    """
    value = VERIFY.read()
    if value not in ("0", "1"):
        raise ValueError(f"{VERIFY.name} must be 0 or 1, got {value!r}; unset it for {VERIFY.default}")
    return value == "1"


def cache_dir() -> Path:
    """Return the folder of cutepy's caches (`CUTEPY_CACHE_DIR`); it need not exist.

    Returns
    -------
    Path
        Absolute.

    Raises
    ------
    MissingPackagesError
        If the variable is unset and platformdirs, which knows the platform's folder, is not installed.
    """
    if value := CACHE_DIR.read():
        return Path(value).expanduser().absolute()
    require("the platform's cache folder", "platformdirs", instead=f"set {CACHE_DIR.name}")
    import platformdirs

    return platformdirs.user_cache_path("cutepy")


def cache_limit_bytes() -> int:
    """Return the limit of the disk cache in bytes (`CUTEPY_CACHE_LIMIT`).

    Raises
    ------
    ValueError
        If the variable is not a positive number of bytes, K, M, G or T.
    """
    value = CACHE_LIMIT.read()
    match = _SIZE.fullmatch(value)
    limit = int(match[1]) * _UNITS[match[2].upper()] if match else 0
    if limit == 0:
        raise ValueError(
            f"{CACHE_LIMIT.name} must be a positive number of bytes, or one with K, M, G or T, such as "
            f"{CACHE_LIMIT.default}; got {value!r}. To keep nothing, set {CACHE.name}=off"
        )
    return limit


def cuda_home() -> Path | None:
    """Return the CUDA toolkit's folder (`CUDA_HOME`); None if it is unset."""
    return Path(value) if (value := CUDA_HOME.read()) else None


class Torchrun(NamedTuple):
    """Process of torchrun: its rank among all, and among those of its host."""

    rank: int
    size: int
    local_rank: int
    local_size: int


def torchrun() -> Torchrun | None:
    """Return this process's ranks under torchrun (`RANK` and the like); None without torchrun."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    return Torchrun(*(int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")))


def dsl_variables() -> dict[str, str]:
    """Return the DSL's variables that may affect compilation: `CUTE_DSL_*` without those of its own loader."""
    found = (name for name in sorted(os.environ) if name.startswith("CUTE_DSL_") and name != "CUTE_DSL_LIBS")
    return {name: os.environ[name] for name in found}


def of_child(cache: Path, package_root: Path) -> dict[str, str]:
    """Return the environment for a child process of measurements: this one's, without variables that change them.

    Parameters
    ----------
    cache : Path
        Folder of the process's compiled programs.
    package_root : Path
        The folder from which it imports cutepy, before any other.

    Returns
    -------
    dict of str to str
        Without `CUTEPY_CACHE`, and without `PYTHONDONTWRITEBYTECODE`: bytecode is kept, as in daily use.
    """
    kept = {n: value for n, value in os.environ.items() if n not in (CACHE.name, "PYTHONDONTWRITEBYTECODE")}
    paths = [str(package_root), *filter(None, [kept.get("PYTHONPATH")])]
    return {**kept, CACHE_DIR.name: str(cache), "PYTHONPATH": os.pathsep.join(paths)}
