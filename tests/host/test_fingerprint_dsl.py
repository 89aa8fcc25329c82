"""The fingerprint against the compiler: what changes the PTX changes the digest, and compiling changes neither."""

import importlib.util
import linecache
import time
from functools import cache, partial

import pytest

pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402

from cutepy.dsl.fakes import Symbols, fake_tensor  # noqa: E402
from cutepy.dsl.program import compile_program  # noqa: E402
from cutepy.host.fingerprint import NotCacheable, dsl_version, fingerprint  # noqa: E402
from cutepy.kernels.gemm import GemmConfig, GemmSignature  # noqa: E402
from cutepy.kernels.gemm.kernel import Gemm  # noqa: E402

SOURCE = """
import cutlass
import cutlass.cute as cute

STEP = 3
TABLE = [5]


def helper(x):
    return x + 7


class Scale:
    factor = 11

    def __init__(self, bias):
        self.bias = bias

    @property
    def offset(self):
        return self.bias + 1

    @cute.kernel
    def kernel(self, a: cute.Tensor, times: cutlass.Constexpr):
        thread, _, _ = cute.arch.thread_idx()
        value = thread * self.factor + STEP + TABLE[0]
        for _ in cutlass.range_constexpr(times):
            value = helper(value) + self.offset
        a[thread, 0] = value.to(cutlass.Float32)

    @cute.jit
    def __call__(self, a: cute.Tensor, times: cutlass.Constexpr = 2):
        self.kernel(a, times).launch(grid=(1, 1, 1), block=(32, 1, 1))
"""

