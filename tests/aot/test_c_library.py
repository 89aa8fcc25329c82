"""Exported C libraries, built here and called over a driver that records."""

import re
import subprocess
from dataclasses import replace

import pytest

from cutepy import aot
from cutepy.aot.gemm_tiles import EXPORTED, config_of
from cutepy.kernels.gemm import GemmSignature
from tests.aot.building import EXAMPLE, STAND_IN, build_c_library, call_in_python, cuda_headers, run

pytestmark = [pytest.mark.integration, pytest.mark.dsl]

HALF = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
GEMM = "C.gemm(C.tensor((512, 64)), C.tensor((256, 64)), C.tensor((512, 256)))"
SCALE = "C.call('example_ops.scale', C.tensor((1000,)), C.tensor((1000,)), 2.5)"


def printed(code, libraries, **environment):
    return call_in_python(code, *libraries, **environment).splitlines()


@pytest.mark.parametrize(
    ("m", "n", "choice", "grid"),
    [
        (512, 256, EXPORTED[1], (32, 2, 1)),
        (64, 64, EXPORTED[16], (2, 1, 8)),
        (8192, 8192, EXPORTED[10], (66, 2, 1)),
        (64, 131072, EXPORTED[1], (66, 2, 1)),
    ],
    ids=str,
)
def test_a_gemm_is_launched_once_as_its_configuration_says(libraries, m, n, choice, grid):
    config = config_of(choice, HALF)
    code = f"""
a, b, d = C.tensor(({m}, 2048)), C.tensor(({n}, 2048)), C.tensor(({m}, {n}))
print(repr(C.gemm(a, b, d)), C.count("launches"))
print(C.last())
"""
    expected = (grid, (config.threads, 1, 1), config.cluster, config.smem_bytes, 0x57, 0)
    assert printed(code, libraries) == ["'' 1", str(expected)]


def test_the_library_of_the_toolkits_headers_launches(libraries_with_the_toolkit):
    assert printed(f'print({GEMM} or C.count("launches"))', libraries_with_the_toolkit) == ["1"]


def test_numbers_reach_the_kernel_and_conditions_choose(libraries):
    code = """
C.set_driver(wanted_parameter=2)
for n, dtype in ((1000, "float16"), (1000, "float32"), (8192, "float32")):
    x, out = C.tensor((n,), dtype), C.tensor((n,), dtype)
    print(repr(C.call("example_ops.scale", x, out, 2.5)), C.last()[:2], C.parameter())
"""
    assert printed(code, libraries) == [
        "'' ((8, 1, 1), (128, 1, 1)) 2.5",
        "'' ((16, 1, 1), (64, 1, 1)) 2.5",
        "'' ((32, 1, 1), (256, 1, 1)) 2.5",
    ]


REFUSED = [
    ("(512, 65)), C.tensor((256, 65)", "gemm: a: dim 1 is 65, must be a multiple of 8 (k)"),
    ("(512, 64)), C.tensor((256, 32)", "gemm: b: dim 1 is 32, must equal k = 64"),
    ("(512, 64), 'float32'), C.tensor((256, 64)", "gemm: a: dtype must be float16"),
    ("(512, 64), address=4104), C.tensor((256, 64)", "gemm: a: must start at a multiple of 16 bytes; pass a copy"),
    ("(512, 64, 1, 1)), C.tensor((256, 64)", "a: must have at most 3 dimensions, got 4"),
    ("(64,)), C.tensor((256, 64)", "gemm: a: must have 2 dimensions"),
    ("(2, 512, 64)), C.tensor((256, 64)", "gemm: b: must have 3 dimensions"),
    (
        "(512, 64), strides=(68, 1)), C.tensor((256, 64)",
        "gemm: a: stride 0 is 68, must be a multiple of 8 (a_pitch)",
    ),
    ("(512, 64), strides=(1, 512)), C.tensor((256, 64)", "gemm: a: stride 1 is 512, must be 1"),
    ("(512, 64), strides=(0, 1)), C.tensor((256, 64)", "gemm: must have a_pitch >= k, got "),
    ("(512, 64)), C.tensor((264, 64)", "gemm: d: dim 1 is 256, must equal n = 264"),
    ("(512, 64), device=1), C.tensor((256, 64)", "gemm: b must be on a CUDA device, the one of a"),
    (
        "(512, 64), kind=1), C.tensor((256, 64)",
        "gemm: a must be in a GPU's memory, device.type 2 (CUDA), got type 1",
    ),
    ("(512, 0)), C.tensor((256, 0)", "gemm: an argument is empty; set the result to 0"),
    ("(2**32 + 512, 64)), C.tensor((256, 64)", "gemm: a: dim 0 is 4294967808, must be at most 2147483647"),
]


