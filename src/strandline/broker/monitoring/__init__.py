"""What the server tells over HTTP: `/varz`, `/connz`, `/jsz`, `/healthz` and their like, as nats-server tells it.

`http` is the listener, `pages` finds who answers; an answer is a plain function of the server and of what was asked
(`general`, `connections`, `jetstream`). Names and types of fields are nats-server's, for dashboards and exporters read
them; what only clusters have is there and empty. Nothing here changes anything.
"""

from strandline.broker.monitoring.http import Monitor

__all__ = ["Monitor"]
