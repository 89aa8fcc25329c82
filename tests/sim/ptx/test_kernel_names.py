"""Kernels' names are short where people read them, and stay different within a module."""

import re

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402

import cutepy  # noqa: E402
from cutepy.sim.ptx.kernel_names import readable  # noqa: E402


@cute.kernel
def add(a: cute.Tensor, n: cutlass.Constexpr):
    a[cute.arch.thread_idx()[0]] += n


class Adder:
    @cute.kernel
    def run_it(self, a: cute.Tensor, layout: cute.Layout):
        a[layout(cute.arch.thread_idx()[0])] += 1


@cute.kernel
def chosen(a: cute.Tensor):
    a[cute.arch.thread_idx()[0]] += 1


@cute.jit
def several(a: cute.Tensor):
    for n in cutlass.range_constexpr(2):
        add(a, n).launch(grid=(1, 1, 1), block=(32, 1, 1))
    Adder().run_it(a, cute.make_layout(32)).launch(grid=(1, 1, 1), block=(32, 1, 1))
    chosen.set_name_prefix("mine", remove_cutlass_symbol=True, keep_mangled_name=False)
    chosen(a).launch(grid=(1, 1, 1), block=(32, 1, 1))


def test_names_are_the_functions_or_the_chosen_ones():
    with cutepy.simulate() as run:
        several(np.zeros(32, np.int32))
    names = [launch.name for launch in run.launches]
    assert names[:2] == ["add_0", "add_1"]
    assert re.fullmatch(r"run_it\w*Adder_2", names[2])
    assert names[3] == "mine_3"
    assert str(run.launches[0]).startswith("Launch(add_0, grid=(1, 1, 1), block=(32, 1, 1), smem_bytes=0)")
    assert len({launch.kernel for launch in run.launches}) == 4


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("kernel_cutlass_add_tensorptrf32gmemo641_1_0", "add_0"),
        ("kernel_cutlass_add_tensor00o1110_12", "add_12"),
        ("pre_kernel_cutlass_add_tensorptrf32gmemo641_0", "pre_0"),
        ("kernel_cutlass_" + 150 * "x" + "_3", 57 * "x" + "..._3"),
        (100 * "y", 57 * "y" + "..."),
        ("kernel_cutlass_sum_rows_None_2", "sum_rows_2"),
        ("kernel_cutlass_elected_of_32_0", "elected_of_32_0"),
        ("kernel_cutlass_sm_90_1_0", "sm_90_1_0"),
        ("kernel_cutlass_tile_64x64_tensorptrf32gmemo641_8_3", "tile_64x64_3"),
        ("_matmul_kernel_0", "_matmul_kernel_0"),
        ("k", "k"),
    ],
)
def test_readable(kernel, name):
    assert readable(kernel) == name
