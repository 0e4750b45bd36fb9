"""The same frames however the stream is split, and a typed error for what is none."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strandline.wire import (
    FrameParser,
    LineTooLong,
    MalformedFrame,
    Op,
    PayloadTooLarge,
    ProtocolViolation,
    Side,
    WireLimits,
    WrongArguments,
    batches,
    format_headers,
    format_msg,
    format_msgs,
    format_pub,
    lines,
    parser,
    uniform_frames,
)
from tests.effort import examples
from tests.wire.streams import FRAMES_OF, LIMITS, cut, read, read_one_by_one

ACK = b"$JS.ACK.KV_b.abc.1.22.333.1794724724829917591.5"
HEADERS = format_headers([("KV-Operation", "DEL")])
SERVER_STREAM = (
    b'INFO {"server_id":"N","max_payload":1048576}\r\n+OK\r\nPING\r\n'
    + format_msg(b"$KV.b.key", 1, b"value", ACK)
    + format_msg(b"a", 2, b"")
    + format_msg(b"a.b", 3, b"", ACK, HEADERS)
    + format_msg(b"a.b", 3, b"in\r\nMSG x 1 3\r\nabc\r\nside", b"", HEADERS)
    + b"-ERR 'Stale Connection'\r\nPONG\r\nmsg\ta  9   3\r\nxyz\r\n"
    + format_msg(b"last", 4, b"\r\n")
)
CLIENT_STREAM = (
    b'CONNECT {"verbose":false}\r\nPING\r\nPONG\r\n'
    + format_pub(b"orders.new", b"payload")
    + format_pub(b"orders.new", b"", b"_INBOX.x.1")
    + format_pub(b"orders.new", b"with\r\nPUB a 1\r\n", b"_INBOX.x.2", HEADERS)
    + b"SUB orders.> 1\r\nSUB orders.* workers 2\r\nUNSUB 1\r\nUNSUB 2 5\r\npub x 2\r\nab\r\n"
)
STREAMS = {Side.SERVER: SERVER_STREAM, Side.CLIENT: CLIENT_STREAM}


WAYS = ["frame by frame", "in columns", "by shape"]


@pytest.fixture(params=WAYS)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    choose_way(monkeypatch, request.param)


def choose_way(patch: pytest.MonkeyPatch, way: str) -> None:
    """Read small buffers by any way; how a stream is read must not show."""
    patch.setattr(parser, "BATCH_BYTES_MIN", 4 if way == "in columns" else 1 << 40)
    patch.setattr(parser, "ROWS_MIN", dict.fromkeys(Side, 0))
    patch.setattr(batches, "ROWS_MIN", 1)
    patch.setattr(parser, "UNIFORM_BYTES_MIN", 1 if way == "by shape" else 1 << 40)
    patch.setattr(uniform_frames, "ROWS_MIN", 1)


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("side", Side)
def test_a_stream_split_at_every_position_gives_the_same_frames(side: Side) -> None:
    data = STREAMS[side]
    whole = read_one_by_one(data, side)
    assert len(whole[0]) == data.count(b"PING") + data.count(b"PONG") + 9
    for place in range(len(data) + 1):
        assert read([data[:place], data[place:]], side) == whole, place
    assert read([bytes([byte]) for byte in data], side) == whole


@pytest.mark.parametrize("side", Side)
def test_frames_are_read_as_they_were_written(side: Side) -> None:
    frames, problem = read([STREAMS[side]], side)
    assert not problem
    if side is Side.SERVER:
        assert frames[3] == (Op.MSG, b"$KV.b.key", ACK, b"1", b"", b"value")
        assert frames[6] == (Op.HMSG, b"a.b", b"", b"3", HEADERS, b"in\r\nMSG x 1 3\r\nabc\r\nside")
        assert frames[7] == (Op.ERR, b"", b"", b"", b"", b"'Stale Connection'")
        assert frames[9] == (Op.MSG, b"a", b"", b"9", b"", b"xyz")
    else:
        assert frames[5] == (Op.HPUB, b"orders.new", b"_INBOX.x.2", b"", HEADERS, b"with\r\nPUB a 1\r\n")
        assert frames[7] == (Op.SUB, b"orders.*", b"workers", b"2", b"", b"")
        assert frames[9] == (Op.UNSUB, b"", b"", b"2", b"", b"5")


@examples(100)
@given(st.data(), st.sampled_from(Side), st.lists(st.integers(0, 10_000), max_size=6))
def test_any_frames_split_anywhere_are_read_alike_every_way(data: st.DataObject, side: Side, places: list[int]) -> None:
    stream = b"".join(data.draw(st.lists(FRAMES_OF[side], max_size=12)))
    wanted = read_one_by_one(stream, side)
    assert not wanted[1]
    with pytest.MonkeyPatch.context() as patch:
        for way in WAYS:
            choose_way(patch, way)
            assert read(cut(stream, places), side) == wanted


@examples(100)
@given(st.data(), st.sampled_from(Side), st.lists(st.integers(0, 10_000), max_size=4))
def test_any_damage_is_told_alike_every_way(data: st.DataObject, side: Side, places: list[int]) -> None:
    stream = bytearray(b"".join(data.draw(st.lists(FRAMES_OF[side], min_size=1, max_size=8))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(stream) - 1))
        stream[at : at + data.draw(st.integers(0, 1))] = data.draw(
            st.sampled_from([b"", b"0", b"\r", b"\n", b" ", b"9", b"\x0b", b"-"])
        )
    wanted = read_one_by_one(bytes(stream), side)
    with pytest.MonkeyPatch.context() as patch:
        for way in WAYS:
            choose_way(patch, way)
            assert read(cut(bytes(stream), places), side) == wanted


@examples(100)
@given(st.binary(max_size=300), st.sampled_from(Side))
@example(b"\x16\x03\x01\x02\x00", Side.CLIENT)
@example(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", Side.CLIENT)
def test_any_bytes_are_frames_or_a_violation_or_not_yet_whole(data: bytes, side: Side) -> None:
    frames, problem = read([data], side)
    assert frames or problem or len(data) < 300


def test_a_large_buffer_is_read_in_columns_and_by_frames_alike() -> None:
    payloads = [b"x" * (n % 300) + (b"\r\nMSG a 1 2\r\n" if n % 97 == 0 else b"") for n in range(3000)]
    messages = [
        (b"$KV.b.k%d" % n, n % 7, ACK if n % 3 else b"", HEADERS if n % 5 == 0 else b"", p)
        for n, p in enumerate(payloads)
    ]
    data = format_msgs(messages[:1000]) + b"PING\r\n" + format_msgs(messages[1000:])
    frames, problem = read([data], Side.SERVER)
    assert not problem
    assert (frames, problem) == read_one_by_one(data, Side.SERVER)
    assert [frame[5] for frame in frames if frame[0] != Op.PING] == payloads


ODD_ROWS = [
    b"PUB a 0 3\r\n123\r\n",  # a reply at the place of a token
    b"PUB a.0 3\r\n1234\n",
    b"PUB a.0 3\r\n12\r\n\r",
    b"PUB a.0 2\r\n12\r\n\n",
    b"PUB a\t0 3\r\n123\r\n",
    b"PUB a\x010 3\r\n123\r\n",
    b"pub a.0 3\r\n123\r\n",
    b"PUB a.\xff 3\r\n123\r\n",
]


@pytest.mark.parametrize("odd", ODD_ROWS)
@pytest.mark.parametrize("at", [0, 1, 100, 299])
def test_a_frame_of_another_kind_among_many_of_one_shape_is_seen(odd: bytes, at: int) -> None:
    frames = [b"PUB a.%d 3\r\n%03d\r\n" % (n % 10, n) for n in range(300)]
    assert len(odd) == len(frames[0])
    frames[at] = odd
    data = b"".join(frames)
    assert read([data], Side.CLIENT) == read_one_by_one(data, Side.CLIENT)


def test_parts_of_a_batch_of_one_shape_are_those_frames() -> None:
    frames = [b"PUB a.%03d r.%03d 3\r\n%03d\r\n" % (n, n, n) for n in range(300)] + [b"PUB b 0\r\n\r\n"]
    batch = FrameParser(Side.CLIENT).feed(b"".join(frames))
    subjects = [b"a.%03d" % n for n in range(300)] + [b"b"]
    for first, end in ((0, 301), (0, 300), (0, 150), (100, 250), (299, 301), (300, 301), (5, 5)):
        part = batch.part(first, end)
        assert part.subject_list() == subjects[first:end]
        assert part.replies() == [b"r" + subject[1:] if subject != b"b" else b"" for subject in subjects[first:end]]
        assert part.payloads() == [subject[2:] for subject in subjects[first:end]]
    assert batch.pick([3, 200, 300]).payloads() == [b"003", b"200", b""]
    assert batch.pick(range(10, 20, 3)).subject_list() == subjects[10:20:3]
    assert batch.part(50, 250).part(50, 100).subject_list() == subjects[100:150]


def test_a_payload_in_many_buffers_is_joined_once() -> None:
    stream = format_msg(b"a", 1, b"p" * 90_000)
    frames = FrameParser(Side.SERVER, LIMITS)
    for start in range(0, len(stream) - 1000, 1000):
        assert not len(frames.feed(stream[start : start + 1000]))
    assert len(frames._parts) > 80  # noqa: SLF001 - joining at each buffer would take quadratic time
    [frame] = frames.feed(stream[len(stream) - len(stream) % 1000 :])
    assert bytes(frame.payload) == b"p" * 90_000
    assert frames.kept_bytes == 0


HOSTILE: dict[str, tuple[Side, bytes, type[ProtocolViolation]]] = {
    "an endless line": (Side.CLIENT, b"PUB " + b"a" * 5000, LineTooLong),
    "an endless line of blanks": (Side.CLIENT, b"PUB" + b" " * 5000, LineTooLong),
    "an endless INFO": (Side.SERVER, b"INFO " + b"{" * 300_000, LineTooLong),
    "a line over the limit": (Side.CLIENT, b"PUB " + b"a" * 4096 + b" 0\r\n\r\n", LineTooLong),
    "a negative size": (Side.CLIENT, b"PUB a -1\r\n\r\n", WrongArguments),
    "a signed size": (Side.CLIENT, b"PUB a +1\r\nx\r\n", WrongArguments),
    "a size with a fraction": (Side.CLIENT, b"PUB a 1.0\r\nx\r\n", WrongArguments),
    "a size of other digits": (Side.CLIENT, b"PUB a \xd9\xa1\r\nx\r\n", WrongArguments),
    "a huge size": (Side.CLIENT, b"PUB a 100001\r\n", PayloadTooLarge),
    "a small size of ten digits": (Side.CLIENT, b"PUB a 0000000001\r\nx\r\n", WrongArguments),
    "a size of a server beyond 64 bits": (Side.SERVER, b"MSG a 1 18446744073709551617\r\n", PayloadTooLarge),
    "a size beyond 64 bits": (Side.CLIENT, b"PUB a 18446744073709551617\r\n", WrongArguments),
    "a size of a thousand digits": (Side.CLIENT, b"PUB a " + b"9" * 1000 + b"\r\n", WrongArguments),
    "no size": (Side.CLIENT, b"PUB a\r\n", WrongArguments),
    "too many arguments": (Side.CLIENT, b"PUB a b c 1\r\nx\r\n", WrongArguments),
    "a payload without its end": (Side.CLIENT, b"PUB a 1\r\nxPING\r\n", MalformedFrame),
    "a payload that ends with LF": (Side.CLIENT, b"PUB a 1\r\nx\n\nPING\r\n", MalformedFrame),
    "headers longer than the frame": (Side.CLIENT, b"HPUB a 20 10\r\n0123456789\r\n", WrongArguments),
    "a line that ends with LF": (Side.SERVER, b"PONG\nPONG\r\n", MalformedFrame),
    "a return within a line": (Side.CLIENT, b"PUB a\r 1\r\nx\r\n", MalformedFrame),
    "an unknown operation": (Side.CLIENT, b"HELLO\r\n", MalformedFrame),
    "an unknown operation, unfinished": (Side.CLIENT, b"HELLO", MalformedFrame),
    "an operation of the other end": (Side.CLIENT, b"MSG a 1 0\r\n\r\n", MalformedFrame),
    "an empty line": (Side.SERVER, b"\r\n", MalformedFrame),
    "a SUB without sid": (Side.CLIENT, b"SUB a\r\n", WrongArguments),
    "a CONNECT without options": (Side.CLIENT, b"CONNECT\r\n", WrongArguments),
    "PING with an argument": (Side.SERVER, b"PING now\r\n", MalformedFrame),
    "a PUB without arguments": (Side.CLIENT, b"PUB\r\n", MalformedFrame),
}


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_is_a_typed_error(name: str) -> None:
    side, data, kind = HOSTILE[name]
    good = b"PING\r\n" * 3
    for pieces in ([data], [bytes([byte]) for byte in data], [good + data], [good, data[:3], data[3:]]):
        frames, problem = read(pieces, side)
        assert problem == kind.__name__
        assert len(frames) in (0, 3)


@pytest.mark.usefixtures("_way")
def test_clients_may_end_a_line_with_lf_alone() -> None:
    data = b"sub a 1\nPUB a 1\nx\r\nPING now\nPUB a b 1\r\ny\r\nHPUB a 12 13\nNATS/1.0\r\n\r\nz\r\n"
    wanted = read([data.replace(b"1\n", b"1\r\n").replace(b"now\n", b"\r\n").replace(b"3\n", b"3\r\n")], Side.CLIENT)
    for pieces in ([data], [bytes([byte]) for byte in data]):
        assert read(pieces, Side.CLIENT) == wanted
    assert len(wanted[0]) == 5


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize(
    "odd", [b"PUB  a 1\r\nx\r\n", b"PUB a 1\nx\r\n", b"PUB a\t1\r\nx\r\n", b"PUB a 1 \r\nx\r\n", b"HPUB a 0 1\r\nx\r\n"]
)
def test_a_batch_tells_whether_its_lines_can_be_passed_on(odd: bytes) -> None:
    plain = b"PUB a 1\r\nx\r\nHPUB a r 12 13\r\nNATS/1.0\r\n\r\nz\r\npub a 1\r\nx\r\n"
    assert FrameParser(Side.CLIENT).feed(b"SUB  a   1\r\n" + plain).is_tidy
    assert not FrameParser(Side.CLIENT).feed(plain + odd + plain).is_tidy


WORDS = st.sampled_from([b"MSG", b"HMSG", b"hmsg", b"PUB", b"HPUB"])
NAMES = st.lists(st.sampled_from([b"a", b"b.c", b"7", b"\xff", b"\x0b", b"x" * 9]), min_size=1, max_size=3)
HEADER_SIZES = st.lists(st.sampled_from([b"0", b"3", b"7", b"007", b"8", b"9"]), max_size=1)
SIZES = st.sampled_from([b"7", b"007", b"8", b"9", b"+7", b"7_"])


@st.composite
def message_lines(draw: st.DrawFn) -> bytes:
    """Draw the line of a message, or one that is almost such a line."""
    words = [draw(WORDS), *draw(NAMES), *draw(HEADER_SIZES), draw(SIZES)]
    blank, line_end = draw(st.sampled_from([b" ", b"  ", b"\t"])), draw(st.sampled_from([b"\r\n", b" \r\n", b"\n"]))
    return blank.join(words) + line_end


@given(
    message_lines(),
    st.sampled_from([b"\r\n", b"\n\r", b""]),
    st.sampled_from(Side),
    st.builds(WireLimits, st.integers(7, 9), st.integers(12, 24)),
)
@example(b"HMSG a b.c 3 8\r\n", b"\r\n", Side.SERVER, WireLimits(7, 24))
@example(b"HMSG a b.c 3 7\r\n", b"\r\n", Side.SERVER, WireLimits(7, 13))
@example(b"HMSG a b.c 8 7\r\n", b"\r\n", Side.SERVER, WireLimits(7, 24))
@example(b"HMSG a b.c 0 7\r\n", b"\r\n", Side.SERVER, WireLimits(7, 24))
@example(b"HMSG a b.c 3 7\r\n", b"\n\r", Side.SERVER, WireLimits(7, 24))
@example(b"HMSG a b.c 7 3 7\r\n", b"\r\n", Side.SERVER, WireLimits(7, 24))
def test_a_frame_that_is_read_as_a_plain_one_is_what_the_reference_reads(
    line: bytes, end: bytes, side: Side, limits: WireLimits
) -> None:
    data = line + b"-" * int(line.split()[-1].strip(b"+_")) + end
    for row in lines.parse_plain(data, 0, side, limits):
        assert row == lines.parse_frame(data, 0, side, limits)
        assert lines.is_plain(data, 0, lines.Row(*row))


def test_a_broken_stream_stays_broken() -> None:
    frames = FrameParser(Side.CLIENT)
    batch = frames.feed(b"PING\r\nNOPE\r\nPING\r\n")
    assert [frame.op for frame in batch] == [Op.PING]
    assert isinstance(batch.problem, MalformedFrame)
    with pytest.raises(MalformedFrame, match="NOPE"):
        frames.feed(b"PING\r\n")


def test_a_line_and_a_payload_of_exactly_the_limit_are_taken() -> None:
    limits = WireLimits(payload_bytes_max=10, line_bytes_max=20)
    data = b"PUB %s 10\r\n0123456789\r\n" % (b"a" * 13)
    for place in range(len(data)):
        assert len(read([data[:place], data[place:]], Side.CLIENT, limits)[0]) == 1
    assert read([b"PUB %s 10\r\n0123456789\r\n" % (b"a" * 14)], Side.CLIENT, limits)[1] == "LineTooLong"
    assert read([b"PUB a 11\r\n"], Side.CLIENT, limits)[1] == "PayloadTooLarge"


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("blank", [b"  ", b"\t", b" \t", b"\t "])
@pytest.mark.parametrize("place", range(4))
def test_other_blanks_than_one_space_are_taken_alike(blank: bytes, place: int) -> None:
    words = [b"PUB", b"to", b"answer", b"5"]
    line = b"".join(word + (blank if number == place else b" ") for number, word in enumerate(words)).rstrip(b" ")
    data = (line + b"\r\nhello\r\n") * 3
    assert read([data], Side.CLIENT) == ([(Op.PUB, b"to", b"answer", b"", b"", b"hello")] * 3, "")
    data = data.replace(b"answer" + (blank if place == 2 else b" "), b"")
    assert read([data], Side.CLIENT) == ([(Op.PUB, b"to", b"", b"", b"", b"hello")] * 3, "")


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("headers", [b"", HEADERS])
def test_a_payload_over_the_limit_is_refused_even_if_it_is_all_there(headers: bytes) -> None:
    limits = WireLimits(payload_bytes_max=50)
    fits, over = (format_pub(b"a", b"x" * (size - len(headers)), b"", headers) for size in (50, 51))
    assert read([fits * 3], Side.CLIENT, limits)[1] == ""
    frames, problem = read([fits * 3 + over + fits], Side.CLIENT, limits)
    assert (len(frames), problem) == (3, "PayloadTooLarge")


def test_violations_say_what_a_server_would_answer() -> None:
    assert LineTooLong(4096).server_text == "maximum control line exceeded"
    assert PayloadTooLarge(2, 1).server_text == "Maximum Payload Violation"
    assert MalformedFrame("x").server_text == "Unknown Protocol Operation"
