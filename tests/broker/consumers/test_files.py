"""A consumer whose making was answered is there after a crash, as it was told to be; a removed one is not."""

import contextlib
import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from strandline.broker.api.codes import ApiError
from strandline.broker.api.config import Retention
from strandline.broker.api.consumer_config import ConsumerConfig, DeliverPolicy
from strandline.broker.consumers.cursor import beginning
from strandline.broker.consumers.files import (
    ConsumerFiles,
    ConsumerRecord,
    format_consumer,
    format_consumer_file,
    parse_consumer,
    parse_consumer_file,
)
from strandline.broker.consumers.filter_history import Span
from strandline.broker.consumers.state import open_state
from strandline.clock import ManualClock
from strandline.errors import Damaged, FormatError, StrandlineError
from strandline.files import OsDisk
from strandline.gather import InlineExecutor
from strandline.sim import Fault, SimDisk
from tests.broker.consumers.account import FOLDER, Account
from tests.broker.consumers.helpers import SECOND
from tests.broker.durability.simulated import TreeDisk
from tests.journal.model import CHANGES

FIXTURES = Path(__file__).parent.parent.parent / "fixtures" / "broker-consumer"
KEPT = ConsumerRecord(1_794_000_000 * SECOND, ConsumerConfig(name="C", durable_name="C", metadata={"a": "ü"}))
Step = Callable[[Account], object]


def test_what_is_written_is_read_back() -> None:
    assert parse_consumer(format_consumer(KEPT), "x") == KEPT
    turned = KEPT._replace(history=(Span(3, ("a", "b")), Span(5, None), Span(9, ())))
    assert parse_consumer(format_consumer(turned), "x") == turned
    begun = KEPT._replace(begins=(2**64 - 1, 7))
    assert parse_consumer(format_consumer(begun), "x") == begun
    assert parse_consumer_file(format_consumer_file("C")) == "C"
    assert parse_consumer_file("C") is None


def test_what_is_not_whole_is_refused() -> None:
    data = format_consumer(KEPT)
    with pytest.raises(FormatError, match="not a consumer"):
        parse_consumer(b"something else entirely, of some length", "x")
    with pytest.raises(Damaged, match="too early"):
        parse_consumer(data[:20], "x")
    for at in (12, 16, 30, len(data) - 1):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises(Damaged, match="checksum"):
            parse_consumer(changed, "x")
    with pytest.raises(FormatError, match="version 9"):
        parse_consumer(data[:8] + b"\x09" + data[9:], "x")


def test_files_of_consumers_come_and_go(tmp_path: Path) -> None:
    files = ConsumerFiles(OsDisk(), tmp_path)
    assert files.read_all() == {}
    place = files.prepare("C")
    assert not place.exists()
    place.mkdir()
    (place / "left over").write_bytes(b"x")
    assert list(files.prepare("C").iterdir()) == []
    assert files.read_all() == {}
    assert not place.exists()
    files.prepare("C")
    files.write("C", KEPT)
    assert files.read_all() == {"C": KEPT}
    files.remove("C")
    assert files.read_all() == {}
    files.prepare("D")
    files.write("D", KEPT)
    files.remove_all()
    assert not tmp_path.exists()


@pytest.mark.parametrize("length", [1, 241, 242, 243, 255])
def test_a_consumer_whose_name_is_long_is_found_again(length: int, tmp_path: Path) -> None:
    name = "n" * length
    files = ConsumerFiles(OsDisk(), tmp_path)
    kept = KEPT._replace(config=replace(KEPT.config, name=name))
    place = files.prepare(name)
    files.write(name, kept)
    place.mkdir()
    (place / "position").write_bytes(b"x")
    assert files.read_all() == {name: kept}
    assert files.read(name) == kept
    assert (place / "position").exists()
    files.remove(name)
    assert files.read_all() == {}
    assert not place.exists()


def test_a_damaged_file_of_a_long_name_is_told_by_its_digest(tmp_path: Path) -> None:
    name = "n" * 255
    files = ConsumerFiles(OsDisk(), tmp_path)
    files.prepare(name)
    files.write(name, KEPT._replace(config=replace(KEPT.config, name=name)))
    (path,) = (tmp_path / "consumers").iterdir()
    files.folder_of(name).mkdir()
    path.write_bytes(path.read_bytes()[:-1])
    digest = parse_consumer_file(path.name)
    assert digest == hashlib.sha256(name.encode()).hexdigest()
    assert isinstance(files.read_all()[digest], Damaged)
    assert files.folder_of(name).exists()  # its position is not lost with it


def _new(account: Account, name: str, **options: object) -> object:
    return account.consumer(name, deliver_policy=DeliverPolicy.NEW, **options)


STEPS: list[Step] = [
    lambda account: _new(account, "A"),
    lambda account: _new(account, "B", description="first"),
    lambda account: account.publish("s.x"),
    lambda account: _new(account, "B", description="second"),
    lambda account: account.service.pause("S", "A", 2_000_000_000 * SECOND, account.clock.now_ns()),
    lambda account: account.service.delete("S", "B"),
    lambda account: _new(account, "B", description="third"),
    lambda account: account.publish("s.y"),
    lambda account: account.service.delete("S", "A"),
]


