"""The sink on a real server: every commit once, whatever was cut short, replayed, taken over or lost."""

import base64
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.errors import Damaged, FormatError, InvalidInput, RecordTooLarge
from strandline.nats.errors import ServerRefused, StreamFull
from strandline.nats.streams import parse_header_values
from strandline.spark.sink import Commit, PendingCommit, StagedFile, commit_rows, drop_staged, staging
from strandline.spark.streams import SinkUnsure, Target, read_stream
from strandline.spark.streams import publisher as publisher_module
from strandline.spark.streams.options import SINK_BUCKET, parse_publish_options
from strandline.spark.streams.publisher import Publisher, Window
from strandline.spark.streams.pull_consumer import Session
from strandline.spark.streams.sink import StreamLog, StreamSink
from strandline.spark.streams.sink_state import Entry, SinkStates, format_entry, key_of, parse_entry
from strandline.wire import format_headers
from tests.servers_nats import NatsServer, running_nats
from tests.spark.streams.helpers import ServerLog
from tests.waiting import eventually

COMMIT = Commit("query/one", 0)
Staging = Callable[..., list[StagedFile]]


class Killed(BaseException):
    """Stands for the death of the process."""


def sink_of(world: ServerLog) -> StreamSink:
    options = {**world.options, "checkpointLocation": "/none"}
    return StreamSink(parse_publish_options(options, world.target.kind, is_stream=True))


def stage(folder: Path, sink: StreamSink, batches: Sequence[pa.RecordBatch]) -> StagedFile:
    return staging.stage(folder, batches, sink.staged_schema(batches[0].schema), sink.convert)


def rows(world: ServerLog, begin: int, end: int, *, keys: int = 3) -> pa.RecordBatch:
    numbers = range(begin, end)
    if world.target.kind == "bucket":
        columns = {"key": [f"k{number % keys}" for number in numbers], "value": [b"%d" % number for number in numbers]}
    else:
        columns = {"subject": [f"{world.name}.x"] * len(numbers), "data": [b"%d" % number for number in numbers]}
    return pa.RecordBatch.from_pydict(columns)


def staged(world: ServerLog, folder: Path, begin: int, end: int, *, keys: int = 3) -> list[StagedFile]:
    """Stage rows as two tasks would."""
    middle = (begin + end) // 2
    sink = sink_of(world)
    parts = [rows(world, begin, middle, keys=keys), rows(world, middle, end, keys=keys)]
    return [stage(folder, sink, [part]) for part in parts]


