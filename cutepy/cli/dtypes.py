"""Element types that `bench` and `tune` accept."""

BENCH_DTYPES = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float32", "int8")
"""Types by torch's names; float32 is multiplied as tf32."""
