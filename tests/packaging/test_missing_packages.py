"""Every command and public attribute works, or says which extra is missing, where packages are not installed."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import cutepy
from cutepy import extras
from cutepy.extras import MissingPackagesError, explained, needed_by, require
from tests.messages import pins
from tests.packaging import missing

ROOT = Path(missing.__file__).parents[2]
ALL = "torch,cutlass,numpy,hypothesis,flask,werkzeug,pytest,triton,jinja2,platformdirs,tvm_ffi,matplotlib,cuda"
SCRIPTS = "simulate script.py;sanitize script.py;explain script.py;new kernel fresh"


def told_without(packages, folder, commands=None):
    environment = {name: value for name, value in os.environ.items() if name != "CUTEPY_CACHE_DIR"}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-m", "tests.packaging.missing", packages, *([commands] if commands else [])]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    return {name: tuple(said) for name, said in json.loads(done.stdout).items()}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Errors of an environment without extras."""
    return told_without(ALL, tmp_path_factory.mktemp("base"))


WORKS = {
    "--version",
    "tutorial --list",
    "tutorial 1",
    "parse (4,8):(8,1)",
    "show (4,8):(8,1)",
    "show SM90_64x64x16_F32F16F16_SS",
    "desc 0x4000004000010000",
}
OTHERWISE = {
    "demo": "the GEMM needs ",  # after the layouts, which are drawn
    "explore --no-open missing.cutepy": "there is no file missing.cutepy",
    "export c cutepy.aot:gemm_extension -o out": "must be a cutepy.aot.Extension",
    **dict.fromkeys(
        ("cache list", "cache show 00", "cache clear", "cache warm 256x256x256"),
        "needs platformdirs, which is not installed: pip install 'cutepy[dsl]', or set CUTEPY_CACHE_DIR",
    ),
}


@pytest.mark.parametrize("command", missing.COMMANDS)
def test_commands_of_the_base_wheel(base, command):
    code, raised, said = base[command]
    assert not raised, said
    if command in WORKS:
        assert code == 0
        return
    assert code == (1 if command == "demo" else 2)
    *_, last = said.strip().splitlines()
    if command in OTHERWISE:
        assert OTHERWISE[command] in last
        return
    pins(last)


NEEDS = {
    "cutepy.simulate": "numpy and nvidia-cutlass-dsl",
    "cutepy.testing.strategies": "hypothesis",
    **dict.fromkeys(("cutepy.ops", "cutepy.nn"), "numpy and torch"),
    **dict.fromkeys(("cutepy.explain", "cutepy.load_ptx", "cutepy.load_run", "cutepy.PtxModule"), "numpy"),
    **dict.fromkeys(("cutepy.sim", "cutepy.frontends", "cutepy.anatomy", "cutepy.predict"), "numpy"),
}


def test_attributes_of_the_base_wheel(base):
    found = {name: said for name, (code, _, said) in base.items() if code and name.startswith("cutepy.")}
    assert found.keys() == NEEDS.keys()
    for name, packages in NEEDS.items():
        code, raised, said = base[name]
        assert (code, raised) == (1, "MissingPackagesError")
        assert said.startswith(f"{name} needs {packages}, which ")
        pins(said)


def test_every_submodule_and_what_it_offers_says_it(base):
    """Importing it works, or says that the module, or the package that it is in, needs an extra."""
    asked = {name.removeprefix("import "): said for name, said in base.items() if name.startswith("import ")}
    asked |= {".".join(name.split()[1::2]): said for name, said in base.items() if name.startswith("from ")}
    assert len(asked) > 700
    for name, (code, raised, said) in asked.items():
        if code:
            user, _, needed = said.partition(" needs ")
            assert raised == "MissingPackagesError", (name, said)
            assert user.split(".")[:2] == name.split(".")[:2], (name, said)
            assert "not installed: pip install 'cutepy[" in needed
    for name in (
        "cutepy.device.pipeline",
        "cutepy.kernels.gemm.kernel",
        "cutepy.dsl.traced_names",
        "cutepy.suites.gemm",
    ):
        assert asked[name][2].startswith(f"{name} needs ")
    for name in ("cutepy.kernels.gemm", "cutepy.layouts.sm90", "cutepy.device.rules", "cutepy.extras"):
        assert asked[name][0] == 0