def test_what_no_kernel_takes_is_refused_with_a_reason(libraries):
    """All in one process."""
    code = "\n".join(
        f"""
print(C.call("example_ops.gemm", C.tensor({arguments}), None, C.tensor((512, 256)), None, None))
print(C.count("launches"))
print("next")"""
        for arguments, _ in REFUSED
    )
    told = "\n".join(printed(code, libraries)).removesuffix("next").split("next\n")
    for (_, message), text in zip(REFUSED, told, strict=True):
        lines = text.splitlines()
        assert lines[0].startswith(message)
        assert lines[-1] == "0"
        if "got" not in message and "CUDA" not in message and "empty" not in message:
            assert lines[1].startswith("got a: float"), message
            assert lines[2:4] == [
                "kernels take:",
                "  a: float16 (m, k):(a_pitch, 1), k and a_pitch multiples of 8, aligned to 16 bytes; "
                "b: float16 (n, k):(b_pitch, 1), k and b_pitch multiples of 8, aligned to 16 bytes; "
                "d: float16 (m, n):(d_pitch, 1), n and d_pitch multiples of 8, aligned to 16 bytes",
            ]


def test_what_may_be_left_out_chooses_the_kernel(libraries):
    """The parameters of a kernel are the TMA descriptors and tensors, and the addend's among them."""
    code = """
d, row = C.tensor((512, 256)), C.tensor((256,))
matrices = C.tensor((512, 64)), C.tensor((256, 64))
batches = C.tensor((3, 512, 64)), C.tensor((3, 256, 64), strides=(0, 64, 1)), C.tensor((3, 512, 256))
for call in (
    lambda: C.gemm(*matrices, d, c=d, bias=row, activation="relu"),
    lambda: C.gemm(*batches, bias=row),
    lambda: C.gemm(*matrices, d, c=d),
    lambda: C.gemm(*matrices, d, bias=C.tensor((255,)), c=d, activation="relu"),
    lambda: C.gemm(*matrices, d, c=d, bias=row, activation="tanh"),
    lambda: C.gemm(C.tensor((512, 0)), C.tensor((256, 0)), d, c=d, bias=row, activation="relu"),
):
    error = call()
    print(error.splitlines()[0] if error else C.last()[0])
"""
    assert printed(code, libraries) == [
        "(64, 1, 1)",
        "(132, 1, 1)",
        "gemm: bias: must be given",
        "gemm: bias: dim 0 is 255, must equal n = 256",
        'gemm: activation must be "relu" for such tensors, got "tanh"',
        "gemm: an argument is empty, and no kernel computes the result from c alone",
    ]


def test_the_checks_of_the_compiled_entry_are_heard(libraries):
    """A number beyond 32 bits passes the tables; the entry refuses it, by a message in parts."""
    code = """
print(C.call("example_ops.count", C.tensor((8,), "float32"), 2**40), C.count("launches"))
"""
    (line,) = printed(code, libraries)
    assert "Out of bound value on argument" in line
    assert line.endswith(" 0")


def test_captured_launches_are_programmatic_behind_the_librarys_own_alone(libraries):
    """As launches of `cutepy.runtime.captured_launches` are; each library knows its own."""
    code = f"""
def launch():
    assert not {GEMM}
    return C.is_programmatic()
print("no capture", launch())
for number in (5, 4, *range(6, 40)):
    C.begin_capture(number)
    expected = [False, True, True, False, True]
    found = [launch(), launch(), launch(), C.driver.follow() and launch(), launch()]
    assert found == expected, (number, found)
C.set_driver(capture_fails=209)
print({GEMM})
C.set_driver(capture_fails=0)
C.begin_capture(0)
print("no capture", launch())
"""
    assert printed(code, libraries) == [
        "no capture True",
        "launching: CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image is available",
        "no capture True",
    ]


