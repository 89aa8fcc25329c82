"""Exported PyTorch extensions, built here and called over stand-ins for torch's CUDA and for the driver."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.aot.building import STAND_IN, built_once, cuda_headers, run

pytestmark = [pytest.mark.integration, pytest.mark.dsl]


@pytest.fixture(scope="module")
def torch_stand_in(tmp_path_factory):
    """Build what only a torch with CUDA has."""
    import torch

    if cuda_headers() is None:
        pytest.skip("needs CUDA's headers")
    if torch.version.cuda is not None:
        pytest.skip("torch has CUDA: tests/aot/gpu_proof.sh builds the extension itself")

    def build(folder):
        home = Path(torch.__file__).parent
        shutil.copytree(STAND_IN / "c10", folder / "include/c10")  # without our cuda.h
        includes = (f"-I{part}" for part in (folder / "include", cuda_headers(), home / "include"))
        libraries = (f"-L{home}/lib", f"-Wl,-rpath,{home}/lib", "-lc10", "-ltorch_cpu", "-ltorch_python")
        run("g++", *shared(folder / "libc10_cuda.so"), "-fPIC", "-O0", "-g0", "-std=c++20", *includes,
            STAND_IN / "torch_cuda.cpp", *libraries)  # fmt: skip
        run("gcc", *shared(folder / "libtorch_cuda.so"), "-x", "c", "/dev/null")

    return built_once(tmp_path_factory, "torch stand-in", build)


def shared(library):
    """Name what makes a library that another finds once it is loaded."""
    return "-shared", f"-Wl,-soname,{library.name}", "-o", library


@pytest.fixture(scope="module")
def execute():
    """Run Python code in a process that has imported torch: in its own, or in the one of all that stays."""
    command = [sys.executable, "-W", "ignore", Path(__file__).with_name("serving.py")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **pipes, text=True) as server:

        def execute(code, stays=False, **environment):
            server.stdin.write(json.dumps([code, environment, stays]) + "\n")
            server.stdin.flush()
            return json.loads(server.stdout.readline())

        yield execute
        server.stdin.close()


@pytest.fixture(scope="module")
def site(trees, torch_stand_in, execute, tmp_path_factory):
    """Build and install the extension."""

    def build(folder):
        source = folder / "source"
        shutil.copytree(trees[0], source)
        # What pip calls, once rather than three times.
        wheel = f"""
import os, sys
torch.version.cuda = "{headers_major(cuda_headers())}.0"
os.chdir({str(source)!r})
sys.path.append("")
from setuptools.build_meta import build_wheel
build_wheel({str(folder)!r})
"""
        answer = execute(
            wheel,
            CPLUS_INCLUDE_PATH=str(torch_stand_in / "include"),
            LIBRARY_PATH=str(torch_stand_in),
            CUDA_HOME=str(cuda_headers().parent),
            CFLAGS="-O0",
        )
        assert "printed" in answer, answer["failed"]
        with zipfile.ZipFile(*folder.glob("*.whl")) as file:
            file.extractall(folder / "site")

    return built_once(tmp_path_factory, "torch", build) / "site"


def headers_major(folder):
    """Read the major version of CUDA's headers."""
    lines = (folder / "cuda.h").read_text().splitlines()
    return int(next(line.split()[-1] for line in lines if line.startswith("#define CUDA_VERSION"))) // 1000


@pytest.fixture(scope="module")
def stand_ins(torch_stand_in, driver):
    """List the libraries that a torch with CUDA has loaded, or would load."""
    return [str(driver), *(str(torch_stand_in / f"lib{name}.so") for name in ("c10_cuda", "torch_cuda"))]


@pytest.fixture(scope="module")
def printed(site, stand_ins, execute):
    """Run Python code with the extension installed; gives the lines that it prints."""

    def printed(code):
        answer = execute(code, stays=True)
        assert "printed" in answer, answer["failed"]
        return answer["printed"].splitlines()

    printed(f"load({stand_ins!r}, {str(site)!r})")
    return printed


