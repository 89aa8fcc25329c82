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
        ('doc = "Add x', "doc = 'Add \"x\"'  # ", "add_to: doc must be one line without double quotes"),
        ('"Two small', '"*/ Two small', "description must be one line"),
        ("[[op.variant]]", "[[op.variants]]", r"\[\[op\]\] has no field variants"),
        ('description = "Two', 'description = 2  # "Two', "description must be a text, got 2"),
        ('version = "1.2.3"', "version = 1", "version must be a text, got 1"),
        ('version = "1.2.3"', 'version = "one"', "version must be such as 1.2.3 or 1.2.3rc1"),
        ('name = "example_ops"', "name = 5", "an extension's name must be a text, got 5"),
        ('name = "example_ops"', 'name = "numpy"', "none of another package or namespace, got 'numpy'"),
        ('name = "scale"', "name = 5", "an operation's name must be a text, got 5"),
        ('results = ["out"]', 'results = "out"', "scale: results must be a list of texts, got 'out'"),
        ('results = ["out"]', 'results = ["out", "out"]', "must name a tensor once, got out twice"),
        ('reference = "x', 'reference = 5 # "x', "scale: reference must be a text, got 5"),
        ('reference = "x', 'reference = "x *( ', "reference must be a Python expression, got 'x"),
        ('reference = "x', 'reference = "y + x', "reference uses y; it may use x, alpha and torch"),
        (
            "test_extents = [{ n = 1000 }, { n = 1 }]",
            "test_extents = { n = 1 }",
            "must be a list of tables of integers",
        ),
        ("{ n = 1000 }", "{ q = 1000 }", "scale: test_extents must be of n, got q"),
        ("{ alpha = 2.5 }", "{ alfa = 2.5 }", "scale: test_numbers must be of alpha, got alfa"),
        ("{ alpha = 2.5 }", '{ alpha = "x" }', "scale: test_numbers must be a table of numbers"),
        ("test_numbers", "tolerance = { rtol = 1.0 }\ntest_numbers", "tolerance must have rtol and atol, got rtol"),
        ("test_numbers", "zero_if_empty = 1\ntest_numbers", "zero_if_empty must be true or false, got 1"),
        ('"kernels.py:add_to"', "3", "variant 0 of add_to: function must be a text, got 3"),
        ("kernels.py:add_to", "nowhere:add_to", "there is no module nowhere, neither beside the file nor installed"),
        ("kernels.py:add_to", "kernels.py:cutlass", "variant 0 of add_to: function must be a function, got <module"),
        ('"n <= 4096"', "5", "variant 1 of scale: when must be a text, got 5"),
        ('"n <= 4096"', "true", "variant 1 of scale: when must be a text, got True"),
        ('"n <= 4096"', '"""(n <=\n4096)"""', "variant 1 of scale: when must be one line"),
        ('when = "n <= 4096"', "cost = 3", "variant 1 of scale: cost must be a text, got 3"),
        ('["ldy >= n"]', '"ldy >= n"', "variant 0 of add_to: requires must be a list of texts, got 'ldy >= n'"),
        ('["ldy >= n"]', '["""ldy\n>= n"""]', "variant 0 of add_to: requires must be one line"),
        ('label = "half"', 'label = "a/b"', "variant 0 of scale: label must be of letters, digits and underscores"),
        ('"single_small"', '"half"', "scale: labels of variants must differ, got half twice"),
        (
            "threads = 128",
            'threads = "float32"',
            "variant 0 of scale: threads must be the value of a cutlass.Constexpr",
        ),
        (
            "align = 2",
            "aling = 2",
            "variant 0 of scale: x: a table of a tensor has no field aling; it has dtype, shape",
        ),
        (
            'shape = ["n"], align = 2',
            'shape = ["x"], align = 2',
            "an extent must not be called like an argument, got x",
        ),
        ("[[op]]", "[op]", r"op must be tables, each under \[\[op\]\], got op = "),
        ("= ", "=", None),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(tmp_path, old, new, message):
    from cutepy import aot

    (tmp_path / "kernels.py").write_text((EXAMPLE / "kernels.py").read_text())
    assert old in TOML
    changed = TOML.replace(old, new, 1 if message else -1)
    if new == "[op]":
        changed = changed[: changed.rindex("[[op]]")]
    (tmp_path / "kernels.toml").write_text(changed)
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


