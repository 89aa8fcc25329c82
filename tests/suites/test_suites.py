"""The suites of `cutepy bench` that need a GPU, without one."""

import json

import pytest
from typer.testing import CliRunner

from cutepy.cli.app import app
from cutepy.suites import gemm, gemm_problems
from tests.messages import pins


def test_problems_are_the_suites_in_every_dtype():
    problems = gemm_problems.gemm_problems(["llama"], ["float16", "float8_e4m3fn"])
    assert [str(p) for p in problems[:1] + problems[-1:]] == ["float16 4096x6144x4096", "float8_e4m3fn 4096x4096x14336"]
    assert len(problems) == 8
    assert problems[0].flops == 2 * 4096 * 6144 * 4096
    assert problems[0].bytes == 2 * (4096 * 4096 + 6144 * 4096 + 4096 * 6144)
    assert problems[4].bytes == 4096 * 4096 + 6144 * 4096 + 2 * 4096 * 6144


def test_a_batch_is_a_problem():
    (problem, *_, last) = gemm_problems.gemm_problems(["batched"], ["float16"])
    assert (str(problem), problem.batch) == ("float16 32x1024x1024x128", (32,))
    assert last.flops == 8 * 2 * 2048**3
    assert last.bytes == 8 * 3 * 2 * 2048**2


@pytest.mark.parametrize(("dtype", "moved"), [("float32", 4 * (32 + 24) * 64 + 4 * 32 * 24), ("int8", 56 * 64 + 3072)])
def test_problems_of_32_bits_and_of_integers(dtype, moved):
    torch = pytest.importorskip("torch")
    from cutepy.suites import peers
    from cutepy.testing.numerics import relative_error

    problem = gemm_problems.GemmProblem(32, 24, 64, dtype)
    assert problem.bytes == moved
    sets = gemm_problems.Buffers(*(part[:1] for part in gemm_problems.buffers(problem, "cpu")))
    a, b, out = (part[0] for part in sets)
    gemm_problems.poison(out)
    assert relative_error(out, a.double() @ b.double().t()) != 0
    with gemm_problems.tf32():
        assert torch.get_float32_matmul_precision() == "high"
        peers.cublas(problem, sets)(0)
    assert torch.get_float32_matmul_precision() == "highest"
    assert relative_error(out, a.double() @ b.double().t()) <= gemm_problems.tolerance(problem)
    assert peers.quack(problem, sets) is None
    assert peers.cublas(gemm_problems.GemmProblem(16, 24, 64, "int8"), sets) is None or dtype == "float32"


@pytest.mark.dsl
def test_the_peer_without_tensor_cores_takes_few_rows_of_whole_16_bytes():
    torch = pytest.importorskip("torch")
    pytest.importorskip("cutlass")
    import cutepy
    from cutepy.suites.peers import gemv

    def contender(*extents, dtype="float16", **more):
        problem = gemm_problems.GemmProblem(*extents, dtype, **more)
        sets = gemm_problems.Buffers(*(part[:1] for part in gemm_problems.buffers(problem, "cpu")))
        with cutepy.simulate():
            launch = gemv(problem, sets)
            if launch is not None:
                gemm_problems.poison(sets.out[0])
                launch(0)
                wanted = (sets.a[0].float() @ sets.b[0].float().mT).to(sets.out[0].dtype)
                torch.testing.assert_close(sets.out[0], wanted, rtol=2**-8, atol=2**-8)
        return launch

    assert contender(8, 2, 72) is not None, "transposed"
    assert contender(2, 64, 68) is None
    assert contender(9, 64, 72) is None
    assert contender(2, 64, 64, b_major="mn") is None
    assert contender(2, 64, 64, batch=(3,)) is None
    assert contender(2, 64, 64, dtype="int8") is None
    assert contender(2, 64, 64, dtype="float32") is None


def test_a_problem_of_two_suites_is_measured_once():
    problems = gemm_problems.gemm_problems(["squares", "llama"], ["float16"])
    assert len(problems) == len(set(problems)) == 8


