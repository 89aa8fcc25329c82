"""Exported operations as text, to pin them."""


def described(op):
    """Write what an operation has: its texts, its test, its kernels, and the arguments of each group of them."""
    lines = [f"{op.name}: {op.doc}", op.reference, f"{op.tolerance}", f"{op.test_numbers}", *map(str, op.test_extents)]
    before = None
    for variant in op.variants:
        lines.append(f"{variant.label} {dict(variant.choices)}")
        arguments = [f"    {name}: {argument}" for name, argument in variant.arguments.items()]
        if arguments != before:
            lines += arguments
        before = arguments
    return "\n".join(lines)