@pytest.mark.parametrize("function", ["copy.py:scale", "beside:scale"])
def test_a_file_is_imported_with_those_beside_it_and_replaces_no_other(tmp_path, function):
    import copy
    import sys

    from cutepy import aot

    text = (EXAMPLE / "kernels.py").read_text()
    name = "copy.py" if function.startswith("copy") else "beside.py"
    (tmp_path / name).write_text(text.replace("import cutlass\n", "import cutlass\nimport helper_of_test_spec\n", 1))
    (tmp_path / "helper_of_test_spec.py").write_text("")
    (tmp_path / "random.py").write_text("raise AssertionError('in place of the library')")
    (tmp_path / "kernels.toml").write_text(
        TOML.replace("kernels.py:scale", function).partition('[[op]]\nname = "add')[0]
    )
    before = list(sys.path)
    try:
        described = aot.load(tmp_path / "kernels.toml")
        assert described.ops[0].variants[0].file == tmp_path / name
        assert described.ops[0].variants[0].function is described.ops[0].variants[1].function
        assert sys.modules["copy"] is copy
        assert sys.path == before
    finally:
        for module in ("helper_of_test_spec", "beside"):
            sys.modules.pop(module, None)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f(:", r"spec.py: SyntaxError: "),
        ("\n\nx = 1 / 0", r"spec.py, line 3: ZeroDivisionError: division by zero"),
        (
            "from cutepy import aot\nextension = aot.Extension('a-b', [])",
            r"spec.py: an extension's name must be an ident",
        ),
    ],
)
def test_what_fails_in_a_python_file_is_told_in_a_line(tmp_path, source, message):
    from cutepy import aot

    (tmp_path / "spec.py").write_text(source)
    with pytest.raises(aot.SpecError, match=message):
        aot.load(tmp_path / "spec.py")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "kernels.py:scale",
            "kernels.py:scale_kernel",
            "scale: the DSL can't compile one_scale_half: `scale_kernel` is",
        ),
        (
            'label = "half"',
            'label = "half"\noptions = "--bogus=3"',
            "half with the options '--bogus=3': Compiler options",
        ),
    ],
)
def test_what_the_dsl_refuses_is_told_without_its_source(tmp_path, old, new, message):
    from cutepy import aot

    (tmp_path / "kernels.py").write_text((EXAMPLE / "kernels.py").read_text())
    (tmp_path / "kernels.toml").write_text(TOML.replace(old, new, 1).replace("example_ops", "one"))
    with pytest.raises(aot.SpecError, match=message) as raised:
        aot.c(aot.load(tmp_path / "kernels.toml"), tmp_path / "out")
    assert "\x1b" not in str(raised.value)
    assert "program.py" not in str(raised.value)


def test_dtypes_that_torch_has_few_operators_for_are_refused_by_name(tmp_path):
    from cutepy import aot

    (tmp_path / "kernels.py").write_text((EXAMPLE / "kernels.py").read_text())
    (tmp_path / "kernels.toml").write_text(TOML.replace('dtype = "float16"', 'dtype = "uint32"'))
    described = aot.load(tmp_path / "kernels.toml")
    with pytest.raises(aot.SpecError, match=r"scale: x must be of float16, .* in a PyTorch extension, got uint32"):
        aot.extension(described, tmp_path / "out")


def test_symbols_of_kernels_are_of_one_each(described):
    import dataclasses

    from cutepy import aot
    from cutepy.aot import objects

    scale = described.ops[0]
    ops = [scale, dataclasses.replace(scale, name="scale_half")]
    with pytest.raises(aot.SpecError, match="labels of variants must differ, got one_scale_half twice"):
        objects.compile_variants(aot.Extension("one", ops))


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
    from cutepy.runtime.host_calls import SIGNATURES

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
