"""Core NATS as pure code: connections as machines of states, and the subjects they share.

**Promise.** A client of nats-server 2.15.1 sees the same bytes here: greetings, errors and their texts, deliveries and
their order. What it may publish and hear is what its user may, whichever way a message takes.

**How.** A `Session` is fed what a socket read and leaves what a socket has to write; it cuts a buffer into runs of
messages and control frames. The `Router` of its account finds where a run goes with one question to the `Sublist` if
the run allows it, and joins what one subscription hears to one buffer. `Accounts` says who a client is.

**Trade-offs.** Work for each message is list comprehensions or columns; whatever needs a look at single messages (auto-
unsubscribe, verbose, no echo, filters) goes message by message and costs about ten times as much. A queue group takes
turns within a run. A subscription that is wider than every allowed pattern is refused even where nats-server lets `a.>`
pass for `a.*`.
"""

from strandline.broker.core.accounts import Account, Accounts, Login
from strandline.broker.core.router import Router
from strandline.broker.core.server_info import SERVER_VERSION, ServerFacts, facts_of
from strandline.broker.core.session import Session

__all__ = ["SERVER_VERSION", "Account", "Accounts", "Login", "Router", "ServerFacts", "Session", "facts_of"]
