"""Streams written by earlier versions are read for ever; their bytes are in `tests/fixtures/broker-stream`."""

import shutil
from pathlib import Path

import pytest

from strandline.broker.streams import PublishBatch, Stream
from strandline.broker.streams.checkpoint import format_checkpoint, parse_checkpoint
from strandline.clock import ManualClock
from strandline.gather import InlineExecutor

FIXTURES = Path(__file__).parent.parent.parent / "fixtures" / "broker-stream"
EXPECTED = [
    (2, b"s.b", b"", b"two"),
    (4, b"s.c", b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n", b"four"),
    (6, b"s.a", b"", b"six"),
]


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("with_index", [True, False])
def test_every_version_is_read(tmp_path: Path, with_index: bool, version: str) -> None:
    folder = tmp_path / "S"
    shutil.copytree(FIXTURES / version, folder)
    if not with_index:
        (folder / "index").unlink()
    stream = Stream.open(folder, clock=ManualClock(), executor=InlineExecutor())
    found = stream.read(stream.next_sequences(stream.filter(()), 0, 100))
    messages = list(zip(found.sequences.tolist(), found.subjects, found.headers, found.payloads, strict=True))
    assert messages == EXPECTED
    assert stream.config.description == "second"
    assert (stream.last_seq, stream.created_ns) == (6, 1_700_000_000_000_000_000)
    answer = stream.publish(PublishBatch([b"s.x"], [b""], [EXPECTED[1][2]]), 1_700_000_000_000_000_000).answers[0]
    assert answer == b'{"stream":"S","seq":4,"duplicate": true}'
    stream.close()


@pytest.mark.parametrize("without", [(), ("index",), ("lost",), ("journal/lost",), ("index", "lost", "journal/lost")])
def test_version_one_is_read_with_what_it_has_lost(tmp_path: Path, without: tuple[str, ...]) -> None:
    folder = tmp_path / "S"
    shutil.copytree(FIXTURES / "v1-lost", folder)
    for name in without:
        (folder / name).unlink()
    stream = Stream.open(folder, clock=ManualClock(), executor=InlineExecutor())
    found = stream.read(stream.next_sequences(stream.filter(()), 0, 100))
    assert found.payloads == [b"message %d" % number for number in (1, 2, 4, 5, 6)]
    assert found.sequences.tolist() == [1, 2, 4, 5, 6]
    if without != ("lost",):  # without it and with the index, which was written later, nothing tells which it was
        assert stream.losses.sequences.tolist() == [3]
    stream.close()


def test_a_checkpoint_is_written_in_the_newest_version_and_says_the_same() -> None:
    old, new = ((FIXTURES / version / "front").read_bytes() for version in ("v1", "v2"))
    assert (old[:10], new[:10]) == (b"STRANDLF\x01\x00", b"STRANDLS\x02\x00")
    assert format_checkpoint(parse_checkpoint(old, "front")) == new
