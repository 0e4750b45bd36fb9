"""Parts of a journal's blocks, as a streaming scan reads them: tasks scan the parts, and the driver merges the results.

A part is the share of one micro-batch in one block of 1,024 offsets; `scan.sources.journals` has the same blocks as
items, so that a streaming scan and a bounded scan name the same findings. A task returns one row with the sums of a
part and one row for each finding; records never leave the task.

Invariants: pure but for the engine; the version of a part names exactly its offsets; missing offsets between its first
and its last count as a gap.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from strandline.detect import Limits, RuleSet
from strandline.pipeline.identity import RuleFingerprint, SecretHash, TenantSecretKey, object_version_id, stable_item_id
from strandline.pipeline.pages import FoundSecret, Gaps, Item, Scanned
from strandline.scan.sources import Content, JournalSource, Part
from strandline.scan.sources.journals import BLOCK_OFFSETS, format_block
from strandline.scan.worker.content_scan import scan_content
from strandline.scan.worker.engine_cache import engine_for

FIELDS = ("", "key", "headers")
"""Names of a finding's place in a record, those of `scan.sources.journals`."""
_COLUMNS = ("value", "key", "headers")
ROWS_DDL = (
    "first LONG, next LONG, records LONG, bytes LONG, members LONG, decodes LONG, dropped LONG, allowed LONG, "
    "rule BINARY, secret BINARY, start LONG, end LONG, display STRING, url STRING"
)
_TYPES = {"LONG": pa.int64(), "BINARY": pa.binary(), "STRING": pa.string()}
ROWS = pa.schema([(name, _TYPES[kind]) for name, kind in (column.split() for column in ROWS_DDL.split(", "))])
_SUMS = ("records", "bytes", "members", "decodes", "dropped", "allowed")


@dataclass(frozen=True)
class BlockScanner:
    """The source, rules, limits and key of a task; its `repr` shows no key."""

    source: JournalSource
    rules: RuleSet = field(repr=False)
    limits: Limits
    key: TenantSecretKey = field(repr=False)


@dataclass
class BlockPart:
    """The result of one part of a block: offsets [first, next), and its findings."""

    first: int
    next: int
    sums: dict[str, int]
    found: list[FoundSecret]

    def scanned(self) -> Scanned:
        """Return the outcome of the part."""
        lost = self.next - self.first - self.sums["records"]
        gaps = Gaps(self.sums["members"] + lost, self.sums["decodes"], self.sums["dropped"])
        return Scanned(self.sums["bytes"], self.found, gaps)

    def item(self, source: JournalSource) -> Item:
        """Return the item, at its version, that the part is."""
        item = stable_item_id(source.tag, source.instance, format_block(self.first // BLOCK_OFFSETS))
        return Item(item, object_version_id(source.version(self.first, self.next)))


def scan_blocks(scanner: BlockScanner, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Scan the records of Arrow batches, in a task; `offset` must rise within each batch."""
    engine = engine_for(scanner.rules, scanner.limits, scanner.key)
    for batch in batches:
        for part in _by_block(batch):
            offsets = part.column("offset")
            first, following = offsets[0].as_py(), offsets[-1].as_py() + 1
            content = Content(b"", _parts(scanner.source, part), part.num_rows)
            seen = scan_content(engine, scanner.source, content, lambda: None)
            sums = (part.num_rows, seen.scanned.bytes_seen, *seen.scanned.gaps, seen.allowed)
            rows = [{"first": first, "next": following, **dict(zip(_SUMS, sums, strict=True))}]
            rows += [_finding_row(first, following, one) for one in seen.scanned.found]
            yield pa.RecordBatch.from_pylist(rows, ROWS)


def merge_block_parts(rows: Iterable[Mapping[str, Any]]) -> list[BlockPart]:
    """Return the parts of a batch, one for each block, in the order of offsets."""
    merged: dict[int, BlockPart] = {}
    for row in sorted(rows, key=lambda row: (row["first"], row["start"] or 0)):
        block = row["first"] // BLOCK_OFFSETS
        block_part = merged.setdefault(block, BlockPart(row["first"], row["next"], dict.fromkeys(_SUMS, 0), []))
        block_part.next = max(block_part.next, row["next"])
        if row["rule"] is None:
            block_part.sums = {name: count + row[name] for name, count in block_part.sums.items()}
        else:
            block_part.found.append(
                FoundSecret(
                    RuleFingerprint(bytes(row["rule"])),
                    SecretHash(bytes(row["secret"])),
                    row["start"],
                    row["end"],
                    row["display"],
                    row["url"],
                )
            )
    return list(merged.values())


def _by_block(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    at = 0
    offsets = batch.column("offset").to_numpy()
    while at < len(offsets):
        end = (offsets[at] // BLOCK_OFFSETS + 1) * BLOCK_OFFSETS
        count = int((offsets[at:] < end).sum())
        yield batch.slice(at, count)
        at += count


def _parts(source: JournalSource, part: pa.RecordBatch) -> Iterator[Part]:
    offsets = part.column("offset").to_pylist()
    for number, name in enumerate(_COLUMNS):
        for offset, value in zip(offsets, part.column(name).to_pylist(), strict=True):
            if value:
                address = offset % BLOCK_OFFSETS * len(FIELDS) + number
                yield Part(value, source.path, address, row=str(offset), field=FIELDS[number])


def _finding_row(first: int, following: int, found: FoundSecret) -> dict[str, Any]:
    return {
        "first": first,
        "next": following,
        "rule": found.rule,
        "secret": bytes(found.secret),
        "start": found.start,
        "end": found.end,
        "display": found.location_display,
        "url": found.location_url,
    }
