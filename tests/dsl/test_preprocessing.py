"""Functions that the DSL has rewritten are taken wherever it would rewrite them the same, and nowhere else."""

import importlib.util
import linecache
import marshal
import sys
import textwrap
import threading
import types
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402
from cutlass.base_dsl import ast_preprocessor  # noqa: E402
from cutlass.base_dsl.compiler import Compiler  # noqa: E402

from cutepy.dsl import preprocessing  # noqa: E402
from cutepy.dsl.trace import trace  # noqa: E402

if preprocessing._rules(ast_preprocessor) is None:
    pytest.skip("this version's preprocessor does without", allow_module_level=True)

TEXT = """
import cutlass, cutlass.cute as cute
from cutlass._mlir.dialects import arith
{head}
@cute.jit
def double(value):
    return {value}

@cute.kernel
def kernel(a: cute.Tensor):
    i = cute.arch.thread_idx()[0]
    for j in range(i):
        if j < 4:
            a[i] = double(a[i])

@cute.jit
def launch(a: cute.Tensor):
    kernel(a).launch(grid=(1, 1, 1), block=(32, 1, 1))
"""


FACTORY = """
import cutlass, cutlass.cute as cute
{head}
def make(factor):
    @cute.jit
    def scaled(value, by=factor):
        return value * by
    return scaled
scaled = make(SCALE)
@cute.kernel
def kernel(a: cute.Tensor):
    a[0] = scaled(a[0])
@cute.jit
def launch(a: cute.Tensor):
    kernel(a).launch(grid=(1, 1, 1), block=(32, 1, 1))
"""


class FunctionStore:
    """A shelf in memory, that counts."""

    def __init__(self):
        self.files = {}
        self.saved = 0

    def load(self, key):
        return self.files.get(key, {})

    def save(self, key, functions):
        self.saved += 1
        self.files[key] = dict(functions)


@pytest.fixture
def load(tmp_path):
    """Import a module of a text, always from one file."""

    def load(head="", value="value + value", text=TEXT):
        file = tmp_path / "rewritten_module.py"
        file.write_text(textwrap.dedent(text).format(head=head, value=value))
        linecache.clearcache()
        spec = importlib.util.spec_from_file_location("rewritten_module", file)
        module = importlib.util.module_from_spec(spec)
        exec(compile(file.read_text(), str(file), "exec"), module.__dict__)
        return module

    return load


@pytest.fixture
def rewritten(monkeypatch):
    """Names of the functions that the DSL has rewritten, and not taken from a shelf."""
    names = []
    original = ast_preprocessor.DSLPreprocessor.transform_function

    def transform_function(self, name, function):
        names.append(name)
        return original(self, name, function)

    transform_function.__code__ = transform_function.__code__.replace(co_filename=ast_preprocessor.__file__)
    monkeypatch.setattr(ast_preprocessor.DSLPreprocessor, "transform_function", transform_function)
    return names


def digest(function, shelf=None):
    tensor = cute.runtime.make_fake_compact_tensor(cutlass.Float32, (32,), assumed_align=16)
    options = "--gpu-arch=sm_90a --enable-tvm-ffi --generate-line-info"
    return trace(function, (tensor,), {}, lambda traced: traced.digest, options=options, shelf=shelf)


def test_what_another_thread_compiles_meanwhile_is_compiled(load, monkeypatch):
    monkeypatch.setattr(Compiler, "compile", lambda self, *given: ("compiled", self, *given))
    found = []

    def use(traced):
        other = threading.Thread(target=lambda: found.append(Compiler.compile("self", "module", "pipeline")))
        other.start()
        other.join()
        return traced.function

    tensor = cute.runtime.make_fake_compact_tensor(cutlass.Float32, (32,), assumed_align=16)
    assert trace(load().launch, (tensor,), {}, use, options="--gpu-arch=sm_90a") == "launch"
    assert found == [("compiled", "self", "module", "pipeline")]


