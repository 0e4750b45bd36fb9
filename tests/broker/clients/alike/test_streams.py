"""Requests about streams and what they store: the same answers, down to the order of their fields."""

from functools import partial
from typing import Any

import pytest

from tests.broker.clients.alike.conftest import Compare
from tests.broker.clients.alike.stream_configs import PUBLISHED, SELDOM
from tests.broker.clients.raw import Script, Talk

API = "$JS.API"
SECOND_NS = 1_000_000_000


def _create(talk: Talk, name: str, **config: Any) -> None:  # noqa: ANN401 - whatever JSON holds
    talk.ask(f"{API}.STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name.lower()}.>"], **config})


def _fill(talk: Talk, name: str, count: int = 6, subjects: int = 3) -> None:
    talk.publish_all((f"{name.lower()}.{number % subjects}", f"m{number}") for number in range(count))


def what_is_stored_and_told(talk: Talk) -> None:
    name = "STATE"
    _create(talk, name, allow_direct=True, description="d", metadata={"a": "b"})
    _fill(talk, name)
    for body in (
        "",
        {"deleted_details": True},
        {"subjects_filter": ">"},
        {"subjects_filter": "state.1"},
        {"subjects_filter": "state.*", "offset": 1},
        {"subjects_filter": "state.*", "offset": 9},
        {"subjects_filter": "other"},
        {"offset": 3},
        "nope",
        "[]",
    ):
        talk.ask(f"{API}.STREAM.INFO.{name}", body)
    talk.ask(f"{API}.STREAM.MSG.DELETE.{name}", {"seq": 3})
    talk.ask(f"{API}.STREAM.MSG.DELETE.{name}", {"seq": 4, "no_erase": True})
    talk.ask(f"{API}.STREAM.INFO.{name}", {"deleted_details": True, "subjects_filter": ">"})
    talk.ask(f"{API}.STREAM.MSG.DELETE.{name}", {"seq": 1})
    talk.ask(f"{API}.STREAM.MSG.DELETE.{name}", {"seq": 6})
    talk.ask(f"{API}.STREAM.INFO.{name}", {"deleted_details": True})
    talk.ask(f"{API}.STREAM.PURGE.{name}")
    talk.ask(f"{API}.STREAM.INFO.{name}", {"deleted_details": True})
    talk.ask(f"{API}.STREAM.DELETE.{name}", "x")
    talk.ask(f"{API}.STREAM.DELETE.{name}")


def purges(talk: Talk) -> None:
    name = "PURGES"
    _create(talk, name)
    for body in (
        "",
        {"filter": "purges.0"},
        {"seq": 4},
        {"keep": 2},
        {"filter": "purges.1", "keep": 1},
        {"filter": "purges.1", "seq": 3},
        {"seq": 2, "keep": 2},
        {"filter": "purges.x"},
        {"filter": "other.>"},
        {"seq": 99},
        {"keep": 99},
        {"filter": "bad..subject"},
        "nope",
    ):
        _fill(talk, name)
        talk.ask(f"{API}.STREAM.PURGE.{name}", body)
        talk.ask(f"{API}.STREAM.INFO.{name}", {"deleted_details": True})
    talk.ask(f"{API}.STREAM.PURGE.NONE")


def messages_asked_for_one_by_one(talk: Talk) -> None:
    name = "GETS"
    _create(talk, name, allow_direct=True)
    _fill(talk, name)
    talk.ask("gets.h", "body", {"A": "1", "B": "2"})
    talk.ask("gets.h", "", {"A": "1"})
    requests: tuple[Any, ...] = (
        "",
        {},
        {"seq": 0},
        {"seq": 1},
        {"seq": 7},
        {"seq": 7, "no_hdr": True},
        {"seq": 8},
        {"seq": 99},
        {"last_by_subj": "gets.1"},
        {"last_by_subj": "gets.*"},
        {"last_by_subj": "other"},
        {"last_by_subj": "gets.1", "seq": 1},
        {"next_by_subj": "gets.2"},
        {"seq": 4, "next_by_subj": "gets.2"},
        {"seq": 7, "next_by_subj": "gets.2"},
        {"next_by_subj": "gets.2", "last_by_subj": "gets.2"},
        {"start_time": "2024-01-01T00:00:00Z"},
        {"start_time": "2099-01-01T00:00:00Z"},
        {"start_time": "2024-01-01T00:00:00Z", "next_by_subj": "gets.1"},
        {"start_time": "2024-01-01T00:00:00Z", "seq": 1},
        {"start_time": "nope"},
        {"seq": -1},
        {"seq": "x"},
        "nope",
        "[]",
    )
    for body in requests:
        talk.ask(f"{API}.STREAM.MSG.GET.{name}", body)
        talk.ask(f"{API}.DIRECT.GET.{name}", body)
    for subject in ("gets.1", "gets.*", "other", "gets.h"):
        talk.ask(f"{API}.DIRECT.GET.{name}.{subject}")
    talk.ask(f"{API}.DIRECT.GET.{name}.gets.1", {"seq": 1})
    talk.ask(f"{API}.DIRECT.GET.NONE", {"seq": 1})
    talk.ask(f"{API}.STREAM.MSG.GET.NONE", {"seq": 1})
    talk.ask(f"{API}.DIRECT.GET.{name}", {"seq": 1}, {"Nats-Required-Api-Level": "99"})


