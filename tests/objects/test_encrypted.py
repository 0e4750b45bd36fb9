"""Encrypted objects: nothing of a content is in the store, and nothing that was altered, moved or cut is handed out."""

import base64
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.objects import (
    KeyFileRefused,
    KeyMissing,
    KeyRing,
    MemoryObjects,
    NotEncrypted,
    Object,
    ObjectAltered,
    WrongKey,
    open_objects,
    read_key_file,
)
from strandline.objects.encrypted import (
    FRAME_BYTES,
    HEADER_BYTES,
    TAG_BYTES,
    EncryptedObjects,
    content_size,
    parse_header,
    rotate,
    seal,
)
from tests.effort import examples

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
OLD, NEW = bytes(range(32)), bytes(range(1, 33))
RING = KeyRing({"old": OLD})
SIZES = (0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 3 * FRAME_BYTES, 3 * FRAME_BYTES + 7)


def body(size: int) -> bytes:
    """Return a content whose frames differ."""
    return b"".join(number.to_bytes(4, "big") for number in range(size // 4 + 1))[:size]


@pytest.mark.parametrize("size", SIZES)
def test_sizes_are_those_of_the_content_and_the_store_has_none_of_it(size: int) -> None:
    inner = MemoryObjects()
    store = EncryptedObjects(inner, RING)
    store.put("a/b", body(size))
    store.put_stream("a/c", [body(size)[:5], body(size)[5:]])
    assert [info.size for info in store.list()] == [size, size]
    for key in ("a/b", "a/c"):
        found, raw, info = store.get(key), inner.get(key), store.head(key)
        assert found is not None
        assert raw is not None
        assert info is not None
        assert (found.body, found.info.size, info.size) == (body(size), size, size)
        assert content_size(len(raw.body)) == size
        assert size < 8 or body(size)[:8] not in raw.body
    first, second = inner.get("a/b"), inner.get("a/c")
    assert first is not None
    assert second is not None
    assert first.body[HEADER_BYTES:] != second.body[HEADER_BYTES:], "equal contents do not look equal"


@examples(100)
@given(st.data())
def test_any_range_is_that_of_the_content(data: st.DataObject) -> None:
    store = EncryptedObjects(MemoryObjects(), RING)
    size = data.draw(st.sampled_from(SIZES))
    start = data.draw(st.integers(0, size + FRAME_BYTES))
    stop = data.draw(st.none() | st.integers(start, size + 2 * FRAME_BYTES))
    store.put("a", body(size))
    found = store.get("a", start=start, stop=stop)
    assert found is not None
    assert found.body == body(size)[start:stop]


@examples(100)
@given(st.lists(st.binary(max_size=3 * FRAME_BYTES // 2), max_size=6))
def test_the_pieces_that_a_content_came_in_do_not_matter(pieces: list[bytes]) -> None:
    inner = MemoryObjects()
    inner.put("a", b"".join(seal(pieces, "a", RING.current)))
    found = EncryptedObjects(inner, RING).get("a")
    assert found is not None
    assert found.body == b"".join(pieces)


def test_a_range_reads_the_frames_that_it_touches_and_the_header_once(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = MemoryObjects()
    store = EncryptedObjects(inner, RING)
    store.put("a", body(10 * FRAME_BYTES))
    fetched, get = list[int](), inner.get

    def counted(key: str, *, start: int = 0, stop: int | None = None) -> Object | None:
        found = get(key, start=start, stop=stop)
        fetched.append(len(found.body) if found else 0)
        return found

    monkeypatch.setattr(inner, "get", counted)
    for _ in range(2):
        store.get("a", start=5 * FRAME_BYTES + 3, stop=5 * FRAME_BYTES + 4)
    assert fetched == [FRAME_BYTES + TAG_BYTES, HEADER_BYTES, FRAME_BYTES + TAG_BYTES]


SEALED = FRAME_BYTES + TAG_BYTES
ALTERED: dict[str, Callable[[bytes], bytes]] = {
    "one bit": lambda raw: raw[:200] + bytes([raw[200] ^ 1]) + raw[201:],
    "the nonce": lambda raw: raw[:10] + bytes([raw[10] ^ 1]) + raw[11:],
    "its last frame is gone": lambda raw: raw[: HEADER_BYTES + 2 * SEALED],
    "its last bytes are gone": lambda raw: raw[:-1],
    "two frames are swapped": lambda raw: (
        raw[:HEADER_BYTES]
        + raw[HEADER_BYTES + SEALED : HEADER_BYTES + 2 * SEALED]
        + raw[HEADER_BYTES : HEADER_BYTES + SEALED]
        + raw[HEADER_BYTES + 2 * SEALED :]
    ),
    "bytes behind its end": lambda raw: raw + b"x",
    "only its header": lambda raw: raw[:HEADER_BYTES],
}


@pytest.mark.parametrize("change", ALTERED)
def test_an_altered_object_is_refused(change: str) -> None:
    inner = MemoryObjects()
    store = EncryptedObjects(inner, RING)
    store.put("a", body(2 * FRAME_BYTES + 5))
    raw = inner.get("a")
    assert raw is not None
    inner.put("a", ALTERED[change](raw.body))
    with pytest.raises(ObjectAltered) as raised:
        store.get("a")
    assert raised.value.hint


def test_an_object_under_another_key_is_refused() -> None:
    inner = MemoryObjects()
    store = EncryptedObjects(inner, RING)
    store.put("ledger/1", b"ten")
    raw = inner.get("ledger/1")
    assert raw is not None
    inner.put("ledger/2", raw.body)
    with pytest.raises(ObjectAltered, match="ledger/2"):
        store.get("ledger/2")


def test_a_missing_key_a_wrong_key_and_no_encryption_are_told_apart() -> None:
    inner = MemoryObjects()
    EncryptedObjects(inner, RING).put("a", b"content")
    with pytest.raises(KeyMissing, match="under the key 'old', which is not in the keys"):
        EncryptedObjects(inner, KeyRing({"new": NEW})).get("a")
    with pytest.raises(WrongKey, match="another key 'old'"):
        EncryptedObjects(inner, KeyRing({"old": NEW})).get("a")
    for plain in (b"", b"short", bytes(100), body(3 * FRAME_BYTES)):
        inner.put("b", plain)
        with pytest.raises(NotEncrypted, match="b is not encrypted"):
            EncryptedObjects(inner, RING).get("b")


def test_new_objects_have_the_new_key_and_rotation_gives_it_to_the_old_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = MemoryObjects()
    before = EncryptedObjects(inner, RING)
    before.put("a", b"first", metadata={"x": "1"})
    before.put("b/large", body(4 * FRAME_BYTES), metadata={"y": "2"})
    both = EncryptedObjects(inner, KeyRing({"new": NEW, "old": OLD}))
    both.put("c", b"third")
    found = both.get("a")
    assert found is not None
    assert found.body == b"first"
    monkeypatch.setattr("strandline.objects.encrypted.REWRITE_BYTES_MAX", 3 * FRAME_BYTES)
    assert rotate(both) == (3, 2)
    assert rotate(both) == (3, 0)
    only = EncryptedObjects(inner, KeyRing({"new": NEW}))
    for key, content, metadata in (("a", b"first", {"x": "1"}), ("b/large", body(4 * FRAME_BYTES), {"y": "2"})):
        found = only.get(key)
        assert found is not None
        assert (found.body, found.info.metadata) == (content, metadata)
        raw = inner.get(key)
        assert raw is not None
        assert parse_header(raw.body, key).key_name == "new"


def test_rotation_never_overwrites_what_another_has_written_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = MemoryObjects()
    EncryptedObjects(inner, RING).put("a", b"first")
    store = EncryptedObjects(inner, KeyRing({"new": NEW, "old": OLD}))
    put = store.put

    def raced(key: str, content: bytes, **more: object) -> str:
        EncryptedObjects(inner, RING).put("a", b"second")
        return put(key, content, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "put", raced)
    assert not store.reencrypt("a")
    found = store.get("a")
    assert found is not None
    assert found.body == b"second"


def test_an_object_that_is_written_anew_between_two_requests_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = MemoryObjects()
    store = EncryptedObjects(inner, RING)
    store.put("a", body(3 * FRAME_BYTES))
    get, written = inner.get, list[bool]()

    def raced(key: str, *, start: int = 0, stop: int | None = None) -> Object | None:
        found = get(key, start=start, stop=stop)
        if not written:
            written.append(True)
            EncryptedObjects(inner, RING).put("a", bytes(3 * FRAME_BYTES))
        return found

    monkeypatch.setattr(inner, "get", raced)
    found = store.get("a", start=2 * FRAME_BYTES)
    assert found is not None
    assert found.body == bytes(FRAME_BYTES)


def write_keys(path: Path, text: str, mode: int = 0o600) -> Path:
    """Write a file of keys."""
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_environment_names_the_keys(tmp_path: Path) -> None:
    line = f"2026-11 = {base64.b64encode(OLD).decode()}"
    keys = write_keys(tmp_path / "keys", f"# ours\n\n{line}\n2026-05={base64.b64encode(NEW).decode()}\n")
    assert read_key_file(keys).names == ("2026-11", "2026-05")
    store = open_objects(
        f"file://{tmp_path}/objects", conditional=True, environ={"STRANDLINE_ENCRYPTION_KEYS": str(keys)}
    )
    store.put("a", b"content")
    assert b"content" not in (tmp_path / "objects" / "a").read_bytes()
    assert b"2026-11" in (tmp_path / "objects" / "a").read_bytes()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it has no key"),
        ("k = c2hvcnQ=", "key k has 5 bytes"),
        ("k c2hvcnQ=", "line 1 is not"),
        ("k = ???", "line 1 is not"),
        (f"K = {base64.b64encode(OLD).decode()}", "a key's name"),
        (f"k = {base64.b64encode(OLD).decode()}\nk = {base64.b64encode(NEW).decode()}", "names key k again"),
    ],
)
def test_a_file_of_keys_that_cannot_be_used_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(KeyFileRefused, match=problem):
        read_key_file(write_keys(tmp_path / "keys", text))


def test_a_file_of_keys_that_others_may_read_is_refused_and_no_message_has_a_key(tmp_path: Path) -> None:
    secret = base64.b64encode(OLD).decode()
    with pytest.raises(KeyFileRefused, match="others than its owner") as raised:
        read_key_file(write_keys(tmp_path / "keys", f"k = {secret}", 0o644))
    ring = KeyRing({"k": OLD})
    for text in (str(raised.value), repr(ring), repr(ring.current), str(ring.current)):
        assert secret not in text
        assert repr(OLD) not in text
    with pytest.raises(KeyFileRefused, match="No such file"):
        read_key_file(tmp_path / "missing")


def test_what_the_first_version_wrote_is_read() -> None:
    inner = MemoryObjects()
    inner.put("orders/0001", (FIXTURES / "encryption" / "v1" / "orders-0001").read_bytes())
    found = EncryptedObjects(inner, KeyRing({"2026-11": OLD})).get("orders/0001")
    assert found is not None
    assert found.body == body(36_000)