def test_a_function_is_rewritten_once(load, rewritten):
    shelf = FunctionStore()
    expected = digest(load().launch)
    assert rewritten == ["launch", "kernel", "double"]
    assert digest(load().launch, shelf) == expected
    rewritten.clear()
    assert digest(load().launch, shelf) == expected
    assert (rewritten, shelf.saved, len(shelf.files)) == ([], 1, 1)


def test_other_functions_of_a_file_join_those_that_are_there(load, rewritten):
    shelf = FunctionStore()
    digest(load().launch, shelf)
    text = TEXT.replace("double(a[i])", "double(a[i]) if cutlass.const_expr(THRICE) else cutlass.Float32(0)")
    digest(load("THRICE = False", text=text).launch, shelf)
    rewritten.clear()
    module = load("THRICE = False", text=text)
    module.THRICE = True
    module.kernel.__globals__["THRICE"] = True
    digest(module.launch, shelf)
    assert rewritten == ["double"]
    assert sorted(map(len, shelf.files.values())) == [3, 3]


def test_an_edit_is_rewritten(load, rewritten):
    shelf = FunctionStore()
    digest(load().launch, shelf)
    rewritten.clear()
    assert digest(load(value="value * value").launch, shelf) == digest(load(value="value * value").launch)
    assert rewritten == ["launch", "kernel", "double"] * 2


def test_a_name_that_is_another_thing_is_asked_for_again(load, rewritten):
    """Calls of functions of MLIR's dialects are rewritten, so that they take numbers of the DSL's."""
    shelf = FunctionStore()
    text = TEXT.replace("from cutlass._mlir.dialects import arith", "from types import SimpleNamespace")
    value = "maths.addf(value, value)"
    plain = load("maths = SimpleNamespace(addf=lambda a, b: a + b)", value, text)
    digest(plain.launch, shelf)
    again = load("maths = SimpleNamespace(addf=lambda a, b: a + b)", value, text)
    from cutlass._mlir.dialects import arith

    again.maths = arith
    rewritten.clear()
    digest(again.launch, shelf)
    assert rewritten == ["double"]


def test_a_default_of_an_enclosing_function_is_not_kept(load, rewritten):
    shelf = FunctionStore()
    for _ in range(2):
        rewritten.clear()
        digest(load("SCALE = 2.0", text=FACTORY).launch, shelf)
        assert "scaled" in rewritten


def test_who_warns_warns_again(load):
    shelf = FunctionStore()
    for _ in range(2):
        with pytest.warns(DeprecationWarning, match="range_dynamic"):
            digest(load(text=TEXT.replace("range(i)", "cutlass.range_dynamic(i)")).launch, shelf)


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (ast_preprocessor.DSLPreprocessor, "visit_Name", lambda self, node: self.generic_visit(node)),
        (ast_preprocessor.DSLPreprocessor, "_keyword_map", staticmethod(lambda node: {})),
        (ast_preprocessor.DSLPreprocessor, "IF_EXECUTOR", "another_executor"),
        (ast_preprocessor, "_create_module_attribute", lambda *args, **named: None),
    ],
)
def test_a_preprocessor_that_somebody_changed_is_not_that_which_was_kept(monkeypatch, owner, name, value):
    if not hasattr(owner, name):
        pytest.skip(f"this version has no {name}")
    released = preprocessing._rules(ast_preprocessor)
    monkeypatch.setattr(owner, name, value)
    assert preprocessing._rules(ast_preprocessor) != released


def test_a_function_of_somebodys_decides_what_is_kept(load, rewritten, monkeypatch):
    shelf, released = FunctionStore(), ast_preprocessor.DSLPreprocessor.visit_If

    def changed(self, node):
        return released(self, node)

    def remembers(self, node, met=[]):  # noqa: B006
        met.append(node)
        return released(self, node)

    digest(load().launch, shelf)
    for patch, again in ((changed, []), (remembers, ["launch", "kernel", "double"])):
        monkeypatch.setattr(ast_preprocessor.DSLPreprocessor, "visit_If", patch)
        for expected in (["launch", "kernel", "double"], again):
            rewritten.clear()
            digest(load().launch, shelf)
            assert rewritten == expected


