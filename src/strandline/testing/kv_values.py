"""Checks of a bucket's connection, reads and writes: what is put is got, versions decide, limits and time hold."""

from strandline.errors import InvalidInput, RecordTooLarge
from strandline.kv import (
    KEY_BYTES_MAX,
    UNKNOWN_VERSION,
    AlreadyExists,
    BucketExists,
    BucketFull,
    BucketNotFound,
    ConnectionState,
    Delete,
    Discard,
    InvalidBucket,
    InvalidKey,
    KvReader,
    NotConnected,
    NotSupported,
    Purge,
    Put,
    RevisionMismatch,
    StoreConfig,
    format_revision,
    parse_revision,
)
from strandline.testing.contract import expect, same
from strandline.testing.kv_helpers import CheckedKv, KvStoreCheck, hear, refuses, watcher_of, writable


async def _value(reader: KvReader, key: str) -> bytes | None:
    entry = await reader.get(key)
    return entry.value if entry else None


async def a_connection_can_be_shut_down_and_connected_again(kv: CheckedKv) -> None:
    """NEW, CONNECTED, SHUTDOWN, and CONNECTED again with the bucket as it was."""
    store, writer = await writable(kv)
    await writer.put("a", b"1")
    same("the state", kv.connection.state, ConnectionState.CONNECTED)
    await kv.connection.connect()
    expect(await kv.connection.is_healthy(), "a connected connection is not healthy")
    await kv.connection.shutdown()
    await kv.connection.shutdown()
    same("the state", kv.connection.state, ConnectionState.SHUTDOWN)
    expect(not await kv.connection.is_healthy(), "a connection that was shut down is healthy")
    await refuses("a read after shutdown", NotConnected, store.reader().get("a"))
    await kv.connection.connect()
    same("the value after connecting again", await _value((await kv.connection.store(store.name)).reader(), "a"), b"1")


async def a_bucket_that_is_not_there_is_not_found(kv: CheckedKv) -> None:
    """Opening one without settings does not create it."""
    await refuses("opening a missing bucket", BucketNotFound, kv.connection.store("no-such-bucket"))
    await refuses("opening it again", BucketNotFound, kv.connection.store("no-such-bucket"))


async def what_was_put_is_got_with_its_version(kv: CheckedKv) -> None:
    """Values of any bytes and keys of several tokens come back; absent keys are None."""
    store, writer = await writable(kv)
    reader = store.reader()
    for key, value in {"a": b"1", "a.b.c": bytes(range(256)), "$x-y_z/=1": b"2" * 100_000}.items():
        version = await writer.put(key, value)
        entry = await reader.get(key)
        same(f"the value of {key}", entry and entry.value, value)
        same(f"the version of {key}", entry and entry.version, version)
    same("an absent key", await reader.get("absent"), None)


async def versions_of_a_bucket_grow_with_every_write(kv: CheckedKv) -> None:
    """Of all keys and kinds together, so that one cursor is enough; they sort as they grow."""
    _, writer = await writable(kv)
    made = [await writer.put("a", b"1"), await writer.put("b", b"1"), await writer.delete("a")]
    made += [await writer.purge("b"), await writer.create("c", b"1")]
    made += [await writer.update("c", b"2", made[-1])]
    same("versions in order", made, sorted(set(made)))


async def create_wants_a_key_without_a_value(kv: CheckedKv) -> None:
    """A key that was deleted, by its version too, or purged has none; an empty value is one."""
    store, writer = await writable(kv)
    version = await writer.create("a", b"1")
    await refuses("creating it again", AlreadyExists, writer.create("a", b"2"))
    same("the value after a refusal", await _value(store.reader(), "a"), b"1")
    await writer.delete_with_version("a", version)
    await writer.create("a", b"3")
    await writer.delete("a")
    await writer.create("a", b"4")
    await writer.purge("a")
    await writer.create("a", b"5")
    same("the value created last", await _value(store.reader(), "a"), b"5")
    await writer.put("a", b"")
    await refuses("creating over an empty value", AlreadyExists, writer.create("a", b"6"))


