import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cutepy.cli.app import app
from cutepy.host.store import CacheWarning, Entry, default_store, function_store
from cutepy.runtime.cuda import CudaError, driver
from tests.messages import pins

PTX = ".version 8.0\n.target sm_90a\nret;\n"
METADATA = {
    "function": "make.<locals>.gemm[0]",
    "arch": "sm_90a",
    "options": {"opt-level": 3},
    "created": 1.0,
    "dsl": "4.8.1",
}
KEYS = ("ab" * 32, "ac" * 32, "cd" * 32)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("CUTEPY_CACHE", "CUTEPY_CACHE_LIMIT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache" / "programs"


@pytest.fixture
def three():
    store = default_store()
    for key in KEYS:
        store.save(key, Entry(METADATA, {"object": bytes(5000), "ptx": PTX.encode()}))
    store.load(KEYS[0])
    store.load(KEYS[0])
    return store


def cache(*arguments, **options):
    return CliRunner().invoke(app, ["cache", *arguments], **options)


def words(line):
    return re.split(r"\s{2,}", line.strip())


def test_list_of_nothing(folder):
    assert cache("list").output == f"0 programs, 0 B of 4.0 GiB, in {folder}\n"


def test_list_has_the_last_used_first(three, folder):
    os.utime(folder / f"{KEYS[1]}.program", (time.time() - 7300,) * 2)
    result = cache("list")
    assert result.exit_code == 0
    header, *rows, total = result.output.splitlines()
    assert words(header) == ["key", "function", "arch", "size", "age", "uses"]
    size = three.entries()[0].size_bytes / 1024
    assert [words(row) for row in rows] == [
        [key[:12], "make.<locals>.gemm[0]", "sm_90a", f"{size:.1f} KiB", age, uses]
        for key, age, uses in [(KEYS[0], "0 s", "2"), (KEYS[2], "0 s", "0"), (KEYS[1], "2 h", "0")]
    ]
    assert total == f"3 programs, {3 * size:.1f} KiB of 4.0 GiB, in {folder}"


@pytest.mark.parametrize("key", [KEYS[2], "cd", "c"])
def test_show_tells_what_is_known(three, folder, key):
    result = cache("show", key)
    assert result.exit_code == 0
    rows = [words(line) for line in result.output.splitlines()]
    for row in (
        ["key", KEYS[2]],
        ["folder", str(folder)],
        ["uses", "0"],
        ["function", "make.<locals>.gemm[0]"],
        ["arch", "sm_90a"],
        ["options", '{"opt-level": 3}'],
        ["dsl", "4.8.1"],
        ["object", "5000 bytes"],
        ["ptx", f"{len(PTX)} bytes"],
    ):
        assert row in rows
    assert three.entries()[-1].key == KEYS[0]  # to look is not to use


def test_show_takes_any_metadata():
    metadata = {
        "mixed": ["plain", ["a", ["b"]], {"c": 1}],
        "parameters": [{"name": "a"}, "b"],
        "note": None,
        "no": [],
    }
    default_store().save("k", Entry(metadata, {}))
    result = cache("show", "k")
    assert result.exit_code == 0
    lines = [line.strip() for line in result.output.splitlines()]
    for line in (
        "mixed       plain",
        '{"c": 1}',
        'parameters  {"name": "a"}',
        "b",
        "note        null",
        "no          []",
    ):
        assert line in lines
    assert all(line == line.rstrip() for line in result.output.splitlines())


def test_show_prints_ptx_as_it_is(three):
    assert cache("show", "cd", "--ptx").output == PTX


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "x"), "no program's key begins with 'x' in "),
        (("show", "a"), f"2 keys begin with 'a': {KEYS[1]}, {KEYS[0]}\n"),
        (("clear", "--yes", "cd", "x"), "no program's key begins with 'x' in "),
        (("warm", "missing.py"), "there is no file missing.py, and no module of that name\n"),
        (("warm", "missing.module"), "there is no file missing.module, and no module of that name\n"),
        (
            ("warm", "json", "argument"),
            "a module takes no arguments, got argument; give the path of a script instead\n",
        ),
    ],
)
def test_what_cannot_be_done_is_told(three, arguments, message):
    result = cache(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {message}")
    assert len(three.entries()) == 3


def test_a_whole_key_is_no_prefix():
    for key in ("a", "ab"):
        default_store().save(key, Entry({}, {}))
    assert words(cache("show", "a").output.splitlines()[1]) == ["key", "a"]


def test_ptx_that_is_not_kept_is_missed():
    default_store().save("a", Entry({}, {"object": b"\0"}))
    assert cache("show", "a", "--ptx").stderr == "error: no PTX is kept of a; its sections are object\n"


def test_a_damaged_program_is_told_and_stays(three, folder):
    file = folder / f"{KEYS[2]}.program"
    file.write_bytes(file.read_bytes()[:-1])
    result = cache("show", "cd")
    assert (result.exit_code, result.stderr) == (2, f"error: {file} is damaged: checksum mismatch\n")
    assert file.exists()


@pytest.mark.parametrize(
    ("arguments", "answer", "left"),
    [
        ((), "y", []),
        ((), "n", [*KEYS]),
        (("--yes",), "", []),
        (("-y", "cd"), "", [KEYS[0], KEYS[1]]),
        (("cd", "ab", "cdc"), "y", [KEYS[1]]),
        (("cd",), "n", [*KEYS]),
    ],
)
def test_clear_removes_what_is_named(three, arguments, answer, left):
    result = cache("clear", *arguments, input=answer)
    assert sorted(program.key for program in three.entries()) == left
    assert result.exit_code == (1 if answer == "n" else 0)
    if answer != "n":
        assert result.output.endswith(f"removed {3 - len(left)} program{'s' * (len(left) != 2)}\n")
    if answer:
        count = len({argument[:2] for argument in arguments}) or 3
        assert f"Remove {'' if arguments else 'all of '}{count} program{'s' * (count != 1)} (" in result.output


def test_clear_removes_what_cannot_be_read(three, folder):
    (folder / "broken.program").write_bytes(b"?")
    assert cache("clear", "--yes").output == "removed 4 programs\n"
    assert list(folder.iterdir()) == []


def test_what_is_kept_to_trace_sooner_goes_with_the_programs(three):
    functions = function_store()
    functions.save("file", Entry({}, {"f 1": b"code"}))
    functions.folder.joinpath("broken.program").write_bytes(b"?")
    assert cache("clear", three.entries()[0].key, "--yes").output == "removed 1 program\n"
    assert cache("prune").output == "removed 1 program\n"
    assert functions.load("file").sections == {"f 1": b"code"}
    assert not functions.unreadable()
    assert cache("clear", "--yes").output == "removed 2 programs\n"
    assert functions.load("file") is None


def test_a_folder_in_the_place_of_a_program_is_told(three, folder):
    (folder / "x.program" / "work").mkdir(parents=True)
    told = cache("list").output.splitlines()[-1]
    pins(told)
    result = cache("clear", "--yes")
    assert result.exit_code == 2
    pins(result.stderr)
    assert three.entries() == []
    (folder / "x.program" / "work").rmdir()
    assert cache("clear", "--yes").output == "removed 1 program\n"
    assert cache("list").output == f"0 programs, 0 B of 4.0 GiB, in {folder}\n"


COMPILES = """
import sys
from multiprocessing import get_context
from cutepy.host.store import Entry, default_store

def compile(key):
    default_store().get_or_build(key, lambda: Entry({"function": key}, {}))

if __name__ == "__main__":
    names = sys.argv[1:]
    compile(names[0])
    with get_context("fork").Pool(2) as pool:
        pool.map(compile, names)
    import beside
"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / "compiles.py").write_text(COMPILES)
    (tmp_path / "beside.py").touch()
    return tmp_path / "compiles.py"


def test_warm_tells_what_a_script_and_its_processes_built(script, folder):
    before = (sys.argv[:], sys.path[:])
    assert cache("warm", str(script), "a", "b").output == f"2 programs built, 0 already there, in {folder}\n"
    assert cache("warm", str(script), "b", "c").output == f"1 program built, 1 already there, in {folder}\n"
    default_store().remove("b")
    assert cache("warm", str(script), "b").output == f"1 program built, 0 already there, in {folder}\n"
    assert [program.key for program in default_store().entries()] == ["a", "c", "b"]
    assert (sys.argv, sys.path) == before
    sys.modules.pop("beside")


COMPILES_A_KERNEL = """
import sys
import cutlass, cutlass.cute as cute, cutepy
from beside import value

def threads():
    return 32

@cute.kernel
def fill(a: cute.Tensor, number: cutlass.Constexpr):
    a[cute.arch.thread_idx()[0]] = cutlass.Float32(number)

@cute.jit
def go(a: cute.Tensor, number: cutlass.Constexpr):
    fill(a, number + value()).launch(grid=(1, 1, 1), block=(threads(), 1, 1))

if __name__ == "__main__":
    vector = cutepy.TensorSpec("float32", (32,))
    print([cutepy.compile(go, vector, int(number)).cost().cached for number in sys.argv[1:]])
"""


@pytest.mark.dsl
@pytest.mark.integration
def test_a_script_finds_what_was_warmed(tmp_path, folder):
    """And is found by it: the process that warms has other modules, and another `__main__`."""
    script = tmp_path / "kernels.py"
    script.write_text(COMPILES_A_KERNEL)
    (tmp_path / "beside.py").write_text("def value():\n    return 1\n")
    warmed = cache("warm", str(script), "1", "2").output.splitlines()
    assert warmed == ["[False, False]", f"2 programs built, 0 already there, in {folder}"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "kernels.py", "1", "2", "3"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("[True, True, False]\n", 0), done.stderr
    found = cache("warm", str(script), "3").output.splitlines()
    assert found == ["[True]", f"0 programs built, 1 already there, in {folder}"]
    sys.modules.pop("beside")


@pytest.mark.dsl
@pytest.mark.integration
def test_what_is_warmed_is_for_the_architecture(tmp_path, folder):
    script = tmp_path / "kernels.py"
    script.write_text(COMPILES_A_KERNEL)
    (tmp_path / "beside.py").write_text("def value():\n    return 1\n")
    for arch in ("sm_90a", "sm_100a"):
        assert cache("warm", "--arch", arch, str(script), "1").output.splitlines()[0] == "[False]"
        sys.modules.pop("beside")
    assert {line.split()[2] for line in cache("list").output.splitlines()[1:3]} == {"sm_90a", "sm_100a"}
    refused = cache("warm", "--arch", "sm_120", str(script))
    assert (refused.exit_code, refused.output) == (
        2,
        "error: the architecture must be one of sm_90a, sm_100a, sm_103a, sm_120a, got 'sm_120'\n",
    )


def test_warm_counts_what_was_damaged_as_built(script, folder):
    cache("warm", str(script), "a")
    damaged = bytearray((folder / "a.program").read_bytes())
    damaged[10] ^= 1  # of the checksum: what is listed is as before
    (folder / "a.program").write_bytes(damaged)
    with pytest.warns(CacheWarning) as told:
        result = cache("warm", str(script), "a")
    pins(str(told[0].message))
    assert result.output == f"1 program built, 0 already there, in {folder}\n"
    sys.modules.pop("beside")


def test_warm_imports_a_module_under_its_name(tmp_path, monkeypatch, folder):
    (tmp_path / "my_kernels.py").write_text(
        "from cutepy.host.store import Entry, default_store\ndefault_store().save(__name__, Entry({}, {}))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_kernels", raising=False)  # another test's
    assert cache("warm", "my_kernels").output == f"1 program built, 0 already there, in {folder}\n"
    assert [program.key for program in default_store().entries()] == ["my_kernels"]
    sys.modules.pop("my_kernels")


@pytest.mark.parametrize(
    ("leaves", "code", "told"), [("sys.exit(3)", 3, ""), ("sys.exit()", 0, ""), ("sys.exit('no')", 1, "no\n")]
)
def test_warm_ends_as_the_script_does(tmp_path, leaves, code, told):
    (tmp_path / "leaves.py").write_text(f"import sys\n{leaves}\n")
    result = cache("warm", str(tmp_path / "leaves.py"))
    assert (result.exit_code, result.stderr) == (code, told)
    pins(result.stdout)


def test_what_a_script_raises_passes(tmp_path):
    (tmp_path / "fails.py").write_text("1 // 0\n")
    assert isinstance(cache("warm", str(tmp_path / "fails.py")).exception, ZeroDivisionError)


_USES = {
    "a DSL function": "go(cute.runtime.from_dlpack(torch.zeros(32)), 1)",
    "a compiled function": "cutepy.compile(go, cutepy.TensorSpec('float32', (32,)), 1)(torch.zeros(32))",
    "torch": "torch.zeros(32, device='cuda')",
}


@pytest.mark.dsl
@pytest.mark.integration
@pytest.mark.parametrize("uses", _USES)
def test_warm_says_that_a_launch_needs_a_driver(tmp_path, uses):
    """In a process of its own: one that has simulated has another torch."""
    with contextlib.suppress(CudaError):
        driver()
        pytest.skip("this machine has a driver")
    definitions = COMPILES_A_KERNEL.partition("if __name__")[0].replace("from beside import value", "import torch")
    text = definitions.replace(" + value()", "") + _USES[uses] + "\n"
    (tmp_path / "launches.py").write_text(text)
    command = [sys.executable, "-c", "from cutepy.cli.app import main; main()", "cache", "warm", "launches.py"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout[:1]) == (2, "1" if uses == "a compiled function" else "0"), done.stderr
    assert done.stderr.startswith(f"error: launches.py:{len(text.splitlines())} uses a GPU")
    pins(done.stderr)


def test_warm_needs_the_cache(monkeypatch, script):
    monkeypatch.setenv("CUTEPY_CACHE", "off")
    result = cache("warm", str(script), "a")
    assert result.exit_code == 2
    assert result.stderr == "error: CUTEPY_CACHE is off, and so nothing would be kept; unset it\n"


@pytest.mark.parametrize("command", [("list",), ("show", "a"), ("clear", "--yes", "a"), ("warm", "json")])
def test_the_environments_faults_are_told(monkeypatch, folder, three, command):
    monkeypatch.setenv("CUTEPY_CACHE_LIMIT", "much")
    result = cache(*command)
    assert (result.exit_code, result.stderr[:46]) == (2, "error: CUTEPY_CACHE_LIMIT must be a positive n")
    monkeypatch.delenv("CUTEPY_CACHE_LIMIT")
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(folder / "other"))
    (folder / "other" / "programs").mkdir(parents=True)
    (folder / "other" / "programs").chmod(0o777)
    result = cache(*command)
    assert result.exit_code == 2
    pins(result.stderr)
