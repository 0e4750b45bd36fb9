"""The digest of a whole fold, from columns or row by row.

Invariants: both ways give the same digest for the same rows. Two folds have the same digest exactly if they hold the
same keys with the same versions and values, whatever the backend and the order of their history; the cursor is no part
of it, nor is when a value expires.
"""

import struct
from collections.abc import Iterable
from itertools import islice

import numpy as np
import pyarrow.compute as pc
from blake3 import blake3

from strandline.fold.batches import PutColumns
from strandline.fold.columns import lengths_of, rows_of_equal_length, tokens_of
from strandline.fold.records import plain_record
from strandline.wire import binary_spans

_LENGTHS = struct.Struct("<II")
_HASHED_AT_ONCE = 1024


class FoldDigest:
    """A digest that is fed rows in the order of their keys."""

    def __init__(self) -> None:
        self.entries = 0
        self._hash = blake3()

    def update(self, rows: PutColumns) -> None:
        """Take in some rows."""
        rows = rows._replace(versions=tokens_of(rows.versions))
        keys, values, versions = map(lengths_of, rows)
        heads = np.stack([keys, 1 + versions + values], axis=1).astype("<u4").view("V8").ravel()
        prefixes = rows_of_equal_length(versions.astype("u1"))
        hashed = pc.binary_join_element_wise(
            rows_of_equal_length(heads), rows.keys, prefixes, rows.versions, rows.values, b""
        )
        data, offsets = binary_spans(hashed)
        self._hash.update(data[offsets[0] : offsets[-1]])
        self.entries += len(keys)

    def digest(self) -> bytes:
        """Return the BLAKE3 hash of everything so far."""
        return self._hash.digest()


def digest_columns(pages: Iterable[PutColumns]) -> tuple[int, bytes]:
    """Return how many rows there are, and their digest; rows come in the order of their keys."""
    digest = FoldDigest()
    for page in pages:
        digest.update(page)
    return digest.entries, digest.digest()


def digest_rows(rows: Iterable[tuple[bytes, bytes]]) -> tuple[int, bytes]:
    """Return how many keys and records there are, and their digest; rows come in the order of their keys."""
    digest = blake3()
    count = 0
    rows = iter(rows)
    while page := list(islice(rows, _HASHED_AT_ONCE)):
        plain = [(key, plain_record(record)) for key, record in page]
        parts = [part for key, record in plain for part in (_LENGTHS.pack(len(key), len(record)), key, record)]
        digest.update(b"".join(parts))
        count += len(page)
    return count, digest.digest()
