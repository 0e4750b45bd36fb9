"""Whatever a client writes into its headers: it is stored or refused, and the stream is what its log says."""

import json

import pytest

from strandline.broker.api.config import Storage
from strandline.broker.streams import OriginBatch, headers, index
from strandline.errors import Poisoned, StrandlineError
from strandline.journal import SYNCED
from tests.broker.streams.helpers import SECOND, Kept, words

LONG = "1" * 5_000
DEEP = "[" * 60_000
NASTY = (
    LONG,
    "-" + LONG,
    "+" + LONG,
    DEEP,
    "",
    "-1",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036s",
    "9223372036854775807ns",
    LONG + "s",
    "0." + LONG + "s",
    "a.>.b",
    "..",
    ">",
    "@every " + LONG + "s",
    "@every 2562047h",
    "@at 9999-12-31T23:59:59-23:59",
    "@at 0001-01-01T00:00:00Z",
    "* * * 30 2 *",
    "\udcff",
    "\0",
    "America",
    "../../etc/passwd",
    "x" * 300,
    "purge",
    "sub",
    "all",
    "eob",
)
NAMES = sorted(
    value.decode() for name, value in vars(headers).items() if name.isupper() and isinstance(value, bytes) and value
)
OPTIONS: tuple[dict[str, object], ...] = (
    {"allow_msg_ttl": True, "allow_atomic": True, "allow_rollup_hdrs": True},
    {"allow_msg_counter": True},
    {"allow_msg_schedules": True, "allow_msg_ttl": True},
    {"allow_msg_ttl": True, "subject_delete_marker_ttl": 2**63 - 1},
)
NEEDED = {
    "Nats-Schedule": {"Nats-Schedule-Target": "s.target"},
    "Nats-Schedule-Time-Zone": {"Nats-Schedule": "0 0 * * * *", "Nats-Schedule-Target": "s.target"},
    "Nats-Schedule-Next": {"Nats-Scheduler": "s.plan"},
    "Nats-Batch-Sequence": {"Nats-Batch-Id": "b"},
    "Nats-Batch-Commit": {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1"},
    "Nats-Counter-Sources": {"Nats-Incr": "1"},
}


@pytest.mark.parametrize("options", OPTIONS)
def test_no_header_breaks_a_stream(options: dict[str, object]) -> None:
    kept = Kept(SYNCED, **options)
    plain = {"Nats-Incr": "1"} if "allow_msg_counter" in options else {}
    payload = "" if plain else "x"
    for name in NAMES:
        for value in NASTY:
            kept.publish(("s.a", payload, {**plain, **NEEDED.get(name, {}), name: value}))
            kept.publish(("s.a", payload, plain))
    kept.clock.advance(1)
    kept.stream.expire(kept.clock.now_ns())
    before = kept.held()
    kept.reopen(proper=False)
    assert kept.held() == before
    assert kept.stream.last_seq == kept.publish(("s.b", payload, plain)).sequences[0] - 1


@pytest.mark.parametrize("options", OPTIONS)
def test_no_header_of_an_origin_breaks_a_stream(options: dict[str, object]) -> None:
    kept = Kept(SYNCED, **options)
    sequence = 0
    for name in NAMES:
        for value in NASTY:
            source = "Nats-Stream-Source: O 1 > > s.a"
            lines = {**NEEDED.get(name, {}), name: value}
            block = "NATS/1.0\r\n" + source + "".join(f"\r\n{key}: {text}" for key, text in lines.items()) + "\r\n\r\n"
            sequence += 1
            batch = OriginBatch(
                words(sequence),
                words(kept.clock.now_ns()).astype("i8"),
                [b"s.a"],
                [block.encode(errors="surrogateescape")],
                [b'{"val":"1"}'],
                b"O",
            )
            kept.stream.copy(batch, kept.clock.now_ns())
    before = kept.held()
    kept.reopen(proper=False)
    assert kept.held() == before


@pytest.mark.parametrize("payload", [DEEP, '{"val":1e999}', f'{{"val":"{"9" * 4_300}"}}', '{"val":[]}', "[]", ""])
def test_a_counter_that_cannot_be_read_is_told_as_broken(payload: str) -> None:
    kept = Kept(allow_msg_counter=True)
    kept.stream.store(words(1), words(1).astype("i8"), [b"s.a"], [b""], [payload.encode()])
    answer = json.loads(kept.publish(("s.a", "", {"Nats-Incr": "1"})).answers[0])
    assert answer["error"]["err_code"] == 10172
    assert kept.publish(("s.b", "", {"Nats-Incr": "1"})).sequences.tolist() == [2]


def test_counters_are_larger_than_any_machine_word() -> None:
    kept = Kept(allow_msg_counter=True)
    for _ in range(2):
        answer = kept.publish(("s.a", "", {"Nats-Incr": "9" * 100})).answers[0]
    assert json.loads(answer)["val"] == str(2 * int("9" * 100))


def test_a_time_to_live_of_centuries_is_kept_as_one_that_can_be_counted() -> None:
    kept = Kept(allow_msg_ttl=True)
    published = kept.publish(("s.a", "1", {"Nats-TTL": "9223372036s"}), ("s.a", "2", {"Nats-TTL": "1s"}))
    assert published.sequences.tolist() == [1, 2]
    kept.clock.advance(2)
    kept.stream.expire(kept.clock.now_ns())
    assert kept.sequences() == [1]
    assert kept.reopen().next_expiry_ns is not None
    assert kept.sequences() == [1]


@pytest.mark.parametrize("storage", [Storage.FILE, Storage.MEMORY])
def test_whatever_goes_wrong_amid_a_change_nothing_more_is_accepted(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(storage=storage)
    kept.publish(("s.a", "1"))
    with monkeypatch.context() as patched:
        patched.setattr(index.Index, "remove", _fail)
        with pytest.raises(Poisoned, match="the unexpected"):
            kept.stream.delete(1)
    for change in (
        lambda: kept.publish(("s.a", "2")),
        lambda: kept.stream.delete(1),
        lambda: kept.stream.expire(SECOND),
        lambda: kept.stream.skip(9),
        lambda: kept.stream.update(kept.stream.config, 1),
        lambda: kept.stream.store(words(9), words(1).astype("i8"), [b"s.a"], [b""], [b""]),
    ):
        with pytest.raises(StrandlineError):
            change()
    if storage is Storage.FILE:
        kept.reopen()
        assert kept.held() == [(1, "s.a", "1")]
        assert kept.publish(("s.a", "2")).sequences.tolist() == [2]


def _fail(*_: object) -> None:
    raise RuntimeError("the unexpected")


def test_who_listens_and_fails_does_not_break_the_stream() -> None:
    kept, told = Kept(max_msgs=1), []
    kept.stream.add_listener(_fail)
    kept.stream.add_listener(lambda removed: told.extend(removed.sequences.tolist()))
    kept.publish(("s.a", "1"))
    assert kept.publish(("s.a", "2")).sequences.tolist() == [2]
    assert told == [1]
