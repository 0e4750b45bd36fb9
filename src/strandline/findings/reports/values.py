"""What a report says: findings, the rules that found them, how well it was looked, and of which scan.

Invariants: plain values that hold no scanned byte; a secret is the hash under its tenant's key, and is shown only
where a baseline needs it; findings are ordered by place, so that the same results give the same report.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from strandline.detect.locations import Location, format_display
from strandline.findings.ignores import Ignores, Reason
from strandline.pipeline.identity import SecretHash
from strandline.pipeline.ledger import DoneStatus
from strandline.pipeline.triage import TriageState

HIGH, MEDIUM = 5, 3
ARCHIVES = frozenset({"zip", "tar", "gzip", "bzip2", "xz", "zstd"})


class Level(StrEnum):
    """Confidence in words: high is all that speaks for a match without a checksum, or a checksum that holds."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


def level_of(confidence: int) -> Level:
    """Return a confidence of 0 to 10 in words."""
    return Level.HIGH if confidence >= HIGH else Level.MEDIUM if confidence >= MEDIUM else Level.LOW


class Status(StrEnum):
    """How well an item was looked at, in words."""

    SCANNED = "scanned"
    PARTIAL = "partial"
    SKIPPED = "skipped"
    FAILED = "failed"


def status_of(status: DoneStatus, *, is_complete: bool) -> Status:
    """Return what a row of the ledger comes to; one with findings and gaps is partial too."""
    if status >= DoneStatus.SCANNED_PARTIAL:
        return Status.SCANNED if is_complete else Status.PARTIAL
    return Status.SKIPPED if status == DoneStatus.SKIPPED else Status.FAILED


REASONS: Mapping[str, str] = {
    "PERMISSION_DENIED": "permission denied",
    "VANISHED": "gone when it was read",
    "CHANGED_WHILE_READ": "changed while it was read",
    "IO_ERROR": "the device reported an error",
    "TOO_LARGE": "larger than the limit",
    "NOT_A_FILE": "a device, a socket or a pipe",
    "SYMLINK": "a link, which is not followed",
    "BROKEN_TABLE": "a table that cannot be read",
    "UNREADABLE_FOLDER": "a folder that cannot be opened",
    "MEMBERS_SKIPPED": "members of archives beyond a limit, or broken",
    "DECODES_SKIPPED": "encoded parts beyond a limit",
    "FINDINGS_DROPPED": "more findings than the limit",
    "NOT_LOOKED_AT": "the scan did not come to it",
}


def reason_text(code: str) -> str:
    """Return a code for people; several are joined by commas."""
    return ", ".join(REASONS.get(one, one.lower().replace("_", " ")) for one in code.split(",") if one)


def gaps_code(members: int, decodes: int, findings: int) -> str:
    """Return the code of what was left out of an item that was scanned."""
    named = ("MEMBERS_SKIPPED", members), ("DECODES_SKIPPED", decodes), ("FINDINGS_DROPPED", findings)
    return ",".join(code for code, count in named if count)


class RuleFacts(NamedTuple):
    """A rule, for people; `provider` is whose secret it finds."""

    rule_id: str
    description: str = ""
    tags: tuple[str, ...] = ()

    @property
    def provider(self) -> str:
        """Return whose secrets the rule finds, or `generic`."""
        named = (tag.removeprefix("provider:") for tag in self.tags if tag.startswith("provider:"))
        return next(named, "generic")


class Decision(NamedTuple):
    """A decision about a finding."""

    state: TriageState
    when_ns: int
    who: str
    why: str


