"""The contract of `Source` as checks, each a function of a source with items and of functions that change them.

Every invariant of `strandline.scan.sources.source` that one process can see has a check here. Unreadable
items (permissions, files that vanish, broken tables) are for the source's own tests.
"""

import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from blake3 import blake3

from strandline.scan.sources import LISTING, ItemProblem, Problem, Source
from strandline.scan.sources.source import ADDRESS_MAX
from strandline.testing.contract import expect, named, refuses, same

_PLANTED = b"planted by the contract of sources: "


class CheckedSource(NamedTuple):
    """The source under check, with at least two items, and functions that change it.

    `put` adds new bytes, `change` changes the bytes of an item (or adds others, if items never change), and `gone` is
    the locator of a missing item.
    """

    source: Source
    put: Callable[[bytes], None]
    change: Callable[[bytes], None]
    gone: bytes


OpenSource = Callable[[], AbstractContextManager[CheckedSource]]
"""Opens a source of its own."""
SourceCheck = Callable[[CheckedSource], None]


def a_listing_is_the_same_twice(checked: CheckedSource) -> None:
    """As long as nothing changes, rows and their order are the same."""
    same("the second listing", _rows(checked.source), _rows(checked.source))


def a_listing_has_every_item_once(checked: CheckedSource) -> None:
    """Locators with their versions are unique, and there are some."""
    versions = [(row["locator"], row["version"]) for row in _rows(checked.source)]
    expect(len(versions) > 1, f"the source was to have two items, and has {len(versions)}")
    same("the number of different items and versions", len(set(versions)), len(versions))


def a_listing_keeps_its_schema(checked: CheckedSource) -> None:
    """Batches are of `LISTING`; an item with a problem has a code that is known and a version."""
    for batch in checked.source.list_items(_ignore):
        expect(batch.schema.equals(LISTING), f"a batch has the schema {batch.schema}")
    for row in _rows(checked.source):
        expect(row["locator"], "a locator is empty")
        expect(row["size"] is None or row["size"] >= 0, "a size is negative")
        if row["problem"] is not None:
            expect(row["problem"] in set(Problem), f"a problem is {row['problem']!r}, which no code is")
            expect(row["version"], "an item with a problem has no version")


def a_listing_tells_how_far_it_is(checked: CheckedSource) -> None:
    """What it tells rises, and ends with the number of items."""
    told: list[int] = []
    count = sum(batch.num_rows for batch in checked.source.list_items(told.append))
    same("what was told", told, sorted(told))
    same("the last count", told[-1] if told else None, count)


def an_item_is_read_as_it_was_listed(checked: CheckedSource) -> None:
    """What has no problem can be read, and has the version that the listing gave it."""
    with checked.source.open() as reader:
        for row in _rows(checked.source):
            if row["problem"] is None:
                content = reader.read(row["locator"], row["extra"])
                expect(content.version, "a content has no version")
                same("the version read", content.version, row["version"] or content.version)
                for part in content.parts:
                    expect(isinstance(part.data, bytes), "a part's data are not bytes")
                    expect(part.path, "a part has no path")


def addresses_of_parts_are_unique(checked: CheckedSource) -> None:
    """Within an item each part has its own address, below 2^31."""
    with checked.source.open() as reader:
        for row in _readable(checked.source):
            addresses = [part.address for part in reader.read(row["locator"], row["extra"]).parts]
            same("the number of different addresses", len(set(addresses)), len(addresses))
            expect(all(0 <= address <= ADDRESS_MAX for address in addresses), "an address is out of range")


def reading_again_gives_the_same(checked: CheckedSource) -> None:
    """Two readers that are open at once see the same bytes, under the same version."""
    with checked.source.open() as one, checked.source.open() as other:
        for row in _readable(checked.source):
            first, second = (reader.read(row["locator"], row["extra"]) for reader in (one, other))
            same("the second version", second.version, first.version)
            expect(list(first.parts) == list(second.parts), "parts differ although nothing changed")


