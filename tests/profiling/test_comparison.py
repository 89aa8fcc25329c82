from cutepy.profiling import Record, Recording, ScopeCall, slower


def recording(scopes=(), **us):
    records, at = [], 0
    for name, each in us.items():
        records.append(Record(name, start_ns=at, end_ns=at + int(1000 * each), scope=0 if scopes else None))
        at += int(1000 * each)
    return Recording(tuple(records), scopes)


def test_calls_are_compared_and_the_largest_loss_comes_first():
    found = slower(recording(a=20, b=100, c=5), recording(a=10, b=50, c=5))
    assert [(each.path, each.now_ns, each.then_ns) for each in found] == [
        (("b",), 100_000, 50_000),
        (("a",), 20_000, 10_000),
    ]


def test_the_time_of_a_call_counts_and_not_their_number():
    once = Recording((Record("a", start_ns=0, end_ns=5000),))
    twice = Recording((*once.records, Record("a", start_ns=5000, end_ns=10_000)))
    assert slower(twice, once) == []


def test_noise_does_not_count():
    assert slower(recording(a=104), recording(a=100)) == []
    assert slower(recording(a=1.5), recording(a=1.0)) == []
    assert len(slower(recording(a=104), recording(a=100), least=0.03)) == 1


def test_a_new_kernel_of_a_slower_scope_is_named():
    scope = (ScopeCall("layer"),)
    found = slower(recording(scope, fresh=30), recording(scope, old=10))
    assert [(each.path, each.then_ns) for each in found] == [(("layer", "fresh"), None), (("layer",), 10_000)]
    assert slower(recording(fresh=30), recording(old=10)) == []
