"""`cutepy tune`: what is asked for, and what is shown."""

import pytest
from typer.testing import CliRunner

from cutepy.cli.app import app
from cutepy.kernels.attention.tuned import Problem
from cutepy.kernels.gemm import GemmSignature, tuned
from cutepy.suites import attention_tuning, gemm_tuning
from cutepy.suites.gemm_problems import GemmProblem
from cutepy.tune.winners import Winner, folder, keep
from tests.messages import pins

HALF = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(tmp_path))


def run(*arguments):
    return CliRunner().invoke(app, ["tune", *arguments])


@pytest.fixture
def asked(monkeypatch):
    """Take what would be tuned."""
    found = []

    def take(problems, **settings):
        settings.pop("note")("heats", 1, 2)
        found.append((problems, settings))
        return 0

    monkeypatch.setattr(gemm_tuning, "run_tuning", take)
    return found


def test_problems_are_taken_with_their_types_and_majors_each_once(asked):
    assert (
        run(
            "gemm", "512x256x64", "float16:512x256x64", "bfloat16:3x64x32x16:mn,k", "--again", "--prune", "1.3"
        ).exit_code
        == 0
    )
    ((problems, settings),) = asked
    assert problems == [GemmProblem(512, 256, 64, "float16"), GemmProblem(64, 32, 16, "bfloat16", (3,), "mn", "k")]
    assert settings == {"most": 100, "resume": False, "prune": 1.3}


def test_a_problem_tells_what_its_operands_are_aligned_to(asked):
    assert run("gemm", "16x64x4098", "16x64x4100", "16x64x4104", "float8_e4m3fn:16x64x4100").exit_code == 0
    ((problems, _),) = asked
    described = [tuned.signature_of(gemm_tuning.settings_of(problem)) for problem in problems]
    assert [(each.a_align, each.b_align) for each in described] == [(4, 4), (8, 8), (16, 16), (4, 4)]
    turned = GemmProblem(20, 64, 4098, "bfloat16", (), "mn", "k")
    signature = tuned.signature_of(gemm_tuning.settings_of(turned))
    assert (signature.a_align, signature.b_align) == (8, 4)


def test_suites_and_random_problems_are_taken_too(asked):
    assert run("gemm", "--suite", "squares", "--sweep", "3", "--seed", "1", "--candidates", "7").exit_code == 0
    ((problems, settings),) = asked
    assert len(problems) == 5 + 3
    assert settings == {"most": 7, "resume": True, "prune": None}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "name a product, such as 4096x4096x4096"),
        (("512x512",), "a product is written [DTYPE:][Lx]MxNxK[:MAJORS]"),
        (("512x512x512:k",), "a product is written"),
        (("int16:512x512x512",), "the type must be one of float16, bfloat16"),
        (("0x512x512",), "extents must be positive"),
        (("64x64x13",), "the contiguous extent of A must be a multiple of 2, 4 bytes"),
        (("64x61x16:k,mn",), "the contiguous extent of B must be a multiple of 2"),
        (("float32:64x64x14",), "the contiguous extent of A must be a multiple of 4, 16 bytes"),
        (("64x60x16",), "N must be a multiple of 8"),
        (("float8_e5m2:64x64x64:mn,k",), "A must be K-major for 8-bit types"),
        (("float32:64x66x16",), "N must be a multiple of 4"),
        (("--suite", "round"), "--suite must be one of squares"),
    ],
)
def test_what_can_not_be_tuned_is_refused(asked, given, message):
    result = run("gemm", *given)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert not asked


def test_without_a_gpu_nothing_is_tuned():
    result = run("gemm", "512x512x512")
    assert result.exit_code == 2
    pins(result.output)


def test_winners_are_listed_and_cleared():
    problem = tuned.problem_of(HALF, 512, 256, 64)
    keep("NVIDIA H200", tuned.NAME, [Winner(problem, tuned.default(problem), 5.0, 5.5, 100)])
    (folder("NVIDIA H200") / "gemm.0.heats").write_text("")
    listed = run("list").output
    pins(listed)
    assert "nvidia-h200" in listed
    assert "1.10" in listed
    assert run("clear").output == "removed 2 files\n"
    pins(run("list").output)


@pytest.fixture
def attention_asked(monkeypatch):
    """Take what attention would be tuned."""
    found = []

    def take(problems, **options):
        options.pop("note")("heats", 1, 2)
        found.append((problems, options))
        return 0

    monkeypatch.setattr(attention_tuning, "run_tuning", take)
    return found


def test_problems_of_attention_are_taken_each_once(attention_asked):
    given = "4x4096x16x128", "forward:4x4096x16x128", "backward:float16:1x512x32/8x64:causal"
    assert run("attention", *given, "--again", "--candidates", "7").exit_code == 0
    ((problems, options),) = attention_asked
    assert problems == [
        Problem("forward", "bfloat16", 4, 4096, 4096, 16, 16, 128, 128),
        Problem("backward", "float16", 1, 512, 512, 32, 8, 64, 64, None, 0),
    ]
    assert options == {"most": 7, "resume": False}
    written = [attention_tuning.text_of(problem) for problem in problems]
    assert run("attention", *written).exit_code == 0
    assert attention_asked[1][0] == problems


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "name a problem of attention, such as 4x4096x16x128:causal"),
        (("4x4096x128",), "a problem of attention is written"),
        (("sideways:forward:4x4096x16x128",), "a problem of attention is written"),
        (("float32:4x4096x16x128",), "the type must be one of float16, bfloat16, float8_e4m3fn"),
        (("backward:float8_e4m3fn:4x4096x16x128",), "float8_e4m3fn has no gradients"),
        (("4x0x16x128",), "extents must be positive"),
        (("4x64x16/5x128",), "the heads of q must be a multiple of those of k and v, got 16 and 5"),
        (("4x64x16x72",), "rows must have a multiple of 16 elements up to 256, got 72"),
    ],
)
def test_attention_that_can_not_be_tuned_is_refused(attention_asked, given, message):
    result = run("attention", *given)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert not attention_asked


def test_candidates_are_listed_without_a_gpu(attention_asked):
    result = run("attention", "backward:4x4096x16x128", "--dry", "--candidates", "3")
    assert result.exit_code == 0
    first, *lines = result.output.splitlines()
    assert first == "backward:bfloat16:4x4096x16x128: 3 candidates"
    assert lines[0] == "  tile_k=128 tile_q=80 stages=2 is_persistent=True (without tuning)"
    assert 3 <= len(lines) <= 4
    assert not attention_asked


def test_without_a_gpu_no_attention_is_tuned():
    result = run("attention", "4x64x16x64")
    assert result.exit_code == 2
    assert "cutepy tune attention needs a Hopper GPU" in result.output
