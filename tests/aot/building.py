"""Build what was exported on a machine without a GPU, against stand-ins for what only a machine with one has."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

STAND_IN = Path(__file__).parent / "stand_in"
EXAMPLE = Path(__file__).parent / "example"


def run(*command, cwd=None, **environment):
    """Run a command, which must succeed, with more environment variables; gives what it printed."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, cwd=cwd, env={**os.environ, **environment}
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def built_once(tmp_path_factory, name, build):
    """Give a folder that one process of a test run fills, by `build(folder)`, while the others wait for it."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root  # of all workers
    folder, done = root / name, root / f"{name}.done"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            build(folder)
            done.touch()
    return folder


def cuda_headers():
    """Find a toolkit's headers; None without."""
    homes = [os.environ.get("CUDA_HOME"), "/usr/local/cuda", *sorted(map(str, Path("/usr/local").glob("cuda-*")))]
    folders = [Path(home) / "include" for home in homes if home]
    return next((folder for folder in folders if (folder / "cuda_runtime_api.h").is_file()), None)


def build_driver(folder):
    """Build the driver of the stand-in."""
    library = folder / "libcuda.so.1"
    run("gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{library.name}", "-o", library,
        STAND_IN / "driver.c")  # fmt: skip
    return library


def build_c_library(tree, name, headers, folder, optimise="-O0"):
    """Build an exported C library as its CMake file does, with all symbols resolved and no warnings."""
    library = folder / f"lib{name}.so"
    sources = sorted((tree / "src").glob("*.cpp"))
    run("g++", "-c", "-fPIC", optimise, "-std=c++17", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror",
        f"-I{headers}", *sources, cwd=folder)  # fmt: skip
    run("g++", "-shared", "-Wl,-z,defs", "-o", library, *(folder / f"{source.stem}.o" for source in sources),
        *sorted((tree / "objects").glob("*.o")), "-ldl")  # fmt: skip
    return library


def call_in_python(code, *libraries, **environment):
    """Run Python code in a process of its own, with `C`, a module of helpers to call C libraries."""
    prelude = f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport calling as C\n"
    return run(sys.executable, "-c", prelude + code, *libraries, **environment)