def test_the_stand_in_has_what_extensions_use_of_torchs_cuda(torch_stand_in):
    shown = run("nm", "-DC", "--defined-only", torch_stand_in / "libc10_cuda.so")
    assert all(name in shown for name in (" make", "c10::cuda::getCurrentCUDAStream", "at::detail::empty_strided_cuda"))


def test_operators_launch_and_make_their_results(printed):
    code = """
show(lambda: example_ops.gemm(tensor((512, 64)), tensor((256, 64))))
show(lambda: torch.ops.example_ops.gemm(tensor((1, 64)), tensor((256, 64), device=0)))
show(lambda: example_ops.gemm(tensor((512, 64), device=1), tensor((256, 64), device=1)))
show(lambda: example_ops.scale(tensor((1000,), torch.float32), 2.5))
show(lambda: example_ops.scale(tensor((1000,)), alpha=3))
show(lambda: example_ops.add_to(tensor((3, 5), torch.float32), tensor((3, 5), torch.float32)))
last = ctypes.addressof(ctypes.c_char.in_dll(driver, "last"))
print(count("launches"), ctypes.c_uint64.from_address(last + 40).value)  # the stream
"""
    assert printed(code) == [
        "((512, 256), (256, 1), 'torch.float16', 'cuda:0')",
        "((1, 256), (256, 1), 'torch.float16', 'cuda:0')",
        "((512, 256), (256, 1), 'torch.float16', 'cuda:1')",
        "((1000,), (1,), 'torch.float32', 'cuda:0')",
        "((1000,), (1,), 'torch.float16', 'cuda:0')",
        "None",
        f"6 {0x57}",
    ]


def test_arguments_are_refused_in_pythons_terms(printed):
    code = """
a, b = tensor((512, 64)), tensor((256, 64))
show(lambda: example_ops.gemm(tensor((512, 65)), tensor((256, 65))))
show(lambda: example_ops.gemm(a, tensor((256, 64), torch.bfloat16)))
show(lambda: example_ops.gemm(a, tensor((256, 64), torch.complex64)))
show(lambda: example_ops.gemm(a, tensor((256, 64), device=1)))
show(lambda: example_ops.gemm(a, torch.empty(256, 64, dtype=torch.float16)))
show(lambda: example_ops.gemm(tensor((64,)), b))
show(lambda: example_ops.gemm(tensor((2, 3, 4, 5)), b))
a.requires_grad_()
show(lambda: example_ops.gemm(a, b))
with torch.no_grad():
    show(lambda: example_ops.gemm(a, b))
show(lambda: example_ops.gemm(torch.empty(8, 8), torch.empty(8, 8)))
show(lambda: example_ops.add_to(torch.empty(3, 5), torch.empty(3, 5)))
show(lambda: example_ops.gemm(torch.empty(512, 64, dtype=torch.float16), b))
print(count("launches"))
"""
    lines = printed(code)
    assert lines[:8] == [
        "ValueError: gemm: a: dim 1 is 65, must be a multiple of 8 (k)",
        "TypeError: gemm: b: dtype must be float16",
        "TypeError: gemm: b: no kernel takes dtype ComplexFloat",
        "ValueError: b: must be on cuda:0 as a is, got cuda:1",
        "ValueError: gemm: needs CUDA tensors, got b on cpu; move it with b.cuda()",
        "ValueError: gemm: a: must have 2 dimensions",
        "ValueError: a: must have at most 3 dimensions, got 4",
        "ValueError: a requires grad, and gemm has no derivative; pass a.detach() or use torch.no_grad()",
    ]
    assert lines[8] == "((512, 256), (256, 1), 'torch.float16', 'cuda:0')"
    assert lines[9] == "ValueError: gemm: needs CUDA tensors, got a on cpu; move it with a.cuda()"
    assert lines[10] == "ValueError: add_to: needs CUDA tensors, got y on cpu; move it with y.cuda()"
    assert lines[11] == "ValueError: gemm: needs CUDA tensors, got a on cpu; move it with a.cuda()"
    assert lines[12] == "1"


