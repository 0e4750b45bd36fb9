"""Stores of objects that a test kills at a request, or whose answers it loses."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from strandline.objects import MemoryObjects, Object, ObjectInfo, ObjectStore, WriteUnknown
from strandline.objects.contracts import Buffer


class Killed(BaseException):
    """The process is gone: nobody catches it."""


class Mortal:
    """Another store whose user dies at the n-th request that writes, before it or after it."""

    def __init__(self, store: ObjectStore, dies_at: int | None, *, after: bool = False) -> None:
        self._store = store
        self._left = dies_at
        self._after = after
        self.writes = 0
        self.address = store.address

    def _written(self, write: Callable[[], str | None]) -> str:
        self.writes += 1
        dies = self._left == self.writes
        if dies and not self._after:
            raise Killed
        etag = write()
        if dies:
            raise Killed
        return etag or ""

    def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Object | None:
        return self._store.get(key, start=start, stop=stop)

    def head(self, key: str) -> ObjectInfo | None:
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
        return self._written(
            lambda: self._store.put(key, body, if_absent=if_absent, if_match=if_match, metadata=metadata)
        )

    def put_stream(self, key: str, parts: Iterable[Buffer], *, metadata: Mapping[str, str] | None = None) -> str:
        return self._written(lambda: self._store.put_stream(key, parts, metadata=metadata))

    def delete(self, key: str) -> None:
        self._written(lambda: self._store.delete(key))

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        return self._store.list(prefix, start_after=start_after)

    def close(self) -> None:
        """Leave the other store open."""


def losing_answers(nth: int) -> MemoryObjects:
    """Return a store that does the n-th put and loses the answer."""
    store = MemoryObjects()
    store.faults.fail("put", WriteUnknown("an object", "the answer was lost"), nth=nth, after=True)
    return store
