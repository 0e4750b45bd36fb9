"""Ranges of a bucket's keys are its listing, each object once, in any order of the store and wherever it is cut."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strandline.objects import (
    BrowsableObjects,
    Folder,
    LocalObjects,
    MemoryObjects,
    ObjectInfo,
    StoreRefused,
    browsable,
    open_objects,
)
from strandline.objects.contracts import folder_of, in_one_folder
from strandline.scan.sources import InputMissing, ObjectSource, left_out
from strandline.scan.sources import key_ranges as module
from strandline.scan.sources import objects as objects_module
from strandline.scan.sources.key_ranges import key_bounds, list_range
from strandline.scan.sources.listing_parts import WHOLE, ListingPart, list_part, rest_of
from tests.objects.listing_server import ListingServer, by_folder, listing_server
from tests.servers_seaweed import SeaweedServer

THEN = datetime(2026, 11, 18, tzinfo=UTC)


class AnyKeys(MemoryObjects):
    """A store with any keys, in either order; as the client does, it tells a key without a "/" at its end."""

    def __init__(self, keys: list[str], *, sorts_bytes: bool) -> None:
        super().__init__("any")
        self.sorts_bytes = sorts_bytes
        self.raw = sorted(set(keys), key=str.encode if sorts_bytes else by_folder)
        self.requests = 0

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        order = str.encode if self.sorts_bytes else by_folder
        behind = [key for key in self.raw if not start_after or order(key) > order(start_after)]  # type: ignore[operator]
        return in_one_folder(self._told(behind, prefix), prefix, start_after)

    def list_sorted(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        if not self.sorts_bytes:
            raise StoreRefused(self.address, "it is sorted by folders")
        return self._told([key for key in self.raw if key.encode() > start_after.encode()], prefix)

    def list_folder(self, prefix: str) -> Folder:
        found = folder_of((_info(key) for key in self.raw if key.startswith(prefix)), prefix)
        return Folder([_info(info.key.rstrip("/")) for info in found.objects], found.folders)

    def head(self, key: str) -> ObjectInfo | None:
        return _info(key) if key in self.raw else None

    def _told(self, keys: Iterable[str], prefix: str) -> Iterator[ObjectInfo]:
        self.requests += 1
        return (_info(key.rstrip("/")) for key in keys if key.startswith(prefix))


def _info(key: str) -> ObjectInfo:
    return ObjectInfo(key, 1, '"e"', THEN)


def told(store: BrowsableObjects, prefix: str, parts: list[ListingPart]) -> Counter[str]:
    return Counter(one.info.key for part in parts for one in list_range(store, prefix, part))


NAMES = ["a", "b", "ab", "a-b", "a.b", "a b", "a0", "-", "~", "#", '"', "...", "é", "日本", "😀", "x" * 200, "z"]
KEYS = st.builds(
    lambda names, slash: "/".join(names) + slash,
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=4),
    st.sampled_from(["", "", "", "/"]),
)
PLACES = st.one_of(
    KEYS.map(lambda key: key.encode() + b"\0"),
    KEYS.map(str.encode),
    st.tuples(KEYS, st.integers(1, 9)).map(lambda pair: pair[0].encode()[: pair[1]]),
)


@given(
    keys=st.lists(KEYS, max_size=40),
    places=st.lists(PLACES, max_size=6),
    prefix=st.sampled_from(["", "", "a/", "a/a-b/"]),
    sorts_bytes=st.booleans(),
)
@example(keys=["a-b", "a/", "a/x", "a"], places=[b"a-a\0", b"a-b\0"], prefix="", sorts_bytes=True)
@example(keys=["a/", "b"], places=[b"a-b\0"], prefix="", sorts_bytes=True)
@example(keys=["a/", "b", "ba", "bb", "c/d"], places=[], prefix="", sorts_bytes=False)
@example(keys=["a-b", "a/x", "a-c", "b"], places=[b"a-b\0"], prefix="", sorts_bytes=False)
@example(keys=["a-b", "a-c", "a-d", "a-e", "a/x"], places=[b"a-c\0", b"a-d\0"], prefix="", sorts_bytes=False)
def test_ranges_are_the_listing_wherever_they_are_cut(
    keys: list[str], places: list[bytes], prefix: str, sorts_bytes: bool
) -> None:
    store = AnyKeys(keys, sorts_bytes=sorts_bytes)
    whole = Counter(info.key for info in store.list(prefix))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHILD_ROWS", 3)
        patch.setattr(module, "PROBE_KEYS", 2)
        assert told(store, prefix, WHOLE.cut_at(sorted(set(places)))) == whole
        for count in (2, 5, 50):
            bounds = key_bounds(store, prefix, WHOLE, count)
            assert bounds == sorted(set(bounds))
            assert told(store, prefix, WHOLE.cut_at(bounds)) == whole, bounds


@given(keys=st.lists(KEYS, max_size=40), most=st.integers(1, 7), sorts_bytes=st.booleans())
def test_parts_that_end_early_and_their_rests_are_the_listing(keys: list[str], most: int, sorts_bytes: bool) -> None:
    store = AnyKeys(keys, sorts_bytes=sorts_bytes)
    expected = Counter(info.key for info in store.list())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHILD_ROWS", 3)
        patch.setattr(module, "PROBE_KEYS", 2)
        patch.setattr(objects_module, "open_objects", lambda *_, **__: store)
        source = ObjectSource.at("memory://any")
        left: list[ListingPart] = [WHOLE]
        found, ended = Counter[str](), 0
        while left:
            part = left.pop()
            rows, rest = 0, None
            for batch in source.list_some(part, lambda _: None, most):
                found.update(key.decode() for key in batch.column("locator").to_pylist())
                rows, rest = rows + len(batch), rest_of(batch)
            if rest is not None:
                assert rows >= most
                ended += 1
                left += source.split(ListingPart(rest, part.end), 3)
        assert found == expected
        plain = all(not key.endswith("/") for key in keys)
        if sorts_bytes and plain and len(set(keys)) > most:
            assert ended


def many(count: int) -> list[str]:
    """Keys as buckets have them: days, a flat folder, a few folders, and one heavy folder."""
    days = [f"logs/2026-{at % 12 + 1:02}/{at:07}.gz" for at in range(count)]
    heavy = [f"heavy/part-{at:08x}-{at * 7919 % 1000:03}.parquet" for at in range(3 * count)]
    return [*days, *heavy, *(f"small/{at}/x" for at in range(20)), "readme", "heavy.txt"]


@pytest.mark.parametrize("sorts_bytes", [True, False])
def test_a_bucket_is_cut_into_even_parts_by_a_bounded_number_of_requests(
    sorts_bytes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PROBE_KEYS", 50)
    monkeypatch.setattr(module, "CHILD_ROWS", 500)
    keys = many(2_000)
    store = AnyKeys(keys, sorts_bytes=sorts_bytes)
    bounds = key_bounds(store, "", WHOLE, 40)
    assert store.requests <= 40 * module.PROBES_PER_PART + 2 * len({key.rpartition("/")[0] for key in keys})
    parts = WHOLE.cut_at(bounds)
    sizes = [sum(1 for _ in list_range(store, "", part)) for part in parts]
    assert sum(sizes) == len(keys)
    assert len(parts) >= 20
    assert max(sizes) < len(keys) / 6, "no part has most of the bucket"


@pytest.mark.parametrize("sorts_bytes", [True, False])
def test_what_is_left_of_a_part_is_cut_however_deep_it_is(sorts_bytes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders that it is in stand for no places within it."""
    monkeypatch.setattr(module, "PROBE_KEYS", 5)
    folder = "a/b/c/d/e/f/g/h/i/"
    store = AnyKeys([f"{folder}{at:03}" for at in range(200)], sorts_bytes=sorts_bytes)
    assert len(key_bounds(store, "", ListingPart(f"{folder}020\0".encode()), 8)) >= 6


