"""What the tests of streams share: streams in memory and on disk, and short words for what is done to them."""

from concurrent.futures import Executor
from pathlib import Path

import numpy as np

from strandline.broker.api.checks import check_create
from strandline.broker.api.config import Storage, StreamConfig
from strandline.broker.api.origins import Neighbours
from strandline.broker.streams import PublishBatch, Published, Stream
from strandline.clock import ManualClock
from strandline.gather import InlineExecutor
from strandline.journal import SYNCED, Durability
from strandline.sim import SimDisk

FOLDER = Path("/sim/S")
SECOND = 1_000_000_000


class Kept:
    """A stream that can be opened again, with a clock that moves when told."""

    def __init__(self, durability: Durability = SYNCED, **options: object) -> None:
        executor = options.pop("executor", None)
        self.durability = durability
        self.executor = executor if isinstance(executor, Executor) else InlineExecutor()
        self.disk = SimDisk()
        self.clock = ManualClock()
        options.setdefault("subjects", ("s.>",))
        config = check_create(StreamConfig(name="S", **options), Neighbours())  # type: ignore[arg-type]
        folder = FOLDER if config.storage is Storage.FILE else None
        self.stream = Stream.create(
            folder, config, disk=self.disk, clock=self.clock, durability=durability, executor=self.executor
        )

    def reopen(self, *, proper: bool = True) -> Stream:
        """Close, or die, and open again."""
        if proper:
            self.stream.close()
        else:
            self.disk.kill()
        self.stream = Stream.open(
            FOLDER, disk=self.disk, clock=self.clock, durability=self.durability, executor=self.executor
        )
        return self.stream

    def publish(self, *rows: tuple[str, str] | tuple[str, str, dict[str, str]]) -> Published:
        """Publish messages: subject, payload, and headers if there are any."""
        subjects = [row[0].encode() for row in rows]
        payloads = [row[1].encode() for row in rows]
        blocks = [_block(row[2]) if len(row) > 2 else b"" for row in rows]
        batch = PublishBatch(subjects, payloads, blocks if any(blocks) else None)
        return self.stream.publish(batch, self.clock.now_ns())

    def held(self) -> list[tuple[int, str, str]]:
        """Return everything in the stream: sequence, subject, payload."""
        found = self.stream.read(self.stream.next_sequences(self.stream.filter(()), 0, 1_000_000))
        return [
            (int(sequence), subject.decode(), payload.decode())
            for sequence, subject, payload in zip(found.sequences, found.subjects, found.payloads, strict=True)
        ]

    def sequences(self) -> list[int]:
        """Return the sequences of everything in the stream."""
        return [sequence for sequence, _, _ in self.held()]


def _block(headers: dict[str, str]) -> bytes:
    return ("NATS/1.0\r\n" + "".join(f"{key}: {value}\r\n" for key, value in headers.items()) + "\r\n").encode(
        errors="surrogateescape"
    )


def words(*numbers: int) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    """Return sequences as an array."""
    return np.array(numbers, np.uint64)


def make(**options: object) -> StreamConfig:
    """Return a checked configuration."""
    config = StreamConfig(name="S", subjects=("s.>",), allow_rollup_hdrs=True, **options)  # type: ignore[arg-type]
    return check_create(config, Neighbours())
