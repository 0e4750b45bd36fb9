"""The contract of an object store as checks, each a function of an empty store.

Every invariant that `strandline.objects.contracts` lists has a check here, but for durability, which only the loss of
power can show.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta

from strandline.errors import Closed, Conflict, InvalidInput
from strandline.objects import InvalidObjectKey, ObjectConflict, ObjectStore
from strandline.testing.contract import ContractBroken, expect, named, refuses, same

OpenObjects = Callable[[], AbstractContextManager[ObjectStore]]
"""Opens a store that holds nothing."""
ObjectStoreCheck = Callable[[ObjectStore], None]

_ODD_KEYS = (
    "a",
    "a b",
    "ä/ö",
    "x+y=z",
    "%2F/50%",
    "~tilde",
    "#hash/?mark",
    "semi;colon",
    "🦀",
    "a" * 200,
    "dir.x/y-z_1",
)


def _body(store: ObjectStore, key: str) -> bytes | None:
    found = store.get(key)
    return found.body if found else None


def what_was_put_is_got(store: ObjectStore) -> None:
    """Bodies of any bytes, keys of any letters, and metadata come back; the size and time are those of the write."""
    for key in _ODD_KEYS:
        body = key.encode() + bytes(range(256))
        etag = store.put(key, body, metadata={"written-by": "a check", "n": "1"})
        found = store.get(key)
        if found is None:
            raise ContractBroken("", f"the object {key!r} is not there after it was put")
        same(f"the body of {key!r}", found.body, body)
        same(f"what is said of {key!r}", (found.info.key, found.info.size, found.info.etag), (key, len(body), etag))
        same("the metadata", dict(found.info.metadata), {"written-by": "a check", "n": "1"})
        same("the same from head", store.head(key), found.info)
        age = abs(datetime.now(UTC) - found.info.modified)
        expect(age < timedelta(days=1), f"the object {key!r} was modified at {found.info.modified}")
    same("keys in the listing", sorted(info.key for info in store.list()), sorted(_ODD_KEYS))


def a_missing_object_is_none(store: ObjectStore) -> None:
    """Reading one says None, removing one is fine, and a folder is no object."""
    store.put("a/b", b"1")
    for key in ("absent", "a", "a/b.c", "absent/x"):
        same(f"reading {key}", store.get(key), None)
        same(f"a range of {key}", store.get(key, start=1, stop=2), None)
        same(f"head of {key}", store.head(key), None)
        store.delete(key)
    same("the one that is there", _body(store, "a/b"), b"1")


def ranges_are_cut_where_the_object_ends(store: ObjectStore) -> None:
    """Any range may be asked for; the size is always that of the whole."""
    store.put("a", b"0123456789")
    for start, stop in (
        (0, 10),
        (2, 5),
        (0, 0),
        (4, 4),
        (8, 20),
        (10, 12),
        (15, 20),
        (3, None),
        (10, None),
        (12, None),
    ):
        found = store.get("a", start=start, stop=stop)
        same(f"bytes [{start}, {stop})", found and found.body, b"0123456789"[start:stop])
        same(f"the size with bytes [{start}, {stop})", found and found.info.size, 10)
    for start, stop in ((-1, None), (5, 4), (0, -1)):
        refuses(f"bytes [{start}, {stop})", InvalidInput, store.get, "a", start=start, stop=stop)
    store.put("empty", b"")
    same("an empty object", _body(store, "empty"), b"")


def a_put_replaces_the_whole_object(store: ObjectStore) -> None:
    """Its metadata too; the old ETag is gone."""
    first = store.put("a", b"long before", metadata={"x": "1"})
    second = store.put("a", b"now")
    expect(first != second, "two writes of different bytes have one ETag")
    found = store.get("a")
    same("the body", found and found.body, b"now")
    same("the metadata", dict(found.info.metadata) if found else None, {})


def create_wants_no_object(store: ObjectStore) -> None:
    """A refused one changes nothing; after a removal it is possible again."""
    etag = store.put("a", b"1", if_absent=True)
    refuses("creating it again", ObjectConflict, store.put, "a", b"2", if_absent=True)
    found = store.get("a")
    same("the object after a refusal", found and (found.body, found.info.etag), (b"1", etag))
    store.delete("a")
    store.put("a", b"3", if_absent=True)
    same("the object created last", _body(store, "a"), b"3")


def replace_wants_the_etag_of_the_last_write(store: ObjectStore) -> None:
    """An old ETag, one of another object and one of a missing object are refused, and write nothing."""
    first = store.put("a", b"1")
    other = store.put("b", b"x")
    second = store.put("a", b"2", if_match=first)
    refuses("an old ETag", ObjectConflict, store.put, "a", b"3", if_match=first)
    refuses("another object's ETag", ObjectConflict, store.put, "a", b"3", if_match=other)
    refuses("a missing object", ObjectConflict, store.put, "c", b"3", if_match=first)
    same("the missing object after a refusal", store.get("c"), None)
    found = store.get("a")
    same("the object after refusals", found and (found.body, found.info.etag), (b"2", second))
    refuses("two conditions", InvalidInput, store.put, "a", b"3", if_match=second, if_absent=True)
    store.delete("a")
    refuses("an object that was removed", ObjectConflict, store.put, "a", b"3", if_match=second)


def of_many_who_create_one_wins(store: ObjectStore) -> None:
    """And what is there is what the winner wrote."""
    for turn in range(5):
        won = _race(lambda n, turn=turn: store.put(f"r{turn}", b"%d" % n, if_absent=True))  # type: ignore[misc]
        same("winners of a race to create", len(won), 1)
        same("the body", _body(store, f"r{turn}"), b"%d" % won[0])


def of_many_who_replace_one_wins(store: ObjectStore) -> None:
    """Each time, from the same ETag."""
    etag = store.put("a", b"begin")
    for _ in range(5):
        seen = etag
        won = _race(lambda n, seen=seen: store.put("a", b"%d after %s" % (n, seen.encode()), if_match=seen))  # type: ignore[misc]
        same("winners of a race to replace", len(won), 1)
        info = store.head("a")
        etag = info.etag if info else ""


def _race(write: Callable[[int], str], writers: int = 6) -> list[int]:
    start = threading.Barrier(writers)

    def attempt(n: int) -> bool:
        start.wait()
        try:
            write(n)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(writers) as pool:
        return [n for n, won in enumerate(pool.map(attempt, range(writers))) if won]


def a_stream_appears_with_its_last_part(store: ObjectStore) -> None:
    """Parts of any size, in order; an error of the parts leaves what was there before."""
    parts = [bytes([n]) * 700_000 for n in range(20)]

    def watched() -> Iterator[bytes]:
        for part in parts:
            same("the object before the last part", store.get("big"), None)
            yield part

    etag = store.put_stream("big", watched(), metadata={"x": "1"})
    found = store.get("big")
    expect(found is not None and found.body == b"".join(parts), "a streamed object is not the parts one after another")
    same("its ETag and metadata", found and (found.info.etag, dict(found.info.metadata)), (etag, {"x": "1"}))

    def failing() -> Iterator[bytes]:
        yield b"x" * 1_000_000
        raise ZeroDivisionError

    try:
        store.put_stream("big", failing())
    except ZeroDivisionError:
        pass
    else:
        raise ContractBroken("", "an error of the parts is not raised")
    same("the object after a failed stream", (info := store.head("big")) and info.etag, etag)
    store.put_stream("none", [])
    same("a stream of nothing", _body(store, "none"), b"")


def a_listing_of_one_folder_is_sorted_and_starts_where_it_is_told(store: ObjectStore) -> None:
    """By the bytes of keys, behind a key that need not exist; what it says of an object is what `head` says."""
    keys = sorted(f"f/{name}" for name in ("a-b", "a.b", "a", "a0", "A", "ä", "b", "0002-0002.x", "0001-0001.x", "~"))
    for key in (*keys, "g/other", "f-other"):
        store.put(key, b"x")
    for after in ("", "f/", "f/a", "f/a-", "f/a-b", "f/0001", "f/zz", "f/~", "g"):
        seen = [info.key for info in store.list("f/", start_after=after)]
        same(f"the keys after {after!r}", seen, [key for key in keys if key > after])
    info = next(iter(store.list("f/")))
    head = store.head(info.key)
    same("what a listing says", (info.size, info.etag, dict(info.metadata)), (1, head and head.etag, {}))


def a_listing_tells_every_object_below_a_prefix_once(store: ObjectStore) -> None:
    """Through all folders below it, in an order of the store's own."""
    keys = ["a-b", "a.b", "a/b", "a/b-c/d", "a/c", "a0", "b", "a/b0", "a/ä", "z/1/2/3", "z/1/20", "z/10"]
    for key in keys:
        store.put(key, b"x")
    for prefix in ("", "a/", "z/1/", "none/", "a/b-c/"):
        seen = sorted(info.key for info in store.list(prefix))
        same(f"the keys below {prefix!r}", seen, sorted(key for key in keys if key.startswith(prefix)))
    refuses("starting behind a key among folders", InvalidInput, lambda: list(store.list("z/", start_after="z/0")))


