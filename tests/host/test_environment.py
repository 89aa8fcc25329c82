import ast
import sys
from pathlib import Path

import pytest

from cutepy.host import environment, store
from tests.messages import refuses

ROOT = Path(__file__).parents[2]
READERS = {"environ", "environb", "getenv", "getenvb"}


def reads(source: str) -> list[str]:
    """Name what in `source` reads environment variables; to set one, or to hand all on to a process, is no reading."""
    if not any(word in source for word in ("environ", "getenv", "import *")):
        return []
    nodes = list(ast.walk(ast.parse(source)))
    for_processes = [n.value for n in nodes if isinstance(n, ast.keyword) and n.arg == "env"]
    handed_on = [
        value
        for passed in for_processes
        if isinstance(passed, ast.Dict)
        for key, value in zip(passed.keys, passed.values, strict=True)
        if key is None
    ]
    set_there = [node.value for node in nodes if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)]
    found = []
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in READERS and node not in [*set_there, *handed_on]:
            found.append(f"line {node.lineno}: .{node.attr}")
        if isinstance(node, ast.ImportFrom) and node.module in ("os", "posix"):
            found += [f"line {node.lineno}: import {name.name}" for name in node.names if name.name in {*READERS, "*"}]
    return found


@pytest.mark.parametrize(
    "source",
    ["import os\nos.environ['A']", "from os import environ as e", "import os as o\no.getenv('A')", "from os import *"],
)
def test_reads_of_the_environment_are_found(source):
    assert reads(source)


def test_a_variable_may_be_set():
    assert reads("import os\nos.environ['A'] = '1'") == []
    assert reads("import os\nos.environ['A'] = os.environ['B']") == ["line 2: .environ"]


def test_all_variables_may_be_handed_on_to_a_process():
    assert reads("import os\nrun(env={**os.environ, 'A': '1'})") == []
    assert reads("import os\nrun(env={'A': os.environ['B']})") == ["line 2: .environ"]
    assert reads("import os\nrun({**os.environ})") == ["line 2: .environ"]


def test_one_module_reads_the_environment():
    sources = [path for room in ("cutepy", "layouts", "kernels") for path in (ROOT / room).rglob("*.py")]
    assert len(sources) > 100
    readers = {path.relative_to(ROOT).as_posix() for path in sources if reads(path.read_text())}
    assert readers == {"cutepy/host/environment.py"}


def test_the_page_lists_every_variable():
    lines = (ROOT / "docs" / "environment.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `CU")]
    assert rows == [
        [f"`{variable.name}`", f"`{variable.default}`" if variable.default else "", variable.meaning]
        for variable in environment.VARIABLES
    ]


def test_every_variable_of_the_module_is_listed():
    defined = {value for value in vars(environment).values() if isinstance(value, environment.Variable)}
    assert defined == set(environment.VARIABLES)
    assert [variable.name for variable in environment.VARIABLES] == sorted(v.name for v in environment.VARIABLES)


@pytest.mark.parametrize(("value", "enabled"), [(None, True), ("", True), ("on", True), ("off", False)])
def test_cache_is_on_unless_switched_off(monkeypatch, value, enabled):
    monkeypatch.delenv("CUTEPY_CACHE", raising=False)
    if value is not None:
        monkeypatch.setenv("CUTEPY_CACHE", value)
    assert environment.cache_enabled() is enabled


def test_cache_is_on_or_off(monkeypatch):
    monkeypatch.setenv("CUTEPY_CACHE", "0")
    with refuses(ValueError):
        environment.cache_enabled()


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("", 4 * 2**30), ("1", 1), ("1000", 1000), ("16k", 2**14), ("3M", 3 * 2**20), ("4G", 2**32), ("1T", 2**40)],
)
def test_limit_is_a_size(monkeypatch, text, size_bytes):
    monkeypatch.setenv("CUTEPY_CACHE_LIMIT", text)
    assert environment.cache_limit_bytes() == size_bytes
    assert store.default_store().limit_bytes == size_bytes


@pytest.mark.parametrize("text", ["0", "0G", "-1", "4 G", "4GiB", "G", "1.5G", "lots"])
def test_limit_that_is_no_size_is_refused(monkeypatch, text):
    monkeypatch.setenv("CUTEPY_CACHE_LIMIT", text)
    with refuses(ValueError):
        environment.cache_limit_bytes()


def test_folder_is_the_one_named(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    for value, folder in [("/a/b", Path("/a/b")), ("~/c", Path("/home/somebody/c")), ("d", tmp_path / "d")]:
        monkeypatch.setenv("CUTEPY_CACHE_DIR", value)
        assert environment.cache_dir() == folder
        assert store.default_store().folder == folder / "programs"


def test_folder_is_the_platforms_by_default(monkeypatch, tmp_path):
    platformdirs = pytest.importorskip("platformdirs")
    monkeypatch.delenv("CUTEPY_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert environment.cache_dir() == Path(platformdirs.user_cache_dir("cutepy"))
    if sys.platform == "linux":
        assert environment.cache_dir() == tmp_path / "cutepy"


def test_without_platformdirs_the_remedy_is_told(monkeypatch):
    monkeypatch.delenv("CUTEPY_CACHE_DIR", raising=False)
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    with refuses(ModuleNotFoundError):
        environment.cache_dir()


def test_a_process_that_is_measured_has_a_cache_of_its_own(monkeypatch, tmp_path):
    for name, value in (("CUTEPY_CACHE", "off"), ("PYTHONDONTWRITEBYTECODE", "1"), ("MINE", "x")):
        monkeypatch.setenv(name, value)
    for given, paths in ((None, "/root"), ("", "/root"), ("/a:/b", "/root:/a:/b")):
        monkeypatch.delenv("PYTHONPATH", raising=False)
        if given is not None:
            monkeypatch.setenv("PYTHONPATH", given)
        child = environment.of_child(tmp_path, Path("/root"))
        assert (child["CUTEPY_CACHE_DIR"], child["PYTHONPATH"], child["MINE"]) == (str(tmp_path), paths, "x")
        assert not child.keys() & {"CUTEPY_CACHE", "PYTHONDONTWRITEBYTECODE"}
