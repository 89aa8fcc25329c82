"""The object loader against objects of the system's compiler, and damaged ones."""

import ctypes
import shutil
import struct
import subprocess

import pytest

from cutepy.runtime.objects import LoadedObject, ObjectError, _align, _Symbol, undefined_symbols
from tests.messages import refuses

SOURCE = """
extern long served(long);
static long counter = 5;
static const long table[4] = {10, 20, 30, 40};
static long zeros[100];
const long *pointers[2] = {table, table + 3};
long add(long a, long b) { return a + b; }
long counting(void) { return ++counter; }
long through(int i) { return *pointers[i]; }
long calls(long x) { return served(add(x, 1)) + zeros[x]; }
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    folder = tmp_path_factory.mktemp("object")
    (folder / "a.c").write_text(SOURCE)
    flags = ["-O2", "-fPIC", "-mcmodel=large", "-fno-asynchronous-unwind-tables"]
    subprocess.run(["gcc", *flags, "-c", "a.c", "-o", "a.o"], cwd=folder, check=True)
    return (folder / "a.o").read_bytes()


@pytest.fixture
def served():
    return ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long)(lambda x: 100 * x)


def load(image, served):
    return LoadedObject(image, {"served": ctypes.cast(served, ctypes.c_void_p).value})


def function(loaded, name, *types):
    return ctypes.CFUNCTYPE(ctypes.c_long, *types)(loaded.addresses[name])


@pytest.mark.parametrize(
    ("alignment", "aligned"),
    [(0, [0, 1, 7, 8, 9]), (1, [0, 1, 7, 8, 9]), (8, [0, 8, 8, 8, 16]), (6, [0, 6, 12, 12, 12])],
)
def test_offsets_are_rounded_up(alignment, aligned):
    """An alignment of 0 is none, as in a section's header."""
    assert [_align(offset, alignment) for offset in (0, 1, 7, 8, 9)] == aligned


def test_functions_run(image, served):
    loaded = load(image, served)
    assert function(loaded, "add", ctypes.c_long, ctypes.c_long)(3, 4) == 7
    assert function(loaded, "calls", ctypes.c_long)(4) == 500


def test_data_is_initialised_and_relocated(image, served):
    loaded = load(image, served)
    assert [function(loaded, "through", ctypes.c_int)(i) for i in (0, 1)] == [10, 40]


def test_each_load_has_its_own_variables(image, served):
    first, second = load(image, served), load(image, served)
    assert [function(first, "counting")() for _ in range(3)] == [6, 7, 8]
    assert function(second, "counting")() == 6


def test_symbols(image, served):
    assert undefined_symbols(image) == ["served"]
    assert {"add", "calls", "counting", "through", "pointers"} <= load(image, served).addresses.keys()


def test_a_missing_symbol_is_named(image):
    with refuses(ObjectError):
        LoadedObject(image, {})


def test_what_is_no_object_is_refused(image, served):
    with refuses(ObjectError):
        load(b"not an object", served)
    executable = image[:16] + struct.pack("<H", 2) + image[18:]
    with refuses(ObjectError):
        load(executable, served)
    foreign = image[:18] + struct.pack("<H", 183) + image[20:]
    with refuses(ObjectError):
        load(foreign, served)


def test_an_unknown_relocation_is_refused(tmp_path, served):
    """The small code model's references are 32 bits wide, and may not reach."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    (tmp_path / "a.c").write_text(SOURCE)
    subprocess.run(["gcc", "-O2", "-fPIC", "-c", "a.c", "-o", "a.o"], cwd=tmp_path, check=True)
    with refuses(ObjectError):
        load((tmp_path / "a.o").read_bytes(), served)


def test_symbols_are_where_their_sections_are():
    """Those of sections that are not in memory, such as debug information, count from 0."""
    loaded = object.__new__(LoadedObject)
    loaded._table, loaded._at, loaded._external = 0x9000, {1: 0x1000, 3: 0x5000}, {"served": 0x7000}
    for name, section, value, address in (
        ("_GLOBAL_OFFSET_TABLE_", 0, 0, 0x9000),
        ("served", 0, 0, 0x7000),
        ("", 0, 0, 0),
        ("constant", 0xFFF1, 0x123, 0x123),
        ("function", 1, 0, 0x1000),
        ("variable", 3, 0x18, 0x5018),
        (".debug_info", 7, 0, 0),
        (".debug_line", 8, 0x20, 0x20),
    ):
        assert loaded._resolve(_Symbol(name, section, value)) == address
