"""A bucket as JetStream keeps it: names, settings, and what a stream says of itself; no I/O.

Invariants: a bucket's stream, subjects and settings are those of every NATS client, so that all of them can share it.
A mirror holds the subjects of its origin and is written through it. What a stream does not say counts as the worst: a
bucket that may evict current values is said to.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from blake3 import blake3

from strandline.errors import FormatError
from strandline.kv.config import Discard, Retention, StoreConfig, format_differences
from strandline.kv.nats.messages import parse_time

NS = 1_000_000_000
IDENTITY_BYTES = 8
STREAM_PREFIX = "KV_"
SUBJECT_PREFIX = "$KV."
UNLIMITED = -1


def stream_name(bucket: str) -> str:
    """Return the stream of a bucket."""
    return f"{STREAM_PREFIX}{bucket}"


def subject_prefix(bucket: str) -> str:
    """Return what the subjects of a bucket's keys begin with."""
    return f"{SUBJECT_PREFIX}{bucket}."


def stream_identity(name: str, created: str) -> bytes:
    """Return what tells a stream from every other; `created` is the time as the server writes it."""
    return blake3(f"{name}\n{created}".encode()).digest(length=IDENTITY_BYTES)


def stream_config(bucket: str, config: StoreConfig) -> dict[str, Any]:
    """Return the stream's settings for a bucket's, as the API takes them."""
    return {
        "name": stream_name(bucket),
        "subjects": [f"{subject_prefix(bucket)}>"],
        "retention": "limits",
        "storage": "file",
        "max_msgs_per_subject": config.history,
        "max_msgs": config.updates_max or UNLIMITED,
        "max_bytes": config.bytes_max or UNLIMITED,
        "max_msg_size": config.value_bytes_max or UNLIMITED,
        "max_age": int(config.age_max_s * NS),
        "discard": config.discard.value,
        "num_replicas": config.replicas,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
        **({"allow_msg_ttl": True} if config.ttl or config.marker_ttl_s else {}),
        **({"subject_delete_marker_ttl": int(config.marker_ttl_s * NS)} if config.marker_ttl_s else {}),
    }


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream at a moment: what it holds, and the settings that decide what it keeps.

    `first` is the oldest sequence it holds, or the one to come if it holds none. A limit of 0 is none. `is_copy` is
    whether others are mirrored or sourced into it, `now_ns` the server's time, 0 if it does not say. `prefix` is what
    the subjects of a bucket's keys begin with, those of its origin for a mirror, and `write_prefix` where keys are
    written to.
    """

    name: str
    created: str
    first: int
    last: int
    messages: int
    stored_bytes: int = 0
    num_subjects: int = 0
    subjects: tuple[str, ...] = ()
    messages_max: int = 0
    bytes_max: int = 0
    age_max_ns: int = 0
    per_subject_max: int = 0
    message_bytes_max: int = 0
    duplicate_window_ns: int = 0
    discards_old: bool = True
    retention: str = "limits"
    allows_direct: bool = False
    allows_ttl: bool = False
    marker_ttl_ns: int = 0
    replicas: int = 1
    is_copy: bool = False
    prefix: str = ""
    write_prefix: str = ""
    now_ns: int = 0

    @property
    def identity(self) -> bytes:
        """Return eight bytes that another stream of the same name does not have."""
        return stream_identity(self.name, self.created)

    @property
    def label(self) -> str:
        """Return the name as a user knows it: that of the bucket if it is one."""
        return self.name.removeprefix(STREAM_PREFIX)

    @property
    def evicts_current_values(self) -> bool:
        """Tell whether the last message of a subject can vanish, or be missing, without anybody removing it.

        Nobody vouches for a copy: its origin may have evicted what was not copied yet.
        """
        return bool(self.age_max_ns) or self._evicts_otherwise

    @property
    def is_age_only(self) -> bool:
        """Tell whether nothing but age evicts."""
        return bool(self.age_max_ns) and not self._evicts_otherwise

    @property
    def drops_current_values(self) -> bool:
        """Tell whether age, size, count or an origin can remove the last message of a subject."""
        return bool(self.age_max_ns) or self._overflows

    @property
    def _evicts_otherwise(self) -> bool:
        return self.allows_ttl or self._overflows

    @property
    def _overflows(self) -> bool:
        bounded = self.discards_old and bool(self.messages_max or self.bytes_max)
        return bounded or self.retention != "limits" or self.is_copy

    def to_retention(self) -> Retention:
        """Return what the stream tells of a bucket's retention."""
        return Retention(
            evicts_current_values=self.evicts_current_values,
            first_revision=self.first,
            last_revision=self.last,
            age_only=self.is_age_only,
            age_max_ns=self.age_max_ns,
            identity=self.identity,
            updates=self.messages,
            in_order=not self.allows_ttl,
            ttl_only=self.allows_ttl and not self.drops_current_values,
            history=self.per_subject_max,
            now_ns=self.now_ns,
        )


