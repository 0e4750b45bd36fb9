"""The last repair of a fold, in a file beside it: for `fold status` and the page, which look from other processes.

    <fold>.repair    JSON: plan, reason, ended (seconds since 1970), put, deleted, seconds

Invariants: the file is written when a repair has ended, so what it names is stored. It decides nothing: a fold whose
file is missing was not repaired, or its process died between the repair and the note. A path without a fold has none:
a recorder that begins there removes the note of a former fold.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from strandline.clock import NS_PER_S, Clock, SystemClock
from strandline.errors import Damaged
from strandline.events import Event
from strandline.files import OsDisk, read_file, remove_if_there, replace_file, storage_errors
from strandline.fold.backends import existing_backend
from strandline.fold.events import RepairBegan, RepairEnded

SUFFIX = ".repair"


@dataclass(frozen=True, slots=True)
class LastRepair:
    """What was repaired from (`plan`), why, when it ended, and what it changed."""

    plan: str
    reason: str
    ended_unix: int
    put: int
    deleted: int
    seconds: float


def format_last_repair(repair: LastRepair) -> bytes:
    """Return a repair as the bytes of its file."""
    return json.dumps(asdict(repair)).encode()


def parse_last_repair(content: bytes) -> LastRepair:
    """Return the repair of a file's bytes; `ValueError` if they are none."""
    match json.loads(content):
        case {
            "plan": str(plan),
            "reason": str(reason),
            "ended_unix": int(ended_unix),
            "put": int(put),
            "deleted": int(deleted),
            "seconds": float(seconds),
        }:
            return LastRepair(plan, reason, ended_unix, put, deleted, seconds)
        case _:
            raise ValueError("it has other fields")


def read_last_repair(fold: Path) -> LastRepair | None:
    """Return the last repair of the fold at a path, None if none is known; `Damaged` if its file is not ours."""
    path = _beside(fold)
    with storage_errors(path):
        content = read_file(OsDisk(), path)
    if content is None:
        return None
    try:
        return parse_last_repair(content)
    except ValueError as error:
        raise Damaged(str(path), "is not the note of a repair", safe="remove it: no fold depends on it") from error


class RepairRecorder:
    """Listens to the events of one fold, and keeps its last repair beside it."""

    def __init__(self, fold: Path, clock: Clock | None = None) -> None:
        self._path = _beside(fold)
        self._clock = clock or SystemClock()
        self._reason = ""
        if existing_backend(fold) is None:
            with storage_errors(self._path):
                remove_if_there(OsDisk(), self._path)

    def __call__(self, event: Event) -> None:
        """Take an event in."""
        if isinstance(event, RepairBegan):
            self._reason = event.reason
        elif isinstance(event, RepairEnded):
            ended = self._clock.now_ns() // NS_PER_S
            repair = LastRepair(
                event.plan.name.lower(), self._reason, ended, event.put, event.deleted, float(event.seconds)
            )
            replace_file(OsDisk(), self._path, format_last_repair(repair))


def _beside(fold: Path) -> Path:
    return fold.with_name(fold.name + SUFFIX)
