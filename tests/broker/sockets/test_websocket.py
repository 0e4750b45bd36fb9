"""WebSocket as a function of bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.broker.settings import WebsocketSettings
from strandline.broker.sockets.websocket import REQUEST_BYTES_MAX, WebsocketFailed, WebsocketLayer
from tests.broker.sockets.websocket_bytes import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, frame, request


def opened(settings: WebsocketSettings | None = None) -> WebsocketLayer:
    layer = WebsocketLayer(settings or WebsocketSettings(), is_tls=False)
    assert layer.receive(request()) == b""
    layer.output()
    return layer


def test_the_request_is_answered_as_the_standard_has_it() -> None:
    layer = WebsocketLayer(WebsocketSettings(), is_tls=False)
    assert layer.receive(request()[:30]) == b""
    assert not layer.is_ready
    assert layer.receive(request()[30:] + frame(b"PING\r\n")) == b"PING\r\n"
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n" in layer.output()
    assert layer.is_ready


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (request().replace(b"GET", b"POST"), b"405"),
        (request(Upgrade="h2c"), b"400"),
        (request(Connection="close"), b"400"),
        (request(Sec_WebSocket_Key=""), b"400"),
        (request(Sec_WebSocket_Version="8"), b"400"),
        (b"G" * (REQUEST_BYTES_MAX + 1), b"431"),
        (b"PING\r\n\r\n", b"405"),
    ],
)
def test_what_is_no_upgrade_is_refused(data: bytes, status: bytes) -> None:
    layer = WebsocketLayer(WebsocketSettings(), is_tls=False)
    with pytest.raises(WebsocketFailed):
        layer.receive(data)
    assert layer.output().startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize(
    ("settings", "origin", "allowed"),
    [
        (WebsocketSettings(), "http://elsewhere", True),
        (WebsocketSettings(same_origin=True), "", True),
        (WebsocketSettings(same_origin=True), "http://localhost:8080", True),
        (WebsocketSettings(same_origin=True), "http://localhost:81", False),
        (WebsocketSettings(same_origin=True), "http://elsewhere:8080", False),
        (WebsocketSettings(allowed_origins=("https://app.example",)), "https://app.example:443", True),
        (WebsocketSettings(allowed_origins=("https://app.example",)), "http://app.example", False),
        (WebsocketSettings(allowed_origins=("https://app.example",)), "https://app.example:nonsense", False),
    ],
)
def test_only_pages_of_known_origins_connect(settings: WebsocketSettings, origin: str, allowed: bool) -> None:
    layer = WebsocketLayer(settings, is_tls=False)
    if allowed:
        layer.receive(request(Origin=origin))
    else:
        with pytest.raises(WebsocketFailed, match="Forbidden"):
            layer.receive(request(Origin=origin))
    assert layer.is_ready is allowed


@given(
    payloads=st.lists(st.binary(max_size=300), max_size=6),
    cuts=st.lists(st.integers(1, 40), max_size=60),
    pings=st.booleans(),
)
def test_what_is_said_does_not_depend_on_how_it_was_split(payloads: list[bytes], cuts: list[int], pings: bool) -> None:
    data = b""
    for payload in payloads:
        half = len(payload) // 2
        data += frame(payload[:half], final=False) + (frame(b"?", PING) if pings else b"")
        data += frame(payload[half:], CONTINUATION)
    layer, said = opened(), []
    for cut in cuts:
        said.append(layer.receive(data[:cut]))
        data = data[cut:]
    said.append(layer.receive(data))
    assert b"".join(said) == b"".join(payloads)
    assert layer.output() == (bytes((0x80 | PONG, 1)) + b"?") * (len(payloads) if pings else 0)


@pytest.mark.parametrize(
    "data",
    [
        frame(b"x", masked=False),
        frame(b"x", TEXT),
        frame(b"x", CONTINUATION),
        frame(b"x", final=False) + frame(b"y", BINARY),
        frame(b"x" * 126, PING),
        frame(b"x", PING, final=False),
        frame(b"x", 3),
        frame(b"x", 11),
        bytes((frame(b"x")[0] | 0x40,)) + frame(b"x")[1:],
    ],
)
def test_what_is_no_websocket_ends_the_connection(data: bytes) -> None:
    layer = opened()
    with pytest.raises(WebsocketFailed):
        layer.receive(data)
    assert layer.output()[:1] == bytes((0x80 | CLOSE,))
    assert layer.has_ended
    assert layer.receive(frame(b"more")) == b""


def test_a_client_that_says_goodbye_is_answered_with_its_own_code() -> None:
    layer = opened()
    assert layer.receive(frame(b"last") + frame(b"\x03\xe9bye", CLOSE) + frame(b"late")) == b"last"
    assert layer.output() == bytes((0x80 | CLOSE, 2)) + b"\x03\xe9"
    assert layer.has_ended
    assert layer.end() == b""


def test_a_frame_is_passed_on_as_it_comes_however_large_it_says_it_is() -> None:
    layer = opened()
    assert layer.receive(bytes((0x80 | BINARY, 0x80 | 127)) + (1 << 40).to_bytes(8, "big") + bytes(4)) == b""
    for _ in range(3):
        assert layer.receive(b"x" * 65_536) == b"x" * 65_536


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_what_is_sent_is_one_frame_of_the_shortest_form(size: int) -> None:
    payload = b"x" * size
    assert opened().send(payload) == frame(payload, masked=False)
