"""Core NATS as pure code: connections as state machines, and the subjects they share.

**Promise.** A client of nats-server 2.15.1 sees the same bytes here: greetings, errors and their texts, deliveries and
their order. A client publishes and receives only what its user's permissions allow, by every path.

**How.** A `Session` takes the bytes that a socket read and returns the bytes to write; it splits a buffer into runs of
messages and control frames. The `Router` of its account finds the receivers of a run, with one lookup in the `Sublist`
where possible, and joins the messages for one subscription into one buffer. `Accounts` authenticates clients.

**Trade-offs.** Work for each message is list comprehensions or columns; features that inspect single messages (auto-
unsubscribe, verbose, no echo, filters) go message by message and cost about ten times as much. A queue group takes
turns within a run. A subscription wider than every allowed pattern is refused, even where nats-server accepts `a.>`
for `a.*`.
"""

from strandline.broker.core.accounts import Account, Accounts, Login
from strandline.broker.core.router import Router
from strandline.broker.core.server_info import SERVER_VERSION, ServerInfo, make_server_info
from strandline.broker.core.session import Session

__all__ = ["SERVER_VERSION", "Account", "Accounts", "Login", "Router", "ServerInfo", "Session", "make_server_info"]
