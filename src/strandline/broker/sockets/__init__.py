"""Sockets of clients: TLS and WebSocket as functions of bytes without I/O, connections, and the acceptor.

Invariants: a layer buffers less than one record or frame header; its output for a session does not depend on how the
bytes were split. Only `strandline.broker.server`, and `connection` and `acceptor` here, know asyncio.
"""

from strandline.broker.sockets.tls import TlsLayer, server_context
from strandline.broker.sockets.websocket import WebsocketLayer

__all__ = ["TlsLayer", "WebsocketLayer", "server_context"]