def test_strides_of_extents_of_one_are_never_looked_at(libraries):
    code = """
a, b, d = C.tensor((1, 64), strides=(3, 1)), C.tensor((256, 64)), C.tensor((1, 256), strides=(7, 1))
print(repr(C.gemm(a, b, d)), C.count("launches"))
"""
    assert printed(code, libraries) == ["'' 1"]


def test_nothing_is_launched_for_empty_results(libraries):
    code = """
print(repr(C.gemm(C.tensor((0, 64)), C.tensor((256, 64)), C.tensor((0, 256)))))
print(repr(C.call("example_ops.add_to", C.tensor((0, 5), "float32"), C.tensor((0, 5), "float32"))))
print(C.count("launches"))
"""
    assert printed(code, libraries) == ["''", "''", "0"]


def test_kernels_are_loaded_once_for_each_device_by_any_number_of_threads(libraries):
    code = f"""
import threading
C.set_driver(slow_to_load=1)
start = threading.Barrier(24)
def work(device):
    start.wait()
    for _ in range(50):
        tensors = [C.tensor(shape, device=device) for shape in ((512, 64), (256, 64), (512, 256))]
        assert C.gemm(*tensors) == "", C.gemm(*tensors)
threads = [threading.Thread(target=work, args=(n % 3,)) for n in range(24)]
[t.start() for t in threads], [t.join() for t in threads]
print(C.count("launches"), C.count("libraries_loaded"), C.count("kernels_set_up"))
print({SCALE!s} or C.count("libraries_loaded"))
"""
    assert printed(code, libraries) == ["1200 1 3", "2"]


def test_the_device_of_the_tensors_is_made_current_and_the_other_again(libraries):
    code = """
tensors = lambda device: [C.tensor(shape, device=device) for shape in ((512, 64), (256, 64), (512, 256))]
for current, device in ((0, 0), (0, 1), (1, 0), (-1, 0)):
    C.driver.make_current(current)
    print(C.gemm(*tensors(device)), C.last()[5], C.count("contexts_pushed"), C.current_device())
"""
    assert printed(code, libraries) == [" 0 0 0", " 1 1 0", " 0 2 1", " 0 3 -1"]


def test_a_device_that_is_no_hopper_is_refused_by_name(libraries):
    code = f"C.set_driver(major=8)\nprint({GEMM})\nC.set_driver(major=9)\nprint(repr({GEMM}))"
    expected = "example_ops holds kernels for sm_90a (compute capability 9.0, Hopper), and device 0 has 8.0"
    assert printed(code, libraries) == [expected, "''"]


def test_a_library_for_blackwell_takes_a_blackwell_alone(driver, tmp_path):
    described = replace(aot.load(f"{EXAMPLE}/my_export.py:EXTENSION"), arch="sm_100a")
    aot.c(described, tmp_path / "c")
    (tmp_path / "built").mkdir()
    build_c_library(tmp_path / "c", "example_ops", STAND_IN, tmp_path / "built")
    code = f"print({SCALE})\nC.set_driver(major=10)\nprint(repr({SCALE}))"
    expected = "example_ops holds kernels for sm_100a (compute capability 10.0, Blackwell), and device 0 has 9.0"
    assert printed(code, (driver, tmp_path / "built/libexample_ops.so")) == [expected, "''"]


def test_a_driver_that_cannot_load_is_heard_and_tried_again(libraries):
    code = f"C.set_driver(fails_to_load=1)\nprint({GEMM})\nC.set_driver(fails_to_load=0)\nprint(repr({GEMM}))"
    expected = "loading the kernels of example_ops, which are for sm_90a: CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image"
    first, second = printed(code, libraries)
    assert first.startswith(expected)
    assert second == "''"


