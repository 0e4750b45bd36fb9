"""The digest of a whole fold, from columns.

Invariants: two folds have the same digest exactly if they hold the same keys with the same versions and values,
whatever the backend and the order of their history; the cursor is no part of it, nor is when a value expires.
"""

from collections.abc import Iterable

import numpy as np
import pyarrow.compute as pc
from blake3 import blake3

from strandline.fold.batches import PutColumns
from strandline.fold.columns import equal_rows, lengths_of, rows_of_equal_length, tokens_of
from strandline.wire import binary_spans


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
        columns = [rows_of_equal_length(heads), rows.keys, prefixes, rows.versions, rows.values]
        if (matrix := equal_rows(columns)) is not None:
            self._hash.update(matrix.ravel().data)
        else:
            data, offsets = binary_spans(pc.binary_join_element_wise(*columns, b""))
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
