"""Scanner state in the table `scanner_state`.

SQLite takes the rows one by one; PostgreSQL takes them as arrays, in statements of bounded size.

A writer whose shard is kept elsewhere, in etcd, is fenced by what was written: the highest fence that ever wrote for a
shard stands in the same table, under a key that scanners cannot use, and moves in the same transaction.
"""

from collections.abc import Iterator, Sequence

from strandline.pipeline import scope
from strandline.pipeline.identity import TenantId
from strandline.pipeline.scope import WriteContext
from strandline.pipeline.sql.database import AnyConnection, Database
from strandline.pipeline.sql.fences import check_fence
from strandline.pipeline.sql.statements import statements
from strandline.pipeline.state import Delete, Put, check_keys, format_fence_key, last_operations

_STATEMENT_BYTES_MAX = 64 * 1024 * 1024


class SqlState:
    """Scanner state in SQLite or PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sql = statements(database.dialect, "state")

    def multi_get(self, tenant: TenantId, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return a value for each key, in their order, as of one moment; None where there is none."""
        check_keys(tenant, keys)
        distinct = list(dict.fromkeys(keys))
        if not distinct:
            return []

        def get(connection: AnyConnection) -> dict[bytes, bytes]:
            wanted = {"tenant": tenant, "keys": self._database.array(distinct)}
            return dict(connection.execute(self._sql["get"], wanted).fetchall())

        found = self._database.read(get)
        return [found.get(key) for key in keys]

    def list_range(self, tenant: TenantId, first: bytes, end: bytes, limit: int = 100) -> list[tuple[bytes, bytes]]:
        """Return the keys in `[first, end)` with their values, in order, at most so many."""
        check_keys(tenant, [first, end])
        wanted = {"tenant": tenant, "first": first, "end": end, "limit": limit}
        rows = self._database.read(lambda connection: connection.execute(self._sql["range"], wanted).fetchall())
        return [(key, value) for key, value in rows]

    def put_first(self, tenant: TenantId, key: bytes, value: bytes) -> bytes:
        """Set a key unless it is there, durably, and return its value then."""
        last_operations(tenant, [Put(key, value)], None)

        def put(connection: AnyConnection) -> bytes:
            connection.execute(self._sql["put_first"], {"tenant": tenant, "key": key, "value": value})
            wanted = {"tenant": tenant, "keys": self._database.array([key])}
            (row,) = connection.execute(self._sql["get"], wanted).fetchall()
            return bytes(row[1])

        return self._database.write(put)

    def apply_batch(
        self, tenant: TenantId, operations: Sequence[Put | Delete], *, writer: WriteContext | None = None
    ) -> None:
        """Apply operations, all or none, and return once they are durable; the last one on a key holds."""
        puts, deletes = last_operations(tenant, operations, writer)
        if not (puts or deletes):
            return
        # Sorted, so that two writers of the same keys wait for one another instead of deadlocking.
        rows = sorted((put.key, put.value) for put in puts)

        def apply(connection: AnyConnection) -> None:
            if writer is not None and not check_fence(connection, self._database.dialect, writer):
                self._raise_fence(connection, writer)
            if self._database.dialect == "sqlite":
                connection.executemany(self._sql["put"], [(tenant, *row) for row in rows])
            else:
                for part in _parts(rows):
                    keys, values = map(self._database.array, zip(*part, strict=True))
                    connection.execute(self._sql["put"], {"tenant": tenant, "keys": keys, "values": values})
            if deletes:
                forgotten = {"tenant": tenant, "keys": self._database.array(sorted(deletes))}
                connection.execute(self._sql["delete"], forgotten)

        self._database.write(apply)

    def _raise_fence(self, connection: AnyConnection, writer: WriteContext) -> None:
        """Remember a writer's fence as the highest of its shard, or refuse it if a higher one wrote before."""
        row = {"tenant": writer.tenant, "key": format_fence_key(writer), "value": writer.fence.to_bytes(8, "big")}
        (highest,) = connection.execute(self._sql["raise_fence"], row).fetchone()
        scope.check_fence(writer, int.from_bytes(highest, "big"))


def _parts(rows: Sequence[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield the rows in order, as many at a time as one statement should hold."""
    part: list[tuple[bytes, bytes]] = []
    size = 0
    for row in rows:
        if part and size + len(row[1]) > _STATEMENT_BYTES_MAX:
            yield part
            part, size = [], 0
        part.append(row)
        size += len(row[1])
    if part:
        yield part
