"""Who hears what: subscriptions, queue groups and sinks, in order, each message once."""

import tracemalloc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.broker.core import message_frames
from strandline.broker.core.close_reasons import SLOW_CONSUMER
from strandline.broker.core.router import BY_CLIENT_MIN
from strandline.broker.routes import Deliveries
from strandline.broker.settings import ServerSettings
from strandline.wire import FrameParser, Side, format_headers, format_pubs
from tests.broker.core.world import CONNECT, Basket, InMemoryServer
from tests.effort import examples

HEADERS = format_headers([("A", "b")])
NO_HEADERS = b'CONNECT {"verbose":false,"pedantic":false,"headers":false}\r\n'


def msgs(data: bytes) -> list[tuple[bytes, bytes, bytes, bytes, bytes]]:
    """Return the messages that a client heard: subject, sid, reply, headers, payload."""
    frames = FrameParser(Side.SERVER).feed(data)
    assert frames.problem is None
    return [(each.subject, each.sid, each.reply, bytes(each.headers), bytes(each.payload)) for each in frames]


def test_a_sink_hears_runs_and_a_client_the_same_messages() -> None:
    world, basket = InMemoryServer(), Basket()
    world.router.subscribe(b"s.>", basket)
    listener, publisher = world.client(CONNECT + b"SUB s.* 7\r\n"), world.client()
    sent = [(b"s.%d" % (n % 3), b"r.%d" % n, HEADERS if n % 5 == 0 else b"", b"%d" % n) for n in range(1000)]
    assert publisher.say(format_pubs(sent)) == b""
    [run] = basket.taken
    assert (len(run), run.origin.client_id) == (1000, publisher.session.client_id)
    assert run.subjects == [subject for subject, _, _, _ in sent]
    assert run.frames.payloads() == [payload for _, _, _, payload in sent]
    assert msgs(listener.heard()) == [(subject, b"7", *rest) for subject, *rest in sent]


def test_a_sink_of_several_patterns_hears_each_message_once_until_it_is_cancelled() -> None:
    world, basket = InMemoryServer(), Basket()
    cancel = world.router.subscribe([b"s.1", b"s.2", b"t.*"], basket)
    publisher = world.client()
    subjects = [b"s.1", b"s.3", b"t.1", b"s.2", b"t", b"s.1"]
    publisher.say(format_pubs([(subject, b"", b"", b"%d" % n) for n, subject in enumerate(subjects)]))
    assert [int(n) for n in basket.payloads] == [0, 2, 3, 5]
    cancel()
    publisher.say(format_pubs([(subject, b"", b"", b"") for subject in subjects]))
    assert len(basket.payloads) == 4


def test_messages_of_several_routes_keep_their_order_for_whoever_hears_both() -> None:
    world, basket, other = InMemoryServer(), Basket(), Basket()
    world.router.subscribe(b"s.>", basket)
    world.router.subscribe(b"t.>", other)
    listener, publisher = world.client(CONNECT + b"SUB *.both 1\r\nSUB s.one 2\r\n"), world.client()
    subjects = [b"s.one", b"t.both", b"s.both", b"t.none", b"s.none", b"x.both"] * 40
    publisher.say(format_pubs([(subject, b"", b"", b"%d" % n) for n, subject in enumerate(subjects)]))
    heard = [int(payload) for *_, payload in msgs(listener.heard())]
    assert heard == [n for n, subject in enumerate(subjects) if subject.endswith(b"both") or subject == b"s.one"]
    assert [int(n) for n in basket.payloads] == [n for n, subject in enumerate(subjects) if subject[:1] == b"s"]
    assert [int(n) for n in other.payloads] == [n for n, subject in enumerate(subjects) if subject[:1] == b"t"]


def test_an_ordered_sink_comes_between_what_was_before_and_after_it() -> None:
    world = InMemoryServer()
    told: list[tuple[str, int]] = []

    class Teller(Basket):
        def __init__(self, name: str, *, is_ordered: bool) -> None:
            super().__init__(is_ordered=is_ordered)
            self.name = name

        def take(self, messages: object) -> None:
            told.append((self.name, len(messages)))  # type: ignore[arg-type]

    world.router.subscribe(b"s", Teller("stream", is_ordered=False))
    world.router.subscribe(b"purge", Teller("purge", is_ordered=True))
    world.client().say(format_pubs([(subject, b"", b"", b"") for subject in (b"s", b"s", b"purge", b"s")]))
    assert told == [("stream", 2), ("purge", 1), ("stream", 1)]