def test_a_derivative_is_refused_wherever_operations_are_recorded(printed):
    code = """
a, b = meta(512, 64).requires_grad_(), meta(256, 64)
y, x = (torch.empty(3, 5, device="meta") for _ in range(2))
compiled = torch.compile(lambda *x: example_ops.gemm(*x), fullgraph=True, backend="aot_eager")
added = torch.compile(lambda y, x: example_ops.add_to(y, x.relu()), fullgraph=True, backend="aot_eager")

def refused(call, *arguments):
    try:
        call(*arguments)
        return "passed"
    except Exception as error:
        return [name for name in "abxy" if f"{name} requires grad, and " in str(error)], type(error) is ValueError

print(*(refused(call, *arguments) for call in (example_ops.gemm, compiled) for arguments in ((a, b), (b, a))))
with torch.no_grad():
    print(refused(example_ops.gemm, a, b), refused(compiled, a, b), compiled(a, b).shape)
print(refused(compiled, a.detach(), b), refused(added, y, x), refused(added, y, x.requires_grad_()))
"""
    assert printed(code) == [
        "(['a'], True) (['b'], True) (['a'], False) (['b'], False)",
        "passed passed torch.Size([512, 256])",
        "passed passed (['x'], False)",
    ]


def test_meta_functions_serve_compile_and_export(printed):
    code = """
show(lambda: example_ops.gemm(meta(512, 64), meta(256, 64)))
show(lambda: example_ops.scale(meta(7, dtype=torch.float32), 1.0))
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode():
    make = lambda *shape: torch.empty(shape, dtype=torch.float16, device="cuda")
    show(lambda: example_ops.gemm(make(512, 64), make(256, 64)))

class Model(torch.nn.Module):
    def forward(self, a, b):
        y = example_ops.scale(a[0].float(), 2.0)
        return example_ops.gemm(a, b), y

dim = torch.export.Dim
program = torch.export.export(Model(), (meta(512, 64), meta(256, 64)),
                              dynamic_shapes={"a": {0: dim("m")}, "b": {0: 8 * dim("n")}})
print([str(node.target) for node in program.graph.nodes if "example_ops" in str(node.target)])
print([list(map(str, node.meta["val"].shape)) for node in program.graph.nodes if "gemm" in str(node.target)])
"""
    lines = printed(code)
    assert lines[:3] == [
        "((512, 256), (256, 1), 'torch.float16', 'meta')",
        "((7,), (1,), 'torch.float32', 'meta')",
        "((512, 256), (256, 1), 'torch.float16', 'cuda:0')",
    ]
    assert lines[3] == "['example_ops.scale.default', 'example_ops.gemm.default']"
    assert lines[4].count("s") == 2  # two symbols: both extents of the result vary


REFUSED = {
    "(512, 65), (256, 65)": "a: dim 1 is 65, must be a multiple of 8 (k)",
    "(512, 64), (256, 32)": "b: dim 1 is 32, must equal k = 64",
    "(512, 64), (255, 64)": "b: dim 0 is 255, must be a multiple of 8 (n)",
    "(64,), (256, 64)": "a: must have 2 dimensions",
    "(2**31, 64), (256, 64)": "a: dim 0 is 2147483648, must be at most 2147483647",
    "(512, 64), (256, 64), 'bfloat16'": "a: dtype must be float16",
    "(512, 64), (256, 64), 'float16', (65, 1)": "a: stride 0 is 65, must be a multiple of 8 (a_pitch)",
    "(512, 64), (256, 64), 'float16', (8, 1)": "must have a_pitch >= k, got m = 512, k = 64, a_pitch = 8",
    "(512, 64), (256, 64), 'complex64'": "a: no kernel takes dtype ComplexFloat",
}


