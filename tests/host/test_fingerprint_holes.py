"""Ways around the refusals: modules handed about as values, and all that the standard library, torch and numpy hold."""

import abc
import argparse
import codecs
import collections.abc
import datetime
import decimal
import enum
import fractions
import functools
import gzip
import importlib
import linecache
import locale
import logging
import math
import operator
import os
import pathlib
import random
import runpy
import statistics
import sys
import threading
import time
import types
import typing
import warnings
import weakref

import numpy as np
import pytest
import torch

from cutepy.host.fingerprint import NotCacheable, edited_since, fingerprint

HELPER = types.ModuleType("helper_of_the_kernel")
exec(  # a module of a user, that reads the environment in one function and not in another
    "import os, math\ndef factor(): return float(os.environ['HF'])\n"
    "def pure(): return math.pi * TWO\nTWO = 2\ndef __getattr__(name): return LATE\nLATE = 3\n",
    vars(HELPER),
)
PACKAGE = types.ModuleType("package_of_the_kernel")
PACKAGE.sub = HELPER
MODULES = (HELPER,)
BY_NAME = {"a": HELPER}
LOG = logging.getLogger("kernel")
HERE = pathlib.Path(__file__)
DATE = datetime.datetime(2026, 1, 1)
BORROWED = datetime.datetime.timestamp
DECIMAL = decimal.Decimal(1)
PARSER = argparse.ArgumentParser()


class Holder:
    def __init__(self):
        self.lib = HELPER

    def __call__(self):
        return self.lib.factor()


def use(module):
    return module.factor()


def by_variable():
    h = HELPER
    return h.factor()


def by_getattr():
    return getattr(HELPER, "factor")()  # noqa: B009


def by_computed_getattr():
    return getattr(HELPER, "fac" + str(LOG))()


def by_argument():
    return use(HELPER)


def by_tuple():
    return MODULES[0].factor()


def by_dict():
    return BY_NAME["a"].factor()


def by_import():
    import tests.host.test_fingerprint_holes as here

    h = here
    return h.use(h.HELPER)


def by_sys_modules():
    return sys.modules["helper"].factor()


def by_vars():
    return vars(HELPER)["factor"]()


def by_submodule():
    p = PACKAGE
    return p.sub.factor()


def by_its_own_import():
    h = HELPER
    return h.os.environ["HF"]


MODULE_READERS = [value for name, value in list(globals().items()) if name.startswith("by_")]


@pytest.mark.parametrize("function", [*MODULE_READERS, Holder()])
def test_functions_of_a_module_handed_about_are_refused_alike(function):
    with pytest.raises(NotCacheable):
        fingerprint(function)


def test_what_of_a_module_is_not_used_may_read_the_world():
    def function():
        h = HELPER
        return h.pure()

    assert fingerprint(function) == fingerprint(function)


@pytest.mark.parametrize("name", ["LATE", "TWO"])
def test_what_a_module_handed_about_holds_counts(name, monkeypatch):
    def function():
        p = PACKAGE
        return p.sub.pure(), p.sub.anything

    before = fingerprint(function)
    monkeypatch.setattr(HELPER, name, 7)
    assert fingerprint(function) != before


def test_pinned_modules_handed_about():
    def load(xp):
        return xp.load("x")

    def hand():
        return load(np)

    def variable():
        d = datetime
        return d.datetime.now()

    def harmless():
        m = math
        return m.pi, functools, operator

    for function in (hand, variable):
        with pytest.raises(NotCacheable, match=r"is the module (numpy|datetime), of which anything may be read"):
            fingerprint(function)
    assert fingerprint(harmless) == fingerprint(harmless)


