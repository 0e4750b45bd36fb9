"""The fence on the data plane: a worker whose shard was given to another one writes nothing more.

The check is part of the write's transaction, and the shard's row cannot change under it: SQLite has one writer, and
PostgreSQL holds the row until the commit, so that whoever acquires the shard waits. A shard that this database does not
know, because its run is kept in etcd, is not checked here: rows are merged, which is harmless, and scanner state, which
is replaced, remembers the highest fence that wrote it (`strandline.pipeline.sql.state`).
"""

from strandline.pipeline import scope
from strandline.pipeline.scope import WriteContext
from strandline.pipeline.sql.database import AnyConnection
from strandline.pipeline.sql.migrations import Dialect
from strandline.pipeline.sql.statements import statements


def check_fence(connection: AnyConnection, dialect: Dialect, context: WriteContext) -> bool:
    """Refuse a writer whose shard has a newer fence; return whether this database knows the shard."""
    row = connection.execute(statements(dialect, "fences")["fence"], context._asdict()).fetchone()
    scope.check_fence(context, None if row is None else row[0])
    return row is not None