@pytest.mark.parametrize("case", REFUSED)
def test_meta_functions_refuse_what_launches_refuse_and_say_what_kernels_take(printed, case):
    code = f"""
def errors(a_shape, b_shape, dtype="float16", strides=None):
    dtype = getattr(torch, dtype)
    launched = lambda: example_ops.gemm(tensor(a_shape, dtype, strides), tensor(b_shape))
    a = meta(*a_shape, dtype=dtype)
    described = lambda: example_ops.gemm(a if strides is None else a.as_strided(a_shape, strides), meta(*b_shape))
    for call in [described] + [launched] * (a_shape[0] < 2**31):
        try:
            call()
            yield "passed"
        except (TypeError, ValueError) as error:
            yield type(error).__name__ + str(error)
found = list(errors({case}))
assert len(set(found)) == 1, found
print(found[0])
"""
    first, *rest = printed(code)
    kind = "TypeError" if "dtype" in REFUSED[case] else "ValueError"
    assert first.startswith(f"{kind}gemm: {REFUSED[case]}")
    assert rest[-4] == "kernels take:"
    assert rest[-3].startswith("  a: float16 (m, k):(a_pitch, 1), k and a_pitch multiples of 8, aligned to 16 bytes")


def test_symbols_are_checked_when_the_graph_is_made(printed):
    code = """
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
def symbolic(*shapes):
    mode, context = FakeTensorMode(shape_env=ShapeEnv()), StatelessSymbolicContext([DimDynamic.DYNAMIC] * 2)
    return [mode.from_tensor(torch.empty(s, dtype=torch.float16), symbolic_context=context) for s in shapes]
def show(call):
    try:
        result = call()
        print(*result.shape, *(guard.expr for guard in result.fake_mode.shape_env.guards), sep="; ")
    except ValueError as error:
        print(str(error).splitlines()[0])
for shapes in (((513, 72), (256, 72)), ((513, 65), (256, 65)), ((513, 72), (250, 72)), ((513, 72), (256, 64))):
    show(lambda: example_ops.gemm(*symbolic(*shapes)))
"""
    lines = [re.sub(r"s\d+", "s", line) for line in printed(code)]
    # What holds of the symbols is guarded, and nothing else is.
    assert lines == [
        "s; s; Eq(Mod(s, 8), 0); Eq(Mod(s, 8), 0); Eq(s, s)",
        "gemm: a: dim 1 is s, must be a multiple of 8 (k)",
        "gemm: b: dim 0 is s, must be a multiple of 8 (n)",
        "gemm: b: dim 1 is s, must equal k = s",
    ]


def test_results_are_of_the_dtype_that_the_kernel_writes(printed):
    """Not of another one of as many bits."""
    code = """
for dtype in (torch.bfloat16, torch.float16, torch.float32):
    print(example_ops.scale(tensor((8,), dtype), 1.0).dtype, example_ops.scale(meta(8, dtype=dtype), 1.0).dtype)
"""
    names = ("torch.bfloat16", "torch.float16", "torch.float32")
    assert printed(code) == [f"{name} {name}" for name in names]


def test_what_may_be_left_out_is_optional(printed):
    code = """
a, b, c, bias = tensor((512, 64)), tensor((256, 64)), tensor((512, 256)), tensor((256,))
show(lambda: example_ops.gemm(a, b, c, bias=bias, activation="relu"))
show(lambda: example_ops.gemm(tensor((3, 512, 64)), tensor((3, 256, 64), strides=(0, 64, 1)), bias=bias))
show(lambda: example_ops.gemm(meta(3, 512, 64), meta(3, 256, 64), bias=meta(256)))
show(lambda: example_ops.gemm(a, b, activation="relu"))
show(lambda: example_ops.gemm(a, b, c, bias, "silu"))
show(lambda: example_ops.gemm(meta(512, 64), meta(256, 64), meta(512, 256), meta(256), "silu"))
show(lambda: example_ops.gemm(meta(512, 0), meta(256, 0)))
for make in (tensor, lambda shape: meta(*shape)):
    show(lambda: example_ops.gemm(*map(make, ((512, 0), (256, 0), (512, 256), (256,))), "relu"))
bias.requires_grad_()
show(lambda: example_ops.gemm(a, b, c, bias, "relu"))
print(count("launches"), torch.ops.example_ops.gemm.default._schema)
"""
    refused = 'ValueError: gemm: activation must be "relu" for such tensors, got "silu"'
    empty = "ValueError: gemm: an argument is empty, and no kernel computes the result from c alone"
    assert printed(code) == [
        "((512, 256), (256, 1), 'torch.float16', 'cuda:0')",
        "((3, 512, 256), (131072, 256, 1), 'torch.float16', 'cuda:0')",
        "((3, 512, 256), (131072, 256, 1), 'torch.float16', 'meta')",
        'ValueError: gemm: activation must be none for such tensors, got "relu"',
        refused,
        refused,
        "((512, 256), (256, 1), 'torch.float16', 'meta')",
        empty,
        empty,
        "ValueError: bias requires grad, and gemm has no derivative; pass bias.detach() or use torch.no_grad()",
        "2 example_ops::gemm(Tensor a, Tensor b, Tensor? c=None, Tensor? bias=None, str? activation=None) -> Tensor",
    ]


