"""Sources that each break one promise, as a hasty implementation might; the contract has to catch every one."""

import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from strandline.pipeline.identity import ConnectorInstanceId
from strandline.protocol.canonical import Plain
from strandline.scan.sources import FileSource, ItemReader
from strandline.scan.sources.source import LISTING, Content, Part, Tell

_counter = itertools.count()


@dataclass(frozen=True)
class Broken:
    """The source of files, from which the others derive; whole as it is."""

    inner: FileSource

    tag = "broken"
    is_part = False

    @property
    def instance(self) -> ConnectorInstanceId:
        return self.inner.instance

    @property
    def name(self) -> str:
        return self.inner.name

    def plain(self) -> Plain:
        return self.inner.plain()

    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        return self.inner.list_items(tell)

    def open(self) -> AbstractContextManager[ItemReader]:
        return nullcontext(self)

    def display(self, locator: bytes, extra: bytes | None) -> str:
        return self.inner.display(locator, extra)

    def read(self, locator: bytes, extra: bytes | None) -> Content:
        with self.inner.open() as reader:
            return reader.read(locator, extra)

    def rows(self) -> list[dict[str, Any]]:
        return [row for batch in self.inner.list_items(lambda _: None) for row in batch.to_pylist()]


def one_batch(rows: list[dict[str, Any]], tell: Tell) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pylist(rows, LISTING)
    tell(len(rows))


class ListsInAnyOrder(Broken):
    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        return one_batch(self.rows()[:: 1 if next(_counter) % 2 else -1], tell)


class ListsTwice(Broken):
    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        return one_batch(self.rows() * 2, tell)


class ListsOtherColumns(Broken):
    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        return (batch.select(["locator"]) for batch in super().list_items(tell))


class HasProblemsOfItsOwn(Broken):
    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        return one_batch([row | {"problem": "TUESDAY", "version": b"v"} for row in self.rows()], tell)


class HasProblemsWithoutAVersion(Broken):
    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        return one_batch([row | {"problem": "VANISHED", "version": None} for row in self.rows()], tell)


class TellsNothing(Broken):
    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        del tell
        return super().list_items(lambda _: None)


class TellsBatches(Broken):
    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        return super().list_items(lambda _: tell(1))


class ListsAnotherVersion(Broken):
    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        return one_batch([row | {"version": b"another"} for row in self.rows()], tell)


class CannotReadWhatItLists(Broken):
    def read(self, locator: bytes, extra: bytes | None) -> Content:
        return super().read(locator + b"x", extra)


class GivesPartsOneAddress(Broken):
    def read(self, locator: bytes, extra: bytes | None) -> Content:
        content = super().read(locator, extra)
        return content._replace(parts=[*content.parts, Part(b"", "path")])


class GivesLargeAddresses(Broken):
    def read(self, locator: bytes, extra: bytes | None) -> Content:
        content = super().read(locator, extra)
        return content._replace(parts=[part._replace(address=2**31) for part in content.parts])


class VersionsByTheHour(Broken):
    def read(self, locator: bytes, extra: bytes | None) -> Content:
        return super().read(locator, extra)._replace(version=b"%d" % next(_counter))


class ReadsWhatItLikes(Broken):
    def read(self, locator: bytes, extra: bytes | None) -> Content:
        return super().read(locator, extra)._replace(parts=[Part(b"%d" % next(_counter), "path")])


@dataclass(frozen=True)
class ListsOnce(Broken):
    """Remembers its first listing."""

    known: list[dict[str, Any]] = field(default_factory=list)

    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        self.known[:] = self.known or self.rows()
        return one_batch(self.known, tell)


class LosesTheFirst(Broken):
    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        rows = self.rows()
        return one_batch(rows[1:] if len(rows) > 3 else rows, tell)


class VersionsByName(Broken):
    def read(self, locator: bytes, extra: bytes | None) -> Content:
        return super().read(locator, extra)._replace(version=locator)


@dataclass(frozen=True)
class DoesNotPickle(Broken):
    """Holds something that cannot be sent."""

    held: Any = field(default_factory=lambda: lambda: None)


class IsNotEqual(Broken):
    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


class ForgetsWhereItWas(Broken):
    def __reduce__(self) -> Any:  # noqa: ANN401 - what pickle takes
        root = Path(self.inner.root.decode())
        (root / "empty").mkdir(exist_ok=True)
        return type(self), (FileSource.at(root / "empty", name=self.inner.name),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ForgetsWhereItWas)

    def __hash__(self) -> int:
        return 0


class DescribesItselfInBytes(Broken):
    def plain(self) -> Plain:
        return {"root": self.inner.root}


class HasNoNames(Broken):
    def display(self, locator: bytes, extra: bytes | None) -> str:
        del locator, extra
        return ""


class ReadsWhatIsGone(Broken):
    def read(self, locator: bytes, extra: bytes | None) -> Content:
        if not (Path(self.inner.root.decode()) / locator.decode()).exists():
            return Content(b"none", [], 0)
        return super().read(locator, extra)


class RaisesWhatPythonRaises(Broken):
    def read(self, locator: bytes, extra: bytes | None) -> Content:
        (Path(self.inner.root.decode()) / locator.decode()).stat()
        return super().read(locator, extra)


CAUGHT_BY: dict[type[Broken], str] = {
    ListsInAnyOrder: "a_listing_is_the_same_twice",
    ListsTwice: "a_listing_has_every_item_once",
    ListsOtherColumns: "a_listing_keeps_its_schema",
    HasProblemsOfItsOwn: "a_listing_keeps_its_schema",
    HasProblemsWithoutAVersion: "a_listing_keeps_its_schema",
    TellsNothing: "a_listing_tells_how_far_it_is",
    TellsBatches: "a_listing_tells_how_far_it_is",
    ListsAnotherVersion: "an_item_is_read_as_it_was_listed",
    CannotReadWhatItLists: "an_item_is_read_as_it_was_listed",
    GivesPartsOneAddress: "addresses_of_parts_are_unique",
    GivesLargeAddresses: "addresses_of_parts_are_unique",
    VersionsByTheHour: "reading_again_gives_the_same",
    ReadsWhatItLikes: "reading_again_gives_the_same",
    ListsOnce: "what_is_put_in_is_listed_and_read",
    LosesTheFirst: "what_is_put_in_is_listed_and_read",
    VersionsByName: "versions_change_with_content",
    DoesNotPickle: "a_source_pickles",
    IsNotEqual: "a_source_pickles",
    ForgetsWhereItWas: "a_source_pickles",
    DescribesItselfInBytes: "a_source_describes_itself",
    HasNoNames: "a_source_describes_itself",
    ReadsWhatIsGone: "an_item_that_is_gone_is_a_typed_problem",
    RaisesWhatPythonRaises: "an_item_that_is_gone_is_a_typed_problem",
}
