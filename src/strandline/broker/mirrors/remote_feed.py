"""An origin on another server: a thread reads it with a push consumer, and the feed stores the messages.

Invariants: the thread knows nothing of the stream; it asks the feed where to begin, after the feed has handled all that
it handed over. It hands over only messages without a gap, and at most `AHEAD` batches before they are durable. After
any error it begins again, where the copy says.
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass

from strandline.broker.api.codes import ApiError
from strandline.broker.mirrors.copy_plan import CopyPlan, Start
from strandline.broker.mirrors.feed import Feed, Stored
from strandline.broker.mirrors.nats_origin import Origin, OriginEnded, Received
from strandline.broker.streams import OriginBatch, Stream, part_of
from strandline.errors import Closed, StrandlineError
from strandline.nats import CancelToken
from strandline.nats.errors import ServerRefused, StreamNotFound

AHEAD = 8
PAUSE_S, PAUSE_S_MAX = 0.05, 5.0
STEP_MESSAGES = 2_048


@dataclass(slots=True)
class _Question:
    """The thread wants to know where to begin in an origin of this identity."""

    identity: bytes
    answer: "Future[Start]"


@dataclass(slots=True)
class _Trouble:
    """The thread has lost the origin."""

    error: StrandlineError


_News = _Question | _Trouble | Received


class RemoteFeed(Feed):
    """Copies from a stream of another server; `wake` asks, from any thread, for a step."""

    def __init__(
        self,
        stream: Stream,
        plan: CopyPlan,
        stored: Stored,
        make: Callable[[CancelToken], Origin],
        wake: Callable[[], None],
    ) -> None:
        super().__init__(stream, plan, stored)
        self._make = make
        self._wake = wake
        self._news: deque[_News] = deque()
        self._room = threading.Semaphore(AHEAD)
        self._cancel = CancelToken()
        self._batch: OriginBatch | None = None
        self._pending = 0
        self._thread = threading.Thread(target=self._run, name=f"mirror-{stream.config.name}", daemon=True)
        self._thread.start()

    # On the server's thread.

    def step(self, now_ns: int) -> bool:
        """Store some of the received messages; return whether there are more."""
        while self._batch is None and self._news:
            self._hear(self._news.popleft(), now_ns)
        if self._batch is None:
            return False
        batch = self._batch
        copied = self.take(part_of(batch, 0, STEP_MESSAGES), now_ns)
        self._batch = part_of(batch, copied.count) if copied.count < len(batch) else None
        if self._batch is None:
            copied.published.ticket.add_done_callback(lambda _: self._room.release())
        return copied.refusal is None and (self._batch is not None or bool(self._news))

    def _hear(self, news: _News, now_ns: int) -> None:
        if isinstance(news, _Trouble):
            self._note(news.error)
            return
        self.heard_ns, self.error = now_ns, None
        if isinstance(news, _Question):
            news.answer.set_result(self.start(news.identity))
        else:
            self._batch, self._pending = news.batch, news.pending

    def _note(self, error: StrandlineError) -> None:
        match error:
            case StreamNotFound():
                self.error = ApiError(404, 10059, "stream not found")
            case ServerRefused(code=code, description=description):
                self.error = ApiError(500, code, description)
            case _:
                self.fail(str(error))

    def lag(self) -> int:
        """Return how many messages waited behind the last received one."""
        waiting = 0 if self._batch is None else len(self._batch)
        batches = (news.batch for news in list(self._news) if isinstance(news, Received))
        return self._pending + waiting + sum(len(batch) for batch in batches if batch is not None)

    def close(self) -> None:
        """End the thread soon; later results of it are ignored."""
        self._cancel.set()
        for news in list(self._news):
            if isinstance(news, _Question):
                news.answer.cancel()
        self._room.release(AHEAD)

    def join(self, seconds: float) -> None:
        """Wait for the end of the thread, for a while: a thread in an address lookup may take longer."""
        self._thread.join(seconds)

    # On its own.

    def _run(self) -> None:
        pause_s = PAUSE_S
        while not self._cancel.is_set():
            try:
                with self._make(self._cancel) as origin:
                    for received in origin.follow(self._ask):
                        pause_s = PAUSE_S
                        self._hand_over(received)
            except (Closed, CancelledError):
                continue
            except OriginEnded:
                pause_s = PAUSE_S
            except StrandlineError as error:
                self._tell(_Trouble(error))
            self._cancel.wait(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _ask(self, identity: bytes) -> Start:
        question = _Question(identity, Future())
        self._tell(question)
        if self._cancel.is_set():  # the news may have been looked through before this was among them
            raise Closed("the mirror")
        return question.answer.result()

    def _hand_over(self, received: Received) -> None:
        if received.batch is not None:
            self._room.acquire()
        if self._cancel.is_set():
            raise Closed("the mirror")
        self._tell(received)

    def _tell(self, news: _News) -> None:
        self._news.append(news)
        with suppress(RuntimeError):  # the server's loop is gone
            self._wake()