def test_each_message_goes_to_one_member_of_each_group() -> None:
    world = InMemoryServer()
    members = [world.client(CONNECT + b"SUB q.* g %d\r\nSUB q.one other 9\r\n" % sid) for sid in (1, 2, 3)]
    publisher = world.client()
    publisher.say(format_pubs([(b"q.one", b"", b"", b"%d" % n) for n in range(300)]))
    for n in range(300, 330):
        publisher.say(b"PUB q.one 3\r\n%d\r\n" % n)
    heard = [msgs(member.heard()) for member in members]
    in_group = [[int(row[4]) for row in rows if row[1] != b"9"] for rows in heard]
    assert sorted(n for rows in in_group for n in rows) == list(range(330))
    assert all(rows == sorted(rows) and len(rows) > 50 for rows in in_group)
    assert Counter(row[4] for rows in heard for row in rows if row[1] == b"9") == {b"%d" % n: 1 for n in range(330)}


def test_a_member_that_is_closing_is_passed_over() -> None:
    world = InMemoryServer()
    leaving, staying, publisher = (world.client(CONNECT + more) for more in (b"SUB q g 1\r\n", b"SUB q g 2\r\n", b""))
    leaving.session.closing = "Client Closed"  # it has not ended its subscriptions yet
    for _ in range(10):
        publisher.say(b"PUB q 1\r\nx\r\n")
    publisher.say(b"PUB q 1\r\nx\r\n" * 10)
    assert len(msgs(staying.heard())) == 20


def test_a_subscription_with_a_limit_ends_in_the_middle_of_a_run() -> None:
    world = InMemoryServer()
    limited, publisher = world.client(CONNECT + b"SUB a 1\r\nUNSUB 1 3\r\n"), world.client(CONNECT + b"SUB r 1\r\n")
    said = publisher.say(format_pubs([(b"a", b"r", b"", b"%d" % n) for n in range(5)]))
    assert [payload for *_, payload in msgs(limited.heard())] == [b"0", b"1", b"2"]
    assert [row[3].startswith(b"NATS/1.0 503") for row in msgs(said)] == [True, True]
    assert not limited.session.subscriptions
    assert not world.router.has_interest(b"a")


def test_deliver_ends_where_a_subscription_does() -> None:
    world = InMemoryServer()
    client = world.client(CONNECT + b"SUB inbox 5\r\nUNSUB 5 3\r\n")
    rows = Deliveries([b"s.%d" % n for n in range(5)], [b"%d" % n for n in range(5)], [b"ack.%d" % n for n in range(5)])
    assert world.router.deliver(b"inbox", rows) == 3
    assert msgs(client.heard()) == [(b"s.%d" % n, b"5", b"ack.%d" % n, b"", b"%d" % n) for n in range(3)]
    assert world.router.deliver(b"inbox", rows) == 0


def test_deliver_goes_to_one_member_of_a_group_while_there_is_one() -> None:
    world = InMemoryServer()
    one, two, plain = (world.client(CONNECT + b"SUB to %b1\r\n" % queue) for queue in (b"g ", b"g ", b""))
    rows = Deliveries([b"s"] * 4, [b"x"] * 4)
    assert world.router.deliver(b"to", rows, b"g") == 4
    assert sorted(len(msgs(client.heard())) for client in (one, two)) == [0, 4]
    assert len(msgs(plain.heard())) == 4  # it hears what is published there, as with nats-server
    assert world.router.deliver(b"to", rows, b"none") == 0
    assert plain.heard() == b""
    assert (world.router.has_interest(b"to", b"g"), world.router.has_interest(b"to", b"none")) == (True, False)


def test_only_a_subscription_to_the_subject_itself_binds() -> None:
    world = InMemoryServer()
    world.client(CONNECT + b"SUB to.> 1\r\nSUB to.* g 2\r\nSUB there 3\r\nSUB here g 4\r\n")
    asked = [(b"to.x", b""), (b"to.x", b"g"), (b"there", b""), (b"there", b"g"), (b"here", b""), (b"here", b"g")]
    assert [world.router.has_subscription(*each) for each in asked] == [False, False, True, False, False, True]


COLUMN = st.lists(st.sampled_from([b"", b"a", b"bc", HEADERS]), min_size=1, max_size=6)


@examples(60)
@given(st.integers(1, 5), st.data(), st.booleans(), st.booleans())
def test_columns_become_frames_that_read_back(count: int, data: st.DataObject, replies: bool, headers: bool) -> None:
    def column(*values: bytes) -> list[bytes]:
        return data.draw(st.lists(st.sampled_from(values), min_size=count, max_size=count))

    rows = Deliveries(column(b"a", b"b.c"), column(b"", b"x", b"\r\n", b"y" * 9000))
    rows.replies = column(b"r", b"", b"r.2") if replies else None
    rows.headers = column(HEADERS, b"") if headers else None
    wanted = zip(
        rows.subjects, rows.replies or [b""] * count, rows.headers or [b""] * count, rows.payloads, strict=True
    )
    assert msgs(message_frames.from_columns(rows, b"12")) == [(subject, b"12", *rest) for subject, *rest in wanted]


