"""Checks of a bucket's watches: the state first, then each update once and in order, and never a silent gap."""

from strandline.errors import Closed
from strandline.kv import (
    NO_CURSOR,
    CursorExpired,
    Delete,
    Discard,
    InvalidKey,
    KvUpdate,
    Purge,
    Put,
    StoreConfig,
    format_cursor,
    parse_revision,
)
from strandline.testing.contract import expect, same
from strandline.testing.kv_helpers import CheckedKv, KvStoreCheck, hear, hear_nothing, refuses, watcher_of, writable


async def a_watch_tells_the_state_and_then_what_is_written(kv: CheckedKv) -> None:
    """Markers included; the latest of each key, in the order of revisions, with nothing twice."""
    store, writer = await writable(kv)
    await writer.put("a", b"old")
    b = await writer.put("b", b"1")
    a = await writer.put("a", b"new")
    c = await writer.delete("c")
    async with await watcher_of(store).watch_all() as watch:
        expect(not watch.is_current, "a watch is current before it told the state")
        same("the state", await hear(watch, 3), [Put("b", b"1", b), Put("a", b"new", a), Delete("c", c)])
        expect(watch.is_current, "a watch is not current after it told the state")
        await hear_nothing(watch)
        d = await writer.put("d", b"live")
        e = await writer.purge("a")
        same("what came after", await hear(watch, 2), [Put("d", b"live", d), Purge("a", e)])
        await hear_nothing(watch)


async def a_watch_of_an_empty_bucket_is_current_at_once(kv: CheckedKv) -> None:
    """And tells the first update."""
    store, writer = await writable(kv)
    async with await watcher_of(store).watch_all() as watch:
        expect(watch.is_current, "a watch of an empty bucket is not current")
        version = await writer.put("a", b"1")
        same("the first update", await hear(watch, 1), [Put("a", b"1", version)])


async def a_watch_tells_a_delete_with_a_version_as_a_delete(kv: CheckedKv) -> None:
    """With the version that it made."""
    store, writer = await writable(kv)
    version = await writer.delete_with_version("a", await writer.put("a", b"1"))
    async with await watcher_of(store).watch_all() as watch:
        same("the delete", await hear(watch, 1), [Delete("a", version)])


async def a_watch_of_prefixes_tells_their_keys_only(kv: CheckedKv) -> None:
    """In one order over all of them; a prefix is whole tokens, and overlapping ones tell a key once."""
    store, writer = await writable(kv)
    for key in ("b.1", "a.1", "ab.1", "c.1"):
        await writer.put(key, b"1")
    watcher = watcher_of(store)
    async with await watcher.watch_prefix("a.") as watch:
        same("the state below a.", [update.key for update in await hear(watch, 1)], ["a.1"])
        await writer.put("ab.2", b"1")
        await writer.put("a.2", b"1")
        same("what came below a.", [update.key for update in await hear(watch, 1)], ["a.2"])
        await hear_nothing(watch)
    async with await watcher.watch_prefixes(["a.", "b.", "a.1."]) as watch:
        same("the state below a. and b.", [u.key for u in await hear(watch, 3)], ["b.1", "a.1", "a.2"])
        await writer.put("c.2", b"1")
        await writer.put("b.2", b"1")
        same("what came below a. and b.", [u.key for u in await hear(watch, 1)], ["b.2"])
    await refuses("a prefix within a token", InvalidKey, watcher.watch_prefix("a"))
    await refuses("no prefixes", InvalidKey, watcher.watch_prefixes([]))


async def a_watch_from_a_cursor_tells_only_what_follows(kv: CheckedKv) -> None:
    """Every update that is kept after it, then what is written; no cursor is the state."""
    store, writer = await writable(kv, StoreConfig(history=5))
    watcher = watcher_of(store)
    for number in range(4):
        await writer.put(f"k{number % 2}.x", b"%d" % number)
    async with await watcher.watch_all() as watch:
        told = await hear(watch, 2)
    first = format_cursor((parse_revision(told[0].version) or 0) - 2)
    async with await watcher.watch_all_from(first) as watch:
        values = [update.value for update in await hear(watch, 3) if isinstance(update, Put)]
        same("values after the cursor", values, [b"1", b"2", b"3"])
        await writer.put("k0.x", b"4")
        same("what came after", [u.value for u in await hear(watch, 1) if isinstance(u, Put)], [b"4"])
    async with await watcher.watch_prefix_from("k1.", first) as watch:
        same("below a prefix", [u.key for u in await hear(watch, 2)], ["k1.x", "k1.x"])
        await hear_nothing(watch)
    async with await watcher.watch_prefixes_from(["k0.", "none."], first) as watch:
        same("below prefixes", [u.key for u in await hear(watch, 2)], ["k0.x", "k0.x"])
    async with await watcher.watch_all_from(NO_CURSOR) as watch:
        same("without a cursor", [u.key for u in await hear(watch, 2)], ["k1.x", "k0.x"])