@pytest.mark.parametrize("command", ["gemm", "grouped", "launch"])
def test_without_a_gpu_the_command_says_so(monkeypatch, command):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = CliRunner().invoke(app, ["bench", command])
    assert result.exit_code == 2
    assert "needs a Hopper GPU" in result.output


@pytest.mark.parametrize("error", [1e-4, float("nan")])
def test_a_report_is_printed_and_saved_and_says_what_is_wrong(monkeypatch, tmp_path, error):
    pytest.importorskip("torch")
    from cutepy import benchmark
    from cutepy.suites import measurement

    def row(problem, contender, error):
        return benchmark.Row(str(problem), contender, 2.0, 3.0, 1e6, 1e3, error)

    monkeypatch.setattr(measurement, "has_hopper", lambda: True)
    monkeypatch.setattr(benchmark, "environment", lambda: {"gpu": "none"})
    monkeypatch.setattr(gemm, "_measure", lambda _, p, between: [row(p, "cutepy", error if p.m == 4096 else 1e-4)])
    saved = tmp_path / "gemm.json"
    result = CliRunner().invoke(app, ["bench", "gemm", "--suite", "squares", "--dtype", "float16", "--json", saved])
    assert f"saved {saved}" in result.stdout
    assert len(json.loads(saved.read_text())["rows"]) == 5
    assert result.stdout.splitlines()[0] == "gpu: none"
    wrong = "WRONG: float16 4096x4096x4096 is beyond its tolerance\n"
    assert (result.exit_code, result.stderr) == ((0, "") if error == 1e-4 else (1, wrong))


@pytest.fixture
def on_the_cpu(monkeypatch):
    """Measure with everything but the GPU, and times that are drawn from a list."""
    from cutepy import benchmark
    from cutepy.suites import measurement

    times, measured = [], []

    def compare(contenders, *, sets, company):
        measured.append((tuple(contenders), sets))
        for run in contenders.values():
            run(sets - 1)
        return {name: benchmark.Timing(times.pop(0), 9.0) for name in contenders}

    monkeypatch.setattr(measurement, "has_hopper", lambda: True)
    monkeypatch.setattr(benchmark, "environment", lambda: {"gpu": "none"})
    monkeypatch.setattr(benchmark, "compare", compare)
    real = gemm_problems.buffers
    monkeypatch.setattr(gemm, "buffers", lambda problem: real(problem, "cpu"))
    monkeypatch.setattr(benchmark, "buffer_sets", lambda _: 2)
    return times, measured


def twice(problem, buffers):
    """Multiply with a factor too much: a peer whose results are wrong."""
    a, b, out = buffers
    return lambda index: out[index].copy_(2 * (a[index] @ b[index].mT))


def nobody(problem, buffers):
    """Take no problem."""


def test_peers_are_measured_and_what_is_not_steady_is_measured_again(on_the_cpu):
    pytest.importorskip("torch")
    from cutepy.suites.peers import cublas

    times, measured = on_the_cpu
    times += [10.0, 12.0, 11.0, 10.0, 13.0, 10.1]
    problem = gemm_problems.GemmProblem(24, 16, 32, "bfloat16", (3,), "mn", "k")
    ours, theirs = gemm._measure({"cuBLAS": cublas, "nobody": nobody}, problem)
    assert measured == [(("cutepy", "cuBLAS", "again"), 2)] * 2
    assert (ours.contender, ours.device_us, ours.noise) == ("cutepy", 10.0, pytest.approx(0.01))
    assert (theirs.contender, theirs.device_us, theirs.noise) == ("cuBLAS", 13.0, None)
    assert 0 < ours.error < 1e-2
    assert theirs.error < 1e-2


def test_what_was_measured_before_ctrl_c_is_told_and_saved(on_the_cpu, monkeypatch, tmp_path):
    pytest.importorskip("torch")
    times, _ = on_the_cpu
    times += [10.0, 10.0]
    measure, asked = gemm._measure, []

    def interrupted(peers, problem, between):
        asked.append(str(problem))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return measure(peers, problem, between)

    monkeypatch.setattr(gemm, "_measure", interrupted)
    saved = tmp_path / "until.json"
    peer = ("--peer", "tests.suites.test_suites:nobody")
    run = CliRunner().invoke(app, ["bench", "gemm", "--sweep", "3", "--seed", "3", *peer, "--json", str(saved)])
    assert run.exit_code != 0
    assert len(asked) == 2
    assert f"saved {saved}" in run.output
    from cutepy.benchmark import Report

    assert {row.problem for row in Report.load(saved).rows} == {asked[0]}


