"""Signals as something to wait for."""

import os
import signal
import threading

from fusefs.readable import is_readable
from fusefs.signals import caught


def test_they_come_in_order_and_once() -> None:
    before = signal.getsignal(signal.SIGHUP)
    with caught([signal.SIGHUP, signal.SIGUSR1]) as signals:
        assert signals.come() == []
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert is_readable(signals.descriptor)
        assert signals.come() == [signal.SIGHUP, signal.SIGUSR1]
        assert signals.come() == []
    signal.signal(signal.SIGHUP, before)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)


def test_one_that_was_blocked_by_the_program_before_comes_now() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)  # another thread of the test run may not block it

    with caught([signal.SIGUSR1]) as signals:
        assert signals.come() == [signal.SIGUSR1]
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
