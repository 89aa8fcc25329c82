"""Programs by declared sources: found without tracing, and verified where that is asked for."""

import enum
import functools
import importlib
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

import cutepy
from cutepy.dsl import program
from cutepy.host import declared, inputs
from cutepy.host.declared import Deferred, StaleSourcesError, content, declared_key
from cutepy.host.inputs import sources_digest
from cutepy.host.specs import PointerSpec, TensorSpec
from cutepy.host.store import CacheWarning, default_store
from tests.host import kernels
from tests.messages import refuses

pytestmark = pytest.mark.dsl

VECTOR = TensorSpec("float32", (32,))
KERNEL = """
import os
import cutlass, cutlass.cute as cute
from declared_package.values import VALUE

@cute.kernel
def _fill(a: cute.Tensor, factor: cutlass.Constexpr):
    a[cute.arch.thread_idx()[0]] = cutlass.Float32(VALUE * factor * float(os.environ.get("FACTOR", "1")))

class Fill:
    def __init__(self, factor):
        self.factor = factor
    @cute.jit
    def __call__(self, a: cute.Tensor):
        _fill(a, self.factor).launch(grid=(1, 1, 1), block=(32, 1, 1))

@cute.jit
def fill(a: cute.Tensor):
    _fill(a, 1).launch(grid=(1, 1, 1), block=(32, 1, 1))
"""


@pytest.fixture(autouse=True)
def package(monkeypatch, tmp_path):
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("FACTOR", "CUTEPY_VERIFY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # which an edit of as many bytes in one second is none to
    folder = tmp_path / "path" / "declared_package"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "values.py").write_text("VALUE = 2.0\n")
    (folder / "kernel.py").write_text(KERNEL)
    monkeypatch.syspath_prepend(str(folder.parent))
    yield folder
    _forget()


def _forget():
    """Let this process be like a new one."""
    inputs.sources.cache_clear()
    importlib.invalidate_caches()
    for name in [name for name in sys.modules if name.startswith("declared_package")]:
        del sys.modules[name]


def compile(factor=3.0, *, function="Fill", sources=("declared_package",), **settings):
    arguments = (factor,) if function == "Fill" else ()
    return cutepy.compile(
        Deferred(f"declared_package.kernel:{function}", *arguments), VECTOR, sources=sources, **settings
    )


def filled(function):
    a = torch.zeros(32)
    with cutepy.simulate():
        function(a)
    return a[0].item()


def test_the_second_time_nothing_is_imported_or_traced(monkeypatch):
    assert filled(compile()) == 6
    _forget()
    monkeypatch.setattr(program, "trace_program", None)
    found = compile()
    assert list(found.cost().stages) == ["load"]
    assert not any(name.startswith("declared_package") for name in sys.modules)
    assert filled(found) == 6
    assert str(found.parameters[0]) == f"a: {VECTOR}"


def test_values_and_files_are_in_the_key(package):
    assert filled(compile(3.0)) == 6
    assert filled(compile(4.0)) == 8
    assert not compile(4).cost().cached
    (package / "values.py").write_text("VALUE = 5.0\n")
    _forget()
    assert filled(compile(3.0)) == 15
    (package / "unused.txt").write_text("also a file of the package")
    _forget()
    assert list(compile(3.0).cost().stages) != ["load"]


def test_what_was_traced_for_others_is_taken(package):
    from declared_package.kernel import fill

    assert not cutepy.compile(fill, VECTOR).cost().cached
    made = compile(function="fill")
    assert made.metadata["traced"] == cutepy.compile(fill, VECTOR).metadata["traced"]
    assert "declared_package.kernel:fill" in repr(declared.deferred(fill))


def test_a_program_from_another_folder_names_the_files_that_are_here(package, monkeypatch, tmp_path):
    """The files are named from the folder of the compilation, from the folder of a trace, and without a trace."""
    function, places = Deferred("declared_package.kernel:fill"), [package]
    compiled = [cutepy.compile(function(), VECTOR)]
    for name in ("second", "third"):
        (tmp_path / name).mkdir()
        places.append(places[-1].rename(tmp_path / name / package.name))
        monkeypatch.syspath_prepend(str(tmp_path / name))
        _forget()
        compiled.append(cutepy.compile(function, VECTOR, sources=["declared_package"]))
    assert "declared_package.kernel" not in sys.modules
    assert [found.cost().cached for found in compiled] == [False, False, True]
    for place, found in zip(places, compiled, strict=True):
        assert f'"{place / "kernel.py"}"' in found.ptx
        assert not any(str(other) in found.ptx for other in places if other != place)
    assert compiled[2].metadata["moved"][str(package / "kernel.py")] == str(places[2] / "kernel.py")


def test_without_the_cache_it_is_compiled():
    assert filled(compile(cache=False)) == 6
    assert not default_store().entries()


def test_what_was_imported_before_an_edit_is_not_kept_as_what_came_after(package, monkeypatch):
    """A running program, whose files an editor or an update changes, has the old ones."""
    import declared_package.kernel

    (package / "values.py").write_text("VALUE = 100.0\n")
    monkeypatch.setattr(inputs, "_started_ns", lambda: 0)
    assert filled(cutepy.compile(declared_package.kernel.fill, VECTOR, sources=("declared_package",))) == 2
    _forget()
    assert filled(compile(function="fill")) == 100


def test_the_process_knows_when_it_started():
    script = "from cutepy.host import inputs; print(inputs._started_ns())"
    before = time.time_ns()
    begun = int(subprocess.check_output([sys.executable, "-c", script], text=True))
    tick = 10**9 // os.sysconf("SC_CLK_TCK")
    assert before - 2 * tick < begun < time.time_ns()


