"""What lies between a socket's bytes and a session's: TLS and WebSocket, as functions of bytes, without I/O.

Invariants: a layer keeps less than one record or frame header; what comes out for a session is the same however the
bytes were split. Only `strandline.broker.server`, and `connection` and `acceptor` here, know asyncio.
"""

from strandline.broker.sockets.tls import TlsLayer, server_context
from strandline.broker.sockets.websocket import WebsocketLayer

__all__ = ["TlsLayer", "WebsocketLayer", "server_context"]
