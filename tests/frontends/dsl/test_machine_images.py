"""Machine code as it is kept on the disk: brought to memory again, refused where it is damaged or of another kind."""

import subprocess
import sys

import numpy as np
import pytest

from tests.messages import refuses

pytest.importorskip("cutlass")

from cutepy.frontends.dsl import native_code
from cutepy.frontends.dsl.machine_images import LoadedImage, ObjectFileError, read_image
from cutepy.host.store import CacheWarning, machine_code_store
from cutepy.sim.native.log import UNDO

pytestmark = pytest.mark.dsl

SUMS = """module {
llvm.func internal @double(%x: vector<16xi64>) -> vector<16xi64> attributes {passthrough = ["noinline"]} {
%c = llvm.mlir.constant(dense<[NUMBERS]> : vector<16xi64>) : vector<16xi64>
%y = llvm.add %x, %c : vector<16xi64>
llvm.return %y : vector<16xi64>
}
llvm.func @run(%a: !llvm.ptr) {
%x = llvm.load %a {alignment = 8 : i64} : !llvm.ptr -> vector<16xi64>
%y = llvm.call @double(%x) : (vector<16xi64>) -> vector<16xi64>
llvm.store %y, %a {alignment = 8 : i64} : vector<16xi64>, !llvm.ptr
llvm.return
}
}""".replace("NUMBERS", ", ".join(map(str, range(1, 17))))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("CUTEPY_CACHE", raising=False)
    return tmp_path / "machine-code"


def _sums(code):
    values = np.zeros(16, np.int64)
    code.function("run")(values.ctypes.data)
    return values.tolist()


def _object_file():
    kept = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_code, "read_image", lambda data: (kept.append(data), read_image(data))[1])
        native_code.compiled(SUMS)
    return kept[0]


@pytest.mark.integration
def test_what_was_compiled_is_there_for_the_next_process_without_the_compiler():
    assert native_code.kept(SUMS) is None
    assert _sums(native_code.compiled(SUMS)) == list(range(1, 17))
    script = f"""
import sys
from tests.frontends.dsl.test_machine_images import SUMS, _sums
for name in [n for n in sys.modules if n.startswith("cutlass")]:
    sys.modules[name] = None
from cutepy.frontends.dsl import native_code
assert _sums(native_code.kept(SUMS)) == {list(range(1, 17))}
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_functions_of_the_process_are_found():
    native_code.compiled(UNDO)
    code = native_code.kept(UNDO)
    value, log = np.array([7], np.int64), np.zeros(3, np.int64)
    log[:] = 5, value.ctypes.data, 1 | 8 << 8  # eight bytes, where they were, and what this is: see `native.log`
    code.function("undo")(np.array([log.ctypes.data, log.ctypes.data + 24]).ctypes.data)
    assert value == [5]


def test_nothing_is_kept_where_the_cache_is_off(monkeypatch, folder):
    monkeypatch.setenv("CUTEPY_CACHE", "off")
    assert _sums(native_code.compiled(SUMS)) == list(range(1, 17))
    assert native_code.kept(SUMS) is None
    assert not folder.exists()


@pytest.mark.parametrize("name", ["_compiler", "_processor"])
def test_code_of_another_compiler_or_processor_is_none(monkeypatch, name):
    native_code.compiled(SUMS)
    monkeypatch.setattr(native_code, name, lambda: "another")
    assert native_code.kept(SUMS) is None


def test_damaged_code_is_not_run(folder):
    native_code.compiled(SUMS)
    (file,) = folder.glob("*.program")
    data = bytearray(file.read_bytes())
    data[-40] ^= 1
    file.write_bytes(data)
    with pytest.warns(CacheWarning):
        assert native_code.kept(SUMS) is None
    assert machine_code_store().entries() == []


def test_a_folder_that_others_may_write_to_is_not_read(folder):
    native_code.compiled(SUMS)
    machine_code_store()._files._trusted = False
    folder.chmod(0o777)
    assert native_code.kept(SUMS) is None
    assert _sums(native_code.compiled(SUMS)) == list(range(1, 17))


def test_images_lie_anywhere():
    image = read_image(_object_file())
    assert {"run", "_mlir_run"} <= image.functions.keys()
    assert any(not name for _, name, _ in image.relocations)  # of the constants
    first, second = LoadedImage(image), LoadedImage(image)
    assert first.functions["run"] != second.functions["run"]
    assert [_sums(native_code.NativeCode(one)) for one in (first, second)] == [list(range(1, 17))] * 2


@pytest.mark.parametrize(
    ("at", "value"),
    [(0, 0), (18, 183), (16, 2)],
    ids=["magic", "machine", "kind"],
)
def test_other_files_are_refused(at, value):
    data = bytearray(_object_file())
    data[at] = value
    with refuses(ObjectFileError):
        read_image(bytes(data))
    with pytest.raises(ObjectFileError):
        read_image(b"")


def test_addresses_that_are_not_whole_are_refused():
    data = _object_file()
    relocations = read_image(data).relocations
    # Each relocation is a place, a symbol and a kind, of which 1 is a whole address.
    kinds = [
        n for n in range(8, len(data) - 8) if data[n : n + 4] == b"\1\0\0\0" and _is_relocation(data, n, relocations)
    ]
    assert kinds
    changed = bytearray(data)
    changed[kinds[0]] = 2
    with refuses(ObjectFileError):
        read_image(bytes(changed))


def _is_relocation(data, at, relocations):
    offset = int.from_bytes(data[at - 8 : at], "little")
    return any(0 < offset <= place for place, _, _ in relocations) and data[at + 5 : at + 8] == bytes(3)
