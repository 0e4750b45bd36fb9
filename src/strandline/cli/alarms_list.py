"""`strandline alarms list`: alarms that are raised, and notices that are not delivered."""

import sys
from collections.abc import Mapping
from datetime import UTC, datetime

from strandline.alarms.alarm import Alarm
from strandline.alarms.outbox import Outbox
from strandline.alarms.settings import default_outbox
from strandline.cli.alarm_options import OutboxFolder
from strandline.cli.output import AsJson, emit_rows
from strandline.cli.shown import escape


def list_alarms(outbox: OutboxFolder = None, as_json: AsJson = False) -> None:
    """Print alarms that are raised, and notices that are not delivered.

    An alarm that is resolved is gone when every receiver knows.
    """
    found = Outbox(outbox or default_outbox())
    emit_rows((_record(alarm, as_json=as_json) for alarm in found.alarms()), as_json=as_json)
    for problem in found.damaged():
        print(f"warning: {problem}", file=sys.stderr)


def _record(alarm: Alarm, *, as_json: bool) -> Mapping[str, object]:
    errors = sorted({each.error for each in alarm.pending if each.error})
    record = {
        "alarm": alarm.id,
        "state": "firing" if alarm.is_firing else "resolved",
        "kind": alarm.kind,
        "subject": alarm.subject if as_json else escape(alarm.subject.encode()),
        "summary": alarm.summary if as_json else escape(alarm.summary.encode()),
        "raised": _time(alarm.raised_ns),
        "undelivered": len(alarm.pending),
        "last_error": "; ".join(errors) or None,
    }
    return {**record, "details": dict(alarm.details), "resolved": _time(alarm.resolved_ns)} if as_json else record


def _time(at_ns: int) -> str | None:
    return datetime.fromtimestamp(at_ns / 1e9, UTC).isoformat(timespec="seconds") if at_ns else None
