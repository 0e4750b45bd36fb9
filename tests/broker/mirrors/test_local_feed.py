"""Mirrors and sources of streams of the same account."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.broker.mirrors.source_names import stream_identity
from strandline.clock import ManualClock
from tests.broker.mirrors.world import MirrorAccount

HEAD = b"NATS/1.0\r\n"


@pytest.fixture
def world() -> Iterator[MirrorAccount]:
    world = MirrorAccount()
    yield world
    world.close()


def sequences(world: MirrorAccount, name: str) -> list[int]:
    return [message.sequence for message in world.messages(name)]


def test_a_mirror_keeps_sequences_times_headers_and_gaps(world: MirrorAccount) -> None:
    origin = world.create("O", subjects=["o.>"])
    world.publish("O", "o.1", "o.2", "o.3", "o.4", headers=HEAD + b"A: b\r\n\r\n")
    origin.delete(1)
    origin.delete(3)
    world.create("M", mirror={"name": "O"})
    world.settle()
    assert world.messages("M") == world.messages("O")
    world.publish("O", "o.5")
    world.settle()
    assert world.messages("M") == world.messages("O")
    assert sequences(world, "M") == [2, 4, 5]


def test_a_mirror_may_begin_later_and_take_some_subjects_under_other_names(world: MirrorAccount) -> None:
    world.create("O", subjects=["o.>"])
    world.publish("O", *(f"o.{number % 3}" for number in range(9)))
    transforms = [{"src": "o.1", "dest": "t.{{wildcard(1)}}"}, {"src": "o.2", "dest": ""}]
    transforms[0] = {"src": "o.1", "dest": "t.one"}
    world.create("LATER", mirror={"name": "O", "opt_start_seq": 5})
    world.create("SOME", mirror={"name": "O", "filter_subject": "o.1"})
    world.create("OTHER", mirror={"name": "O", "subject_transforms": transforms})
    world.settle()
    assert sequences(world, "LATER") == [5, 6, 7, 8, 9]
    assert world.info("LATER")["state"].get("num_deleted") is None
    assert [(m.sequence, m.subject) for m in world.messages("SOME")] == [(2, b"o.1"), (5, b"o.1"), (8, b"o.1")]
    assert [m.subject for m in world.messages("OTHER")] == [b"t.one", b"o.2"] * 3


def test_a_copy_may_begin_at_a_time(world: MirrorAccount) -> None:
    world.close()
    clock = ManualClock(1_700_000_000_000_000_000)
    world = MirrorAccount(clock=clock)
    world.create("O", subjects=["o"])
    for _ in range(4):
        world.publish("O", "o")
        clock.advance(1.0)
    world.create("M", mirror={"name": "O", "opt_start_time": "2023-11-14T22:13:22Z"})
    world.settle()
    assert sequences(world, "M") == [3, 4]


def test_a_source_says_where_each_message_came_from_as_nats_server_does(world: MirrorAccount) -> None:
    origin = world.create("S1", subjects=["s1.>"])
    world.publish("S1", "s1.m.0", "s1.n.1")
    transforms = [{"src": "s1.m.*", "dest": "t.{{wildcard(1)}}"}, {"src": "s1.n.*", "dest": ""}]
    world.create("ONE", sources=[{"name": "S1", "filter_subject": "s1.m.>"}])
    world.create("TWO", sources=[{"name": "S1", "subject_transforms": transforms}])
    world.settle()
    identity = stream_identity(origin.created_ns).encode()
    (one,) = world.messages("ONE")
    assert one.headers == HEAD + b"Nats-Stream-Source: S1 1 s1.m.> > s1.m.0 " + identity + b"\r\n\r\n"
    first, second = world.messages("TWO")
    value = b"s1.m.*\x0cs1.n.* t.{{wildcard(1)}}\x0c> "
    assert (first.subject, second.subject) == (b"t.0", b"s1.n.1")
    assert first.headers == HEAD + b"Nats-Stream-Source: S1 1 " + value + b"s1.m.0 " + identity + b"\r\n\r\n"
    assert second.headers == HEAD + b"Nats-Stream-Source: S1 2 " + value + b"s1.n.1 " + identity + b"\r\n\r\n"


def test_identities_are_hashes_of_the_time_a_stream_was_made() -> None:
    assert stream_identity(1_794_778_036_910_233_335) == "A6NgNr0K"  # as nats-server 2.15.1 told of such a stream


def test_a_chain_of_sources_names_only_the_last_and_conditions_of_the_origin_are_left_out(world: MirrorAccount) -> None:
    world.create("A", subjects=["a"])
    world.create("B", sources=[{"name": "A"}])
    world.create("C", sources=[{"name": "B"}])
    world.publish("A", "a", headers=HEAD + b"Nats-Expected-Last-Sequence: 0\r\nX: y\r\nNats-Msg-Id: one\r\n\r\n")
    world.settle()
    (found,) = world.messages("C")
    lines = found.headers.split(b"\r\n")
    assert lines[:3] == [b"NATS/1.0", b"X: y", b"Nats-Msg-Id: one"]
    assert [line[:24] for line in lines[3:-2]] == [b"Nats-Stream-Source: B 1 "]


def test_several_sources_flow_into_one_stream_beside_its_own_messages(world: MirrorAccount) -> None:
    world.create("A", subjects=["a"])
    world.create("B", subjects=["b"])
    world.create("T", subjects=["t"], sources=[{"name": "A"}, {"name": "B"}])
    for _ in range(3):
        world.publish("A", "a")
        world.publish("B", "b")
        world.publish("T", "t")
        world.settle()
    assert sorted(message.subject for message in world.messages("T")) == [b"a"] * 3 + [b"b"] * 3 + [b"t"] * 3
    told = world.info("T")["sources"]
    assert [(source["name"], source["seq"], source["lag"]) for source in told] == [("A", 3, 0), ("B", 3, 0)]
    assert all(0 < source["active"] < 600 * 10**9 for source in told)


def test_counters_of_sources_are_summed(world: MirrorAccount) -> None:
    for name in ("C0", "C1"):
        world.create(name, subjects=[f"{name.lower()}.>"], allow_msg_counter=True, allow_direct=True)
    sources = [
        {"name": "C0", "subject_transforms": [{"src": "c0.>", "dest": "c.>"}]},
        {"name": "C1", "subject_transforms": [{"src": "c1.>", "dest": "c.>"}]},
    ]
    world.create("SUM", sources=sources, allow_msg_counter=True, allow_direct=True)
    for name, change in (("C0", 5), ("C1", 2), ("C0", -1)):
        world.publish(name, f"{name.lower()}.x", payload=b"", headers=HEAD + b"Nats-Incr: %d\r\n\r\n" % change)
        world.settle()
    found = world.messages("SUM")
    assert [message.payload for message in found] == [b'{"val":"5"}', b'{"val":"7"}', b'{"val":"6"}']
    told = b'Nats-Counter-Sources: {"C0":{"c0.x":"4"},"C1":{"c1.x":"2"}}\r\n\r\n'
    assert found[-1].headers.endswith(told)


def test_rollups_and_times_to_live_count_only_where_the_copy_allows_them(tmp_path: Path) -> None:
    world = MirrorAccount(tmp_path)
    world.create("O", subjects=["o.>"], allow_rollup_hdrs=True, allow_msg_ttl=True)
    world.create("M", mirror={"name": "O"})
    world.create("R", mirror={"name": "O"}, allow_rollup_hdrs=True, allow_msg_ttl=True)
    world.create("S", sources=[{"name": "O"}])
    world.create("T", sources=[{"name": "O"}], allow_rollup_hdrs=True, allow_msg_ttl=True)
    world.publish("O", "o.a", "o.b", "o.a")
    world.settle()
    world.publish("O", "o.c", headers=HEAD + b"Nats-TTL: 1h\r\n\r\n")
    world.publish("O", "o.a", headers=HEAD + b"Nats-Rollup: sub\r\n\r\n")
    world.settle()
    check_rollups(world)
    world.close()
    for file in tmp_path.glob("*/index"):
        file.unlink()
    world = MirrorAccount(tmp_path)
    check_rollups(world)
    world.close()


def check_rollups(world: MirrorAccount) -> None:
    assert [sequences(world, name) for name in "MRST"] == [[1, 2, 3, 4, 5], [2, 4, 5], [1, 2, 3, 4, 5], [2, 4, 5]]
    due = [world.service.streams[name].next_expiry_ns for name in "MRST"]
    assert [moment is None for moment in due] == [True, False, True, False]


def test_a_full_copy_waits_for_room_and_says_so(world: MirrorAccount) -> None:
    world.close()
    clock = ManualClock(1_700_000_000_000_000_000)
    world = MirrorAccount(clock=clock)
    world.create("O", subjects=["o"])
    world.create("F", sources=[{"name": "O"}], max_msgs=2, discard="new")
    world.create("M", mirror={"name": "O"}, max_msgs=2, discard="new")
    world.publish("O", *["o"] * 5)
    world.settle()
    told = world.info("F")["sources"][0]
    assert (told["lag"], told["seq"], told["error"]["description"]) == (3, 2, "maximum messages exceeded")
    assert sequences(world, "M") == [1, 2]
    for name in "FM":
        world.service.request(f"$JS.API.STREAM.PURGE.{name}", b"", b"", clock.now_ns())
    world.settle()
    assert world.info("F")["state"]["messages"] == 0
    clock.advance(2.0)
    assert world.mirrors.next_due_ns is not None
    world.settle()
    assert (sequences(world, "F"), sequences(world, "M")) == ([3, 4], [3, 4])


def test_a_purged_origin_leaves_its_copies_alone(world: MirrorAccount) -> None:
    world.create("O", subjects=["o"])
    world.create("M", mirror={"name": "O"})
    world.create("S", sources=[{"name": "O"}])
    world.publish("O", *["o"] * 4)
    world.settle()
    world.service.request("$JS.API.STREAM.PURGE.O", b"", b"", world.clock.now_ns())
    world.publish("O", "o")
    world.settle()
    assert sequences(world, "M") == sequences(world, "S") == [1, 2, 3, 4, 5]


def test_an_origin_that_is_made_anew_begins_anew_for_sources_and_goes_on_for_mirrors(world: MirrorAccount) -> None:
    world.create("O", subjects=["o"])
    world.create("M", mirror={"name": "O"})
    world.create("S", sources=[{"name": "O"}])
    world.publish("O", *["o"] * 3, payload=b"old")
    world.settle()
    world.delete("O")
    world.settle()
    assert world.info("M")["mirror"]["error"]["err_code"] == 10059
    world.create("O", subjects=["o"])
    world.publish("O", *["o"] * 5, payload=b"new")
    world.settle()
    assert [message.payload for message in world.messages("M")] == [b"old"] * 3 + [b"new"] * 2
    assert [message.payload for message in world.messages("S")] == [b"old"] * 3 + [b"new"] * 5
    assert "error" not in world.info("M")["mirror"]


def test_an_origin_may_come_later(world: MirrorAccount) -> None:
    world.create("S", sources=[{"name": "O"}])
    world.settle()
    told = world.info("S")["sources"][0]
    assert (told["active"], told["error"]["err_code"]) == (-1, 10059)
    world.create("O", subjects=["o"])
    world.publish("O", "o")
    world.settle()
    assert sequences(world, "S") == [1]


def test_an_unknown_remote_is_an_error_that_is_told(world: MirrorAccount) -> None:
    world.create("M", mirror={"name": "O", "external": {"api": "$JS.far.API", "deliver": ""}})
    world.settle()
    error = world.info("M")["mirror"]["error"]
    assert (error["err_code"], "$JS.far.API" in error["description"]) == (10029, True)


def test_sources_may_be_taken_away_and_added_again(world: MirrorAccount) -> None:
    world.create("A", subjects=["a"])
    world.create("B", subjects=["b"])
    world.create("T", sources=[{"name": "A"}, {"name": "B"}])
    world.publish("A", "a")
    world.publish("B", "b")
    world.settle()
    world.update("T", sources=[{"name": "B"}])
    world.publish("A", "a")
    world.settle()
    assert len(world.messages("T")) == 2
    world.update("T", sources=[{"name": "B"}, {"name": "A"}])
    world.settle()
    assert [message.subject for message in world.messages("T")] == [b"a", b"b", b"a"]


def test_after_a_restart_copies_go_on_where_they_were_though_nothing_is_left_of_it(tmp_path: Path) -> None:
    world = MirrorAccount(tmp_path)
    world.create("O", subjects=["o"])
    world.create("M", mirror={"name": "O"})
    world.create("S", sources=[{"name": "O"}])
    world.publish("O", *["o"] * 4)
    world.settle()
    for name in "MS":
        world.service.request(f"$JS.API.STREAM.PURGE.{name}", b"", b"", world.clock.now_ns())
    world.close()
    for file in tmp_path.glob("*/index"):
        file.unlink()
    again = MirrorAccount(tmp_path)
    again.publish("O", "o")
    again.settle()
    assert sequences(again, "M") == sequences(again, "S") == [5]
    again.close()
    with_index = MirrorAccount(tmp_path)
    with_index.settle()
    assert sequences(with_index, "S") == [5]
    with_index.close()


def test_a_copy_takes_only_what_is_durable_in_its_origin(world: MirrorAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = world.create("O", subjects=["o"])
    world.create("M", mirror={"name": "O"})
    monkeypatch.setattr(type(origin), "durable_seq", property(lambda self: 1 if self is origin else self.last_seq))
    world.publish("O", "o", "o")
    world.settle()
    assert sequences(world, "M") == [1]


def test_a_stream_that_goes_takes_its_feeds_with_it(world: MirrorAccount) -> None:
    world.create("O", subjects=["o"])
    world.create("M", mirror={"name": "O"})
    world.settle()
    world.delete("M")
    world.publish("O", "o")
    world.settle()
    assert "M" not in world.service.streams
