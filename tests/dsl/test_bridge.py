"""The bridge to the CuTe DSL: round trips while it traces, and what it refuses."""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cutepy.layouts import ComposedLayout, Layout, ScaledBasis, SmemPtr, Swizzle, parse, to_text
from tests.messages import pins, refuses

pytestmark = pytest.mark.dsl

cutlass = pytest.importorskip("cutlass")
cute = pytest.importorskip("cutlass.cute")

from cutepy.dsl import from_cute, to_cute  # noqa: E402
from cutepy.dsl.traced_names import SmemAllocator  # noqa: E402

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "CUTE_DSL_ARCH": "sm_90a"}


def traced(body: Any) -> Any:
    """Call `body` while the DSL traces a host function; return its result or raise its error."""
    outcome: list[Any] = []

    def guarded() -> None:
        try:
            outcome.append((body(), None))
        except Exception as error:
            # Keep no frame of this trace: pytest would print its DSL values after they are dead, and crash.
            error.__cause__ = error.__context__ = None
            outcome.append((None, error.with_traceback(None)))

    @cute.jit
    def host():
        guarded()

    cute.compile(host, options="--gpu-arch=sm_90a")
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


def shape_and_stride(rng: random.Random, depth: int, bases: bool) -> tuple[Any, Any]:
    """Draw a shape and a congruent stride."""
    if depth and rng.random() < 0.5:
        modes = [shape_and_stride(rng, depth - 1, bases) for _ in range(rng.randint(1, 4))]
        return tuple(s for s, _ in modes), tuple(d for _, d in modes)
    stride: Any = rng.choice([0, 1, 2, 7, 64, -1, -8, 2**40])
    if bases and rng.random() < 0.7:
        stride = ScaledBasis(rng.choice([1, 3, -2]), tuple(rng.randint(0, 2) for _ in range(rng.randint(1, 3))))
    return rng.choice([1, 2, 3, 8, 128]), stride


def some_values(count: int) -> list[Any]:
    """Draw layouts, scaled-basis layouts, composed layouts and swizzles that the DSL can hold."""
    rng = random.Random(0)
    values: list[Any] = []
    for _ in range(count):
        plain = Layout(*shape_and_stride(rng, 3, bases=False))
        bits, base = rng.randint(1, 5), rng.randint(0, 12)
        swizzle = Swizzle(bits, base, rng.choice([-1, 1]) * rng.randint(bits, bits + 5))
        composed = ComposedLayout(swizzle, rng.choice([0, 5, -3, 1024]), plain)
        values += [plain, swizzle, composed, Layout(*shape_and_stride(rng, 3, bases=True))]
        values.append(ComposedLayout(composed, rng.choice([0, 4]), Layout(*shape_and_stride(rng, 2, bases=False))))
        values.append(ComposedLayout(plain, 2, Layout(*shape_and_stride(rng, 2, bases=False))))
    return values


FIXED = [
    "4:1",
    "(4):(2)",
    "():()",
    "(4,()):(1,())",
    "(()):(())",
    "(2,8589934592):(8589934592,1)",
    "(4,2):(-1,0)",
    "(8,(2,2)):(1@0,(1@0@1,0))",
    "Sw<3,4,3>",
    "Sw<3,4,-3>",
    "Sw<3,10,-12>",  # the DSL prints no more than 8 characters of it
    "Sw<3,4,3> o 0 o ((64,2),(8,8),(1,3)):((1,512),(64,1024),(0,8192))",
    "Sw<3,0,-3> o -5 o (8,8):(1,8)",
    "(8,8):(1,8) o (1,2) o (4,4):(1@0,1@1)",
    "(8,8):(8,1) o 0 o 64:1",
    "(Sw<3,4,3> o 0 o (8,8):(8,1)) o 4 o (2,2):(1,2)",
    "1@0",
    "-3@2@1@0",
    "<8,_,(2,2):(1,4)>",
    "((1,2),3)",
    "7",
    "_",
]


def test_round_trip_in_a_host_function() -> None:
    values = [parse(text) for text in FIXED] + some_values(100)
    assert len(values) > 500
    again = traced(lambda: [from_cute(to_cute(value)) for value in values])
    for value, result in zip(values, again, strict=True):
        assert result == value, f"{to_text(value)} came back as {to_text(result)}"


