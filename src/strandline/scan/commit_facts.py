"""Facts of commits that hold findings: author, e-mail and date, beside the occurrences, which never change.

    commits/<instance, 32 bytes><id of the commit>    JSON: author, email, when (seconds since 1970)

Invariants: only commits of versions with findings are stored, before the inventory that names them; a fact never
changes, so it is written once. Messages of commits are not read: they may hold secrets.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, TypeAlias

from strandline.detect.locations import COMMIT_SHOWN, shown
from strandline.pipeline.errors import BATCH_ROWS_MAX
from strandline.pipeline.identity import TenantId
from strandline.pipeline.state import Put, ScannerState
from strandline.scan.sources.git_history import parse_seen


class CommitFacts(NamedTuple):
    """A commit: its id, and its author with e-mail and date, as far as they are known."""

    commit: str
    author: str = ""
    email: str = ""
    when_s: int = 0

    @property
    def date(self) -> str:
        """Return the date as ISO 8601 in UTC; empty if it is unknown."""
        return datetime.fromtimestamp(self.when_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if self.when_s else ""

    @property
    def text(self) -> str:
        """Return the commit on one line for people, without control characters."""
        by = f"{self.author} <{self.email}>" if self.author or self.email else ""
        return shown(" ".join(filter(None, (self.commit[:COMMIT_SHOWN], self.date, by))))


Find: TypeAlias = Callable[[Sequence[str]], Iterable[tuple[str, str, str, int]]]
"""Finds the facts of commits in their repository, as `CommitFacts` has them."""


def keep_commit_facts(
    state: ScannerState, tenant: TenantId, instance: bytes, extras: Iterable[bytes | None], find: Find
) -> None:
    """Store the facts of the commits of versions that are new to the state."""
    seen = [parse_seen(extra) for extra in extras if extra is not None]
    commits = sorted({commit for one in seen for commit in (one.first, one.last) if commit})
    for begin in range(0, len(commits), BATCH_ROWS_MAX):
        some = commits[begin : begin + BATCH_ROWS_MAX]
        known = state.multi_get(tenant, [_key(instance, commit) for commit in some])
        new = [commit for commit, value in zip(some, known, strict=True) if value is None]
        puts = [
            Put(_key(instance, commit), json.dumps({"author": author, "email": email, "when": when_s}).encode())
            for commit, author, email, when_s in (find(new) if new else ())
        ]
        if puts:
            state.apply_batch(tenant, puts)


def read_commit_facts(
    state: ScannerState, tenant: TenantId, commits: Iterable[tuple[bytes, str]]
) -> Mapping[tuple[bytes, str], CommitFacts]:
    """Return the facts of commits, by their instances and ids; an unknown one has its id alone."""
    asked = sorted(set(commits))
    found: dict[tuple[bytes, str], CommitFacts] = {}
    for begin in range(0, len(asked), BATCH_ROWS_MAX):
        some = asked[begin : begin + BATCH_ROWS_MAX]
        values = state.multi_get(tenant, [_key(*one) for one in some])
        found |= {one: _parse(one[1], value) for one, value in zip(some, values, strict=True)}
    return found


def _parse(commit: str, value: bytes | None) -> CommitFacts:
    if value is None:
        return CommitFacts(commit)
    facts = json.loads(value)
    return CommitFacts(commit, facts["author"], facts["email"], facts["when"])


def _key(instance: bytes, commit: str) -> bytes:
    return b"commits/" + instance + bytes.fromhex(commit)
