import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import cutepy
from cutepy.cli.app import app
from cutepy.layouts import sm90, sm100
from tests.layouts.render.readers import read_text
from tests.messages import pins

PYTHONPATH = {"PYTHONPATH": str(Path(cutepy.__file__).parents[1])}


def invoke(*arguments: str):
    return CliRunner().invoke(app, arguments)


def test_version():
    result = invoke("--version")
    assert (result.exit_code, result.output) == (0, f"cutepy {cutepy.__version__}\n")


def test_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "cutepy", "parse", "_4"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "4\nint\n", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("arguments", "unbuffered"), [(["new", "kernel", "some"], ""), (["tutorial", "--list"], "1")], ids=str
)
def test_a_full_disk_is_told_in_a_line(arguments, unbuffered, tmp_path):
    command = [sys.executable, "-m", "cutepy", *arguments]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, **PYTHONPATH, "PYTHONUNBUFFERED": unbuffered},
        )
    assert (done.returncode, done.stderr) == (1, "error: standard output can't be written: No space left on device\n")


@pytest.mark.parametrize(
    ("arguments", "returned", "out", "err"),
    [
        (["tutorial"], 0, "what the mbarrier expects for it.\n", ""),
        (["demo"], 1, "the GEMM needs nvidia-cutlass-dsl, which is not installed: pip install 'cutepy[dsl]'\n", ""),
        (["parse", "_4"], 1, "", "cutepy's command line needs typer: pip install typer"),
        ([], 1, "", "without it there are `tutorial` and `demo`\n"),
    ],
)
def test_the_tutorial_and_the_demo_need_no_typer(arguments, returned, out, err):
    code = (
        "import runpy, sys\nsys.modules |= {'typer': None, 'rich': None, 'cutlass': None}\n"
        f"sys.argv[1:] = {arguments}\nrunpy.run_module('cutepy', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == returned
    assert done.stdout.endswith(out) if out else not done.stdout
    assert err in done.stderr if err else not done.stderr


def test_help_loads_no_tensor_library():
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom cutepy.cli.app import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        "print(*{'torch', 'cutlass', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("\n", "")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("(_4,_2):(_2,_1)", ["(4,2):(2,1)", "Layout: rank 2, depth 1, size 8, cosize 8"]),
        ("64:2", ["64:2", "Layout: rank 1, depth 0, size 64, cosize 127"]),
        ("(0,3):(1,1)", ["(0,3):(1,1)", "Layout: rank 2, depth 1, size 0, cosize 2"]),
        ("Sw<3,4,3>", ["Sw<3,4,3>", "Swizzle"]),
        ("<8,_>", ["<8,_>", "tuple"]),
    ],
)
def test_parse_says_what_a_text_is(text, lines):
    result = invoke("parse", text)
    assert result.exit_code == 0
    assert result.output.splitlines()[: len(lines)] == lines


def drawn(text, monkeypatch, width):
    """The table that `parse` draws at a width, read back."""
    monkeypatch.setenv("COLUMNS", str(width))
    output = invoke("parse", text).output
    assert max(map(len, output.splitlines())) <= width
    return {place: int(cell) for place, cell in read_text(output).items()}


@pytest.mark.parametrize("width", [80, 140])
def test_parse_draws_every_layout_at_every_width(monkeypatch, width):
    assert drawn("(2,3):(3,1)", monkeypatch, width)["1", "2"] == 5
    assert drawn("3:1", monkeypatch, width) == {("0", ""): 0, ("1", ""): 1, ("2", ""): 2}
    assert len(drawn("(33,2):(2,1)", monkeypatch, width)) == 66
    assert drawn("(2,2,2):(4,2,1)", monkeypatch, width)["1,1", "0"] == 5
    atom = sm90.gmma_layout_atom("K", "SW128", 16)
    table = drawn(str(atom), monkeypatch, width)
    assert table == {(str(i), str(j)): atom(i, j) for i in range(8) for j in range(64)}


def test_parse_error_shows_a_caret_and_fails():
    result = invoke("parse", "(2,x)")
    assert result.exit_code == 2
    assert result.stdout == ""
    shown, caret = result.stderr.splitlines()[-2:]
    assert caret.index("^") == shown.index("x")
    pins(invoke("parse", "(-4,8):(1,2)").stderr)


def test_desc_explains_a_descriptor():
    result = invoke("desc", "0x4000008000000680", "--major", "MN", "--bits", "16")
    assert result.exit_code == 0, result.output
    expected = sm90.GmmaDescriptor.decode(0x4000008000000680, major="MN", bits=16).explain()
    assert result.output == expected + "\n"
    assert invoke("desc", str(0x4000008000000680), "--major", "MN", "--bits", "16").output == result.output
    assert invoke("desc", "0x4000008000000680", "--major", "mn", "--bits", "16").output == result.output


