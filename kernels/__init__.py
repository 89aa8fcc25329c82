"""Kernels on the CuTe DSL, one folder per family, imported as `cutepy.kernels`.

`import cutepy.kernels` loads neither torch nor cutlass; `import cutepy.kernels.gemm` and its like do when they must.
"""

if __name__ != "cutepy.kernels":
    raise ImportError(
        f"this package is cutepy.kernels, got an import as {__name__!r}: write `import cutepy.kernels` "
        "(the folder kernels/ is joined to the package by the link cutepy/kernels)"
    )
