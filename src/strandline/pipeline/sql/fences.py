"""The fence on the data plane: a worker whose shard was given to another one writes nothing more.

The check is part of the write's transaction, and the shard's row cannot change under it: SQLite has one writer, and
PostgreSQL holds the row until the commit, so that an acquiring worker waits. A shard that this database does not
know, because its run is kept in etcd, is not checked here: rows are merged, which is harmless, and scanner state, which
is replaced, remembers the highest fence that wrote it (`strandline.pipeline.sql.state`).

Findings are fenced by the tenant's key as well: their ids are derived from it, and it may be rotated while a scan lists
or works. The row of the check value is held like that of a shard, so that a rotation waits for what is being written.
"""

from strandline.pipeline import scope
from strandline.pipeline.identity import TenantId
from strandline.pipeline.scope import WriteContext
from strandline.pipeline.sql.database import AnyConnection
from strandline.pipeline.sql.migrations import Dialect
from strandline.pipeline.sql.statements import statements
from strandline.pipeline.tenant_keys import CHECK_KEY, KeyChanged


def check_fence(connection: AnyConnection, dialect: Dialect, context: WriteContext) -> bool:
    """Refuse a writer whose shard has a newer fence; return whether this database knows the shard."""
    row = connection.execute(statements(dialect, "fences")["fence"], context._asdict()).fetchone()
    scope.check_fence(context, None if row is None else row[0])
    return row is not None


def check_key(connection: AnyConnection, dialect: Dialect, tenant: TenantId, expected: bytes) -> None:
    """Refuse a writer whose key is not the tenant's, or is being rotated; a tenant without a check value takes any."""
    asked = {"tenant": tenant, "key": CHECK_KEY}
    row = connection.execute(statements(dialect, "fences")["key_check"], asked).fetchone()
    if row is not None and bytes(row[0]) != expected:
        raise KeyChanged
