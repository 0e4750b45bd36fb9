"""Pages of journals, queues, streams, folds and replicas, over what others ship where that exists: a nats-server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.errors import Unavailable
from strandline.fold.events import RepairBegan, RepairEnded
from strandline.fold.followed_fold import follow
from strandline.fold.last_repair import RepairRecorder
from strandline.journal import Journal, JournalConfig
from strandline.nats import JetStreamApi, NatsSettings
from strandline.nats.socket import NatsSocket
from strandline.protocol.repairs import RepairPlan
from strandline.queue import Queue, QueueConfig
from strandline.web import Parts
from strandline.web.parts.folds import FoldPart
from strandline.web.parts.journals import JournalPart
from strandline.web.parts.replicas import ReplicaPart
from strandline.web.parts.streams import ServerPart
from tests.servers_nats import NatsServer
from tests.waiting import eventually
from tests.web.sites import serve_parts


@pytest.fixture
def api(nats_server: NatsServer) -> Iterator[JetStreamApi]:
    settings = NatsSettings(nats_server.url)
    with NatsSocket.connect(settings) as socket:
        yield JetStreamApi(socket, settings.api_prefix)


def publish(api: JetStreamApi, subject: str, *values: bytes) -> None:
    for value in values:
        assert b'"seq"' in api.connection.request(subject, value).payload


class TestStreams:
    def test_a_stream_of_nats_server_is_shown_with_its_consumers_and_messages(
        self, nats_server: NatsServer, api: JetStreamApi
    ) -> None:
        api.call("STREAM.CREATE.WEBPAGE", {"name": "WEBPAGE", "subjects": ["webpage.>"], "storage": "file"}, "WEBPAGE")
        consumer = {"durable_name": "slow", "ack_policy": "explicit"}
        create = {"stream_name": "WEBPAGE", "config": consumer}
        api.call("CONSUMER.DURABLE.CREATE.WEBPAGE.slow", create, "WEBPAGE")
        publish(api, "webpage.a", b"first", b"<img src=x onerror=alert(1)>\x1b[2J\xff")
        part = ServerPart(NatsSettings(nats_server.url), every_s=0.1)
        try:
            with serve_parts(Parts(servers=[part])) as client:
                assert "WEBPAGE" in client.get("/streams").text
                text = client.get("/streams/0/WEBPAGE?seq=2").text
                assert "slow" in text
                assert "<img src=x" not in text
                assert r"&lt;img src=x onerror=alert(1)&gt;\x1b[2J\xff" in text
                assert client.get("/streams/0/WEBPAGE?seq=99").status == 200
                publish(api, "webpage.a", b"third")
                eventually(lambda: "sequences 1 to 3" in client.get("/streams/0/WEBPAGE").text, "the page follows")
                assert client.get("/streams/0/NOTHING").status == 404
                found = next(one for one in part.value or () if one.name == "WEBPAGE")
                assert (found.messages, found.lag) == (3, 3)
        finally:
            api.call("STREAM.DELETE.WEBPAGE", None, "WEBPAGE")

    def test_a_server_that_is_away_is_said_and_the_last_state_stays(self) -> None:
        part = ServerPart(NatsSettings("nats://127.0.0.1:1"), every_s=0.1)
        with serve_parts(Parts(servers=[part])) as client:
            assert client.send("GET", "/readyz").status == 503
            assert "cannot be read" in client.get("/").text
            assert client.get("/streams").status == 200


class TestJournals:
    def test_segments_offsets_and_records_are_shown_beside_the_writer(self, tmp_path: Path) -> None:
        with Journal.open(tmp_path / "log", JournalConfig(segment_bytes_max=64 * 1024)) as journal:
            for number in range(4):
                journal.append([b"record %d of %d <b>" % (index, number) + b"x" * 40_000 for index in range(3)])
            with serve_parts(Parts(journals=[JournalPart(tmp_path / "log")])) as client:
                text = client.get("/journals/0?offset=4").text
                assert "record 1 of 1 &lt;b&gt;" in text
                assert "Durable offset" in text
                assert text.count(".journal</code>") > 1
                assert "<b>" not in text
                for bad in ("99", "x", "-1"):
                    assert 'role="alert"' in client.get(f"/journals/0?offset={bad}").text
                assert client.get("/journals/7").status == 404

    def test_damage_needs_a_person(self, tmp_path: Path) -> None:
        with Journal.open(tmp_path / "log") as journal:
            journal.append([b"a" * 1000])
            journal.append([b"b" * 1000])
        [segment] = (tmp_path / "log").glob("*.journal")
        segment.write_bytes(segment.read_bytes()[:600])
        part = JournalPart(tmp_path / "log")
        part.step()
        part.step()
        assert [need.is_urgent for need in part.needs("/")] == [True]
        segment.unlink()
        (tmp_path / "gone").mkdir()
        missing = JournalPart(tmp_path / "gone")
        missing.step()
        assert "no journal" in (missing.problem or "")

    def test_groups_and_dead_letters_of_a_queue_are_shown_while_it_is_open(self, tmp_path: Path) -> None:
        with Queue.open(tmp_path / "queue", QueueConfig(deliveries_max=1)) as queue:
            queue.put_many([b"poison <i>", b"good"])
            for job in queue.take("workers", wait_s=0):
                if job.offset:
                    job.ack()
                else:
                    job.nack()
            part = JournalPart(tmp_path / "queue")
            with serve_parts(Parts(journals=[part])) as client:
                text = client.get("/journals/0").text
                assert "workers" in text
                assert "poison &lt;i&gt;" in text
                assert "1 dead letters are in" in client.get("/").text


class TestFolds:
    def test_cursor_lag_and_a_key_are_shown(self, nats_server: NatsServer, api: JetStreamApi, tmp_path: Path) -> None:
        config = {"name": "KV_webfold", "subjects": ["$KV.webfold.>"], "max_msgs_per_subject": 1}
        more = {"allow_rollup_hdrs": True, "deny_delete": True, "discard": "new", "allow_direct": True}
        api.call("STREAM.CREATE.KV_webfold", {**config, **more}, "KV_webfold")
        try:
            publish(api, "$KV.webfold.gold", json.dumps({"price": 7}).encode())
            address, path = f"{nats_server.url}/webfold", tmp_path / "gold.fold"
            with follow(address, path) as fold:
                eventually(lambda: fold.get("gold"), "the fold has the key")
            publish(api, "$KV.webfold.gold", b"8")
            with serve_parts(Parts(folds=[FoldPart(path, address)])) as client:
                assert "Last repair" in client.get("/folds/0").text
                assert "Last repaired because" not in client.get("/folds/0").text
            recorder = RepairRecorder(path)
            recorder(RepairBegan(RepairPlan.RELIST, "updates <were> missed"))
            recorder(RepairEnded(RepairPlan.RELIST, 0, 12, 0.5))
            with serve_parts(Parts(folds=[FoldPart(path, address)])) as client:
                text = client.get("/folds/0?key=gold").text
                assert "&#34;price&#34;: 7" in text
                assert "There is no such key" in client.get("/folds/0?key=lead").text
                assert "it is 1 revisions behind" in client.get("/").text
                assert "A watch that starts now would" in text
                assert "relist, 0 put, 12 deleted" in text
                assert "Last repaired because updates &lt;were&gt; missed" in text
        finally:
            api.call("STREAM.DELETE.KV_webfold", None, "KV_webfold")


class TestReplicas:
    def test_an_empty_one_and_a_missing_one_are_told_apart(self, tmp_path: Path) -> None:
        (tmp_path / "replica").mkdir()
        with serve_parts(Parts(replicas=[ReplicaPart(f"file://{tmp_path}/replica")])) as client:
            assert "empty" in client.get("/replicas").text
            assert "No node ever led" in client.get("/replicas/0").text


def test_pages_without_parts_say_how_to_add_them() -> None:
    with serve_parts(Parts()) as client:
        for path, option in (("/streams", "--server"), ("/journals", "--journal"), ("/folds", "--fold")):
            assert option in client.get(path).text
        assert "--replica" in client.get("/replicas").text
        assert "--state" in client.get("/findings").text


def test_a_part_that_fails_keeps_what_it_showed(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "log") as journal:
        journal.append([b"a"])
    part = JournalPart(tmp_path / "log")
    assert part.step()
    known = part.value

    def fail() -> None:
        raise Unavailable("the disk is away")

    part._read = fail  # type: ignore[assignment]  # noqa: SLF001 - the store goes away
    assert part.step()
    assert (part.value, part.problem) == (known, "the disk is away")
    assert not part.step()
