"""Importing a module reads, lists and writes no files, but for those of modules, which Python's import system opens."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
# Imports modules one by one; prints, as JSON, [module, event, file] for what a line of theirs caused, directly or
# through the standard library. What other packages do with what is theirs to decorate is not counted.
WATCH = """
import importlib, json, sys

root, names = sys.argv[1], sys.argv[2:]
EVENTS = ("open", "os.listdir", "os.scandir", "os.mkdir", "os.rename", "os.remove", "subprocess.Popen")
importing, seen, missing = None, [], []

def watch(event, arguments):
    frame = sys._getframe(1) if importing and event in EVENTS else None
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith("<frozen importlib") or "site-packages" in file:
            break
        if file.startswith(root):
            seen.append([importing, event, str(arguments[0])])
            break
        frame = frame.f_back

sys.addaudithook(watch)
for importing in names:
    try:
        importlib.import_module(importing)
    except ImportError as error:
        missing.append(error.name)
importing = None
print(json.dumps([seen, missing]))
"""


def modules(folder=ROOT / "cutepy"):
    found = []
    for path in folder.iterdir():
        if (path / "__init__.py").exists():
            found += modules(path)
        elif path.suffix == ".py" and path.stem != "__main__":
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found.append(name.removesuffix(".__init__"))
    return sorted(found)


def file_work(names, root=ROOT):
    done = subprocess.run(
        [sys.executable, "-c", WATCH, str(root), *names], capture_output=True, text=True, cwd=root, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.dsl
def test_importing_reads_no_files():
    seen, missing = file_work(modules())
    assert set(missing) <= {"triton"}
    assert seen == []


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("open(__file__).close()", "open"),
        ("import pathlib; TEXT = pathlib.Path(__file__).read_text()", "open"),
        ("import os; NAMES = os.listdir('.')", "os.listdir"),
        ("import subprocess, sys; subprocess.run([sys.executable, '-c', ''])", "subprocess.Popen"),
    ],
)
def test_what_an_import_reads_is_seen(line, event, tmp_path):
    (tmp_path / "reading.py").write_text(line)
    (tmp_path / "quiet.py").write_text("import decimal, reading")
    seen, missing = file_work(["quiet"], tmp_path)
    assert missing == []
    assert {(name, what) for name, what, _ in seen} >= {("quiet", event)}
