"""Changing what a traced program can see changes its fingerprint in a new process, and nothing else does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RUN = """
import json, sys, importlib
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2].split():
    importlib.import_module(name)
import entry
from cutepy.host.fingerprint import fingerprint
made = fingerprint(*entry.program())
again = fingerprint(*entry.program())
assert made == again, made.difference(again)
print(json.dumps([made.digest, made.parts]))
"""

# One program that touches everything: each case below edits one line of it.
FILES = {
    "entry.py": """
import functools
import lib.tools
import lib.table as table
from lib import knobs
from lib.base import Base, Config, Mode, Slotted
from lib.deco import twice

SCALE = 2
LEVELS = [1, 2]
TABLE = {"a": 1}
CHOICE = "picked"
scaled = lambda x: x * 5
GENERATED = {}
exec("def generated(x):\\n    return x + 100", GENERATED)
generated = GENERATED["generated"]
partial = functools.partial(lib.tools.clamp, 3, high=9)


def callee(x):
    return x + 1


def make(n):
    def inner(x):
        return x * n
    return inner


closed = make(4)


class Kernel(Base):
    width = 8

    def __init__(self, config):
        self.config = config
        self.tile = 64

    @property
    def half(self):
        return self.width // 2

    @classmethod
    def of_class(cls):
        return 1

    @staticmethod
    def static(x):
        return x

    def method(self, x):
        return callee(x) + self.half + self.of_class() + self.static(x)

    def dispatched_one(self):
        return ONLY_DISPATCHED

    def __call__(self, x, default=3, *args, keyword=4, **kwargs):
        from lib.late import compute
        if x not in {"q", "r", "s", "t", "u"}:
            import lib.later as later
            x = later.value()
        x = self.method(x) + self.inherited() + SCALE + sum(LEVELS) + TABLE["a"]
        x = lib.tools.clamp(x, 0, 1) + compute(x) + closed(x) + scaled(x) + generated(x) + partial(x)
        x = x + getattr(table, CHOICE)(x) + getattr(self, "dispatched_" + NUMBER)()
        squares = [i * knobs.STEP for i in range(4)]
        print(f"got {x} at last")

        def nested(y):
            return y + knobs.NESTED
        return nested(x) + twice_used(x) + sum(squares) + int(Mode.FAST.value) + Slotted(1).a


ONLY_DISPATCHED = 12
NUMBER = "one"


@twice
def twice_used(x):
    return x


def annotated(x: "int") -> "str":
    return x


MARK = 1


def program():
    lib.tools.patched = lib.tools.replacement
    return (Kernel(Config(5)), annotated, 7)
""",
    "lib/__init__.py": "",
    "lib/tools.py": """
from lib.deep import deep


def elsewhere(name):
    from lib import silent

    return getattr(silent, name)


def clamp(x, low, high):
    return deep(min(max(x, low), high)) + patched(x)


def patched(x):
    return x


def replacement(x):
    return x + 6
""",
    "lib/silent.py": "def unseen():\n    return 1\n",
    "lib/deep.py": "def deep(x):\n    return x - 1\n",
    "lib/table.py": "def picked(x):\n    return x + 11\n\n\ndef other(x):\n    return x\n",
    "lib/late.py": "from lib.latest import LATEST\n\n\ndef compute(x):\n    return x + LATEST + 21\n",
    "lib/latest.py": "LATEST = 22\n",
    "lib/later.py": "def value():\n    return 31\n",
    "lib/knobs.py": "STEP = 41\nNESTED = 42\n",
    "lib/base.py": """
import enum
from dataclasses import dataclass, field


class Base:
    height = 16

    def inherited(self):
        return self.height + 51


@dataclass(frozen=True)
class Config:
    stages: int
    names: tuple = ("x", "y")
    extra: frozenset = frozenset({"p", "q", "r", "s"})
    depth: int = field(default=1)


class Mode(enum.Enum):
    FAST = 61
    SLOW = 62


class Slotted:
    __slots__ = ("a",)

    def __init__(self, a):
        self.a = a + 71
""",
    "lib/deco.py": """
import functools


def twice(function):
    @functools.wraps(function)
    def wrapper(x):
        return function(function(x)) + 81
    return wrapper
