"""The content of a report: findings, their rules, coverage, and the scan.

Invariants: plain values that hold no scanned byte; a secret is the hash under its tenant's key, and is shown only
where a baseline needs it; findings are ordered by place, after those that are verified as live, so that the same
results give the same report.
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
from strandline.pipeline.verifications import Liveness, Verification
from strandline.scan.commit_facts import CommitFacts
from strandline.scan.path_globs import clean_path

HIGH, MEDIUM = 5, 3
ARCHIVES = frozenset({"zip", "tar", "gzip", "bzip2", "xz", "zstd"})


class Level(StrEnum):
    """Confidence in words: high means every sign of a match without a checksum, or a valid checksum."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


def level_of(confidence: int) -> Level:
    """Return a confidence of 0 to 10 in words."""
    return Level.HIGH if confidence >= HIGH else Level.MEDIUM if confidence >= MEDIUM else Level.LOW


class Status(StrEnum):
    """The status of an item in words."""

    SCANNED = "scanned"
    PARTIAL = "partial"
    SKIPPED = "skipped"
    FAILED = "failed"


def status_of(status: DoneStatus, *, is_complete: bool) -> Status:
    """Return the status of a ledger row; a row with findings and gaps is partial too."""
    if status >= DoneStatus.SCANNED_PARTIAL:
        return Status.SCANNED if is_complete else Status.PARTIAL
    return Status.SKIPPED if status == DoneStatus.SKIPPED else Status.FAILED


REASONS: Mapping[str, str] = {
    "PERMISSION_DENIED": "permission denied",
    "VANISHED": "deleted before it was read",
    "CHANGED_WHILE_READ": "changed while it was read",
    "IO_ERROR": "the device reported an error",
    "TOO_LARGE": "larger than the limit",
    "NOT_A_FILE": "a device, a socket or a pipe",
    "SYMLINK": "a link, which is not followed",
    "BROKEN_TABLE": "a table that cannot be read",
    "BAD_NAME": "a name that this program cannot ask for",
    "UNREADABLE_FOLDER": "a folder that cannot be opened",
    "MEMBERS_SKIPPED": "members of archives beyond a limit, or broken",
    "DECODES_SKIPPED": "encoded parts beyond a limit",
    "FINDINGS_DROPPED": "more findings than the limit",
    "NOT_LOOKED_AT": "the scan did not reach it",
}


def reason_text(code: str) -> str:
    """Return a code as text; several are joined by commas."""
    return ", ".join(REASONS.get(one, one.lower().replace("_", " ")) for one in code.split(",") if one)


def gaps_code(members: int, decodes: int, findings: int) -> str:
    """Return the code of the gaps of a scanned item."""
    named = ("MEMBERS_SKIPPED", members), ("DECODES_SKIPPED", decodes), ("FINDINGS_DROPPED", findings)
    return ",".join(code for code, count in named if count)


class RuleFacts(NamedTuple):
    """A rule for reports; `provider` is the issuer of its secrets."""

    rule_id: str
    description: str = ""
    tags: tuple[str, ...] = ()

    @property
    def provider(self) -> str:
        """Return the issuer of the rule's secrets, or `generic`."""
        named = (tag.removeprefix("provider:") for tag in self.tags if tag.startswith("provider:"))
        return next(named, "generic")


class Decision(NamedTuple):
    """A decision about a finding."""

    state: TriageState
    when_ns: int
    who: str
    why: str
    everywhere: bool = False
    """Whether it is about the secret, wherever that is."""


class CommitSpan(NamedTuple):
    """The commits that a finding is in: those that first and last brought it to its path, and whether HEAD has it."""

    first: CommitFacts
    last: CommitFacts
    at_head: bool
    versions: int

    def plain(self) -> dict[str, object]:
        """Return the span for programs."""
        return {
            "first": plain_commit(self.first),
            "last": plain_commit(self.last),
            "at_head": self.at_head,
            "versions": self.versions,
        }