STATEFUL = {
    "argv": lambda: sys.argv,
    "path of imports": lambda: sys.path,
    "recursion limit": lambda: sys.getrecursionlimit(),
    "clock": lambda: time.monotonic(),
    "today": lambda: datetime.date.today(),
    "now of the class": lambda: [datetime.datetime][0].now(),
    "timestamp": lambda: datetime.datetime.fromtimestamp(0),
    "chance": lambda: random.Random(None).random(),
    "path": lambda: pathlib.Path("x").exists(),
    "relative path": lambda: os.path.relpath("x"),
    "terminal": lambda: os.get_terminal_size(),
    "gzip": lambda: gzip.open("x").read(),
    "codecs": lambda: codecs.open("x").read(),
    "linecache": lambda: linecache.getlines("x"),
    "runpy": lambda: runpy.run_path("x"),
    "importlib": lambda: importlib.util.find_spec("x"),
    "decimal": lambda: decimal.getcontext().prec,
    "locale": lambda: locale.localeconv(),
    "thread": lambda: threading.active_count(),
    "arguments": lambda: argparse.ArgumentParser().parse_args(),
    "torch flag": lambda: torch.is_deterministic_algorithms_warn_only_enabled(),
    "torch modes": lambda: torch.are_deterministic_algorithms_enabled(),
    "torch cuda": lambda: torch.cuda.get_device_capability(),
    "torch device": lambda: torch.cuda.Stream(),
    "torch config": lambda: torch.backends.cuda.matmul.allow_tf32,
    "torch tensor": lambda: torch.empty(3),
    "torch threads": lambda: torch.get_num_threads(),
    "torch dtype": lambda: torch.get_default_dtype(),
    "numpy chance": lambda: np.random.default_rng(1),
    "numpy errors": lambda: np.geterr(),
    "numpy file": lambda: np.load("x"),
    "numpy empty": lambda: np.empty(3),
    "numpy print options": lambda: np.get_printoptions(),
    "frames": lambda: sys._getframe(1).f_globals["x"],
    "callers": lambda frame=None: frame.f_back,
    "held path": lambda: HERE.exists(),
    "file of a held path": lambda: [HERE][0].open(),
    "path by a computed name": lambda: getattr(HERE, "".join(("ex", "ists"))),
    "clock of a held date": lambda: DATE.today(),
    "held function of dates": lambda: BORROWED(DATE),
    "context of decimals": lambda: DECIMAL / 3,
    "held parser": lambda: PARSER.parse_args(),
}


@pytest.mark.parametrize("way", STATEFUL)
def test_what_is_not_known_to_be_pure_is_refused(way):
    with pytest.raises(NotCacheable, match=r"reads |from outside"):
        fingerprint(STATEFUL[way])


PURE = {
    "logging": lambda: (LOG.debug("x"), logging.getLogger("y").info("y")),
    "torch types": lambda: (torch.float16, torch.float8_e4m3fn, torch.bfloat16, torch.Size, torch.dtype, torch.int32),
    "numpy maths": lambda: (np.prod((1, 2)), np.log2(8), np.ceil(1.5), np.array([1]), np.float32(1), np.int64),
    "numpy names": lambda: (np.inf, np.dtype("int8"), np.bool_),
    "paths": lambda: os.path.join("a", "b"),  # noqa: PTH118
    "names of held paths": lambda: (HERE.name, HERE.parent / "x", str(HERE).replace("/", ".")),
    "days": lambda: (DATE.year, DATE.isoformat()),
    "python": lambda: (sys.maxsize, sys.version_info, math.prod([1]), functools.partial(max, 1), divmod(3, 2)),
}


@pytest.mark.parametrize("way", PURE)
def test_what_is_pure_is_let_pass(way):
    assert fingerprint(PURE[way]) == fingerprint(PURE[way])


class ReadsWorld:
    def __init__(self):
        self.home = os.environ["HOME"]


HOLDS = types.SimpleNamespace(cls=ReadsWorld, made=ReadsWorld.__new__(ReadsWorld))


def test_a_class_that_may_be_called_runs_its_constructor():
    with pytest.raises(NotCacheable, match=r"os\.environ"):
        fingerprint(lambda: HOLDS.cls())
    with pytest.raises(NotCacheable, match=r"os\.environ"):
        fingerprint(lambda cls=ReadsWorld: cls())
    only_held = ReadsWorld.__new__(ReadsWorld)

    def function(x: ReadsWorld):
        return only_held

    assert fingerprint(function) == fingerprint(function)


SCALE = 1


@functools.lru_cache
def scaled(x):
    return x * SCALE


@functools.cache
def settings():
    return types.SimpleNamespace(tile=1)


def test_what_a_cache_holds_of_an_earlier_state_counts(monkeypatch):
    def function():
        return scaled(2), settings().tile, scaled.unit

    monkeypatch.setattr(scaled, "unit", 1, raising=False)
    digests = [fingerprint(function).digest]
    for change in (
        lambda: scaled(2),
        lambda: monkeypatch.setattr("tests.host.test_fingerprint_holes.SCALE", 3),
        settings,
        lambda: setattr(settings(), "tile", 64),
        lambda: scaled(x=2),
        lambda: setattr(scaled, "unit", 2),
    ):
        change()
        digests.append(fingerprint(function).digest)
    assert len(set(digests)) == len(digests)
    assert function() == (2, 64, 2), "nothing was forgotten"
    assert fingerprint(function).digest == digests[-1]