@dataclass(frozen=True)
class ReportFinding:
    """A secret at an item; `locations` are its places in the current version, the first of which names it."""

    finding_id: str
    rule_id: str
    secret: SecretHash
    locations: tuple[Location, ...]
    first_seen_ns: int
    decision: Decision | None = None
    source: int = 0

    @property
    def location(self) -> Location:
        """Return the first place."""
        return self.locations[0]

    @property
    def path(self) -> str:
        """Return the path of its item, with those of the members behind `!`."""
        return self.location.path

    @property
    def line(self) -> int:
        """Return its line, counted from 1."""
        return self.location.line

    @property
    def comment(self) -> str:
        """Return nothing: a finding with a comment that allows it is never kept."""
        return ""

    @property
    def display(self) -> str:
        """Return where it is, as people know it."""
        return format_display(self.location)

    @property
    def state(self) -> str:
        """Return what was decided, in a word."""
        return state_name(TriageState.OPEN if self.decision is None else self.decision.state)

    @property
    def level(self) -> Level:
        """Return how sure the rule is, in a word."""
        return level_of(self.location.confidence)

    @property
    def order(self) -> tuple[str, int, int, str, str]:
        """Return what findings are ordered by."""
        place = self.location
        return place.path, place.line, place.column, self.rule_id, self.finding_id


class CoverageCount(NamedTuple):
    """How many items ended in a status for a reason; a reason is a code, or empty."""

    status: Status
    reason: str
    items: int


class Incomplete(NamedTuple):
    """An item that was not, or not fully, looked at, and why."""

    status: Status
    reason: str
    path: str
    source: int = 0


class SourceFacts(NamedTuple):
    """What was scanned: `file`, `git`, `table` or `journal`; its name, and where it is, if that is known."""

    kind: str
    name: str
    root: str = ""
    revision: str = ""


@dataclass(frozen=True)
class ReportCoverage:
    """How well was looked: items by status and reason, and those that need a second look (the first of them)."""

    counts: Sequence[CoverageCount] = ()
    incomplete: Sequence[Incomplete] = ()
    bytes_seen: int = 0

    def items(self, *statuses: Status) -> int:
        """Return how many items ended in some statuses, or in any."""
        return sum(row.items for row in self.counts if not statuses or row.status in statuses)


@dataclass(frozen=True)
class ReportFacts:
    """Of which scan, and when."""

    tenant: str = "default"
    policy: str = ""
    sources: Sequence[SourceFacts] = ()
    started_ns: int = 0
    finished_ns: int = 0
    version: str = ""


@dataclass(frozen=True)
class Report:
    """All of it; `ignored` counts what was left out, by reason."""

    findings: Sequence[ReportFinding]
    rules: Mapping[str, RuleFacts] = field(default_factory=dict)
    coverage: ReportCoverage = field(default_factory=ReportCoverage)
    facts: ReportFacts = field(default_factory=ReportFacts)
    ignored: Mapping[str, int] = field(default_factory=dict)

    def rule(self, rule_id: str) -> RuleFacts:
        """Return what is known of a rule; of an unknown one, its name."""
        return self.rules.get(rule_id) or RuleFacts(rule_id)

    def ignoring(self, ignores: Ignores) -> "Report":
        """Return the report without the ignored findings; places are left out one by one."""
        kept, counted = [], Counter[Reason]()
        for finding in self.findings:
            causes = [ignores.cause(replace(finding, locations=(at,)), commit=at.commit) for at in finding.locations]
            places = tuple(at for at, cause in zip(finding.locations, causes, strict=True) if cause is None)
            if places:
                kept.append(replace(finding, locations=places))
            elif causes[0] is not None:
                counted[causes[0].reason] += 1
        ignored = {reason.value: counted[reason] for reason in Reason if counted[reason]}
        return replace(self, findings=kept, ignored={**self.ignored, **ignored})


def state_name(state: TriageState) -> str:
    """Return a state of triage as people write it."""
    return state.name.lower().replace("_", "-")


def in_order(findings: Iterable[ReportFinding]) -> list[ReportFinding]:
    """Return findings by place."""
    return sorted(findings, key=lambda finding: finding.order)


def utc(time_ns: int) -> str:
    """Return a time as ISO 8601, to the second, or nothing for none."""
    if not time_ns:
        return ""
    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