def what_is_put_in_is_listed_and_read(checked: CheckedSource) -> None:
    """New bytes are found, and nothing that was there before is lost."""
    before = _contents(checked.source)
    checked.put(_PLANTED + b"first")
    checked.put(_PLANTED + b"second")
    after = _contents(checked.source)
    expect(before <= after, f"{len(before - after)} parts that were there before are lost")
    expect({_PLANTED + b"first", _PLANTED + b"second"} <= after, "what was put in is not among the parts")


def versions_change_with_content(checked: CheckedSource) -> None:
    """An item at a version always holds the same bytes: other bytes are another item or another version."""
    known: dict[tuple[bytes, bytes], bytes] = {}
    for step in range(4):
        for locator, version, digest in _digests(checked.source):
            held = known.setdefault((locator, version), digest)
            expect(held == digest, "an item holds other bytes than before, under the same version")
        size = len(known)
        checked.change(_PLANTED + b"%d" % step)
        found = {(locator, version) for locator, version, _ in _digests(checked.source)}
        expect(len(found | set(known)) > size, "content was changed, and no item and no version is new")


def a_source_pickles(checked: CheckedSource) -> None:
    """What comes out is equal, names itself alike, lists the same and reads the same."""
    copy: Source = pickle.loads(pickle.dumps(checked.source))  # noqa: S301 - our own bytes
    expect(copy == checked.source, "a source that was pickled is not equal to itself")
    same("the copy's names", (copy.tag, copy.instance, copy.name), _names(checked.source))
    same("the copy's description", copy.plain(), checked.source.plain())
    same("the copy's listing", _rows(copy), _rows(checked.source))
    expect(_contents(copy) == _contents(checked.source), "the copy reads other bytes")


def a_source_describes_itself(checked: CheckedSource) -> None:
    """`plain` is what JSON can say; every item has a name for people."""
    json.dumps(checked.source.plain())
    expect(checked.source.name, "the source has no name")
    for row in _rows(checked.source):
        expect(checked.source.display(row["locator"], row["extra"]), "an item has no name")


def an_item_that_is_gone_is_a_typed_problem(checked: CheckedSource) -> None:
    """It is refused, and the reader goes on with the next."""
    with checked.source.open() as reader:
        refuses("reading what is gone", ItemProblem, lambda: list(reader.read(checked.gone, None).parts))
        row = next(_readable(checked.source))
        expect(reader.read(row["locator"], row["extra"]).version, "after that, nothing can be read")


SOURCE_CHECKS: tuple[SourceCheck, ...] = (
    a_listing_is_the_same_twice,
    a_listing_has_every_item_once,
    a_listing_keeps_its_schema,
    a_listing_tells_how_far_it_is,
    an_item_is_read_as_it_was_listed,
    addresses_of_parts_are_unique,
    reading_again_gives_the_same,
    what_is_put_in_is_listed_and_read,
    versions_change_with_content,
    a_source_pickles,
    a_source_describes_itself,
    an_item_that_is_gone_is_a_typed_problem,
)
"""Every promise of the contract, as a function whose name says what must hold."""


def check_source(open_source: OpenSource) -> None:
    """Run every check over a source of its own; `ContractBroken` names the first that fails."""
    for check in SOURCE_CHECKS:
        with named(check.__name__), open_source() as checked:
            check(checked)


def _ignore(_: int) -> None:
    pass


def _rows(source: Source) -> list[dict[str, Any]]:
    return [row for batch in source.list_items(_ignore) for row in batch.to_pylist()]


def _readable(source: Source) -> Iterator[dict[str, Any]]:
    return (row for row in _rows(source) if row["problem"] is None)


def _contents(source: Source) -> set[bytes]:
    with source.open() as reader:
        return {part.data for row in _readable(source) for part in reader.read(row["locator"], row["extra"]).parts}


def _digests(source: Source) -> Iterator[tuple[bytes, bytes, bytes]]:
    with source.open() as reader:
        for row in _readable(source):
            content = reader.read(row["locator"], row["extra"])
            hasher = blake3()
            for part in content.parts:
                hasher.update(b"%d:%d:" % (part.address, len(part.data)) + part.data)
            yield row["locator"], content.version, hasher.digest()


def _names(source: Source) -> tuple[str, bytes, str]:
    return source.tag, source.instance, source.name