def _shown(account: Account) -> dict[str, tuple[str, int | None, int]]:
    entries = [account.service.entry("S", name) for name in account.service.shown("S")]
    now_ns = account.clock.now_ns()
    return {
        entry.consumer.name: (
            entry.config.description,
            entry.config.pause_until,
            account.service.info(entry, now_ns).delivered.stream_seq,
        )
        for entry in entries
    }


def _beginning() -> Account:
    account = Account(SimDisk())
    account.make()
    account.publish("s.a", "s.b")
    return account


def test_the_power_goes_at_every_change_of_the_disk() -> None:
    account = _beginning()
    before = account.disk.operations
    states = [_shown(account)]
    for step in STEPS:
        step(account)
        states.append(_shown(account))
    changes = account.disk.operations - before
    assert changes > 35
    for count in range(1, changes + 1):
        account, done = _beginning(), 0
        account.disk.fault = Fault(CHANGES, count, sticky=True)
        for step in STEPS:
            try:
                step(account)
            except StrandlineError:
                break
            done += 1
        account.disk.crash(Random(count))
        found = _shown(Account(account.disk))
        allowed = states[done : done + 2]
        assert found in allowed, (count, done)


def _worked(disk: SimDisk | None = None, **options: object) -> Account:
    """Return an account whose consumer A has acknowledged everything."""
    account = Account(disk or TreeDisk())
    account.make()
    account.publish("s.a", "s.b")
    consumer = account.consumer("A", **options)
    account.ack(consumer, *account.pull(consumer, 2))
    assert account.pull(consumer, 2) == []
    return account


def _undelivered(account: Account) -> int:
    """Return how many messages A has not had; it is there, and can be read."""
    assert not account.service.unreadable
    return account.service.info(account.service.entry("S", "A"), account.clock.now_ns()).num_pending


def test_a_consumer_that_is_removed_and_made_again_begins_anew_after_a_crash() -> None:
    for seed in range(40):
        account = _worked()
        account.service.delete("S", "A")
        account.consumer("A")
        account.disk.crash(Random(seed))
        assert _undelivered(Account(account.disk)) == 2, seed


def test_a_consumer_whose_removal_was_interrupted_is_whole_or_gone() -> None:
    for seed in range(40):
        account = _worked()
        account.disk.fault = Fault(frozenset({"sync_folder"}), 1, sticky=True)
        with pytest.raises(StrandlineError):
            account.service.delete("S", "A")
        account.disk.kill()
        account = Account(account.disk)
        account.disk.crash(Random(seed))
        account = Account(account.disk)
        if account.service.find("S", "A") is not None or account.service.unreadable:
            assert _undelivered(account) == 0, seed


def test_the_place_of_a_consumer_is_cleared_only_when_it_cannot_come_back() -> None:
    for seed in range(40):
        account = _worked()
        account.service.close()
        files = ConsumerFiles(account.disk, FOLDER / "S")
        account.disk.fault = Fault(frozenset({"sync_folder"}), 1)
        with pytest.raises(StrandlineError):
            files.remove("A")
        account.disk.fault = Fault(CHANGES, 1 + seed % 4, sticky=True)
        with contextlib.suppress(StrandlineError):
            files.prepare("A")
        account.disk.crash(Random(seed))
        account = Account(account.disk)
        if account.service.find("S", "A") is not None or account.service.unreadable:
            assert _undelivered(account) == 0, seed


def test_a_consumer_that_could_not_be_removed_is_there_as_it_was() -> None:
    account = _worked()
    account.disk.fault = Fault(frozenset({"remove"}), 1)
    with pytest.raises(StrandlineError):
        account.service.delete("S", "A")
    with pytest.raises(ApiError, match="consumer is offline"):
        account.consumer("A")
    account.service.tick(account.clock.now_ns())
    assert _undelivered(account) == 0
    account.service.delete("S", "A")
    account.disk.crash(Random(1))
    assert _shown(Account(account.disk)) == {}


@pytest.mark.parametrize("is_asked_again", [True, False])
def test_a_removal_that_failed_by_halves_is_completed(*, is_asked_again: bool) -> None:
    for seed in range(12):
        account = _worked()
        account.disk.fault = Fault(frozenset({"sync_folder"}), 1)
        with pytest.raises(StrandlineError):
            account.service.delete("S", "A")
        if is_asked_again:
            account.service.delete("S", "A")
        else:
            account.service.tick(account.clock.now_ns())
        assert _shown(account) == {}
        assert not account.service.unreadable
        assert account.service.next_due_ns is None
        account.consumer("A")
        account.disk.crash(Random(seed))
        assert _undelivered(Account(account.disk)) == 2, seed


