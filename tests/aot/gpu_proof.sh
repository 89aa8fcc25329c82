#!/usr/bin/env bash
# Prove an export on a Hopper GPU: build it, run its own tests, compare with the in-process kernel bit for bit, time it
# beside torch.mm, install its wheel into a fresh environment, and build and run the C examples. Takes three minutes.
#   usage: tests/aot/gpu_proof.sh [FOLDER]
# Needs python3 with torch, pytest, setuptools and cutepy's dependencies, CUDA's headers, a C++ compiler and CMake.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
work=$(realpath "${1:-$(mktemp -d)}")
python=${PYTHON:-python3}
others=${PYTHONPATH:-}
export PYTHONPATH=$here${others:+:$others} PYTHONDONTWRITEBYTECODE=1
cd "$here"
step() { printf '\n== %s (%ss)\n' "$1" "$SECONDS"; }

step "export"
"$python" - "$work" <<'PYTHON'
import sys

from cutepy import aot

work = sys.argv[1]
aot.extension(aot.gemm_extension("proof_gemm", dtypes=["float16"]), f"{work}/extension", overwrite=True)
few = aot.gemm_extension("proof_c", dtypes=["bfloat16"], tiles=[(128, 256), (64, 32)])
aot.c(few, f"{work}/c", overwrite=True)
everything = {"c": True, "bias": True, "activations": ["gelu_tanh"], "batch_modes": [0, 1]}
full = aot.gemm_extension("proof_full", dtypes=["bfloat16"], tiles=[(64, 128)], **everything)
aot.extension(full, f"{work}/full", overwrite=True)
example = aot.load("tests/aot/example/my_export.py:EXTENSION")
aot.c(example, f"{work}/example_c", overwrite=True)
aot.extension(example, f"{work}/example", overwrite=True)
PYTHON
rm -rf "$work/clean"
cp -r "$work/extension" "$work/clean" # nothing that a build leaves behind gets into the wheel's

step "build and install from a clean copy of the tree, without network"
install() { "$python" -m pip install -q --no-build-isolation --no-deps --no-index --upgrade --target "$work/site" "$1"; }
install "$work/extension"
install "$work/example"
install "$work/full"

step "their own tests, without cutepy"
for tree in extension example full; do
  (cd "$work/$tree/tests" && env PYTHONPATH="$work/site${others:+:$others}" "$python" -P -m pytest -q -p no:cacheprovider .)
done

step "no library of the DSL is needed"
ldd "$work"/site/proof_gemm/_C.so | tee "$work/ldd.txt"
if grep -iE 'cute|tvm|mlir|cutlass' "$work/ldd.txt"; then
  echo "error: the library needs the DSL's" >&2
  exit 1
fi

step "results and times beside the in-process kernel and torch.mm"
PYTHONPATH="$work/site:$PYTHONPATH" "$python" "$here/tests/aot/gpu_proof.py"

step "wheel in a fresh environment"
"$python" -m pip wheel -q --no-build-isolation --no-deps --no-index -w "$work/wheels" "$work/clean"
ls -l "$work/wheels"
"$python" -m venv --without-pip "$work/venv"
site=$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$python" -m pip install -q --no-deps --no-index --target "$site" "$work"/wheels/*.whl
# torch and what it needs come from the environment that has them; cutepy does not.
"$python" -c 'import sys; print(*[p for p in sys.path if p.endswith("-packages")], sep="\n")' >"$site/torch.pth"
(cd "$work" && env -u PYTHONPATH "$work/venv/bin/python" - <<'PYTHON'
import sys

import torch

import proof_gemm

a, b = (torch.randn(512, 256, device="cuda", dtype=torch.float16) for _ in range(2))
torch.testing.assert_close(proof_gemm.gemm(a, b), a @ b.t(), rtol=2e-3, atol=1e-2)
assert not [name for name in sys.modules if name.split(".")[0] in ("cutepy", "cutlass")]
print("the wheel's", proof_gemm.__file__, "is right")
PYTHON
)

step "C examples"
for tree in c example_c; do
  cmake -S "$work/$tree" -B "$work/$tree/build" -DCMAKE_BUILD_TYPE=Release >"$work/cmake.txt" ||
    { cat "$work/cmake.txt"; exit 1; }
  cmake --build "$work/$tree/build" --parallel >"$work/build.txt" || { cat "$work/build.txt"; exit 1; }
done
"$work/c/build/proof_c_example"
"$work/example_c/build/example_ops_example"
ldd "$work"/c/build/libproof_c.so
step "done"
