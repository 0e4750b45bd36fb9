"""JetStream requests of an account without JetStream, on a server that has it."""

from collections.abc import Callable
from functools import partial

from strandline.broker.api import codes, consumer_responses, responses
from strandline.broker.api.schema import to_json
from strandline.broker.routes import Inbound, Routes


def _plain(kind: str) -> Callable[..., object]:
    return partial(responses.ClusterOnly, f"{responses.TYPE_PREFIX}{kind}_response")


_ANSWERS: dict[str, Callable[..., object]] = {
    "INFO": _plain("account_info"),
    "STREAM.CREATE": responses.StreamCreated,
    "STREAM.UPDATE": responses.StreamUpdated,
    "STREAM.DELETE": responses.StreamDeleted,
    "STREAM.INFO": responses.StreamShown,
    "STREAM.NAMES": responses.StreamNames,
    "STREAM.LIST": responses.StreamList,
    "STREAM.PURGE": responses.StreamPurged,
    "STREAM.MSG.GET": responses.MessageGot,
    "STREAM.MSG.DELETE": responses.MessageDeleted,
    "STREAM.SNAPSHOT": _plain("stream_snapshot"),
    "STREAM.RESTORE": _plain("stream_restore"),
    "CONSUMER.CREATE": consumer_responses.ConsumerCreated,
    "CONSUMER.DURABLE.CREATE": consumer_responses.ConsumerCreated,
    "CONSUMER.INFO": consumer_responses.ConsumerShown,
    "CONSUMER.NAMES": consumer_responses.ConsumerNames,
    "CONSUMER.LIST": consumer_responses.ConsumerList,
    "CONSUMER.DELETE": consumer_responses.ConsumerDeleted,
    "CONSUMER.PAUSE": consumer_responses.ConsumerPaused,
    "CONSUMER.RESET": consumer_responses.ConsumerReset,
    "CONSUMER.UNPIN": consumer_responses.ConsumerUnpinned,
}


class DisabledJetStream:
    """Refuses every request below `$JS.API.`."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        routes.subscribe(b"$JS.API.>", self)

    def take(self, messages: Inbound) -> None:
        """Answer that JetStream is not enabled; a subject that is not of the API has no responders."""
        lonely = []
        for row, (subject, reply) in enumerate(zip(messages.subjects, messages.frames.replies(), strict=True)):
            asked = subject.decode(errors="replace").removeprefix("$JS.API.")
            answer = next((answer for verb, answer in _ANSWERS.items() if f"{asked}.".startswith(f"{verb}.")), None)
            if answer is None:
                lonely.append(row)
            elif reply:
                self._routes.send(reply, to_json(answer(error=codes.NOT_ENABLED_FOR_ACCOUNT.error())))
        if lonely:
            self._routes.no_responders(messages, lonely)
