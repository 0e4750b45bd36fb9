"""The state of a journal's sink: the last commit of every writer, and the intent of a commit that is not done.

One line of check, then JSON that a person can read, in `<journal>.spark/sink`:

    strandline-sink 1 crc32c=0a1b2c3d
    {"journal": "…32 hex…", "commits": {"query/<id>": [12, 800, 96000, 4000, 4800]}, "intent": null}

A commit is `[number, rows, bytes, first offset, offset after the last row]`; an intent is `[writer, number, rows,
bytes, rows before, first offset, stamp, [file, …]]`.

Invariants: replaced atomically and only under the journal's lock; it belongs to one journal, by identity; numbers of a
writer only rise.
"""

import json
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

from strandline.checksums import crc32c
from strandline.errors import Damaged, FormatError
from strandline.spark.sink.commits import Commit

STATE_NAME = "sink"
STATE_VERSION = 1
ANONYMOUS = ""
_FIRST_WORD = "strandline-sink"


class Done(NamedTuple):
    """The last commit of a writer and where its rows are; `bytes` are those of values, keys and headers."""

    number: int
    rows: int
    bytes: int
    first_offset: int
    next_offset: int


class Intent(NamedTuple):
    """A commit that is about to be appended: its batches carry the times stamp_ns, stamp_ns + 1, ….

    No other writer's batch can stand at that offset with that time: the lock is held from before the time is read.
    `before` are the rows that an earlier attempt appended, elsewhere.
    """

    commit: Commit
    rows: int
    bytes: int
    before: int
    first_offset: int
    stamp_ns: int
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SinkState:
    """The commits to one journal."""

    identity: bytes
    commits: dict[str, Done]
    intent: Intent | None = None

    def intending(self, intent: Intent) -> Self:
        """Return the state before the append."""
        return replace(self, intent=intent)

    def settled(self, next_offset: int | None) -> Self:
        """Return the state after the intent was fulfilled, its rows ending at an offset; None where it was not."""
        intent = self.intent
        if intent is None or next_offset is None:
            return replace(self, intent=None)
        if intent.commit.writer == ANONYMOUS:
            return replace(self, intent=None)
        done = Done(intent.commit.number, intent.rows, intent.bytes, intent.first_offset, next_offset)
        return replace(self, commits={**self.commits, intent.commit.writer: done}, intent=None)


def format_state(state: SinkState) -> bytes:
    """Return the content of the state file."""
    intent = state.intent
    fields = {
        "journal": state.identity.hex(),
        "commits": state.commits,
        "intent": None if intent is None else [*intent.commit, *intent[1:]],
    }
    body = json.dumps(fields).encode()
    return f"{_FIRST_WORD} {STATE_VERSION} crc32c={crc32c(body):08x}\n".encode() + body + b"\n"


def parse_state(data: bytes, path: str) -> SinkState:
    """Return the state in a file; `FormatError` for a later version's, `Damaged` where it is not whole."""
    first, _, body = data.partition(b"\n")
    words = first.decode("ascii", "replace").split(" ")
    version = words[1] if len(words) > 1 else ""
    body = body.removesuffix(b"\n")
    if words != [_FIRST_WORD, version, f"crc32c={crc32c(body):08x}"]:
        raise _damaged(path)
    if version != str(STATE_VERSION):
        raise FormatError(path, f"sink version {version} is not known here", hint="use a later Strandline")
    try:
        return _from_json(json.loads(body))
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path) from error


def _from_json(fields: dict[str, Any]) -> SinkState:
    commits = {writer: Done(*map(int, row)) for writer, row in fields["commits"].items()}
    intent = None
    if fields["intent"] is not None:
        writer, number, rows, size, before, first_offset, stamp_ns, files = fields["intent"]
        intent = Intent(Commit(writer, number), rows, size, before, first_offset, stamp_ns, tuple(files))
    return SinkState(bytes.fromhex(fields["journal"]), commits, intent)


def _damaged(path: str) -> Damaged:
    safe = "remove it if no query will write to this journal again from an old checkpoint; else restore it"
    return Damaged(path, "the sink's state is not whole, so a replayed commit would not be recognized", safe=safe)
