"""JetStream of an account between routes and streams."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from strandline.broker.jetstream import inflight_bytes
from strandline.journal import WRITTEN
from tests.broker.jetstream.fakes import FakeAccount


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FakeAccount]:
    made = FakeAccount(tmp_path)
    yield made
    made.close()


def _acks(world: FakeAccount) -> list[tuple[str, Any]]:
    return [(subject, json.loads(payload)) for subject, payload in world.routes.take()]


def test_an_ack_comes_only_after_its_message_is_durable(world: FakeAccount) -> None:
    world.stream("S")
    world.routes.publish(("S", b"1", "one"), ("S", b"2", "two"))
    world.turn()
    assert _acks(world) == []
    world.settle()
    assert _acks(world) == [("one", {"stream": "S", "seq": 1}), ("two", {"stream": "S", "seq": 2})]


def test_page_cache_is_enough_where_that_was_asked_for(tmp_path: Path) -> None:
    world = FakeAccount(tmp_path, durability=WRITTEN)
    world.stream("S")
    world.routes.publish(("S", b"1", "one"))
    world.turn()
    assert _acks(world) == [("one", {"stream": "S", "seq": 1})]
    world.close()


def test_acks_keep_the_order_of_publishes_over_many_turns(world: FakeAccount) -> None:
    world.stream("S", "s.*")
    for number in range(50):
        world.routes.publish((f"s.{number % 3}", b"", f"r{number}"), client=number % 4)
        if number % 7 == 0:
            world.turn()
    world.turn()
    world.settle()
    assert _acks(world) == [(f"r{number}", {"stream": "S", "seq": number + 1}) for number in range(50)]


def test_what_asks_for_no_ack_gets_none(world: FakeAccount) -> None:
    world.stream("S")
    world.stream("QUIET", no_ack=True)
    world.routes.publish(("S", b"1", ""), ("QUIET", b"1", "never"), ("S", b"2", "two"))
    world.turn()
    world.settle()
    assert _acks(world) == [("two", {"stream": "S", "seq": 2})]


@pytest.mark.parametrize("count", [3, 60])
def test_fast_ingest_is_refused_and_what_came_with_it_is_stored(world: FakeAccount, count: int) -> None:
    world.stream("S", allow_batched=True)
    replies = [f"in.{number}.$FI" if number % 3 == 1 else f"in.{number}.FI" for number in range(count)]

    world.routes.publish_together(*(("S", b"x", reply) for reply in replies))
    refusal = {"code": 400, "err_code": 10205, "description": "batch publish is disabled"}
    refused = {"error": refusal, "stream": "S", "seq": 0}
    assert _acks(world) == [(reply, refused) for reply in replies if reply.endswith("$FI")]

    world.turn()
    world.settle()
    others = [reply for reply in replies if not reply.endswith("$FI")]
    assert _acks(world) == [(reply, {"stream": "S", "seq": at + 1}) for at, reply in enumerate(others)]


def test_a_request_sees_what_was_published_before_it_and_nothing_after(world: FakeAccount) -> None:
    world.stream("S")
    world.routes.publish(("S", b"1", ""), ("S", b"2", ""), ("$JS.API.STREAM.PURGE.S", b"", "purged"), ("S", b"3", ""))
    world.turn()
    world.settle()
    assert _acks(world)[0][1]["purged"] == 2
    assert world.ask("STREAM.INFO.S")["state"]["messages"] == 1


def test_an_answer_waits_for_what_it_tells_of(world: FakeAccount) -> None:
    world.stream("S", allow_direct=True)
    world.routes.publish(("S", b"1", ""))
    world.routes.publish(("$JS.API.DIRECT.GET.S", b'{"seq":1}', "got"), ("$JS.API.STREAM.INFO.S", b"", "info"))
    assert world.routes.take() == []
    world.settle()
    assert [subject for subject, _ in world.routes.take()] == ["got", "info"]


def test_a_consumer_is_given_nothing_that_is_not_durable(world: FakeAccount) -> None:
    world.stream("S")
    assert "error" not in world.ask("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": {"durable_name": "C"}})
    world.routes.listened.add(b"pull")
    world.routes.publish(("$JS.API.CONSUMER.MSG.NEXT.S.C", b"5", "pull"), ("S", b"1", ""))
    world.turn()
    world.turn()
    assert world.routes.take() == []
    world.settle()
    world.turn()
    assert world.routes.take() == [("pull", b"1")]


def test_who_asks_for_what_nobody_serves_is_told_so_and_others_are_not_answered(world: FakeAccount) -> None:
    world.stream("S")
    world.routes.publish(
        ("$JS.API.CONSUMER.MSG.NEXT.S.NONE", b"", "a"),
        ("$JS.API.DIRECT.GET.S", b'{"seq":1}', "b"),
        ("$JS.API.DIRECT.GET.NONE.x", b"", "c"),
        ("$JS.ACK.S.NONE.1.1.1.1.0", b"", "d"),
        ("$JS.API.NONSENSE", b"", "e"),
    )
    world.settle()
    assert world.routes.lonely == ["a", "b", "c", "d"]
    assert world.routes.take() == []


def test_a_stream_that_is_removed_no_longer_hears(world: FakeAccount) -> None:
    world.stream("S")
    assert world.ask("STREAM.DELETE.S")["success"]
    world.routes.publish(("S", b"2", "after"))
    world.turn()
    assert world.routes.take() == []
    assert [pattern for pattern, _ in world.routes.sinks if not pattern.startswith(b"$JS")] == []


def test_a_changed_stream_hears_what_it_says_now(world: FakeAccount) -> None:
    world.stream("S", "a")
    answer = world.ask("STREAM.UPDATE.S", {"name": "S", "subjects": ["b"]})
    assert "error" not in answer
    world.routes.publish(("a", b"", "old"), ("b", b"", "new"))
    world.turn()
    world.settle()
    assert _acks(world) == [("new", {"stream": "S", "seq": 1})]


def test_what_is_published_again_reaches_clients_and_streams_when_it_is_durable(world: FakeAccount) -> None:
    world.stream("S", "s", republish={"src": "s", "dest": "again"})
    world.stream("COPY", "again")
    world.routes.publish(("s", b"x", ""))
    world.turn()
    assert world.routes.take() == []
    world.settle()
    assert world.routes.take() == [("again", b"x")]
    world.turn()
    world.settle()
    assert world.ask("STREAM.INFO.COPY")["state"]["messages"] == 1


def test_what_is_for_a_stream_is_no_request(world: FakeAccount) -> None:
    world.stream("KV_B", "$KV.B.>")
    world.routes.publish(("$JS.API.$KV.B.key", b"v", "put"))
    world.turn()
    world.settle()
    assert world.routes.take() == []
    assert world.ask("STREAM.INFO.KV_B")["state"]["messages"] == 0


def test_advisories_are_made_only_where_somebody_hears_them(world: FakeAccount) -> None:
    world.stream("S")
    world.routes.listened.add(b"$JS.EVENT.ADVISORY.STREAM.CREATED.T")
    world.routes.publish(("$JS.API.STREAM.CREATE.T", b'{"name":"T"}', "made"))
    world.settle()
    told = dict(_acks(world))
    assert told["$JS.EVENT.ADVISORY.STREAM.CREATED.T"]["action"] == "create"
    assert "$JS.EVENT.ADVISORY.API" not in told


def test_streams_can_keep_advisories(world: FakeAccount) -> None:
    world.stream("EVENTS", "$JS.EVENT.ADVISORY.>", no_ack=True)
    world.stream("S")
    world.turn()
    world.settle()
    assert world.ask("STREAM.INFO.EVENTS")["state"]["messages"] >= 2


def test_messages_go_when_their_time_has_come(world: FakeAccount) -> None:
    world.stream("S", max_age=1_000_000_000)
    world.routes.publish(("S", b"1", ""))
    world.turn()
    world.settle()
    due_ns = world.jetstream.next_due_ns
    assert due_ns is not None
    world.clock.advance(1.5)
    world.jetstream.tick(world.clock.now_ns())
    world.settle()
    assert world.ask("STREAM.INFO.S")["state"]["messages"] == 0


def test_a_client_that_is_ahead_of_the_disk_is_paused_until_it_has_caught_up(
    world: FakeAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflight_bytes, "CLIENT_BYTES_MAX", 1_000)
    world.stream("S")
    world.routes.publish(*[("S", bytes(500), "r")] * 3, client=7)
    world.routes.publish(("S", bytes(500), "r"), client=8)
    world.turn()
    assert world.paused == [7]
    world.settle()
    assert world.paused == []
    assert len(_acks(world)) == 4


def test_what_was_gathered_is_stored_before_it_closes(tmp_path: Path) -> None:
    world = FakeAccount(tmp_path)
    world.stream("S")
    world.routes.publish(("S", b"last", "r"))
    world.close()
    again = FakeAccount(tmp_path)
    assert again.ask("STREAM.INFO.S")["state"]["messages"] == 1
    again.close()


def _fail(world: FakeAccount, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the disk refuse every write of one stream from now on."""
    journal = world.jetstream.streams.streams[name]._log._journal  # type: ignore[attr-defined] # noqa: SLF001 - its disk

    def refuse(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(journal._writer._file, "pwritev", refuse)  # noqa: SLF001 - what a full disk does


def test_publishers_are_told_when_storage_fails_and_others_do_not_notice(
    world: FakeAccount, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    world.stream("BAD")
    world.stream("GOOD")
    _fail(world, monkeypatch, "BAD")
    world.routes.publish(("BAD", b"1", "b1"), ("GOOD", b"1", "g1"))
    world.turn()
    world.routes.publish(("BAD", b"2", "b2"), ("GOOD", b"2", "g2"))
    world.turn()
    world.settle()
    world.routes.publish(("BAD", b"3", "b3"))
    world.turn()
    world.settle()
    answers = dict(_acks(world))
    assert [answers[reply]["seq"] for reply in ("g1", "g2")] == [1, 2]
    for reply in ("b1", "b2", "b3"):
        error = answers[reply]["error"]
        assert (error["code"], error["err_code"], answers[reply]["seq"]) == (503, 10077, 0)
        assert "No space left" in error["description"]
        assert str(tmp_path) not in error["description"]
    assert caplog.text.count("cannot store messages") == 1
    assert "will be opened again when its disk works and has room" in caplog.text
    assert list(world.jetstream.failures) == ["BAD"]


def test_a_request_whose_change_was_not_kept_is_refused(world: FakeAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    world.stream("BAD", allow_direct=True)
    world.routes.publish(("BAD", b"1", ""))
    world.turn()
    world.settle()
    _fail(world, monkeypatch, "BAD")
    world.routes.publish(("$JS.API.STREAM.PURGE.BAD", b"", "purge"), ("$JS.API.DIRECT.GET.BAD", b'{"seq":1}', "got"))
    world.settle()
    answers = dict(world.routes.take())
    assert json.loads(answers["purge"])["error"]["code"] == 500
    assert b"503" in answers["got"] or b"404" in answers["got"]


def test_a_stream_that_cannot_be_opened_is_left_alone_and_the_others_work(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = FakeAccount(tmp_path)
    world.stream("BAD")
    world.stream("GOOD")
    world.close()
    front = next(path for path in (tmp_path / "streams" / "BAD").iterdir() if path.is_file())
    front.write_bytes(b"nonsense")
    caplog.clear()
    again = FakeAccount(tmp_path)
    assert "stream BAD cannot be opened" in caplog.text
    assert f"strandline journal verify {tmp_path}" in caplog.text  # what to do is said, too
    assert list(again.jetstream.failures) == ["BAD"]
    assert again.ask("STREAM.NAMES")["streams"] == ["GOOD"]
    refused = again.ask("STREAM.CREATE.BAD", {"name": "BAD"})
    assert refused["error"]["err_code"] == 10194
    assert str(tmp_path) not in refused["error"]["description"]
    again.close()
    assert front.read_bytes() == b"nonsense"


def test_acks_name_the_domain(tmp_path: Path) -> None:
    world = FakeAccount(tmp_path, domain="hub")
    world.stream("S")
    for reply in ("one", "two"):
        world.routes.publish(("S", b"x", reply), headers=b"NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n")
    world.turn()
    world.settle()
    assert world.routes.take() == [
        ("one", b'{"stream":"S","domain":"hub","seq":1}'),
        ("two", b'{"stream":"S","domain":"hub","seq":1,"duplicate": true}'),
    ]
    world.close()


def test_a_shorter_age_holds_from_the_moment_it_is_set(world: FakeAccount) -> None:
    world.stream("S", max_age=3_600_000_000_000)
    world.routes.publish(("S", b"1", ""))
    world.turn()
    world.settle()
    changed = world.ask(
        "STREAM.UPDATE.S", {"name": "S", "subjects": ["S"], "max_age": 1_000_000_000, "duplicate_window": 1_000_000_000}
    )
    assert "error" not in changed
    due_ns = world.jetstream.next_due_ns
    assert due_ns is not None
    assert due_ns <= world.clock.now_ns() + 1_000_000_000


def test_many_direct_gets_in_a_row_are_answered_as_single_ones_are(world: FakeAccount) -> None:
    world.stream("KV", "k.>", allow_direct=True)
    world.routes.publish(*[(f"k.{number}", b"%d" % number, "") for number in range(5)])
    world.turn()
    world.settle()
    subjects = ["k.1", "k.4", "k.none", "k.1", "k.0"]
    asked = [(f"$JS.API.DIRECT.GET.KV.{subject}", b"", f"r{at}") for at, subject in enumerate(subjects)]
    world.routes.publish(*asked)
    one_by_one = world.routes.take()
    world.routes.publish_together(*asked)
    assert world.routes.take() == one_by_one
    missing = b"NATS/1.0 404 Message Not Found\r\n\r\n"
    assert [answer for _, answer in one_by_one] == [b"1", b"4", missing, b"1", b"0"]


@pytest.mark.parametrize("broken", ["publish", "acks"])
def test_whatever_goes_wrong_with_one_stream_the_others_of_the_turn_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    world = FakeAccount(tmp_path, durability=WRITTEN)
    world.stream("BAD")
    world.stream("GOOD")
    with monkeypatch.context() as patched:
        sink = world.jetstream._sinks["BAD"]  # noqa: SLF001 - that one fails
        patched.setattr(sink.stream if broken == "publish" else sink, broken, _divide)
        world.routes.publish(("BAD", b"1", "bad"), ("GOOD", b"1", "one"))
        world.turn()
        world.settle()
    world.routes.publish(("GOOD", b"2", "two"))
    world.turn()
    world.settle()
    answers = dict(_acks(world))
    assert (answers["one"]["seq"], answers["two"]["seq"]) == (1, 2)
    assert broken == "acks" or answers["bad"]["error"]["err_code"] == 10077
    world.close()


def _divide(*_: object) -> None:
    raise ZeroDivisionError


def test_a_stream_that_keeps_what_is_told_of_its_own_end_leaves_nothing_to_the_next_of_its_name(
    world: FakeAccount,
) -> None:
    world.stream("S", "$JS.EVENT.ADVISORY.>")
    world.ask("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": {"durable_name": "C"}})
    world.turn()
    world.settle()
    assert world.ask("STREAM.DELETE.S")["success"]
    world.turn()
    world.settle()
    assert world.jetstream.failures == {}
    world.stream("S", "s", max_age=1_000_000_000)
    world.routes.publish(("s", b"1", ""))
    world.turn()
    world.settle()
    world.clock.advance(1.5)
    world.jetstream.tick(world.clock.now_ns())
    world.settle()
    assert world.ask("STREAM.INFO.S")["state"]["messages"] == 0


def test_names_that_no_file_can_have_are_refused(world: FakeAccount) -> None:
    world.stream("S")
    for name in ("\udcff", "a\0b"):
        refused = world.ask("CONSUMER.CREATE.S", {"stream_name": "S", "config": {"name": name}})
        assert ("error" in refused) or refused["name"] == "\ufffd"
    world.routes.publish(("$JS.API.STREAM.CREATE.a\0b", json.dumps({"name": "a\0b", "subjects": ["x"]}).encode(), "r"))
    world.settle()
    assert _acks(world)[0][1]["error"]["err_code"] == 10052


def test_a_lone_half_of_a_character_is_read_as_go_reads_it(tmp_path: Path) -> None:
    world = FakeAccount(tmp_path)
    made = world.ask("STREAM.CREATE.S", {"name": "S", "subjects": ["a.\udcff"], "description": "\ud83d\ude00\ud83d"})
    assert made["config"]["subjects"] == ["a.\ufffd"]
    assert made["config"]["description"] == "\U0001f600\ufffd"
    world.close()
    again = FakeAccount(tmp_path)
    assert again.ask("STREAM.INFO.S")["config"]["subjects"] == ["a.\ufffd"]
    again.close()


@pytest.mark.parametrize("has_failed_before", [False, True])
def test_everything_is_let_go_of_when_a_consumer_could_not_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, has_failed_before: bool
) -> None:
    world = FakeAccount(tmp_path)
    for name in ("A", "B"):
        world.stream(name)
        for durable in ("c", "d"):
            config = {"durable_name": durable, "ack_policy": "explicit"}
            world.ask(f"CONSUMER.DURABLE.CREATE.{name}.{durable}", {"stream_name": name, "config": config})
        world.routes.publish((name, b"0", ""), (f"$JS.API.CONSUMER.MSG.NEXT.{name}.c", b"1", "inbox"))
        for _ in range(2):  # it is stored, then delivered
            world.turn()
            world.settle()
    state = world.jetstream.consumers.entry("A", "c").state
    store = state._recorder._store  # type: ignore[union-attr] # noqa: SLF001 - its disk
    let_go = Mock(wraps=store.abandon)
    monkeypatch.setattr(store, "abandon", let_go)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "append", refuse)
    world.routes.listened.add(b"inbox")
    for name in ("A", "B"):
        world.routes.publish((name, b"1", ""), (f"$JS.API.CONSUMER.MSG.NEXT.{name}.c", b"1", "inbox"))
    if has_failed_before:
        world.turn()
        world.settle()
        world.turn()
        world.settle()
    world.close()
    assert "No space left" in caplog.text
    assert "Traceback" not in caplog.text
    let_go.assert_called()
    again = FakeAccount(tmp_path)
    assert sorted(again.ask("STREAM.NAMES")["streams"]) == ["A", "B"]
    assert [again.ask(f"CONSUMER.NAMES.{name}")["consumers"] for name in ("A", "B")] == [["c", "d"], ["c", "d"]]
    again.close()


def test_a_waiter_that_gives_up_cannot_cancel_what_others_wait_for(world: FakeAccount) -> None:
    world.stream("S")
    world.routes.publish(("S", b"one", "ack"))
    world.turn()
    ticket = world.jetstream.streams.streams["S"].last_ticket
    assert not ticket.done()
    assert not ticket.cancel()
    world.settle()
    assert [subject for subject, _ in world.routes.take()] == ["ack"]