def a_long_listing_is_whole(store: ObjectStore) -> None:
    """More than any page holds."""
    keys = [f"many/{n:05d}" for n in range(1_100)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put(key, b""), keys))
    same("the number of objects", [info.key for info in store.list("many/")], keys)
    same("those behind one", [info.key for info in store.list("many/", start_after="many/01000")], keys[1001:])


def what_is_no_key_is_refused(store: ObjectStore) -> None:
    """Before anything is sent."""
    for key in ("", "/a", "a/", "a//b", ".", "../a", "a/../b", "a\x00", "a\nb", "x" * 1025, "\ud800", "n" * 256):
        refuses(f"the key {key[:20]!r}", InvalidObjectKey, store.put, key, b"1")
        refuses(f"reading {key[:20]!r}", InvalidObjectKey, store.get, key)
        refuses(f"removing {key[:20]!r}", InvalidObjectKey, store.delete, key)
    for prefix in ("a", "/", "a//", "../"):
        refuses(f"the prefix {prefix!r}", InvalidObjectKey, store.list, prefix)
    for metadata in ({"Upper": "1"}, {"": "1"}, {"a": "ü"}, {"a": "line\nbreak"}, {"a b": "1"}):
        refuses(f"the metadata {metadata}", InvalidInput, store.put, "a", b"1", metadata=metadata)
    same("what is there", [info.key for info in store.list()], [])


