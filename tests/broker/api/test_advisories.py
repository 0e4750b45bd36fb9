"""Advisories say what nats-server says, where it says it."""

import json

import pytest

from strandline.broker.api.advisories import (
    AckSample,
    Advisory,
    ApiAudit,
    BatchAbandoned,
    ClientInfo,
    ConsumerAction,
    GroupPinned,
    GroupUnpinned,
    MaxDeliveries,
    MessageNaked,
    MessageTerminated,
    Paused,
    RestoreCompleted,
    SnapshotCompleted,
    StreamAction,
    format_advisory,
)
from strandline.broker.api.times import parse_time

NOW_NS = parse_time("2026-11-15T21:36:35.254472213Z")
HEAD = '{"type":"io.nats.jetstream.%s","id":"<id>","timestamp":"2026-11-15T21:36:35.254472213Z",%s}'
UNTIL_NS = parse_time("2099-01-01T00:00:00Z")
CLIENT = ClientInfo(start=NOW_NS, host="127.0.0.1", id=5, acc="$G", lang="python3", ver="2.16.0", rtt=3, server="N")
CLIENT_TEXT = (
    '"client":{"start":"2026-11-15T21:36:35.254472213Z","host":"127.0.0.1","id":5,"acc":"$G","lang":"python3",'
    '"ver":"2.16.0","rtt":3,"server":"N","kind":"Client","client_type":"nats"}'
)
CASES: list[tuple[Advisory, str, str, str]] = [
    (StreamAction("S", "create"), "STREAM.CREATED.S", "stream_action", '"stream":"S","action":"create"'),
    (StreamAction("S", "modify"), "STREAM.UPDATED.S", "stream_action", '"stream":"S","action":"modify"'),
    (StreamAction("S", "delete"), "STREAM.DELETED.S", "stream_action", '"stream":"S","action":"delete"'),
    (
        ConsumerAction("S", "c", "create"),
        "CONSUMER.CREATED.S.c",
        "consumer_action",
        '"stream":"S","consumer":"c","action":"create"',
    ),
    (
        Paused("S", "c", paused=True, pause_until=UNTIL_NS),
        "CONSUMER.PAUSE.S.c",
        "consumer_pause",
        '"stream":"S","consumer":"c","paused":true,"pause_until":"2099-01-01T00:00:00Z"',
    ),
    (
        Paused("S", "c"),
        "CONSUMER.PAUSE.S.c",
        "consumer_pause",
        '"stream":"S","consumer":"c","paused":false,"pause_until":"0001-01-01T00:00:00Z"',
    ),
    (
        MessageNaked("S", "c", 2, 2, 1),
        "CONSUMER.MSG_NAKED.S.c",
        "nak",
        '"stream":"S","consumer":"c","consumer_seq":2,"stream_seq":2,"deliveries":1',
    ),
    (
        MessageTerminated("S", "c", 3, 3, 1, "because"),
        "CONSUMER.MSG_TERMINATED.S.c",
        "terminated",
        '"stream":"S","consumer":"c","consumer_seq":3,"stream_seq":3,"deliveries":1,"reason":"because"',
    ),
    (
        MaxDeliveries("S", "c", 2, 2),
        "CONSUMER.MAX_DELIVERIES.S.c",
        "max_deliver",
        '"stream":"S","consumer":"c","stream_seq":2,"deliveries":2',
    ),
    (
        GroupPinned("$G", "S", "p", "g", "ID"),
        "CONSUMER.PINNED.S.p",
        "consumer_group_pinned",
        '"account":"$G","stream":"S","consumer":"p","group":"g","pinned_id":"ID"',
    ),
    (
        GroupUnpinned("$G", "S", "p", "g", "admin"),
        "CONSUMER.UNPINNED.S.p",
        "consumer_group_unpinned",
        '"account":"$G","stream":"S","consumer":"p","group":"g","reason":"admin"',
    ),
    (
        BatchAbandoned("S", "b", "incomplete"),
        "STREAM.BATCH_ABANDONED.S",
        "stream_batch_abandoned",
        '"stream":"S","batch":"b","reason":"incomplete"',
    ),
    (
        SnapshotCompleted("S", NOW_NS, NOW_NS, CLIENT),
        "STREAM.SNAPSHOT_COMPLETE.S",
        "snapshot_complete",
        '"stream":"S","start":"2026-11-15T21:36:35.254472213Z","end":"2026-11-15T21:36:35.254472213Z",' + CLIENT_TEXT,
    ),
    (
        RestoreCompleted("S", NOW_NS, NOW_NS, 959, CLIENT),
        "STREAM.RESTORE_COMPLETE.S",
        "restore_complete",
        '"stream":"S","start":"2026-11-15T21:36:35.254472213Z","end":"2026-11-15T21:36:35.254472213Z","bytes":959,'
        + CLIENT_TEXT,
    ),
    (
        ApiAudit("N", CLIENT, "$JS.API.INFO", "", "{}"),
        "API",
        "api_audit",
        f'"server":"N",{CLIENT_TEXT},"subject":"$JS.API.INFO","response":"{{}}"',
    ),
]


@pytest.mark.parametrize(("advisory", "subject", "kind", "said"), CASES, ids=lambda case: str(case)[:40])
def test_what_happened_is_told_in_the_servers_words(advisory: Advisory, subject: str, kind: str, said: str) -> None:
    text = format_advisory(advisory, NOW_NS).decode()
    identity = json.loads(text)["id"]
    assert len(identity) == 22
    assert text.replace(identity, "<id>", 1) == HEAD % (f"advisory.v1.{kind}", said)
    assert advisory.subject == f"$JS.EVENT.ADVISORY.{subject}"


def test_a_metric_is_told_among_the_metrics() -> None:
    sample = AckSample("S", "c", 1, 1, 504139, 1)
    assert sample.subject == "$JS.EVENT.METRIC.CONSUMER.ACK.S.c"
    text = format_advisory(sample, NOW_NS, domain="hub").decode()
    assert text.startswith('{"type":"io.nats.jetstream.metric.v1.consumer_ack"')
    said = '"consumer":"c","consumer_seq":1,"stream_seq":1,"ack_time":504139,"deliveries":1,"domain":"hub"}'
    assert text.endswith(said)
