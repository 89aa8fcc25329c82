"""`cutepy.compile_many`: in processes, through the disk cache; one that fails alone fails."""

import io
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from tests.messages import pins, refuses

pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = [pytest.mark.integration, pytest.mark.dsl]

import cutlass.cute as cute  # noqa: E402
import torch  # noqa: E402
from rich.console import Console  # noqa: E402

import cutepy  # noqa: E402
from cutepy.dsl import program  # noqa: E402
from cutepy.host.parallel_compilation import Variant, VariantsError, compile_many  # noqa: E402
from cutepy.host.progress import ProgressBoard  # noqa: E402
from cutepy.host.specs import TensorSpec  # noqa: E402
from tests.host import inspected, kernels, troubled  # noqa: E402

ROOT = Path(__file__).parents[2]
VECTOR = TensorSpec("float32", ("n",))
MATRIX = TensorSpec("float32", (32, "n"))
VECTORS = (VECTOR, VECTOR, VECTOR, 1.0)


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), str(Path(__file__).with_name("without_torch")))))


@pytest.fixture
def here(monkeypatch):
    """List what is compiled in this process."""
    built = []
    real = program.to_program

    def to_program(traced, arch):
        built.append(traced.function)
        return real(traced, arch)

    monkeypatch.setattr(program, "to_program", to_program)
    return built


def local():
    """Make a function that pickle does not take."""

    @cute.jit
    def local(x: cute.Tensor):
        kernels._copy(x, x).launch(grid=(1, 1, 1), block=(32, 1, 1))

    return local


def biased(bias):
    return Variant(kernels.add, VECTORS, named={"bias": bias})


def test_two_processes_compile_what_is_missing(here, monkeypatch):
    """But for what this process has set: others import the module as its file has it."""
    found = cutepy.compile(kernels.add, *VECTORS, bias=1.0)
    here.clear()
    monkeypatch.setattr(kernels, "BIAS", 7.0)
    of_here = Variant(kernels.biased, (TensorSpec("float32", (32,)),))
    variants = [biased(1.0), biased(2.0), (kernels.copy, (torch.zeros(32, 8), None)), biased(2.0), of_here]
    functions = compile_many(variants, processes=2, progress=False)
    assert here == ["biased"]
    assert [function.__name__ for function in functions] == ["add", "add", "copy", "add", "biased"]
    assert functions[0].program == found.program
    for function, bias in ((functions[0], 1), (functions[1], 2), (functions[3], 2)):
        a, b, c = (torch.ones(8) for _ in range(3))
        with cutepy.simulate():
            function(a, b, c, 1.0)
        assert c.tolist() == [2 + bias] * 8
    assert all(function.cost().cached for function in functions[:4])
    again = compile_many(variants, processes=2, progress=False)
    assert again[2].program == functions[2].program
    for function in (functions[4], again[4]):
        a = torch.zeros(32)
        with cutepy.simulate():
            function(a)
        assert a.tolist() == [7.0] * 32


@pytest.mark.deep
def test_options_and_objects(here):
    variants = [(kernels.Scaled(factor), (VECTOR, VECTOR), "--opt-level 2") for factor in (2.0, 3.0)]
    functions = compile_many(variants, processes=2, progress=False)
    assert here == []
    assert [function.metadata["options"] for function in functions] == ["--opt-level 2"] * 2
    assert functions[0].program != functions[1].program


def test_errors_wait_for_the_others_and_name_the_variant(here, monkeypatch):
    monkeypatch.setenv("TROUBLED", "dies")
    variants = [
        biased(1.0),
        (kernels.add, VECTORS[:2]),
        Variant(inspected.wrong, (VECTOR,), name="the wrong one"),
        (troubled.troubled, (MATRIX,)),
        biased(2.0),
        Variant(local(), (MATRIX,)),
    ]
    with refuses(VariantsError) as caught:
        compile_many(variants, processes=2, progress=False)
    assert here == []
    kinds = [type(error).__name__ for error in caught.value.exceptions]
    assert kinds == ["TypeError", "ValueError", "WorkerDiedError", "TypeError"]
    too_few, wrong, died, unsent = caught.value.exceptions
    pins(str(too_few))
    assert str(wrong) == "this kernel is wrong"
    assert "in wrong" in wrong.__notes__[0]
    pins(str(died))
    assert [error.__notes__[-1].partition("(")[0] for error in (too_few, died)] == ["variant: add", "variant: troubled"]
    assert wrong.__notes__[-1] == "variant: the wrong one"
    assert [function is None for function in caught.value.functions] == [False, True, True, True, False, True]
    for part in ("the function", "local", "top level of a module"):
        assert part in str(unsent)
    some = caught.value.subgroup(ValueError)
    assert isinstance(some, VariantsError)
    assert some.functions == caught.value.functions
    assert compile_many([biased(1.0), biased(2.0)], progress=False)
    assert here == []


