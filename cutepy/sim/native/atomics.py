"""Atomic operations on integers.

References
----------
PTX ISA, "Parallel Synchronization and Communication Instructions: atom, red".
"""

from __future__ import annotations


def apply(operation: str, bits: int, signed: bool) -> str:
    """Compute `%new` of `%old`, the operand `%x` and, to compare and swap, the further one `%y`."""
    kind = f"i{bits}"
    if operation in ("add", "and", "or", "xor"):
        return f"%new = llvm.{operation} %old, %x : {kind}"
    if operation in ("min", "max"):
        return f'%new = "llvm.intr.{"s" if signed else "u"}{operation}"(%old, %x) : ({kind}, {kind}) -> {kind}'
    if operation == "exch":
        return f"%new = llvm.or %x, %zero : {kind}"
    if operation == "cas":
        return f'%equal = llvm.icmp "eq" %old, %x : {kind}\n%new = llvm.select %equal, %y, %old : i1, {kind}'
    if operation == "inc":
        return (
            f'%over = llvm.icmp "uge" %old, %x : {kind}\n%up = llvm.add %old, %unit : {kind}\n'
            f"%new = llvm.select %over, %zero, %up : i1, {kind}"
        )
    return (
        f'%least = llvm.icmp "eq" %old, %zero : {kind}\n%above = llvm.icmp "ugt" %old, %x : {kind}\n'
        f"%wraps = llvm.or %least, %above : i1\n%down = llvm.sub %old, %unit : {kind}\n"
        f"%new = llvm.select %wraps, %x, %down : i1, {kind}"
    )