def test_desc_explains_descriptors_of_tcgen05():
    """A version in bits 46 to 48 tells them from those of wgmma; a kind, that the value is of 32 bits."""
    result = invoke("desc", "0x4000404000010040", "--major", "K", "--bits", "16")
    assert result.output == sm100.SmemDescriptor.decode(0x4000404000010040, major="K", bits=16).explain() + "\n"
    result = invoke("desc", "0x8400010", "--kind", "f16")
    assert result.output == sm100.InstrDescriptor("f16", 128, 256).explain() + "\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("0x8400010", "--kind", "i8"), "d_dtype (bits 4..5) of kind::i8 must be one of 2 s32; got 1"),
        (("0x8400010", "--kind", "f17"), "kind must be one of f16, tf32"),
        (("0x6000404000010040",), "layout_type must be one of"),
        (("12z",), "must be a decimal or 0x-hexadecimal number, got '12z'"),
        (("0x1" + "0" * 16,), "a descriptor has 64 bits"),
        (("64", "--major", "M"), "major must be one of MN, K, got 'M'"),
        (("64", "--bits", "3"), "got 3"),
    ],
)
def test_desc_refuses_with_a_reason(arguments, message):
    result = invoke("desc", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert message in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--suite", "round"),
            "--suite must be one of squares, llama, skinny, batched, cubes, short, rows, got",
        ),
        (("8x8", "--suite", "cubes"), "products say their extents and types, so --sweep, --suite and --dtype"),
        (("8x8",), "a product is written [DTYPE:][Lx]MxNxK[:MAJORS]"),
        (("--suite", "llama", "--dtype", "float64"), "--dtype must be one of float16, bfloat16"),
        (("--sweep", "3", "--suite", "llama"), "--suite and --dtype can't be given with it"),
    ],
)
def test_bench_refuses_unknown_names(arguments, message):
    result = invoke("bench", "gemm", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_bench_takes_names_in_any_case(monkeypatch):
    from cutepy.suites import gemm
    from cutepy.suites.gemm_problems import gemm_problems

    measured = []
    monkeypatch.setattr(gemm, "run_gemm", lambda *arguments, **named: measured.append((*arguments, named)) or 0)
    assert invoke("bench", "gemm", "--suite", "Llama", "--dtype", "FLOAT8_E4M3FN", "--peer", "CUBLAS").exit_code == 0
    ((problems, peers, output, named),) = measured
    assert problems == gemm_problems(["llama"], ["float8_e4m3fn"])
    assert list(peers) == ["cuBLAS"]
    assert (output, named) == ((None, None, None), {"summed": False, "between": "none"})


def test_bench_takes_products_by_their_extents(monkeypatch):
    from cutepy.suites import gemm
    from cutepy.suites.gemm_problems import GemmProblem

    measured = []
    monkeypatch.setattr(gemm, "run_gemm", lambda problems, *_, **__: measured.append(problems) or 0)
    assert invoke("bench", "gemm", "512x256x64", "bfloat16:2x64x512x1024:k,mn", "512x256x64").exit_code == 0
    both = [GemmProblem(512, 256, 64, "float16"), GemmProblem(64, 512, 1024, "bfloat16", (2,), "k", "mn")]
    assert measured == [both]


@pytest.mark.dsl
def test_bench_says_that_it_needs_a_gpu(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = invoke("bench", "gemm")
    assert result.exit_code == 2
    assert "needs a Hopper GPU" in result.stderr


def test_ctas_of_the_command_line(tmp_path):
    script = tmp_path / "fill.py"
    script.write_text(
        "import torch, cutepy\n"
        'k = cutepy.load_ptx("""\n.version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 x) {\n'
        ".reg .b32 %r<3>; .reg .b64 %rd<3>; ld.param.u64 %rd0, [x]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, 1;\n"
        'mul.wide.u32 %rd1, %r0, 4; add.u64 %rd1, %rd1, %rd0; st.global.u32 [%rd1], %r1; ret; }""")\n'
        "x = torch.zeros(5, dtype=torch.int32, device='cuda'); k.launch('k', 5, 1, (x,)); print(x.tolist())\n"
    )
    for command in ("simulate", "sanitize"):
        result = CliRunner().invoke(app, [command, "--ctas", "1 -1", str(script)])
        assert result.exit_code == 0, result.output
        assert "[0, 1, 0, 0, 1]" in result.output
        result = CliRunner().invoke(app, [command, "--ctas", "last", str(script)])
        assert result.exit_code != 0
        pins(result.output)