def test_the_dsl_prints_what_we_print() -> None:
    layouts = [value for value in some_values(60) if isinstance(value, Layout)]
    printed = traced(lambda: [str(to_cute(layout)) for layout in layouts])
    assert printed == [to_text(layout) for layout in layouts]


def test_both_compute_the_same_function() -> None:
    layouts = [parse(text) for text in FIXED if " o " in text and "@" not in text]

    def evaluate() -> list[list[Any]]:
        return [[to_cute(layout)(i) for i in range(16)] for layout in layouts]

    assert traced(evaluate) == [[layout(i) for i in range(16)] for layout in layouts]


def test_inside_a_kernel() -> None:
    seen: list[Any] = []
    layout = parse("Sw<3,4,3> o 0 o (64,8):(1,64)")

    def body() -> None:
        seen.append(from_cute(to_cute(layout)))
        smem = SmemAllocator()
        carrier = to_cute(layout)
        tensor = smem.allocate_tensor(cutlass.Float16, carrier.outer, 1024, carrier.inner)
        seen.append(from_cute(tensor.layout))
        seen.append(parse(str(tensor)))

    @cute.kernel
    def kernel():
        body()

    @cute.jit
    def host():
        kernel().launch(grid=(1, 1, 1), block=(1, 1, 1))

    cute.compile(host, options="--gpu-arch=sm_90a")
    assert seen == [layout, layout.layoutA, parse("Sw<3,4,3> o smem_ptr[16b](unset) o (64,8):(1,64)")]


def test_reads_what_the_dsl_builds() -> None:
    def body() -> list[Any]:
        divided = cute.zipped_divide(cute.make_layout((8, 8)), (2, 4))
        identity = cute.make_identity_layout((8, (2, 2)))
        return [from_cute(x) for x in (divided, identity, 3 * cute.E([1, 0]), (cute.E(0), [2, None]), identity.shape)]

    assert list(map(to_text, traced(body))) == [
        "((2,4),(4,2)):((1,8),(2,32))",
        "(8,(2,2)):(1@0,(1@0@1,1@1@1))",
        "3@0@1",
        "<1@0,<2,_>>",
        "(8,(2,2))",
    ]


def test_prints_of_the_dsl_parse() -> None:
    texts = [
        text for text in FIXED if ("o" in text or "Sw" in text or ":" in text) and "10" not in text and text[0] != "<"
    ]
    printed = traced(lambda: [str(to_cute(parse(text))) for text in texts])
    for text, dsl in zip(texts, printed, strict=True):
        ours, theirs = parse(text), parse(dsl)
        if text.startswith("(Sw"):  # the DSL leaves out the inner brackets; the function is the same
            assert [theirs(i) for i in range(4)] == [ours(i) for i in range(4)]
        else:
            assert theirs == ours


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("Sw<0,2,5>", "Sw<0,4,3>"),
        ("Sw<3,4,3> o 1 o Sw<1,0,1> o 2 o 8:1", "(Sw<3,4,3> o 1 o Sw<1,0,1>) o 2 o 8:1"),
        ("Sw<3,4,3> o 1 o (4,4):(1,8) o 2 o 8:1", "(Sw<3,4,3> o 1 o (4,4):(1,8)) o 2 o 8:1"),
        ("Sw<3,4,3> o smem_ptr[16b](unset) o (64,8):(1,64)", "Sw<3,4,3> o 0 o (64,8):(1,64)"),
    ],
)
def test_forms_that_the_dsl_writes_otherwise(text: str, becomes: str) -> None:
    if "o Sw" in text:
        with refuses(ValueError):
            traced(lambda: to_cute(parse(text)))
    else:
        assert to_text(traced(lambda: from_cute(to_cute(parse(text))))) == becomes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0:1", "the DSL cannot hold 0:1"),
        ("(4,0):(1,4)", "strictly positive"),
        ("8:9223372036854775808", "9223372036854775808 is beyond 64 bits"),
        ("8:9223372036854775808@0", "is beyond 64 bits"),
        ("8:-9223372036854775809", "-9223372036854775809 is beyond 64 bits"),
        ("Sw<3,4,3> o 0 o (8,8):(1@0,1@1)", "the DSL cannot hold Sw<3,4,3> o 0 o"),
        ("8:1 o (0,0) o (8,8):(1@0,1@1)", "the DSL cannot hold 8:1 o"),
        ("Sw<3,4,3> o smem_ptr[16b](0x400) o 8:1", "an address belongs to a pointer"),
    ],
)
def test_what_the_dsl_cannot_hold(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace(")", r"\)")):
        traced(lambda: to_cute(parse(text)))