def test_errors_that_no_extra_explains_keep_their_context():
    def exec_module(module):
        try:
            raise KeyError("first")
        except KeyError:
            raise ModuleNotFoundError("no such module", name="nowhere")  # noqa: B904

    module = ModuleType("cutepy.toy")
    module.__spec__ = SimpleNamespace(loader=None)
    with pytest.raises(ModuleNotFoundError, match="no such module") as caught:
        cutepy._SubmoduleLoader(SimpleNamespace(exec_module=exec_module)).exec_module(module)
    assert isinstance(caught.value.__context__, KeyError)
    assert not caught.value.__suppress_context__


def test_other_modules_that_are_missing_mean_what_they_say(tmp_path):
    """A submodule's missing import that no extra installs raises Python's own error."""
    code = (
        "import sys\n"
        "from tests.packaging.missing import Hidden\n"
        "sys.meta_path.insert(0, Hidden({'bisect'}))\n"
        "sys.modules.pop('bisect', None)\n"
        "import cutepy.sim"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.strip().endswith("ModuleNotFoundError: No module named 'bisect'")


def test_rooms_that_are_imported_say_it_too(base):
    for name in ("ops", "nn", "sim", "frontends", "anatomy"):
        assert base[f"import cutepy.{name}"] == base[f"cutepy.{name}"]
    assert base["import cutepy.layouts"] == base["import cutepy.testing"] == (0, "", "")


@pytest.mark.first(2)
@pytest.mark.integration
@pytest.mark.parametrize(
    ("packages", "wanted"),
    [
        ("torch", {"simulate", "sanitize", "explain"}),
        ("cutlass,cuda", {"simulate", "sanitize", "explain"}),
        ("numpy", {"simulate", "sanitize", "explain"}),
        ("jinja2", {"new"}),
    ],
)
def test_one_package_that_is_missing_is_named(tmp_path, packages, wanted):
    told = told_without(packages, tmp_path, SCRIPTS)
    names = {"cutlass,cuda": "nvidia-cutlass-dsl"}
    for command in SCRIPTS.split(";"):
        _, raised, said = told[command]
        assert not raised, said
        is_told = f" needs {names.get(packages, packages)}, which is not installed: pip install 'cutepy[dsl]'" in said
        assert is_told == (command.split()[0] in wanted)


@pytest.mark.parametrize("options", [["--sanitize"], ["--simulate"], ["--exact-mma"]])
def test_pytest_says_it(tmp_path, options):
    code = (
        "import sys, pytest\n"
        "from tests.packaging.missing import Hidden\n"
        "sys.meta_path.insert(0, Hidden({'torch', 'cutlass', 'numpy'}))\n"
        "sys.exit(pytest.main(sys.argv[1:]))"
    )
    (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n")
    command = [sys.executable, "-c", code, *options, "-pno:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run([*command, "-pcutepy.testing.plugin"], env=environment, capture_output=True, text=True)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    wanted = f"pytest {options[0]} needs numpy, torch and nvidia-cutlass-dsl, which are not installed: pip install"
    assert wanted in done.stderr
    assert "Traceback" not in done.stderr


CALLS = {
    "cutepy.frontends.serve_cuda().__enter__()": "cutepy.frontends.serve_cuda",
    "cutepy.frontends.simulate().__enter__()": "cutepy.frontends.simulate",
    "cutepy.compile(print, cutepy.TensorSpec('float32', (4,)))": "cutepy.compile",
    "cutepy.compile(print, cache=False)": "cutepy.compile",
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("packages", [("torch",), ("torch", "cutlass", "cuda", "tvm_ffi", "platformdirs")], ids=len)
def test_calls_name_all_packages_that_they_lack(call, packages):
    missing = {name: name in packages for name in ("torch", "cutlass", "tvm_ffi")}
    lacked = {
        "serve_cuda": ("cutlass", "torch"), "simulate": ("cutlass",), "compile": ("cutlass", "tvm_ffi"),
    }[CALLS[call].rpartition(".")[2]]  # fmt: skip
    names = [extras._DISTRIBUTIONS[module][0] for module in lacked if missing[module]]
    code = (
        "import sys\n"
        "from tests.packaging.missing import Hidden\n"
        f"sys.meta_path.insert(0, Hidden({set(packages)!r}))\n"
        f"import cutepy\n{call}"
    )
    environment = {name: value for name, value in os.environ.items() if name != "CUTEPY_CACHE_DIR"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1:] or [""]
    if names:
        assert last[0].startswith(
            f"cutepy.extras.MissingPackagesError: {CALLS[call]} needs {' and '.join(names)}, which"
        )
        assert last[0].endswith("pip install 'cutepy[dsl]'")
    else:
        assert "not installed" not in last[0]


@pytest.mark.dsl
def test_a_compiled_function_without_torch(tmp_path):
    """It is simulated on numpy's arrays; its launches on a GPU say what they need."""
    (tmp_path / "ones.py").write_text(COMPILED)
    command = [sys.executable, str(tmp_path / "ones.py")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUTEPY_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "32.0",
        "None",
        *(f"{user} needs torch, which is not installed: pip install 'cutepy[dsl]'" for user in LAUNCHES.values()),
    ]


LAUNCHES = {
    "f(x)": "a launch of go on a GPU",
    "f.prepare(0)": "go.prepare on a GPU",
    "f.prepare('cuda')": "the name of a device",
}
COMPILED = f"""
import sys
from tests.packaging.missing import Hidden
sys.meta_path.insert(0, Hidden({{"torch"}}))
import cutlass, cutepy, numpy as np
from cutlass import cute
@cute.kernel
def ones(a: cute.Tensor): a[cute.arch.thread_idx()[0]] = cutlass.Float32(1)
@cute.jit
def go(a: cute.Tensor): ones(a).launch(grid=(1, 1, 1), block=(32, 1, 1))
f = cutepy.compile(go, cutepy.TensorSpec("float32", (32,)), cache=False)
x = np.zeros(32, np.float32)
with cutepy.simulate():
    f(x)
    f.prepare()
print(x.sum())
print(f.resources[0].max_active_clusters)
for call in {list(LAUNCHES)!r}:
    try:
        eval(call)
    except ModuleNotFoundError as error:
        print(error)
"""


def test_other_modules_mean_what_they_say():
    error = ModuleNotFoundError("No module named 'theirs'", name="theirs")
    assert explained(error, "cutepy.ops") is error
    with pytest.raises(ModuleNotFoundError, match="No module named 'theirs'") as raised, needed_by("cutepy.ops"):
        raise error
    assert raised.value is error
    installed = ModuleNotFoundError("No module named 'pytest.nothing'", name="pytest.nothing")
    assert explained(installed, "cutepy.ops") is installed  # its package is there: a part of it is not


def test_extras_are_those_of_the_project():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for module, (distribution, extra) in extras._DISTRIBUTIONS.items():
        names = {part.split(">")[0].split("[")[0] for part in project[extra]}
        assert distribution in names, module


def test_the_error_can_be_pickled():
    import pickle

    with pytest.raises(MissingPackagesError) as raised:
        raise MissingPackagesError("cutepy.simulate", ("numpy", "matplotlib"))
    again = pickle.loads(pickle.dumps(raised.value))
    assert str(again) == str(raised.value)
    pins(str(again))
    assert again.name == "numpy"
    require("this test", "pytest")


def test_finders_behind_those_of_python_change_nothing(tmp_path):
    """As those of editable installs, which are appended."""
    script = """
        import sys
        class Last:
            find_spec = staticmethod(lambda *_: None)
        sys.meta_path.append(Last)
        sys.modules["torch"] = None
        import cutepy
        try:
            import cutepy.kernels.gemm.op
        except ImportError as error:
            print(type(error).__name__)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=170)
    assert (done.stdout.strip(), done.stderr) == ("MissingPackagesError", "")
