"""Values have one digest just if they have one type and one content; code is decoded as `dis` does."""

import dataclasses
import dis
import enum
import fractions
import functools
import importlib
import math
import os
import pathlib
import struct
import sys
import time
import types

import pytest
from hypothesis import given, strategies as st

from cutepy.host import bytecode
from cutepy.host.fingerprint import Fingerprint, fingerprint, fingerprint_sources

ROOT = pathlib.Path(__file__).parents[2]


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Number(int):
    pass


class Plain:
    def __init__(self, x):
        self.x = x


class Slotted:
    __slots__ = ("x", "y")

    def __init__(self, x):
        self.x = x


@dataclasses.dataclass(frozen=True)
class Config:
    x: object


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-2, 2)
    | st.floats()
    | st.complex_numbers()
    | st.text(max_size=3)
    | st.binary(max_size=3)
    | st.sampled_from(
        [Colour.RED, Colour.BLUE, ..., NotImplemented, int, str, Plain, len, math.sin, Number(1), range(2)]
    )
    | st.sampled_from([fractions.Fraction(1, 2), pathlib.PurePosixPath("a"), slice(1), slice(1, None, 2)])
)
hashable = st.recursive(scalars.filter(lambda v: not isinstance(v, slice)), lambda inner: st.tuples(inner, inner))
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(hashable, inner, max_size=3)
        | st.sets(hashable, max_size=3)
        | st.frozensets(hashable, max_size=3)
        | inner.map(Plain)
        | inner.map(Slotted)
        | inner.map(Config)
        | inner.map(lambda value: functools.partial(max, value, key=value))
    ),
    max_leaves=6,
)


