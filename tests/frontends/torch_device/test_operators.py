"""Torch's operators on the served `cuda` device compute what they do on the CPU."""

import pytest
import torch
import torch.nn.functional as F

from cutepy.frontends.torch_device import NotServedError, serve_cuda

pytestmark = pytest.mark.dsl

FLOATS = torch.randn(3, 4, generator=torch.Generator().manual_seed(7)) * 3
INTEGERS = torch.arange(-3, 9).view(3, 4)

# Expressions of f, i: float32 and int64, 3x4; b: bool; n: indices; h, s, u: float16, int32 and uint8; t: torch.
EXPRESSIONS = """
i % 5; f % 2.5; 7 % (i.abs() + 1); i.remainder(-5); t.fmod(i, 3); t.fmod(f, -1.5); i.clone().remainder_(5)
i.clone().fmod_(3); s % 5; s % 2.5; h % 2; u % 7; i.sum() % 5; s.sum() % 5; t.remainder(10, s.abs() + 1)
i & 3; i | 1; i ^ 3; s & 3; u | 128; b & True; b ^ True; b | False; 3 & i; t.bitwise_and(s, 6); t.bitwise_or(1, s)
i.clone().bitwise_xor_(5); i.__iand__(3); ~i; ~b; i << 1; i >> 1; 1 << i.abs(); t.bitwise_left_shift(u, 2)
t.bitwise_right_shift(64, s.abs()); i.clone().__ilshift__(2); u ^ 255; i.sum() & 6; s.sum() | 9
i // 5; 7 // (f.abs() + 1); f // 2; t.floor_divide(i, 4); i / 3; 1 / (f.abs() + 1); t.true_divide(i, 4)
t.div(i, 3, rounding_mode="trunc"); t.div(f, 0.7, rounding_mode="floor"); i ** 2; 2 ** i.abs(); f ** 2.0; f ** -1
t.pow(2, f); t.float_power(f.abs(), 2); i.clone().pow_(3); f + 1; 1 - f; t.rsub(f, 2); f * 2; s * 2; s * 2.5; u + 300
i + 1.5; h + 1; t.add(f, f, alpha=2); t.sub(i, 1, alpha=3); f.clone().add_(1).sub_(2).mul_(3).div_(4); -f; abs(i)
i == 3; i != 3; f < 1; f <= 0.5; 2 > f; f >= 0; t.eq(i, 2.0); t.gt(s, 1); i.clone().eq_(3); t.isclose(f, f + 1e-9)
t.logical_and(f, i); f.logical_not(); t.logical_xor(b, i); b.any(); b.all(1); (f > 0).sum(); i.bool().any(0)
t.copysign(f, -1); t.xlogy(f.abs(), 2); t.xlogy(2.0, f.abs()); t.ldexp(f, i); t.atan2(f, f + 1); t.hypot(f, f)
t.lerp(f, -f, 0.25); t.heaviside(f, t.tensor(0.5, device=f.device)); t.maximum(f, -f); t.fmin(f, -f)
t.nextafter(f, -f)
t.gcd(i, i + 2); t.lcm(i, i + 2); t.logaddexp(f, f); t.special.xlog1py(f.abs(), 2); t.special.zeta(f.abs() + 2, 1.5)
f.clamp(-1, 1); f.clamp(min=0); i.clamp(0, 5); f.clone().clamp_(-1); f.clip(max=0); t.where(b, f, 0.0)
t.where(b, 1.0, f)
t.where(b, 1, 0); t.where(b, i, 2); t.where(b, s, 2); f.masked_fill(b, 0); f.clone().masked_fill_(b, 1)
f.masked_select(b); t.nan_to_num(f / 0); t.isnan(f); t.isinf(f / 0); t.sign(f); t.frac(f); t.trunc(f); t.round(f * 3)
t.round(f, decimals=1); t.ceil(f); t.floor(f); t.exp(f); t.exp2(f); t.expm1(f); t.log(f.abs()); t.log2(f.abs())
t.log1p(f.abs()); t.sqrt(f.abs()); t.rsqrt(f.abs()); t.reciprocal(f); t.square(f); t.sin(f); t.tanh(f); t.erf(f)
t.sigmoid(f); t.special.expit(f); t.lgamma(f.abs()); f.clone().exp_(); f.clone().neg_(); t.addcmul(f, f, f, value=2)
t.addcdiv(f, f, f.abs() + 1, value=0.5); f.clone().addcmul_(f, f); f.sum(); f.sum(0, keepdim=True); f.mean(1)
i.sum(1)
f.prod(0); f.amax(-1); f.amin(0); f.max(); f.max(dim=1); f.min(0); f.argmax(); f.argmin(1); f.std(); f.var(0)
t.var_mean(f, 1); f.norm(); f.norm(p=1, dim=0); t.linalg.norm(f); t.linalg.vector_norm(f, 3); f.median(); f.mode(0)
f.quantile(0.5); f.kthvalue(1); f.cumsum(0); f.cumprod(1); f.cummax(0); f.logsumexp(1); f.logcumsumexp(0)
t.aminmax(f)
t.count_nonzero(i); f.nansum(); t.histc(f, 4); t.bincount(i.flatten() % 5); f.sort(); f.sort(0, descending=True)
f.argsort(1); t.sort(i, stable=True, dim=1); f.topk(2); f.topk(2, largest=False, sorted=True); t.msort(f); i.unique()
t.unique(i % 3, return_inverse=True, return_counts=True); t.unique_consecutive(i.flatten() // 2); f.nonzero()
t.searchsorted(f[0].sort()[0], f[1]); t.bucketize(f, t.tensor([-1.0, 0.0, 1.0], device=f.device)); t.isin(i, 3)
f[b]; f[n]; f[:, n]; f[n, n]; f[1]; f[1:, ::2]; f[..., None]; f[-1, -1]; f[[0, 2]]; put(f, 1, 3); put(f, b, 0.5)
put(f, n, f[:2]); put(f, (slice(None), 2), 7); f.index_select(0, n); f.index_add(0, n, f[:2]); f.index_fill(1, n, 9)
f.index_copy(0, n, f[1:]); f.gather(0, i.clamp(0, 2)); f.scatter(0, i.clamp(0, 2), 1.5)
f.scatter(1, i.clamp(0, 3), f)
f.clone().scatter_add_(0, i.clamp(0, 2), f); f.scatter_reduce(0, i.clamp(0, 2), f, "amax"); f.take(n); f.diagonal()
f.clone().index_put_((n,), f[:2], accumulate=True); f.masked_scatter(b, f); t.take_along_dim(f, i.clamp(0, 2), 0)
t.cat([f, f]); t.cat([f, i], 1); t.stack([f, f], 1); t.hstack([f, f]); f.chunk(2, 1); f.split([1, 2]); f.unbind(0)
t.tensor_split(f, 2); f.repeat(2, 1); f.repeat_interleave(2, 0); f.tile(2); f.expand(2, 3, 4); f.roll(1, 0); f.flip(0)
t.rot90(f); f.tril(); f.triu(1); t.diag(f[0]); t.block_diag(f, f); t.meshgrid(f[0], f[1], indexing="ij"); f.t()
f.permute(1, 0).contiguous(); f.reshape(2, 6); f.view(t.int32); f.unfold(1, 2, 1); f.movedim(0, 1); f.squeeze()
f.unsqueeze(0); f.flatten(); f.narrow(1, 1, 2); f.as_strided((2, 2), (1, 2)); t.broadcast_to(f[0], (2, 4))
t.kron(f, f)
F.pad(f, (1, 2)); F.pad(f, (1, 1), value=3.0); F.pad(f[None], (1, 1), mode="reflect"); F.one_hot(i.clamp(0, 3))
f @ f.T; t.einsum("ij,kj->ik", f, f); t.einsum("ij,ij->", f, f); t.mm(f, f.T); t.bmm(f[None], f.T[None])
t.mv(f, f[0])
t.addmm(f[:, :3], f, f.T, alpha=2, beta=0.5); t.baddbmm(f[None, :, :3], f[None], f.T[None]); t.outer(f[0], f[1])
t.dot(f[0], f[1]); t.cross(f[:, :3], f[:, 1:], dim=1); t.cdist(f, f + 1); t.tensordot(f, f, ([1], [1])); i @ i.T
t.linalg.inv(f @ f.T + 4 * t.eye(3, device=f.device)); t.linalg.det(f[:, :3]); t.trace(f[:, :3]); h @ h.T
F.linear(f, f); F.relu(f); F.gelu(f); F.gelu(f, approximate="tanh"); F.silu(f); F.leaky_relu(f); F.elu(f); F.mish(f)
F.softplus(f); F.hardswish(f); F.softmax(f, -1); F.log_softmax(f, 0); F.layer_norm(f, (4,)); F.rms_norm(f, (4,))
t.round(F.group_norm(f[None], 3), decimals=5); F.batch_norm(f, f.mean(0), f.var(0)); F.normalize(f)
F.mse_loss(f, -f); F.l1_loss(f, -f)
F.cross_entropy(f, i[:, 3].clamp(0, 3)); F.nll_loss(f, n.repeat(2)[:3]); F.embedding(n, f); F.cosine_similarity(f, -f)
F.smooth_l1_loss(f, -f); F.huber_loss(f, -f); F.soft_margin_loss(f, f.sign()); F.mse_loss(f, -f, reduction='sum')
F.binary_cross_entropy(f.sigmoid(), b.float()); F.binary_cross_entropy_with_logits(f, b.float())
F.kl_div(F.log_softmax(f, 1), F.softmax(f, 1), reduction="sum"); F.interpolate(f[None, None], scale_factor=2)
F.scaled_dot_product_attention(f[None, None], f[None, None], f[None, None], is_causal=True); F.max_pool1d(f[None], 2)
F.conv1d(f[None], f[None, :, :2].repeat(2, 1, 1)); F.conv2d(f[None, None], f[None, None, :2, :2])
F.avg_pool1d(f[None], 2)
f.half(); f.bfloat16(); f.double(); f.int(); f.long(); f.bool(); u.float(); i.to(t.uint8)
f.to(t.float8_e4m3fn).float()
f.to(t.float8_e5m2).view(t.uint8); f.half().view(t.int16); f.type(t.float16); f.type_as(h); f.to(h)
f.clone().copy_(i); f.new_zeros(3); f.new_full((2,), 3); f.new_tensor([1.0, 2.0]); f.new_empty(2).fill_(1)
t.zeros_like(f); t.ones_like(i); t.full_like(f, 2); t.empty_like(f).zero_(); t.zeros(2, 3, device=f.device)
t.ones(2, device=f.device, dtype=t.int32); t.full((2,), 3.0, device=f.device); t.eye(3, device=f.device)
t.arange(5, device=f.device); t.arange(0.0, 1.0, 0.25, device=f.device); t.linspace(0, 1, 5, device=f.device)
t.tensor([[1, 2]], device=f.device); t.as_tensor([1.0], device=f.device); t.scalar_tensor(2, device=f.device)
t.tril_indices(3, 3, device=f.device); t.empty_strided((2, 2), (1, 2), device=f.device).fill_(4)
t.randn(5, device=f.device); t.rand(5, device=f.device, dtype=t.float64); t.randint(0, 9, (5,), device=f.device)
t.randperm(5, device=f.device); t.empty(5, device=f.device).normal_(); t.empty(5, device=f.device).uniform_(-1, 1)
t.empty(5, device=f.device, dtype=t.int64).random_(0, 7); t.randn_like(f); t.rand_like(f); t.randint_like(i, 9)
t.bernoulli(f.sigmoid()); t.multinomial(f.abs() + 1, 2); F.dropout(f, 0.5); t.normal(f, 1.0)
t.empty(4, device=f.device).exponential_()
t.poisson(f.abs()); i.sum().remainder_(5); t.mul(f[0, 0], 2, out=f[1, 1].clone())
t.mul(f, 2, out=t.empty_like(f)); t.remainder(f, 2, out=t.empty_like(f)); t.bitwise_and(i, 3, out=t.empty_like(i))
t.cat([f, f], out=t.empty(0, device=f.device)); t.vmap(lambda r: r * 2 % 3)(f); t._foreach_add([f, f], 1)
t._foreach_mul([f], [f])
t.complex(f, f).abs(); t.fft.fft(f).real; t.view_as_real(t.polar(f, f))
t.nn.Linear(4, 2, device=f.device).weight.shape.numel() * f
"""