@examples(80)
@given(
    st.integers(0, 40), st.integers(1, 200), st.sampled_from([b"", b"r.1", b"_INBOX.x"]), st.booleans(), st.booleans()
)
def test_frames_are_passed_on_with_everything(size: int, count: int, reply: bytes, headers: bool, mixed: bool) -> None:
    block = HEADERS if headers else b""
    sent = [
        (b"a.b", reply, b"" if mixed and n % 2 else block, b"x" * (n % (size + 1) if mixed else size))
        for n in range(count)
    ]
    frames = FrameParser(Side.CLIENT).feed(format_pubs(sent))
    assert msgs(message_frames.from_frames(frames, b"3")) == [(subject, b"3", *rest) for subject, *rest in sent]
    plain = [(subject, b"3", reply, b"", payload) for subject, reply, _, payload in sent]
    assert msgs(message_frames.without_headers(frames, b"3")) == plain


def test_a_client_without_headers_gets_payloads_alone() -> None:
    world = InMemoryServer()
    client, publisher = world.client(NO_HEADERS + b"SUB a 1\r\n"), world.client()
    publisher.say(format_pubs([(b"a", b"r", HEADERS, b"x")]))
    world.router.send(b"a", b"y", headers=HEADERS)
    assert client.heard() == b"MSG a 1 r 1\r\nx\r\nMSG a 1 1\r\ny\r\n"


def test_send_many_finds_each_subject() -> None:
    world = InMemoryServer()
    one, two = world.client(CONNECT + b"SUB in.1.* 1\r\n"), world.client(CONNECT + b"SUB in.2.* 1\r\nSUB in.1.7 2\r\n")
    subjects = [b"in.%d.%d" % (1 + n % 2, n) for n in range(20)] + [b"in.3.1"]
    world.router.send_many(Deliveries(subjects, [b"x"] * len(subjects)))
    assert [row[0] for row in msgs(one.heard())] == subjects[:20:2]
    assert [row[0] for row in msgs(two.heard())] == subjects[1:20:2]
    world.router.send_many(Deliveries([b"in.1.7", b"in.1.8"], [b"x", b"y"]))
    assert [row[1] for row in msgs(two.heard())] == [b"2"]
    world.router.send_many(Deliveries([], []))


def test_whoever_watches_is_told_soon_and_once() -> None:
    world = InMemoryServer()
    told: list[str] = []
    cancel = world.router.watch_interest(b"to.me", lambda: told.append("changed"))
    client = world.client(CONNECT + b"SUB to.* 1\r\nSUB to.me q 2\r\nSUB to.you 3\r\n")
    assert not told
    world.run_soon()
    assert told == ["changed"]
    client.say(b"SUB to.you.* 4\r\n")
    assert not world.run_soon()
    client.session.close()
    assert world.run_soon() == 1
    cancel()
    cancel()
    world.client(CONNECT + b"SUB > 1\r\n")
    assert not world.run_soon()


def test_room_shrinks_with_what_is_unsent_and_whoever_waits_is_called_once() -> None:
    world = InMemoryServer()
    client = world.client(CONNECT + b"SUB to 1\r\n")
    whole = world.router.room(b"to")
    world.router.send(b"to", b"x" * 2_000_000)
    assert world.router.room(b"to") < whole - 2_000_000
    told: list[int] = []
    world.router.when_room(b"to", lambda: told.append(1))
    sent = sum(map(len, client.session.take_output()))
    client.session.note_buffered(sent)
    world.run_soon()
    assert not told
    assert world.router.room(b"to") == whole - sent
    client.session.note_buffered(1000)
    client.session.note_buffered(0)
    world.run_soon()
    assert told == [1]
    world.router.when_room(b"nobody", lambda: told.append(2))
    world.router.send(b"to", b"x" * 2_000_000)
    world.router.when_room(b"to", lambda: told.append(3))
    client.session.close()
    world.run_soon()
    assert told == [1, 2, 3]


def test_whoever_waits_for_several_is_called_when_the_first_has_room() -> None:
    world = InMemoryServer()
    clients = [world.client(CONNECT + b"SUB to 1\r\n") for _ in range(2)]
    world.router.send(b"to", b"x" * 2_000_000)
    told: list[int] = []
    world.router.when_room(b"to", lambda: told.append(1))
    for client in clients:
        client.heard()
        world.run_soon()
        assert told == [1]


def test_there_is_room_while_one_of_those_who_listen_has_some() -> None:
    world = InMemoryServer()
    slow, quick = (world.client(CONNECT + b"SUB to 1\r\n") for _ in range(2))
    whole = world.router.room(b"to")
    world.router.send(b"to", b"x" * whole)
    assert world.router.room(b"to") == 0
    quick.heard()
    assert world.router.room(b"to") == whole
    quick.session.close()
    assert world.router.room(b"to") == 0
    slow.heard()
    assert world.router.room(b"to") == whole