def messages_asked_for_in_batches(talk: Talk) -> None:
    name = "BATCHES"
    _create(talk, name, allow_direct=True)
    _fill(talk, name, 8, 4)
    for body, answers in (
        ({"batch": 3, "seq": 1}, 4),
        ({"batch": 3, "seq": 7}, 3),
        ({"batch": 9, "next_by_subj": "batches.1"}, 3),
        ({"batch": 2, "seq": 2, "next_by_subj": "batches.*"}, 3),
        ({"batch": 5, "seq": 99}, 1),
        ({"batch": 5, "next_by_subj": "other"}, 1),
        ({"batch": 5, "seq": 1, "max_bytes": 5}, 2),
        ({"batch": 5, "seq": 1, "max_bytes": 1}, 2),
        ({"batch": 2, "start_time": "2024-01-01T00:00:00Z"}, 3),
        ({"multi_last": ["batches.1", "batches.3"]}, 3),
        ({"multi_last": ["batches.>"], "batch": 2}, 3),
        ({"multi_last": ["batches.>"], "up_to_seq": 5}, 5),
        ({"multi_last": ["batches.>"], "up_to_time": "2099-01-01T00:00:00Z"}, 5),
        ({"multi_last": ["batches.>"], "up_to_seq": 5, "up_to_time": "2099-01-01T00:00:00Z"}, 1),
        ({"multi_last": ["other.>"]}, 1),
        ({"multi_last": []}, 1),
        ({"multi_last": ["batches.1"], "seq": 3}, 2),
        ({"multi_last": ["batches.1"], "last_by_subj": "batches.1"}, 1),
        ({"batch": 2, "last_by_subj": "batches.1"}, 1),
    ):
        talk.ask(f"{API}.DIRECT.GET.{name}", body, answers=answers)
        talk.pause(0.02)


def what_publishers_are_told(talk: Talk) -> None:
    _create(talk, "STORED", allow_rollup_hdrs=True, allow_msg_ttl=True)
    for subject, body, headers in PUBLISHED:
        talk.ask(f"stored.{subject}", body, headers)
    talk.ask(f"{API}.STREAM.INFO.STORED", {"subjects_filter": ">", "deleted_details": True})
    talk.ask(f"{API}.STREAM.UPDATE.STORED", {"name": "STORED", "subjects": ["stored.>"], "allow_msg_ttl": True})
    for subject, body, headers in PUBLISHED:
        talk.ask(f"stored.{subject}", body, headers)


