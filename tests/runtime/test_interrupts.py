"""SIGINT in a frame that cannot raise is kept; elsewhere it is Python's own."""

import signal
import threading

import pytest

from cutepy.runtime.interrupts import interrupts_held, interrupts_kept, interrupts_let_through


def callback():
    signal.raise_signal(signal.SIGINT)


def test_it_is_kept_in_the_callback_and_delivered_by_it_or_at_the_end():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interrupts_kept(callback.__code__):
        callback()
    reached = []
    with pytest.raises(KeyboardInterrupt), interrupts_kept(callback.__code__) as interrupts:  # noqa: PT012
        callback()
        reached.append("after the callback")
        interrupts.deliver()
        reached.append("after delivery")
    assert reached == ["after the callback"]
    assert signal.getsignal(signal.SIGINT) is before


def test_it_is_raised_at_once_elsewhere():
    reached = []
    with pytest.raises(KeyboardInterrupt), interrupts_kept(callback.__code__):  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        reached.append(True)
    assert not reached


def test_other_threads_have_no_handlers():
    failures = []

    def run():
        try:
            with interrupts_kept(callback.__code__) as interrupts:
                interrupts.deliver()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not failures


def test_it_is_held_to_the_end():
    before = signal.getsignal(signal.SIGINT)
    reached = []
    with pytest.raises(KeyboardInterrupt), interrupts_held():  # noqa: PT012
        with interrupts_held():
            signal.raise_signal(signal.SIGINT)
        reached.append("the end")
    assert reached == ["the end"]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_one_is_raised_at_once_and_once():
    reached = []
    with pytest.raises(KeyboardInterrupt), interrupts_held():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        reached.append("after the first")
        signal.raise_signal(signal.SIGINT)
        reached.append("after the second")
    assert reached == ["after the first"]


def test_it_is_delivered_where_it_is_let_through():
    reached = []
    with pytest.raises(KeyboardInterrupt), interrupts_held():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        with interrupts_let_through():
            reached.append("inside")
    assert not reached
    with pytest.raises(KeyboardInterrupt), interrupts_held(), interrupts_let_through():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        reached.append("after")
    assert not reached


def test_an_error_does_not_lose_it():
    with pytest.raises(KeyboardInterrupt) as stopped, interrupts_held():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        raise ValueError("of tracing")
    assert isinstance(stopped.value.__context__, ValueError)


def test_other_threads_hold_nothing():
    before, seen = signal.getsignal(signal.SIGINT), []

    def run():
        with interrupts_held(), interrupts_let_through():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [before]