@pytest.mark.parametrize(("version", "advice"), [(11080, True), (99010, False)])
def test_a_driver_that_may_be_too_old_is_told(libraries, version, advice):
    """A kernel's PTX version names the CUDA release that compiled it, by NVIDIA's table of versions."""
    (line,) = printed(f"C.set_driver(fails_to_load=1, cuda_version={version})\nprint({GEMM})", libraries)
    told = re.search(r"; CUDA (\d+) made them \(PTX ISA (\d+)\.\d+\), and the driver is for CUDA ([\d.]+)(.*)", line)
    assert told is not None, line
    assert int(told[1]) == int(told[2]) + 4 >= 12
    assert told[3] == f"{version // 1000}.{version % 1000 // 10}"
    assert told[4] == (f"; update it to one for CUDA {told[1]}.0 or newer" if advice else "")


def test_a_tensor_that_is_null_is_refused(libraries):
    code = """
import ctypes
C.library.example_ops_error.restype, call = ctypes.c_char_p, C.library.example_ops_gemm
for place in range(3):
    nowhere = C.tensor((512, 64))
    nowhere.shape = None
    for given in (None, ctypes.byref(nowhere)):
        arguments = [ctypes.byref(C.tensor(shape)) for shape in ((512, 64), (256, 64), (512, 256))]
        arguments[place] = given
        print(call(*arguments[:2], None, arguments[2], None, None, None), C.library.example_ops_error().decode())
"""
    expected = [f"-1 gemm: {name} and its shape must not be NULL" for name in "abd" for _ in range(2)]
    assert printed(code, libraries) == expected


def test_without_a_driver_the_error_says_so(libraries, tmp_path):
    """A library of another name in the driver's place, so that the search for the driver goes on and fails."""
    other = tmp_path / "libother.so"
    run("gcc", "-shared", "-o", other, "-x", "c", "/dev/null")
    if subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout.count("libcuda.so.1"):
        pytest.skip("this machine has a driver")
    (line,) = printed(f"print({GEMM})", (other, libraries[1]))
    assert line.startswith("example_ops needs NVIDIA's driver: libcuda.so.1: cannot open")


def test_the_library_shows_its_functions_only_and_needs_no_other(libraries):
    names = run("nm", "-D", "--defined-only", libraries[1]).splitlines()
    shown = {line.split()[2] for line in names if line.split()[1] == "T"}
    assert shown == {"example_ops_error", "example_ops_scale", "example_ops_add_to", "example_ops_count",
                     "example_ops_gemm"}  # fmt: skip
    needed = [
        line.split("[")[1].rstrip("]") for line in run("readelf", "-d", libraries[1]).splitlines() if "NEEDED" in line
    ]
    assert all(name.startswith(("libstdc++", "libgcc_s", "libc.", "libm.", "ld-linux", "libdl")) for name in needed)


def test_the_header_and_the_example_are_c_and_cpp(trees, tmp_path):
    tree = trees[1]
    strict = ("-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{tree}")
    run("gcc", *strict, "-std=c11", "-x", "c", tree / "example_ops.h")
    run("g++", *strict, "-std=c++17", "-Wno-pragma-once-outside-header", "-x", "c++", tree / "example_ops.h")
    (tmp_path / "use.cpp").write_text(
        '#include "example_ops.h"\nexample_ops_dtype used() { return EXAMPLE_OPS_FLOAT16; }\n'
        "uint8_t bits() { return EXAMPLE_OPS_FLOAT32.bits; }\n"
    )
    (tmp_path / "use.c").write_text((tmp_path / "use.cpp").read_text().replace("()", "(void)"))
    run("g++", *strict, "-pedantic", "-std=c++11", tmp_path / "use.cpp")
    run("gcc", *strict, "-pedantic", "-std=c99", tmp_path / "use.c")
    if headers := cuda_headers():
        run("gcc", *strict, "-std=c11", f"-I{headers}", tree / "example/main.c")


def test_objects_hold_no_paths_of_this_machine(trees):
    objects = sorted((trees[1] / "objects").glob("*.o"))
    assert len(objects) == 14
    for path in objects:
        assert b"/cutepy/" not in path.read_bytes()
        assert b"my_kernels.py" not in path.read_bytes()
