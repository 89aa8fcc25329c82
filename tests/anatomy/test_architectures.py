"""PTX for another architecture is refused by name, and MMAs of warps are not called none."""

import pytest

from cutepy.anatomy import ExplainError, explain
from tests.messages import pins, refuses

PTX = """.version 8.7
.target {target}
.address_size 64
.visible .entry k() {{ .reg .b32 %r<12>; .reg .f32 %f<8>;
{mma} {{%f0,%f1,%f2,%f3}}, {{%r0,%r1,%r2,%r3}}, {{%r4,%r5}}, {{%f4,%f5,%f6,%f7}};
{mma} {{%f0,%f1,%f2,%f3}}, {{%r0,%r1,%r2,%r3}}, {{%r4,%r5}}, {{%f4,%f5,%f6,%f7}};
ret; }}"""
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_89", "sm_110a", "sm_121f", "sm_80, debug", "compute_90"])
def test_another_architecture_is_refused_by_name(target, tmp_path):
    text = PTX.format(target=target, mma=MMA)
    file = tmp_path / "kernel.ptx"
    file.write_text(text)
    for source in (text, file, type("Compiled", (), {"ptx": text})()):
        with refuses(ExplainError):
            explain(source, assembler=False)
        with refuses(ExplainError):
            explain(source)


@pytest.mark.parametrize("target", ["sm_90", "sm_90a", "sm_90a, texmode_independent", "sm_120a"])
def test_mmas_of_warps_are_listed(target):
    explanation = explain(PTX.format(target=target, mma=MMA), assembler=False)
    (kernel,) = explanation.kernels
    (mma,) = kernel.mmas
    assert (mma.opcode, mma.instructions, mma.shape_mnk) == (MMA, 2, None)
    pins(mma.remark)
    assert "MMAs: none" not in str(explanation)


@pytest.mark.parametrize("target", ["sm_80", "sm_89"])
def test_launches_of_another_architecture_are_refused_too(target):
    import cutepy
    from cutepy.anatomy import Watch

    watch = Watch()
    with cutepy.simulate(observers=[watch]):
        cutepy.load_ptx(f".version 8.7 .target {target} .address_size 64 .visible .entry k() {{ ret; }}").launch(
            "k", 1, 32
        )
    with refuses(ExplainError):
        explain(watch, assembler=False)
