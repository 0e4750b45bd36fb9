"""Journals and queues in folders, read beside their writers.

Invariants: nothing is written and no lock is taken; damage is shown once two looks in a row have seen it, because a
writer that works meanwhile can look like damage.
"""

from dataclasses import dataclass
from pathlib import Path

from strandline.errors import FormatError
from strandline.files import OsDisk, storage_errors
from strandline.groups.report import GroupReport, inspect_group
from strandline.groups.store import group_names
from strandline.journal import Examination, JournalReader, Record, examine
from strandline.journal.segment import format_segment_name
from strandline.queue.dead_letters import parse_letter
from strandline.queue.storage import DeadLetter
from strandline.web.polling import Need, Polled

EVERY_S = 2.0
LETTERS_SHOWN = 100


@dataclass(frozen=True)
class SegmentFacts:
    """A segment of a journal."""

    name: str
    first_offset: int
    end_offset: int
    bytes: int


@dataclass(frozen=True)
class JournalFacts:
    """A journal: its offsets, its segments, and what is wrong with it."""

    first_offset: int
    next_offset: int
    durable_offset: int
    segments: tuple[SegmentFacts, ...]
    torn_bytes: int
    damage: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """Return the size of all segments."""
        return sum(segment.bytes for segment in self.segments)


@dataclass(frozen=True)
class QueueFacts:
    """A queue: the journal of its messages, its groups, and its dead letters."""

    messages: JournalFacts
    groups: tuple[GroupReport, ...]
    dead: int


def is_queue(folder: Path) -> bool:
    """Return whether a folder is that of a queue."""
    return (folder / "messages").is_dir()


class JournalPart(Polled[JournalFacts | QueueFacts]):
    """The folder of a journal, or of a queue."""

    def __init__(self, folder: Path) -> None:
        super().__init__("journals", str(folder), self._look, every_s=EVERY_S)
        self.folder = folder
        self._suspected: frozenset[str] = frozenset()

    def needs(self, link: str) -> list[Need]:
        """Return what needs a person."""
        facts = self.value
        if facts is None:
            return []
        journal = facts.messages if isinstance(facts, QueueFacts) else facts
        found = [Need(f"{self.name} is damaged: {journal.damage[0]}", link, is_urgent=True)] if journal.damage else []
        if isinstance(facts, QueueFacts):
            if facts.dead:
                found.append(Need(f"{facts.dead:,} dead letters are in {self.name}", link))
            bad = [group for group in facts.groups if group.problem is not None]
            found += [Need(f"group {one.name} of {self.name}: {one.problem}", link, is_urgent=True) for one in bad]
        return found

    def record(self, offset: int) -> Record:
        """Return one record, or one message of a queue."""
        with JournalReader.open(self.folder / "messages" if is_queue(self.folder) else self.folder) as reader:
            return reader.fetch(offset)

    def dead_letters(self) -> list[DeadLetter]:
        """Return the latest dead letters of a queue."""
        if not is_queue(self.folder) or not (self.folder / "dead").is_dir():
            return []
        with JournalReader.open(self.folder / "dead") as reader:
            first = max(reader.first_offset, reader.durable_offset - LETTERS_SHOWN)
            if first >= reader.durable_offset:
                return []
            return [parse_letter(record) for batch in reader.scan(first) for record in batch.records()][::-1]

    def _look(self) -> JournalFacts | QueueFacts:
        if not is_queue(self.folder):
            return self._journal(self.folder)
        disk = OsDisk()
        groups = self.folder / "groups"
        reports = (inspect_group(disk, groups, name) for name in group_names(disk, groups))
        dead = 0
        if (self.folder / "dead").is_dir():
            letters = self._examined(self.folder / "dead")
            dead = letters.next_offset - letters.first_offset
        journal = self._journal(self.folder / "messages")
        return QueueFacts(journal, tuple(report for report in reports if report is not None), dead)

    def _examined(self, folder: Path) -> Examination:
        with storage_errors(folder):
            found = examine(OsDisk(), folder)
        if found.is_empty and not any(folder.iterdir()):
            raise FormatError(str(folder), "there is no journal here")
        return found

    def _journal(self, folder: Path) -> JournalFacts:
        found = self._examined(folder)
        seen = frozenset(damage.describe() for damage in found.damage)
        certain, self._suspected = seen & self._suspected, seen
        return JournalFacts(
            first_offset=found.first_offset,
            next_offset=found.next_offset,
            durable_offset=min(found.proof, found.next_offset),
            segments=tuple(
                SegmentFacts(format_segment_name(one.base_offset), one.base_offset, one.end_offset, one.size)
                for one in found.segments
            ),
            torn_bytes=0 if found.torn is None else found.torn.bytes,
            damage=tuple(sorted(certain)),
        )