def plain_commit(facts: CommitFacts) -> dict[str, object]:
    """Return a commit for programs."""
    return {
        "commit": facts.commit,
        "author": facts.author,
        "email": facts.email,
        "date": facts.date,
    }


@dataclass(frozen=True)
class ReportFinding:
    """A secret at an item; `locations` are its places, in the current version first; the first one is shown."""

    finding_id: str
    rule_id: str
    secret: SecretHash
    locations: tuple[Location, ...]
    first_seen_ns: int
    decision: Decision | None = None
    source: int = 0
    is_new: bool = False
    """Whether it became known after the scan before the last one had ended."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """Which of the distinct secrets of its rule it is in each of its paths, from 1, in the order of places."""
    commits: CommitSpan | None = None
    """The commits that it is in, if its repository's history was scanned."""
    owners: tuple[str, ...] = ()
    """The owners of its path, as CODEOWNERS of its repository has them."""
    verification: Verification | None = None
    """The last answer of its secret's provider, if that was asked."""

    @property
    def location(self) -> Location:
        """Return the first place."""
        return self.locations[0]

    @property
    def path(self) -> str:
        """Return the path of its item, with those of the members behind `!`."""
        return self.location.path

    @property
    def nth(self) -> int:
        """Return its number among the secrets of its rule in its path, 0 if that is unknown."""
        return self.numbers.get(self.path, 0)

    @property
    def line(self) -> int:
        """Return its line, counted from 1."""
        return self.location.line

    @property
    def comment(self) -> str:
        """Return nothing: findings with an allowing comment are never stored."""
        return ""

    @property
    def display(self) -> str:
        """Return the location as text."""
        return format_display(self.location)

    @property
    def state(self) -> str:
        """Return the state of triage as a word."""
        return state_name(TriageState.OPEN if self.decision is None else self.decision.state)

    @property
    def level(self) -> Level:
        """Return the confidence as a word."""
        return level_of(self.location.confidence)

    @property
    def is_live(self) -> bool:
        """Return whether the provider of its secret said that it is live."""
        return self.verification is not None and self.verification.state is Liveness.LIVE

    @property
    def order(self) -> tuple[str, int, int, str, str]:
        """Return the sort key of findings."""
        place = self.location
        return place.path, place.line, place.column, self.rule_id, self.finding_id


class CoverageCount(NamedTuple):
    """The number of items with a status and a reason; a reason is a code, or empty."""

    status: Status
    reason: str
    items: int


class Incomplete(NamedTuple):
    """An item that was not scanned, or scanned in part, and the reason."""

    status: Status
    reason: str
    path: str
    source: int = 0


class SourceFacts(NamedTuple):
    """A scanned source: `file`, `git`, `table` or `journal`; its name, and its root, if known."""

    kind: str
    name: str
    root: str = ""
    revision: str = ""


@dataclass(frozen=True)
class ReportCoverage:
    """Coverage: items by status and reason, and the first incomplete ones."""

    counts: Sequence[CoverageCount] = ()
    incomplete: Sequence[Incomplete] = ()
    bytes_seen: int = 0

    def items(self, *statuses: Status) -> int:
        """Return the number of items with some statuses, or with any."""
        return sum(row.items for row in self.counts if not statuses or row.status in statuses)


class UnfinishedFacts(NamedTuple):
    """A scan that began and did not end; it runs, or was interrupted. `items` is 0 if nothing was listed yet."""

    name: str
    started_ns: int
    done: int
    items: int

    @property
    def text(self) -> str:
        """Return the scan as a sentence for people."""
        far = f"{self.done:,} of {self.items:,} items are scanned" if self.items else "its items are not listed yet"
        return f"the scan of {self.name}, started {utc(self.started_ns)}, is not finished: {far}"


@dataclass(frozen=True)
class ReportFacts:
    """The scan of a report, and its times."""

    tenant: str = "default"
    policy: str = ""
    sources: Sequence[SourceFacts] = ()
    started_ns: int = 0
    finished_ns: int = 0
    version: str = ""
    unfinished: Sequence[UnfinishedFacts] = ()


