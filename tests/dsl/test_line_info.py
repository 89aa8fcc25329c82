"""Places in the source are looked up once, and are the same."""

import inspect
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402
from cutlass._mlir_helpers import op as operations  # noqa: E402

from cutepy.dsl.line_info import places_remembered, remembered  # noqa: E402

REPLACED = ("_get_caller_frame_info", "_is_framework_module")
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


def ptx(folder):
    x = cute.runtime.make_fake_compact_tensor(cutlass.Float32, (32,), assumed_align=16)
    options = f"--gpu-arch=sm_90a --generate-line-info --keep-ptx --dump-dir={folder}"
    cute.compile(launch, x, options=options, no_jit_engine=True)
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
    with places_remembered():
        once = ptx(folders[1])
    assert each.count(".loc") > 4
    assert each == once
    assert operations_made > 60
    assert len(frames) < 40


def test_equal_code_of_two_files_is_of_two_places():
    source = "import sys\nframe = sys._getframe()\n"
    frames = []
    for name in ("one.py", "another.py"):
        found = {}
        exec(compile(source, name, "exec"), found)
        frames.append(found["frame"])
    assert frames[0].f_code == frames[1].f_code
    place_of = remembered(lambda frame: frame.f_code.co_filename)
    assert [place_of(frame) for frame in frames] == ["one.py", "another.py"]


def test_the_dsl_is_left_as_it_was_when_the_last_leaves():
    before = [getattr(operations, name) for name in REPLACED]
    inside = Barrier(2, timeout=20)

    def enter(stays):
        with places_remembered():
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
