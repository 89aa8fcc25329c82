import os
import subprocess
import sys
from pathlib import Path

import pytest

import cutepy
from tests.messages import pins, refuses
from tests.processor_time import is_below

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
HEAVY = {"cuda", "cutlass", "hypothesis", "numpy", "pytest", "rich", "torch", "typer"}
# Of the standard library, what takes milliseconds to import, by itself or by what it brings.
SLOW = {"asyncio", "ctypes", "dataclasses", "dis", "email", "importlib.metadata", "importlib.resources", "inspect"}
SLOW |= {"linecache", "logging", "multiprocessing", "pickle", "platform", "random", "shutil", "socket", "subprocess"}
SLOW |= {"tempfile", "traceback", "unittest", "urllib.request", "zipfile"}
# `-X importtime` of cutepy.layouts and all that it loads, at the best of some runs.
IMPORT_LIMIT_US = 50_000
# A compiled program is found on the disk before anything heavy is imported.
STORE_IMPORT_LIMIT_US = 40_000


def python(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=cwd)


def test_layouts_loads_only_the_standard_library():
    done = python("-c", "import sys, cutepy.layouts; print(*sorted({name.partition('.')[0] for name in sys.modules}))")
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "cutepy" in loaded
    assert not loaded & HEAVY


@pytest.mark.parametrize("module", ["cutepy", "cutepy.kernels", "cutepy.host.store"])
def test_light_packages_load_no_tensor_library(module):
    done = python("-c", f"import sys, {module}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))")
    assert done.returncode == 0, done.stderr
    assert not set(done.stdout.split()) & {"cutlass", "numpy", "torch"}


@pytest.mark.parametrize("module", ["cutepy", "cutepy.kernels", "cutepy.layouts", "cutepy.host.store"])
def test_light_packages_load_nothing_slow(module):
    # -S: what an environment's own start-up files import is none of ours.
    done = python("-S", "-c", f"import sys, {module}; print(*sorted(sys.modules))")
    assert done.returncode == 0, done.stderr
    assert not set(done.stdout.split()) & SLOW


def import_time_us(module: str, bytecode: Path) -> int:
    """Time one import in a fresh interpreter, all that it loads included; bytecode is kept, as in daily use."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(bytecode)
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", f"import {module}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        check=True,
    )
    # A line reads `import time: self | cumulative | name`; the package above a module counts within it.
    rows = [line.removeprefix("import time:").split("|") for line in done.stderr.splitlines()]
    (total,) = [int(cumulative) for _, cumulative, name in rows if name.strip() == module]
    return total


def test_layouts_imports_within_its_limit(tmp_path):
    assert is_below(IMPORT_LIMIT_US, lambda: import_time_us("cutepy.layouts", tmp_path))


def test_the_store_imports_within_its_limit(tmp_path):
    assert is_below(STORE_IMPORT_LIMIT_US, lambda: import_time_us("cutepy.host.store", tmp_path))


def test_import_time_counts_what_a_module_loads(tmp_path, monkeypatch):
    (tmp_path / "slow_one.py").write_text("import slower_one")
    (tmp_path / "slower_one.py").write_text("import time\ntime.sleep(0.08)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert import_time_us("slow_one", tmp_path) > IMPORT_LIMIT_US


def test_rooms_are_reached_as_attributes():
    done = python("-c", "import cutepy; print(cutepy.layouts.__name__, cutepy.kernels.__name__)")
    assert done.stdout.split() == ["cutepy.layouts", "cutepy.kernels"], done.stderr


def test_every_room_is_listed():
    rooms = {path.parent.name for path in (ROOT / "cutepy").glob("*/__init__.py")}
    assert {"kernels", "layouts"} <= rooms <= set(dir(cutepy))


def test_unknown_attribute_says_what_exists():
    with refuses(AttributeError):
        cutepy.layout  # noqa: B018


@pytest.mark.parametrize("name", ["kernels", "layouts"])
def test_import_under_another_name_fails_clearly(name):
    done = python("-c", f"import {name}")
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError")
    assert f"cutepy.{name}" in last


@pytest.mark.parametrize("name", ["kernels", "layouts"])
def test_broken_links_are_recognised(name, tmp_path):
    # What a zip archive leaves: the link's target as a text file.
    package = tmp_path / "cutepy"
    package.mkdir()
    (package / "__init__.py").write_text((ROOT / "cutepy" / "__init__.py").read_text())
    for link in ("kernels", "layouts"):
        (tmp_path / link).mkdir()
        (tmp_path / link / "__init__.py").touch()
        (package / link).symlink_to(f"../{link}")
    (package / name).unlink()
    (package / name).write_text(f"../{name}")

    broken = python("-c", "import cutepy", cwd=tmp_path)
    assert broken.returncode != 0
    last = broken.stderr.strip().splitlines()[-1]
    pins(last)

    command = last.split("`")[3:]
    for step in command[0::2]:
        subprocess.run(step, shell=True, check=True, cwd=package)
    assert python("-c", "import cutepy", cwd=tmp_path).returncode == 0