@dataclass(frozen=True)
class Report:
    """A report; `ignored` counts the excluded findings by reason."""

    findings: Sequence[ReportFinding]
    rules: Mapping[str, RuleFacts] = field(default_factory=dict)
    coverage: ReportCoverage = field(default_factory=ReportCoverage)
    facts: ReportFacts = field(default_factory=ReportFacts)
    ignored: Mapping[str, int] = field(default_factory=dict)
    warnings: Sequence[str] = ()

    def rule(self, rule_id: str) -> RuleFacts:
        """Return a rule; an unknown one has its name alone."""
        return self.rules.get(rule_id) or RuleFacts(rule_id)

    def source(self, finding: ReportFinding) -> SourceFacts | None:
        """Return the source of a finding, if the report names it."""
        sources = self.facts.sources
        return sources[finding.source] if finding.source < len(sources) else None

    def only(self, findings: Sequence[ReportFinding]) -> "Report":
        """Return the report with some of its findings."""
        return replace(self, findings=findings)

    def ignoring(self, ignores: Ignores) -> "Report":
        """Return the report without the ignored findings; each place is checked on its own."""
        kept, counted = [], Counter[Reason]()
        for finding in self.findings:
            causes = [
                ignores.cause(replace(finding, locations=(at,)), commit=at.commit, nth=finding.numbers.get(at.path, 0))
                for at in finding.locations
            ]
            places = tuple(at for at, cause in zip(finding.locations, causes, strict=True) if cause is None)
            if places:
                kept.append(replace(finding, locations=places))
            elif causes[0] is not None:
                counted[causes[0].reason] += 1
        ignored = {reason.value: counted[reason] for reason in Reason if counted[reason]}
        return replace(self, findings=kept, ignored={**self.ignored, **ignored}, warnings=self._misfits(ignores))

    def _misfits(self, ignores: Ignores) -> list[str]:
        """Return a sentence for each baseline that does not fit the findings."""
        found: dict[tuple[str, str], int] = {}
        for finding in self.findings:
            for path, nth in finding.numbers.items():
                place = finding.rule_id, clean_path(path)
                found[place] = max(found.get(place, 0), nth)
        named = [(one.source, one.misfits(found)) for one in ignores.baselines]
        return [f"{source} does not fit: {why}" for source, why in named if why and found]


def state_name(state: TriageState) -> str:
    """Return a state of triage as on the command line."""
    return state.name.lower().replace("_", "-")


def in_order(findings: Iterable[ReportFinding]) -> list[ReportFinding]:
    """Return findings by place, live ones first, each with its number among its rule's secrets in each of its paths."""
    ordered = sorted(findings, key=lambda finding: finding.order)
    places = [(at.path, at.line, at.column, number) for number, one in enumerate(ordered) for at in one.locations]
    secrets: dict[tuple[str, str], dict[SecretHash, int]] = {}
    for path, _, _, number in sorted(places):
        numbers = secrets.setdefault((ordered[number].rule_id, path), {})
        numbers.setdefault(ordered[number].secret, len(numbers) + 1)
    # Numbers are part of baselines and fingerprints: an answer of a provider changes the order, and no number.
    numbered = (
        replace(one, numbers={at.path: secrets[one.rule_id, at.path][one.secret] for at in one.locations})
        for one in ordered
    )
    return sorted(numbered, key=lambda finding: not finding.is_live)


def plain_verification(verification: Verification | None) -> dict[str, object] | None:
    """Return a verification for programs."""
    if verification is None:
        return None
    return {
        "state": verification.state.value,
        "when": utc(verification.when_ns),
        "host": verification.host,
        "reason": verification.reason,
    }


def utc(time_ns: int) -> str:
    """Return a time as ISO 8601, to the second; empty for 0."""
    if not time_ns:
        return ""
    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