def texts(begin: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(begin, end)]


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_module, "WINDOW_ROWS", 10)


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the sink die after so many windows, or in the middle of the next one."""

    def arrange(after: int, *, rows_of_next: Sequence[int] = ()) -> None:
        form, send, sent = Publisher.format, Publisher.send, [0]
        held: list[Window] = []

        def formatted(publisher: Publisher, window: Window, chosen: Sequence[int]) -> bytes:
            held.append(window)
            return form(publisher, window, chosen)

        def sending(publisher: Publisher, frames: bytes, count: int) -> None:
            if sent[0] == after:
                if rows_of_next:
                    send(publisher, form(publisher, held[-1], rows_of_next), len(rows_of_next))
                    publisher.collect()
                raise Killed
            sent[0] += 1
            send(publisher, frames, count)

        monkeypatch.setattr(Publisher, "format", formatted)
        monkeypatch.setattr(Publisher, "send", sending)

    return arrange


def test_a_commit_publishes_its_rows_in_order_and_once(stream: ServerLog, tmp_path: Path) -> None:
    sink = sink_of(stream)
    for number in range(3):
        files = staged(stream, tmp_path, 50 * number, 50 * number + 50)
        commit_rows(sink, Commit("query/one", number), files)
        commit_rows(sink, Commit("query/one", number), files)
    assert stream.datas() == texts(0, 150)


def test_nothing_is_published_for_a_commit_without_rows(stream: ServerLog, tmp_path: Path) -> None:
    commit_rows(sink_of(stream), COMMIT, [])
    commit_rows(sink_of(stream), COMMIT, staged(stream, tmp_path, 0, 0))
    assert stream.state().messages == 0


def test_writers_do_not_disturb_each_other(stream: ServerLog, tmp_path: Path) -> None:
    commit_rows(sink_of(stream), Commit("query/one", 0), staged(stream, tmp_path, 0, 20))
    commit_rows(sink_of(stream), Commit("query/two", 0), staged(stream, tmp_path, 20, 40))
    commit_rows(sink_of(stream), Commit("commit/a b ü", 0), staged(stream, tmp_path, 40, 60))
    assert stream.datas() == texts(0, 60)


@pytest.mark.parametrize(("after", "rows_of_next"), [(0, ()), (1, ()), (3, ()), (3, (0, 1, 2)), (3, (1, 4, 9))])
def test_a_commit_that_was_cut_short_is_finished_and_each_row_is_there_once(
    stream: ServerLog,
    tmp_path: Path,
    dying: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    after: int,
    rows_of_next: tuple[int, ...],
) -> None:
    files = staged(stream, tmp_path, 0, 100)
    dying(after, rows_of_next=rows_of_next)
    with pytest.raises(Killed):
        commit_rows(sink_of(stream), COMMIT, files)
    monkeypatch.undo()
    monkeypatch.setattr(
        publisher_module, "WINDOW_ROWS", 7
    )  # a later version may have another: the intent says what this one had
    _forget_ids(stream)
    again = staged(stream, tmp_path / "again", 0, 100)
    commit_rows(sink_of(stream), COMMIT, again)
    assert sorted(stream.datas(), key=int) == texts(0, 100)
    if not rows_of_next:
        assert stream.datas() == texts(0, 100)


def _forget_ids(world: ServerLog) -> None:
    """Let the server forget the ids of messages, as it does when the duplicate window is over: the last one last."""
    last = world.state().last
    if last:
        message = world.ask(f"STREAM.MSG.GET.{world.name}", {"seq": last})["message"]
        known = parse_header_values(base64.b64decode(message["hdrs"]))["Nats-Msg-Id"]
        world.update(duplicate_window=10**8)
        eventually(lambda: not _remembers(world, message["subject"], known), "it is forgotten")
        world.update(duplicate_window=120 * 10**9)


def _remembers(world: ServerLog, subject: str, known: str) -> bool:
    """Tell whether the server knows an id: it looks at that before the last one, for which it takes no message."""
    headers = format_headers([("Nats-Msg-Id", known), ("Nats-Expected-Last-Msg-Id", "never published")])
    answer = json.loads(world.socket.request(subject, b"", headers).payload)
    assert "duplicate" in answer or "error" in answer, answer
    return "duplicate" in answer


def test_the_ids_are_forgotten_in_these_tests(stream: ServerLog) -> None:
    """Without this, tests of what happens after the duplicate window would prove nothing."""
    for _ in range(2):
        stream.publish("x", b"1", [("Nats-Msg-Id", "a")])
    assert stream.state().messages == 1
    _forget_ids(stream)
    stream.publish("x", b"1", [("Nats-Msg-Id", "a")])
    assert stream.state().messages == 2


def test_rows_of_a_cut_commit_are_taken_from_what_it_staged_though_the_replay_is_cut_otherwise(
    stream: ServerLog, tmp_path: Path, dying: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    dying(3)
    with pytest.raises(Killed):
        commit_rows(sink_of(stream), COMMIT, staged(stream, tmp_path, 0, 100))
    monkeypatch.undo()
    sink = sink_of(stream)
    other = [stage(tmp_path / "again", sink, [rows(stream, at, at + 20)]) for at in range(0, 100, 20)]
    commit_rows(sink, COMMIT, other)
    assert stream.datas() == texts(0, 100)


def test_a_cut_commit_whose_staged_rows_are_gone_is_finished_from_its_replay_or_refused(
    stream: ServerLog, tmp_path: Path, dying: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = staged(stream, tmp_path, 0, 100)
    dying(3)
    with pytest.raises(Killed):
        commit_rows(sink_of(stream), COMMIT, files)
    monkeypatch.undo()
    for file in files:
        file.path.unlink()
    with pytest.raises(SinkUnsure, match="was cut short") as refusal:
        commit_rows(sink_of(stream), COMMIT, staged(stream, tmp_path, 0, 99))
    assert SINK_BUCKET in str(refusal.value.hint)
    commit_rows(sink_of(stream), COMMIT, staged(stream, tmp_path, 0, 100))
    assert stream.datas() == texts(0, 100)


def test_a_cut_commit_is_finished_before_the_next_one(
    stream: ServerLog, tmp_path: Path, dying: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    dying(2)
    with pytest.raises(Killed):
        commit_rows(sink_of(stream), COMMIT, staged(stream, tmp_path, 0, 50))
    monkeypatch.undo()
    commit_rows(sink_of(stream), Commit("query/one", 1), staged(stream, tmp_path, 50, 100))
    assert stream.datas() == texts(0, 100)


def test_a_replay_with_other_rows_or_an_older_number_is_refused(stream: ServerLog, tmp_path: Path) -> None:
    sink = sink_of(stream)
    commit_rows(sink, Commit("query/one", 4), staged(stream, tmp_path, 0, 10))
    for number, end in ((4, 11), (3, 10)):
        with pytest.raises(SinkUnsure, match="comes again with number"):
            commit_rows(sink, Commit("query/one", number), staged(stream, tmp_path, 0, end))
    assert stream.datas() == texts(0, 10)


def test_a_commit_that_was_taken_over_stops_before_its_next_window(
    stream: ServerLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that was given up for dead comes back in the middle of its commit, long after."""
    send, now, sent = Publisher.send, [0.0], [0]
    files = staged(stream, tmp_path, 0, 100)

    def slow(publisher: Publisher, frames: bytes, count: int) -> None:
        send(publisher, frames, count)
        sent[0] += 1
        if sent[0] == 3:
            monkeypatch.setattr(Publisher, "send", send)
            commit_rows(sink_of(stream), COMMIT, files)
            _forget_ids(stream)
            now[0] += 1000

    monkeypatch.setattr(Publisher, "send", slow)
    monkeypatch.setattr("strandline.spark.streams.sink.time.monotonic", lambda: now[0])
    with pytest.raises(SinkUnsure, match="another process has taken over"):
        commit_rows(sink_of(stream), COMMIT, files)
    assert stream.datas() == texts(0, 100)