def tripled(function):
    @functools.wraps(function)
    @functools.lru_cache
    def wrapper(x):
        return function(x) * FACTORS[0]

    return wrapper


FACTORS = {0: 3}
TRIPLED = tripled(len)


def test_the_function_behind_a_cache_counts_whatever_its_name(monkeypatch):
    def function():
        return TRIPLED("x")

    before = fingerprint(function)
    monkeypatch.setitem(FACTORS, 0, 5)
    assert fingerprint(function) != before


class Choice:
    pass


FAST, EXACT = Choice(), Choice()
ONE_LIST, SAME_LIST = [FAST], [EXACT]


def test_which_objects_are_one_and_the_same_counts(monkeypatch):
    def chooses(mode):
        return mode is FAST

    def compares():
        return ONE_LIST is SAME_LIST, {FAST: 1, EXACT: 2}

    assert fingerprint(chooses, FAST) == fingerprint(chooses, FAST)
    assert fingerprint(chooses, FAST) != fingerprint(chooses, EXACT)
    assert fingerprint(chooses, (FAST, FAST)) != fingerprint(chooses, (FAST, EXACT))
    before = fingerprint(compares)
    monkeypatch.setitem(globals(), "SAME_LIST", ONE_LIST)
    assert fingerprint(compares).difference(before) == ["identities"]


def test_orders_that_a_loop_follows_count():
    ordered = collections.OrderedDict(a=1, b=2)

    def function(numbers=None):
        return next(iter(ordered)), next(iter(numbers))

    digests = [fingerprint(function, {0.0, 8.0}), fingerprint(function, {8.0, 0.0})]
    ordered.move_to_end("a")
    assert len({*digests, fingerprint(function, {0.0, 8.0})}) == 3


def test_arrays_count_by_layout_and_flags():
    fixed = np.zeros((2, 2))
    fixed.flags.writeable = False
    wide = np.zeros((4, 4))[::2, ::2]
    noted = np.zeros((2, 2), np.dtype("f8", metadata={"tile": 1}))
    arrays = [np.zeros((2, 2)), np.asfortranarray(np.zeros((2, 2))), wide, fixed, noted]
    assert len({fingerprint(len, array).digest for array in arrays}) == len(arrays)
    for refused in (np.ma.array([1.0], fill_value=3.0), np.frompyfunc(lambda x: x, 1, 1)):
        with pytest.raises(NotCacheable):
            fingerprint(lambda held=refused: held)


def test_type_variables_count_by_what_they_stand_for():
    variables = [typing.TypeVar("T", bound=bound) for bound in (int, float)]
    new = [typing.NewType("N", of) for of in (int, float)]
    assert len({fingerprint(len, value).digest for value in (*variables, *new)}) == 4


class FromWorld:
    @property
    def factor(self):
        return os.environ["FACTOR"]

    def keys(self):
        return os.environ.keys()

    def __getitem__(self, name):
        return 1


WORLD = FromWorld()
GETTER = operator.attrgetter("factor")
GETTING = functools.partial(getattr, WORLD, "factor")


@pytest.mark.parametrize(
    "function",
    [
        lambda: GETTER(WORLD),
        lambda: GETTING(),
        lambda: sorted([WORLD], key=operator.methodcaller("factor")),
        lambda: dict(**WORLD),
        lambda: use.__globals__["HELPER"],
    ],
)
def test_names_that_only_values_or_python_itself_say_are_refused(function):
    with pytest.raises(NotCacheable, match=r"reads "):
        fingerprint(function)


def test_patches_under_the_names_they_replace_count(monkeypatch):
    def function():
        return math.gcd(4, 6), fractions.Fraction(1, 3).limit_denominator(5), statistics.mean([1.0])

    def wrapped(original, factor):
        @functools.wraps(original)
        def replacement(*arguments):
            return original(*arguments) * factor

        return replacement

    digests = [fingerprint(function).digest]
    for owner, name in ((math, "gcd"), (statistics, "mean"), (fractions.Fraction, "limit_denominator")):
        original = getattr(owner, name)
        for factor in (2, 3):
            monkeypatch.setattr(owner, name, wrapped(original, factor))
            digests.append(fingerprint(function).digest)
    assert len(set(digests)) == len(digests)