def test_a_store_of_another_order_is_asked_for_no_order_but_that_within_a_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Through the client library, from a server that sorts folder by folder: `a/` comes before `a-1`."""
    monkeypatch.setattr(module, "PROBE_KEYS", 30)
    monkeypatch.setattr(module, "CHILD_ROWS", 50)
    keys = [*many(300), *(f"heavy-{at}/x" for at in range(30)), "heavy-/", "é/ü", "a#b/c", "a/"]
    with listing_server(keys, is_by_folder=True) as server:
        check_remote(server, monkeypatch, sorts_bytes=False)
        assert not any(
            "/" in asked["start-after"][len(asked["prefix"]) :] for asked in server.asked if "start-after" in asked
        )


def test_a_store_that_sorts_bytes_is_told_where_to_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROBE_KEYS", 30)
    keys = [*many(300), *(f"heavy-{at}/x" for at in range(30)), "heavy-/", "é/ü", "a#b/c", "a/", "a", "a-a", "a/b"]
    with listing_server(keys) as server:
        monkeypatch.setattr("strandline.objects.addresses._OTHER_SERVERS", ())
        parts = check_remote(server, monkeypatch, sorts_bytes=True)
        assert parts >= 10
        assert not any("delimiter" in asked for asked in server.asked)


@pytest.mark.parametrize("folder", ["n" * 300, "a/" + "n" * 300 + "/below", ".strandline"])
def test_a_folder_whose_name_no_store_takes_is_in_the_ranges_too(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing tells its objects, which are problems of their own; it cannot be listed by itself."""
    monkeypatch.setattr(module, "PROBE_KEYS", 30)
    monkeypatch.setattr(module, "CHILD_ROWS", 15)
    keys = [*(f"flat/{at:03}" for at in range(40)), "a-b", *(f"{folder}/{at:03}" for at in range(60)), "z"]
    with listing_server([*keys, f"{folder}/more/x"], is_by_folder=True) as server:
        check_remote(server, monkeypatch, sorts_bytes=False)


