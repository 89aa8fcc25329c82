"""Descriptions of what to export: how they are found, and what makes no sense in them."""

import dataclasses
import re
import sys
from pathlib import Path

import pytest

from tests.aot.building import EXAMPLE
from tests.messages import pins, refuses

pytestmark = pytest.mark.dsl

MODULES = ("my_kernels", "my_export", "helper_of_test_spec", "spec", "copy_of_test_spec")


@pytest.fixture(autouse=True)
def modules_of_others():
    """Import modules of these names anew in each test."""
    for name in MODULES:
        sys.modules.pop(name, None)
    yield
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def example():
    from cutepy import aot

    return aot.load(f"{EXAMPLE}/my_export.py:EXTENSION")


def test_a_file_describes_operations(example):
    assert (example.name, example.version) == ("example_ops", "1.2.3")
    scale, add_to = example.ops
    assert (scale.inputs, scale.results, scale.numbers) == (("x",), ["out"], {"alpha": "float"})
    assert scale.parameters == ("x", "alpha")
    assert [variant.label for variant in scale.variants] == ["half", "brain", "single_small", "single_large"]
    assert (add_to.inputs, add_to.mutates, add_to.names) == (("y", "x"), ["y"], ("m", "n", "ldy"))
    assert [traced.text for traced, _ in add_to.variants[0].requirements] == ["ldy >= n"]


def test_a_module_is_found_in_the_current_folder(monkeypatch):
    from cutepy import aot

    monkeypatch.chdir(EXAMPLE)
    before = list(sys.path)
    described = aot.load("my_export:EXTENSION")
    assert described.file == EXAMPLE / "my_export.py"
    assert described.sources == (EXAMPLE / "my_export.py", EXAMPLE / "my_kernels.py")
    assert sys.path == before


def test_what_lies_beside_a_file_is_imported_and_replaces_no_other(tmp_path):
    import random

    from cutepy import aot

    text = (EXAMPLE / "my_export.py").read_text().replace("import my_kernels", "import helper_of_test_spec, my_kernels")
    (tmp_path / "copy_of_test_spec.py").write_text(text + "\nimport random\nassert random.__file__ != __file__\n")
    (tmp_path / "my_kernels.py").write_text((EXAMPLE / "my_kernels.py").read_text())
    (tmp_path / "helper_of_test_spec.py").write_text("")
    (tmp_path / "random.py").write_text("raise AssertionError('in place of the library')")
    assert aot.load(f"{tmp_path}/copy_of_test_spec.py:EXTENSION").ops[0].variants[0].file == tmp_path / "my_kernels.py"
    assert sys.modules["random"] is random
    with refuses(aot.SpecError):
        aot.load(f"{tmp_path}/random.py:EXTENSION")


ADVICE = r"must be gemm, .* or MODULE:NAME or FILE.py:NAME of a cutepy.aot.Extension of your own, .*; got '{}'"


@pytest.mark.parametrize(
    ("spec", "source"),
    [
        ("foo", None),
        ("spec.py", ""),
        ("spec.py:", ""),
        ("spec.py:X", None),
        ("spec.py:X", "X = 1\nY = 2"),
        ("nowhere_of_test_spec:X", None),
        ("spec.py:X", "def f(:"),
        ("spec.py:X", "\n\nx = 1 / 0"),
        ("spec.py:X", "from cutepy import aot\nX = aot.Extension('a-b', [])"),
    ],
)
def test_what_is_no_description_is_told_in_a_line(tmp_path, spec, source):
    from cutepy import aot

    if source is not None:
        (tmp_path / "spec.py").write_text(source)
    with refuses(aot.SpecError):
        aot.load(f"{tmp_path}/{spec}" if spec.startswith("spec") else spec)


def test_the_command_line_says_what_a_description_is():
    from typer.testing import CliRunner

    from cutepy.cli.app import app

    done = CliRunner().invoke(app, ["export", "extension", "foo", "-o", "/tmp/never"])
    assert done.exit_code != 0
    assert re.search(ADVICE.format("foo"), " ".join(done.output.split()))
    assert not Path("/tmp/never").exists()
    done = CliRunner().invoke(app, ["export", "c", "my:SPEC", "-o", "/tmp/never", "--bias", "--tile", "64x32"])
    pins(done.output)


def other(op, variant=None, **fields):
    """Change fields of an operation, or of its first variant."""
    if variant:
        fields["variants"] = [dataclasses.replace(op.variants[0], **variant), *op.variants[1:]]
    return dataclasses.replace(op, **fields)


def spec(dtype="float16", shape=("n",), **more):
    from cutepy import TensorSpec

    return TensorSpec(dtype, shape, **more)


