"""Batches hand out columns that agree with their rows; ack subjects, headers and subjects are read as NATS has them."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strandline.errors import InvalidInput
from strandline.wire import (
    NO_HEADERS,
    Ack,
    FrameParser,
    Headers,
    InvalidSubject,
    MalformedHeaders,
    Op,
    Side,
    format_ack,
    format_headers,
    format_msgs,
    format_pubs,
    has_wildcard,
    matcher,
    parse_ack,
    parse_acks,
    parse_headers,
    pattern_covers,
    patterns_overlap,
    subject_matches,
    validate_subject,
)
from strandline.wire.columns import decimals
from tests.effort import examples

COUNT = 200
MESSAGES = [
    (
        b"$KV.b.k%d" % n,
        n,
        b"$JS.ACK.KV_b.c.1.%d.%d.1794724724829917591.%d" % (n + 10, n + 1, COUNT - n),
        b"",
        b"v%d" % n,
    )
    for n in range(COUNT)
]
STREAM = format_msgs(MESSAGES[:100]) + b"PING\r\n" + format_msgs(MESSAGES[100:])


def test_columns_of_a_batch_are_those_of_its_frames() -> None:
    batch = FrameParser(Side.SERVER).feed(STREAM)
    assert len(batch) == COUNT + 1
    assert [frame.op for frame in batch.others()] == [Op.PING]
    batch = batch.messages()
    assert batch.subjects() == [message[0].decode() for message in MESSAGES]
    assert batch.subjects(len("$KV.b.")) == [f"k{n}" for n in range(COUNT)]
    assert batch.subject_array(6).to_pylist() == [b"k%d" % n for n in range(COUNT)]
    assert batch.sids().tolist() == list(range(COUNT))
    assert batch.payloads() == batch.payload_array().to_pylist()
    assert batch.replies() == [message[2] for message in MESSAGES]
    acks = batch.acks()
    assert acks.known.all()
    assert acks.stream_sequence.tolist() == list(range(10, COUNT + 10))
    assert acks.consumer_sequence.tolist() == list(range(1, COUNT + 1))
    assert acks.pending.tolist() == list(range(COUNT, 0, -1))
    assert set(acks.timestamp_ns.tolist()) == {1794724724829917591}
    assert bytes(batch[7].payload) == b"v7"
    timeless = batch.acks(times=False)
    assert not timeless.timestamp_ns.any()
    assert (timeless.stream_sequence == acks.stream_sequence).all()


def test_subjects_of_any_bytes_survive_a_round_trip() -> None:
    raw = [b"a.\xff\xfe", "k.é".encode(), b"x"]
    data = format_msgs([(subject, 1, b"", b"", b"") for subject in raw]) + b"MSG\tt\t1\t0\r\n\r\n"
    texts = FrameParser(Side.SERVER).feed(data).subjects()
    assert [text.encode(errors="surrogateescape") for text in texts] == [*raw, b"t"]


def test_an_empty_batch_has_empty_columns() -> None:
    batch = FrameParser(Side.SERVER).feed(b"MS")
    assert not len(batch)
    assert not batch.subjects()
    assert not batch.payloads()
    assert not list(batch)
    assert not len(batch.acks().known)
    assert not len(batch.payload_array())


def test_headers_of_a_frame_are_parsed_when_asked_for() -> None:
    block = format_headers([("Nats-Last-Consumer", "5")], status=100, description="Idle Heartbeat")
    batch = FrameParser(Side.SERVER).feed(format_msgs([(b"a", 1, b"", block, b""), (b"a", 1, b"", b"", b"x")]))
    assert batch.with_headers().tolist() == [True, False]
    assert batch.headers(0) == Headers(100, "Idle Heartbeat", (("Nats-Last-Consumer", "5"),))
    assert batch.headers(1) == NO_HEADERS


@pytest.mark.parametrize(
    "status", [(100, "FlowControl Request"), (404, "No Messages"), (408, ""), (409, "Consumer Deleted"), (503, "")]
)
def test_status_lines_are_read_as_they_were_written(status: tuple[int, str]) -> None:
    block = format_headers(status=status[0], description=status[1])
    assert parse_headers(block)[:2] == status


def test_headers_keep_case_order_and_repeats() -> None:
    pairs = (("K", "1"), ("k", "2"), ("K", "a: b"))
    headers = parse_headers(format_headers(pairs))
    assert headers.pairs == pairs
    assert headers.get("K") == "1"
    assert headers.get_all("K") == ["1", "a: b"]
    assert headers.get("absent") is None
    assert parse_headers(b"NATS/1.0\r\nA:b\r\n\r\n").pairs == (("A", "b"),)
    assert parse_headers(b"NATS/1.0 503\r\nNats-Subject: a.b\r\n\r\n") == Headers(503, "", (("Nats-Subject", "a.b"),))


@pytest.mark.parametrize(
    "block",
    [b"NATS/2.0\r\n\r\n", b"NATS/1.0\r\n", b"NATS/1.0\r\nnocolon\r\n\r\n", b"NATS/1.0 x\r\n\r\n", b"NATS/1.00\r\n\r\n"],
)
def test_malformed_headers_are_refused(block: bytes) -> None:
    with pytest.raises(MalformedHeaders):
        parse_headers(block)


@pytest.mark.parametrize("pair", [("a:b", "c"), ("", "c"), ("a", "b\r\nc: d"), ("a\n", "b"), ("a", "b\rc")])
def test_headers_that_would_break_a_line_are_not_written(pair: tuple[str, str]) -> None:
    with pytest.raises(InvalidInput):
        format_headers([pair])


LONG = b"$JS.ACK._.acc.S.C.1.2.3.4.5"
ODD_ACKS = [
    b"$JS.ACK.S.C.1.2.3.4",
    b"$JS.ACK.a.S.C.1.2.3.4.5",
    b"$JS.NAK.S.C.1.2.3.4.5",
    b"$JS.ACK.S.C.1.x.3.4.5",
    b"$JS.ACK.S.C.1..3.4.5",
    b"$JS.ACK.S.C.1.2.3.4.5.",
    b"$JS.ACK.S.C.1.2.3.4.99999999999999999999",
    b"a",
    b"",
    b"$JS.ACK.",
    b"$JS.ACK.S.C.1.2.3.4.-5",
]


def test_ack_subjects_of_both_forms_are_read() -> None:
    assert parse_ack(b"$JS.ACK.S1.D1.1.2.1.1794724724829917591.5") == Ack(1, 2, 1, 1794724724829917591, 5)
    assert parse_ack(LONG) == parse_ack(LONG + b".token") == parse_ack(LONG + b".more.tokens") == Ack(1, 2, 3, 4, 5)
    assert parse_ack(format_ack("S", "C", Ack(1, 2, 3, 4, 5)).encode()) == Ack(1, 2, 3, 4, 5)
    assert not any(map(parse_ack, ODD_ACKS))


numbers = st.one_of(st.integers(0, 2**64), st.integers(0, 99)).map(lambda number: b"%d" % number)
words = st.sampled_from([b"S", b"a-long-name", b"_", b"", b"x1"])
ack_like = st.one_of(
    st.sampled_from([*ODD_ACKS, LONG, LONG + b".t"]),
    st.lists(st.one_of(numbers, words), min_size=4, max_size=10).map(lambda tokens: b"$JS.ACK." + b".".join(tokens)),
    st.lists(numbers, min_size=5, max_size=5).map(lambda tokens: b"$JS.ACK.S.C." + b".".join(tokens)),
)


@examples(100)
@given(st.lists(ack_like, max_size=8))
@example([b"$JS.ACK.S.C.1.2.3.4", b"$JS.ACK.a.S.C.1.2.3.4.5"])
def test_many_ack_subjects_are_read_as_each_by_itself(subjects: list[bytes]) -> None:
    data = b" ".join(subjects) + b" "
    ends = np.cumsum([len(subject) + 1 for subject in subjects], dtype=np.int64) - 1
    starts = ends - np.array([len(subject) for subject in subjects], np.int64)
    columns = parse_acks(data, starts, ends)
    for number, subject in enumerate(subjects):
        row = [int(column[number]) for column in columns]
        ack = parse_ack(subject)
        assert row == ([0] * 6 if ack is None else [1, *ack]), subject


@given(
    st.lists(
        st.one_of(st.integers(0, 10**19 - 1).map(str), st.text("0123456789x/:-", max_size=21)), min_size=1, max_size=6
    )
)
def test_decimals_are_read_as_python_reads_them(texts: list[str]) -> None:
    data = (" " * 8 + " ".join(texts)).encode()
    lengths = np.array([len(text) for text in texts], np.int64)
    ends = 8 + np.cumsum(lengths + 1) - 1
    seen, known = decimals(data, ends, lengths)
    wanted = [int(text) if text.isdigit() and len(text) <= 19 else None for text in texts]
    assert [int(number) if fine else None for number, fine in zip(seen, known, strict=True)] == wanted


@pytest.mark.parametrize("subject", ["a", "a.b", "$KV.b.k", "a.b*", "a>b", "é.x"])
def test_subjects_without_wildcards_are_valid(subject: str) -> None:
    assert validate_subject(subject) == subject
    assert not has_wildcard(subject)


@pytest.mark.parametrize("subject", ["", ".", "a.", ".a", "a..b", "a b", "a\tb", "a\r\nb", "a\x00", ">.a", "a.>.b"])
def test_what_is_no_subject_is_refused(subject: str) -> None:
    with pytest.raises(InvalidSubject):
        validate_subject(subject, wildcards=True)


@pytest.mark.parametrize("subject", ["*", ">", "a.*", "a.>", "*.b"])
def test_wildcards_are_for_patterns_only(subject: str) -> None:
    assert validate_subject(subject, wildcards=True)
    assert has_wildcard(subject)
    with pytest.raises(InvalidSubject):
        validate_subject(subject)


MATCHES = {
    "a.b": ({"a.b"}, {"a", "a.b.c", "a.c"}),
    "a.*": ({"a.b", "a.c"}, {"a", "a.b.c", "b.a"}),
    "a.>": ({"a.b", "a.b.c"}, {"a", "a.", "ab.c"}),
    ">": ({"a", "a.b"}, set[str]()),
    "*.b.>": ({"x.b.c", "x.b.c.d"}, {"x.b", "x.c.d"}),
    "*.*": ({"a.b"}, {"a", "a.b.c"}),
}


@pytest.mark.parametrize("pattern", MATCHES)
def test_patterns_match_the_subjects_they_stand_for(pattern: str) -> None:
    inside, outside = MATCHES[pattern]
    assert all(subject_matches(pattern, subject) for subject in inside)
    assert not any(subject_matches(pattern, subject) for subject in outside)
    both = matcher(["no.such", pattern])
    assert all(map(both, inside))
    assert not any(map(both, outside))


TOKENS = ["a", "b", "*", ">"]
patterns = st.lists(st.sampled_from(TOKENS), min_size=1, max_size=3).map(".".join).filter(lambda p: ">" not in p[:-1])
SUBJECTS = [
    ".".join(tokens)
    for one in "ab"
    for tokens in [[one], *([one, b] for b in "ab"), *([one, b, c] for b in "ab" for c in "ab")]
]
SUBJECTS += [f"{subject}.{last}" for subject in SUBJECTS if subject.count(".") == 2 for last in "ab"]


@given(patterns, patterns)
def test_covering_and_overlap_agree_with_matching(one: str, other: str) -> None:
    ours = {subject for subject in SUBJECTS if subject_matches(one, subject)}
    theirs = {subject for subject in SUBJECTS if subject_matches(other, subject)}
    assert patterns_overlap(one, other) == patterns_overlap(other, one) == bool(ours & theirs)
    if pattern_covers(one, other):
        assert theirs <= ours
    elif "*" not in one and "*" not in other:
        assert not theirs <= ours


@pytest.mark.parametrize("count", [1, 3, 200])
def test_names_of_headers_and_ends_of_replies_are_found_in_any_row(count: int) -> None:
    plain, named = b"NATS/1.0\r\nA: b\r\n\r\n", b"NATS/1.0\r\nA: b\r\nNats-Name: c\r\n\r\n"
    for where in {0, count // 2, count - 1}:
        rows = [(b"s", b"in.$FI" if row == where else b"in.FI", plain, b"x") for row in range(count)]
        frames = FrameParser(Side.CLIENT).feed(format_pubs(rows))
        assert (frames.may_have_header(b"Nats-Name"), frames.replies_ending(b".$FI")) == (False, [where])
        rows[where] = (b"s", b"", named, b"x")
        frames = FrameParser(Side.CLIENT).feed(format_pubs(rows))
        assert (frames.may_have_header(b"Nats-Name"), frames.replies_ending(b".$FI")) == (True, [])
        assert frames.message_bytes() == sum(len(block) + 1 for _, _, block, _ in rows)
    without = FrameParser(Side.CLIENT).feed(format_pubs([(b"s", b"", b"", b"Nats-Name")] * count))
    assert (without.may_have_header(b"Nats-Name"), without.replies_ending(b".$FI")) == (False, [])
