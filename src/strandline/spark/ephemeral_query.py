"""A streaming query whose checkpoint is thrown away, for a caller that keeps the cursor with its effects.

Invariants: every query has a checkpoint of its own, in memory where the machine has such a folder, and removes it when
it stops. So no position of Spark's outlives the query.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_SHM = Path("/dev/shm")  # noqa: S108 - a folder in memory, for files that are thrown away


class EphemeralQuery:
    """A query that hands each batch to a function; Spark writes its planned ranges to the folder `checkpoint`."""

    def __init__(self) -> None:
        self.checkpoint = Path(tempfile.mkdtemp(prefix="strandline-", dir=_SHM if _SHM.is_dir() else None))
        self._query: StreamingQuery | None = None

    def start(self, stream: "DataFrame", apply: "Callable[[DataFrame, int], None]", *, follow: bool) -> None:
        """Start it; without `follow` it ends at the end of the log."""
        writing = stream.writeStream.foreachBatch(apply).option("checkpointLocation", str(self.checkpoint))
        self._query = (writing if follow else writing.trigger(availableNow=True)).start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it has ended; one that follows ends only by `stop`. Raises the error that ended it."""
        if self._query is None:
            return True
        if timeout_s is None:
            self._query.awaitTermination()
            return True
        return bool(self._query.awaitTermination(timeout_s))  # type: ignore[arg-type]

    def stop(self) -> None:
        """End it and remove its checkpoint; a second call does nothing."""
        try:
            if self._query is not None:
                self._query.stop()
        finally:
            shutil.rmtree(self.checkpoint, ignore_errors=True)
