"""Families of kernels: found by the content of sources, configuration and arguments; compiled when first asked for."""

import subprocess
import sys
import textwrap
from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutepy  # noqa: E402
from cutepy.host.family import Family  # noqa: E402
from cutepy.host.specs import TensorSpec  # noqa: E402

VECTOR = TensorSpec("float32", ("n",))
EXAMPLES = {"x": VECTOR, "out": VECTOR}

KERNEL = """
import cutlass
import cutlass.cute as cute
from dataclasses import dataclass


@dataclass(frozen=True)
class Scaling:
    factor: int


@cute.kernel
def scale(x: cute.Tensor, out: cute.Tensor, factor: cutlass.Constexpr):
    index = cute.arch.thread_idx()[0]
    if index < cute.size(out):
        out[index] = x[index] * factor + 0.0


class Scale:
    def __init__(self, configuration):
        self.factor = getattr(configuration, "factor", configuration)

    @cute.jit
    def __call__(self, x: cute.Tensor, out: cute.Tensor):
        scale(x, out, self.factor).launch(grid=(1, 1, 1), block=(32, 1, 1))
"""


@dataclass(frozen=True)
class Scaling:
    factor: int


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Make a package with a kernel, and an empty cache; gives the kernel's file."""
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(tmp_path / "cache"))
    file = tmp_path / "family_package" / "kernel.py"
    file.parent.mkdir()
    (file.parent / "__init__.py").write_text("")
    file.write_text(KERNEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield file
    for name in [name for name in sys.modules if name.startswith("family_package")]:
        del sys.modules[name]


def family():
    return Family("family_package.kernel:Scale", sources=("family_package",))


def scaled(function):
    x, out = torch.arange(20.0), torch.zeros(20)
    with cutepy.simulate():
        function(x, out)
    return (out[1] / x[1]).item()


def loaded(function):
    return "load" in function.metadata["spent"]


def test_each_configuration_is_compiled_once(package):
    scales = family()
    three = scales.function(Scaling(3), EXAMPLES)
    assert scales.function(Scaling(3), dict(EXAMPLES)) is three
    four = scales.function(Scaling(4), EXAMPLES)
    assert (scaled(three), scaled(four)) == (3, 4)
    assert (loaded(three), loaded(four)) == (False, False)
    again = family()
    assert [loaded(again.function(Scaling(factor), EXAMPLES)) for factor in (3, 4, 5)] == [True, True, False]


def test_configurations_of_other_types_and_other_arguments_are_others(package):
    family().function(1, EXAMPLES)
    for configuration, examples in (
        (1.0, EXAMPLES),
        (True, EXAMPLES),
        (1, EXAMPLES | {"x": TensorSpec("float32", ("n",), align=4)}),
    ):
        assert not loaded(family().function(configuration, examples)), (configuration, examples)
    assert loaded(family().function(1, EXAMPLES))


def test_equal_numbers_of_other_types_are_others_in_memory(package):
    scales = family()
    functions = [scales.function(value, EXAMPLES) for value in (1, 1.0, True, 0.0, -0.0)]
    functions += [scales.function(Scaling(value), EXAMPLES) for value in (2, 2.0)]
    assert len(set(map(id, functions))) == 7
    assert scales.function(Scaling(2.0), EXAMPLES) is functions[-1]


def test_the_type_of_a_number_among_the_examples_is_part_of_the_key(package):
    kernel = KERNEL.replace("out: cute.Tensor):", "out: cute.Tensor, number):").replace("self.factor)", "number)")
    package.write_text(kernel.replace("factor: cutlass.Constexpr", "factor"))
    scales, x = family(), torch.ones(20)
    for number in (1, 1.0, True):
        assert not loaded(scales.function(0, EXAMPLES | {"number": number})), number
    out = torch.zeros(20)
    with cutepy.simulate():
        scales.function(0, EXAMPLES | {"number": 1.0})(x, out, 0.5)
    assert out[0] == 0.5
    assert all(loaded(family().function(0, EXAMPLES | {"number": number})) for number in (1, 1.0, True))


def test_an_edit_of_the_sources_is_another_key(package):
    family().function(2, EXAMPLES)
    package.write_text(KERNEL.replace("+ 0.0", "* 10.0"))
    # A process that has the old module loaded can't compile the new sources.
    script = """
        from cutepy.host.family import Family
        from cutepy.host.specs import TensorSpec
        vector = TensorSpec("float32", ("n",))
        family = Family("family_package.kernel:Scale", sources=("family_package",))
        function = family.function(2, {"x": vector, "out": vector})
        assert "load" not in function.metadata["spent"]
    """
    import os

    path = os.pathsep.join([str(package.parent.parent), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], env={**os.environ, "PYTHONPATH": path}, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
    assert scaled(family().function(2, EXAMPLES)) == 20


def test_sources_edited_after_the_family_was_made_are_not_kept(package):
    early = family()
    package.write_text(KERNEL.replace("+ 0.0", "* 10.0"))
    assert scaled(early.function(2, EXAMPLES)) == 20
    package.write_text(KERNEL)
    assert not loaded(family().function(2, EXAMPLES))


def test_without_the_cache_it_compiles(package, monkeypatch):
    monkeypatch.setenv("CUTEPY_CACHE", "off")
    assert scaled(family().function(2, EXAMPLES)) == 2
    assert not loaded(family().function(2, EXAMPLES))


def test_a_callable_is_compiled_as_by_compile(package):
    from family_package.kernel import Scale

    scales = Family(Scale)
    assert scaled(scales.function(Scaling(7), EXAMPLES)) == 7
    assert loaded(Family(Scale).function(Scaling(7), EXAMPLES))
    assert "Scale" in repr(scales)
    assert "1 functions" in repr(scales)


def test_what_has_no_content_is_refused(package):
    for make, error, message in (
        (lambda: Family("nameless"), ValueError, "must be .package.module:name. with the sources"),
        (lambda: Family("a.b:c"), ValueError, r"and sources=\(\)"),
        (lambda: family().function(object(), EXAMPLES), TypeError, "a configuration must be made of"),
        (lambda: family().function(1, {"x": "y"}), TypeError, "the example of x must be a TensorSpec"),
    ):
        with pytest.raises(error, match=message):
            make()


def test_functions_of_a_family_whose_callers_look_for_lazy_negatives_need_not(package):
    families = [Family("family_package.kernel:Scale", sources=("family_package",), resolved=r) for r in (False, True)]
    assert [family.function(2, EXAMPLES)._resolved for family in families] == [False, True]
