"""A stream as simple as can be: a list of messages, and rules applied one message at a time."""

from dataclasses import dataclass, field, replace

from strandline.broker.api.config import Discard, StreamConfig
from strandline.broker.streams.headers import parse_ttl, special_headers
from strandline.wire import subject_matches

FILE_OVERHEAD = 30
MARKER = b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: %ds\r\nNats-Rollup: sub\r\n\r\n"


@dataclass(frozen=True)
class Kept:
    """One message."""

    sequence: int
    subject: bytes
    headers: bytes
    payload: bytes
    time_ns: int
    ttl_s: int = 0
    """Settled when it came, under the configuration of that time; -1 for never."""

    @property
    def size(self) -> int:
        extra = 4 + len(self.headers) if self.headers else 0
        return FILE_OVERHEAD + len(self.subject) + len(self.payload) + extra

    def due_ns(self, config: StreamConfig) -> int | None:
        """When it goes by itself, None for never."""
        if self.ttl_s < 0:
            return None
        dues = [self.time_ns + self.ttl_s * 10**9] if self.ttl_s else []
        dues += [self.time_ns + config.max_age] if config.max_age else []
        return min(dues, default=None)


@dataclass
class Model:
    """What a stream should hold."""

    config: StreamConfig
    messages: list[Kept] = field(default_factory=list)
    last_seq: int = 0
    last_time: int = 0
    now_ns: int = 0
    last_id: bytes = b""
    known: dict[bytes, tuple[int, int]] = field(default_factory=dict)

    def copy(self) -> "Model":
        return replace(self, messages=list(self.messages), known=dict(self.known))

    def tick(self, now_ns: int) -> None:
        """Let time go on, and let go of what is past its time, leaving markers."""
        self.now_ns = max(self.now_ns, now_ns)
        gone = [kept for kept in self.messages if (due := kept.due_ns(self.config)) is not None and due <= self.now_ns]
        self.messages = [kept for kept in self.messages if kept not in gone]
        if self.config.subject_delete_marker_ttl:
            left = {kept.subject for kept in self.messages}
            last = {kept.subject: kept for kept in gone if kept.subject not in left}
            for kept in sorted(last.values(), key=lambda kept: kept.subject):
                if b"Nats-Marker-Reason" not in kept.headers:
                    seconds = self.config.subject_delete_marker_ttl // 10**9
                    headers = (
                        b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: %ds\r\nNats-Rollup: sub\r\n\r\n" % seconds
                    )
                    self._store(kept.subject, headers, b"")

    def last_of(self, subject: bytes) -> int:
        return max((kept.sequence for kept in self.messages if kept.subject == subject), default=0)

    def publish(self, subject: bytes, headers: bytes, payload: bytes) -> int | str:
        """Return the sequence, or what was wrong with it."""
        special = special_headers(headers)
        expected = special.get(b"Nats-Expected-Last-Subject-Sequence")
        if expected is not None and int(expected) != self.last_of(subject):
            return "wrong last sequence"
        identifier = special.get(b"Nats-Msg-Id", b"")
        if identifier in self.known and self.now_ns - self.known[identifier][1] < self.config.duplicate_window:
            return f"duplicate {self.known[identifier][0]}"
        if self._is_full(subject, Kept(0, subject, headers, payload, 0).size):
            return "full"
        sequence = self._store(subject, headers, payload)
        if identifier:
            self.known[identifier] = (sequence, self.now_ns)
        return sequence

    def _is_full(self, subject: bytes, size: int) -> bool:
        config = self.config
        if config.discard is not Discard.NEW:
            return False
        own = [kept for kept in self.messages if kept.subject == subject]
        replaces = 0 < config.max_msgs_per_subject <= len(own)
        if replaces and config.discard_new_per_subject:
            return True
        if 0 < config.max_msgs <= len(self.messages) and not replaces:
            return True
        if 0 < config.max_bytes < sum(kept.size for kept in self.messages) + size:
            return not replaces or own[0].size < size
        return False

    def _store(self, subject: bytes, headers: bytes, payload: bytes) -> int:
        self.last_seq += 1
        self.last_time = self.now_ns
        self.last_id = special_headers(headers).get(b"Nats-Msg-Id", b"")
        self.messages.append(Kept(self.last_seq, subject, headers, payload, self.now_ns, self._ttl(headers)))
        self.enforce()
        rollup = special_headers(headers).get(b"Nats-Rollup", b"")
        if rollup and self.config.allow_rollup_hdrs:
            newest = self.last_seq
            self.messages = [
                kept
                for kept in self.messages
                if kept.sequence == newest or (rollup == b"sub" and kept.subject != subject)
            ]
        return self.last_seq

    def _ttl(self, headers: bytes) -> int:
        ttl_s = parse_ttl(special_headers(headers).get(b"Nats-TTL", b"")) if self.config.allow_msg_ttl else 0
        marker_s = self.config.subject_delete_marker_ttl // 10**9
        lifted = ttl_s > 0 and marker_s and self.config.max_msgs_per_subject != 1
        return max(ttl_s, marker_s) if lifted else ttl_s

    def enforce(self) -> None:
        """Let go of what is beyond the limits."""
        config = self.config
        if config.max_msgs_per_subject > 0:
            for subject in {kept.subject for kept in self.messages}:
                own = [kept for kept in self.messages if kept.subject == subject]
                gone = set(own[: -config.max_msgs_per_subject])
                self.messages = [kept for kept in self.messages if kept not in gone]
        if config.discard is Discard.OLD:
            if config.max_msgs > 0:
                self.messages = self.messages[-config.max_msgs :]
            while config.max_bytes > 0 and sum(kept.size for kept in self.messages) > config.max_bytes:
                self.messages.pop(0)

    def remove(self, sequences: list[int]) -> None:
        self.messages = [kept for kept in self.messages if kept.sequence not in sequences]

    def purge(self, pattern: str, below: int, keep: int) -> int:
        chosen = [
            kept
            for kept in self.messages
            if (not pattern or subject_matches(pattern, kept.subject.decode())) and (not below or kept.sequence < below)
        ]
        chosen = chosen[: len(chosen) - keep] if keep else chosen
        self.remove([kept.sequence for kept in chosen])
        if below and not pattern:
            self.last_seq = max(self.last_seq, below - 1)
        return len(chosen)
