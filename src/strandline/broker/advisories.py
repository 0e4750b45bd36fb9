"""Advisories of an account, published only if a client or a stream listens.

Invariants: an advisory goes to clients and to streams that keep its subject, like any message.
"""

from collections.abc import Callable
from dataclasses import fields, replace

from strandline.broker.api.advisories import Advisory, ApiAudit, ClientInfo, format_advisory
from strandline.broker.routes import Origin
from strandline.broker.streams import Republish
from strandline.clock import Clock

AUDIT = b"$JS.EVENT.ADVISORY.API"
QUIET = (b"$JS.API.STREAM.MSG.GET.", b"$JS.API.DIRECT.GET.", b"$JS.API.CONSUMER.RESET.", b"$JS.API.CONSUMER.MSG.NEXT.")
"""Requests without an audit advisory, as in nats-server."""


class Advisories:
    """Publishes advisories; `is_heard` tells whether a subject has a listener."""

    def __init__(
        self,
        account: str,
        domain: str,
        server_name: str,
        clock: Clock,
        *,
        is_heard: Callable[[bytes], bool],
        publish: Callable[[Republish], None],
    ) -> None:
        self._account = account
        self._domain = domain
        self._server_name = server_name
        self._clock = clock
        self._is_heard = is_heard
        self._publish = publish

    def is_heard(self, advisory: Advisory) -> bool:
        """Tell whether an advisory has a listener."""
        return self._is_heard(advisory.subject.encode(errors="surrogateescape"))

    def tell(self, advisory: Advisory) -> None:
        """Publish an advisory, if it has a listener."""
        subject = advisory.subject.encode(errors="surrogateescape")
        if not self._is_heard(subject):
            return
        if any(field.name == "account" for field in fields(advisory)):
            advisory = replace(advisory, account=self._account)
        payload = format_advisory(advisory, self._clock.now_ns(), domain=self._domain)
        self._publish(Republish(subject, b"", payload))

    def client(self, origin: Origin) -> ClientInfo:
        """Return the client of a request, as advisories show it."""
        return ClientInfo(
            start=origin.start_ns,
            host=origin.host,
            id=origin.client_id,
            acc=origin.account,
            user=origin.user,
            name=origin.name,
            lang=origin.language,
            ver=origin.version,
            server=self._server_name,
        )

    def audit(self, subject: bytes, request: bytes, response: bytes, origin: Origin) -> None:
        """Publish a request and its response, if they have a listener."""
        if subject.startswith(QUIET) or not self._is_heard(AUDIT):
            return
        self.tell(
            ApiAudit(
                server=self._server_name,
                client=self.client(origin),
                asked=subject.decode(errors="replace"),
                request=request.decode(errors="replace"),
                response=response.decode(errors="replace"),
            )
        )
