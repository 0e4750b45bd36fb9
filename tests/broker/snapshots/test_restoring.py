"""A restored stream is there as a whole or not at all."""

from pathlib import Path

import pytest

from strandline.broker.api.checks import check_create
from strandline.broker.api.config import Storage, StreamConfig
from strandline.broker.api.origins import Neighbours
from strandline.broker.snapshots.archive import END, MAGIC, Archived, BadArchive, format_entry
from strandline.broker.snapshots.restoring import Restoring, forget_unfinished
from strandline.broker.snapshots.s2 import BEGIN, format_chunks
from strandline.broker.streams.service import StreamService
from strandline.broker.streams.stream import Stream
from strandline.wire import WireLimits
from tests.broker.snapshots.test_s2 import REAL

LIMITS = WireLimits(payload_bytes_max=250_000)
FORGED = b"x 1 0\r\n\r\nMSG forged.secret.subject 1 5\r\nHELLO\r\nMSG y"
BLOCK = b"NATS/1.0\r\nA: b\r\n\r\n"


def _config(**options: object) -> StreamConfig:
    config = StreamConfig(name="S", subjects=("s.>",), **options)  # type: ignore[arg-type]
    return check_create(config, Neighbours())


def _feed(restoring: Restoring, data: bytes) -> None:
    for _ in restoring.feed(data):
        pass


def _packed(*entries: Archived) -> bytes:
    return BEGIN + format_chunks(MAGIC + b"".join(map(format_entry, entries)) + END)


@pytest.mark.parametrize("storage", [Storage.FILE, Storage.MEMORY])
def test_a_stream_of_nats_server_is_restored(tmp_path: Path, storage: Storage) -> None:
    streams = StreamService(folder=tmp_path / "streams")
    streams.open_all()
    restoring = Restoring(_config(storage=storage), streams, "one", 0, LIMITS)
    for at in range(0, len(REAL), 1000):
        _feed(restoring, REAL[at : at + 1000])
        assert not (tmp_path / "streams" / "S").exists()
    restoring.check_whole()
    stream = restoring.finish()
    assert stream.state().messages == 22
    assert (stream.first_seq, stream.last_seq) == (1, 23)
    message = stream.get(9)
    assert message is not None
    assert (message.subject, message.headers, message.payload) == (
        b"s.2",
        b"NATS/1.0\r\nA: b\r\n\r\n",
        b"hello hello hello hello 8",
    )
    assert [found.name for found in restoring.consumers] == ["c"]
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
        restoring = Restoring(_config(), streams, name, 0, LIMITS)
        _feed(restoring, REAL[: len(REAL) // 2])
        if name == "one":
            restoring.abandon()
    assert list((tmp_path / "streams").iterdir()) == []
    assert [folder.name for folder in (tmp_path / "restoring").iterdir()] == ["two"]
    restoring.abandon()
    (tmp_path / "restoring" / "three").mkdir()
    forget_unfinished(streams)
    assert not (tmp_path / "restoring").exists()


def test_sequences_beyond_the_last_message_are_used_up(tmp_path: Path) -> None:
    streams = StreamService(folder=tmp_path / "streams")
    streams.open_all()
    restoring = Restoring(_config(), streams, "one", 0, LIMITS)
    _feed(restoring, _packed(Archived(b"state.json", 0, 0, b"", b'{"last_seq":9}'), Archived(b"s.a", 5, 4, b"", b"x")))
    restoring.check_whole()
    stream = restoring.finish()
    assert (stream.first_seq, stream.last_seq) == (4, 9)
    stream.close()


@pytest.mark.parametrize("sequences", [(2, 2), (3, 1)])
def test_messages_out_of_order_are_refused(sequences: tuple[int, int]) -> None:
    restoring = Restoring(_config(storage=Storage.MEMORY), StreamService(), "one", 0, LIMITS)
    with pytest.raises(BadArchive, match="out of order"):
        _feed(restoring, _packed(*(Archived(b"s.a", 5, sequence, b"", b"x") for sequence in sequences)))


@pytest.mark.parametrize(
    "payload", [b"[]", b'{"last_seq":-1}', b'{"last_seq":9223372036854775808}', b'{"last_seq":1e999}']
)
def test_a_state_that_cannot_be_read_is_refused(payload: bytes) -> None:
    restoring = Restoring(_config(storage=Storage.MEMORY), StreamService(), "one", 0, LIMITS)
    with pytest.raises(BadArchive, match="state"):
        _feed(restoring, _packed(Archived(b"state.json", 0, 0, b"", payload)))


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
    restoring = Restoring(_config(storage=Storage.MEMORY), StreamService(), "one", 0, LIMITS)
    with pytest.raises(BadArchive):
        _feed(restoring, _packed(message))
    assert not restoring.stored_bytes


def test_messages_at_the_limits_are_taken() -> None:
    restoring = Restoring(_config(storage=Storage.MEMORY), StreamService(), "one", 0, LIMITS)
    large = Archived(b"s" * 4096, 0, 1, BLOCK, bytes(250_000 - len(BLOCK)))
    _feed(restoring, _packed(large, Archived("s.ä".encode(), 2**62, 2**62, b"", b"")))
    restoring.check_whole()
    assert restoring.finish().last_seq == 2**62


def test_odd_messages_that_a_client_may_publish_are_taken() -> None:
    restoring = Restoring(_config(storage=Storage.MEMORY), StreamService(), "one", 0, LIMITS)
    odd = [Archived(b"s.*", 5, 1, b"", b"x"), Archived(b"s.\x01\xff", 5, 2, b"junk", b"x")]
    _feed(restoring, _packed(*odd))
    restoring.check_whole()
    assert restoring.finish().state().messages == 2


def test_a_stream_that_cannot_be_opened_in_its_place_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = StreamService(folder=tmp_path / "streams")
    streams.open_all()
    restoring = Restoring(_config(), streams, "one", 0, LIMITS)
    _feed(restoring, REAL)

    def fail(*_: object, **__: object) -> None:
        raise OSError("no more files")

    monkeypatch.setattr(Stream, "open", fail)
    with pytest.raises(OSError, match="no more files"):
        restoring.finish()
    restoring.abandon()
    assert list((tmp_path / "streams").iterdir()) == []