def test_what_is_chosen_is_compiled_before_it_is_measured(on_the_cpu, monkeypatch):
    pytest.importorskip("torch")
    from cutepy.suites import gemm_tuning

    done = []
    monkeypatch.setattr(gemm, "has_hopper", lambda: True)
    monkeypatch.setattr(gemm_tuning, "compile_many", lambda variants: done.append(list(variants)))
    monkeypatch.setattr(gemm, "_measure", lambda _, problem, between: done.append(problem) or [])
    problems = [
        gemm_problems.GemmProblem(512, 768, 1024, "bfloat16"),
        gemm_problems.GemmProblem(1, 4096, 4096, "float16"),
    ]
    gemm.run_gemm(problems, {}, gemm.Output())
    variants, *measured = done
    assert measured == problems
    assert [str(variant.function).split(",")[0] for variant in variants] == [
        "Deferred('cutepy.kernels.gemm.standard:StandardGemm'",
        "Deferred('cutepy.kernels.gemv.kernel:StandardGemv'",
    ]


def test_a_wrong_peer_a_slower_row_and_a_picture(on_the_cpu, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    times, _ = on_the_cpu
    times += [10.0, 10.0]
    saved, picture = tmp_path / "then.json", tmp_path / "roof.svg"
    problem = ("--sweep", "1", "--seed", "3")
    peer = ("--peer", "tests.suites.test_suites:nobody")
    run = CliRunner().invoke(app, ["bench", "gemm", *problem, *peer, "--json", str(saved), "--picture", str(picture)])
    assert run.exit_code == 0, run.output
    assert "cutepy" in picture.read_text()
    times += [11.0, 11.0]
    run = CliRunner().invoke(app, ["bench", "gemm", *problem, *peer, "--against", str(saved)])
    assert run.exit_code == 1
    assert "SLOWER: " in run.stderr
    pins(run.stderr)
    times += [9.0, 9.0, 9.0]
    peer = ("--peer", "tests.suites.test_suites:twice")
    run = CliRunner().invoke(app, ["bench", "gemm", *problem, *peer, "--against", str(saved)])
    assert run.exit_code == 1
    assert "WRONG: " in run.stderr
    assert "SLOWER" not in run.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ("--peer", "MKL"),
            "a peer must be one of cuBLAS, QuACK, DeepGEMM, or package.module:name, got 'MKL'",
        ),
        (("--peer", "no.such:peer"), "the peer 'no.such:peer' can't be imported"),
        (("--peer", "tests.suites.test_suites:none"), "can't be imported"),
        (("--against", "/no/such.json"), "there is no file /no/such.json for --against"),
        (("--json", "/no/such/folder.json"), "there is no folder /no/such for --json"),
        (("--picture", "roof.gif"), "--picture takes a file that ends in .svg, .png or .pdf"),
        (("--against", "pyproject.toml"), "pyproject.toml must be a report that"),
    ],
)
def test_what_can_not_be_measured_is_refused(monkeypatch, given, message):
    pytest.importorskip("torch")
    from cutepy.suites import measurement

    monkeypatch.setattr(measurement, "has_hopper", lambda: True)
    run = CliRunner().invoke(app, ["bench", "gemm", "--suite", "squares", *given])
    assert run.exit_code == 2
    assert message in " ".join(run.output.split())


def test_peers_are_found_by_name_and_from_outside(monkeypatch):
    import importlib.metadata

    from cutepy.suites import peers

    point = importlib.metadata.EntryPoint("ours", "tests.suites.test_suites:twice", peers.GROUP)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point] if group == peers.GROUP else [])
    assert peers.find("cublas") == ("cuBLAS", peers.cublas)
    name, found = peers.find("ours")
    assert (name, found.__name__) == ("ours", "twice")
    name, found = peers.find("tests.suites.test_suites:nobody")
    assert (name, found.__name__) == ("nobody", "nobody")
