"""Kernels' names as people read them: the function's, without the arguments that the DSL appends to it.

A kernel is called ``kernel_cutlass_`` and its function's name, all its arguments as text, 180 characters of that, and a
number that tells it from others of its module. A function chooses another name for its kernel, in profilers too, by the
DSL's ``my_kernel.set_name_prefix("mine", remove_cutlass_symbol=True, keep_mangled_name=False)`` before it launches it.
"""

from __future__ import annotations

import re

_MANGLED = re.compile(r"(?:(?P<chosen>\w+?)_)?kernel_cutlass_(?P<function>\w+?)(?P<number>_\d+)?")
# How the text of an argument begins: tensors and atoms, what has no text of its own, and constants. A number may end
# the function's name: numbers in front of all other arguments stay.
_ARGUMENT = re.compile(
    r"_+(?:tensor(?:ptr|\d)|(?:object|function|method)_\w*at_|CopyAtom|ThrMma|Tiled(?:Copy|M[Mm][Aa])|Layout|S\d|None|True|"
    r"False)"
)
_LONGEST = 60


def readable(kernel: str) -> str:
    """Shorten the name of a kernel, so that kernels of one module keep different names; others' stay as they are.

    Examples
    --------
    >>> readable("kernel_cutlass_add_one_tensorptrf32gmemo641_128_0")
    'add_one_0'
    >>> readable("kernel_cutlass_elected_of_32_tensorptrf32gmemo641_0"), readable("kernel_cutlass_elected_of_32_0")
    ('elected_of_32_0', 'elected_of_32_0')
    >>> readable("kernel_cutlass_kernel_flashForward_object_at__CopyAtom_ThrID10_1")
    'kernel_flashForward_1'
    >>> readable("mine_kernel_cutlass_add_one_tensorptrf32gmemo641_0"), readable("mine_0"), readable("matmul_kernel")
    ('mine_0', 'mine_0', 'matmul_kernel')
    """
    found = _MANGLED.fullmatch(kernel)
    name, number = (found["chosen"] or found["function"], found["number"] or "") if found else (kernel, "")
    if found and not found["chosen"]:
        name = _ARGUMENT.split(name, maxsplit=1)[0] or name
    return (name if len(name) <= _LONGEST else name[: _LONGEST - 3] + "...") + number