def structure(value):
    """Write a value down as nested tuples of strings that are equal just if type and content are."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if kind is float:
        return name, struct.pack(">d", value).hex()
    if kind is complex:
        return name, struct.pack(">dd", value.real, value.imag).hex()
    if kind in (list, tuple):
        return (name, *map(structure, value))
    if kind in (set, frozenset):
        return (name, *sorted(map(structure, value), key=repr))
    if kind is dict:
        return (name, *((structure(key), structure(item)) for key, item in value.items()))
    if kind in (Plain, Slotted, Config):
        return name, structure(value.x)
    if kind is functools.partial:
        return name, structure(value.args), structure(value.keywords)
    return name, repr(value)


def digest(value):
    return fingerprint(len, value).digest


@given(values, values)
def test_digests_are_equal_just_if_structures_are(one, other):
    assert (digest(one) == digest(other)) == (structure(one) == structure(other))


@given(st.data())
def test_one_change_deep_down_shows(data):
    value = data.draw(values)
    assert digest([value, 1]) != digest([value, 1.0])
    assert digest({"a": value}) != digest({"b": value})
    assert digest(value) == digest(value)


@given(st.lists(hashable, max_size=6, unique=True), st.randoms())
def test_sets_have_no_order_and_dicts_have_one(items, chance):
    shuffled = chance.sample(items, len(items))
    assert digest(set(items)) == digest(set(shuffled))
    same = [structure(item) for item in items] == [structure(item) for item in shuffled]
    assert (digest(dict.fromkeys(items)) == digest(dict.fromkeys(shuffled))) == same


def test_sharing_counts_where_it_can_be_told():
    inner = [1]
    assert digest([inner, inner]) != digest([[1], [1]])
    assert digest((Plain(1), Plain(1))) != digest((Plain(1),) * 2)
    assert digest((frozenset([1]), (1,))) == digest((frozenset([1]), (1,)))
    pair = (1, "x")
    assert digest([pair, pair]) == digest([pair, (1, "x"[:])])


def test_cycles():
    def ring(length, end):
        first = [end]
        last = first
        for _ in range(length):
            last = [last]
        first.append(last)
        return first

    assert digest(ring(3, 1)) == digest(ring(3, 1))
    assert len({digest(ring(length, end)) for length in range(4) for end in range(3)}) == 12
    one, other = Plain(None), Plain(None)
    one.x, other.x = other, one
    assert digest(one) == digest(other)
    a_list = []
    assert digest([a_list, (a_list,)]) != digest([[], ([],)])


def test_cycles_count_by_where_they_lead():
    a, c, to_itself, to_outer = [], [], [], []
    b = [a]
    a.append(b)
    c.append(c)
    to_itself.append(to_itself)
    outer = [to_outer]
    to_outer.append(outer)
    assert digest([a, b]) != digest([a, c])
    to_all = []
    everything = [a, to_all]
    to_all.append(everything)
    assert digest([a, b]) != digest(everything)
    assert digest([to_itself]) != digest(outer)


def test_shared_containers_take_no_exponential_time():
    value = []
    for _ in range(200):
        value = [value, value]
    assert digest(value)


def test_nan_and_zeros():
    assert digest(math.nan) == digest(float("nan"))
    assert len({digest(value) for value in (0.0, -0.0, 0, False, 0j, "0", b"0", Number(0))}) == 8


def test_functions_of_one_name_differ_by_what_they_hold():
    def make(n):
        return lambda: n

    assert fingerprint(make(1)) == fingerprint(make(1))
    assert fingerprint(make(1)).digest != fingerprint(make(2)).digest
    assert digest((make(1), make(2))) != digest((make(2), make(1)))
    assert digest({make(1), make(2)}) == digest({make(2), make(1)})


def test_wrappers_of_the_standard_library_hold_user_code():
    def one():
        return 1

    def other():
        return 2

    def single(function):
        made = functools.singledispatch(function)
        made.register(int)(other)
        return made

    import contextlib

    for wrap in (functools.cache, functools.lru_cache(4), contextlib.contextmanager, functools.partial, single):
        wrapped = wrap(one)
        before = fingerprint(wrapped)
        assert before == fingerprint(wrap(one)), wrap
        assert before != fingerprint(wrap(other)), wrap


def test_singledispatch_counts_what_is_registered():
    @functools.singledispatch
    def show(x):
        return x

    before = fingerprint(show)
    show(1)
    assert fingerprint(show) == before
    show.register(int)(lambda x: x + 1)
    assert fingerprint(show) != before


def test_difference_names_parts():
    one, other = Fingerprint("x", (("a", "1"), ("b", "2"))), Fingerprint("y", (("b", "3"), ("c", "4")))
    assert one.difference(other) == ["a", "b", "c"]
    assert one.difference(one) == []


CODES = [
    "typing",
    "dataclasses",
    "inspect",
    "ast",
    "enum",
    "functools",
    "argparse",
    "importlib",
    "json.decoder",
    "logging",
]


def codes(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


@pytest.mark.parametrize("module", [*CODES, __name__, "cutepy.layouts.sm90.tma", "cutepy.host.reachable"])
def test_instructions_are_decoded_as_dis_does(module):
    source = pathlib.Path(
        sys.modules[module].__file__ if module in sys.modules else importlib.import_module(module).__file__
    )
    count = 0
    for code in codes(compile(source.read_text(), str(source), "exec")):
        skipped = {name for kind, name in bytecode._DECODED if kind in ("skipped", "extended")}
        expected = [i for i in dis.get_instructions(code) if i.opname not in skipped]
        decoded = bytecode._operations(code)
        assert len(expected) == len(decoded)
        for instruction, (name, operand) in zip(expected, decoded, strict=True):
            if name:
                found = (
                    operand[0] if isinstance(operand, tuple) and len(operand) == 1 and name != "LOAD_CONST" else operand
                )
                assert (instruction.opname, instruction.argval) == (name, found)
                count += 1
            elif instruction.opname not in ("IMPORT_STAR", "LOAD_FAST_AND_CLEAR"):
                assert not instruction.opname.startswith(
                    ("LOAD_GLOBAL", "LOAD_FAST", "LOAD_ATTR", "IMPORT_", "STORE_FAST")
                )
    assert count > 50


def reads(source):
    code = compile(source, "<test>", "exec").co_consts[0]
    return bytecode.read(code)


@pytest.mark.parametrize(
    ("statement", "imports"),
    [
        ("import a", [(0, "a", (("", "a"),))]),
        ("import a.b.c", [(0, "a.b.c", ((".", "a"),))]),
        ("import a as x", [(0, "a", (("", "x"),))]),
        ("import a.b as x", [(0, "a.b", (("", "x"),))]),
        ("import a.b.c as x", [(0, "a.b.c", (("", "x"),))]),
        ("import a, b as x", [(0, "a", (("", "a"),)), (0, "b", (("", "x"),))]),
        ("from a.b import c, d as x", [(0, "a.b", (("c", "c"), ("d", "x")))]),
        ("from ..a import c", [(2, "a", (("c", "c"),))]),
        ("from . import c", [(1, "", (("c", "c"),))]),
        ("global x; import a.b as x", [(0, "a.b", (("", "x"),))]),
    ],
)
def test_import_statements(statement, imports):
    found = [(i.level, i.module, i.bindings) for i in reads(f"def f():\n    {statement}\n").imports]
    assert found == imports


@pytest.mark.parametrize(
    ("expression", "computed"),
    [
        ("getattr(x, 'a')", False),
        ("getattr(x.y, 'a', None)", False),
        ("getattr(x, name)", True),
        ("getattr(x, name, 'a')", True),
        ("getattr(x, 'a' + name)", True),
        ("getattr(x[0], 'a')", True),
        ("map(getattr, x, name)", True),
        ("vars(x)", True),
        ("x.__dict__", True),
        ("x.get(name)", False),
    ],
)
def test_computed_names(expression, computed):
    assert reads(f"def f(x, name):\n    return {expression}\n").computed is computed


def test_sources_count_by_content_and_name(tmp_path):
    package = tmp_path / "pack"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("A = 1\n")
    (package / "inner" / "b.py").write_text("B = 1\n")
    (package / "notes.txt").write_text("not a source")
    (package / "link").symlink_to(package / "inner")
    (package / "inner" / "up").symlink_to(package)
    before = fingerprint_sources(package)
    names = [name.removeprefix(f"{package}/") for name, _ in before.parts]
    assert names == ["__init__.py", "inner/b.py", "link/b.py", "version of python"]

    (package / "notes.txt").write_text("changed")
    assert fingerprint_sources(package) == before
    (package / "inner" / "b.py").write_text("B = 2\n")  # as long as before, and within the tick of a clock
    changed = fingerprint_sources(package)
    assert changed.difference(before) == [f"{package}/inner/b.py", f"{package}/link/b.py"]
    (package / "new.py").write_text("")
    assert fingerprint_sources(package).difference(changed) == [f"{package}/new.py"]
    assert fingerprint_sources(package / "inner" / "b.py") != before


def test_a_file_changed_within_the_tick_of_a_clock(tmp_path):
    path = tmp_path / "a.py"
    digests = []
    stamp = time.time_ns()
    for content in ("A = 1\n", "A = 2\n"):
        path.write_text(content)
        os.utime(path, ns=(stamp, stamp))
        digests.append(fingerprint_sources(path).digest)
    assert digests[0] != digests[1]


def test_sources_of_packages_are_found_by_name():
    names = [
        name for name, _ in fingerprint_sources("cutepy.kernels", "cutepy.layouts.sm90", "cutepy.layouts.swizzle").parts
    ]
    assert {"cutepy.kernels/gemm/kernel.py", "cutepy.layouts.sm90/arch.py", "cutepy.layouts.swizzle"} <= set(names)


@pytest.mark.parametrize("name", ["no_such_package", "cutepy.no_such_room", "./no_such_folder"])
def test_sources_that_are_not_there(name):
    with pytest.raises((ModuleNotFoundError, FileNotFoundError), match="no_such"):
        fingerprint_sources(name)
