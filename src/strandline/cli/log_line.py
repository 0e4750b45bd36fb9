"""One line of a log in JSON; apart from the rest, because a server that starts fast needs no more.

Invariant: a line is one object of `time`, `level`, `component`, `message` and further fields, in ASCII, without a
password of an address.
"""

import json
from datetime import UTC, datetime
from enum import Enum

from strandline.config.passwords import masked

LEVELS = ("debug", "info", "warning", "error")


def format_log_line(level: str, component: str, message: str, **fields: object) -> str:
    """Return a line of the log, without its end."""
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    record = {"time": time, "level": level, "component": component, "message": masked(message)}
    more = {name: masked(value) for name, value in fields.items() if name not in record}
    return json.dumps({**record, **more}, default=_plain)


def _plain(value: object) -> str:
    return value.name if isinstance(value, Enum) else str(value)
