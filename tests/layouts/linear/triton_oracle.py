"""Triton itself as an oracle: what its encodings are as linear layouts, computed on the CPU.

``python -m tests.layouts.linear.triton_oracle`` writes triton_encodings.json anew, from the texts in it.
"""

import json
import re
import tempfile
from pathlib import Path

from triton._C.libtriton import gluon_ir, ir
from triton.experimental.gluon.language import _layouts as gluon

from cutepy.layouts.linear import LinearLayout

RECORDED = Path(__file__).with_name("triton_encodings.json")

_CONTEXT = ir.context()
ir.load_dialects(_CONTEXT)
_BUILDER = gluon_ir.GluonOpBuilder(_CONTEXT)


def to_linear(layout, shape):
    """Give Triton's linear layout of an object of Gluon's."""
    found = _BUILDER.to_linear_layout(layout._to_ir(_BUILDER), list(shape))
    outs = {f"dim{i}": size for i, size in enumerate(shape)}
    if isinstance(found, gluon.SharedLinearLayout):
        return LinearLayout({"offset": found.offset_bases, "block": found.block_bases}, outs)
    bases = {"register": found.reg_bases, "lane": found.lane_bases, "warp": found.warp_bases}
    return LinearLayout({**bases, "block": found.block_bases}, outs)


def of_attribute(text, shape, element, folder):
    """Read an attribute of MLIR as Triton does, and give Gluon's object of it."""
    extents = "x".join(map(str, shape))
    warps, ctas = _counts(text)
    shared = "_shared" in text or "shared_" in text
    kind = (
        f"!ttg.memdesc<{extents}x{element}, #x, #ttg.shared_memory>" if shared else f"tensor<{extents}x{element}, #x>"
    )
    module = folder / "encoding.mlir"
    module.write_text(
        f'#x = {text}\nmodule attributes {{"ttg.num-ctas" = {ctas} : i32, "ttg.num-warps" = {warps} : i32, '
        f'"ttg.threads-per-warp" = 32 : i32}} {{ tt.func @f(%a: {kind}) {{ tt.return }} }}'
    )
    function = ir.parse_mlir_module(str(module), _CONTEXT).get_function("f")
    read = _BUILDER.get_gluon_layout_from_memdesc if shared else _BUILDER.get_gluon_layout_from_tensor
    return read(function.args(0))


def _counts(text):
    """Give the number of warps and of blocks that a text tells: what the module around it must have."""
    warps = 1
    if found := re.search(r"warpsPerCTA = \[([\d, ]+)\]", text):
        for count in found[1].split(","):
            warps *= int(count)
    elif found := re.search(r"warp = \[(.*?)\], block", text):
        warps = 1 << found[1].count("[")
    found = re.search(r"CGALayout = \[(.*?)\](?:,|}|\s)", text + " ")
    return warps, 1 << (found[1].count("[") if found else 0)


def main():
    """Record Triton's layouts of the texts."""
    records = json.loads(RECORDED.read_text())
    with tempfile.TemporaryDirectory() as folder:
        for record in records:
            layout = of_attribute(record["mlir"], record["shape"], record["element"], Path(folder))
            record["gluon"] = str(layout)
            found = to_linear(layout, record["shape"])
            record["bases"] = found.bases
    lines = ",\n".join("  " + json.dumps(record) for record in records)
    RECORDED.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
