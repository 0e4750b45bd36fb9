"""A restored stream is there as a whole or not at all."""

from pathlib import Path

import pytest

from strandline.broker.api.checks import check_create
from strandline.broker.api.config import Storage, StreamConfig
from strandline.broker.api.origins import Neighbours
from strandline.broker.api.times import format_time
from strandline.broker.snapshots.archive import END, Archived, BadArchive, format_entry
from strandline.broker.snapshots.restore import Restore, forget_unfinished
from strandline.broker.snapshots.s2 import format_chunks
from strandline.broker.streams.service import StreamService
from strandline.broker.streams.stream import Stream
from strandline.clock import ManualClock
from strandline.wire import WireLimits
from tests.broker.snapshots.packing import packed
from tests.broker.snapshots.recorded import REAL

LIMITS = WireLimits(payload_bytes_max=250_000)
FORGED = b"x 1 0\r\n\r\nMSG forged.secret.subject 1 5\r\nHELLO\r\nMSG y"
BLOCK = b"NATS/1.0\r\nA: b\r\n\r\n"


def _config(**options: object) -> StreamConfig:
    config = StreamConfig(name="S", subjects=("s.>",), **options)  # type: ignore[arg-type]
    return check_create(config, Neighbours())


def _feed(restore: Restore, data: bytes) -> None:
    for _ in restore.feed(data):
        pass


@pytest.mark.parametrize("storage", [Storage.FILE, Storage.MEMORY])
def test_a_stream_of_nats_server_is_restored(tmp_path: Path, storage: Storage) -> None:
    streams = StreamService(folder=tmp_path / "streams")
    streams.open_all()
    restore = Restore(_config(storage=storage), streams, "one", 0, LIMITS)
    for at in range(0, len(REAL), 1000):
        _feed(restore, REAL[at : at + 1000])
        assert not (tmp_path / "streams" / "S").exists()
    restore.check_whole()
    restore.finish()
    stream = restore.stream
    assert stream.state().messages == 22
    assert (stream.first_seq, stream.last_seq) == (1, 23)
    message = stream.get(9)
    assert message is not None
    assert (message.subject, message.headers, message.payload) == (
        b"s.2",
        b"NATS/1.0\r\nA: b\r\n\r\n",
        b"hello hello hello hello 8",
    )
    assert list(restore.restored) == ["c"]
    stream.close()
    if storage is Storage.FILE:
        again = StreamService(folder=tmp_path / "streams")
        again.open_all()
        assert again.streams["S"].state().messages == 22
        again.close()