def a_closed_store_says_so(store: ObjectStore) -> None:
    """For every call; closing twice is fine."""
    store.put("a", b"1")
    store.close()
    store.close()
    refuses("get", Closed, store.get, "a")
    refuses("head", Closed, store.head, "a")
    refuses("put", Closed, store.put, "a", b"2")
    refuses("put_stream", Closed, store.put_stream, "a", [b"2"])
    refuses("delete", Closed, store.delete, "a")
    refuses("list", Closed, lambda: list(store.list()))


OBJECT_STORE_CHECKS: tuple[ObjectStoreCheck, ...] = (
    what_was_put_is_got,
    a_missing_object_is_none,
    ranges_are_cut_where_the_object_ends,
    a_put_replaces_the_whole_object,
    create_wants_no_object,
    replace_wants_the_etag_of_the_last_write,
    of_many_who_create_one_wins,
    of_many_who_replace_one_wins,
    a_stream_appears_with_its_last_part,
    a_listing_of_one_folder_is_sorted_and_starts_where_it_is_told,
    a_listing_tells_every_object_below_a_prefix_once,
    a_long_listing_is_whole,
    what_is_no_key_is_refused,
    a_closed_store_says_so,
)
"""Every promise of the contract, as a function whose name says what must hold."""


def run_object_store_check(check: ObjectStoreCheck, open_objects: OpenObjects) -> None:
    """Run one check over a store of its own; `ContractBroken` carries its name."""
    with named(check.__name__), open_objects() as store:
        check(store)


def check_object_store(open_objects: OpenObjects) -> None:
    """Run every check; `ContractBroken` names the first that fails."""
    for check in OBJECT_STORE_CHECKS:
        run_object_store_check(check, open_objects)
