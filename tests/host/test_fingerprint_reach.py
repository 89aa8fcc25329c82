"""A global read at the far end of every way that Python has to call something counts."""

import abc
import collections
import contextlib
import dataclasses
import enum
import functools
import json
import math
import operator
import sys
import types
import typing

import pytest

from cutepy.host.fingerprint import fingerprint

FAR = 1
LAST = "R"
ME = sys.modules[__name__]


def far():
    return FAR


class Describes:
    def __get__(self, holder, kind=None):
        return FAR


class Method:
    described = Describes()

    def read(self):
        return FAR

    def read_more(self, count):
        return FAR + count

    partial = functools.partialmethod(read_more, 1)

    class Inner:
        def read(self):
            return FAR


class Meta(type):
    def __getattr__(cls, name):
        return FAR


class OfMeta(metaclass=Meta):
    pass


class AnyAttribute:
    def __getattr__(self, name):
        return far()


class Generic(typing.Generic[typing.TypeVar("T")]):
    def read(self):
        return FAR


class Abstract(abc.ABC):
    @abc.abstractmethod
    def read(self): ...


class Concrete(Abstract):
    def read(self):
        return FAR


class Named(typing.NamedTuple):
    a: int

    @property
    def read(self):
        return self.a + FAR


class Flag(enum.IntFlag):
    A = 1
    B = 2

    def read(self):
        return FAR


class Hook(json.JSONEncoder):
    def default(self, o):
        return FAR


class Duck:
    def write(self, text):
        return FAR


class Iterates:
    def __iter__(self):
        yield FAR


class Factory(collections.defaultdict):
    pass


@dataclasses.dataclass
class Data:
    a: int = 1

    def __post_init__(self):
        self.b = FAR


@contextlib.contextmanager
def context():
    yield FAR


@functools.lru_cache
def cached():
    return FAR


def hooked():
    return hooked.hook()


hooked.hook = far
WRAPS = functools.wraps(len)(lambda: FAR)
FUNCTIONS = {"x": (far,)}
MODULES = {"me": ME}
BOUND = Method().read
CALLS = operator.methodcaller("read")
NAMESPACE = types.SimpleNamespace(inner=[far])
SHARED = Method()
MISC = (AnyAttribute(), Named(1), Iterates(), Factory(far), Duck(), Flag.A | Flag.B, Data())


def in_local_class():
    class Local(Method):
        def read(self):
            return super().read()

    return Local().read()


def in_nested():
    def inner():
        return lambda: [FAR for _ in "ab"]

    return inner()()


def in_generator():
    def inner():
        yield FAR

    return list(inner())


def in_with():
    with context() as value:
        return value


def in_default(x=far):
    return x()


def in_class_default(x=Concrete()):  # noqa: B008
    return x.read()


WAYS = {
    "the global itself": lambda: FAR,
    "partialmethod": lambda: SHARED.partial(),
    "descriptor": lambda: SHARED.described,
    "nested class": lambda: SHARED.Inner().read(),
    "metaclass": lambda: OfMeta.anything,
    "attribute hook": lambda: MISC[0].anything,
    "named tuple": lambda: MISC[1].read,
    "iteration": lambda: list(MISC[2]),
    "default factory": lambda: MISC[3]["new"],
    "a method that a builtin calls": lambda: print("x", file=MISC[4]),
    "flag": lambda: MISC[5].read(),
    "post_init": lambda: Data().b,
    "post_init by replace": lambda: dataclasses.replace(MISC[6], a=3).b,
    "function attribute": lambda: hooked(),
    "globals": lambda: globals()["FAR"],
    "vars": lambda: vars(ME)["FAR"],
    "eval": lambda: eval("FAR"),
    "getattr of a module": lambda: getattr(ME, "FA" + LAST),
    "getattr with a constant": lambda: getattr(ME, "FAR"),  # noqa: B009
    "attribute of a module": lambda: ME.FAR,
    "function of a module": lambda: ME.far(),
    "module in a dict": lambda: MODULES["me"].FAR,
    "callback": lambda: sorted([1], key=lambda _: FAR),
    "function in containers": lambda: FUNCTIONS["x"][0](),
    "generic": lambda: Generic[int]().read(),
    "context manager": in_with,
    "stdlib hook": lambda: Hook().encode(object()),
    "bound method": lambda: BOUND(),
    "methodcaller": lambda: CALLS(SHARED),
    "cache": lambda: cached(),
    "wraps": lambda: WRAPS(),
    "namespace": lambda: NAMESPACE.inner[0](),
    "partial": functools.partial(far),
    "bound": SHARED.read,
    "local class": in_local_class,
    "nested functions": in_nested,
    "generator": in_generator,
    "default": in_default,
    "default object": in_class_default,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_global_at_the_end_counts(way, monkeypatch):
    function = WAYS[way]
    before = fingerprint(function)
    assert before.difference(fingerprint(function)) == []
    monkeypatch.setattr(ME, "FAR", 2)
    after = fingerprint(function)
    assert after != before
    monkeypatch.undo()
    assert fingerprint(function) == before


def test_code_and_defaults_swapped_in_place(monkeypatch):
    def function(x=1):
        return x

    before = fingerprint(lambda: function)
    monkeypatch.setattr(function, "__defaults__", (2,))
    swapped = fingerprint(lambda: function)
    monkeypatch.undo()
    monkeypatch.setattr(function, "__code__", (lambda x=1: -x).__code__)
    assert len({before.digest, swapped.digest, fingerprint(lambda: function).digest}) == 3


def test_names_of_functions_count(monkeypatch):
    def function():
        return 1

    before = fingerprint(function)
    monkeypatch.setattr(function, "__name__", "renamed")
    assert fingerprint(function) != before


def test_a_patched_function_of_a_pinned_module_counts(monkeypatch):
    def function():
        return math.sin(math.pi), json.JSONDecoder().decode("1")

    digests = [fingerprint(function).digest]
    monkeypatch.setattr(math, "sin", far)
    digests.append(fingerprint(function).digest)
    monkeypatch.setattr(math, "pi", 3)
    digests.append(fingerprint(function).digest)
    monkeypatch.setattr("json.JSONDecoder", Duck)
    digests.append(fingerprint(function).digest)
    assert len(set(digests)) == 4


class Plain:
    pass


def test_pickling_an_object_changes_nothing():
    before = fingerprint(far, Plain())
    assert Plain().__reduce_ex__(4)  # as pickling does, by which Python writes __slotnames__ on the class
    assert "__slotnames__" in vars(Plain)
    assert fingerprint(far, Plain()).difference(before) == []
