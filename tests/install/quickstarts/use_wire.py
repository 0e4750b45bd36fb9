"""The NATS protocol: bytes in, frames out."""

from strandline.wire import FrameParser, Op, Side

batch = FrameParser(Side.SERVER).feed(b"PING\r\n")
assert [frame.op for frame in batch] == [Op.PING]
