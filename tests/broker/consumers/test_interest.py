"""With interest retention a message stays while somebody wants it; with a work queue until it is done with."""

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from strandline.broker.api.config import Retention
from strandline.broker.api.consumer_config import AckPolicy, ConsumerConfig
from strandline.broker.api.consumer_requests import Action
from strandline.broker.consumers import Consumer
from strandline.errors import StrandlineError
from strandline.sim import Fault, SimDisk
from tests.broker.consumers.account import Account
from tests.broker.consumers.helpers import SECOND
from tests.journal.model import CHANGES


def test_what_nobody_wants_is_not_stored() -> None:
    account = Account()
    account.make(retention=Retention.INTEREST)
    account.publish("s.a")
    account.consumer("A", filter_subject="s.a")
    account.publish("s.b", "s.a")
    assert account.left() == [3]
    assert account.stream.last_seq == 3


def test_a_message_stays_until_everybody_has_acknowledged_it() -> None:
    account = Account()
    account.make(retention=Retention.INTEREST)
    one, two = account.consumer("A"), account.consumer("B", filter_subject="s.b")
    account.publish("s.a", "s.b")
    account.ack(one, *account.pull(one, 2))
    assert account.left() == [2]
    account.ack(two, *account.pull(two, 1))
    assert account.left() == []


def test_what_only_a_removed_consumer_wanted_goes_with_it() -> None:
    account = Account()
    account.make(retention=Retention.INTEREST)
    account.consumer("A")
    account.consumer("B", filter_subject="s.b")
    account.publish("s.a", "s.b")
    account.service.delete("S", "A")
    assert account.left() == [2]
    account.service.delete("S", "B")
    assert account.left() == []


def test_what_another_filter_leaves_out_goes() -> None:
    account = Account()
    account.make(retention=Retention.INTEREST)
    account.consumer("A")
    account.publish("s.a", "s.b")
    account.consumer("A", filter_subject="s.b")
    assert account.left() == [2]
    account.publish("s.a")
    assert account.left() == [2]


def test_without_acknowledgements_delivered_is_done() -> None:
    account = Account()
    account.make(retention=Retention.INTEREST)
    consumer = account.consumer("A", ack_policy=AckPolicy.NONE)
    account.publish("s.a", "s.b")
    account.pull(consumer, 1)
    assert account.left() == [2]


def test_a_stream_that_becomes_one_of_interest_lets_go_of_what_nobody_wants() -> None:
    account = Account()
    account.make()
    consumer = account.consumer("A", filter_subject="s.a")
    account.publish("s.a", "s.b", "s.a")
    account.ack(consumer, *account.pull(consumer, 1))
    assert account.left() == [1, 2, 3]
    config = account.stream.config
    payload = b'{"name":"S","subjects":["s.>"],"retention":"interest"}'
    account.streams.request("$JS.API.STREAM.UPDATE.S", b"", payload, account.clock.now_ns())
    assert account.stream.config.retention is not config.retention
    assert account.left() == [3]
    account.ack(consumer, *account.pull(consumer, 1))
    assert account.left() == []


@pytest.mark.parametrize("payload", ["+ACK", "+TERM"])
def test_a_work_queue_lets_go_of_what_is_done(payload: str) -> None:
    account = Account()
    account.make(retention=Retention.WORK_QUEUE)
    consumer = account.consumer("A")
    account.publish("s.a", "s.b", "s.c")
    first, second = account.pull(consumer, 2)
    account.ack(consumer, second, payload=payload)
    assert account.left() == [1, 3]
    account.service.delete("S", "A")
    assert account.left() == [1, 3]
    assert first.sequence == 1