def put(tensor, index, value):
    changed = tensor.clone()
    changed[index] = value
    return changed


def results(expression, device):
    torch.manual_seed(11)
    f, i = FLOATS.to(device), INTEGERS.to(device)
    names = {
        "f": f, "i": i, "b": f > 0, "n": torch.tensor([0, 2], device=device), "h": f.half(), "s": i.int(),
        "u": i.abs().to(torch.uint8), "t": torch, "F": F, "put": put,
    }  # fmt: skip
    found = eval(expression, names)
    return list(found) if isinstance(found, tuple | list) else [found]


@pytest.fixture(scope="module", autouse=True)
def run():
    with serve_cuda() as run:
        yield run


@pytest.mark.parametrize("expression", [e.strip() for e in EXPRESSIONS.replace("\n", ";").split(";") if e.strip()])
def test_operators_are_those_of_the_cpu(expression):
    for served, expected in zip(results(expression, "cuda"), results(expression, "cpu"), strict=True):
        assert served.is_cuda
        assert (served.dtype, served.shape, served.stride()) == (expected.dtype, expected.shape, expected.stride())
        assert torch.equal(served.cpu().nan_to_num(), expected.nan_to_num())


def test_what_cannot_be_computed_raises_by_name():
    x = FLOATS.cuda()
    with pytest.raises(NotServedError):
        torch.ops.aten._cslt_compress(x)
    with pytest.raises(NotServedError):
        x.to_sparse()