class Hooked(abc.ABC):  # noqa: B024
    @classmethod
    def __subclasshook__(cls, other):
        return FACTORS[0] == 3


def test_hooks_of_abstract_classes_run(monkeypatch):
    def function():
        return isinstance(ONE, Hooked)

    before = fingerprint(function)
    monkeypatch.setitem(FACTORS, 0, 4)
    assert fingerprint(function) != before


def test_attributes_of_functions_that_the_dsl_did_not_decorate_count(monkeypatch):
    def function():
        return use._dsl_tile

    digests = []
    for tile in (1, 2):
        monkeypatch.setattr(use, "_dsl_tile", tile, raising=False)
        digests.append(fingerprint(function).digest)
    assert digests[0] != digests[1]


def test_cells_of_notebooks_outlive_their_process():
    source = "def function():\n    return 1\n"
    digests = []
    for process in (17, 4711):
        name = f"/tmp/ipykernel_{process}/123.py"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        found = {"__name__": "__main__"}
        exec(compile(source, name, "exec"), found)
        digests.append(fingerprint(found["function"]).digest)
        del linecache.cache[name]
    assert digests[0] == digests[1]


def test_a_folder_that_bears_the_name_of_a_namespace_is_no_package_of_nvidia(tmp_path, monkeypatch):
    (tmp_path / "cuda").mkdir()
    file = tmp_path / "cuda" / "my_kernels.py"
    monkeypatch.syspath_prepend(str(tmp_path))
    digests = []
    for number in (1, 2):
        file.write_text(f"def function(): return {number}\n")
        monkeypatch.delitem(sys.modules, "cuda.my_kernels", raising=False)
        importlib.invalidate_caches()
        module = importlib.import_module("cuda.my_kernels")
        exec(compile(file.read_text(), str(file), "exec"), vars(module))
        digests.append(fingerprint(module.function).digest)
    monkeypatch.delitem(sys.modules, "cuda.my_kernels")
    assert digests[0] != digests[1]


class Matched:
    """A class."""

    __match_args__ = ("home",)

    @property
    def home(self):
        return os.environ["HOME"]


MATCHED = Matched()


def test_attributes_read_by_patterns_and_formats():
    def pattern():
        match MATCHED:
            case Matched(1):
                return 1

    def formatted():
        return "{.home}".format(MATCHED)  # noqa: UP032

    def subclasses():
        return Matched.__subclasses__()

    for function in (pattern, formatted, subclasses):
        with pytest.raises(NotCacheable, match=r"os\.environ|__subclasses__"):
            fingerprint(function)


class Color(enum.Enum):
    RED = 1


def test_attributes_set_on_enum_members_and_docstrings_read_count(monkeypatch):
    def function():
        return Color.RED, Matched.__doc__

    digests = [fingerprint(function).digest]
    monkeypatch.setattr(Color.RED, "extra", 1, raising=False)
    digests.append(fingerprint(function).digest)
    monkeypatch.setattr(Matched, "__doc__", "other")
    digests.append(fingerprint(function).digest)
    assert len(set(digests)) == 3


@pytest.mark.parametrize(
    "function",
    [
        lambda: LOG.isEnabledFor(10),
        lambda: LOG.level > 10,
        lambda: logging.getLogger("kernel").getEffectiveLevel(),
        lambda: getattr(LOG, "lev" + "el".strip()),
    ],
)
def test_levels_of_logging_count_where_they_are_read(function):
    def plain():
        LOG.debug("x")

    level = LOG.level
    try:
        LOG.setLevel(level + 7)
        before, unread = fingerprint(function), fingerprint(plain)
        LOG.setLevel(level + 8)
        assert fingerprint(function).difference(before) == ["setup of logging"]
        assert fingerprint(plain) == unread
    finally:
        LOG.setLevel(level)


class Tile(abc.ABC):  # noqa: B024
    pass


class Square:
    pass


class Derived(Square):
    pass


ONE = Square()


def test_classes_registered_with_abstract_ones_count():
    class Sub(Tile):
        pass

    def function():
        return isinstance(ONE, Tile)

    def of_python():
        return isinstance(ONE, collections.abc.Sequence)

    def of_an_integer(x=3):
        return isinstance(x, Tile)

    def unrelated():
        return isinstance(ONE, Derived)

    functions = (function, of_python, of_an_integer, unrelated)
    before = [fingerprint(function) for function in functions]
    Sub.register(Square)
    collections.abc.MutableSequence.register(Square)
    Tile.register(int)
    after = [fingerprint(function) for function in functions]
    changes = [new.difference(old) for new, old in zip(after, before, strict=True)]
    assert f"registered with {__name__}:Tile" in changes[0]
    assert f"registered with {__name__}:Tile" in changes[2]
    assert changes[1] == ["registered with collections.abc:Sequence"]
    assert changes[3] == []


