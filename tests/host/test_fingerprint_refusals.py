"""What has no content that a digest could tell is refused by name, where it runs; what never runs is let be."""

import datetime
import functools
import io
import itertools
import os
import pathlib
import random
import re
import socket
import sys
import threading
import time
import types
import weakref
from os import environ, getenv
from random import randint
from time import time as now

import pytest

from cutepy.host.fingerprint import NotCacheable, fingerprint

LOCK = threading.Lock()
HELD = {"inner": [LOCK]}
PATH = pathlib.Path("x")
COUNTER = itertools.count()
MARK = "mark"


class Settings:
    def __init__(self):
        self.lock = LOCK


SETTINGS = Settings()


def test_a_global_is_named_with_its_reader():
    def kernel():
        return LOCK

    with pytest.raises(
        NotCacheable, match=r"^global `LOCK` read by `.*:.*<locals>\.kernel` \(.*\.py:\d+\) is a _thread.lock"
    ):
        fingerprint(kernel)


def test_the_line_is_that_of_the_read():
    def kernel():
        x = 1
        return x, LOCK

    line = kernel.__code__.co_firstlineno + 2
    with pytest.raises(NotCacheable, match=rf"test_fingerprint_refusals\.py:{line}\)"):
        fingerprint(kernel)


def test_a_closure_variable_is_named_with_its_function():
    lock = threading.Lock()

    def kernel():
        return lock

    with pytest.raises(NotCacheable, match=r"closure variable `lock` of `.*kernel`.* is a _thread.lock.*; pass "):
        fingerprint(kernel)


def test_the_way_within_a_value_is_named():
    def kernel():
        return HELD, SETTINGS

    with pytest.raises(NotCacheable, match=r"^item 0 of item 'inner' of global `HELD`"):
        fingerprint(kernel)

    def other():
        return SETTINGS.lock

    with pytest.raises(NotCacheable, match=r"^attribute `lock` of global `SETTINGS`"):
        fingerprint(other)


def test_attributes_of_the_callable_and_arguments_are_named():
    class Kernel:
        def __call__(self):
            return self.lock

    kernel = Kernel()
    kernel.lock = LOCK
    with pytest.raises(NotCacheable, match=r"^attribute `lock` of `.*Kernel` is a"):
        fingerprint(kernel)

    with pytest.raises(NotCacheable, match=r"^item 1 of constexpr values is a"):
        fingerprint(len, 1, LOCK)

    def defaulted(x=LOCK):
        return x

    with pytest.raises(NotCacheable, match=r"^item 0 of defaults of `.*defaulted` is a"):
        fingerprint(defaulted)


def a_generator():
    yield 1


@pytest.mark.parametrize(
    "make",
    [
        a_generator,
        lambda: io.StringIO("text"),
        lambda: weakref.ref(Settings),
        lambda: weakref.WeakValueDictionary({1: Settings}),
        threading.Thread,
        threading.Event,
        threading.local,
        lambda: random.Random(1),
        lambda: os.environ,
        lambda: memoryview(b"x"),
        sys._getframe,
        lambda: (i for i in range(3)),
        lambda: map(a_generator, [LOCK]),
    ],
)
def test_values_without_content(make):
    with pytest.raises(NotCacheable):
        fingerprint(len, make())


def test_open_files_and_sockets(tmp_path):
    with (tmp_path / "f").open("w") as file, pytest.raises(NotCacheable, match="is an open file"):
        fingerprint(len, file)
    with socket.socket() as opened, pytest.raises(NotCacheable):
        fingerprint(len, opened)


def test_tensors_and_large_arrays():
    torch, numpy = pytest.importorskip("torch"), pytest.importorskip("numpy")
    with pytest.raises(NotCacheable, match=r"is a Tensor .* pass it as an argument"):
        fingerprint(len, torch.zeros(1))
    with pytest.raises(NotCacheable, match="is a Tensor"):
        fingerprint(len, torch.nn.Parameter(torch.zeros(1)))
    with pytest.raises(NotCacheable, match="is an array of 8000000 bytes"):
        fingerprint(len, numpy.zeros(10**6))
    with pytest.raises(NotCacheable, match=r"is an array of .* object"):
        fingerprint(len, numpy.array([len]))
    small = numpy.arange(4)
    assert fingerprint(len, small) == fingerprint(len, small.copy())
    for other in (small + 1, small.reshape(2, 2), small.astype("int32"), small.astype(">i8")):
        assert fingerprint(len, small) != fingerprint(len, other)


