"""The sink of the format `strandline`: every row of a commit reaches its log once, whatever is killed and restarted.

**Mechanism.** Tasks stage rows as Arrow files (`staging`); one process commits them (`commits`): it settles a commit
that was cut short, recognises a replay, stores an intent, appends the rows, and stores that the commit is done.
`writers` are Spark's two writers over it.

**Adapters.** A `Sink` says where rows go: how they are staged, and which log is opened for a commit. A `SinkLog` is
that log: where the intent is stored, how rows are appended, and which rows of a commit it holds already.
`journals.sink` appends under the journal's lock and recognises its batches by their time; `streams.sink` publishes in
windows and recognises its messages by their ids.

Only `writers` imports PySpark.
"""

from strandline.spark.sink.commits import (
    Commit,
    Committed,
    PendingCommit,
    Progress,
    Sink,
    SinkLog,
    commit_rows,
    drop_staged,
)
from strandline.spark.sink.staging import StagedFile, read_staged, remove_staged, stage, sync_staged

__all__ = [
    "Commit",
    "Committed",
    "PendingCommit",
    "Progress",
    "Sink",
    "SinkLog",
    "StagedFile",
    "commit_rows",
    "drop_staged",
    "read_staged",
    "remove_staged",
    "stage",
    "sync_staged",
]
