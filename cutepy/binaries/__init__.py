"""Readers of a compiled kernel: its ELF image and its machine code, of any compiler."""

from cutepy.binaries.cubin import KernelResources as KernelResources, read_resources as read_resources
from cutepy.binaries.sass import DisassemblyError as DisassemblyError, disassemble as disassemble

__all__ = ["DisassemblyError", "KernelResources", "disassemble", "read_resources"]
