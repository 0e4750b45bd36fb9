"""What the accounts of a server have together is bounded: room for messages, and atomic batches on their way."""

import json

import numpy as np
import pytest

from strandline.broker.api.config import Storage
from strandline.broker.streams import OriginBatch, PublishBatch, Stream, atomic_batches
from strandline.broker.streams.service import StreamService
from strandline.broker.streams.shared_limits import SharedLimits
from strandline.clock import ManualClock
from tests.broker.conversations import Talk
from tests.broker.streams.helpers import Kept

LIMIT = 1 << 20
CODES = {Storage.FILE: 10047, Storage.MEMORY: 10028}
KINDS = pytest.mark.parametrize("storage", list(Storage))


class Accounts:
    """Two accounts of one server."""

    def __init__(self, shared_limits: SharedLimits) -> None:
        self.shared_limits = shared_limits
        self.services = [StreamService(clock=ManualClock(), shared_limits=shared_limits) for _ in range(2)]
        self.talks = [Talk(service) for service in self.services]

    def create(self, account: int, name: str, verb: str = "CREATE", **options: object) -> int:
        """Make or change a stream; return the code of the error, 0 if there is none."""
        config = {"name": name, "subjects": [f"{name}.>"], **options}
        text = self.talks[account].ask(f"$JS.API.STREAM.{verb}.{name}", json.dumps(config).encode())
        assert isinstance(text, str)
        return int(json.loads(text).get("error", {}).get("err_code", 0))

    def stream(self, account: int, name: str) -> Stream:
        return self.services[account].find(name)


@KINDS
def test_streams_of_all_accounts_reserve_no_more_than_the_server_has(storage: Storage) -> None:
    accounts, code = Accounts(SharedLimits(LIMIT, LIMIT)), CODES[storage]
    options = {"storage": storage.value}
    assert accounts.create(0, "A", max_bytes=LIMIT + 1, **options) == code
    assert accounts.create(0, "A", max_bytes=LIMIT, **options) == 0
    assert accounts.create(1, "B", **options) == code
    assert accounts.create(0, "A", "UPDATE", **options) == 0
    assert accounts.create(1, "B", **options) == 0
    assert accounts.create(0, "A", "UPDATE", max_bytes=LIMIT + 1, **options) == code
    assert accounts.create(0, "A", "UPDATE", max_bytes=LIMIT // 2, **options) == 0
    assert accounts.create(1, "B", "UPDATE", max_bytes=LIMIT // 2, **options) == 0
    assert accounts.create(1, "B", "UPDATE", max_bytes=LIMIT // 2 + 1, **options) == code
    assert accounts.create(1, "C", **options) == code
    other = Storage.MEMORY if storage is Storage.FILE else Storage.FILE
    assert accounts.create(1, "C", storage=other.value) == 0


def publish(stream: Stream, count: int, size: int) -> list[int]:
    """Publish messages at once; return the code of each answer, 0 for those that were stored."""
    name = stream.config.name.encode()
    published = stream.publish(PublishBatch([name + b".a"] * count, [bytes(size)] * count), 1)
    errors = {row: json.loads(text)["error"] for row, text in published.answers.items()}
    assert all((error["code"], error["description"]) == (503, "insufficient resources") for error in errors.values())
    return [errors[row]["err_code"] if row in errors else 0 for row in range(count)]


@KINDS
def test_nothing_is_published_while_messages_of_all_accounts_are_beyond_what_the_server_has(storage: Storage) -> None:
    accounts = Accounts(SharedLimits(LIMIT, LIMIT))
    for account, name in enumerate("AB"):
        accounts.create(account, name, storage=storage.value)
    first, second = accounts.stream(0, "A"), accounts.stream(1, "B")
    assert publish(first, 10, 50_000) == [0] * 10
    answers = publish(second, 20, 50_000)
    assert answers == [0] * 11 + [10023] * 9
    assert first.byte_count + second.byte_count > LIMIT
    assert publish(first, 1, 10) == [10023]
    first.delete(1)
    assert publish(first, 1, 10) == [0]


def test_a_copy_waits_while_the_server_has_no_room() -> None:
    accounts = Accounts(SharedLimits(max_storage=1_000))
    accounts.create(0, "A")
    copy = Kept().stream
    copy.share(accounts.shared_limits)
    batch = OriginBatch(np.array([1], np.uint64), np.array([1]), [b"s.c"], [b""], [b"1"])
    publish(accounts.stream(0, "A"), 1, 2_000)
    copied = copy.copy(batch, 1)
    assert copied.count == 0
    assert copied.refusal is not None
    assert copied.refusal.err_code == 10023
    accounts.stream(0, "A").delete(1)
    assert copy.copy(batch, 1).count == 1


def stage(stream: Stream, batch: str, number: int = 1, size: int = 0) -> int:
    """Send a message of an atomic batch; return the code of the answer, 0 if it is put aside."""
    block = f"NATS/1.0\r\nNats-Batch-Id: {batch}\r\nNats-Batch-Sequence: {number}\r\n\r\n".encode()
    published = stream.publish(PublishBatch([stream.config.name.encode() + b".a"], [bytes(size)], [block]), 1)
    text = published.answers[0]
    return int(json.loads(text)["error"]["err_code"]) if text else 0


def batching(count: int) -> tuple[Accounts, list[Stream]]:
    accounts = Accounts(SharedLimits())
    for number in range(count):
        assert accounts.create(number % 2, f"S{number}", allow_atomic=True) == 0
    return accounts, [accounts.stream(number % 2, f"S{number}") for number in range(count)]


def test_all_streams_together_have_a_bounded_number_of_atomic_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic_batches, "ALL_BATCHES_MAX", 100)
    accounts, streams = batching(3)
    for stream in streams[:2]:
        assert [stage(stream, f"b{number}") for number in range(51)] == [0] * 50 + [10210]
    assert stage(streams[2], "one too many") == 10210
    accounts.services[0].delete("S0")
    assert stage(streams[2], "there is room again") == 0
    streams[1].expire(accounts.services[1].clock.now_ns() + atomic_batches.IDLE_NS)
    assert accounts.shared_limits.batches.count == 1
    streams[2].close()
    assert (accounts.shared_limits.batches.count, accounts.shared_limits.batches.size) == (0, 0)


def test_all_streams_together_have_bounded_atomic_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic_batches, "ALL_BYTES_MAX", 100_000)
    accounts, streams = batching(2)
    assert stage(streams[0], "a", size=60_000) == 0
    assert stage(streams[1], "b", size=60_000) == 10210
    assert stage(streams[1], "b", number=2) == 10176
    assert accounts.shared_limits.batches.count == 1
    assert stage(streams[1], "c", size=30_000) == 0
