"""What an account without JetStream says to those who ask for it, on a server that has it."""

from collections.abc import Callable
from functools import partial

from strandline.broker.api import answers, codes, consumer_answers
from strandline.broker.api.schema import to_json
from strandline.broker.routes import Inbound, Routes


def _plain(kind: str) -> Callable[..., object]:
    return partial(answers.ClusterOnly, f"{answers.TYPE_PREFIX}{kind}_response")


_ANSWERS: dict[str, Callable[..., object]] = {
    "INFO": _plain("account_info"),
    "STREAM.CREATE": answers.StreamCreated,
    "STREAM.UPDATE": answers.StreamUpdated,
    "STREAM.DELETE": answers.StreamDeleted,
    "STREAM.INFO": answers.StreamShown,
    "STREAM.NAMES": answers.StreamNames,
    "STREAM.LIST": answers.StreamList,
    "STREAM.PURGE": answers.StreamPurged,
    "STREAM.MSG.GET": answers.MessageGot,
    "STREAM.MSG.DELETE": answers.MessageDeleted,
    "STREAM.SNAPSHOT": _plain("stream_snapshot"),
    "STREAM.RESTORE": _plain("stream_restore"),
    "CONSUMER.CREATE": consumer_answers.ConsumerCreated,
    "CONSUMER.DURABLE.CREATE": consumer_answers.ConsumerCreated,
    "CONSUMER.INFO": consumer_answers.ConsumerShown,
    "CONSUMER.NAMES": consumer_answers.ConsumerNames,
    "CONSUMER.LIST": consumer_answers.ConsumerList,
    "CONSUMER.DELETE": consumer_answers.ConsumerDeleted,
    "CONSUMER.PAUSE": consumer_answers.ConsumerPaused,
    "CONSUMER.RESET": consumer_answers.ConsumerReset,
    "CONSUMER.UNPIN": consumer_answers.ConsumerUnpinned,
}


class Absent:
    """Refuses every request below `$JS.API.`."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        routes.subscribe(b"$JS.API.>", self)

    def take(self, messages: Inbound) -> None:
        """Tell those who ask that there is no JetStream here, and that nobody is, where messages would be answered."""
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
