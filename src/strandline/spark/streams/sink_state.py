"""The state of a stream's sink: the last commit of each writer, or its intent.

One entry for each writer in a bucket of the same server (`strandline_sinks` unless an option says otherwise), under
`<stream>.<writer>`; a value is JSON that a person can read:

    {"version": 1, "created": "2026-…Z", "number": 12, "rows": 800, "bytes": 96000, "first": 4001, "next": 4801,
     "window": 8192, "files": []}

`next` null is an intent: the commit may be in the stream in part, from `first` on, and its rows are in `files`.

Invariants: an entry is replaced by compare-and-set, so that of two commits of one writer at a time one is refused.
Numbers of a writer only rise. An entry belongs to one stream, by the time when that was made.
"""

import base64
import json
import re
from typing import Any, NamedTuple

from blake3 import blake3

from strandline.errors import Damaged, FormatError
from strandline.kv.errors import error_from_code
from strandline.kv.nats.layout import STREAM_PREFIX
from strandline.nats.errors import ServerRefused, StreamNotFound
from strandline.spark.sink.commits import Commit
from strandline.spark.streams.pull_consumer import Session
from strandline.wire import format_headers

STATE_VERSION = 1
_NO_MESSAGE = 10037
_NAME = re.compile(r"[-_a-zA-Z0-9]+")


class Entry(NamedTuple):
    """The last commit of a writer; `next` None is an intent, `window` how many rows a window had at most."""

    created: str
    number: int
    rows: int
    bytes: int
    first: int
    next: int | None
    window: int
    files: tuple[str, ...] = ()


def format_entry(entry: Entry) -> bytes:
    """Return the value of an entry."""
    return json.dumps({"version": STATE_VERSION, **entry._asdict()}).encode()


def parse_entry(data: bytes, key: str) -> Entry:
    """Return the entry of a value; `FormatError` for a later version's, `Damaged` where it is none."""
    try:
        fields: dict[str, Any] = json.loads(data)
        version = fields.pop("version")
        if version != STATE_VERSION:
            raise FormatError(key, f"sink version {version} is not known here", hint="use a later Strandline")
        fields["files"] = tuple(fields["files"])
        return Entry(**fields)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        safe = "delete the key if no query will write from an old checkpoint; else restore it"
        raise Damaged(key, "the entry is not whole, so a replayed commit would not be recognized", safe=safe) from error


def format_id_prefix(commit: Commit) -> str:
    """Return the beginning of the ids of a commit's messages; the number of the row follows."""
    return f"strandline-{blake3(commit.writer.encode()).hexdigest(length=12)}-{commit.number}-"


def key_of(stream: str, writer: str) -> str:
    """Return the key of a writer's entry; names that a key may not hold are hashed."""
    name = stream if _NAME.fullmatch(stream) else f"x-{blake3(stream.encode()).hexdigest(length=12)}"
    kind, _, rest = writer.partition("/")
    return f"{name}.{kind}/{rest if _NAME.fullmatch(rest) else blake3(rest.encode()).hexdigest(length=16)}"


class SinkStates:
    """The entries of one bucket; the bucket is made when the first one is written."""

    def __init__(self, session: Session, bucket: str, replicas: int) -> None:
        self._session = session
        self._bucket = bucket
        self._replicas = replicas

    def read(self, key: str) -> tuple[Entry | None, int]:
        """Return an entry and its revision, None and 0 if there is none; of the leader, never of a late replica."""
        request = {"last_by_subj": self._subject(key)}
        try:
            message = self._session.call_raw(f"STREAM.MSG.GET.{STREAM_PREFIX}{self._bucket}", request)["message"]
        except StreamNotFound:
            return None, 0
        except ServerRefused as refused:
            if refused.code != _NO_MESSAGE:
                raise
            return None, 0
        data = base64.b64decode(message.get("data", ""))
        return (parse_entry(data, f"{self._bucket}/{key}") if data else None), int(message["seq"])

    def write(self, key: str, entry: Entry, revision: int) -> int:
        """Replace an entry that has this revision; `RevisionMismatch` if it has another, and nothing was written."""
        return self._put(key, format_entry(entry), [], revision)

    def remove(self, key: str, revision: int) -> None:
        """Delete an entry that has this revision."""
        self._put(key, b"", [("KV-Operation", "DEL")], revision)

    def _put(self, key: str, value: bytes, headers: list[tuple[str, str]], revision: int) -> int:
        if not revision:
            self._make()
        block = format_headers([*headers, ("Nats-Expected-Last-Subject-Sequence", str(revision))])
        reply = self._session.socket.request(self._subject(key), value, block)
        answer = json.loads(reply.payload)
        if error := answer.get("error"):
            code = int(error.get("err_code", 0))
            raise error_from_code(code, str(error.get("description", "")), bucket=self._bucket, key=key)
        return int(answer["seq"])

    def _make(self) -> None:
        """Make the bucket, unless it is there."""
        name = STREAM_PREFIX + self._bucket
        config = {
            "name": name,
            "subjects": [f"$KV.{self._bucket}.>"],
            "max_msgs_per_subject": 1,
            "discard": "new",
            "allow_rollup_hdrs": True,
            "deny_delete": True,
            "allow_direct": True,
            "num_replicas": self._replicas,
        }
        try:
            self._session.call_raw(f"STREAM.INFO.{name}")
        except StreamNotFound:
            self._session.call_raw(f"STREAM.CREATE.{name}", config)

    def _subject(self, key: str) -> str:
        return f"$KV.{self._bucket}.{key}"
