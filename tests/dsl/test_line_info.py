"""Places in the source are looked up once, and are the same."""

import inspect
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402
from cutlass._mlir import ir  # noqa: E402
from cutlass._mlir_helpers import op as operations  # noqa: E402
from cutlass.base_dsl.compiler import Compiler  # noqa: E402

from cutepy.dsl import line_info  # noqa: E402
from cutepy.dsl.line_info import lines_known, scope_of  # noqa: E402
from cutepy.sim.ptx import parse_module  # noqa: E402

REPLACED = ("_get_caller_frame_info", "_get_location_from_frame_info")
# What looks a place up is the DSL's own or, in older versions, Python's.
LOOKUP = (operations, "_fast_frameinfo") if hasattr(operations, "_fast_frameinfo") else (inspect, "getframeinfo")


@cute.kernel
def power(x: cute.Tensor):
    i = cute.arch.thread_idx()[0]
    value = x[i]
    for _ in cutlass.range_constexpr(60):
        value = value * value
    x[i] = value


@cute.jit
def launch(x: cute.Tensor):
    power(x).launch(grid=(1, 1, 1), block=(32, 1, 1))


def ptx(folder, function=launch):
    x = cute.runtime.make_fake_compact_tensor(cutlass.Float32, (32,), assumed_align=16)
    options = f"--gpu-arch=sm_90a --generate-line-info --keep-ptx --dump-dir={folder}"
    cute.compile(function, x, options=options, no_jit_engine=True)
    (file,) = folder.glob("*.ptx")
    return file.read_text()


def test_the_lines_are_the_same_and_looked_up_once(tmp_path, monkeypatch):
    frames = []
    lookup = getattr(*LOOKUP)
    monkeypatch.setattr(*LOOKUP, lambda frame: frames.append(frame.f_lasti) or lookup(frame))
    folders = [tmp_path / name for name in ("each", "once")]
    for folder in folders:
        folder.mkdir()
    each = ptx(folders[0])
    operations_made = len(frames)
    frames.clear()
    with lines_known():
        once = ptx(folders[1])
    assert each.count(".loc") > 4
    assert each == once
    assert operations_made > 60
    assert len(frames) < 40


def test_equal_code_of_two_files_is_of_two_places():
    with ir.Context(), lines_known():
        found = [{"asked": operations._get_caller_frame_info} for _ in range(2)]
        for name, names in zip(("one.py", "another.py"), found, strict=True):
            exec(compile("def wrapper():\n    return asked()\ninfo = wrapper()\n", name, "exec"), names)
        codes = [names["wrapper"].__code__ for names in found]
        assert codes[0] == codes[1]
        assert [(names["info"].filename, names["info"].lineno) for names in found] == [("one.py", 3), ("another.py", 3)]


@cute.jit
def squared(value):
    return value * value


def resumed(values):
    for value in values:
        yield squared(value)


def resumed_itself(value):
    while True:
        value = value + value
        yield value


@cute.kernel
def nested(x: cute.Tensor):
    values = resumed([x[0], x[1]])
    x[2] = next(values)
    x[3] = next(values)
    sums = resumed_itself(x[4])
    once = next(sums)
    again = next(sums)
    x[5] = once * again

    def inner(value):
        return squared(value)

    x[6] = inner(x[7])
    x[8] = inner(x[9])


@cute.jit
def launch_nested(x: cute.Tensor):
    nested(x).launch(grid=(1, 1, 1), block=(1, 1, 1))


def ways(text):
    """Count the instructions that lines of this file led to, the kernel's own line first."""
    source = Path(__file__).read_text().splitlines()
    instructions = [i for f in parse_module(text).functions.values() for i in f.instructions if i.source is not None]
    chains = [[line for line in i.source.chain() if line.file == __file__] for i in instructions]
    return Counter(tuple(source[line.line - 1].strip() for line in reversed(chain)) for chain in chains)


