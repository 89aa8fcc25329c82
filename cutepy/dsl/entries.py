"""Packed entries of compiled modules in TVM-FFI's convention: their objects and parameters."""

from __future__ import annotations

import re
from typing import Any

from cutepy.dsl.version import require

# Within the text of the errors that compiled checks raise: the name and parameters of the function.
_SIGNATURE = re.compile(r"when calling: `\w*\((.*?)\)`")


def emit_object(module: Any, opt_level: int = 1) -> bytes:  # noqa: ANN401
    """Have the DSL's compiler emit the host code of a compiled module as an object for this machine."""
    support = require("cutlass._mlir._mlir_libs._cutlass_ir", "_aot_support.export_module_to_bytes")._aot_support
    image: bytes = support.export_module_to_bytes(module, format="o", opt_level=opt_level, enable_pic=True)
    return image


def parameter_names(module: Any) -> tuple[str, ...] | None:  # noqa: ANN401
    """Return the parameter names of a compiled module's packed entry; None if it has none.

    Its text is as "a: Tensor([n0, n1], float16), c: None", to be split at commas outside of brackets.
    """
    # The whole module's text is large, and takes a while to write.
    texts = (str(op.attributes["value"]) for op in module.body.operations if _is_text_of_an_error(op))
    found = next(filter(None, map(_SIGNATURE.search, texts)), None)
    if found is None:
        return None
    signature = found[1]
    names: list[str] = []
    depth = start = 0
    for n, letter in enumerate(signature + ","):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            part = signature[start:n]
            if part.strip():
                names.append(part.partition(":")[0].strip())
            start = n + 1
    return tuple(names)


def _is_text_of_an_error(operation: Any) -> bool:  # noqa: ANN401
    name = operation.attributes["sym_name"].value if operation.name == "llvm.mlir.global" else ""
    return str(name).startswith("__tvm_ffi__str_")