def _lose_the_removal(account: Account, acknowledge: Callable[[], None]) -> Account:
    """Acknowledge while the stream forgets to say so, lose power, and begin again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(account.stream, "remove", lambda _: None)
        acknowledge()
    for consumer in account.service.of("S"):
        consumer.state.settle()
    account.disk.crash(Random(1))
    return Account(account.disk)


@pytest.mark.parametrize("retention", [Retention.WORK_QUEUE, Retention.INTEREST])
def test_an_acknowledged_message_that_a_crash_left_there_goes_at_the_next_start(retention: Retention) -> None:
    account = Account()
    account.make(retention=retention)
    consumer = account.consumer("A")
    account.publish("s.a", "s.b", "s.c")
    first, _ = account.pull(consumer, 2)
    account = _lose_the_removal(account, lambda: account.ack(consumer, first))
    assert account.left() == [2, 3]
    again = account.service.find("S", "A")
    assert again is not None
    assert [sent.sequence for sent in account.pull(again, 5)] == [3]


def _killed(account: Account) -> Account:
    account.disk.kill()
    return Account(account.disk)


def _again(account: Account) -> Consumer:
    found = account.service.find("S", "A")
    assert found is not None
    return found


def test_another_filter_lets_go_of_nothing_that_was_never_delivered() -> None:
    account = Account()
    account.make(retention=Retention.WORK_QUEUE)
    consumer = account.consumer("A", filter_subject="s.a")
    account.publish("s.b", "s.a", "s.a", "s.c")
    account.ack(consumer, *account.pull(consumer, 1))
    account.consumer("A", filter_subjects=("s.a", "s.b"))
    assert account.left() == [1, 3, 4]
    account = _killed(account)
    account.ack(_again(account), *account.pull(_again(account), 5))
    assert account.left() == [1, 4]
    account.consumer("A", filter_subjects=("s.c",))
    account.consumer("A", filter_subjects=("s.b",))
    account = _killed(account)
    assert account.left() == [1, 4]
    account.service.delete("S", "A")
    other = account.consumer("B")
    assert [sent.sequence for sent in account.pull(other, 5)] == [1, 4]


def test_another_filter_lets_go_of_nothing_that_the_old_one_has_led_past() -> None:
    account = Account()
    account.make(retention=Retention.WORK_QUEUE)
    consumer = account.consumer("A", filter_subject="s.a")
    account.publish("s.a", "s.b", "s.b")
    account.ack(consumer, *account.pull(consumer, 5))
    account.consumer("A", filter_subjects=("s.a", "s.b"))
    account.publish("s.a")
    sent = account.pull(consumer, 5)
    account.ack(consumer, *sent)
    left = account.left()
    assert [*left, *(one.sequence for one in sent)] == [2, 3, 4]
    assert _killed(account).left() == left


def test_what_was_outstanding_when_the_filter_changed_goes_once_it_is_acknowledged() -> None:
    account = Account()
    account.make(retention=Retention.WORK_QUEUE)
    consumer = account.consumer("A", filter_subject="s.a")
    account.publish("s.b", "s.a", "s.a", "s.b")
    sent = account.pull(consumer, 2)
    account.consumer("A", filter_subject="s.b")
    account = _killed(account)
    assert account.left() == [1, 2, 3, 4]
    account = _lose_the_removal(account, lambda: account.ack(_again(account), sent[0]))
    assert account.left() == [1, 3, 4]
    assert [sent.sequence for sent in account.pull(_again(account), 5)] == [4]


def test_a_reset_lets_go_of_nothing_that_it_skips() -> None:
    account = Account()
    account.make(retention=Retention.WORK_QUEUE)
    consumer = account.consumer("A")
    account.publish("s.a", "s.b", "s.c", "s.d", "s.e")
    account.ack(consumer, account.pull(consumer, 2)[0])
    account.service.reset("S", "A", 4)
    account = _killed(account)
    assert account.left() == [2, 3, 4, 5]
    account.ack(_again(account), *account.pull(_again(account), 5))
    assert _killed(account).left() == [2, 3]


@pytest.mark.parametrize("seed", range(3))
def test_another_filter_survives_the_loss_of_power_at_every_change_of_the_disk(seed: int) -> None:
    for cut in range(1, 16):
        account = Account(SimDisk())
        account.make(retention=Retention.WORK_QUEUE)
        consumer = account.consumer("A", filter_subject="s.a")
        account.publish("s.b", "s.a", "s.a", "s.b")
        sent = account.pull(consumer, 2)
        account.ack(consumer, sent[0])
        account.disk.fault = Fault(CHANGES, cut, sticky=True)
        with suppress(StrandlineError):
            account.consumer("A", filter_subject="s.b")
            account.ack(consumer, *account.pull(consumer, 5))
        account.disk.crash(Random(seed))
        account = Account(account.disk)
        left = set(account.left())
        assert {1, 3} <= left
        sent = account.pull(_again(account), 5)
        account.ack(_again(account), *sent)
        assert set(_killed(account).left()) == left - {one.sequence for one in sent}


def test_consumers_nobody_uses_are_forgotten_in_time() -> None:
    account = Account()
    account.make(retention=Retention.INTEREST)
    config = ConsumerConfig(name="E", ack_policy=AckPolicy.EXPLICIT, inactive_threshold=2 * SECOND)
    account.service.create("S", config, Action.EITHER, account.clock.now_ns())
    account.publish("s.a")
    account.clock.advance(1.0)
    account.service.tick(account.clock.now_ns())
    assert account.service.find("S", "E") is not None
    assert account.service.next_due_ns is not None
    account.clock.advance(1.1)
    account.service.tick(account.clock.now_ns())
    assert account.service.find("S", "E") is None
    assert account.left() == []
    assert account.told[-1].subject == "$JS.EVENT.ADVISORY.CONSUMER.DELETED.S.E"
    assert account.service.next_due_ns is None