def test_what_is_written_in_place_counts_a_version(printed):
    code = """
y, x = tensor((3, 5), torch.float32), tensor((3, 5), torch.float32)
before = y._version
example_ops.add_to(y, x)
print(y._version - before, x._version)
print(torch.ops.example_ops.add_to.default._schema)
"""
    assert printed(code) == ["1 0", "example_ops::add_to(Tensor(a!) y, Tensor x) -> ()"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (True, "example_ops can't be loaded: it was built for torch {}"),
        (False, "example_ops can't be loaded: libc10_cuda.so: cannot open shared object file"),
    ],
    ids=["another version", "without CUDA"],
)
def test_another_torch_than_that_of_the_build_is_told(site, execute, tmp_path, other, message):
    import torch

    code = f"import sys\nsys.path.insert(0, {str(site)!r})\n"
    if other:
        code += f"del sys.modules['torch']\nsys.path.insert(0, {pretend(tmp_path, 'x', 0)['PYTHONPATH']!r})\n"
    code += "try:\n    import example_ops\nexcept ImportError as error:\n    print(error)"
    (line,) = execute(code)["printed"].splitlines()
    assert line.startswith(message.format(torch.__version__))
    assert f"built for torch {torch.__version__} (CUDA 1" in line
    assert line.endswith("build it from its sources with this torch: pip install --no-build-isolation .")


def test_neither_cutepy_nor_the_dsl_is_imported_or_linked(printed, site):
    code = "import sys\nprint(*{'cutepy', 'cutlass', 'tvm_ffi'} & {name.split('.')[0] for name in sys.modules})"
    assert printed(code) == [""]
    needed = [line for line in run("readelf", "-d", site / "example_ops/_C.so").splitlines() if "NEEDED" in line]
    names = [line.split("[")[1].split(".")[0] for line in needed]
    assert set(names) <= {"libc10", "libc10_cuda", "libtorch", "libtorch_cpu", "libtorch_cuda", "libstdc++", "libm",
                          "libgcc_s", "libc", "libdl", "libpthread", "ld-linux-x86-64"}  # fmt: skip
    shown = [line for line in run("nm", "-D", "--defined-only", site / "example_ops/_C.so").splitlines()]
    names = {line.split()[-1] for line in shown}
    assert not [name for name in names if name.startswith(("example_ops_", "_cu", "cu", "TVMFFI", "CuteDSL"))]


def test_the_package_is_typed(site, tmp_path):
    assert (site / "example_ops/py.typed").is_file()
    (tmp_path / "use.py").write_text(
        "import example_ops\nimport torch\n"
        "def f(a: torch.Tensor) -> torch.Tensor:\n    return example_ops.scale(example_ops.gemm(a, a), 2.0)\n"
        "def g(a: torch.Tensor) -> None:\n    example_ops.scale(a, 'x')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-incremental", "--follow-imports=silent", "--follow-untyped-imports",
         "--ignore-missing-imports", "use.py"],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "MYPYPATH": f"{site}:{torch_stub(tmp_path)}"},
    )  # fmt: skip
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [line.partition(": error: ")[0] for line in errors] == ["use.py:6"], done.stdout


