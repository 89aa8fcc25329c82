"""An export file as users write it: the kernels of a library."""

import my_kernels

from cutepy import TensorSpec, aot

half, brain, single = (
    TensorSpec(dtype, ("n",), align=size) for dtype, size in {"float16": 2, "bfloat16": 2, "float32": 4}.items()
)

scale = aot.Op(
    "scale",
    [
        aot.Variant(
            my_kernels.scale,
            {"x": half, "out": half, "alpha": 1.0, "threads": 128},
            label="half",
        ),
        aot.Variant(
            my_kernels.scale,
            {"x": brain, "out": brain, "alpha": 1.0, "threads": 128},
            label="brain",
        ),
        # Of two that take the same tensors the cheaper one is chosen.
        aot.Variant(
            my_kernels.scale,
            {"x": single, "out": single, "alpha": 1.0, "threads": 64},
            cost=lambda n: n > 4096,
            label="single_small",
        ),
        aot.Variant(
            my_kernels.scale,
            {"x": single, "out": single, "alpha": 1.0, "threads": 256},
            cost=lambda n: n <= 4096,
            label="single_large",
        ),
    ],
    results=["out"],  # made and returned; the other tensors are arguments
    doc="Multiply a vector by a number.",
    reference="x.float() * alpha",  # what the exported test compares with
    test_extents=[{"n": 1000}, {"n": 1}],
    test_numbers={"alpha": 2.5},
)

add_to = aot.Op(
    "add_to",
    [
        aot.Variant(
            my_kernels.add_to,
            {
                "y": TensorSpec("float32", ("m", "n"), strides=("ldy", 1), align=4),
                "x": TensorSpec("float32", ("m", "n"), align=4),
            },
            requires=[lambda ldy, n: ldy >= n],
        )
    ],
    mutates=["y"],  # an argument that is written
    doc="Add x to y in place.",
    test_extents=[{"m": 5, "n": 300}],
)

EXTENSION = aot.Extension("example_ops", [scale, add_to], version="1.2.3", description="Two small operations.")
