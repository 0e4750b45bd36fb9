"""A lake: a prefix of a store of objects that holds all of a pipeline's state, and nothing else.

The marker says so. It is written first, and only into an empty prefix, so that no other data are ever mixed with ours;
a prefix without a marker holds no pipeline, and one of a later format is left alone.

Invariants: a lake is opened only on a store that was seen refusing writes whose condition does not hold, by the command
that made it; opening a lake to read writes nothing.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, Self

from strandline.clock import Clock, SystemClock
from strandline.errors import FormatError
from strandline.objects import ObjectConflict, ObjectStore, StoreRefused, open_objects, probe_conditions
from strandline.objects.probe import PROBE_PREFIX
from strandline.pipeline.lake.layout import COMPACTION, MARKER, is_ours
from strandline.pipeline.sql.migrations import Applied, Migration, SchemaStatus

FORMAT = 1
_CREATED = Migration(FORMAT, "lake", "", b"")


class ForeignPrefix(FormatError):
    """The prefix holds objects that are not ours."""

    def __init__(self, where: str, key: str) -> None:
        super().__init__(
            where,
            f"holds other data, such as {key!r}, and no pipeline",
            hint="give a prefix of its own, such as s3://bucket/strandline; nothing was written",
        )
        self.key = key


class MarkerMissing(FormatError):
    """The prefix holds objects of a pipeline, and not the marker that says so."""

    def __init__(self, where: str, key: str) -> None:
        super().__init__(
            where,
            f"was deleted in part: it has objects of a pipeline, such as {key!r}, and no {MARKER}",
            hint=f"restore {MARKER} and what else was deleted, from a copy or older versions; nothing was written",
        )
        self.key = key


class ListRefused(StoreRefused):
    """The credentials do not allow to list the prefix, without which a lake cannot be read."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, f"the objects cannot be listed: {reason}")
        self.hint = "allow s3:ListBucket on the prefix, beside s3:GetObject, s3:PutObject and s3:DeleteObject"


class LakeDatabase:
    """The objects of a lake, and what they are."""

    def __init__(self, address: str, *, clock: Clock | None = None, store: ObjectStore | None = None) -> None:
        self.clock = clock or SystemClock()
        self._address = address
        self._store = store

    @property
    def dialect(self) -> Literal["objects"]:
        """Return what kind of database this is."""
        return "objects"

    @property
    def store(self) -> ObjectStore:
        """Return the open store."""
        if self._store is None:
            self._store = open_objects(self._address)
        return self._store

    def describe(self) -> str:
        """Return a name for messages, without secrets."""
        return self._address.rstrip("/")

    def migrate(self) -> list[Migration]:
        """Make a lake of an empty prefix; return what was done."""
        if self._marker() is not None:
            return []
        with self._listing():
            for info in self.store.list():
                if info.key.startswith(PROBE_PREFIX) or info.key == MARKER:
                    continue
                raise (MarkerMissing if is_ours(info.key) else ForeignPrefix)(self.describe(), info.key)
        probe_conditions(self.store)
        marker = {"strandline": "pipeline", "format": FORMAT, "created_ns": self.clock.now_ns()}
        try:
            self.store.put(MARKER, json.dumps(marker).encode(), if_absent=True)
        except ObjectConflict:
            return []
        return [_CREATED]

    def status(self) -> SchemaStatus:
        """Return the format of the lake; a later one is refused, and so is one that may not be listed."""
        marker = self._marker()
        if marker is None:
            return SchemaStatus([], [_CREATED])
        with self._listing():  # before anything is begun: without it pages would be written that no reader finds
            next(iter(self.store.list(COMPACTION)), None)
        return SchemaStatus([Applied(FORMAT, "lake", b"", marker)], [])

    def close(self) -> None:
        """Close the store; calling it twice is harmless."""
        if self._store is not None and not self._address.startswith("memory://"):
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _marker(self) -> int | None:
        """Return when the lake was made, or None where there is none."""
        found = self.store.get(MARKER)
        if found is None:
            return None
        try:
            marker = json.loads(found.body)
            kind, version, created_ns = marker["strandline"], marker["format"], int(marker["created_ns"])
        except (ValueError, TypeError, KeyError):
            kind, version, created_ns = None, None, 0
        if kind != "pipeline":
            raise ForeignPrefix(self.describe(), MARKER)
        if version != FORMAT:
            raise FormatError(
                self.describe(),
                f"is of format {version}, and this version knows {FORMAT}",
                hint="use a later Strandline; nothing was changed",
            )
        return created_ns

    @contextmanager
    def _listing(self) -> Iterator[None]:
        try:
            yield
        except StoreRefused as error:
            raise ListRefused(self.describe(), error.reason) from error