def test_one_process_compiles_also_what_cannot_be_sent(here):
    variants = [Variant(local(), (MATRIX,)), (kernels.copy, (MATRIX, None))]
    assert len(compile_many(variants, processes=1, progress=False)) == 2
    assert here == ["local", "copy"]


def test_without_the_cache_all_is_compiled_here(here, monkeypatch, tmp_path):
    monkeypatch.setenv("CUTEPY_CACHE", "off")
    with refuses(VariantsError) as caught:
        compile_many([biased(1.0), (inspected.wrong, (VECTOR,)), biased(2.0)], processes=2, progress=False)
    assert here == ["add", "add"]
    assert [function is None for function in caught.value.functions] == [False, True, False]
    assert not (tmp_path / "cache").exists()


def test_nothing_is_compiled_for_nothing():
    assert compile_many([], progress=False) == []
    with refuses(ValueError):
        compile_many([], processes=0)


def test_names_of_variants():
    assert str(biased(2.0)) == "add(float32 (n), float32 (n), float32 (n), 1.0, bias=2.0)"
    assert str(Variant(kernels.copy, (torch.zeros(2, 3), None))) == "copy(float32 (2, 3), None)"
    assert str(Variant(kernels.Scaled(1.0), ("x" * 100,))) == "Scaled('" + "x" * 56 + "...)"


def test_the_progress_bar_counts():
    out = io.StringIO()
    with ProgressBoard(3, console=Console(file=out, force_terminal=True, width=100)) as board:
        board.done("a", "cached")
        board.started("b[bold]")
        board.started("c")
        board.done("c")
        board._progress.refresh()
        board.failed("b[bold]")
    shown = out.getvalue()
    assert "1 compiled, 1 cached  b[bold]" in shown
    assert "failed: b[bold]" in shown
    assert "3/3" in shown
    assert shown.rindex("1 compiled, 1 cached, 1 failed") > shown.index("failed: b")


def test_no_progress_where_there_is_no_terminal(capsys):
    compile_many([biased(1.0)], processes=2)
    assert capsys.readouterr() == ("", "")


SCRIPT = """
    import sys
    import cutlass, cutlass.cute as cute, cutepy
    from tests.host import kernels

    class Twice:
        def times(self, n):
            return 2 * n

    twice = Twice()

    @cute.jit
    def mine(x: cute.Tensor, times: cutlass.Constexpr):
        kernels._copy(x, x).launch(grid=(twice.times(times), 1, 1), block=(32, 1, 1))

    def main():
        matrix = cutepy.TensorSpec("float32", (32, "n"))
        if sys.argv[1] == "own":
            functions = cutepy.compile_many([(mine, (matrix, times)) for times in (1, 2, 3)], processes=2)
            print([f.cost().cached for f in functions])
        else:
            from tests.host import troubled

            cutepy.compile_many([(troubled.troubled, (matrix, n)) for n in (1, 2)], processes=2)

    if __name__ == "__main__" or sys.argv[1] == "unguarded":
        main()
"""


@pytest.fixture
def script(tmp_path):
    file = tmp_path / "script.py"
    file.write_text(textwrap.dedent(SCRIPT))

    def start(mode, **options):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([sys.executable, file, mode], cwd=ROOT, **pipes, **options)

    return start


def test_functions_of_a_script(script):
    out, error = script("own").communicate()
    assert out == "[True, True, True]\n", error


@pytest.mark.deep
def test_a_script_without_a_guard_is_told_of_it(script):
    process = script("unguarded")
    _, error = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "guard what your script does" in error


@pytest.mark.deep
def test_ctrl_c_ends_the_processes(script, monkeypatch, tmp_path):
    """Of a terminal, all processes in the foreground get the signal."""
    monkeypatch.setenv("TROUBLED", str(tmp_path / "pids"))
    process = script("endless", start_new_session=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "pids").exists() or len((tmp_path / "pids").read_text().split()) < 2:
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    timer = threading.Timer(20, os.killpg, (process.pid, signal.SIGKILL))  # workers too, which hold the pipes
    timer.start()
    _, error = process.communicate()
    timer.cancel()
    assert process.returncode == -signal.SIGINT, error
    assert "KeyboardInterrupt" in error
    for pid in (tmp_path / "pids").read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