def torch_stub(folder):
    """Stand for torch's types, which take mypy ten seconds to read."""
    (folder / "stubs/torch").mkdir(parents=True)
    (folder / "stubs/torch/__init__.pyi").write_text("class Tensor: ...\n")
    return folder / "stubs"


def setup(tree, tmp_path, change=lambda copy: None, **environment):
    """Run an exported setup.py; gives its error."""
    copy = tmp_path / "copy"
    shutil.copytree(tree, copy)
    change(copy)
    done = subprocess.run(
        [sys.executable, "setup.py", "--version"], capture_output=True, text=True, cwd=copy,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr


def pretend(folder, name, value):
    """Make a module torch of some version, that takes no time to import; gives the environment for it."""
    (folder / "torch/utils").mkdir(parents=True)
    extension = (
        "CUDA_HOME = CppExtension = None\nclass BuildExtension:\n    with_options = lambda **_: BuildExtension\n"
    )
    (folder / "torch/utils/cpp_extension.py").write_text(extension)
    (folder / "torch/version.py").write_text("cuda = '12.4'\n")
    versions = f"from torch import version\n__version__ = '2.6.1+cu124'\n{name} = {value!r}\n"
    (folder / "torch/__init__.py").write_text(versions)
    return {"PYTHONPATH": str(folder)}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("__version__", "2.5.1", "it needs torch 2.6 or newer, got 2.5.1"),
        ("version.cuda", None, "it needs a torch with CUDA, and torch"),
        ("version.cuda", "11.8", "it needs a torch for CUDA 12 or newer, got one for CUDA 11.8"),
        ("version.cuda", "99.1", "it needs CUDA's headers (cuda.h, cuda_runtime_api.h) of version 99, as torch has"),
    ],
)
def test_a_build_for_another_torch_says_why(trees, tmp_path, name, value, message):
    assert message in setup(trees[0], tmp_path, **pretend(tmp_path / "site", name, value))


def test_a_build_for_another_architecture_says_why(trees, tmp_path):
    error = setup(trees[0], tmp_path, TORCH_CUDA_ARCH_LIST="8.0;8.6")
    assert "its kernels are for 9.0a (Hopper), which TORCH_CUDA_ARCH_LIST=8.0 8.6 leaves out; unset it" in error


@pytest.mark.parametrize(("major", "package"), [(12, "nvidia-cuda-nvcc-cu12"), (13, "nvidia-cuda-crt")])
def test_headers_without_those_that_they_include_are_no_headers(trees, tmp_path, major, package):
    environment = pretend(tmp_path / "site", "version.cuda", f"{major}.0")
    runtime, crt = (tmp_path / "site/nvidia" / name / "include" for name in ("cuda_runtime", "crt"))
    runtime.mkdir(parents=True)
    (runtime / "cuda.h").write_text("")
    (runtime / "cuda_runtime_api.h").write_text(f"#define CUDART_VERSION {major}000\n")
    environment["CUDA_HOME"] = str(tmp_path)
    without_toolkit = setup_on(lambda text: text.replace('"/usr/local/cuda"', '"/nowhere"'))
    error = setup(trees[0], tmp_path, without_toolkit, **environment)
    assert f"headers in {runtime} include crt/host_defines.h, which isn't there" in error
    assert f"Install the package that has it, {package}, or set CUDA_HOME" in error
    (crt / "crt").mkdir(parents=True)
    (crt / "crt/host_defines.h").write_text("")

    def no_objects(copy):
        without_toolkit(copy)
        first_object(copy).unlink()

    assert "objects/ must hold" in setup(trees[0], tmp_path / "whole", no_objects, **environment)


