import pytest

from tests.aot.building import EXAMPLE

pytestmark = pytest.mark.dsl

TOML = (EXAMPLE / "kernels.toml").read_text()


def test_a_file_describes_operations():
    from cutepy import aot

    described = aot.load(EXAMPLE / "kernels.toml")
    assert (described.name, described.version) == ("example_ops", "1.2.3")
    scale, add_to = described.ops
    assert (scale.inputs, scale.results, scale.numbers) == (("x",), ["out"], {"alpha": "float"})
    assert scale.parameters == ("x", "alpha")
    assert [variant.label for variant in scale.variants] == ["half", "single_small", "single_large"]
    assert (add_to.inputs, add_to.mutates, add_to.names) == (("y", "x"), ["y"], ("m", "n", "ldy"))


def test_a_python_file_makes_an_extension(tmp_path):
    from cutepy import aot

    (tmp_path / "spec.py").write_text(
        f"from cutepy import aot\nextension = aot.load({str(EXAMPLE / 'kernels.toml')!r})\n"
    )
    assert aot.load(tmp_path / "spec.py").name == "example_ops"
    (tmp_path / "none.py").write_text("x = 1")
    with pytest.raises(aot.SpecError, match=r"must define extension, a cutepy.aot.Extension, got None"):
        aot.load(tmp_path / "none.py")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "example_ops"', "", r"the file must have name"),
        ('name = "example_ops"', 'name = "example-ops"', "an extension's name must be an identifier"),
        ('name = "scale"', 'name = "new"', "an operation's name must be an identifier in Python and C"),
        ('name = "add_to"', 'name = "scale"', "must have operations of different names"),
        ('doc = "Add', 'dok = "Add', r"\[\[op\]\] has no field dok; it has name, results"),
        ('results = ["out"]', 'results = ["y"]', "scale: y must be one of its tensors x, out"),
        ('mutates = ["y"]', "", "add_to must say which tensors it writes"),
        ('results = ["out"]', 'results = ["x", "out"]', "scale must have a tensor argument that is no result"),
        ("kernels.py:add_to", "kernels.py:add_two", "variant 0 of add_to: kernels.py has no add_two"),
        ("kernels.py:add_to", "kernel.py:add_to", "variant 0 of add_to: there is no file"),
        ("kernels.py:add_to", "add_to", 'function must be "file.py:name" or "module:name"'),
        ('"n <= 4096"', '"n <= size"', r"'n <= size' uses size, which no tensor names"),
        ('"n <= 4096"', '"n <="', "must be an expression"),
        (
            'dtype = "float16", shape = ["n"], align = 2',
            'dtype = "float16", shape = ["n", 1]',
            "must have 2 dimensions",
        ),
        (
            'out = { dtype = "float16", shape = ["n"] }',
            'out = { dtype = "float16", shape = [8] }',
            "dim 0 must be 8 as in other variants, got n",
        ),
        ('shape = ["n"], align = 2', 'shape = ["int"]', "must be an identifier"),
        ("threads = 128", "thread = 128", "has no parameter thread"),
        ('name = "scale"', 'name = "error"', "an operation's name must not be one of Path, dtype, error"),
        ('doc = "Add x', "doc = 'Add \"x\"'  # ", "doc of add_to must be one line without double quotes"),
        ('"Two small', '"*/ Two small', "description must be one line"),
        ("[[op.variant]]", "[[op.variants]]", r"\[\[op\]\] has no field variants"),
        ("= ", "=", None),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(tmp_path, old, new, message):
    from cutepy import aot

    (tmp_path / "kernels.py").write_text((EXAMPLE / "kernels.py").read_text())
    assert old in TOML
    (tmp_path / "kernels.toml").write_text(TOML.replace(old, new, 1 if message else -1))
    if message is None:
        assert aot.load(tmp_path / "kernels.toml").name == "example_ops"
        return
    with pytest.raises(aot.SpecError, match=message) as raised:
        aot.load(tmp_path / "kernels.toml")
    assert str(raised.value).startswith(str(tmp_path / "kernels.toml"))


def test_results_of_one_type_for_arguments_of_one_type(tmp_path):
    from cutepy import aot

    (tmp_path / "kernels.py").write_text((EXAMPLE / "kernels.py").read_text())
    text = TOML.replace('arguments.out = { dtype = "float32", shape', 'arguments.out = { dtype = "float16", shape', 1)
    (tmp_path / "kernels.toml").write_text(text)
    with pytest.raises(aot.SpecError, match="must make results of one dtype and order"):
        aot.load(tmp_path / "kernels.toml")


def test_files_that_are_none_are_refused(tmp_path):
    from cutepy import aot

    with pytest.raises(aot.SpecError, match="there is no file"):
        aot.load(tmp_path / "kernels.toml")
    (tmp_path / "kernels.yaml").write_text("")
    with pytest.raises(aot.SpecError, match=r"must be a .toml or .py file"):
        aot.load(tmp_path / "kernels.yaml")
    (tmp_path / "broken.toml").write_text("name = ")
    with pytest.raises(aot.SpecError, match=r"broken.toml: "):
        aot.load(tmp_path / "broken.toml")


def test_a_folder_that_is_not_empty_is_kept(described, tmp_path):
    from cutepy import aot

    (tmp_path / "mine.txt").write_text("precious")
    for export in (aot.extension, aot.c):
        with pytest.raises(FileExistsError, match="must be a new or empty folder"):
            export(described, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_runtime_serves_what_it_says():
    """`SERVED` names just the functions that the runtime's source defines."""
    import re
    from pathlib import Path

    import cutepy.aot
    from cutepy.aot.objects import SERVED

    source = (Path(cutepy.aot.__file__).parent / "templates/runtime.cpp.jinja").read_text()
    assert set(re.findall(r"^SERVED [\w ]+?\*? ?(\w+)\(", source, re.MULTILINE)) == SERVED
    # Of what the simulator serves, exports leave out what host code calls besides launching, and say so by name.
    from cutepy.dsl.host_calls import SIGNATURES

    assert {name for name in SIGNATURES if "Launch" in name or "Library" in name} <= SERVED


def test_functions_of_the_compilers_runtime_that_are_not_served_are_refused(monkeypatch, described):
    from cutepy import aot
    from cutepy.aot import objects

    monkeypatch.setattr(objects, "SERVED", objects.SERVED - {"_cudaLaunchKernelEx"})
    one = aot.Extension("one", [described.ops[0]])
    with pytest.raises(
        aot.SpecError, match="one_scale_half calls _cudaLaunchKernelEx, which exported libraries do not"
    ):
        objects.compile_variants(one)
