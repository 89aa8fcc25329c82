"""One set of operations, compiled once and exported in both forms."""

import dataclasses
import functools

import pytest

from tests.aot.building import EXAMPLE, STAND_IN, build_c_library, build_driver, built_once, cuda_headers

NAME = "example_ops"


def described():
    """Describe the example, a kernel that counts, and the GEMM: two tiles, and one with what else there may be."""
    from cutepy import aot
    from tests.aot.dispatched import counting

    example = aot.load(f"{EXAMPLE}/my_export.py:EXTENSION")
    plain = aot.gemm_extension(dtypes=["float16"], tiles=[(128, 128), (64, 32)]).ops[0]
    more = aot.gemm_extension(
        dtypes=["float16"], tiles=[(64, 32)], c=True, bias=True, activations=["relu"], batch_modes=[0, 1]
    ).ops[0]
    kinds = ("float16_kk_c_bias_relu", "float16_kk_batch1_bias")
    some = [v for v in more.variants if v.label in [f"{kind}_64x32x128_cluster1x1" for kind in kinds]]
    gemm = dataclasses.replace(more, variants=[*plain.variants, *some])
    return aot.Extension(
        NAME, [*example.ops, counting(), gemm], version=example.version, description=example.description
    )


@pytest.fixture(scope="session")
def trees(tmp_path_factory):
    """Give the exported folders: (extension, C library)."""
    from cutepy import aot
    from cutepy.aot import tree
    from cutepy.aot.objects import compile_variants

    def export(folder):
        extension = described()
        compiled = functools.cache(lambda *_: compile_variants(extension))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tree, "compile_variants", lambda *_: compiled())
            aot.extension(extension, folder / "extension")
            aot.c(extension, folder / "c")

    folder = built_once(tmp_path_factory, "exported", export)
    return folder / "extension", folder / "c"


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    return built_once(tmp_path_factory, "driver", build_driver) / "libcuda.so.1"


@pytest.fixture(scope="session")
def libraries(trees, driver, tmp_path_factory):
    """Give the driver and the C library, compiled with our few declarations of cuda.h."""
    folder = built_once(
        tmp_path_factory, "library with stand-in", lambda folder: build_c_library(trees[1], NAME, STAND_IN, folder)
    )
    return driver, folder / f"lib{NAME}.so"


@pytest.fixture(scope="session")
def libraries_with_the_toolkit(trees, driver, tmp_path_factory):
    """Give the driver and the C library, compiled with NVIDIA's headers and with optimisation, which warns of more."""
    headers = cuda_headers()
    if headers is None:
        pytest.skip("needs CUDA's headers")
    folder = built_once(
        tmp_path_factory, "library with toolkit", lambda folder: build_c_library(trees[1], NAME, headers, folder, "-O1")
    )
    return driver, folder / f"lib{NAME}.so"
