"""SIGINT in a frame that cannot raise is kept; elsewhere it is Python's own."""

import signal
import threading

import pytest

from cutepy.runtime.interrupts import interrupts_kept


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