def test_what_is_given_up_or_cut_off_leaves_nothing(tmp_path: Path) -> None:
    streams = StreamService(folder=tmp_path / "streams")
    streams.open_all()
    for name in ("one", "two"):
        restore = Restore(_config(), streams, name, 0, LIMITS)
        _feed(restore, REAL[: len(REAL) // 2])
        if name == "one":
            restore.abandon()
    assert list((tmp_path / "streams").iterdir()) == []
    assert [folder.name for folder in (tmp_path / "restoring").iterdir()] == ["two"]
    restore.abandon()
    (tmp_path / "restoring" / "three").mkdir()
    forget_unfinished(streams)
    assert not (tmp_path / "restoring").exists()


def test_sequences_beyond_the_last_message_are_used_up(tmp_path: Path) -> None:
    streams = StreamService(folder=tmp_path / "streams")
    streams.open_all()
    restore = Restore(_config(), streams, "one", 0, LIMITS)
    _feed(restore, packed(Archived(b"state.json", 0, 0, b"", b'{"last_seq":9}'), Archived(b"s.a", 5, 4, b"", b"x")))
    restore.check_whole()
    restore.finish()
    stream = restore.stream
    assert (stream.first_seq, stream.last_seq) == (4, 9)
    stream.close()


@pytest.mark.parametrize("sequences", [(2, 2), (3, 1)])
def test_messages_out_of_order_are_refused(sequences: tuple[int, int]) -> None:
    restore = Restore(_config(storage=Storage.MEMORY), StreamService(), "one", 0, LIMITS)
    with pytest.raises(BadArchive, match="out of order"):
        _feed(restore, packed(*(Archived(b"s.a", 5, sequence, b"", b"x") for sequence in sequences)))


@pytest.mark.parametrize(
    "payload", [b"[]", b'{"last_seq":-1}', b'{"last_seq":9223372036854775808}', b'{"last_seq":1e999}']
)
def test_a_state_that_cannot_be_read_is_refused(payload: bytes) -> None:
    restore = Restore(_config(storage=Storage.MEMORY), StreamService(), "one", 0, LIMITS)
    with pytest.raises(BadArchive, match="state"):
        _feed(restore, packed(Archived(b"state.json", 0, 0, b"", payload)))


@pytest.mark.parametrize(
    "message",
    [
        Archived(FORGED, 5, 1, b"", b"x"),
        Archived(b"", 5, 1, b"", b"x"),
        Archived(b"s..a", 5, 1, b"", b"x"),
        Archived(b"s.a\tb", 5, 1, b"", b"x"),
        Archived(b"s.a\n", 5, 1, b"", b"x"),
        Archived(b"s.", 5, 1, b"", b"x"),
        Archived(b"s" * 4097, 5, 1, b"", b"x"),
        Archived(b"s.a", 5, 1, b"NATS/1.0\r\nA: " + b"h" * 65_536 + b"\r\n\r\n", b"x"),
        Archived(b"s.a", 5, 1, BLOCK, bytes(250_000)),
        Archived(b"s.a", 5, 2**62 + 1, b"", b"x"),
        Archived(b"s.a", 5, 2**64 - 1, b"", b"x"),
        Archived(b"s.a", 5, 2**64, b"", b"x"),
        Archived(b"s.a", -1, 1, b"", b"x"),
        Archived(b"s.a", 2**63 - 1, 1, b"", b"x"),
    ],
    ids=str,
)
def test_messages_that_nobody_could_have_published_are_refused(message: Archived) -> None:
    restore = Restore(_config(storage=Storage.MEMORY), StreamService(), "one", 0, LIMITS)
    with pytest.raises(BadArchive):
        _feed(restore, packed(message))
    assert not restore.stored_bytes


def test_messages_at_the_limits_are_taken() -> None:
    restore = Restore(_config(storage=Storage.MEMORY), StreamService(), "one", 0, LIMITS)
    large = Archived(b"s" * 4096, 0, 1, BLOCK, bytes(250_000 - len(BLOCK)))
    _feed(restore, packed(large, Archived("s.ä".encode(), 2**62, 2**62, b"", b"")))
    restore.check_whole()
    restore.finish()
    assert restore.stream.last_seq == 2**62


def test_odd_messages_that_a_client_may_publish_are_taken() -> None:
    restore = Restore(_config(storage=Storage.MEMORY), StreamService(), "one", 0, LIMITS)
    odd = [Archived(b"s.*", 5, 1, b"", b"x"), Archived(b"s.\x01\xff", 5, 2, b"junk", b"x")]
    _feed(restore, packed(*odd))
    restore.check_whole()
    restore.finish()
    assert restore.stream.state().messages == 2


def test_a_stream_that_cannot_be_opened_in_its_place_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = StreamService(folder=tmp_path / "streams")
    streams.open_all()
    restore = Restore(_config(), streams, "one", 0, LIMITS)
    _feed(restore, REAL)

    def fail(*_: object, **__: object) -> None:
        raise OSError("no more files")

    monkeypatch.setattr(Stream, "open", fail)
    with pytest.raises(OSError, match="no more files"):
        restore.finish()
    restore.abandon()
    assert list((tmp_path / "streams").iterdir()) == []


# What messages ask for.

TTL = b"NATS/1.0\r\nNats-TTL: 4s\r\n\r\n"
SECOND = 1_000_000_000


def _restored(tmp_path: Path, *chunks: bytes, **options: object) -> tuple[Stream, ManualClock]:
    clock = ManualClock()
    streams = StreamService(folder=tmp_path / "streams", clock=clock)
    streams.open_all()
    restore = Restore(_config(**options), streams, "one", clock.now_ns(), LIMITS)
    for chunk in chunks:
        _feed(restore, chunk)
    restore.finish()
    return restore.stream, clock


@pytest.mark.parametrize("storage", [Storage.FILE, Storage.MEMORY])
def test_messages_with_a_time_to_live_go_when_they_were_to_go(tmp_path: Path, storage: Storage) -> None:
    now_ns = ManualClock().now_ns()
    entries = [Archived(b"s.a", now_ns, 1, TTL, b"x"), Archived(b"s.b", now_ns, 2, b"", b"x")]
    stream, clock = _restored(tmp_path, packed(*entries), storage=storage, allow_msg_ttl=True)
    assert stream.state().messages == 2
    assert stream.next_expiry_ns is not None
    stream.expire(clock.now_ns() + 5 * SECOND)
    assert (stream.state().messages, stream.first_seq) == (1, 2)
    stream.close()


MARKING = {"allow_msg_ttl": True, "subject_delete_marker_ttl": 60 * SECOND, "allow_rollup_hdrs": True}


def _chunks(*messages: Archived) -> list[bytes]:
    """Return an archive in which every message comes for itself."""
    parts = [format_chunks(format_entry(message)) for message in messages]
    return [packed(end=b""), *parts, format_chunks(END)]


@pytest.mark.parametrize("indexed", [True, False])
def test_messages_whose_time_passed_before_are_marked_after_all_have_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indexed: bool
) -> None:
    place = Restore._place  # noqa: SLF001

    def forgetful(restore: Restore, aside: Path, home: Path) -> None:
        (aside / "index").unlink()
        place(restore, aside, home)

    if not indexed:
        monkeypatch.setattr(Restore, "_place", forgetful)
    then_ns = ManualClock().now_ns() - 100 * SECOND
    chunks = _chunks(
        Archived(b"s.a", then_ns, 1, TTL, b"x"),
        Archived(b"s.b", then_ns, 2, TTL, b"x"),
        Archived(b"s.c", then_ns, 3, b"", b"x"),
    )
    stream, _ = _restored(tmp_path, *chunks, **MARKING)
    assert [(row.sequence, row.subject) for seq in range(1, 9) if (row := stream.get(seq)) is not None] == [
        (3, b"s.c"),
        (4, b"s.a"),
        (5, b"s.b"),
    ]
    stream.close()


def test_messages_whose_time_passed_by_the_times_of_others_leave_those_their_sequences(tmp_path: Path) -> None:
    then_ns = ManualClock().now_ns() - 100 * SECOND
    later_ns = then_ns + 70 * SECOND
    chunks = _chunks(
        Archived(b"s.a", then_ns, 1, TTL, b"x"),
        Archived(b"s.b", later_ns, 2, b"", b"x"),
        Archived(b"s.c", later_ns, 3, b"", b"x"),
    )
    stream, _ = _restored(tmp_path, *chunks, **MARKING)
    assert [seq for seq in range(1, 9) if stream.get(seq) is not None] == [2, 3]
    assert stream.state().messages == 2
    stream.close()


@pytest.mark.parametrize("storage", [Storage.FILE, Storage.MEMORY])
def test_schedules_fire(tmp_path: Path, storage: Storage) -> None:
    now_ns = ManualClock().now_ns()
    block = b"NATS/1.0\r\nNats-Schedule: @at %s\r\nNats-Schedule-Target: s.t\r\n\r\n"
    schedule = Archived(b"s.s", now_ns, 1, block % format_time(now_ns + 5 * SECOND).encode(), b"tick")
    stream, clock = _restored(tmp_path, packed(schedule), storage=storage, allow_msg_schedules=True)
    stream.expire(clock.now_ns() + 6 * SECOND)
    fired = stream.get(2)
    assert fired is not None
    assert (fired.subject, fired.payload) == (b"s.t", b"tick")
    assert stream.get(1) is None
    stream.close()
