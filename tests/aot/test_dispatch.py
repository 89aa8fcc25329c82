"""Dispatch of an exported library: the kernel and the stream of a launch."""

import pytest

from tests.aot.building import STAND_IN, build_c_library, built_once, call_in_python, run

pytestmark = [pytest.mark.integration, pytest.mark.dsl]


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    from cutepy import aot
    from tests.aot.dispatched import described

    return built_once(tmp_path_factory, "dispatched", lambda folder: aot.c(described(), folder / "tree")) / "tree"


@pytest.fixture(scope="module")
def library(tree, tmp_path_factory):
    folder = built_once(
        tmp_path_factory, "dispatching", lambda folder: build_c_library(tree, "chosen", STAND_IN, folder)
    )
    return folder / "libchosen.so"


@pytest.fixture(scope="module")
def launched(library, driver):
    """Call an operation with x of some shape, and out of it; gives the error, or the threads and the stream."""

    def call(op, *cases):
        code = f"""
for case in {cases!r}:
    shape, address = case
    error = C.call("chosen.{op}", C.tensor(shape, "float32", address=address), C.tensor(shape, "float32"))
    print(repr(error.splitlines()[0] if error else (C.last()[1][0], C.last()[4])))
"""
        return [eval(line) for line in call_in_python(code, driver, library).splitlines()]

    return call


STREAM = 0x57
VIEWS = """
#include <cstdio>
#include "strides_kernels.h"
using namespace chosen;
int main() {
  const int64_t shape[] = {1, 10}, strides[] = {3, 1};
  View views[kMaxTensors];
  views[0].set("x", {2, 32, 1}, 2, shape, strides);
  views[1].set("out", {2, 32, 1}, 2, shape, nullptr);
  const Variant& variant = choose(kOp_strides, views, nullptr, false, 0);
  printf("%d %d", variant.kernel == kKernels_strides, static_cast<int>(views[0].strides[0]));
}
"""


@pytest.mark.parametrize(
    ("op", "chosen"),
    [
        # The dearer one is chosen where callers don't meet what the others require; of equal costs the first.
        ("by_requires", {((10,), 4096): 64, ((100,), 4096): 96, ((1000,), 4096): 96}),
        ("by_specs", {((10,), 4100): 64, ((10,), 4096): 128, ((12,), 4100): 96, ((12,), 4096): 96}),
        # What n is a multiple of in one tensor and in another, it is of both: 12, not 6.
        ("by_both", {((12,), 4096): 96, ((6,), 4096): 64, ((4,), 4096): 64, ((24,), 4096): 96}),
        ("ties", {((10,), 4100): 96, ((10,), 4096): 96, ((501,), 4096): 128, ((501,), 4100): 96}),
        ("strides", {((1, 10), 4096): 64, ((2, 64), 4096): 64, ((2, 10), 4096): 96}),
    ],
)
def test_of_the_kernels_that_fit_the_one_of_least_cost_is_chosen(launched, op, chosen):
    assert launched(op, *chosen) == [(threads, STREAM) for threads in chosen.values()]


def test_strides_of_extents_of_one_are_what_the_chosen_kernel_takes(tree, library, driver, tmp_path):
    """Those that a dearer kernel, compared later, would take must not reach it."""
    (tmp_path / "views.cpp").write_text(VIEWS)
    parts = [tmp_path / "views.cpp", *(library.parent / name for name in ("dispatch.o", "runtime.o"))]
    objects = sorted((tree / "objects").glob("*.o"))
    run("g++", "-O0", "-std=c++17", f"-I{tree}/src", "-o", tmp_path / "views", *parts, *objects, "-ldl")
    assert run(tmp_path / "views", LD_LIBRARY_PATH=str(driver.parent)) == "1 64"


def test_what_was_required_is_told_if_no_kernel_is_left(launched):
    assert launched("none", ((100,), 4096), ((8,), 4096), ((60,), 4096), ((7,), 4096)) == [
        (64, STREAM),
        (96, STREAM),
        "none: must have n >= 100, got n = 60",
        "none: must have n >= 100, got n = 7",
    ]


def test_launches_on_no_stream_go_to_the_callers(launched):
    assert launched("no_stream", ((10,), 4096)) == [(32, STREAM)]
