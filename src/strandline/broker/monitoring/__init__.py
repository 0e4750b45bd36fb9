"""The monitoring endpoints over HTTP (`/varz`, `/connz`, `/jsz`, `/healthz` …), with nats-server's content.

`http` is the listener and `pages` the table of paths; a page is a plain function of the server and the query
(`general`, `connections`, `jetstream`). Names and types of fields are nats-server's, because dashboards and exporters
read them; fields of clusters are present and empty. Nothing here changes the server.
"""

from strandline.broker.monitoring.http import Monitor

__all__ = ["Monitor"]
