"""The key of a traced program: another for whatever changes what is compiled, and the same wherever nothing does."""

import importlib.util
import json
import logging
import os
import runpy
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import SimpleNamespace

import cutlass
import pytest
import torch

import cutepy
from cutepy.binaries import DisassemblyError
from cutepy.dsl import locations
from cutepy.host import inputs
from cutepy.host.compilation import Call, traced_key
from cutepy.host.specs import TensorSpec
from tests.messages import refuses

pytestmark = pytest.mark.dsl

ROOT = Path(__file__).parents[2]
VECTOR = TensorSpec("float32", (32,))
MODULE = """
import cutlass, cutlass.cute as cute
{head}
@cute.kernel
def kernel(a: cute.Tensor):
    a[cute.arch.thread_idx()[0]] = cutlass.Float32({value})
@cute.jit
def fill(a: cute.Tensor):
    kernel(a).launch(grid=(1, 1, 1), block=(32, 1, 1))
"""


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def load(tmp_path):
    """Import a module of a text, always under one name."""

    def load(head, value="VALUE", text=MODULE, place=tmp_path):
        place.mkdir(exist_ok=True)
        file = place / "traced_module.py"
        file.write_text(text.format(head=head, value=value))
        for cached in place.glob("__pycache__/*"):
            cached.unlink()
        import linecache

        linecache.clearcache()
        spec = importlib.util.spec_from_file_location("traced_module", file)
        module = importlib.util.module_from_spec(spec)
        sys.modules["traced_module"] = module
        spec.loader.exec_module(module)
        return module

    yield load
    sys.modules.pop("traced_module", None)


def key(function, *examples, options="", **named):
    return Call(function, examples or (VECTOR,), named, {"options": options}).find().key