async def a_watch_from_the_last_revision_tells_what_is_written_next(kv: CheckedKv) -> None:
    """The cursor of the last update loses nothing and repeats nothing."""
    store, writer = await writable(kv)
    last = parse_revision(await writer.put("a", b"1")) or 0
    async with await watcher_of(store).watch_all_from(format_cursor(last)) as watch:
        await hear_nothing(watch)
        version = await writer.put("a", b"2")
        same("the next update", await hear(watch, 1), [Put("a", b"2", version)])


async def a_cursor_before_what_is_kept_has_expired(kv: CheckedKv) -> None:
    """One revision before the oldest is still whole; one less is not, and says so."""
    store, writer = await writable(kv, StoreConfig(updates_max=3, discard=Discard.OLD))
    for number in range(6):
        await writer.put(f"k{number}", b"1")
    watcher = watcher_of(store)
    retention = await watcher.retention()
    same("what is kept", retention.last_revision - retention.first_revision, 2)
    expect(retention.evicts_current_values, "a bucket that discards old values says that it does not evict them")
    async with await watcher.watch_all_from(format_cursor(retention.first_revision - 1)) as watch:
        same("keys from the last whole cursor", [u.key for u in await hear(watch, 3)], ["k3", "k4", "k5"])
    for cursor in (retention.first_revision - 2, 0):
        expired = format_cursor(cursor)
        await refuses(f"a watch from {cursor}", CursorExpired, watcher.watch_all_from(expired))
        await refuses(f"a prefix from {cursor}", CursorExpired, watcher.watch_prefix_from("k.", expired))
        await refuses(f"prefixes from {cursor}", CursorExpired, watcher.watch_prefixes_from(["k."], expired))


async def a_cursor_beyond_the_last_revision_has_expired(kv: CheckedKv) -> None:
    """It belongs to another bucket, or this one has lost its end."""
    store, writer = await writable(kv)
    last = parse_revision(await writer.put("a", b"1")) or 0
    ahead = format_cursor(last + 1)
    await refuses("a watch from beyond the end", CursorExpired, watcher_of(store).watch_all_from(ahead))


async def retention_says_what_is_kept_and_whether_listing_is_truth(kv: CheckedKv) -> None:
    """An empty bucket begins with the update to come."""
    store, writer = await writable(kv)
    watcher = watcher_of(store)
    retention = await watcher.retention()
    expect(retention.first_revision <= 1, f"an empty bucket begins at {retention.first_revision}")
    same("the last revision of an empty bucket", retention.last_revision, 0)
    expect(not retention.evicts_current_values, "a bucket without age that discards new values says it evicts")
    await writer.put("a", b"1")
    await writer.put("b", b"1")
    await writer.put("a", b"2")
    retention = await watcher.retention()
    same("first and last revision", (retention.first_revision, retention.last_revision), (2, 3))
    aging, _ = await writable(kv, StoreConfig(age_max_s=60.0))
    retention = await watcher_of(aging).retention()
    told = (retention.evicts_current_values, retention.age_only, retention.age_max_ns)
    same("a bucket with an age", told, (True, True, 60 * 10**9))


async def a_bucket_has_an_identity_of_its_own(kv: CheckedKv) -> None:
    """Eight bytes or none, whatever is written; no other bucket has them."""
    store, writer = await writable(kv)
    other, _ = await writable(kv)
    retention = await watcher_of(store).retention()
    expect(len(retention.identity) in (0, 8), f"an identity has {len(retention.identity)} bytes")
    await writer.put("a", b"1")
    same("the identity after a write", (await watcher_of(store).retention()).identity, retention.identity)
    again = await kv.connection.store(store.name)
    same("the identity, opened again", (await watcher_of(again).retention()).identity, retention.identity)
    if retention.identity:
        expect((await watcher_of(other).retention()).identity != retention.identity, "two buckets are the same")


