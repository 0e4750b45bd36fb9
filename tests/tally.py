"""What a run did beyond passing: tests count kills, states, power losses and seeds, and the end of the run prints sums.

Invariants: a count belongs to the process that made it; each worker hands its counts over when it ends, and the summary
adds those of all of them. Kills and examples are counted without a word in the tests; children of tests count nothing.
"""

import re
import signal
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

KILLS, STATES, POWER_LOSSES, SEEDS, EXAMPLES, RUNS = (
    "kills",
    "states explored",
    "power losses simulated",
    "seeds",
    "examples of hypothesis",
    "tests",
)
_PASSING = re.compile(r"- (\d+) passing")
_HANDED_OVER = "tally"

_counts: Counter[str] = Counter()


def count(name: str, number: int = 1) -> None:
    """Add to a counter."""
    _counts[name] += number


def counts() -> Counter[str]:
    """Return what was counted so far, with that of the workers that have ended."""
    return _counts.copy()


def note_audit_event(event: str, arguments: tuple[Any, ...]) -> None:
    """Count the processes that are killed, by whatever means Python has."""
    if event == "os.kill" and arguments[1] == signal.SIGKILL:
        count(KILLS)


def summary(counts: Counter[str]) -> list[str]:
    """Return a line for each counter."""
    return [f"{number:>12,} {name}" for name, number in sorted(counts.items())]


class Tally:
    """The hooks that gather counts: in each worker, and where the run is summed up."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Count the test, and the examples that hypothesis tried."""
        self._counts[RUNS] += 1
        tried = _PASSING.findall(getattr(item, "hypothesis_statistics", ""))
        self._counts[EXAMPLES] += sum(map(int, tried))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand the counts of a worker over."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_HANDED_OVER] = dict(self._counts)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:  # noqa: ANN401 - xdist has no types
        """Add the counts of a worker that has ended."""
        self._counts.update(getattr(node, "workeroutput", {}).get(_HANDED_OVER, {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the sums."""
        terminalreporter.section("what was done")
        for line in summary(self._counts):
            terminalreporter.write_line(line)


def install(config: pytest.Config, watch: Callable[[Callable[..., None]], None] = sys.addaudithook) -> None:
    """Count for this process, and print the sums at the end of its run."""
    watch(note_audit_event)
    config.pluginmanager.register(Tally(_counts))