def test_one_that_nobody_uses_goes_when_the_disk_lets_it() -> None:
    account = _worked(inactive_threshold=5 * SECOND)
    account.disk.fault = Fault(frozenset({"remove"}), 1, sticky=True)
    account.clock.advance(6)
    account.service.tick(account.clock.now_ns())
    assert list(account.service.unreadable) == [("S", "A")]
    account.disk.fault = None
    account.service.tick(account.clock.now_ns())
    assert list(_shown(account)) == ["A"]
    account.clock.advance(6)
    account.service.tick(account.clock.now_ns())
    assert _shown(account) == {}
    assert not account.service.unreadable
    account.disk.crash(Random(1))
    assert _shown(Account(account.disk)) == {}


def test_nothing_is_left_of_the_consumers_of_a_stream_that_is_made_anew() -> None:
    account = _beginning()
    account.consumer("A")
    account.streams.delete("S")
    account.make()
    assert _shown(account) == {}
    account.disk.kill()
    again = Account(account.disk)
    assert _shown(again) == {}


def test_consumers_of_a_stream_that_was_removed_by_halves_do_not_come_back() -> None:
    account = _beginning()
    account.consumer("A")
    account.disk.remove(FOLDER / "S" / "front")
    account.disk.sync_folder(FOLDER / "S")
    account.disk.kill()
    account = Account(account.disk)
    account.make()
    assert _shown(account) == {}
    account.disk.kill()
    assert _shown(Account(account.disk)) == {}


def test_version_one_is_read(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "v1", tmp_path / "S")
    files = ConsumerFiles(OsDisk(), tmp_path / "S")
    (kept,) = files.read_all().values()
    assert isinstance(kept, ConsumerRecord)
    assert kept.created_ns == 1_700_000_000 * SECOND
    assert kept.config.filters == ("s.>",)
    assert kept.config.metadata["a"] == "ü"
    state = open_state(
        OsDisk(), files.folder_of("C"), clock=ManualClock(), executor=InlineExecutor(), post=lambda call: call()
    )
    assert (state.delivered_consumer, state.delivered_stream) == (7, 7)
    assert (state.floor_consumer, state.floor_stream) == (1, 1)
    assert {sequence: state.pending.count(sequence) for sequence in state.pending.first} == {2: 1, 4: 2}
    state.close()


def test_version_two_is_read_with_where_it_begins(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "v2", tmp_path / "S")
    (kept,) = ConsumerFiles(OsDisk(), tmp_path / "S").read_all().values()
    config = ConsumerConfig(name="C", durable_name="C", metadata={"a": "ü"})
    assert kept == ConsumerRecord(1_700_000_000 * SECOND, config, (Span(3, ("s.a",)), Span(5, None)), (6, 9))


def test_a_new_consumer_costs_two_syncs_and_begins_where_it_was_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    account = _beginning()
    account.consumer("A")
    syncs = []

    def note(operation: str) -> None:
        if operation.startswith("sync"):
            syncs.append(operation)

    with monkeypatch.context() as patch:
        patch.setattr(account.disk, "step", note)
        _new(account, "B")
    assert syncs == ["sync", "sync_folder"]
    account.consumer("C", opt_start_seq=5, deliver_policy=DeliverPolicy.BY_START_SEQUENCE)
    account.publish("s.c")
    account.disk.crash(Random(1))
    account = Account(account.disk)
    account.publish("s.d", "s.e")
    for name, expected in {"A": [1, 2, 3, 4, 5], "B": [3, 4, 5], "C": [5]}.items():
        consumer = account.service.find("S", name)
        assert consumer is not None
        assert [int(sent.reply.split(".")[5]) for sent in account.pull(consumer, 9)] == expected


def test_one_that_has_delivered_nothing_does_not_pass_what_came_for_messages_that_were_lost() -> None:
    account = _beginning()
    assert beginning(account.stream, ConsumerConfig(deliver_policy=DeliverPolicy.NEW), (9, 8)) == (3, 8)
    assert beginning(account.stream, ConsumerConfig(opt_start_seq=9), (9, 0)) == (9, 0)
    assert beginning(account.stream, ConsumerConfig(), (0, 0)) == (1, 0)


def test_a_consumer_that_cannot_be_read_is_named_and_nothing_goes_that_it_may_want() -> None:
    account = Account(SimDisk())
    account.make(retention=Retention.INTEREST)
    account.consumer("A")
    account.consumer("B")
    account.publish("s.a", "s.b")
    path = FOLDER / "S" / "consumers" / "A.consumer"
    file = account.disk.open(path, "write")
    file.pwritev([b"?"], 30)
    file.sync()
    account.disk.kill()
    account = Account(account.disk)
    assert list(_shown(account)) == ["B"]
    assert list(account.service.unreadable) == [("S", "A")]
    other = account.service.find("S", "B")
    assert other is not None
    account.ack(other, *account.pull(other, 2))
    assert account.left() == [1, 2]
    with pytest.raises(ApiError, match="the checksum does not match") as caught:
        account.consumer("A")
    assert caught.value.err_code == 10195
    account.service.delete("S", "A")
    assert account.left() == []
    assert "A.consumer" not in account.disk.names(path.parent)
    account.consumer("A")