def by_environ():
    return os.environ.get("X")


def by_getenv():
    return os.getenv("X")


def by_imported_environ():
    return environ["X"]


def by_imported_getenv():
    return getenv("X")


def by_open():
    with open("x") as file:  # noqa: PTH123
        return file.read()


def by_time():
    return time.perf_counter()


def by_imported_time():
    return now()


def by_chance():
    return random.random()


def by_imported_chance():
    return randint(0, 1)


def by_date():
    return datetime.datetime.now()


def by_path():
    return PATH.read_text()


def by_cwd():
    return pathlib.Path.cwd()


def by_listing():
    return os.listdir()  # noqa: PTH208


def by_existence():
    return os.path.exists("x")  # noqa: PTH110


def by_import_in_the_body():
    import os as system

    return system.environ


def by_import_from_in_the_body():
    from os import environ as variables

    return variables


def by_nested_function():
    def inner():
        return os.getpid()

    return inner()


def by_comprehension():
    return [os.getenv(name) for name in "ab"]


def by_callee():
    return by_environ()


def by_argument():
    return list(map(os.getenv, "ab"))


def by_module_name():
    return __import__("x")


READERS = [value for name, value in list(globals().items()) if name.startswith("by_")]


@pytest.mark.parametrize("function", READERS, ids=lambda function: function.__name__)
def test_reading_the_world(function):
    with pytest.raises(
        NotCacheable, match=r"reads .* while it is traced; read it before|is the environment|source of chance"
    ):
        fingerprint(function)


def test_reading_the_world_names_function_and_line():
    line = by_getenv.__code__.co_firstlineno + 1
    with pytest.raises(NotCacheable, match=rf"by `[\w.]+:by_getenv` \(.*:{line}\) reads os.getenv while"):
        fingerprint(by_callee_of_getenv)


def by_callee_of_getenv():
    return by_getenv()


def test_reading_the_machine():
    torch, numpy = pytest.importorskip("torch"), pytest.importorskip("numpy")

    def devices():
        return torch.cuda.device_count()

    def chance():
        return numpy.random.rand(), torch.nn

    def noise():
        return torch.randn(1)

    for function in (devices, chance, noise):
        with pytest.raises(NotCacheable, match="while it is traced"):
            fingerprint(function)


class Kernel:
    """It may look at the world as long as that does not happen while it is traced."""

    def __init__(self):
        self.home = os.environ.get("HOME")
        self.sms = time.time()

    def __call__(self, x):
        return self.scaled(x) + os.path.join("a", "b").count("a")  # noqa: PTH118

    def scaled(self, x):
        return x * 2

    def benchmark(self):
        return time.perf_counter(), LOCK, open("x")  # noqa: PTH123

    @property
    def stamp(self):
        return time.time()


def test_what_does_not_run_may_read_the_world():
    kernel = Kernel()
    kernel.home = kernel.sms = 1
    assert fingerprint(kernel) == fingerprint(kernel)


def test_what_does_run_may_not():
    class Stamped(Kernel):
        def scaled(self, x):
            return self.stamp

    class Made(Kernel):
        def scaled(self, x):
            return type(self)()

    class Dispatched(Kernel):
        def scaled(self, x):
            return getattr(self, "bench" + MARK)

    class Named(Kernel):
        def scaled(self, x):
            return getattr(self, "benchmark")  # noqa: B009

    for cls in (Stamped, Made, Dispatched, Named):
        kernel = cls.__new__(cls)
        with pytest.raises(NotCacheable):
            fingerprint(kernel)


def pure():
    if re.match("a", "b"):
        return functools.reduce(max, [1, 2]), os.sep, os.path.basename("x"), sys.maxsize  # noqa: PTH119
    return types.SimpleNamespace(a=datetime.timedelta(1))


def test_helpers_of_the_standard_library_are_fine():
    assert fingerprint(pure) == fingerprint(pure)


def test_refusals_hold_at_any_place_of_the_walk():
    """What was met first where it is harmless, in an annotation, is refused where it runs."""

    def annotated(x: os.getenv) -> None:
        return os.getenv("x")

    with pytest.raises(NotCacheable, match=r"os\.getenv"):
        fingerprint(annotated)


def test_a_failing_import_in_the_body():
    def absent():
        import no_such_module_at_all  # noqa: F401

    assert fingerprint(absent) == fingerprint(absent)
