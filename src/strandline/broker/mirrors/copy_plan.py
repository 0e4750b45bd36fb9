"""Which messages a mirror or a source takes from its origin, from where on, and how they are stored.

Invariants: pure. The position follows from the copy itself: its last sequence, or the position recorded with the last
message of the source. Headers that were conditions for the origin are dropped.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from strandline.broker.api.config import StreamConfig, StreamSource
from strandline.broker.api.subject_mapping import SubjectMapping
from strandline.broker.mirrors.source_names import ALL, source_name
from strandline.broker.streams import OriginBatch, Position, Stream
from strandline.broker.streams.headers import STREAM_SOURCE, VERSION_LINE, with_headers, without_header
from strandline.broker.streams.source_header import format_source

_CONDITIONS = (b"Nats-Expected-", b"Nats-Batch-")


class Start(NamedTuple):
    """Where to begin in an origin: at a sequence, or at a time if one is given."""

    sequence: int = 1
    time_ns: int | None = None


@dataclass(frozen=True)
class CopyPlan:
    """One mirror or source of one stream; `name` is empty for a mirror."""

    source: StreamSource
    name: bytes
    filters: tuple[str, ...]
    mappings: tuple[SubjectMapping, ...]

    @property
    def is_mirror(self) -> bool:
        """Whether sequences and times are kept."""
        return not self.name

    def start(self, position: Position | None, identity: bytes) -> Start:
        """Return where to resume in an origin, given the position of the copy, or None if it has not begun."""
        source = self.source
        if position is not None and position.sequence:
            same = self.is_mirror or not position.identity or position.identity == identity
            if same:
                return Start(position.sequence + 1)
        return Start(max(1, source.opt_start_seq), source.opt_start_time)

    def position(self, stream: Stream) -> Position | None:
        """Return the position of a copy."""
        return Position(stream.last_seq) if self.is_mirror else stream.position(self.name)

    def prepare(self, batch: OriginBatch) -> OriginBatch:
        """Return messages of the origin as they are to be stored."""
        headers = [_unconditional(block) if b"Nats-" in block else block for block in batch.headers]
        if not self.is_mirror:
            rows = zip(headers, batch.sequences.tolist(), batch.subjects, strict=True)
            headers = [self._signed(*row, batch.identity) for row in rows]
        subjects = batch.subjects
        if self.mappings:
            subjects = [self._mapped(subject) for subject in subjects]
        return replace(batch, subjects=subjects, headers=headers, name=self.name)

    def _signed(self, block: bytes, sequence: int, subject: bytes, identity: bytes) -> bytes:
        value = format_source(self.name, sequence, subject, identity)
        if not block:
            return b"%b%b: %b\r\n\r\n" % (VERSION_LINE, STREAM_SOURCE, value)
        return with_headers(without_header(block, STREAM_SOURCE), [(STREAM_SOURCE, value)])

    def _mapped(self, subject: bytes) -> bytes:
        text = subject.decode(errors="surrogateescape")
        found = next((made for mapping in self.mappings if (made := mapping.apply(text)) is not None), None)
        return subject if found is None else found.encode(errors="surrogateescape")


def _unconditional(block: bytes) -> bytes:
    for name in _CONDITIONS:
        block = without_header(block, name)
    return block


def plan_of(source: StreamSource, *, mirror: bool) -> CopyPlan:
    """Return the plan of a mirror or a source."""
    transforms = source.subject_transforms
    filters = tuple(part.src or ALL for part in transforms) or ((source.filter_subject,) * bool(source.filter_subject))
    mappings = tuple(SubjectMapping(part.src, part.dest) for part in transforms if part.dest)
    return CopyPlan(source, b"" if mirror else source_name(source), filters, mappings)


def plans_of(config: StreamConfig) -> dict[bytes, CopyPlan]:
    """Return the plans of a stream by their names; a mirror's is empty."""
    if config.mirror is not None:
        return {b"": plan_of(config.mirror, mirror=True)}
    plans = [plan_of(source, mirror=False) for source in config.sources]
    return {plan.name: plan for plan in plans}
