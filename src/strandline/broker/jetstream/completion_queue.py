"""Actions that wait until an append is durable, and then run on the loop's thread.

Invariants: the actions of one `CompletionLine` run in the order in which they were added, each after its own ticket.
The threads that settle tickets only post a notice, one for many tickets. An action receives the error of a ticket that
failed.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from strandline.broker.streams import Ticket
from strandline.broker.thread_runner import Post

Then = Callable[[BaseException | None], object]
logger = logging.getLogger("strandline.broker")


class CompletionQueue:
    """Brings the news of settled tickets to the server's thread; `post` calls something there, soon."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._settled: deque[CompletionLine] = deque()
        self._is_posted = False

    def after(self, tickets: Sequence[Ticket], action: Then) -> None:
        """Do something when all of some tickets are settled: at once, if they are."""
        line = CompletionLine(self)
        errors: list[BaseException] = []

        def note(error: BaseException | None) -> None:
            if error is not None:
                errors.append(error)

        for ticket in tickets:
            line.then(ticket, note)
        line.then(None, lambda _: action(errors[0] if errors else None))

    def note(self, line: "CompletionLine") -> None:
        """Say, from any thread, that a ticket of a line was settled."""
        self._settled.append(line)
        if not self._is_posted:
            self._is_posted = True
            self._post(self.run)

    def run(self) -> None:
        """Run the actions whose tickets are settled."""
        self._is_posted = False  # before the loop: a notice from here on posts another run
        settled = self._settled
        while settled:
            settled.popleft().run()


class CompletionLine:
    """Actions that wait for tickets, in order."""

    __slots__ = ("_completions", "_waiting")

    def __init__(self, completions: CompletionQueue) -> None:
        self._completions = completions
        self._waiting: deque[tuple[Ticket | None, Then]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def then(self, ticket: Ticket | None, action: Then) -> None:
        """Run an action after all before it, when a ticket is settled; without a ticket, after the others."""
        if not self._waiting and (ticket is None or ticket.done()):
            _do(action, ticket)
            return
        self._waiting.append((ticket, action))
        if ticket is not None:
            ticket.add_done_callback(self._note)

    def _note(self, _: Future[None]) -> None:
        self._completions.note(self)

    def run(self) -> None:
        """Run the actions whose tickets are settled."""
        waiting = self._waiting
        while waiting and ((ticket := waiting[0][0]) is None or ticket.done()):
            _do(waiting.popleft()[1], ticket)


def _do(action: Then, ticket: Ticket | None) -> None:
    try:
        action(None if ticket is None else ticket.exception())
    except Exception:
        logger.exception("an action after a durable append failed")