def arguments(**more):
    """Change the arguments of the first variant of `scale`."""
    return {"arguments": {"x": spec(align=2), "out": spec(align=2), "alpha": 1.0, "threads": 128, **more}}


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "new"},
        {"name": 5},
        {"name": "error"},
        {"doc": 'Say "x".'},
        {"results": ["y"]},
        {"results": ["x", "out"]},
        {"results": ["out", "out"]},
        {"results": []},
        {"reference": "x *( "},
        {"reference": "y + x"},
        {"test_extents": [{"q": 1}]},
        {"test_numbers": {"alfa": 2.5}},
        {"tolerance": {"rtol": 1.0}},
        {"variants": []},
        {"variant": {"cost": lambda size: size}},
        {"variant": {"requires": [lambda n: n]}},
        {"variant": {"requires": [lambda n: n > 1 and n < 3]}},
        {"variant": {"function": 3}},
        {"variant": {"label": "a/b"}},
        {"variant": {"label": "brain"}},
        {"variant": {"choices": {"way": '"'}}},
        {"variant": {"choices": {"x": "way"}}},
        {"variant": arguments(x=spec(shape=("int",)))},
        {"variant": arguments(x=spec(shape=("x",)))},
        {"variant": arguments(out=spec(shape=("m",)))},
        {"variant": arguments(out=None)},
        {"variant": arguments(out=spec("float32"), x=spec("float32"), alpha=1)},
        {"variant": arguments(x=spec("float32"), out=spec("float64"))},
        {"variant": arguments(thread=128)},
    ],
)
def test_what_makes_no_sense_is_refused_by_name(example, fields):
    with refuses((ValueError, TypeError)):
        other(example.ops[0], **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "example-ops"},
        {"name": 5},
        {"name": "numpy"},
        {"version": "one"},
        {"description": "*/ Two small"},
        {"ops": []},
    ],
)
def test_an_extension_that_makes_no_sense_is_refused(example, fields):
    with refuses(ValueError):
        dataclasses.replace(example, **fields)
    with refuses(ValueError):
        dataclasses.replace(example, ops=[example.ops[0]] * 2)


def test_tensors_that_some_variants_lack_are_optional(example):
    add_to = example.ops[1]
    (variant,) = add_to.variants
    lacking = dataclasses.replace(variant, arguments={**variant.arguments, "x": None}, label="alone")
    op = dataclasses.replace(add_to, variants=[variant, lacking])
    assert (op.tensors, op.required, op.optional) == (("y", "x"), ("y",), ("x",))
    assert op.key_of(lacking)[1] == "None"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"function": "scale_kernel"}, "scale: the DSL can't compile one_scale_half: scale_kernel is a @cute.kernel"),
        ({"options": "--bogus=3"}, "half with the options '--bogus=3': Compiler options"),
    ],
)
def test_what_the_dsl_refuses_is_told_without_its_source(example, tmp_path, fields, message):
    from cutepy import aot

    kernels = sys.modules["my_kernels"]
    fields = {name: getattr(kernels, value) if name == "function" else value for name, value in fields.items()}
    op = other(example.ops[0], fields)
    with pytest.raises(aot.SpecError, match=message) as raised:
        aot.c(aot.Extension("one", [op]), tmp_path / "out")
    assert "\x1b" not in str(raised.value)
    assert "program.py" not in str(raised.value)


def test_dtypes_that_torch_has_few_operators_for_are_refused_by_name(example, tmp_path):
    from cutepy import aot

    op = other(example.ops[0], arguments(x=spec("uint32"), out=spec("uint32")))
    with refuses(aot.SpecError):
        aot.extension(aot.Extension("one", [op]), tmp_path / "out")


def test_symbols_of_kernels_are_of_one_each(example):
    from cutepy import aot
    from cutepy.aot import objects

    scale = example.ops[0]
    clash = dataclasses.replace(scale, name="scale_half", variants=[dataclasses.replace(scale.variants[0], label="0")])
    first = dataclasses.replace(scale, variants=[dataclasses.replace(scale.variants[0], label="half_0")])
    with refuses(aot.SpecError):
        objects.compile_variants(aot.Extension("one", [first, clash]))


def test_a_folder_that_is_not_empty_is_kept(example, tmp_path):
    from cutepy import aot

    (tmp_path / "mine.txt").write_text("precious")
    for export in (aot.extension, aot.c):
        with refuses(FileExistsError):
            export(example, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.integration
def test_functions_of_the_compilers_runtime_that_are_not_served_are_refused(monkeypatch, example):
    from cutepy import aot
    from cutepy.aot import objects

    monkeypatch.delitem(objects.SERVED, "_cudaLaunchKernelEx")
    with refuses(aot.SpecError):
        objects.compile_variants(aot.Extension("one", [example.ops[0]]))
