"""Messages of a bucket's stream as updates of keys, in columns. Pure.

Invariants: a message with the header of a delete or purge, or with a server's marker, becomes a delete or purge without
a value; every other message is a put.
"""

import numpy as np

from strandline.broker.streams import Messages
from strandline.kv.entries import UpdateBatch, UpdateKind
from strandline.kv.nats.messages import MARKER_REASON, OPERATION, deadline_ns, kind_of_headers
from strandline.nats.streams import parse_header_values
from strandline.wire import binary_array

_MARKS = (OPERATION.encode(), MARKER_REASON.encode())


def kind_of(headers: bytes) -> UpdateKind:
    """Return the kind of update of a message with this header block."""
    if not any(mark in headers for mark in _MARKS):
        return UpdateKind.PUT
    return kind_of_headers(parse_header_values(headers))


def updates_of(messages: Messages, prefix_bytes: int) -> UpdateBatch:
    """Return messages as updates; a key is its subject without the first `prefix_bytes` bytes."""
    count = len(messages)
    kinds = np.zeros(count, np.uint8)
    values, deadlines = messages.payloads, None
    if any(messages.headers):
        known = {block: kind_of(block) for block in set(messages.headers)}
        kinds = np.fromiter((known[block] for block in messages.headers), np.uint8, count)
        values = [b"" if kind else value for kind, value in zip(kinds.tolist(), values, strict=True)]
        deadlines = np.fromiter(map(deadline_ns, messages.headers, messages.times.tolist()), np.uint64, count)
    keys = [subject[prefix_bytes:] for subject in messages.subjects]
    return UpdateBatch(binary_array(keys), kinds, messages.sequences, binary_array(values), deadlines)


def values_of(messages: Messages, prefix_bytes: int) -> UpdateBatch:
    """Return the current values among the last messages of some keys: puts."""
    batch = updates_of(messages, prefix_bytes)
    chosen = batch.kinds == UpdateKind.PUT
    return batch if chosen.all() else batch.select(chosen)