async def update_wants_the_version_of_the_last_write(kv: CheckedKv) -> None:
    """An older version, one of another key, and the unknown one are refused, and write nothing."""
    store, writer = await writable(kv)
    first = await writer.put("a", b"1")
    other = await writer.put("b", b"1")
    second = await writer.update("a", b"2", first)
    await refuses("updating with an old version", RevisionMismatch, writer.update("a", b"3", first))
    await refuses("updating with another key's version", RevisionMismatch, writer.update("a", b"3", other))
    await refuses("updating an absent key", RevisionMismatch, writer.update("c", b"3", other))
    await refuses("updating with an unknown version", InvalidInput, writer.update("a", b"3", UNKNOWN_VERSION))
    entry = await store.reader().get("a")
    same("value and version after refusals", entry and (entry.value, entry.version), (b"2", second))


async def an_empty_value_is_a_value(kv: CheckedKv) -> None:
    """It is read, listed and told as it was put."""
    store, writer = await writable(kv)
    version = await writer.put("a", b"")
    reader = store.reader()
    same("the value", await _value(reader, "a"), b"")
    same("the keys", await reader.keys(), ["a"])
    same("the scan", [(entry.key, entry.value, entry.version) for entry in await reader.scan()], [("a", b"", version)])
    async with await watcher_of(store).watch_all() as watch:
        same("the update", await hear(watch, 1), [Put("a", b"", version)])


async def deleting_with_a_version_is_a_delete_of_that_version_only(kv: CheckedKv) -> None:
    """A second deleter with the old version is refused."""
    store, writer = await writable(kv)
    version = await writer.put("a", b"1")
    deleted = await writer.delete_with_version("a", version)
    await refuses("deleting with the old version", RevisionMismatch, writer.delete_with_version("a", version))
    reader = store.reader()
    same("the value", await reader.get("a"), None)
    same("the keys", await reader.keys(), [])
    same("the scan", await reader.scan(), [])
    same("the last update", (await reader.history("a"))[-1:], [Delete("a", deleted)])


async def deleted_and_purged_keys_are_not_read(kv: CheckedKv) -> None:
    """Deleting twice, or what was never there, is allowed."""
    store, writer = await writable(kv, StoreConfig(history=5))
    for key in "abc":
        await writer.put(key, b"1")
    await writer.delete("a")
    await writer.delete("a")
    await writer.purge("b")
    await writer.delete("never")
    reader = store.reader()
    same("the values", [await _value(reader, key) for key in "abc"], [None, None, b"1"])
    same("the keys", await reader.keys(), ["c"])


async def listings_are_by_prefix_and_in_the_order_of_revisions(kv: CheckedKv) -> None:
    """A prefix is whole tokens; keys, scan and its columns tell the same."""
    store, writer = await writable(kv)
    for key in ("b.2", "a.1", "ab.1", "b.1", "a"):
        await writer.put(key, key.encode())
    await writer.put("b.2", b"new")
    reader = store.reader()
    same("all keys", await reader.keys(), ["a.1", "ab.1", "b.1", "a", "b.2"])
    same("keys below a.", await reader.keys("a."), ["a.1"])
    same("values below b.", [entry.value for entry in await reader.scan("b.")], [b"b.1", b"new"])
    columns = [update async for batch in reader.scan_batches("b.") for update in batch]
    same("columns below b.", [update.key for update in columns], ["b.1", "b.2"])
    same("their versions", [update.version for update in columns], [e.version for e in await reader.scan("b.")])
    await refuses("a prefix within a token", InvalidKey, reader.keys("b"))


async def keys_that_no_server_takes_are_refused(kv: CheckedKv) -> None:
    """Empty ones, empty tokens, white space and wildcards."""
    store, writer = await writable(kv)
    for key in ("", ".", "a.", ".a", "a..b", "a b", "a.*", ">", "a\n"):
        await refuses(f"putting {key!r}", InvalidKey, writer.put(key, b"1"))
        await refuses(f"getting {key!r}", InvalidKey, store.reader().get(key))
    same("the keys", await store.reader().keys(), [])


async def values_beyond_the_limit_are_refused(kv: CheckedKv) -> None:
    """And nothing is written."""
    store, writer = await writable(kv, StoreConfig(value_bytes_max=1000))
    await writer.put("a", b"x" * 900)
    await refuses("a large value", RecordTooLarge, writer.put("a", b"x" * 2000))
    same("the value", await _value(store.reader(), "a"), b"x" * 900)


