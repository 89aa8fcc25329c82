"""`cutepy tune`: what is asked for, and what is shown."""

import pytest
from typer.testing import CliRunner

from cutepy.cli.app import app
from cutepy.kernels.gemm import GemmSignature, tuned
from cutepy.suites import gemm_tuning
from cutepy.suites.gemm_problems import GemmProblem
from cutepy.tune.winners import Winner, folder, keep

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
    assert run("gemm", "512x256x64", "float16:512x256x64", "bfloat16:3x64x32x16:mn,k", "--again").exit_code == 0
    ((problems, settings),) = asked
    assert problems == [GemmProblem(512, 256, 64, "float16"), GemmProblem(64, 32, 16, "bfloat16", (3,), "mn", "k")]
    assert settings == {"most": 100, "resume": False}


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
    assert settings == {"most": 7, "resume": True}


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
    assert "cutepy tune gemm needs a Hopper GPU" in result.output


def test_winners_are_listed_and_cleared():
    problem = tuned.problem_of(HALF, 512, 256, 64)
    keep("NVIDIA H200", tuned.NAME, [Winner(problem, tuned.default(problem), 5.0, 5.5, 100)])
    (folder("NVIDIA H200") / "gemm.0.heats").write_text("")
    listed = run("list").output
    assert "1 tuned problem, in" in listed
    assert "nvidia-h200" in listed
    assert "1.10" in listed
    assert run("clear").output == "removed 2 files\n"
    assert run("list").output.startswith("0 tuned problems")
