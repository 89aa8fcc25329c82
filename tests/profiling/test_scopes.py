import threading

import pytest

import cutepy
from cutepy.profiling import ProfileError
from cutepy.profiling.scopes import STATE, scope
from tests.messages import refuses
from tests.profiling.fake_source import fake_source


def paths(profile):
    return [(record.name, profile.recording.path(record.scope)) for record in profile.recording.records]


def test_launches_are_in_the_innermost_scope():
    source = fake_source()
    with cutepy.profile(source=source) as profile:
        source.launch("a")
        with cutepy.scope("outer"):
            source.launch("b")
            with cutepy.scope("inner", flops=1):
                source.launch("c")
            source.launch("d")
        source.launch("e")
    outer = ("outer",)
    assert paths(profile) == [("a", ()), ("b", outer), ("c", (*outer, "inner")), ("d", outer), ("e", ())]


def test_each_pass_is_a_call_of_its_own():
    source = fake_source()

    @cutepy.scope("step", bytes=10)
    def step():
        source.launch("k")

    step()  # nobody profiles
    with cutepy.profile(source=source) as profile:
        step()
        step()
    assert len(profile.recording.scopes) == 2
    node = profile.tree()["step"]
    assert (node.calls, node.launches, node.bytes) == (2, 2, 20)


def test_a_scope_that_began_before_the_profile_is_not_known():
    source = fake_source()
    with cutepy.scope("before"):
        profiling = cutepy.profile(source=source)
        profile = profiling.__enter__()
        source.launch("a")
    with cutepy.scope("within"):
        source.launch("b")
        profiling.__exit__(None, None, None)
    assert paths(profile) == [("a", ()), ("b", ("within",))]
    assert STATE.recorder is None


def test_needs_may_be_told_at_the_end():
    with cutepy.profile(source=fake_source()) as profile, cutepy.scope("late") as late:
        late.flops, late.precision = 8, "8-bit"
    (call,) = profile.recording.scopes
    assert (call.flops, call.bytes, call.precision) == (8, None, "8-bit")


def test_threads_have_scopes_of_their_own():
    source = fake_source()

    def work():
        with cutepy.scope("thread"):
            source.launch("b")

    with cutepy.profile(source=source) as profile, cutepy.scope("main"):
        source.launch("a")
        # A thread-local source starts anew in a thread, with the same records.
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert paths(profile) == [("a", ("main",)), ("b", ("thread",))]


def test_an_error_ends_scopes_and_the_profile():
    source = fake_source()

    def fail():
        source.launch("k")
        raise ZeroDivisionError

    profiling = cutepy.profile(source=source)
    with pytest.raises(ZeroDivisionError), profiling as profile, cutepy.scope("a"):
        fail()
    assert paths(profile) == [("k", ("a",))]
    with cutepy.profile(source=fake_source()) as again:
        pass
    assert again.recording.records == ()


def test_one_profile_at_a_time():
    with cutepy.profile(source=fake_source()) as profile:
        with refuses(ProfileError), cutepy.profile(source=fake_source()):
            pass
        with refuses(ProfileError):
            profile.tree()


def test_precisions_are_known():
    with refuses(ValueError):
        scope("a", precision="int4")
