"""The scan of an item's bytes: engine, locations, gaps, and findings that comments allow.

Invariants: a finding that a comment allows is counted and not kept; what the engine cannot take is a failure of that
item alone, under the name of the error's class, without its message: that might hold scanned bytes.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from strandline.detect import Engine, Found, ItemResult
from strandline.detect.locations import format_display, format_url
from strandline.pipeline.identity import RuleFingerprint
from strandline.pipeline.pages import FoundSecret, Gaps, Scanned
from strandline.scan.sources import Content, Part, Source, location
from strandline.scan.worker.shared_results import SharedResults

CELLS_AT_ONCE = 4_096
BYTES_AT_ONCE = 4 << 20
_ADDRESS_BITS = 32
_LINE_BYTES_MAX = 65_536
_HASH = re.compile(rb"[0-9a-f]{40}|[0-9a-f]{64}")


class ContentResult(NamedTuple):
    """The findings and coverage of an item, and the number of findings that comments allowed."""

    scanned: Scanned
    allowed: int


def scan_content(
    engine: Engine, source: Source, content: Content, beat: Callable[[], None], shared: SharedResults | None = None
) -> ContentResult:
    """Scan an item; `beat` is called between its parts; `shared` knows results of the same bytes."""
    found: list[FoundSecret] = []
    allowed = bytes_seen = lost = 0
    gaps = [0, 0, 0]
    is_piece = False
    for part, result in _results(engine, content.parts, beat, shared):
        lost += part.lost
        if result is None:
            bytes_seen += len(part.data)
            continue
        coverage = result.coverage
        bytes_seen += coverage.bytes_seen
        gaps[0] += coverage.members_skipped
        gaps[1] += coverage.decodes_skipped
        gaps[2] += coverage.findings_dropped
        for one in result.findings:
            if one.comment:
                allowed += 1
            elif is_reported_hash(part.data, one):
                continue
            else:
                found.append(_found_secret(source, part, one))
        is_piece = is_piece or part.offset > 0
    gaps[0] += lost
    if is_piece:  # pieces overlap
        found = list({(one.rule, one.secret, one.start): one for one in found}.values())
    return ContentResult(Scanned(bytes_seen, found, Gaps(*gaps)), allowed)


def is_reported_hash(data: bytes, one: Found) -> bool:
    """Return whether a finding is a hash in a report: of our JSON lines, or of detect-secrets' `.secrets.baseline`."""
    if _HASH.fullmatch(data, one.start, one.end) is None:
        return False
    before = data[max(0, one.start - 32) : one.start]
    if one.path.rpartition("/")[2] == ".secrets.baseline" and before.rstrip(b' "').endswith(b'"hashed_secret":'):
        return True
    if not before.endswith(b'"secret": "'):
        return False
    least = max(0, one.start - _LINE_BYTES_MAX)  # many findings on one long line must not read it again each
    first = data.rfind(b"\n", least, one.start)
    return data.startswith(b'{"finding_id": "', least if first < 0 else first + 1)


def finds_any(
    engine: Engine,
    content: Content,
    rules: frozenset[RuleFingerprint],
    beat: Callable[[], None],
    *,
    is_named: bool = False,
) -> bool:
    """Return whether some rules find anything in an item, allowed or not, or the scan has gaps.

    One that is named was tested already: a scan may find something.
    """
    parts = content.parts
    if not is_named and isinstance(parts, list) and len(parts) == 1:
        (part,) = parts
        if not (part.lost or engine.may_find(part.data, part.path)):
            return False
    return any(
        part.lost or (result is not None and (not result.coverage.is_whole or _names(result, rules)))
        for part, result in _results(engine, parts, beat)
    )


def _names(result: ItemResult, rules: frozenset[RuleFingerprint]) -> bool:
    return any(found.fingerprint in rules for found in result.findings)


def _results(
    engine: Engine, parts: Iterable[Part], beat: Callable[[], None], shared: SharedResults | None = None
) -> Iterator[tuple[Part, ItemResult | None]]:
    """Yield the parts of an item, each with its result; None means scanned completely, without findings."""
    if isinstance(parts, list) and len(parts) == 1:
        (part,) = parts
        yield part, engine.scan(part.data, part.path, part.commit) if shared is None else shared.scan(engine, part)
        return
    for (path, commit), group in groupby(parts, key=lambda part: (part.path, part.commit)):
        for cells in _bounded(group):
            beat()
            results = engine.scan_many([part.data for part in cells], path, commit)
            for number, part in enumerate(cells):
                result = results.get(number)
                # The bytes of members are not counted here: whether they are scanned depends on the rules.
                yield part, result and _with_own_bytes(result, part)


def _with_own_bytes(result: ItemResult, part: Part) -> ItemResult:
    coverage = result.coverage
    own = type(coverage)(len(part.data), coverage.members_skipped, coverage.decodes_skipped, coverage.findings_dropped)
    return ItemResult(result.findings, own)


def _bounded(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Yield parts in lists that are scanned together."""
    cells: list[Part] = []
    size = 0
    for part in parts:
        cells.append(part)
        size += len(part.data)
        if len(cells) >= CELLS_AT_ONCE or size >= BYTES_AT_ONCE:
            yield cells
            cells, size = [], 0
    if cells:
        yield cells


def _found_secret(source: Source, part: Part, found: Found) -> FoundSecret:
    where = location(source, part, found)
    begin = (part.address << _ADDRESS_BITS) + part.offset
    # A path that was found has no span; it stands for the first byte.
    end = max(found.end, found.start + 1)
    return FoundSecret(
        found.fingerprint, found.secret, begin + found.start, begin + end, format_display(where), format_url(where)
    )