def test_two_commits_of_one_writer_at_a_time_are_told(stream: ServerLog, tmp_path: Path) -> None:
    key = key_of(stream.name, COMMIT.writer)
    with Session(stream.settings, stream.name, "stream") as session:
        states = SinkStates(session, SINK_BUCKET, 1)
        entry = Entry(stream.state().created, 0, 1, 1, 1, 2, 10)
        first = states.write(key, entry, 0)
        assert states.read(key) == (entry, first)
        second = states.write(key, entry._replace(number=1), first)
        late = StreamLog(session, sink_of(stream).options, "query/one")
        states.write(key, entry._replace(number=2), second)
        files = tuple(file.path for file in staged(stream, tmp_path, 0, 10))
        with pytest.raises(SinkUnsure, match="another commit of query/one is at work"):
            late.begin(PendingCommit(Commit("query/one", 2), 10, 10, files))
    assert stream.state().messages == 0


def test_a_stream_that_was_made_again_is_not_written_from_an_old_checkpoint(stream: ServerLog, tmp_path: Path) -> None:
    commit_rows(sink_of(stream), COMMIT, staged(stream, tmp_path, 0, 10))
    stream.make_again()
    with pytest.raises(FormatError, match="is of another stream") as refusal:
        commit_rows(sink_of(stream), Commit("query/one", 1), staged(stream, tmp_path, 10, 20))
    assert SINK_BUCKET in str(refusal.value.hint)


