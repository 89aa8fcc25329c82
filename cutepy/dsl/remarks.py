"""Comments in a kernel's PTX, from traced code."""

from __future__ import annotations

from typing import Any

from cutepy.dsl.launch_facts import kernel_operation
from cutepy.dsl.traced_names import at_the_caller
from cutepy.dsl.version import require

_llvm = require("cutlass._mlir.dialects.llvm", "inline_asm", "AsmDialect")


@at_the_caller  # type: ignore[untyped-decorator]
def remark(text: str, *, loc: Any = None, ip: Any = None) -> None:  # noqa: ANN401
    """Write comments into the PTX of the kernel that is traced, at its beginning: assembly without an instruction.

    Comments elsewhere would keep the compiler from merging the branches around them.

    Parameters
    ----------
    text : str
        Lines that each begin with ``//``.
    """
    _llvm.inline_asm(
        None,
        [],
        text.replace("$", "$$"),
        "",
        has_side_effects=True,  # else it would be dropped, as nothing needs it
        is_align_stack=False,
        asm_dialect=_llvm.AsmDialect.AD_ATT,
        loc=loc,
        ip=_beginning() or ip,
    )


def _beginning() -> Any:  # noqa: ANN401
    """Return the place before all operations of the kernel that is traced; None outside of one."""
    kernel = kernel_operation()
    if kernel is None:
        return None
    return require("cutlass._mlir.ir", "InsertionPoint").InsertionPoint.at_block_begin(kernel.regions[0].blocks[0])