def limits(talk: Talk) -> None:
    for name, config in (
        ("LMSGS", {"max_msgs": 3}),
        ("LMSGSNEW", {"max_msgs": 3, "discard": "new"}),
        ("LBYTES", {"max_bytes": 150}),
        ("LBYTESNEW", {"max_bytes": 150, "discard": "new"}),
        ("LSUBJECT", {"max_msgs_per_subject": 1}),
        ("LSUBJECTNEW", {"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True}),
        ("LSUBJECTMIX", {"max_msgs_per_subject": 1, "discard": "new", "max_msgs": 2}),
        ("LSIZE", {"max_msg_size": 2}),
        ("LMEM", {"storage": "memory", "max_msgs": 2, "max_bytes": 100}),
        ("LFIRST", {"first_seq": 100, "max_msgs": 2}),
        ("LALL", {"max_msgs": 4, "max_bytes": 160, "max_msgs_per_subject": 2}),
    ):
        _create(talk, name, **config)
        _fill(talk, name, 5, 2)
        talk.ask(f"{name.lower()}.1", "longer")
        talk.ask(f"{API}.STREAM.INFO.{name}", {"deleted_details": True, "subjects_filter": ">"})
    _create(talk, "LNOACK", no_ack=True)
    talk.ask("lnoack.a", "x", answers=0)
    talk.ask(f"{API}.STREAM.INFO.LNOACK")
    talk.ask(f"{API}.STREAM.UPDATE.LMSGS", {"name": "LMSGS", "subjects": ["lmsgs.>"], "max_msgs": 1})
    talk.ask(f"{API}.STREAM.INFO.LMSGS")
    talk.ask(f"{API}.STREAM.UPDATE.LMSGSNEW", {"name": "LMSGSNEW", "subjects": ["lmsgsnew.>"], "max_msgs": 1})
    talk.ask(f"{API}.STREAM.INFO.LMSGSNEW")


def _begins_at(first_seq: int, info: dict[str, Any]) -> bool:
    return int(info["state"]["first_seq"]) >= first_seq


def ages_and_markers(talk: Talk) -> None:
    aged = {"max_age": 20 * talk.tenth_ns, "duplicate_window": 10 * talk.tenth_ns}
    aged |= {"subject_delete_marker_ttl": 600 * SECOND_NS}
    _create(talk, "AGE", **aged)
    _create(talk, "TTL", allow_msg_ttl=True)
    _fill(talk, "AGE", 4, 2)
    talk.ask("ttl.a", "x", {"Nats-TTL": f"{talk.pace}s"})
    talk.ask("ttl.b", "x")
    for name, first_seq in (("AGE", 5), ("TTL", 2)):
        talk.wait_for(f"{API}.STREAM.INFO.{name}", partial(_begins_at, first_seq))
        if name == "AGE":  # markers would go at that age as well
            talk.peek(f"{API}.STREAM.UPDATE.AGE", {"name": "AGE", "subjects": ["age.>"], **aged, "max_age": 0})
    talk.ask(f"{API}.STREAM.INFO.AGE", {"deleted_details": True, "subjects_filter": ">"})
    talk.ask(f"{API}.STREAM.MSG.GET.AGE", {"last_by_subj": "age.0"})
    talk.ask(f"{API}.STREAM.INFO.TTL", {"deleted_details": True, "subjects_filter": ">"})
    talk.ask(f"{API}.STREAM.PURGE.AGE", {"filter": "age.1"})
    talk.ask(f"{API}.STREAM.INFO.AGE", {"deleted_details": True, "subjects_filter": ">"})


def what_is_denied(talk: Talk) -> None:
    _create(talk, "DENY", deny_delete=True, deny_purge=True)
    _fill(talk, "DENY")
    talk.ask(f"{API}.STREAM.MSG.DELETE.DENY", {"seq": 1})
    talk.ask(f"{API}.STREAM.PURGE.DENY")
    talk.ask("deny.1", "x", {"Nats-Rollup": "sub"})
    for change in (
        {"deny_delete": False, "deny_purge": True},
        {"deny_delete": True, "deny_purge": False},
        {"deny_delete": True, "deny_purge": True, "storage": "memory"},
        {"deny_delete": True, "deny_purge": True, "retention": "workqueue"},
        {"deny_delete": True, "deny_purge": True, "retention": "interest"},
        {"deny_delete": True, "deny_purge": True, "num_replicas": 3},
        {"deny_delete": True, "deny_purge": True, "max_consumers": 3},
        {"deny_delete": True, "deny_purge": True, "mirror": {"name": "X"}},
        {"deny_delete": True, "deny_purge": True, "allow_msg_counter": True},
        {"deny_delete": True, "deny_purge": True, "subjects": ["deny.>", "more.>"]},
        {"deny_delete": True, "deny_purge": True, "sealed": True},
        {"deny_delete": True, "deny_purge": True},
    ):
        talk.ask(f"{API}.STREAM.UPDATE.DENY", {"name": "DENY", "subjects": ["deny.>"], **change})
    talk.ask("deny.1", "x")
    talk.ask(f"{API}.STREAM.MSG.DELETE.DENY", {"seq": 1})
    talk.ask(f"{API}.STREAM.PURGE.DENY")
    talk.ask(f"{API}.STREAM.DELETE.DENY")


def counters(talk: Talk) -> None:
    _create(talk, "COUNT", allow_msg_counter=True, allow_direct=True)
    for subject, body, headers in (
        ("a", "", {"Nats-Incr": "1"}),
        ("a", "", {"Nats-Incr": "+10"}),
        ("a", "", {"Nats-Incr": "-100"}),
        ("a", "", {"Nats-Incr": "0"}),
        ("a", "", {"Nats-Incr": "99999999999999999999999"}),
        ("a", "", {"Nats-Incr": "x"}),
        ("a", "", {"Nats-Incr": ""}),
        ("a", "x", {"Nats-Incr": "1"}),
        ("a", "", None),
        ("a", "", {"Nats-Incr": "1", "Nats-Rollup": "sub"}),
        ("a", "", {"Nats-Incr": "1", "Nats-Msg-Id": "i"}),
        ("a", "", {"Nats-Incr": "1", "Nats-Msg-Id": "i"}),
        ("a", "", {"Nats-Incr": "1", "Nats-Expected-Last-Sequence": "1"}),
        ("b", "", {"Nats-Incr": "-1", "Other": "kept"}),
    ):
        talk.ask(f"count.{subject}", body, headers)
    talk.ask(f"{API}.DIRECT.GET.COUNT.count.a")
    talk.ask(f"{API}.DIRECT.GET.COUNT.count.b")
    talk.ask(f"{API}.STREAM.INFO.COUNT")


def _batch(talk: Talk, number: int, subject: str, *, of: str, commit: str = "", **more: str) -> None:
    headers = {"Nats-Batch-Id": of, "Nats-Batch-Sequence": str(number)}
    talk.ask(subject, f"{number}", {**headers, **({"Nats-Batch-Commit": commit} if commit else {}), **more})


def atomic_batches(talk: Talk) -> None:
    _create(talk, "ATOM", allow_atomic=True, allow_rollup_hdrs=True)
    _batch(talk, 1, "atom.a", of="b1")
    _batch(talk, 2, "atom.b", of="b1")
    talk.ask(f"{API}.STREAM.INFO.ATOM")
    _batch(talk, 3, "atom.c", of="b1", commit="1")
    talk.ask(f"{API}.STREAM.INFO.ATOM")
    _batch(talk, 1, "atom.a", of="b2", commit="1")
    _batch(talk, 1, "atom.a", of="b3")
    _batch(talk, 2, "atom.a", of="b3", commit="eob")
    _batch(talk, 2, "atom.a", of="b4")
    _batch(talk, 1, "atom.a", of="b5")
    _batch(talk, 3, "atom.a", of="b5")
    _batch(talk, 4, "atom.a", of="b5", commit="1")
    _batch(talk, 1, "atom.a", of="b6")
    _batch(talk, 2, "atom.a", of="b6", commit="2")
    _batch(talk, 1, "atom.a", of="x" * 65)
    _batch(talk, 1, "atom.a", of="b7", **{"Nats-Expected-Last-Sequence": "77"})
    _batch(talk, 2, "atom.a", of="b7", commit="1")
    _batch(talk, 1, "atom.a", of="b8", **{"Nats-Expected-Last-Subject-Sequence": "0"})
    _batch(talk, 2, "atom.n", of="b8", commit="1")
    _batch(talk, 1, "atom.a", of="b9", **{"Nats-Msg-Id": "i"})
    _batch(talk, 2, "atom.a", of="b9", commit="1", **{"Nats-Msg-Id": "i"})
    _batch(talk, 1, "atom.a", of="b10", **{"Nats-Rollup": "sub"})
    _batch(talk, 2, "atom.a", of="b10", commit="1", **{"Nats-Expected-Last-Msg-Id": "i"})
    talk.ask("atom.a", "x", {"Nats-Batch-Id": "b11"})
    talk.ask("atom.a", "x", {"Nats-Batch-Id": "b11", "Nats-Batch-Sequence": "x"})
    talk.ask("atom.a", "x", {"Nats-Batch-Commit": "1"})
    talk.ask(f"{API}.STREAM.INFO.ATOM", {"subjects_filter": ">"})


def republished_and_transformed(talk: Talk) -> None:
    sid = talk.listen("re.>")
    _create(talk, "REPUB", republish={"src": "repub.>", "dest": "re.{{wildcard(1)}}"})
    _create(talk, "REPUB2", republish={"src": "repub2.*", "dest": "re.two.{{wildcard(1)}}"})
    _create(talk, "REPUB3", republish={"src": ">", "dest": "re.three.>", "headers_only": True})
    talk.ask("repub2.a", "one")
    talk.ask("repub2.a", "two", {"A": "b"})
    talk.ask("repub2.b", "three")
    talk.heard(sid, 3)
    talk.ask("repub3.a", "one")
    talk.ask("repub3.a", "two", {"A": "b"})
    talk.heard(sid, 2)
    _create(talk, "TRANS", subject_transform={"src": "trans.*", "dest": "moved.{{wildcard(1)}}.end"}, allow_direct=True)
    talk.ask("trans.a", "x")
    talk.ask("trans.b.c", "x")
    talk.ask(f"{API}.STREAM.INFO.TRANS", {"subjects_filter": ">"})
    talk.ask(f"{API}.DIRECT.GET.TRANS", {"seq": 1})


def what_only_clusters_can_do(talk: Talk) -> None:
    _create(talk, "CLUSTER")
    for request in (
        "STREAM.LEADER.STEPDOWN.CLUSTER",
        "STREAM.PEER.REMOVE.CLUSTER",
        "CONSUMER.LEADER.STEPDOWN.CLUSTER.C",
    ):
        talk.ask(f"{API}.{request}")
    for request in (
        "META.LEADER.STEPDOWN",
        "SERVER.REMOVE",
        "ACCOUNT.PURGE.A",
        "STREAM.NONSENSE.CLUSTER",
        "NONSENSE",
        "CONSUMER.INFO.CLUSTER",
    ):
        talk.ask(f"{API}.{request}", answers=0)
    talk.ask(f"{API}.INFO", "x", {"Nats-Required-Api-Level": "9"})
    talk.ask(f"{API}.STREAM.INFO.CLUSTER", "", {"Nats-Required-Api-Level": "9"})
    talk.ask(f"{API}.STREAM.INFO.CLUSTER", "", {"Nats-Required-Api-Level": "x"})
    talk.ask(f"{API}.STREAM.INFO.CLUSTER", "", {"Nats-Required-Api-Level": "5"})


def refusals_seldom_met(talk: Talk) -> None:
    _create(talk, "SELDOM1", max_msg_size=100)
    _create(talk, "SELDOM2")
    for number, config in enumerate(SELDOM):
        name = f"SELDOM{number + 10}"
        talk.ask(f"{API}.STREAM.CREATE.{name}", {"name": name, **config})
        talk.ask(f"{API}.STREAM.DELETE.{name}")
    for number in range(4):
        talk.ask("seldom1.a", f"{number}")
    talk.ask(f"{API}.STREAM.MSG.DELETE.SELDOM1", {"seq": 2})
    for sequence in (0, 1, 1, 2, 9):
        talk.ask(f"{API}.STREAM.MSG.DELETE.SELDOM1", {"seq": sequence})
    talk.ask(f"{API}.STREAM.MSG.GET.SELDOM1", {"seq": 1, "min_last_seq": 50})


def fast_ingest_that_is_disabled(talk: Talk) -> None:
    talk.ask("$JS.API.STREAM.CREATE.SLOW", {"name": "SLOW", "subjects": ["slow"]})
    answers = talk.listen("fast.>")
    for number, operation in ((1, 0), (2, 1), (3, 2)):
        talk.publish("slow", "x", reply=f"fast.uuid.10.ok.{number}.{operation}.$FI")
        talk.ask("slow", "y")
        talk.heard(answers, 1)
    talk.publish("slow", "x", reply="fast.nothing.$FI")
    talk.heard(answers, 1)
    talk.ask("$JS.API.STREAM.INFO.SLOW")


SCRIPTS: list[Script] = [
    fast_ingest_that_is_disabled,
    refusals_seldom_met,
    what_is_stored_and_told,
    purges,
    messages_asked_for_one_by_one,
    messages_asked_for_in_batches,
    what_publishers_are_told,
    limits,
    ages_and_markers,
    what_is_denied,
    counters,
    atomic_batches,
    republished_and_transformed,
    what_only_clusters_can_do,
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_both_servers_say_the_same(compare: Compare, script: Script) -> None:
    compare(script)