# What the module defines before and after, and what the kernel makes of it.
EDITS = {
    "a global": ("VALUE = 1.0", "VALUE = 2.0", "VALUE"),
    "an attribute of a class": ("class C: X = 1.0", "class C: X = 2.0", "C.X"),
    "an attribute of an object": (
        "class C:\n  def __init__(s): s.x = 1.0",
        "class C:\n  def __init__(s): s.x = 2.0",
        "C().x",
    ),
    "a closure": ("def of(x): return lambda: x\nF = of(1.0)", "def of(x): return lambda: x\nF = of(2.0)", "F()"),
    "a default": ("def f(x=1.0): return x", "def f(x=2.0): return x", "f()"),
    "a keyword's default": ("def f(*, x=1.0): return x", "def f(*, x=2.0): return x", "f()"),
    "a helper's code": ("def f(): return 1.0", "def f(): return 2.0", "f()"),
    "a helper's helper": (
        "def g(): return 1.0\ndef f(): return g()",
        "def g(): return 2.0\ndef f(): return g()",
        "f()",
    ),
    "an item of a list": ("L = [1.0]", "L = [2.0]", "L[0]"),
    "an item of a dict": ("L = {'a': 1.0}", "L = {'a': 2.0}", "L['a']"),
    "the order of a dict": ("L = {1: 0, 2: 0}", "L = {2: 0, 1: 0}", "next(iter(L))"),
    "a name that is computed": ("A1 = 1.0\nN = 1", "A1 = 2.0\nN = 1", "globals()[f'A{N}']"),
    "getattr": ("class C: x1 = 1.0", "class C: x1 = 2.0", "getattr(C, 'x' + '1')"),
    "an annotation": ("def f(x: 1.0): pass", "def f(x: 2.0): pass", "f.__annotations__['x']"),
    "a documentation string": ("def f():\n  '1'", "def f():\n  '2'", "float(f.__doc__)"),
    "an enumeration": (
        "import enum\nclass E(enum.Enum): A = 1.0",
        "import enum\nclass E(enum.Enum): A = 2.0",
        "E.A.value",
    ),
    "a named tuple": (
        "import collections\nP = collections.namedtuple('P', 'x y')(1.0, 2.0)",
        "import collections\nP = collections.namedtuple('P', 'y x')(1.0, 2.0)",
        "P.x",
    ),
    "a property": (
        "class C:\n  @property\n  def x(s): return 1.0",
        "class C:\n  @property\n  def x(s): return 2.0",
        "C().x",
    ),
    "a metaclass": (
        "class M(type):\n  x = 1.0\nclass C(metaclass=M): pass",
        "class M(type):\n  x = 2.0\nclass C(metaclass=M): pass",
        "C.x",
    ),
    "a descriptor": (
        "class D:\n  def __get__(s, *a): return 1.0\nclass C: x = D()",
        "class D:\n  def __get__(s, *a): return 2.0\nclass C: x = D()",
        "C.x",
    ),
    "__getattr__ of a module": (
        "def __getattr__(n): return 1.0",
        "def __getattr__(n): return 2.0",
        "__import__('sys').modules[__name__].anything",
    ),
    "a string that is evaluated": ("S = '1.0'\ndef f(): return eval(S)", "S = '2.0'\ndef f(): return eval(S)", "f()"),
    "a regular expression": (
        "import re\nR = re.compile('a+')",
        "import re\nR = re.compile('a')",
        "len(R.match('aaa')[0])",
    ),
    "a partial": (
        "import functools\nF = functools.partial(float, 1)",
        "import functools\nF = functools.partial(float, 2)",
        "F()",
    ),
    "what lru_cache remembers": (
        "import functools\nX = 1.0\n@functools.lru_cache\ndef f(): return X\nf()\nX = 3.0",
        "import functools\nX = 2.0\n@functools.lru_cache\ndef f(): return X\nf()\nX = 3.0",
        "f()",
    ),
    "type hints by globals": (
        "import typing\nT = typing.Literal[1]\ndef f(x: 'T'): pass",
        "import typing\nT = typing.Literal[2]\ndef f(x: 'T'): pass",
        "typing.get_args(typing.get_type_hints(f)['x'])[0]",
    ),
    "a reducer of copyreg": (
        "import copy, copyreg\nclass C: x = 0.0\ndef r(c): return (lambda: 1.0), ()\ncopyreg.pickle(C, r)",
        "import copy, copyreg\nclass C: x = 0.0\ndef r(c): return (lambda: 2.0), ()\ncopyreg.pickle(C, r)",
        "copy.copy(C())",
    ),
    "a registered class": (
        "import abc\nclass A(abc.ABC): pass\nclass B: pass\nA.register(B)",
        "import abc\nclass A(abc.ABC): pass\nclass B: pass",
        "float(isinstance(B(), A))",
    ),
    "a dispatched function": (
        "import functools\n@functools.singledispatch\ndef f(x): return 1.0",
        "import functools\n@functools.singledispatch\ndef f(x): return 1.0\nf.register(int, lambda x: 2.0)",
        "f(3)",
    ),
    "a weak reference": (
        "import weakref\nclass C: pass\nC1 = C()\nW = weakref.ref(C1)",
        "import weakref\nclass C: pass\nC1 = C()\nW = weakref.ref(C1)\ndel C1",
        "float(W() is None)",
    ),
    "a generator's state": ("G = iter([1.0, 2.0, 3.0])", "G = iter([1.0, 2.0, 3.0])\nnext(G)", "list(G)[0]"),
    "a lock": (
        "import threading\nL = threading.Lock()",
        "import threading\nL = threading.Lock()\nL.acquire()",
        "L.locked()",
    ),
    "an array": ("import numpy\nA = numpy.ones(2)", "import numpy\nA = numpy.zeros(2)", "float(A[1])"),
    "a tensor": ("import torch\nA = torch.ones(2)", "import torch\nA = torch.zeros(2)", "float(A[1])"),
    "strides of an array": (
        "import numpy\nA = numpy.zeros((2, 3))",
        "import numpy\nA = numpy.zeros((3, 2)).T",
        "A.strides[0]",
    ),
    "chance": ("import random\nrandom.seed(1)", "import random\nrandom.seed(2)", "random.random()"),
    "statistics of chance": (
        "import random, statistics\nrandom.seed(1)",
        "import random, statistics\nrandom.seed(2)",
        "statistics.NormalDist().samples(1)[0]",
    ),
    "a type": ("VALUE = 1", "VALUE = 1.0", "cute.arch.thread_idx()[0] * VALUE"),
    "a negative zero": ("VALUE = 0.0", "VALUE = -0.0", "VALUE"),
    "lines": ("VALUE = 1.0", "\nVALUE = 1.0", "VALUE"),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_another_key(load, name):
    before, after, value = EDITS[name]
    first = key(load(before, value).fill)
    assert key(load(after, value).fill) != first
    assert key(load(before, value).fill) == first


def of_environment(monkeypatch, load):
    monkeypatch.setenv("FACTOR", "2")


def of_a_file(monkeypatch, load):
    Path("factor").write_text("20")


def of_a_default_dtype(monkeypatch, load):
    monkeypatch.setattr(torch, "finfo", lambda: torch.float16)


def of_a_logger(monkeypatch, load):
    monkeypatch.setattr(logging.getLogger("traced"), "level", logging.ERROR)


def of_a_document(monkeypatch, load):
    monkeypatch.setattr(load.__globals__["Path"], "__doc__", "22")


@pytest.mark.parametrize(
    ("head", "value", "change"),
    [
        ("import os", "float(os.environ.get('FACTOR', '1'))", of_environment),
        ("import pathlib", "float(pathlib.Path('factor').read_text())", of_a_file),
        (
            "import os",
            "float(os.stat('factor').st_size)",
            of_a_file,
        ),
        ("import logging", "float(logging.getLogger('traced').getEffectiveLevel())", of_a_logger),
        ("import pathlib", "float(len(pathlib.Path.__doc__))", of_a_document),
    ],
)
def test_what_the_process_is_told_is_in_the_key(load, monkeypatch, tmp_path, head, value, change):
    monkeypatch.chdir(tmp_path)
    Path("factor").write_text("1")
    module = load(head, value)
    first = key(module.fill)
    assert key(module.fill) == first
    change(monkeypatch, load)
    assert key(module.fill) != first


def test_the_default_dtype_of_torch_is_in_the_key(load):
    module = load("import torch", "torch.finfo().bits")
    first = key(module.fill)
    torch.set_default_dtype(torch.float64)
    try:
        assert key(module.fill) != first
    finally:
        torch.set_default_dtype(torch.float32)


def test_functions_put_in_the_place_of_others(load, monkeypatch):
    module = load("def f(): return 1.0", "f()")
    first = key(module.fill)
    monkeypatch.setattr(module, "f", lambda: 2.0)
    assert key(module.fill) != first
    monkeypatch.undo()
    monkeypatch.setattr(cutlass.cute.arch, "thread_idx", lambda: (cutlass.Int32(0),) * 3)
    assert key(module.fill) != first


CONVENTION = """
import cutlass, cutlass.cute as cute
{head}
@cute.kernel
def kernel(a: cute.Tensor, b: cute.Tensor):
    a[cute.arch.thread_idx()[0]] = b[cute.arch.thread_idx()[0]]
@cute.jit
def copy(a: cute.Tensor, b: cute.Tensor, n: cutlass.Int32 = {value}):
    kernel(a, b).launch(grid=(1, 1, 1), block=(32, 1, 1))
"""


def test_how_a_program_is_called_is_in_the_key(load):
    """Equal code may have to check its arguments in other ways."""
    copy = load("", "1", CONVENTION).copy
    vectors = [TensorSpec("float32", ("n",), **more) for more in ({}, {"divisibility": {"n": 4}}, {"align": 4})]
    vectors += [TensorSpec(dtype, ("n",)) for dtype in ("int32", "uint8", "bool")]
    made = {key(copy, vector, vector) for vector in vectors}
    made.add(key(copy, vectors[0], TensorSpec("float32", ("m",))))
    made.add(key(copy, vectors[0], TensorSpec("float32", ("n",), strides=("s",))))
    made.add(key(copy, TensorSpec("float32", (32,)), vectors[0]))
    made.add(key(copy, vectors[0], vectors[0], cutlass.Int64(1)))
    made.add(key(copy, vectors[0], vectors[0], options="--opt-level 1"))
    assert len(made) == len(vectors) + 5


def test_the_value_of_a_number_is_not_in_the_key(load):
    copy = load("", "1", CONVENTION).copy
    assert key(copy, VECTOR, VECTOR, 7) == key(copy, VECTOR, VECTOR, 1)


def test_libraries_of_the_compiler_and_linked_files_are_in_the_key(monkeypatch, tmp_path):
    bitcode = tmp_path / "x.bc"
    pipeline = f"builtin.module(cute-to-nvvm{{link-libraries='{bitcode},{tmp_path / 'y.bc'}'}})"
    keys = {traced_key("digest", pipeline)}
    for content in ("a", "b"):
        bitcode.write_text(content)
        keys.add(traced_key("digest", pipeline))
    monkeypatch.setattr("cutepy.host.compilation.compiler_digest", lambda: "another")
    keys.add(traced_key("digest", pipeline))
    assert len(keys) == 4


def test_a_library_that_is_swapped_is_another_compiler(monkeypatch, tmp_path):
    libraries = tmp_path / "nvidia_cutlass_dsl" / "packages" / "cutlass" / "_mlir" / "_mlir_libs"
    libraries.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(inputs, "_folders_of", lambda name: [str(tmp_path / name)])
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(tmp_path / "cache"))
    digests = []
    for content in ("one", "two", "two", "one"):
        (libraries / "_ir.so").write_text(content)
        inputs.compiler_digest.cache_clear()
        digests.append(inputs.compiler_digest())
    inputs.compiler_digest.cache_clear()
    kept = tmp_path / "cache" / "libraries.json"
    assert (kept.stat().st_mode & 0o777, [*kept.parent.glob("libraries.*")]) == (0o600, [kept])
    assert digests[0] == digests[3] != digests[1] == digests[2]


