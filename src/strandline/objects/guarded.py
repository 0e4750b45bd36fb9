"""A store that asks before it is used: a node's lease is checked before each write, a test acts between requests."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from strandline.objects.contracts import Buffer, Object, ObjectInfo, ObjectStore


class GuardedObjects:
    """Another store; `before_write` and `before_read` are called before its requests, and what they raise stops these.

    Closing it leaves the other store open.
    """

    def __init__(
        self,
        store: ObjectStore,
        before_write: Callable[[], object],
        before_read: Callable[[], object] = lambda: None,
    ) -> None:
        self._store = store
        self._before_write = before_write
        self._before_read = before_read

    @property
    def address(self) -> str:
        """Where the objects are."""
        return self._store.address

    def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Object | None:
        """Return an object, or its bytes [start, stop); None if it is missing."""
        self._before_read()
        return self._store.get(key, start=start, stop=stop)

    def head(self, key: str) -> ObjectInfo | None:
        """Return what the store says of an object; None if it is missing."""
        self._before_read()
        return self._store.head(key)

    def put(
        self,
        key: str,
        body: Buffer,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Write a whole object: always, only if it is missing, or only over the one with this ETag."""
        self._before_write()
        return self._store.put(key, body, if_absent=if_absent, if_match=if_match, metadata=metadata)

    def put_stream(self, key: str, parts: Iterable[Buffer], *, metadata: Mapping[str, str] | None = None) -> str:
        """Write a large object from parts as they come."""
        self._before_write()
        return self._store.put_stream(key, parts, metadata=metadata)

    def delete(self, key: str) -> None:
        """Remove an object, if it exists."""
        self._before_write()
        self._store.delete(key)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects below a prefix."""
        self._before_read()
        return self._store.list(prefix, start_after=start_after)

    def close(self) -> None:
        """Leave the other store open."""
