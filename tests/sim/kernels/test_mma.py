"""mma.sync against numpy, through fragments laid out as PTX's tables say, element by element."""

import numpy as np
import pytest
import torch

from .launching import launch

CASES = [
    ("m16n8k16", "f32", "f16"), ("m16n8k8", "f32", "f16"), ("m16n8k16", "f32", "bf16"), ("m16n8k8", "f32", "tf32"),
    ("m16n8k32", "s32", "s8"), ("m16n8k16", "s32", "s8"), ("m16n8k16", "f16", "f16"),
]  # fmt: skip


def bits(values, kind):
    if kind == "bf16":
        return torch.from_numpy(values.astype("f4")).to(torch.bfloat16).view(torch.uint16).numpy()
    return values.astype({"f16": "f2", "f32": "f4", "tf32": "f4", "s8": "i1", "s32": "i4"}[kind])


@pytest.mark.parametrize(("shape", "d", "ab"), CASES)
def test_product(shape, d, ab):
    k = int(shape.split("k")[1])
    rng = np.random.default_rng(k)
    a, b, c = (rng.integers(-4, 5, s) for s in ((16, k), (k, 8), (16, 8)))
    size = bits(a, ab).itemsize
    pack = 4 // size
    fragments_a, fragments_b, fragments_c = [], [], []
    for lane in range(32):
        group, inside = divmod(lane, 4)
        for n in range(16 * k // 32):
            register, part = divmod(n, pack)
            fragments_a.append(a[group + 8 * (register % 2), inside * pack + part + 4 * pack * (register // 2)])
        for n in range(8 * k // 32):
            register, part = divmod(n, pack)
            fragments_b.append(b[inside * pack + part + 4 * pack * register, group])
        fragments_c += [c[group + 8 * (n // 2), inside * 2 + n % 2] for n in range(4)]
    arrays = [bits(np.array(x), t).view("u1") for x, t in ((fragments_a, ab), (fragments_b, ab), (fragments_c, d))]
    words = [array.size // 32 // 4 for array in arrays]
    out = np.zeros_like(arrays[2])
    registers, loads, start = [], ["mov.u32 %r0, %tid.x;"], 1
    for n, count in enumerate(words):
        names = [f"%r{start + w}" for w in range(count)]
        start += count
        registers.append("{" + ", ".join(names) + "}")
        loads.append(f"mad.wide.u32 %rd10, %r0, {4 * count}, %rd{n};")
        loads += [f"ld.global.u32 {name}, [%rd10+{4 * w}];" for w, name in enumerate(names)]
    opcode = f"mma.sync.aligned.{shape}.row.col.{d}.{ab}.{ab}.{d}"
    stores = [f"st.global.u32 [%rd10+{4 * w}], %r{start - words[2] + w};" for w in range(words[2])]
    body = f"{' '.join(loads)} {opcode} {registers[2]}, {', '.join(registers)};"
    body += f"mad.wide.u32 %rd10, %r0, {4 * words[2]}, %rd3;"
    launch(body + " ".join(stores), [*arrays, out])
    product = a @ b + c
    expected = [product[lane // 4 + 8 * (n // 2), lane % 4 * 2 + n % 2] for lane in range(32) for n in range(4)]
    np.testing.assert_array_equal(out.view(bits(c, d).dtype), np.array(expected))