def test_a_group_gives_to_those_who_have_room() -> None:
    world = InMemoryServer()
    slow, quick = (world.client(CONNECT + b"SUB to group 1\r\nSUB own%d 2\r\n" % number) for number in range(2))
    world.router.send(b"own0", b"x" * world.router.room(b"own0"))
    waiting = slow.session.out_bytes
    for number in range(10):
        assert world.router.deliver(b"to", Deliveries([b"s"], [b"%d" % number]), b"group") == 1
    assert slow.session.out_bytes == waiting
    assert quick.heard().count(b"MSG s 1 1\r\n") == 10
    world.router.send(b"own1", b"x" * world.router.room(b"own1"))
    assert world.router.deliver(b"to", Deliveries([b"s"], [b"last"]), b"group") == 1


def test_whoever_waits_again_and_again_is_kept_and_called_once() -> None:
    world = InMemoryServer()
    client = world.client(CONNECT + b"SUB to 1\r\n")
    world.router.send(b"to", b"x" * 2_000_000)
    told: list[int] = []

    def go_on() -> None:
        told.append(1)

    for _ in range(100):
        world.router.when_room(b"to", go_on)
    assert len(client.session.when_room) == 1
    client.heard()
    world.run_soon()
    assert told == [1]


def test_a_client_that_does_not_read_is_cut_off_and_nobody_else() -> None:
    world = InMemoryServer(ServerSettings(max_pending=10_000, max_payload=2000))
    slow, quick, publisher = (world.client(CONNECT + more) for more in (b"SUB a 1\r\n", b"SUB a 1\r\n", b""))
    for _ in range(12):
        publisher.say(b"PUB a 1000\r\n" + b"x" * 1000 + b"\r\n")
        assert quick.heard()
    assert slow.session.closing == "Slow Consumer (Pending Bytes)"
    assert slow.session.aborted
    assert slow.session.client_id not in world.router.sessions
    assert quick.session.closing is publisher.session.closing is None


def test_no_responders_is_told_to_the_sender_alone() -> None:
    world, basket = InMemoryServer(), Basket()
    world.router.subscribe(b"api.>", basket)
    asker, other = world.client(CONNECT + b"SUB r.> 1\r\n"), world.client(CONNECT + b"SUB r.> 1\r\n")
    asker.say(format_pubs([(b"api.1", b"r.1", b"", b""), (b"api.2", b"", b"", b""), (b"api.3", b"r.3", b"", b"")]))
    [run] = basket.taken
    world.router.no_responders(run, [1, 2])
    assert asker.heard() == b"HMSG r.3 1 37 37\r\nNATS/1.0 503\r\nNats-Subject: api.3\r\n\r\n\r\n"
    assert other.heard() == b""
    asker.session.close()
    world.router.no_responders(run, [2])


@pytest.mark.parametrize("cut", [1, 7, 100])
def test_counts_are_of_messages_and_bytes(cut: int) -> None:
    world = InMemoryServer()
    world.client(CONNECT + b"SUB a 1\r\n")
    publisher = world.client()
    data = format_pubs([(b"a", b"", HEADERS, b"x" * 10)] * 8)
    for start in range(0, len(data), cut):
        publisher.say(data[start : start + cut])
    size = 8 * (len(HEADERS) + 10)
    assert (world.router.in_msgs, world.router.in_bytes, world.router.out_msgs) == (8, size, 8)
    assert (publisher.session.in_msgs, publisher.session.in_bytes) == (8, size)
    assert world.router.subscription_count == 1


def test_a_crowd_is_counted_as_its_members_would_be() -> None:
    world = InMemoryServer()
    hearer, publisher = world.client(), world.client()
    hearer.say(b"".join(b"SUB a %d\r\n" % sid for sid in range(BY_CLIENT_MIN + 1)))
    publisher.say(b"PUB a 5\r\nhello\r\n" * 3)
    count = 3 * (BY_CLIENT_MIN + 1)
    assert hearer.heard().count(b"MSG a ") == count
    assert (hearer.session.out_msgs, hearer.session.out_msg_bytes) == (count, 5 * count)
    assert (world.router.out_msgs, world.router.out_bytes) == (count, 5 * count)


def test_a_crowd_of_one_client_takes_no_more_memory_than_the_client_may() -> None:
    world = InMemoryServer(ServerSettings(max_pending=8 << 20))
    hearer, publisher = world.client(), world.client()
    hearer.say(b"".join(b"SUB big %d\r\n" % sid for sid in range(200)))
    payload = bytes(1 << 20)
    tracemalloc.start()
    try:
        publisher.say(b"PUB big %d\r\n%b\r\n" % (len(payload), payload))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert hearer.session.closing == SLOW_CONSUMER
    assert peak < 32 << 20
