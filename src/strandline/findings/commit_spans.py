"""The commits that findings are in, from the inventories of histories and the facts of commits beside them.

Invariants: nothing is written; a version that only a work tree has, or that is staged, has no commits.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from strandline.findings.listed_sources import ListedSource
from strandline.findings.reports.values import CommitSpan
from strandline.pipeline.reads import Observed
from strandline.scan.commit_facts import CommitFacts, read_commit_facts
from strandline.scan.sources.git_added import meets
from strandline.scan.sources.git_history import Seen, parse_seen
from strandline.scan.state import State


@dataclass(frozen=True)
class Versions:
    """Object versions of findings: where histories have them, and the facts of their commits."""

    seen: Mapping[bytes, tuple[bytes, Seen]] = field(default_factory=dict)
    """By object version: the instance, and the version in the history that lists it."""
    facts: Mapping[tuple[bytes, str], CommitFacts] = field(default_factory=dict)

    def commit(self, ovid: bytes) -> str:
        """Return the first commit of an object version, or an empty text."""
        found = self.seen.get(ovid)
        return "" if found is None else found[1].first

    def is_current(self, ovid: bytes) -> bool:
        """Return whether HEAD has an object version, or no history lists it."""
        found = self.seen.get(ovid)
        return found is None or found[1].at_head or not found[1].blob

    def last_s(self, ovid: bytes) -> int:
        """Return when an object version was last brought to its path, in seconds."""
        found = self.seen.get(ovid)
        return 0 if found is None or not found[1].last else self.facts[found[0], found[1].last].when_s

    def history(self, ovids: Iterable[bytes]) -> list[CommitSpan]:
        """Return the commits of each of some object versions, oldest first."""
        spans = [span for ovid in dict.fromkeys(ovids) if (span := self.span([ovid])) is not None]
        return sorted(spans, key=lambda span: _order(span.first))

    def span(self, ovids: Iterable[bytes]) -> CommitSpan | None:
        """Return the commits of some object versions of one finding.

        None for those that an older version of this program listed: it did not ask whether HEAD has them.
        """
        found = [self.seen[ovid] for ovid in set(ovids) if ovid in self.seen]
        known = [(instance, one) for instance, one in found if one.first and one.blob]
        if not known:
            return None
        first = min((self.facts[instance, one.first] for instance, one in known), key=_order)
        last = max((self.facts[instance, one.last] for instance, one in known), key=_order)
        return CommitSpan(first, last, any(one.at_head for _, one in known), len(known))


def versions_of(state: State, listed: Sequence[ListedSource], ovids: Iterable[bytes]) -> Versions:
    """Return where the histories among sources have some object versions."""
    wanted = set(ovids)
    seen: dict[bytes, tuple[bytes, Seen]] = {}
    for source in reversed(listed):  # the latest counts
        if source.source.kind == "git":
            extras = source.extras(wanted)
            seen |= {ovid: (source.instance, parse_seen(extra)) for ovid, extra in extras.items()}
    commits = [(at, commit) for at, one in seen.values() for commit in (one.first, one.last) if commit]
    return Versions(seen, read_commit_facts(state.stores.state, state.tenant, commits))


def judged(source: ListedSource, rows: Sequence[Observed]) -> list[Observed]:
    """Return the observations that a source judges: of a part of a history, those that touch added lines."""
    if not (source.is_part and source.source.kind == "git"):
        return list(rows)
    extras = source.extras({row.observation.ovid for row in rows})
    added = {ovid: parse_seen(extra).added for ovid, extra in extras.items()}
    return [row for row in rows if _is_added(row, added.get(row.observation.ovid))]


def _is_added(row: Observed, ranges: tuple[tuple[int, int], ...] | None) -> bool:
    start = row.occurrence.byte_offset
    return ranges is None or meets(ranges, start, start + row.occurrence.byte_length)


def _order(facts: CommitFacts) -> tuple[int, str]:
    return facts.when_s, facts.commit