async def a_full_bucket_refuses_new_keys_or_drops_the_oldest(kv: CheckedKv) -> None:
    """By its `discard`; replacing a key is never refused, as long as it takes no more room."""
    store, writer = await writable(kv, StoreConfig(updates_max=3))
    for key in "abc":
        await writer.put(key, b"1")
    await refuses("a fourth key", BucketFull, writer.put("d", b"1"))
    await writer.put("a", b"2")
    same("the keys", await store.reader().keys(), ["b", "c", "a"])
    store, writer = await writable(kv, StoreConfig(updates_max=3, discard=Discard.OLD))
    for key in "abcd":
        await writer.put(key, b"1")
    same("the keys that are left", await store.reader().keys(), ["b", "c", "d"])


async def values_expire_with_the_bucket_s_age(kv: CheckedKv) -> None:
    """Each by its own age, and no write brings them back."""
    store, writer = await writable(kv, StoreConfig(age_max_s=2.0))
    first = await writer.put("a", b"1")
    await kv.pass_time(1.2)
    await writer.put("b", b"1")
    await kv.pass_time(1.2)
    reader = store.reader()
    same("the keys", await reader.keys(), ["b"])
    same("the expired key", await reader.get("a"), None)
    await refuses("updating an expired key", RevisionMismatch, writer.update("a", b"2", first))
    version = await writer.create("a", b"3")
    await kv.pass_time(2.5)
    same("the keys after all expired", await reader.keys(), [])
    again = await writer.put("a", b"4")
    expect(again > version > first, "a revision came back after expiry")


async def a_time_to_live_ends_one_value_only(kv: CheckedKv) -> None:
    """In a bucket that allows it; elsewhere it is refused rather than forgotten."""
    if not kv.connection.capabilities.ttl:
        return
    store, writer = await writable(kv, StoreConfig(ttl=True))
    await writer.put("a", b"1", ttl_s=1.0)
    await writer.put("b", b"1")
    await writer.create("c", b"1", ttl_s=60.0)
    await kv.pass_time(1.5)
    same("the keys", await store.reader().keys(), ["b", "c"])
    _, writer = await writable(kv)
    await refuses("a time to live where none is allowed", NotSupported, writer.put("a", b"1", ttl_s=5.0))


async def history_is_what_is_kept_of_a_key_oldest_first(kv: CheckedKv) -> None:
    """With deletes and purges as what they are; a purge takes what was before, and another key has its own."""
    store, writer = await writable(kv, StoreConfig(history=3))
    reader = store.reader()
    same("the history of an absent key", await reader.history("a"), [])
    made = [await writer.put("a", b"%d" % number) for number in range(4)]
    await writer.put("a.b", b"x")
    gone = await writer.delete("a")
    wanted = [Put("a", b"2", made[2]), Put("a", b"3", made[3]), Delete("a", gone)]
    same("the history of a key", await reader.history("a"), wanted)
    purged = await writer.purge("a")
    same("the history after a purge", await reader.history("a"), [Purge("a", purged)])


async def a_bucket_that_exists_keeps_its_settings(kv: CheckedKv) -> None:
    """Opened with the same settings or none it is there; with others it is refused, and both are named."""
    store, writer = await writable(kv, StoreConfig(history=5, age_max_s=3600.0))
    await writer.put("a", b"1")
    for config in (None, StoreConfig(history=5, age_max_s=3600.0)):
        again = await kv.connection.store(store.name, config)
        same("the value", await _value(again.reader(), "a"), b"1")
    try:
        await kv.connection.store(store.name, StoreConfig(history=6, age_max_s=3600.0))
    except BucketExists as refused:
        expect("5" in refused.differences and "6" in refused.differences, f"it names {refused.differences!r}")
    else:
        expect(condition=False, problem="other settings were taken for a bucket that exists")


async def names_that_no_server_takes_are_refused(kv: CheckedKv) -> None:
    """Of buckets."""
    for name in ("", "a.b", "a b", "a*", ">", "ü", "x" * 300):
        await refuses(f"opening {name!r}", InvalidBucket, kv.connection.store(name, StoreConfig()))


