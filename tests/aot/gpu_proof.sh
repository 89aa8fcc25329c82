#!/usr/bin/env bash
# Prove an export on a Hopper GPU: build it, run its own tests, compare with the in-process kernel bit for bit, time it
# beside torch.mm, install its wheel into a fresh environment, and build and run the C example.
#   usage: tests/aot/gpu_proof.sh [FOLDER]
# Needs python3 with torch, pytest, setuptools and cutepy's dependencies, CUDA's headers, a C++ compiler and CMake.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
work=${1:-$(mktemp -d)}
python=${PYTHON:-python3}
export PYTHONPATH=$here${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
step() { printf '\n== %s (%ss)\n' "$1" "$SECONDS"; }

step "export"
"$python" -m cutepy export extension gemm --name proof_gemm --dtype float16 -o "$work/extension" --force
"$python" -m cutepy export c gemm --name proof_c --dtype bfloat16 --tile 128x256 --tile 64x32 -o "$work/c" --force
cp -r "$work/extension" "$work/clean" # nothing that a build leaves behind gets into the wheel's

step "build and install from a clean copy of the tree, without network"
"$python" -m pip install -q --no-build-isolation --no-deps --no-index --target "$work/site" "$work/extension"

step "its own tests, with neither cutepy nor the DSL in sight"
(cd "$work/extension/tests" && env PYTHONPATH="$work/site" "$python" -P -m pytest -q -x -p no:cacheprovider .)

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
torch.testing.assert_close(proof_gemm.gemm(a, b), a @ b.t())
assert not [name for name in sys.modules if name.split(".")[0] in ("cutepy", "cutlass")]
print("the wheel's", proof_gemm.__file__, "is right")
PYTHON
)

step "C example"
cmake -S "$work/c" -B "$work/c/build" -DCMAKE_BUILD_TYPE=Release >"$work/cmake.txt" || { cat "$work/cmake.txt"; exit 1; }
cmake --build "$work/c/build" --parallel
"$work/c/build/proof_c_example"
ldd "$work"/c/build/libproof_c.so
step "done"
