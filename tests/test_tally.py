"""Counts of all workers are added up, and kills and examples are counted by themselves."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests import tally

ROOT = Path(__file__).resolve().parent.parent
TESTS = """
import subprocess, sys
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests import tally

@pytest.mark.parametrize("number", range(4))
def test_kills(number):
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(1000)"])
    child.kill()
    child.wait()
    tally.count(tally.STATES, 1000)

@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.booleans())
def test_tries(_):
    pass
"""


def test_the_counts_of_all_workers_are_added_up(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests import tally\ndef pytest_configure(config): tally.install(config)\n"
    )
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = {name: int(number.replace(",", "")) for number, _, name in map(_words, ran.stdout.splitlines()) if name}
    assert told == {tally.KILLS: 4, tally.STATES: 4000, tally.EXAMPLES: 2, tally.RUNS: 5}


def _words(line: str) -> tuple[str, str, str]:
    number, space, name = line.strip().partition(" ")
    is_count = line.startswith("   ") and number.replace(",", "").isdigit()
    return (number, space, name) if is_count else ("", "", "")


def test_only_signals_that_kill_are_kills() -> None:
    before = tally.counts()
    tally.note_audit_event("os.kill", (1, signal.SIGTERM))
    tally.note_audit_event("open", ("a", "r", 0))
    assert tally.counts() == before


def test_a_summary_has_a_line_for_each_counter() -> None:
    lines = tally.summary(Counter({"seeds": 1200, "kills": 3}))
    assert [line.split() for line in lines] == [["3", "kills"], ["1,200", "seeds"]]
