"""A fold is exported, and imported elsewhere."""

from strandline.artifacts import export_fold, import_fold
from strandline.fold import FoldBatch, FoldCursor, format_fold_cursor, open_fold, open_read_only

store = open_fold("prices.fold")
store.apply(FoldBatch([b"apple"], [b"4"], [(1).to_bytes(8, "big")]), format_fold_cursor(FoldCursor(1)))
export_fold(store, "prices.artifact")
store.close()
import_fold("prices.artifact", "other.fold")
reader = open_read_only("other.fold")
assert [(entry.key, entry.value) for entry in reader.range()] == [(b"apple", b"4")]
reader.close()
