"""Patches of the preprocessor are identified by all that they depend on, or refused."""

import copy
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cutepy.dsl.patches import NoFingerprintError, told

MODULE = """
import ast, copy, os, random
from copy import deepcopy

FACTOR = 2
GROWN = []
NAMES = frozenset(("a", "b", "c"))

def helper(node):
    return deepcopy(node) if FACTOR > 1 else node

def made(original, prefix="x"):
    def visit_If(self, node, *, kept=("a", 1)):
        if isinstance(node, ast.If) and prefix in NAMES:
            return original(self, helper(node))
        return [inner for inner in ast.walk(node) if inner not in kept]
    return visit_If
{more}
"""


def patch(text=MODULE, call="made(helper)", more=""):
    scope = {"__name__": "patches_of_somebody"}
    exec(compile(text.format(more=textwrap.dedent(more)), "/somewhere/patches.py", "exec"), scope)
    return eval(call, scope)


def spelled(*arguments, owner=None, **named):
    return told(patch(*arguments, **named), owner or {}, (str(Path(copy.__file__).parent),))


def test_equal_patches_are_told_alike_in_any_process():
    code = "from tests.dsl.test_patches import spelled; print(spelled())"
    ours = spelled()
    for seed in "12":
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        )
        assert run.stdout == ours + "\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("FACTOR = 2", "FACTOR = 3"),
        ("FACTOR = 2", "FACTOR = 2.0"),
        ('("a", "b", "c")', '("a", "b")'),
        ("deepcopy(node) if", "copy.copy(node) if"),
        ("from copy import deepcopy", "from copy import copy as deepcopy"),
        ('prefix="x"', 'prefix="y"'),
        ('("a", 1)', '("a", True)'),
        ('("a", 1)', '("b", 1)'),
        ("not in kept", "in kept"),
        ("ast.walk", "ast.iter_child_nodes"),
        ("prefix in NAMES", "prefix not in NAMES"),
    ],
)
def test_what_decides_is_told(old, new):
    assert old in MODULE
    assert spelled(MODULE.replace(old, new)) != spelled()


def test_what_a_patch_closes_over_is_told():
    assert spelled(call="made(lambda self, node: node)") != spelled()
    assert spelled(call='made(helper, "a")') != spelled()


def test_what_the_class_has_is_told_where_it_is_used():
    more = "def visit_If(self, node): return self.limit"
    assert spelled(call="visit_If", more=more, owner={"limit": 3}) != spelled(
        call="visit_If", more=more, owner={"limit": 4}
    )
    with pytest.raises(NoFingerprintError):
        spelled(call="visit_If", more=more, owner={"limit": []})


@pytest.mark.parametrize(
    "body",
    [
        "return os.environ",
        "return open('x')",
        "return GROWN",
        "return random.random()",
        "import os",
        "from os import environ",
        "self.seen = node",
        "del self.seen",
        "global FACTOR; FACTOR = 3",
        "return getattr(node, 'x')",
        "return globals()['FACTOR']",
        "return eval('FACTOR')",
        "return hash(node)",
        "return not_there",
        "return (lambda: os.getpid())()",
        "return [open(x) for x in node]",
        "return type(node).__module__ + __import__('os').sep",
    ],
)
def test_what_reaches_more_is_not_told(body):
    with pytest.raises(NoFingerprintError):
        spelled(call="visit_If", more=f"def visit_If(self, node): {body}")


@pytest.mark.parametrize(
    "more",
    [
        "def visit_If(self, node, memory=[]): return memory",
        "def visit_If(self, node, *, memory={}): return memory",
        "def visit_If(self, node, read=open): return read(node)",
        "def visit_If(self, node): return visit_If\nvisit_If.memory = []",
        "class Memory: pass\ndef visit_If(self, node): return Memory()",
        "def outer():\n    def f(self, node): return later\n    return f\n    later = 1\nvisit_If = outer()",
        "def outer():\n    n = 0\n    def f(self, node):\n        nonlocal n; n += 1\n    return f\nvisit_If = outer()",
    ],
)
def test_what_remembers_is_not_told(more):
    with pytest.raises(NoFingerprintError):
        spelled(call="visit_If", more=more)


def test_a_patch_may_call_itself():
    first, second = (
        spelled(call="visit_If", more=f"def visit_If(self, node): return visit_If(self, node.orelse[{place}])")
        for place in (0, 1)
    )
    assert first != second