EDITS = {
    "nothing": ("", ""),
    "a global": ("STEP = 3", "STEP = 4"),
    "a list": ("[5]", "[6]"),
    "a callee": ("x + 7", "x + 8"),
    "a class attribute": ("factor = 11", "factor = 12"),
    "a property": ("self.bias + 1", "self.bias + 2"),
    "a default": ("Constexpr = 2", "Constexpr = 3"),
    "the kernel": ("thread * self", "thread - self"),
    "an unused function": ("def helper", "def unused():\n    pass\n\n\ndef helper"),
}


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Give a function that writes an edit of the source to one file and imports it afresh."""

    def load(edit):
        old, new = EDITS[edit]
        path = tmp_path / "edited_kernel.py"
        path.write_text(SOURCE.replace(old, new, 1) if old else SOURCE)
        linecache.clearcache()
        spec = importlib.util.spec_from_file_location("edited_kernel", path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(__import__("sys").modules, "edited_kernel", module)
        exec(compile(path.read_text(), str(path), "exec"), vars(module))  # no stale bytecode, whatever the clock
        return module

    return load


def matrix(dtype="float32", strides=("pitch", 1)):
    return fake_tensor(dtype, ("rows", "columns"), Symbols({"pitch": 4}), strides=strides)


def ptx_of(kernel):
    return compile_program(kernel, [matrix()], line_info=False).ptx


def test_what_changes_the_ptx_changes_the_digest(load):
    digests, programs = {}, {}
    for edit in EDITS:
        kernel = load(edit).Scale(1)
        digests[edit] = fingerprint(kernel).digest
        programs[edit] = ptx_of(kernel)
        assert fingerprint(kernel).digest == digests[edit], f"compiling changed the digest of {edit}"
    changed = {edit for edit in EDITS if programs[edit] != programs["nothing"]}
    assert changed == EDITS.keys() - {"nothing", "an unused function"}
    assert len(set(digests.values())) == len(EDITS)  # an unused function moves lines, which -lineinfo shows

    bias = load("nothing").Scale(2)
    assert ptx_of(bias) != programs["nothing"]
    assert fingerprint(bias).difference(fingerprint(load("nothing").Scale(1))) == ["attribute bias", "called"]


def test_names_of_kernels_count(load):
    module = load("nothing")
    before = fingerprint(module.Scale(1))
    module.Scale.kernel.set_name_prefix("another", remove_cutlass_symbol=True, keep_mangled_name=False)
    assert before.difference(fingerprint(module.Scale(1))) == ["kernel name of edited_kernel:Scale.kernel"]


def test_forms_of_callables(load):
    module = load("nothing")
    kernel = module.Scale(1)
    forms = [kernel, kernel.__call__, partial(kernel, times=3), partial(kernel, times=4), module.Scale.kernel]
    assert len({fingerprint(form).digest for form in forms}) == len(forms)


def test_values_of_the_dsl():
    values = [
        1,
        1.0,
        True,
        "1",
        cutlass.Int32(1),
        cutlass.Int64(1),
        cutlass.Float32(1),
        cutlass.Int32,
        cutlass.Int32(2),
    ]
    assert len({fingerprint(len, value).digest for value in values}) == len(values)
    assert fingerprint(len, cutlass.Int32(1)) == fingerprint(len, cutlass.Int32(1))


def test_values_of_torch_and_numpy():
    import numpy
    import torch

    values = [torch.float16, torch.bfloat16, torch.device("cuda", 0), torch.device("cuda", 1), torch.Size([1]), (1,)]
    values += [numpy.float32(1), numpy.float64(1), numpy.int32(1), numpy.dtype("f4"), numpy.dtype("f8"), torch.strided]
    assert len({fingerprint(len, value).digest for value in values}) == len(values)
    assert fingerprint(len, torch.device("cuda", 0)) == fingerprint(len, torch.device("cuda:0"))


def test_symbolic_arguments_count_by_what_they_stand_for():
    makers = [matrix, partial(matrix, strides=(1, "pitch")), partial(matrix, "float16")]
    makers.append(cutlass.cute.runtime.make_fake_stream)
    for make in makers:
        assert fingerprint(len, make()) == fingerprint(len, make())
    assert len({fingerprint(len, make()).digest for make in makers}) == len(makers)


def hardware():
    return cutlass.utils.HardwareInfo().get_max_active_clusters(1)


def test_reading_the_hardware_is_refused():
    with pytest.raises(NotCacheable, match="HardwareInfo"):
        fingerprint(hardware)


@cache
def signature():
    return GemmSignature(
        a_dtype="float16", b_dtype="float16", out_dtype="float16", a_major="k", b_major="k", out_major="row"
    )


def gemm(tile_n=256):
    return Gemm(GemmConfig(signature=signature(), tile_m=128, tile_n=tile_n, warpgroups=2))


def test_the_gemm():
    """It differs by its configuration alone, and takes a warm process few milliseconds."""
    one, other = fingerprint(gemm()), fingerprint(gemm(128))
    assert one == fingerprint(gemm())
    assert one.difference(other) == ["attribute config", "called"]
    assert {"version of cutlass", "version of python"} <= {name for name, _ in one.parts}
    started = time.process_time()
    for _ in range(5):
        fingerprint(gemm())
    assert (time.process_time() - started) / 5 < 0.2  # about 15 ms on an idle machine


def test_the_version_is_told_without_importing_the_dsl():
    assert dsl_version() == cutlass.__version__ or dsl_version()


def test_code_that_somebody_puts_into_the_dsl_counts(load, monkeypatch):
    kernel = load("nothing").Scale(1)
    before = fingerprint(kernel)
    elsewhere = type("Mine", (), {})
    for place, name in ((cutlass.cute, "make_layout"), (cutlass.cutlass_dsl.CuTeDSL, "_get_dsl"), (elsewhere, "x")):
        monkeypatch.setattr(place, name, lambda *arguments: None, raising=False)
        changed = fingerprint(kernel).difference(before)
        assert any(part.startswith("patch of cutlass.") for part in changed) == (place is not elsewhere)
        monkeypatch.undo()
    assert fingerprint(load("nothing").Scale(1)) == before


def test_traced_code_may_use_our_layouts(load):
    from cutepy.dsl import to_cute
    from cutepy.layouts import Layout

    layout = Layout((4, 8), (8, 1))

    @cutlass.cute.jit
    def function(a: cutlass.cute.Tensor):
        to_cute(layout.reshape(32) if hasattr(layout, "reshape") else layout)

    assert fingerprint(function) == fingerprint(function)


def test_annotations_left_as_text_count_by_what_they_name(monkeypatch):
    @cutlass.cute.jit
    def function(x: "Alias", y: "Unknown[" = None, z: "monkeypatch | None" = None):  # noqa: F722, F821
        pass

    digests = []
    for alias in (cutlass.Int32, cutlass.Int64):
        monkeypatch.setitem(globals(), "Alias", alias)
        digests.append(fingerprint(function).digest)
    assert digests[0] != digests[1]
