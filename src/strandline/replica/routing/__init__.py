"""Routing: reads here, writes to the leader, for HTTP applications over a replicated database.

**Promise.** A write is executed by the leader, at most once unless it carries an idempotency key, and its answer says
where it stands: durable at a position, not done, or unknown.

    rules          which request is a read and which a write, where it goes, what follows a failed attempt
    positions      the position of a write, as a header and a cookie
    headers        what a forwarder checks, removes and adds
    answers        the answers that a router gives itself
    limits         time, numbers and bytes
    body           a body that may have to be sent more than once
    upstream       one exchange with a server
    forwarder      attempts, and the hold while no leader is known
    node_routing   what the middlewares of a node share
    asgi, wsgi     the middlewares
    locators       the leader and the followers for the proxy, as the directory of the replica has them
    client         the connection of a client to the proxy
    proxy          an HTTP proxy before all nodes

**Trade-offs.** A write has a connection of its own, which costs a round trip within the data centre and spares the
question whether a server that closed an idle connection has seen the request. A body larger than what is kept for a
second attempt is sent once. Trailers are dropped.
"""

from strandline.replica.routing.asgi import AsgiRouting
from strandline.replica.routing.limits import RoutingLimits
from strandline.replica.routing.positions import ReadPosition
from strandline.replica.routing.proxy import Proxy, ProxySettings, ProxyThread
from strandline.replica.routing.rules import RoutingRules
from strandline.replica.routing.wsgi import WsgiRouting

__all__ = [
    "AsgiRouting",
    "Proxy",
    "ProxySettings",
    "ProxyThread",
    "ReadPosition",
    "RoutingLimits",
    "RoutingRules",
    "WsgiRouting",
]
