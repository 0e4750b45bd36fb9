"""What a stream says of itself, and how the JetStream API writes it; no I/O.

Invariants: a stream's identity is of its name and its time of creation, so a stream that was deleted and created again
has another. A setting that the server leaves out counts as the worst case: a stream that may evict current values is
said to evict them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from blake3 import blake3

from strandline.errors import FormatError

IDENTITY_BYTES = 8
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def stream_identity(name: str, created: str) -> bytes:
    """Return what tells a stream from every other; `created` is the time as the server writes it."""
    return blake3(f"{name}\n{created}".encode()).digest(length=IDENTITY_BYTES)


@dataclass(frozen=True, slots=True)
class Mirror:
    """The stream that another one mirrors: its name, the subjects its messages are moved to, another API's prefix."""

    name: str
    destinations: tuple[str, ...] = ()
    api_prefix: str = ""


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream at a moment: what it holds, and the settings that decide what it keeps.

    `first` is the oldest sequence it holds, or the next one if it holds none. A limit of 0 is none. `mirror` is the
    stream it mirrors, None if it mirrors none; `is_copy` says that others are mirrored or sourced into it. `now_ns` is
    the server's time, 0 if the server does not tell. `leader` is the member of a cluster that tells all this; `in_step`
    are the others of which it says that they have its whole log, though they may have yet to apply its end.
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
    mirror: Mirror | None = None
    now_ns: int = 0
    leader: str = ""
    in_step: tuple[str, ...] = ()

    @property
    def identity(self) -> bytes:
        """Return eight bytes that another stream of the same name does not have."""
        return stream_identity(self.name, self.created)

    @property
    def evicts_current_values(self) -> bool:
        """Tell whether the last message of a subject can vanish, or be missing, without a delete.

        A copy counts as evicting: its origin may have evicted messages before they were copied.
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


def parse_stream_info(answer: Mapping[str, Any]) -> StreamState:
    """Return what an answer of STREAM.INFO or STREAM.CREATE tells; `FormatError` if it is another."""
    try:
        config, state = answer["config"], answer["state"]
        last, messages = int(state["last_seq"]), int(state["messages"])
        cluster = answer.get("cluster") or {}
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
            mirror=_mirror(config.get("mirror")),
            now_ns=max(parse_time(str(answer["ts"])), 0) if answer.get("ts") else 0,
            leader=str(cluster.get("leader", "")),
            in_step=tuple(str(peer["name"]) for peer in cluster.get("replicas") or () if _is_in_step(peer)),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise FormatError("JetStream", "an answer about a stream lacks its config or state") from None


def _limit(told: object) -> int:
    """Return a limit; the server writes 0 or -1 where there is none."""
    return max(int(str(told or 0)), 0)


def _is_in_step(peer: Mapping[str, Any]) -> bool:
    return bool(peer.get("current")) and not peer.get("offline") and not peer.get("lag")


def _mirror(told: Mapping[str, Any] | None) -> Mirror | None:
    if not told:
        return None
    moved = tuple(str(each.get("dest", "")) for each in told.get("subject_transforms") or ())
    return Mirror(str(told["name"]), moved, str((told.get("external") or {}).get("api", "")))


def parse_answer(data: bytes) -> dict[str, Any]:
    """Return an answer of the API; `FormatError` if it is none."""
    try:
        answer = json.loads(data)
    except ValueError as refused:
        raise FormatError("the server's answer", "it is not JSON") from refused
    if not isinstance(answer, dict):
        raise FormatError("the server's answer", "it is not an object")
    return answer


def parse_header_values(block: bytes) -> dict[str, str]:
    """Return the headers of a block that begins with `NATS/1.0`; of one that comes twice, the first."""
    headers: dict[str, str] = {}
    for line in block.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            headers.setdefault(name.decode(errors="replace"), value.decode(errors="replace").strip())
    return headers


def parse_time(text: str) -> int:
    """Return a time of RFC 3339, up to nanoseconds, as nanoseconds since 1970; `ValueError` if it is none."""
    whole, _, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    moment = datetime.fromisoformat(whole + (rest[len(digits) :] or ""))
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + int(digits[:9].ljust(9, "0"))
