"""Delete markers: the message for a subject whose last message has expired.

Invariants: a marker is a message like any other, with a time to live of its own; its expiry leaves no marker. Neither
does the message that purged a key of a bucket.
"""

import re

import numpy as np

from strandline.broker.api.config import StreamConfig
from strandline.broker.api.times import format_duration
from strandline.broker.streams import headers as names
from strandline.broker.streams.admission import ROLLUP_SUBJECT, Draft, lifted_ttl
from strandline.broker.streams.arrays import Places
from strandline.broker.streams.headers import special_headers, with_headers
from strandline.broker.streams.storage import MessageLog
from strandline.broker.streams.write_batch import WriteBatch
from strandline.clock import NS_PER_S

MAX_AGE = b"MaxAge"


_PURGED_KEY = re.compile(rb"\r\nKV-Operation: *PURGE\r\n")


def is_marker(headers: bytes) -> bool:
    """Tell whether a message stands for a deletion: a delete marker, or the purge of a bucket's key."""
    has_reason = names.MARKER_REASON in headers and bool(special_headers(headers).get(names.MARKER_REASON))
    return has_reason or _PURGED_KEY.search(headers) is not None


def make_marker(subject: bytes, config: StreamConfig) -> Draft:
    """Return the marker for a subject whose last message has expired."""
    ttl = config.subject_delete_marker_ttl
    headers = with_headers(
        b"",
        [
            (names.MARKER_REASON, MAX_AGE),
            (names.TTL, format_duration(ttl).encode()),
            (names.ROLLUP, ROLLUP_SUBJECT),
        ],
    )
    ttl_s = lifted_ttl(config, ttl // NS_PER_S)
    return Draft(subject, headers, b"", {}, rollup=ROLLUP_SUBJECT, ttl_s=ttl_s)


def mark_gone(write_batch: WriteBatch, rows: Places, log: MessageLog) -> None:
    """Add a marker for each subject whose last message is among the expired rows."""
    index, config = write_batch.state.index, write_batch.state.config
    numbers = index.rows.subject[rows]
    gone = rows[index.subjects.count[numbers] == 0]
    last = {int(index.rows.subject_at[row]): row for row in gone.tolist()}
    if not last:
        return
    chosen = np.array(sorted(last.values()), np.int64)
    chosen = chosen[np.argsort(index.rows.place[chosen], kind="stable")]
    found = log.read(index.rows.place[chosen])
    # By subject: when several go at once, their order must not depend on how long the stream was closed before.
    for subject, headers in sorted(zip(found.keys, found.headers, strict=True)):
        if not is_marker(headers):
            write_batch.add_draft(make_marker(subject, config))
