"""What the headers of a bucket's messages say of their keys, told for columns as for single messages."""

import pytest

from strandline.kv.nats.messages import kind_of_headers
from strandline.nats.streams import parse_header_values
from strandline.spark.streams.columns import kinds_of
from strandline.wire import FrameParser, Side, format_msg


@pytest.mark.parametrize("value", [b"value", b""])
@pytest.mark.parametrize(
    "line",
    [
        b"KV-Operation: DEL",
        b"KV-Operation: PURGE",
        b"KV-Operation: DELAYED",
        b"Nats-Marker-Reason: MaxAge",
        b"Nats-Marker-Reason: Purge",
        b"Nats-Marker-Reason: Remove",
        b"Nats-Marker-Reason: Moonlight",
        b"Nats-Marker-Reason: MaxAge\r\nKV-Operation: DEL",
        b"My-Header: 1",
    ],
)
def test_columns_and_single_messages_agree_about_what_happened_to_a_key(line: bytes, value: bytes) -> None:
    block = b"NATS/1.0\r\n" + line + b"\r\n\r\n"
    frames = FrameParser(Side.SERVER).feed(format_msg(b"$KV.b.k", 1, value, headers=block))
    assert kinds_of(frames).tolist() == [kind_of_headers(parse_header_values(block))]