def test_callers_are_those_of_each_operation(tmp_path):
    """Also where a function is resumed by two callers."""
    with lines_known():
        found = ways(ptx(tmp_path, launch_nested))

    assert [way[:-1] for way in found if way[-1] == "return value * value"] == [
        *((f"x[{n}] = next(values)", "yield squared(value)") for n in (2, 3)),
        *((f"x[{n}] = inner(x[{n + 1}])", "return squared(value)") for n in (6, 8)),
    ]
    assert [way[:-1] for way in found if way[-1] == "value = value + value"] == [
        ("once = next(sums)",),
        ("again = next(sums)",),
    ]


def third(value):
    return value * value


def second(value):
    return third(value) * value


def first(value):
    return second(value)


@cute.kernel
def deep(x: cute.Tensor):
    for n in cutlass.range_constexpr(3):
        one = first(x[n])
        other = first(x[n + 8])
        x[n] = one
        x[n + 8] = other


@cute.jit
def launch_deep(x: cute.Tensor):
    deep(x).launch(grid=(1, 1, 1), block=(1, 1, 1))


DEEP = ("return second(value)", "return third(value) * value", "return value * value")


def test_all_callers_are_known_and_not_the_outermost_alone(tmp_path):
    """PTX names a caller by line and column, and says once which line called that: two ways don't become one."""
    with lines_known():
        found = ways(ptx(tmp_path, launch_deep))
    assert {way: count for way, count in found.items() if way[-1] == DEEP[-1]} == {
        ("one = first(x[n])", *DEEP): 3,
        ("other = first(x[n + 8])", *DEEP): 3,
    }


def test_a_compiler_that_knows_no_scopes_gets_the_lines_without(tmp_path, monkeypatch):
    monkeypatch.setattr(line_info, "scope_of", lambda *of: "#llvm.no_such_scope<>")
    with lines_known():
        found = ways(ptx(tmp_path, launch_deep))
    assert ("one = first(x[n])", DEEP[-1]) in found


def test_a_compiler_that_fails_tells_locations_without_their_scopes(tmp_path, monkeypatch):
    """The compiler runs again, on the module as it was, and that error is raised."""
    seen = []

    def fails(self, module, *arguments, **named):
        seen.append(module.operation.get_asm(enable_debug_info=True))
        raise RuntimeError(f"pass {len(seen)} failed")

    monkeypatch.setattr(Compiler, "compile", fails)
    with lines_known(), pytest.raises(RuntimeError, match="pass 2 failed"):
        ptx(tmp_path, launch_deep)
    assert ["di_subprogram" in text for text in seen] == [True, False]


@pytest.mark.parametrize("file", ['/a "b"/c\\d.py', "<cell 3>", "/\u00fc/k.py", "/a\udc80/k.py"])
def test_any_file_can_be_named_in_a_scope(file):
    with ir.Context():
        assert ir.Attribute.parse(scope_of(file, "f")) is not None


def test_the_dsl_is_left_as_it_was_when_the_last_leaves():
    before = [getattr(operations, name) for name in REPLACED]
    inside = Barrier(2, timeout=20)

    def enter(stays):
        with lines_known():
            inside.wait()
            changed = [getattr(operations, name) for name in REPLACED]
            inside.wait()
            if stays:
                inside.wait()
                assert [getattr(operations, name) for name in REPLACED] == changed
        if not stays:
            inside.wait()
        return changed

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(enter, [False, True])
    assert first == second
    assert all(ours is not theirs for ours, theirs in zip(first, before, strict=True))
    assert [getattr(operations, name) for name in REPLACED] == before


def test_what_stands_for_the_dsls_functions_says_which():
    """QuACK hashes the functions that an epilogue refers to: these count as those of the DSL, and hold no state."""
    originals = [getattr(operations, name) for name in REPLACED]
    with lines_known():
        found = [getattr(operations, name) for name in REPLACED]
    assert [inspect.unwrap(f) for f in found] == originals
    assert not any(inspect.isfunction(f) for f in found)