def test_the_digests_of_libraries_are_remembered(monkeypatch, tmp_path):
    file = tmp_path / "large.so"
    file.write_text("content")
    first = inputs._Memory(tmp_path / "memory.json")
    digest = first.digest(file)
    first.keep()
    with monkeypatch.context() as patch:
        patch.setattr(inputs.hashlib, "file_digest", None)
        assert inputs._Memory(tmp_path / "memory.json").digest(file) == digest
    (tmp_path / "memory.json").write_text("damaged")
    assert inputs._Memory(tmp_path / "memory.json").digest(file) == digest


def put_in_place(file, content):
    """Write to a file, and give it the time of its contents before."""
    before = file.stat()
    file.write_text(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def put_in_its_place(file, content):
    """Move another file of the same size and time to where a file was."""
    other, before = file.with_suffix(".new"), file.stat()
    other.write_text(content)
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(file)


@pytest.mark.parametrize("change", [put_in_place, put_in_its_place])
def test_a_library_whose_time_is_put_back_has_another_digest(tmp_path, change):
    file = tmp_path / "large.so"
    file.write_text("one")
    memory = inputs._Memory(tmp_path / "memory.json")
    first = memory.digest(file)
    memory.keep()
    change(file, "two")
    assert memory.digest(file) != first
    assert inputs._Memory(tmp_path / "memory.json").digest(file) != first


@pytest.mark.parametrize("change", [put_in_place, put_in_its_place])
def test_sources_whose_time_is_put_back_are_edited(tmp_path, change):
    file = tmp_path / "kernel.py"
    file.write_text("VALUE = 1\n")
    sources = inputs.Sources((file,))
    assert not sources.edited()
    change(file, "VALUE = 2\n")
    assert sources.edited()


def test_an_imported_file_that_changed_in_a_process_is_unsure_whatever_its_time(tmp_path, monkeypatch):
    file = tmp_path / "kernel.py"
    file.write_text("VALUE = 1\n")
    os.utime(file, ns=(0, 0))
    monkeypatch.setattr(inputs, "_imported_files", lambda: {str(file)})
    assert inputs.Sources((file,)).edited()
    monkeypatch.setattr(inputs, "_started_ns", lambda: file.stat().st_ctime_ns)
    assert not inputs.Sources((file,)).edited()


@pytest.mark.parametrize(("owner", "believed"), [(0, True), ("self", True), (4711, False)])
def test_digests_are_believed_of_oneself_and_of_root(monkeypatch, tmp_path, owner, believed):
    memory = tmp_path / "memory.json"
    memory.write_text(json.dumps({"large.so 1": "digest"}))
    mine = os.geteuid() if owner == "self" else 1234
    monkeypatch.setattr(inputs.os, "geteuid", lambda: mine)
    status = SimpleNamespace(st_uid=mine if owner == "self" else owner)
    monkeypatch.setattr(Path, "stat", lambda self, **_: status)
    assert (inputs._Memory(memory)._known != {}) == believed


SCRIPT = """
import json, os, sys, threading
sys.path[:0] = json.loads(sys.argv[1])
if "late" in sys.argv:
    import numpy, torch, asyncio, http.client
import cutlass, cutlass.cute as cute, cutepy
from cutepy.host.compilation import Call
from cutepy.kernels.gemm import GemmSignature, select_config
from cutepy.kernels.gemm.standard import StandardGemm
from cutepy.kernels.gemm.compilation import examples
import shared_module

vector = cutepy.TensorSpec("float32", (32,))
signature = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
gemm = StandardGemm(select_config(signature, 512, 512, 512))
keys = []
def work():
    for function, given in ((gemm, dict(examples(signature))), (shared_module.fill, {"a": vector})):
        keys.append(Call(function, (), given, {"options": ""}).find().key)
if "thread" in sys.argv:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
else:
    work()
print(json.dumps(keys))
"""


@pytest.mark.deep
@pytest.mark.parametrize(
    "ways",
    [
        [("here",), ("1", "thread", "late")],
        pytest.param([("0",), ("1", "thread"), ("2", "late"), ("3",)], marks=pytest.mark.deep),
    ],
    ids=["at once", "one by one"],
)
@pytest.mark.integration
def test_keys_are_equal_in_other_processes(tmp_path, ways, monkeypatch, capsys):
    """Under another hash seed, in a thread, in another folder with the same modules, imported in another order."""
    found = []
    for n, (seed, *modes) in enumerate(ways):
        place = tmp_path / str(n)
        place.mkdir()
        (place / "shared_module.py").write_text(MODULE.format(head="VALUE = {'a': 1.0, 'b': 2.0}", value="VALUE['b']"))
        script = place / "script.py"
        script.write_text(textwrap.dedent(SCRIPT))
        environment = {**os.environ, "PYTHONHASHSEED": seed, "CUTEPY_CACHE_DIR": str(tmp_path / "cache")}
        command = [sys.executable, script, json.dumps([str(place), str(ROOT)]), *modes]
        if seed == "here":
            monkeypatch.setattr(sys, "argv", [str(part) for part in command[1:]])
            monkeypatch.setattr(sys, "path", sys.path[:])
            runpy.run_path(str(script))
            sys.modules.pop("shared_module")
            found.append(json.loads(capsys.readouterr().out))
            continue
        done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    assert all(keys == found[0] for keys in found)
    assert len(set(found[0])) == 2


def test_a_copy_that_knows_its_own_path_is_another_program(load, tmp_path):
    """Folders that only lines are told by don't count; those that code reads do."""
    plain = [key(load("VALUE = 1.0", place=tmp_path / name).fill) for name in "ab"]
    knowing = [key(load("V = float(sum(map(ord, __file__)))", "V", place=tmp_path / name).fill) for name in "ab"]
    assert plain[0] == plain[1]
    assert knowing[0] != knowing[1]


def test_a_program_from_another_folder_names_the_files_that_are_here(load, tmp_path):
    cutepy.compile(load("VALUE = 1.0", place=tmp_path / "a").fill, VECTOR)
    here = load("VALUE = 1.0", place=tmp_path / "b").fill
    found, compiled = cutepy.compile(here, VECTOR), cutepy.compile(here, VECTOR, cache=False)
    assert found.cost().cached
    assert found.ptx == compiled.ptx
    assert str(tmp_path / "b" / "traced_module.py") in found.ptx
    try:
        assert found.sass == compiled.sass
    except DisassemblyError as error:
        pytest.skip(str(error))


def test_files_are_named_by_what_was_imported_from_them(tmp_path, monkeypatch):
    assert locations.name_of(cutepy.__file__) == "<module cutepy>"
    assert locations.name_of("/tmp/ipykernel_77/1234.py") == "<cell 1234.py>"
    monkeypatch.setattr(sys, "path", ["/some/root", *sys.path])
    assert locations.name_of("/some/root/a/b.py") == "<file a/b.py>"
    assert locations.name_of("/elsewhere/b.py") == "/elsewhere/b.py"
    assert locations.name_of("b.py") == "b.py"
    with refuses(ValueError):
        locations.canonical(b"no bytecode")


def test_a_name_of_a_file_leads_to_where_it_is_now(tmp_path, monkeypatch):
    """Of what has not been imported too, and without importing it."""
    folder = tmp_path / "unmet_package"
    folder.mkdir()
    for name in ("__init__.py", "part.py", "text.py"):
        (folder / name).touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert locations.path_of("<module cutepy>") == cutepy.__file__
    assert locations.path_of("<module unmet_package>") == str(folder / "__init__.py")
    assert locations.path_of("<module unmet_package.part>") == str(folder / "part.py")
    assert locations.path_of("<file unmet_package/text.py>") == str(folder / "text.py")
    assert "unmet_package" not in sys.modules
    script = str(tmp_path / "script.py")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", script, raising=False)
    assert locations.path_of("<module script.py>") == script
    for unknown in ("<module no_such.module>", "<file no/such.py>", "<cell 1.py>", "/elsewhere/b.py"):
        assert locations.path_of(unknown) is None


def test_threads_compile_one_after_the_other(load):
    module = load("VALUE = 1.0")
    found = []
    threads = [threading.Thread(target=lambda: found.append(key(module.fill))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [key(module.fill)] * 3


def test_a_program_that_is_found_bears_the_name_of_the_function_that_asked(load):
    module = load("VALUE = 1.0")
    cutepy.compile(module.fill, VECTOR)
    module.fill.__qualname__ = "Other.fill"
    found = cutepy.compile(module.fill, VECTOR)
    assert (found.__name__, found.cost().cached) == ("Other.fill", True)


def test_code_between_the_trace_and_the_program_is_in_the_key(monkeypatch):
    keys = {traced_key("digest", "pipeline")}
    monkeypatch.setattr("cutepy.host.compilation.installed_parts", lambda: ("another",))
    keys.add(traced_key("digest", "pipeline"))
    monkeypatch.setattr("cutepy.host.compilation.met_sources", lambda *_: SimpleNamespace(digest="another"))
    keys.add(traced_key("digest", "pipeline"))
    assert len(keys) == 3
