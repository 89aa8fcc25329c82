"""For processes that compile and need no tensors: importing torch, which TVM-FFI does where it can, takes seconds."""

import sys

sys.modules["torch"] = None  # type: ignore[assignment]
