"""Recordings of launches: files, hashes, comparisons, child processes that fault or hang."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.messages import pins
from tests.sim import opcode_runner
from tests.sim.hardware import compare, playing, record
from tests.sim.hardware.capture import capturing
from tests.sim.hardware.launches import Pointer, digest_of, load, loadable, normalised, save


def captured():
    source, out = np.arange(32, dtype=np.uint32), np.zeros(32, np.uint32)
    body = """mov.u32 %r1, %tid.x;
    ld.param.u64 %rd1, [p0];
    ld.param.u64 %rd2, [p1];
    mad.wide.u32 %rd1, %r1, 4, %rd1;
    mad.wide.u32 %rd2, %r1, 4, %rd2;
    ld.global.u32 %r2, [%rd1];
    add.u32 %r2, %r2, 5;
    st.global.u32 [%rd2], %r2;"""
    with capturing() as found:
        opcode_runner.launch(body, source, out)
    return found[0]


def test_a_launch_says_all_that_a_gpu_needs():
    launch = captured()
    assert [block.pointers for block in launch.parameters] == [(Pointer(0, 0, 0),), (Pointer(0, 1, 0),)]
    assert launch.written() == [1]
    np.testing.assert_array_equal(launch.before[0].data.view("u4"), np.arange(32))
    np.testing.assert_array_equal(launch.after[1].view("u4"), np.arange(32) + 5)
    assert launch.key() == captured().key()


def test_a_launch_survives_a_file(tmp_path):
    launch = captured()
    save(tmp_path / "bundle.npz", [launch, launch], {"x": 1})
    (first, second), about = load(tmp_path / "bundle.npz")
    assert first.key() == second.key() == launch.key()
    assert first.kinds() == launch.kinds()
    np.testing.assert_array_equal(first.after[1], launch.after[1])
    assert about == {"x": 1}


def test_hashed_ptx_has_no_places_and_versions():
    one = (
        '.version 8.7\n// by one\n.entry k() {\n.loc 1 2 3\nret;\n}\n.file 1 "a.py"\n.section .debug_str\n{\n.b8 1\n}\n'
    )
    other = ".version 9.0\n.entry k()   {\n\nret;\n}\n"
    assert normalised(one) == normalised(other)
    assert normalised(one) != normalised(one.replace("ret", "exit"))
    assert ".loc" not in loadable(one)
    assert loadable(".local .b8 x[4];") == ".local .b8 x[4];"
    assert ".version 8.7" in loadable(one)


def test_nans_are_alike_where_memory_holds_floats():
    one, other = (np.array([1, bits], np.uint32).view(np.uint8) for bits in (0x7FC00000, 0xFFFFFFFF))
    assert digest_of([one], ["f4"]) == digest_of([other], ["f4"])
    assert digest_of([one], ["u1"]) != digest_of([other], ["u1"])


@pytest.mark.parametrize(("x", "y", "ulps"), [(1.0, 1.0, 0), (1.0, 1 + 2**-23, 1), (0.0, -0.0, 1), (2**-149, -0.0, 2)])
def test_distance(x, y, ulps):
    bits = [np.array([v, 3], np.float32).view(np.uint32) for v in (x, y)]
    found = compare.distance(*bits, "f32")
    assert (found.ulps, found.equal) == (ulps, 1.0 if ulps == 0 else 0.5)


def test_distance_of_nan():
    bits = np.array([0x7FC00000, 0x7FFFFFFF, 0], np.uint32), np.array([0x7F800001, 0, 0], np.uint32)
    found = compare.distance(*bits, "f32")
    assert (found.ulps, found.worst) == (compare.NOT_A_NUMBER, 1)


def test_tables_of_launches_survive_packing():
    keys, digests = [bytes([n]) * 32 for n in (9, 3)], [bytes([n]) * 32 for n in (1, 2)]
    assert record.unpacked_launches(record.packed_launches(keys, digests)) == {
        bytes([9]) * 8: bytes([1]) * 8,
        bytes([3]) * 8: bytes([2]) * 8,
    }


CHILD = """
import json, sys, time
n, step, path = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
with open(path, "a") as file:
    def write(frame):
        file.write(json.dumps(frame) + "\\n"); file.flush()
    write({"gpu": "none", "driver": "none"})
    for i in range(n, 6, step):
        write({"begin": i})
        if i == 1: time.sleep(60)
        if i == 2: write({"n": i, "error": "illegal address"}); sys.exit(3)
        if i == 4: sys.exit(-9)
        write({"n": i, "regions": []})
"""


@pytest.mark.integration
def test_what_hangs_or_faults_costs_its_own_launch_only(tmp_path, monkeypatch):
    save(tmp_path / "bundle.npz", [captured()] * 6, {})
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    monkeypatch.setattr(playing, "_SILENCE_S", 2.0)
    popen = playing.subprocess.Popen
    monkeypatch.setattr(
        playing.subprocess, "Popen", lambda command, **k: popen([sys.executable, str(script), *command[3:]], **k)
    )
    outcomes, about = playing.play(tmp_path / "bundle.npz", tmp_path, workers=2)
    assert about["gpu"] == "none"
    errors = [outcome.error for outcome in outcomes]
    assert errors[0] == errors[3] == errors[5] == ""
    assert errors[1] == "did not end within 2 s"
    assert errors[2] == "illegal address"
    pins(errors[4])
    assert Path(tmp_path / "0.0.frames").exists()