""",
    "unrelated.py": "import lib.later\nimport lib.latest\nVALUE = 1\n",
}

CHANGES = {
    "a callee in the same module": ("entry.py", "return x + 1\n", "return x + 9\n", "function entry:callee"),
    "a callee behind an attribute chain": ("lib/tools.py", "min(max", "max(max", "function lib.tools:clamp"),
    "a callee of a callee": ("lib/deep.py", "x - 1", "x - 2", "function lib.deep:deep"),
    "a closure variable": ("entry.py", "make(4)", "make(5)", "closure variable n of entry:make.<locals>.inner"),
    "a global": ("entry.py", "SCALE = 2", "SCALE = 3", "global SCALE of entry"),
    "a global's type": ("entry.py", "SCALE = 2", "SCALE = 2.", "global SCALE of entry"),
    "a list mutated in place": ("entry.py", "MARK = 1", "LEVELS[0] = 0", "global LEVELS of entry"),
    "a dict mutated in place": ("entry.py", "MARK = 1", "TABLE['b'] = 0", "global TABLE of entry"),
    "a default": ("entry.py", "default=3", "default=4", "function entry:Kernel.__call__"),
    "a keyword default": ("entry.py", "keyword=4", "keyword=5", "function entry:Kernel.__call__"),
    "an annotation": ("entry.py", '"int"', '"float"', "function entry:annotated"),
    "a return annotation": ("entry.py", '"str"', '"bytes"', "function entry:annotated"),
    "a class attribute": ("entry.py", "width = 8", "width = 9", "class attribute width of entry:Kernel"),
    "an inherited class attribute": (
        "lib/base.py",
        "height = 16",
        "height = 17",
        "class attribute height of lib.base:Base",
    ),
    "an inherited method": ("lib/base.py", "+ 51", "+ 52", "function lib.base:Base.inherited"),
    "an instance attribute": ("entry.py", "self.tile = 64", "self.tile = 65", "attribute tile"),
    "a field of a dataclass": ("entry.py", "Config(5)", "Config(6)", "attribute config"),
    "a default of a dataclass": ("lib/base.py", "default=1", "default=2", "attribute config"),
    "a set": ("lib/base.py", '"r", "s"', '"r", "t"', "attribute config"),
    "a property": ("entry.py", "self.width // 2", "self.width // 3", "function entry:Kernel.half"),
    "a class method": ("entry.py", "return 1\n", "return 2\n", "function entry:Kernel.of_class"),
    "a static method": (
        "entry.py",
        "static(x):\n        return x",
        "static(x):\n        return -x",
        "function entry:Kernel.static",
    ),
    "a method reached through self": (
        "entry.py",
        "callee(x) + self.half",
        "callee(x) - self.half",
        "function entry:Kernel.method",
    ),
    "a global of a dispatched method": (
        "entry.py",
        "DISPATCHED = 12",
        "DISPATCHED = 13",
        "global ONLY_DISPATCHED of entry",
    ),
    "a decorator": ("lib/deco.py", "+ 81", "+ 82", "function lib.deco:twice.<locals>.wrapper"),
    "a decorated function": (
        "entry.py",
        "twice_used(x):\n    return x",
        "twice_used(x):\n    return -x",
        "function entry:twice_used",
    ),
    "no decorator": ("entry.py", "@twice\n", "\n", "function entry:twice_used"),
    "a constexpr value": ("entry.py", "annotated, 7", "annotated, 8", "values"),
    "a constexpr value's type": ("entry.py", "annotated, 7", "annotated, 7.0", "values"),
    "a lambda": ("entry.py", "x * 5", "x * 6", "function entry:<lambda>"),
    "an argument of a partial": ("entry.py", "clamp, 3", "clamp, 2", "global partial of entry"),
    "a keyword of a partial": ("entry.py", "high=9", "high=8", "global partial of entry"),
    "an enum's member": ("lib/base.py", "FAST = 61", "FAST = 63", "class attribute FAST of lib.base:Mode"),
    "another enum member": ("lib/base.py", "SLOW = 62", "SLOW = 64", "class attribute SLOW of lib.base:Mode"),
    "a patched function": (
        "entry.py",
        "lib.tools.patched = lib.tools.replacement",
        "pass",
        "function lib.tools:patched",
    ),
    "what was patched in": ("lib/tools.py", "x + 6", "x + 7", "function lib.tools:replacement"),
    "a function fetched by name": ("lib/table.py", "x + 11", "x + 12", "function lib.table:picked"),
    "the name it is fetched by": ("entry.py", '"picked"', '"other"', "global CHOICE of entry"),
    "an import in the body": ("lib/late.py", "+ 21", "+ 23", "function lib.late:compute"),
    "what that imports": ("lib/latest.py", "22", "23", "global LATEST of lib.late"),
    "a conditional import in the body": ("lib/later.py", "31", "32", "function lib.later:value"),
    "a comprehension": ("entry.py", "range(4)", "range(5)", "function entry:Kernel.__call__"),
    "a global of a comprehension": ("lib/knobs.py", "STEP = 41", "STEP = 40", "global knobs.STEP of entry"),
    "a global of a nested function": ("lib/knobs.py", "NESTED = 42", "NESTED = 43", "global knobs.NESTED of entry"),
    "a nested function": ("entry.py", "y + knobs", "y - knobs", "function entry:Kernel.__call__"),
    "an f-string": ("entry.py", "at last", "at first", "function entry:Kernel.__call__"),
    "star arguments": ("entry.py", "*args, keyword", "*, keyword", "function entry:Kernel.__call__"),
    "a generated function": ("entry.py", "x + 100", "x + 101", "function <generated>:generated"),
    "a constructor used while tracing": ("lib/base.py", "a + 71", "a + 72", "function lib.base:Slotted.__init__"),
    "a line, moved": ("entry.py", "def callee(x)", "\ndef callee(x)", "function entry:callee"),
    "a comment": ("lib/deep.py", "return", "# why\n    return", "function lib.deep:deep"),
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def take(folder: Path, *, imports: str = "", **environment: str) -> tuple[str, dict[str, str]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    command = [sys.executable, "-c", RUN, str(folder), imports]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    digest, parts = json.loads(done.stdout.splitlines()[-1])
    return digest, dict(parts)


def difference(one: dict[str, str], other: dict[str, str]) -> set[str]:
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Give a folder with the program, and what it digests to."""
    folder = tmp_path_factory.mktemp("project")
    write(folder, FILES)
    return folder, *take(folder)


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_shows(name, project):
    """The digest changes, and the part that changed is named."""
    folder, digest, parts = project
    file, old, new, part = CHANGES[name]
    original = FILES[file]
    assert original.count(old) == 1, f"{old!r} must stand in {file} once"
    path = folder / file
    path.write_text(original.replace(old, new))
    try:
        changed, changed_parts = take(folder)
    finally:
        path.write_text(original)
    assert changed != digest
    assert part in difference(parts, changed_parts)


@pytest.mark.parametrize("seed", ["0", "1", "12345"])
def test_nothing_changed(seed, project):
    """Another process, another seed of hashes: the same digest."""
    folder, digest, parts = project
    again, again_parts = take(folder, PYTHONHASHSEED=seed)
    assert difference(parts, again_parts) == set()
    assert again == digest


@pytest.mark.parametrize(
    "imports", ["unrelated json", "lib.later entry", "lib.latest lib.late unrelated", "sqlite3 entry"]
)
def test_the_order_of_imports_does_not_matter(imports, project):
    folder, digest, parts = project
    again, again_parts = take(folder, imports=imports)
    assert difference(parts, again_parts) == set()
    assert again == digest


def test_a_file_that_only_unused_code_imports_counts(project):
    """What runs by names computed at run time may be anything that the modules met import."""
    folder, digest, _ = project
    path = folder / "lib/silent.py"
    path.write_text("def unseen():\n    return 2\n")
    try:
        assert take(folder)[0] != digest
    finally:
        path.write_text(FILES["lib/silent.py"])


def test_an_unrelated_file_does_not_matter(project):
    folder, digest, _ = project
    (folder / "unrelated.py").write_text("VALUE = 2\n")
    assert take(folder, imports="unrelated")[0] == digest