def parse_stream_info(answer: Mapping[str, Any]) -> StreamState:
    """Return what an answer of STREAM.INFO or STREAM.CREATE tells; `FormatError` if it is another."""
    try:
        config, state = answer["config"], answer["state"]
        last, messages = int(state["last_seq"]), int(state["messages"])
        prefix, write_prefix = _prefixes(config)
        return StreamState(
            name=str(config["name"]),
            created=str(answer["created"]),
            first=int(state["first_seq"]) if messages else last + 1,
            last=last,
            messages=messages,
            stored_bytes=int(state["bytes"]),
            num_subjects=int(state.get("num_subjects", 0)),
            subjects=tuple(config.get("subjects") or ()),
            messages_max=_limit(config.get("max_msgs")),
            bytes_max=_limit(config.get("max_bytes")),
            age_max_ns=_limit(config.get("max_age")),
            per_subject_max=_limit(config.get("max_msgs_per_subject")),
            message_bytes_max=_limit(config.get("max_msg_size")),
            duplicate_window_ns=_limit(config.get("duplicate_window")),
            discards_old=config.get("discard", "old") == "old",
            retention=str(config.get("retention", "limits")),
            allows_direct=bool(config.get("allow_direct", False)),
            allows_ttl=bool(config.get("allow_msg_ttl", False)),
            marker_ttl_ns=_limit(config.get("subject_delete_marker_ttl")),
            replicas=int(config.get("num_replicas", 1)),
            is_copy=bool(config.get("mirror") or config.get("sources")),
            prefix=prefix,
            write_prefix=write_prefix,
            now_ns=max(parse_time(str(answer["ts"])), 0) if answer.get("ts") else 0,
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise FormatError("JetStream", "an answer about a stream lacks its config or state") from None


def _limit(told: object) -> int:
    """Return a limit; the server writes 0 or -1 where there is none."""
    return max(int(str(told or 0)), 0)


def _prefixes(config: Mapping[str, Any]) -> tuple[str, str]:
    """Return what a bucket's subjects begin with, to read and to write."""
    mirror: Mapping[str, Any] = config.get("mirror") or {}
    if not mirror:
        prefix = next(_key_prefixes(config.get("subjects") or ()), subject_prefix(_bucket(config["name"])))
        return prefix, prefix
    origin = subject_prefix(_bucket(mirror["name"]))
    moved = [str(each.get("dest", "")) for each in mirror.get("subject_transforms") or ()]
    external = (mirror.get("external") or {}).get("api", "")
    return next(_key_prefixes(moved), origin), f"{external}.{origin}" if external else origin


def _key_prefixes(subjects: Sequence[str]) -> Iterator[str]:
    return (subject[:-1] for subject in subjects if subject.startswith(SUBJECT_PREFIX) and subject.endswith(".>"))


def _bucket(stream: object) -> str:
    return str(stream).removeprefix(STREAM_PREFIX)


def format_stream_differences(config: StoreConfig, state: StreamState) -> str:
    """Return which of a bucket's settings are not as wanted, empty if all are."""
    has = {
        "history": state.per_subject_max,
        "updates_max": state.messages_max,
        "bytes_max": state.bytes_max,
        "value_bytes_max": state.message_bytes_max,
        "age_max_s": state.age_max_ns / NS,
        "discard": Discard.OLD if state.discards_old else Discard.NEW,
        "ttl": state.allows_ttl,
        "marker_ttl_s": state.marker_ttl_ns / NS,
        "replicas": state.replicas,
    }
    wanted = asdict(config) | {"ttl": config.ttl or config.marker_ttl_s > 0}
    return format_differences(wanted, has)


def parse_answer(data: bytes) -> dict[str, Any]:
    """Return an answer of the API; `FormatError` if it is none."""
    try:
        answer = json.loads(data)
    except ValueError as refused:
        raise FormatError("the server's answer", "it is not JSON") from refused
    if not isinstance(answer, dict):
        raise FormatError("the server's answer", "it is not an object")
    return answer