def check_remote(server: ListingServer, monkeypatch: pytest.MonkeyPatch, *, sorts_bytes: bool) -> int:
    """Compare the parts of a server's bucket with its listing; return their number."""
    for name, value in server.environ.items():
        monkeypatch.setenv(name, value)
    source = ObjectSource.at("s3://bucket")
    with closing(browsable(open_objects("s3://bucket"))) as store:
        assert store.sorts_bytes is sorts_bytes
        whole = Counter(info.key for info in store.list())
        assert sum(whole.values()) == len(server.keys)
        server.asked.clear()
        parts = source.listing_parts(40)
        assert told(store, "", list(parts)) == whole
        places = sorted({key.encode()[:at] for key in islice(server.keys, 0, None, 97) for at in (1, 7, 8)})
        assert told(store, "", WHOLE.cut_at(places)) == whole
    return len(parts)


@pytest.mark.parametrize("kind", ["memory", "memory by folder", "local", "seaweed"])
def test_parts_of_real_stores_are_their_listing(
    kind: str, tmp_path: Path, seaweed_server: SeaweedServer, seaweed_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PROBE_KEYS", 10)
    monkeypatch.setattr(module, "CHILD_ROWS", 15)
    for name, value in seaweed_server.environ.items():
        monkeypatch.setenv(name, value)
    store: BrowsableObjects = MemoryObjects("parts")
    prefix = ""
    if kind == "local":
        store = LocalObjects(tmp_path)
    elif kind == "seaweed":
        store, prefix = (
            browsable(open_objects(seaweed_address.rsplit("/", 1)[0])),
            seaweed_address.rsplit("/", 1)[1] + "/",
        )
    elif kind == "memory by folder":
        assert isinstance(store, MemoryObjects)
        store.sorts_bytes = False
    names = ["a-b", "a.c", "a/x", "a/y-z/q", "é/ü", "日本", "#1/2", "a b/c", "b" * 200 + "/" + "c" * 200]
    names += [f"flat/k{at:03}-x" for at in range(60)] + [f"flat-{at}/z" for at in range(12)]
    with closing(store):
        for name in names:
            store.put(prefix + name, b"x")
        whole = Counter(info.key for info in store.list(prefix))
        assert sum(whole.values()) == len(names)
        bounds = key_bounds(store, prefix, WHOLE, 12)
        assert len(bounds) >= 3
        assert told(store, prefix, WHOLE.cut_at(bounds)) == whole
        own = sorted(
            {(prefix + name).encode()[:-1] + b"\0" for name in names} | {(prefix + name).encode() for name in names}
        )
        assert told(store, prefix, WHOLE.cut_at(own)) == whole
        found = store.list_folder(prefix)
        expected = folder_of(store.list(prefix), prefix)
        assert sorted(found.folders) == sorted(expected.folders)
        assert sorted(info.key for info in found.objects) == sorted(info.key for info in expected.objects)


def test_the_first_part_finds_out_that_there_is_nothing_or_one_object() -> None:
    address = "memory://first-part"
    store = open_objects(address)
    store.put("logs/x", b"x")
    parts = WHOLE.cut_at([b"logs/m\0"])
    for where, expected in (("logs/x", [b"logs/x"]), ("logs", [b"logs/x"])):
        source = ObjectSource.at(f"{address}/{where}")
        rows = [row for part in parts for batch in list_part(source, part, lambda _: None) for row in batch.to_pylist()]
        assert [row["locator"] for row in rows] == expected
    with pytest.raises(InputMissing):
        list(list_part(ObjectSource.at(f"{address}/log"), parts[0], lambda _: None))
    assert left_out(list(list_part(ObjectSource.at(address), parts[1], lambda _: None))[-1]) == {}
