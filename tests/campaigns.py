"""Campaigns: tests too long for `make test-long`, each run once to its end on the code that it speaks for.

A test is a part of a campaign by `@pytest.mark.campaign("name")`. `make campaign ONLY=name` runs that campaign alone,
and writes a row of `docs/campaigns.md`: the commit, how long it took, and what `tests.tally` counted.

Invariants: a campaign that fails, or of which nothing ran, writes no row; the row of a campaign takes the place of its
last one.
"""

import datetime as dt
import subprocess
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests import tally

PAGE = Path(__file__).resolve().parent.parent / "docs" / "campaigns.md"
_ROW = "| {name} | {done} | {minutes} min | `{commit}` | {counts} |"


def name_of(item: pytest.Item) -> str | None:
    """Return the campaign that a test is a part of."""
    mark = item.get_closest_marker("campaign")
    return None if mark is None else str(mark.args[0])


def with_row(page: str, name: str, row: str) -> str:
    """Return the page with the row of a campaign in its place, or at the end of the table."""
    lines = page.splitlines()
    table = [number for number, line in enumerate(lines) if line.startswith("|")]
    at = next((number for number in table if lines[number].startswith(f"| {name} |")), None)
    if at is None:
        lines.insert(table[-1] + 1, row)
    else:
        lines[at] = row
    return "\n".join(lines) + "\n"


class Campaign:
    """The hooks that run one campaign and write its row."""

    def __init__(self, name: str, page: Path = PAGE) -> None:
        self._name = name
        self._page = page
        self._began = time.monotonic()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave the tests of the campaign, and say which campaigns there are if it has none."""
        chosen = [item for item in items if name_of(item) == self._name]
        if not chosen:
            known = sorted({name for item in items if (name := name_of(item)) is not None})
            raise pytest.UsageError(f"no campaign is called {self._name!r}; there are: {', '.join(known)}")
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the row."""
        if exitstatus == pytest.ExitCode.OK and session.testscollected:
            row = self._row(tally.counts())
            self._page.write_text(with_row(self._page.read_text(), self._name, row))

    def _row(self, counts: Counter[str]) -> str:
        return _ROW.format(
            name=self._name,
            done=dt.datetime.now(dt.UTC).date(),
            minutes=round((time.monotonic() - self._began) / 60),
            commit=commit_of(PAGE),
            counts=_in_words(sorted(counts.items())),
        )


def _in_words(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counts if number)


def commit_of(page: Path) -> str:
    """Return the commit that is checked out, marked if files differ from it; the page itself is left out."""
    commit = _git(page.parent, "rev-parse", "--short=10", "HEAD")
    others = (":/", f":(exclude){page.name}")
    return f"{commit}+" if _git(page.parent, "status", "--porcelain", "--untracked-files=no", "--", *others) else commit


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
