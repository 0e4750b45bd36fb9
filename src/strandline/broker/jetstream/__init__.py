"""JetStream of an account: what comes from clients by `routes`, brought to streams and consumers, and answered.

**Promise.** Nothing is answered or delivered before it is as durable as asked, and everything is, in order. A stream
whose storage fails refuses with its reason; other streams do not notice.

**How.** Publishes of all clients are gathered while the sockets of a turn are read (`stream_sink`), and stored by one
append for each stream when it ends. What is to be told then waits for the append's ticket (`settling`), and so do the
answers to requests (`requests`). What goes with time has one heap (`timers`). Clients that publish faster than the disk
takes it are paused (`holding`). Streams whose storage failed are brought back (`mending`).
"""

from strandline.broker.jetstream.account import JetStream

__all__ = ["JetStream"]
