"""PTX that the installed Triton writes is loaded and runs, whatever version of the PTX ISA it names."""

import re
import warnings

import numpy as np
import pytest

from cutepy import load_ptx

pytestmark = pytest.mark.integration
BLOCK = 128


def add(x, y, z, n, BLOCK):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # noqa: F821  Triton looks it up here
    m = i < n
    tl.store(z + i, tl.load(x + i, m) + tl.load(y + i, m), m)  # noqa: F821


def test_what_triton_writes_is_loaded_and_runs(tmp_path, monkeypatch):
    triton = pytest.importorskip("triton", reason="needs triton: pip install 'cutepy[triton]'")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(globals(), "tl", triton.language)
    add.__annotations__["BLOCK"] = triton.language.constexpr
    types = dict.fromkeys("xyz", "*fp32") | {"n": "i32", "BLOCK": "constexpr"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = ASTSource(fn=triton.jit(add), signature=types, constexprs={(4,): BLOCK})
        ptx = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
    n = 200
    x, y, z = np.arange(n, dtype=np.float32), np.full(n, 3, np.float32), np.zeros(n, np.float32)
    for version in (r"\g<0>", ".version 9.9"):
        module = load_ptx(re.sub(r"\.version [\d.]+", version, ptx))
        parameters = module.kernels["add"]
        args = (x, y, z, n, *(None for _ in parameters[4:]))
        z[:] = 0
        module.launch("add", -(-n // BLOCK), BLOCK, args)
        assert (z == x + 3).all()
