"""The limits of a stream: which messages they remove, by subject, by number, by bytes.

Invariants: a pure function of the index and the configuration, so that a replay of the log has the same result; the
oldest are removed first. `expiry` removes messages by age and time to live.
"""

import numpy as np

from strandline.broker.api.config import Discard, StreamConfig
from strandline.broker.streams.arrays import Ids, Places, distinct
from strandline.broker.streams.index import Index
from strandline.broker.streams.sizes import FILE_OVERHEAD, HEADER_OVERHEAD

WALK_MAX = 64
_OVERHEAD_MAX = FILE_OVERHEAD + HEADER_OVERHEAD
_NO_PLACES: Places = np.zeros(0, np.int64)


def has_limits(config: StreamConfig) -> bool:
    """Tell whether a new message may remove another one."""
    return config.max_msgs_per_subject > 0 or (
        config.discard is Discard.OLD and (config.max_msgs > 0 or config.max_bytes > 0)
    )


def needs_rows(config: StreamConfig) -> bool:
    """Tell whether removals depend on the order of single messages: limits by subject and by total do not commute."""
    return (
        config.max_msgs_per_subject > 0
        and config.discard is Discard.OLD
        and (config.max_msgs > 0 or config.max_bytes > 0)
    )


def over_subject(index: Index, config: StreamConfig, numbers: Ids) -> Places:
    """Return the oldest rows of some subjects, as many as each has too many."""
    limit = config.max_msgs_per_subject
    if limit <= 0 or not len(numbers):
        return _NO_PLACES
    counts = index.subjects.count[numbers]
    over = numbers[counts > limit]
    if not len(over):
        return _NO_PLACES
    if len(over) > 1:
        over = distinct(over)
    excess = index.subjects.count[over].astype(np.int64) - limit
    if limit + int(excess.max()) > WALK_MAX:
        return _scanned(index, over, excess)
    return _walked(index, over, excess, limit)


def _scanned(index: Index, numbers: Ids, excess: Places) -> Places:
    found = [
        index.sequences_of(number)[:count] for number, count in zip(numbers.tolist(), excess.tolist(), strict=True)
    ]
    return np.sort(index.rows_of(np.concatenate(found)))


def _walked(index: Index, numbers: Ids, excess: Places, limit: int) -> Places:
    """Walk back from each subject's last row; where a link is missing, look at all of its rows."""
    before = index.rows.before
    at = index.rows_of(index.subjects.last[numbers])
    broken = np.zeros(len(numbers), np.bool_)
    found: list[Places] = []
    for step in range(1, limit + int(excess.max())):
        at = index.rows_of(before[at])
        wanted = (step < limit + excess) & ~broken
        broken |= wanted & (at < 0)
        at[at < 0] = 0  # a row that is not used further
        if step >= limit:
            found.append(np.where(wanted & ~broken, at, -1))
    if broken.any():
        found.append(_scanned(index, numbers[broken], excess[broken]))
        keep = ~broken
        found[:-1] = [part[keep] for part in found[:-1]]
    rows = np.concatenate(found)
    return np.sort(rows[rows >= 0])


def over_total(index: Index, config: StreamConfig) -> Places:
    """Return the oldest rows, as many as the stream has too many in number or in bytes."""
    if config.discard is not Discard.OLD:
        return _NO_PLACES
    count = index.messages - config.max_msgs if config.max_msgs > 0 else 0
    rows = index.live_rows(index.first_row, index.used, limit=count) if count > 0 else _NO_PLACES
    if config.max_bytes <= 0:
        return rows
    excess = index.bytes - config.max_bytes - int(index.rows.size[rows].sum(dtype=np.int64))
    if excess <= 0:
        return rows
    return np.concatenate([rows, _oldest_bytes(index, rows, excess)])


def _oldest_bytes(index: Index, after: Places, excess: int) -> Places:
    start = int(after[-1]) + 1 if len(after) else index.first_row
    step = 64
    while True:
        rows = index.live_rows(start, index.used, limit=step)
        sums = np.cumsum(index.rows.size[rows], dtype=np.int64)
        if not len(rows) or int(sums[-1]) >= excess or len(rows) < step:
            return rows[: int(np.searchsorted(sums, excess)) + 1]
        step *= 4


def refusal(index: Index, config: StreamConfig, number: int, size: int) -> str | None:
    """Return why a full stream refuses a message that counts for `size` bytes, or None if it takes it."""
    if config.discard is not Discard.NEW:
        return None
    replaces = False
    limit = config.max_msgs_per_subject
    if limit > 0 and index.subjects.count_at[number] >= limit:
        if config.discard_new_per_subject:
            return "maximum messages per subject exceeded"
        replaces = True
    if 0 < config.max_msgs <= index.messages and not replaces:
        return "maximum messages exceeded"
    if 0 < config.max_bytes < index.bytes + size:
        smaller = replaces and index.rows.size_at[index.row_of(index.first_of(number))] >= size
        return None if smaller else "maximum bytes exceeded"
    return None


def never_refuses(index: Index, config: StreamConfig, count: int, size: int) -> bool:
    """Tell whether a stream surely accepts `count` more messages with `size` bytes of subject, headers and payload."""
    if config.discard is not Discard.NEW:
        return True
    return (
        not config.discard_new_per_subject
        and (config.max_msgs <= 0 or index.messages + count <= config.max_msgs)
        and (config.max_bytes <= 0 or index.bytes + size + _OVERHEAD_MAX * count <= config.max_bytes)
    )