def test_a_setuptools_that_makes_no_wheels_is_refused(trees, tmp_path):
    environment = pretend(tmp_path / "site", "version.cuda", "12.4")
    old = setup_on(
        lambda text: text.replace(
            "import setuptools\n", "import setuptools\n\nsetuptools.__version__, find_spec = '65.5.0', lambda _: None\n"
        )
    )
    error = setup(trees[0], tmp_path, old, **environment)
    assert "it needs setuptools 70.1 or newer, or wheel, got setuptools 65.5.0: pip install --upgrade" in error


def setup_on(change):
    """Make a function that changes the text of a tree's setup.py."""

    def apply(copy):
        path = copy / "setup.py"
        text = path.read_text()
        assert change(text) != text
        path.write_text(change(text))

    return apply


def test_objects_that_are_missing_or_none_are_named(trees, tmp_path):
    headers = cuda_headers()
    if headers is None:
        pytest.skip("needs CUDA's headers")
    environment = pretend(tmp_path / "site", "version.cuda", f"{headers_major(headers)}.0")
    environment["CUDA_HOME"] = str(headers.parent)

    def a_pointer(copy):
        first_object(copy).write_text("version https://git-lfs.github.com/spec/v1\n")

    error = setup(trees[0], tmp_path / "lfs", a_pointer, **environment)
    assert "is no object file; if the repository keeps such files in Git LFS" in error
    error = setup(trees[0], tmp_path / "missing", lambda copy: first_object(copy).unlink(), **environment)
    assert "objects/ must hold 14 object files, got 13" in error


def first_object(tree):
    return min((tree / "objects").glob("*.o"))


def test_the_tree_is_small_and_readable(trees):
    tree = trees[0]
    files = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}
    sources = {name for name in files if not name.startswith("objects/")}
    assert sources == {
        "MANIFEST.in", "README.md", "pyproject.toml", "setup.py", "src/example_ops/__init__.py",
        "src/example_ops/__init__.pyi", "src/example_ops/py.typed", "tests/test_example_ops.py", "csrc/runtime.h",
        "csrc/runtime.cpp", "csrc/dispatch.h", "csrc/dispatch.cpp", "csrc/torch_bridge.h",
        "csrc/ops.cpp", "csrc/scale_kernels.h", "csrc/add_to_kernels.h", "csrc/count_kernels.h",
        "csrc/gemm_kernels.h",
    }  # fmt: skip
    assert sum(len((tree / name).read_text().splitlines()) for name in sources) < 2300
    for name in sources:
        if name.endswith((".py", ".pyi")):
            ast.parse((tree / name).read_text())
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    assert (project["name"], project["version"]) == ("example-ops", "1.2.3")
    assert "sm_90a" in (tree / "README.md").read_text()


QUIETLY = {"CUDA_VISIBLE_DEVICES": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def test_the_exported_tests_import_what_is_installed_and_skip_without_a_gpu(trees, site, stand_ins, execute, tmp_path):
    shutil.copytree(trees[0] / "tests", tmp_path / "tests")
    code = f"""
import os, pytest
os.chdir({str(tmp_path)!r})
load({stand_ins!r}, {str(site)!r})
print(pytest.main(["-q", "-p", "no:cacheprovider", {str(tmp_path / "tests")!r}]) == 0)
"""
    answer = execute(code, **QUIETLY)
    assert "printed" in answer, answer["failed"]
    assert answer["printed"].endswith("True\n"), answer["printed"]
    assert re.search(r"^\d\d skipped in", answer["printed"], re.M)


@pytest.mark.deep
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a folder of its name"])
def test_the_exported_tests_fail_where_the_package_is_not_installed(trees, tmp_path, beside):
    if beside:
        (tmp_path / "path" / "example_ops").mkdir(parents=True)
    environment = pretend(tmp_path / "path", "cuda", None)
    shutil.copytree(trees[0] / "tests", tmp_path / "tests")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "tests")],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, **QUIETLY, **environment},
    )  # fmt: skip
    assert done.returncode not in (0, 5), done.stdout
    assert "skipped" not in done.stdout
    assert "ImportError: example_ops must be built and installed to be tested: pip install" in done.stdout