class Cached:
    """Holds what a kernel does not read: a lock, and what was computed for whom."""

    def __init__(self):
        self.lock, self.known, self.scale = threading.Lock(), weakref.WeakKeyDictionary(), 2
        self.listeners = (threading.Lock(),)

    def __call__(self):
        return self.scale


class Locking(Cached):
    def __call__(self):
        with self.lock:
            return self.scale


class Naming(Cached):
    def __call__(self):
        return getattr(self, "sc" + "ale".strip())


class Threaded(threading.Thread):
    def __call__(self):
        return 1


def test_what_no_code_reads_of_an_object_may_be_a_lock():
    free = Cached()
    free.listeners = ()
    assert fingerprint(free) == fingerprint(free)
    before = fingerprint(free)
    free.scale = 3
    assert fingerprint(free).difference(before) == ["attribute scale", "called"]
    for cls in (Locking, Naming):
        holder = cls()
        holder.listeners = ()
        with pytest.raises(NotCacheable, match=r"^attribute `(lock|known)` of .*, which may answer from outside"):
            fingerprint(holder)
    with pytest.raises(NotCacheable, match="item 0 of attribute `listeners`"):
        fingerprint(Cached())
    with pytest.raises(NotCacheable, match="attribute"):
        fingerprint(Threaded())


def test_attributes_of_modules_that_are_named_by_constants():
    def function():
        return hasattr(math, "tau"), getattr(np, "pi"), getattr(HELPER, "TWO", 1), hasattr(torch, "float8_e4m3fn")  # noqa: B009

    def reading():
        return getattr(time, "time")()  # noqa: B009

    def unknown():
        return hasattr(torch, "cuda")

    before = fingerprint(function)
    assert any("TWO" in name for name, _ in before.parts)
    for reader in (reading, unknown):
        with pytest.raises(NotCacheable, match="reads "):
            fingerprint(reader)


def test_how_warnings_and_numpy_were_set_up_counts():
    def warns():
        warnings.warn("x", stacklevel=1)

    def divides():
        return np.divide(1.0, 0.0)

    before = fingerprint(warns), fingerprint(divides)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnicodeWarning)
        assert fingerprint(warns).difference(before[0]) == ["setup of warnings"]
    with np.errstate(divide="raise"):
        assert fingerprint(divides).difference(before[1]) == ["setup of numpy"]
    assert (fingerprint(warns), fingerprint(divides)) == before


class Keeping:
    def __init__(self):
        self.compiled = {}

    def __call__(self):
        return 1


class Counting(Keeping):
    def __call__(self):
        return len(self.compiled)


def test_what_was_compiled_from_an_object_and_kept_on_it_counts_only_where_it_is_read():
    from cutepy.host.family import Family

    for cls in (Keeping, Counting):
        keeper = cls()
        before = fingerprint(keeper)
        keeper.compiled["x"] = Family.__new__(Family)
        assert (fingerprint(keeper) == before) == (cls is Keeping)


def test_files_that_code_may_link_count_by_their_content(tmp_path):
    library = tmp_path / "library.bc"
    library.write_bytes(b"BC\xc0\xde1")
    held = str(library)
    functions = [lambda: held, eval(f"lambda: {held!r}")]
    before = [fingerprint(function) for function in functions]
    library.write_bytes(b"BC\xc0\xde22")
    for function, old in zip(functions, before, strict=True):
        assert fingerprint(function).difference(old) == [f"source {library}"]
    with pytest.raises(NotCacheable, match=r"links /library\.bc, which is no file"):
        fingerprint(lambda: cute.ffi(source=f"{tmp_path}/library.bc"))  # noqa: F821


def test_a_module_whose_file_is_not_to_be_read_was_not_edited(monkeypatch):
    module = types.ModuleType("module_of_an_archive")
    module.__file__ = "/archive.zip/module_of_an_archive.py"
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec("def function(): return 1", vars(module))
    found = fingerprint(module.function)
    assert f"source {module.__file__}" in dict(found.parts)
    assert edited_since(found) == []