async def unusual_keys_come_back_as_they_are(kv: CheckedKv) -> None:
    """All that subjects allow: any letters, signs within tokens, many tokens, long ones."""
    store, writer = await writable(kv)
    keys = [
        "ключ.é.日本",
        "a\u00a0b",
        "a*b.c>d",
        "#!%&'()+,;<?@[]^`{|}~\\\"",
        "KV_x.$KV.>x",
        "-",
        "_",
        "=/",
        ".".join("ab" * 200),
    ]
    keys += ["k" * KEY_BYTES_MAX, "é" * (KEY_BYTES_MAX // 2), "\U0001f600"]
    versions = [await writer.put(key, key.encode()) for key in keys]
    reader = store.reader()
    for key, version in zip(keys, versions, strict=True):
        entry = await reader.get(key)
        same(
            f"the value of {key[:40]}", entry and (entry.key, entry.value, entry.version), (key, key.encode(), version)
        )
    same("the keys", await reader.keys(), keys)
    same("the scan", [entry.key for entry in await reader.scan()], keys)
    async with await watcher_of(store).watch_all() as watch:
        same("the watch", [update.key for update in await hear(watch, len(keys))], keys)
    for key in ("k" * (KEY_BYTES_MAX + 1), "a\ud800", "a\x00b", "a\x7f"):
        await refuses(f"putting {key[:9]!r}", InvalidKey, writer.put(key, b"1"))


async def large_values_come_back_whole(kv: CheckedKv) -> None:
    """A mebibyte, of any bytes, read one by one, listed and watched; one more is refused."""
    store, writer = await writable(kv)
    value = bytes(range(256)) * 4096
    await writer.put("a", value)
    await writer.put("b", b"\r\nMSG a 1 2\r\n" * 10_000)
    reader = store.reader()
    same("the value", await _value(reader, "a") == value, wanted=True)
    same("the scan", [entry.value == value for entry in await reader.scan()], [True, False])
    async with await watcher_of(store).watch_all() as watch:
        first = (await hear(watch, 1))[0]
        expect(isinstance(first, Put) and first.value == value, "a watch told another value")
    await refuses("a larger value", RecordTooLarge, writer.put("a", value + b"x"))
    same("the value after a refusal", await _value(reader, "a") == value, wanted=True)


async def an_expired_value_leaves_a_marker_where_the_bucket_says_so(kv: CheckedKv) -> None:
    """A purge, told to watches; the key can be created again."""
    if not kv.connection.capabilities.ttl:
        return
    store, writer = await writable(kv, StoreConfig(ttl=True, marker_ttl_s=60.0))
    await writer.put("a", b"1", ttl_s=1.0)
    async with await watcher_of(store).watch_all() as watch:
        await hear(watch, 1)
        await kv.pass_time(2.5)
        same("what reading finds", await _value(store.reader(), "a"), None)
        told = await hear(watch, 1)
        same("what the watch told", [(type(update), update.key) for update in told], [(Purge, "a")])
        await writer.create("a", b"2")
        same("what came after", [type(update) for update in await hear(watch, 1)], [Put])


async def versions_are_revisions_that_format_and_parse(kv: CheckedKv) -> None:
    """Eight bytes that sort, so that folds and cursors can be compared."""
    _, writer = await writable(kv)
    version = await writer.put("a", b"1")
    revision = parse_revision(version)
    expect(revision, "a write made revision 0")
    same("the token of its revision", format_revision(revision or 0), version)


VALUE_CHECKS: tuple[KvStoreCheck, ...] = (
    a_connection_can_be_shut_down_and_connected_again,
    a_bucket_that_is_not_there_is_not_found,
    what_was_put_is_got_with_its_version,
    versions_of_a_bucket_grow_with_every_write,
    create_wants_a_key_without_a_value,
    update_wants_the_version_of_the_last_write,
    an_empty_value_is_a_value,
    deleting_with_a_version_is_a_delete_of_that_version_only,
    deleted_and_purged_keys_are_not_read,
    listings_are_by_prefix_and_in_the_order_of_revisions,
    keys_that_no_server_takes_are_refused,
    values_beyond_the_limit_are_refused,
    a_full_bucket_refuses_new_keys_or_drops_the_oldest,
    values_expire_with_the_bucket_s_age,
    a_time_to_live_ends_one_value_only,
    history_is_what_is_kept_of_a_key_oldest_first,
    a_bucket_that_exists_keeps_its_settings,
    names_that_no_server_takes_are_refused,
    unusual_keys_come_back_as_they_are,
    large_values_come_back_whole,
    an_expired_value_leaves_a_marker_where_the_bucket_says_so,
    versions_are_revisions_that_format_and_parse,
)
