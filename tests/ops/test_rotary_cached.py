"""`rotary_cached` in the simulator, sanitized, against `rotary` and copies; and as an operation of torch."""

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from hypothesis import given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy.kernels.rows.plans import plan_rotary_cached  # noqa: E402
from cutepy.ops import rotary, rotary_cached  # noqa: E402
from tests.ops.rows import DTYPES, check_close  # noqa: E402


def problem(batch=2, tokens=3, heads=5, kv_heads=2, width=8, stays=0, room=9, dtype=torch.bfloat16, pages=0, rows=12):
    """Draw arguments: q, k and v are parts of one product, and the last length leaves no room."""
    chance = torch.Generator().manual_seed(7 * heads + tokens)
    head = 2 * width + stays
    product = torch.randn(batch, tokens, heads + 2 * kv_heads, head, generator=chance).to(dtype)
    q, k, v = product.split((heads, kv_heads, kv_heads), 2)
    cos, sin = (torch.randn(rows, width, generator=chance).to(dtype) for _ in range(2))
    lengths = torch.randint(max(room - tokens, 0) + 1, (batch,), generator=chance, dtype=torch.int32)
    lengths[-1] = room - 1
    table = None
    if pages:
        numbers = torch.randperm(batch * pages, generator=chance).int()
        table, room = numbers.reshape(batch, pages), -(-room // pages)
    shape = (batch * max(pages, 1), room, kv_heads, head)
    keys, values = (torch.randn(shape, generator=chance).to(dtype) for _ in range(2))
    return q, k, v, cos, sin, keys, values, lengths, table


def expected(q, k, v, cos, sin, keys, values, lengths, table, interleaved):
    """Write token by token."""
    positions = lengths[:, None].long() + torch.arange(q.shape[1])
    turned, keys, values, room = (
        rotary(k, cos, sin, positions, interleaved),
        keys.clone(),
        values.clone(),
        keys.shape[1],
    )
    for batch, of_sequence in enumerate(positions.tolist()):
        for token, position in enumerate(of_sequence):
            if position < room * (1 if table is None else table.shape[1]):
                page = batch if table is None else table[batch, position // room]
                keys[page, position % room], values[page, position % room] = turned[batch, token], v[batch, token]
            else:
                positions[batch, token] = -1  # its query becomes NaN
    return rotary(q, cos, sin, positions, interleaved), keys, values


def check(given, interleaved=False):
    wanted = expected(*given, interleaved)
    with cutepy.simulate(sanitize=True) as run:
        y = rotary_cached(*given, interleaved)
    assert not run.hazards
    assert all(each.is_certified for each in run.certificates)
    assert len(run.launches) == 1
    for found, want in zip((y, *given[5:7]), wanted, strict=True):
        check_close(found.nan_to_num(nan=7.0), want.double().nan_to_num(nan=7.0))
    assert torch.equal(given[6], wanted[2])


@pytest.mark.integration
@pytest.mark.parametrize(
    ("options", "interleaved"),
    [
        pytest.param({}, False, id="halves"),
        pytest.param({"dtype": torch.float32, "stays": 8, "lengths": torch.int64}, True, id="neighbours, some stay"),
        pytest.param({"pages": 3, "tokens": 4, "kv_heads": 5, "width": 3}, False, id="pages"),
        pytest.param({"rows": 5, "batch": 1}, False, id="few angles"),
    ],
)
def test_it_rotates_and_writes_what_there_is_room_for(options, interleaved):
    dtype = options.pop("lengths", torch.int32)
    given = problem(**options)
    check((*given[:7], given[7].to(dtype), given[8]), interleaved)


@pytest.mark.deep
@settings(max_examples=20, deadline=None)
@given(
    batch=st.integers(1, 3),
    tokens=st.integers(1, 5),
    heads=st.integers(1, 9),
    kv_heads=st.integers(1, 6),
    width=st.sampled_from([1, 4, 8, 64]),
    stays=st.sampled_from([0, 1, 16]),
    dtype=st.sampled_from(DTYPES),
    pages=st.sampled_from([0, 0, 1, 4]),
    interleaved=st.booleans(),
)
def test_any_problem(interleaved, **options):
    check(problem(**options), interleaved)


def test_nothing_is_launched_without_heads():
    given = problem(batch=1, tokens=1)
    with cutepy.simulate() as run:
        assert rotary_cached(*(each[:, :0] for each in given[:3]), *given[3:]).shape == (1, 0, 5, 16)
    assert not run.launches


@pytest.mark.integration
def test_it_is_an_operation_of_torch():
    arguments = problem(pages=3)
    arguments[7].clamp_(max=6)  # room for all: NaN is not equal to itself
    torch.library.opcheck(torch.ops.cutepy.rotary_cached.default, (*arguments, False))


def test_what_it_does_not_take_is_refused():
    q, k, v, cos, sin, keys, values, lengths, _ = problem()
    wrong = [
        (ValueError, (q[0], k, v, cos, sin, keys, values, lengths)),
        (ValueError, (q, k[:, :1], v, cos, sin, keys, values, lengths)),
        (ValueError, (q, k, v, cos[:, :0], sin, keys, values, lengths)),
        (ValueError, (q, k, v, cos, sin, keys[:1], values, lengths)),
        (ValueError, (q, k, v, cos, sin, keys.mT.contiguous().mT, values, lengths)),
        (TypeError, (q, k, v, cos, sin, keys.float(), values, lengths)),
        (TypeError, (q, k, v, cos, sin, keys, values, lengths[:1])),
        (TypeError, (q, k, v, cos, sin, keys, values, lengths, torch.zeros(2, 3))),
    ]
    for kind, arguments in wrong:
        with refuses(kind):
            rotary_cached(*arguments)


@pytest.mark.parametrize("of_keys", [False, True])
def test_heads_that_a_launch_has_no_indices_for_are_refused(of_keys):
    """Heads of q count once, those of k and v twice."""
    heads, kv_heads = (1, 2**15) if of_keys else (2**16 - 1, 1)
    q, k, y = (torch.empty(2**14, 1, count, 8, device="meta") for count in (heads, kv_heads, heads))
    table = torch.empty(4, 8, device="meta")
    lengths = torch.empty(2**14, device="meta", dtype=torch.int32)
    with refuses(ValueError):
        plan_rotary_cached(q, k, k, table, table, lengths, None, y, k, k, interleaved=False)
