"""A store whose requests take simulated time, drawn from a seed, and are counted."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from strandline.objects import Object, ObjectConflict, ObjectInfo, ObjectStore
from strandline.objects.contracts import Buffer
from strandline.objects.counted import LIST_PAGE_KEYS


class SlowObjects:
    """Another store; `wait` lets simulated time pass, and each request takes between half and twice `request_s`."""

    def __init__(
        self,
        store: ObjectStore,
        wait: Callable[[float], None],
        request_s: float,
        rng: random.Random,
        requests: Counter[str],
    ) -> None:
        self.address = store.address
        self._store = store
        self._wait = wait
        self._request_s = request_s
        self._random = rng
        self._requests = requests
        self._is_free = False

    @contextmanager
    def at_once(self, rounds: int) -> Iterator[None]:
        """Let requests in the block take the time of so many, for they are made side by side."""
        for _ in range(rounds):
            self._takes_time()
        self._is_free = True
        try:
            yield
        finally:
            self._is_free = False

    def charge(self, operation: str, count: int) -> None:
        """Count requests whose objects are not read again, and let their time pass."""
        for _ in range(count):
            self._asked(operation)

    def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Object | None:
        """Return an object, or its bytes [start, stop); None where there is no such object."""
        self._asked("get")
        return self._store.get(key, start=start, stop=stop)

    def head(self, key: str) -> ObjectInfo | None:
        """Return what the store says of an object; None where there is no such object."""
        self._asked("head")
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
        """Write a whole object: always, only where there is none, or only over the one with this ETag."""
        self._asked("put")
        try:
            return self._store.put(key, body, if_absent=if_absent, if_match=if_match, metadata=metadata)
        except ObjectConflict:
            self._requests["put conflict"] += 1
            raise

    def put_stream(self, key: str, parts: Iterable[Buffer], *, metadata: Mapping[str, str] | None = None) -> str:
        """Write a large object from parts as they come; return its ETag."""
        self._asked("put")
        return self._store.put_stream(key, parts, metadata=metadata)

    def delete(self, key: str) -> None:
        """Remove an object; a missing one is fine."""
        self._asked("delete")
        self._store.delete(key)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects below a prefix; each thousand is a request."""
        for number, info in enumerate(self._store.list(prefix, start_after=start_after)):
            if number % LIST_PAGE_KEYS == 0:
                self._asked("list")
            yield info

    def close(self) -> None:
        """Leave the other store open."""

    def _asked(self, operation: str) -> None:
        self._requests[operation] += 1
        if not self._is_free:
            self._takes_time()

    def _takes_time(self) -> None:
        self._wait(self._request_s * self._random.uniform(0.5, 2.0))