def test_a_cut_commit_whose_place_was_evicted_is_unsure(
    stream: ServerLog, tmp_path: Path, dying: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    dying(3)
    with pytest.raises(Killed):
        commit_rows(sink_of(stream), COMMIT, staged(stream, tmp_path, 0, 100))
    monkeypatch.undo()
    stream.purge(below=5)
    with pytest.raises(SinkUnsure, match="is partly gone"):
        commit_rows(sink_of(stream), COMMIT, staged(stream, tmp_path, 0, 100))


def test_rows_of_one_key_stay_in_order_in_a_bucket_that_keeps_one_value(
    bucket: ServerLog, tmp_path: Path, dying: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that later ones pushed out are not found when a cut commit is looked up, and must not come back."""
    dying(7)
    with pytest.raises(Killed):
        commit_rows(sink_of(bucket), COMMIT, staged(bucket, tmp_path, 0, 60, keys=3))
    monkeypatch.undo()
    _forget_ids(bucket)
    assert bucket.state().last == 19, "a window has ten rows at most, and no key twice"
    commit_rows(sink_of(bucket), COMMIT, staged(bucket, tmp_path / "again", 0, 60, keys=3))
    assert sorted(bucket.datas(), key=int) == [b"57", b"58", b"59"]
    assert bucket.state().last == 60, "every row was published once"


def test_what_the_stream_would_not_take_is_refused_before_anything_is_published(
    stream: ServerLog, nats_server: NatsServer, nats_bucket: str, tmp_path: Path
) -> None:
    sink = sink_of(stream)
    elsewhere = pa.RecordBatch.from_pydict({"subject": [f"{stream.name}.x", "other.x"], "data": [b"1", b"2"]})
    with pytest.raises(InvalidInput, match=r"subject other.x is not one of stream"):
        commit_rows(sink, COMMIT, [stage(tmp_path, sink, [elsewhere])])
    large = pa.RecordBatch.from_pydict({"subject": [f"{stream.name}.x"] * 2, "data": [b"1", b"2" * 1_048_576]})
    with pytest.raises(RecordTooLarge):
        commit_rows(sink, COMMIT, [stage(tmp_path, sink, [large])])
    assert stream.state().messages == 0
    with (
        ServerLog(nats_server.url, Target("stream", f"{nats_bucket}-s"), duplicate_window=10**9) as short,
        pytest.raises(InvalidInput, match="remembers ids of messages for 1 s only"),
    ):
        commit_rows(sink_of(short), COMMIT, staged(short, tmp_path, 0, 10))


def test_a_stream_that_is_full_refuses_by_its_code_and_the_commit_is_finished_later(
    nats_server: NatsServer, nats_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, sent = Publisher.send, []

    def sending(publisher: Publisher, frames: bytes, count: int) -> None:
        sent.append(count)
        send(publisher, frames, count)

    monkeypatch.setattr(Publisher, "send", sending)
    with ServerLog(nats_server.url, Target("stream", nats_bucket), max_msgs=25, discard="new") as world:
        with pytest.raises(StreamFull):
            commit_rows(sink_of(world), COMMIT, staged(world, tmp_path, 0, 50))
        assert world.state().messages == 25
        assert sent == [10, 10, 5, 10], "no window is sent behind one that was refused"
        world.update(max_msgs=1000)
        commit_rows(sink_of(world), COMMIT, staged(world, tmp_path, 0, 50))
        assert world.datas() == texts(0, 50)


def test_values_of_a_mebibyte_less_the_headers_are_published(stream: ServerLog, tmp_path: Path) -> None:
    sink = sink_of(stream)
    data = [bytes([number]) * 1_000_000 for number in range(12)]
    batch = pa.RecordBatch.from_pydict({"subject": [f"{stream.name}.x"] * 12, "data": data})
    commit_rows(sink, COMMIT, [stage(tmp_path, sink, [batch])])
    read = read_stream(stream.settings, stream.target, ["data"])
    assert [value for part in read for value in part.column(0).to_pylist()] == data


def test_staged_rows_that_an_intent_needs_are_kept(
    stream: ServerLog, tmp_path: Path, dying: Callable[..., None]
) -> None:
    files = staged(stream, tmp_path / "a", 0, 100)
    dying(3)
    with pytest.raises(Killed):
        commit_rows(sink_of(stream), COMMIT, files)
    drop_staged(sink_of(stream), COMMIT, [tmp_path / "a"])
    assert all(file.path.exists() for file in files)
    drop_staged(sink_of(stream), Commit("query/two", 0), [tmp_path / "a"])
    assert not any(file.path.exists() for file in files)


def test_a_writer_that_will_not_come_again_is_forgotten(stream: ServerLog, tmp_path: Path) -> None:
    commit_rows(sink_of(stream), Commit("write/x", 0), staged(stream, tmp_path, 0, 10))
    with Session(stream.settings, stream.name, "stream") as session:
        assert SinkStates(session, SINK_BUCKET, 1).read(key_of(stream.name, "write/x"))[0] is None


def test_an_entry_is_read_back_and_a_damaged_or_later_one_is_refused() -> None:
    entry = Entry("2026Z", 3, 4, 5, 6, None, 8, ("a", "b"))
    assert parse_entry(format_entry(entry), "k") == entry
    with pytest.raises(FormatError, match="sink version 2"):
        parse_entry(json.dumps({"version": 2}).encode(), "k")
    for data in (b"", b"[]", b"{}", b'{"version": 1}', format_entry(entry)[:-5]):
        with pytest.raises(Damaged):
            parse_entry(data, "k")


def test_keys_of_writers_are_such_as_every_client_takes() -> None:
    assert key_of("ORDERS", "query/97d8-1") == "ORDERS.query/97d8-1"
    for key in (key_of("Ö!", "query/x"), key_of("S", "commit/a b ü")):
        assert set(key) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=/.")


def test_no_stream_at_a_subject_is_told(nats_bucket: str) -> None:
    with running_nats() as server, ServerLog(server.url, Target("stream", nats_bucket)) as world:
        publisher = Publisher(world.socket, world.name, "id-")
        publisher.send(publisher.format(Window(0, [b"nobody.listens"], [b""], [b"x"]), [0]), 1)
        with pytest.raises(ServerRefused):
            publisher.collect()
        window = Window(0, [f"{world.name}.x".encode()], [b""], [base64.b64encode(b"x")])
        publisher.send(publisher.format(window, [0]), 1)
        publisher.collect()
        assert world.state().messages == 1
