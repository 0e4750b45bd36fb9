"""Signals that end a command: none is lost, whichever thread gets it, and nothing of them stays behind."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from strandline.cli.ending_signals import ENDING, ending_signals
from tests.waiting import PATIENCE_S


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_is_noted_also_where_another_thread_gets_it(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with ending_signals() as ending:
        thread = threading.Thread(target=os.kill, args=(os.getpid(), number))
        thread.start()
        thread.join()
        assert ending.wait(PATIENCE_S) == number
        assert ending.wait(0) is None
    assert signal.getsignal(number) is before


def test_children_take_the_signals_as_usual() -> None:
    with ending_signals():
        child = subprocess.Popen([sys.executable, "-c", "import time; print(flush=True); time.sleep(1000)"], stdout=-1)
        assert child.stdout is not None
        child.stdout.readline()
        child.terminate()
        assert child.wait(PATIENCE_S) == -signal.SIGTERM
        child.stdout.close()