@pytest.mark.parametrize("value", ["8:1", 1.5, True, [1, 2], SmemPtr(16), object()])
def test_to_cute_takes_nothing_else(value: object) -> None:
    with refuses(TypeError):
        traced(lambda: to_cute(value))


def test_run_time_values_are_named() -> None:
    messages: list[str] = []

    def check(n: Any) -> None:
        for value in (
            cute.make_layout((n, 4)),
            cute.make_layout((4, 4), stride=(1, n)),
            cute.make_composed_layout(cute.make_swizzle(3, 4, 3), n, cute.make_layout(8)),
            (4, n),
        ):
            with refuses(ValueError) as caught:
                from_cute(value)
            messages.append(str(caught.value))

    @cute.jit
    def host(n: cutlass.Int32):
        check(n)

    cute.compile(host, cutlass.Int32(4), options="--gpu-arch=sm_90a")
    for message, culprit in zip(
        messages, ["(?,4):(1,?)", "(4,4):(1,?)", "S<3,4,3> o ? o 8:1", "Int32(?)"], strict=True
    ):
        assert culprit in message


def test_from_cute_takes_nothing_else() -> None:
    def refused() -> list[str]:
        messages = []
        function_inside = cute.make_composed_layout(lambda i: i, 0, cute.make_layout(8))
        tensor = cute.make_identity_tensor((8, 8))
        for value in (function_inside, tensor, "8:1", 1.5, True):
            with pytest.raises(TypeError) as caught:
                from_cute(value)
            messages.append(str(caught.value))
        return messages

    for message in traced(refused):
        pins(message)


@pytest.mark.parametrize("value", [Layout(4), Swizzle(3, 4, 3), ScaledBasis(1, (0,))], ids=str)
def test_to_cute_outside_a_trace(value: Any) -> None:
    with refuses(RuntimeError):
        to_cute(value)


DEAD_VALUES = """
import os

from cutlass import cute
from cutepy.dsl import from_cute

kept = []

def try_all():
    for value in kept:
        try:
            from_cute(value)
        except RuntimeError as error:
            print(error, flush=True)

@cute.jit
def first():
    swizzle, layout = cute.make_swizzle(3, 4, 3), cute.make_layout((8, 8))
    kept.extend([swizzle, layout, cute.make_composed_layout(swizzle, 0, layout)])

@cute.jit
def second():
    try_all()

cute.compile(first)
try_all()
cute.compile(second)
os._exit(0)  # the destructors of dead values crash too
"""


def test_dead_values_are_refused_untouched(tmp_path: Path) -> None:
    script = tmp_path / "dead_values.py"  # in a process of its own: touching a dead value kills it
    script.write_text(DEAD_VALUES)
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=ROOT, env=ENVIRONMENT)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert len(lines) == 6, run.stdout
    pins(run.stdout)


def test_integers_need_no_trace() -> None:
    assert to_cute((4, (2, None))) == (4, (2, None))
    assert from_cute((4, [2, None])) == (4, (2, None))


def test_importing_the_package_loads_no_dsl() -> None:
    code = "import sys, cutepy.dsl; print([m for m in ('cutlass', 'torch', 'numpy') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert run.stdout.strip() == "[]"


def test_every_public_name_of_the_package_exists() -> None:
    import cutepy.dsl

    assert cutepy.dsl.__all__ == sorted(cutepy.dsl.__all__)
    for name in cutepy.dsl.__all__:
        assert getattr(cutepy.dsl, name).__module__.startswith("cutepy.dsl.")
        assert name in dir(cutepy.dsl)
    with refuses(AttributeError):
        _ = cutepy.dsl.no_such_name


def test_a_missing_name_tells_the_versions() -> None:
    from cutepy.dsl.version import require

    with refuses(ImportError):
        require("cutlass.cute", "no_such_name")
    with refuses(ImportError):
        require("cutlass.no_such_module")