def test_the_functions_own_module_counts(package):
    assert filled(compile(function="fill", sources=("json",))) == 2
    (package / "kernel.py").write_text(KERNEL.replace("VALUE * factor", "VALUE * factor + 1"))
    _forget()
    assert filled(compile(function="fill", sources=("json",))) == 3


@pytest.mark.parametrize(
    "settings",
    [
        {"sources": "json"},
        {"options": 3},
        {"cache": "x"},
    ],
)
def test_wrong_settings_are_refused(settings):
    with refuses(TypeError):
        compile(**settings)


def test_sources_that_do_not_tell_all_are_found_out(monkeypatch):
    compile()
    compile(verify=True)
    monkeypatch.setenv("FACTOR", "10")
    assert filled(compile()) == 6  # stale, as promised
    with refuses(StaleSourcesError):
        compile(verify=True)
    monkeypatch.setenv("CUTEPY_VERIFY", "1")
    with refuses(StaleSourcesError):
        compile()
    compile(verify=False)
    monkeypatch.setenv("CUTEPY_VERIFY", "yes")
    with refuses(ValueError):
        compile()


def test_files_edited_meanwhile_are_not_kept(package, monkeypatch):
    real = program.to_program

    def edit(traced, arch):
        (package / "values.py").write_text("VALUE = 7.0\n")
        return real(traced, arch)

    with monkeypatch.context() as patch:
        patch.setattr(program, "to_program", edit)
        with pytest.warns(CacheWarning):
            compile()
    (package / "values.py").write_text("VALUE = 2.0\n")
    _forget()
    assert list(compile().cost().stages) != ["load"]
    assert list(compile().cost().stages) == ["load"]


class Mode(enum.Enum):
    ON = 1
    OFF = 2


class Pair(NamedTuple):
    x: int
    y: object


@dataclass(frozen=True)
class Settings:
    x: object

    @functools.cached_property
    def twice(self):
        return 2 * self.x


def test_contents_of_values_differ():
    values = [0, False, 0.0, -0.0, "0", None, (0,), (0, 0), ((0,), 0), Pair(0, 1), (0, 1), Settings(0), Settings(0.0)]
    values += [{"a": 1}, {"a": 2}, int, float, VECTOR, TensorSpec("float32", (32,), align=4), PointerSpec("float32")]
    values += [torch.zeros(3, 4), torch.zeros(4, 3), torch.zeros(3, 4, dtype=torch.float64)]
    values += [torch.float16, torch.int8, Mode.ON, Mode.OFF, Settings, Pair]
    assert content([np.float32(2), np.zeros((3, 4), "float32")]) == content((2.0, torch.zeros(3, 4)))
    assert len({repr(content(value)) for value in values}) == len(values)
    assert content(torch.ones(3, 4)) == content(torch.zeros(3, 4))


@pytest.mark.parametrize("value", [object(), {1, 2}, lambda: 0, Settings(object())])
def test_values_without_content_are_refused(value):
    with refuses(TypeError):
        declared_key(Deferred("m:f", value), (), (), {}, "")


def test_classes_count_by_their_files(package):
    def own():
        class Own:
            pass

        return Own

    with refuses(TypeError):
        content(own())
    file = package / "values.py"
    file.write_text("class C:\n    x = 1\n")
    first = content(importlib.import_module("declared_package.values").C)
    _forget()
    file.write_text("class C:\n    x = 2\n")
    second = content(importlib.import_module("declared_package.values").C)
    assert first[1][0] == second[1][0]
    assert first != second


def test_a_dataclass_that_holds_more_than_its_fields_is_refused():
    more = Settings(1)
    assert more.twice == 2  # which it keeps
    assert content(more) == content(Settings(1))
    object.__setattr__(more, "more", 2)
    with refuses(TypeError):
        content(more)


def test_a_function_in_the_place_of_another_is_refused(package):
    kernel = importlib.import_module("declared_package.kernel")
    original, kernel.fill = kernel.fill, kernel.Fill(1)
    with refuses(TypeError):
        cutepy.compile(original, VECTOR, sources=("declared_package",))


def test_what_is_edited_in_a_process_is_traced(package):
    """Imported is the old text until it is loaded again, and then the new one."""
    import declared_package.kernel

    def filled_now():
        return filled(cutepy.compile(declared_package.kernel.fill, VECTOR, sources=("declared_package",)))

    assert filled_now() == 2
    (package / "values.py").write_text("VALUE = 50.0\n")
    assert filled_now() == 2
    importlib.reload(declared_package.values)
    declared_package.kernel = importlib.reload(declared_package.kernel)
    assert filled_now() == 50
    assert filled_now() == 50


@pytest.mark.parametrize("name", ["", "m", "m:", ":f"])
def test_a_name_has_two_parts(name):
    with refuses(ValueError):
        Deferred(name)


@pytest.mark.parametrize("function", [kernels.Scaled(1.0), lambda a: a])
def test_what_has_no_name_is_refused(function):
    with refuses(TypeError):
        cutepy.compile(function, VECTOR, VECTOR, sources=("tests",))


def test_sources_are_packages_modules_and_paths(package, tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path)
    whole = sources_digest(("declared_package",))
    digests = {whole, *(sources_digest((s,)) for s in ("declared_package.values", package, Path(__file__), "json"))}
    assert len(digests) == 5
    (package / "__pycache__").mkdir(exist_ok=True)
    (package / "__pycache__" / "x.pyc").touch()
    assert sources_digest(("declared_package",)) == whole
    for missing in ("declared_package.missing", "no_such_package", str(tmp_path / "missing")):
        with refuses(ModuleNotFoundError):
            sources_digest((missing,))