def test_one_preprocessor_that_somebody_changed_is_not_relied_on(load, monkeypatch):
    shelf = FunctionStore()
    digest(load().launch, shelf)
    preprocessor = cutlass.cutlass_dsl.CuTeDSL._get_dsl().preprocessor
    own = preprocessor.extract_unroll_args
    asked = []
    monkeypatch.setattr(
        preprocessor, "extract_unroll_args", lambda node: asked.append(node) or own(node), raising=False
    )
    digest(load().launch, shelf)
    assert asked


def test_columns_that_python_leaves_out_are_others(monkeypatch):
    released = preprocessing._rules(ast_preprocessor)
    without = SimpleNamespace(co_positions=lambda: [(1, None, None, None)])
    monkeypatch.setattr(preprocessing, "compile", lambda *given, **named: without, raising=False)
    assert preprocessing._rules(ast_preprocessor) != released


def test_the_text_is_that_of_the_modules_loader(tmp_path, monkeypatch, rewritten):
    """Also where a file of the same relative name lies on Python's path."""
    (tmp_path / "relative_module.py").write_text("decoy = True\n" * 40)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = textwrap.dedent(TEXT).format(head="", value="value + value")
    loader = SimpleNamespace(get_source=lambda name: text)
    module = types.ModuleType("relative_module")
    module.__dict__.update(__loader__=loader, __file__="relative_module.py")
    monkeypatch.setitem(sys.modules, "relative_module", module)
    exec(compile(text, "relative_module.py", "exec"), module.__dict__)
    linecache.clearcache()
    digest(module.launch, FunctionStore())
    assert rewritten == ["launch", "kernel", "double"]


def test_a_file_that_is_edited_while_it_is_rewritten_is_not_kept(load):
    class Editing(FunctionStore):
        def load(self, key):
            load(value="value * value")
            return super().load(key)

    editing, shelf = Editing(), FunctionStore()
    digest(load().launch, editing)
    shelf.files = editing.files
    assert digest(load().launch, shelf) == digest(load().launch)


def test_code_that_could_not_be_defined_is_not_kept(load):
    shelf = FunctionStore()
    module = load("SCALE = 2.0", text=FACTORY)
    module.scaled.__wrapped__.__defaults__ = None
    with pytest.raises(Exception, match="factor"):
        digest(module.launch, shelf)
    assert digest(load("SCALE = 2.0", text=FACTORY).launch, shelf) == digest(load("SCALE = 2.0", text=FACTORY).launch)


def test_python_warns_of_a_text_each_time(load):
    shelf = FunctionStore()
    text = TEXT.replace("    i = cute.arch.thread_idx()[0]", "    i = cute.arch.thread_idx()[0] if '\\d' else 0")
    for _ in range(2):
        with pytest.warns((DeprecationWarning, SyntaxWarning), match="invalid escape sequence"):
            digest(load(text=text).launch, shelf)


@pytest.mark.parametrize("damage", [b"", b"?", marshal.dumps(3), marshal.dumps(({}, "code")), marshal.dumps((1, 2, 3))])
def test_what_is_kept_and_damaged_is_rewritten(load, rewritten, damage):
    shelf = FunctionStore()
    expected = digest(load().launch, shelf)
    for functions in shelf.files.values():
        functions.update(dict.fromkeys(functions, damage))
    rewritten.clear()
    assert digest(load().launch, shelf) == expected
    assert rewritten == ["launch", "kernel", "double"]


def test_a_module_may_answer_for_itself(load):
    class Answering(types.ModuleType):
        def __getattr__(self, name):
            raise RuntimeError(f"nobody asks for {name}")

    module = load()
    answering = Answering("answering")
    del answering.__dict__["__name__"]
    asked = preprocessing._RecordedGlobals({"m": answering, **vars(module)})
    assert ("m" in asked, asked.answers) == (True, {"m": "a module of None"})


def test_what_is_to_be_printed_is_rewritten(load):
    shelf = FunctionStore()
    printing = SimpleNamespace(print_after_preprocessor=True)
    with preprocessing.preprocessed_once(shelf, printing):
        digest(load().launch)
    assert not shelf.files
