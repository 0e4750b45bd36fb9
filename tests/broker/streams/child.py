"""A process that publishes as fast as it can and says what was acknowledged, until it is killed."""

from multiprocessing.connection import Connection
from pathlib import Path
from time import time_ns

from strandline.broker.streams import PublishBatch, Published, Stream
from strandline.lazy_imports import leave_pandas_out

KEYS = 40


def subject_of(sequence: int) -> bytes:
    """Return the subject that the message of a sequence is published on."""
    return b"s.%d" % (sequence * 7 % KEYS)


def headers_of(sequence: int) -> bytes:
    """Return the headers of a message: some have an identifier, some expect to be the next on the stream."""
    if sequence % 5 == 0:
        return b"NATS/1.0\r\nNats-Msg-Id: m%d\r\n\r\n" % sequence
    return b"NATS/1.0\r\nNats-Expected-Last-Sequence: %d\r\n\r\n" % (sequence - 1) if sequence % 11 == 0 else b""


def payload_of(sequence: int) -> bytes:
    """Return the payload of a message."""
    return b"%d:" % sequence + b"v" * (sequence % 300)


def publish(folder: str, told: Connection) -> None:
    """Open the stream, and publish until somebody ends this."""
    leave_pandas_out()
    with_it = Stream.open(Path(folder))
    waiting: list[Published] = []
    sequence = with_it.last_seq
    told.send(sequence)
    while True:
        rows = range(sequence + 1, sequence + 2 + sequence % 60)
        batch = PublishBatch(list(map(subject_of, rows)), list(map(payload_of, rows)), list(map(headers_of, rows)))
        waiting.append(with_it.publish(batch, time_ns()))
        sequence = rows[-1]
        with_it.compact_step()
        if len(waiting) > 3:
            done = waiting.pop(0)
            done.ticket.result()
            told.send(int(done.sequences[-1]))
