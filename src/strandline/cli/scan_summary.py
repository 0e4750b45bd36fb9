"""What a scan says at its end: how much was looked at, what was not and why, and what was found."""

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from strandline.cli.output import Record, emit_rows
from strandline.findings.reports.values import reason_text
from strandline.pipeline.ledger import DoneStatus
from strandline.scan import CutSource, Outcome, Plan, explained
from strandline.scan.sources import Problem

NOTES_SHOWN = 10
_FAILED_NOW = "failed now"
# Content that is not what it says it is stays so; whatever else could not be read may be readable for the next scan.
_FOR_GOOD = (Problem.BROKEN_TABLE, Problem.DAMAGED)
_STATUSES: dict[DoneStatus | str, str] = {
    DoneStatus.SCANNED_WITH_FINDINGS: "with findings",
    DoneStatus.SCANNED_CLEAN: "clean",
    DoneStatus.SCANNED_PARTIAL: "partial",
    DoneStatus.SKIPPED: "skipped",
    DoneStatus.FAILED_PERMANENT: "failed permanently",
    _FAILED_NOW: "unreadable",
    DoneStatus.FAILED_RETRYABLE: "failed, to be retried",
}


class Counts(NamedTuple):
    """Findings of a scan: those selected, and those among them that count for the exit code."""

    findings: int
    open: int


def plan_record(plan: Plan, workers: str, planner: str, parts: Sequence[CutSource]) -> Record:
    """Return a plan as a JSON record."""
    return {
        "items": plan.items,
        "to_look_at": plan.todo_items,
        "bytes_to_read": plan.todo_bytes,
        "reasons": {reason.value: count for reason, count in explained(plan)},
        "left_out": dict(plan.left_out),
        "workers": workers,
        "planner": planner,
        "parts": [one._asdict() for one in parts],
    }


def print_plan(plan: Plan, workers: str, planner: str, parts: Sequence[CutSource]) -> None:
    """Print a plan: items by reason, the workers, and what lists and plans."""
    emit_rows(({"items": count, "why": reason.value} for reason, count in explained(plan)), as_json=False)
    print(f"{plan.todo_items:,} of {plan.items:,} items to scan, {plan.todo_bytes / 1e6:,.1f} MB")
    for what, count in plan.left_out.items():
        print(f"left out: {count:,} ({what})")
    print(f"listed and planned by: {planner}")
    for name, count, cut in parts:
        print(f"parts of {name}: {count:,} ({cut})")
    print(f"workers: {workers}")


def outcome_record(outcome: Outcome, counts: Counts, seconds: float) -> Record:
    """Return the outcome of a scan as a JSON record."""
    return {
        "items": outcome.items,
        "looked_at": outcome.new_items,
        "statuses": {status.name.lower(): count for status, count in outcome.statuses.items()},
        "reasons": {reason.value: count for reason, count in outcome.reasons.items() if count},
        "codes": dict(outcome.codes),
        "not_looked_at": outcome.unseen,
        "incomplete": outcome.incomplete,
        "gaps": outcome.gaps._asdict(),
        "left_out": dict(outcome.left_out),
        "bytes_seen": outcome.bytes_seen,
        "findings": counts.findings,
        "open": counts.open,
        "allowed_by_comment": outcome.worked.allowed,
        "parked_shards": outcome.parked_shards,
        "whole": outcome.is_whole,
        "seconds": round(seconds, 3),
    }


def failed_items(outcome: Outcome) -> int:
    """Return the number of failed and incomplete items; skipped items do not count."""
    failed = (DoneStatus.FAILED_PERMANENT, DoneStatus.FAILED_RETRYABLE)
    return outcome.unseen + outcome.incomplete + sum(outcome.statuses.get(status, 0) for status in failed)


def print_outcome(outcome: Outcome, counts: Counts, seconds: float) -> None:
    """Print the summary of a scan on standard error."""
    for line in _lines(outcome, counts, seconds):
        print(line, file=sys.stderr)


def in_items(count: int) -> str:
    """Return a count of items in words."""
    return "1 item" if count == 1 else f"{count:,} items"


def _lines(outcome: Outcome, counts: Counts, seconds: float) -> Iterator[str]:
    known = outcome.items - outcome.unseen - outcome.new_items
    yield (
        f"{in_items(outcome.items)}: {outcome.new_items:,} scanned now ({outcome.new_bytes / 1e6:,.1f} MB), "
        f"{known:,} scanned before; {seconds:.1f} s"
    )
    for_good = sum(outcome.codes.get(code, 0) for code in _FOR_GOOD)
    items: dict[DoneStatus | str, int] = dict(outcome.statuses.items())
    items[_FAILED_NOW] = outcome.statuses.get(DoneStatus.FAILED_PERMANENT, 0) - for_good
    items[DoneStatus.FAILED_PERMANENT] = for_good
    statuses = [f"{items[status]:,} {name}" for status, name in _STATUSES.items() if items.get(status)]
    if outcome.unseen:
        statuses.append(f"{outcome.unseen:,} not scanned")
    yield f"coverage: {', '.join(statuses) or 'no items'}"
    for code, count in sorted(outcome.codes.items(), key=lambda entry: -entry[1]):
        yield f"  {in_items(count)}: {reason_text(code)}"
    if outcome.incomplete:
        gaps = ", ".join(
            f"{count:,} {name.replace('_', ' ')}" for name, count in outcome.gaps._asdict().items() if count
        )
        yield f"  {in_items(outcome.incomplete)} with gaps: {gaps}"
    for note in outcome.notes[:NOTES_SHOWN]:
        yield f"    {note.path}: {reason_text(note.code)}"
    if len(outcome.notes) > NOTES_SHOWN:
        yield "    more: see `strandline findings coverage`"
    for what, count in outcome.left_out.items():
        yield f"left out: {count:,} ({what})"
    if outcome.worked.allowed:
        yield f"allowed by comments: {outcome.worked.allowed:,}"
    if outcome.parked_shards:
        yield f"{outcome.parked_shards:,} parked shards; --retry-parked retries them"
    settled = counts.findings - counts.open
    yield f"findings: {counts.findings:,}" + (f", {counts.open:,} open" if settled else "")