async def retention_counts_the_updates_that_are_kept(kv: CheckedKv) -> None:
    """Or says that it does not know; buckets with a time to live do not expire in order."""
    store, writer = await writable(kv, StoreConfig(history=2))
    for number in range(3):
        await writer.put("a", b"%d" % number)
    await writer.delete("b")
    retention = await watcher_of(store).retention()
    expect(retention.updates in (None, 3), f"it counts {retention.updates} updates instead of 3")
    expect(retention.in_order, "a bucket without a time to live expires in order")
    if kv.connection.capabilities.ttl:
        mortal, _ = await writable(kv, StoreConfig(ttl=True))
        retention = await watcher_of(mortal).retention()
        same("with a time to live", (retention.in_order, retention.evicts_current_values), (False, True))


async def the_frontier_follows_what_was_handed_out(kv: CheckedKv) -> None:
    """It never falls, never runs ahead of what was told, and is a cursor to go on from."""
    store, writer = await writable(kv)
    versions = [await writer.put(f"k.{number}", b"1") for number in range(4)]
    watcher = watcher_of(store)
    async with await watcher.watch_prefix("k.") as watch:
        await hear(watch, 2)
        expect(watch.frontier < (parse_revision(versions[2]) or 0), "the frontier is ahead of what was told")
        await hear(watch, 2)
        frontier = watch.frontier
        expect(frontier <= (parse_revision(versions[3]) or 0), "the frontier is ahead of what was written")
        version = await writer.put("k.4", b"1")
        await hear(watch, 1)
        expect(watch.frontier >= frontier, "the frontier fell")
        same("the frontier after the last update", watch.frontier, parse_revision(version))
        last = watch.frontier
    async with await watcher.watch_prefix_from("k.", format_cursor(last)) as watch:
        await hear_nothing(watch)
        expect(watch.frontier >= last, "the frontier of a watch from a cursor is before it")


async def a_shutdown_ends_every_watch(kv: CheckedKv) -> None:
    """With `Closed`, not with silence; a connection that comes back has none of them."""
    store, writer = await writable(kv)
    await writer.put("a", b"1")
    watches = [await watcher_of(store).watch_all(), await watcher_of(store).watch_prefix("b.")]
    await hear(watches[0], 1)
    await kv.connection.shutdown()
    for watch in watches:
        await refuses("a batch after shutdown", Closed, watch.batch())
    await kv.connection.connect()
    for watch in watches:
        await refuses("a batch after connecting again", Closed, watch.batch())
        await watch.stop()


async def a_stopped_watch_ends(kv: CheckedKv) -> None:
    """Stopping twice is allowed; iteration ends without an error."""
    store, writer = await writable(kv)
    await writer.put("a", b"1")
    watch = await watcher_of(store).watch_all()
    heard = []
    async for update in watch:
        heard.append(update.key)
        await watch.stop()
    same("what was heard", heard, ["a"])
    await watch.stop()
    await refuses("a batch after stop", Closed, watch.batch())


async def batches_are_no_larger_than_asked_for(kv: CheckedKv) -> None:
    """And lose nothing between them."""
    store, writer = await writable(kv)
    versions = [await writer.put(f"k{number}", b"1") for number in range(10)]
    async with await watcher_of(store).watch_all() as watch:
        told: list[KvUpdate] = []
        while len(told) < len(versions):
            batch = await watch.batch(3)
            expect(1 <= len(batch) <= 3, f"a batch of at most 3 has {len(batch)} updates")  # noqa: PLR2004 - as asked
            told += batch
    same("versions told", [update.version for update in told], versions)


WATCH_CHECKS: tuple[KvStoreCheck, ...] = (
    a_watch_tells_the_state_and_then_what_is_written,
    a_watch_of_an_empty_bucket_is_current_at_once,
    a_watch_tells_a_delete_with_a_version_as_a_delete,
    a_watch_of_prefixes_tells_their_keys_only,
    a_watch_from_a_cursor_tells_only_what_follows,
    a_watch_from_the_last_revision_tells_what_is_written_next,
    a_cursor_before_what_is_kept_has_expired,
    a_cursor_beyond_the_last_revision_has_expired,
    retention_says_what_is_kept_and_whether_listing_is_truth,
    a_bucket_has_an_identity_of_its_own,
    retention_counts_the_updates_that_are_kept,
    the_frontier_follows_what_was_handed_out,
    a_shutdown_ends_every_watch,
    a_stopped_watch_ends,
    batches_are_no_larger_than_asked_for,
)
