"""What waits until something is durable."""

import threading
from collections.abc import Callable
from concurrent.futures import Future

from strandline.broker.jetstream.completion_queue import CompletionLine, CompletionQueue


class _Posted:
    """Keeps what is to be called on the server's thread."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.completions = CompletionQueue(self.calls.append)

    def run(self) -> None:
        while self.calls:
            self.calls.pop(0)()


def test_actions_keep_their_order_whatever_the_tickets_do() -> None:
    posted, done = _Posted(), list[int]()
    line = CompletionLine(posted.completions)
    tickets = [Future[None]() for _ in range(3)]
    for number, ticket in enumerate(tickets):
        line.then(ticket, lambda _, number=number: done.append(number))  # type: ignore[misc]
    tickets[1].set_result(None)
    posted.run()
    assert done == []
    tickets[0].set_result(None)
    posted.run()
    assert done == [0, 1]
    line.then(None, lambda _: done.append(9))
    tickets[2].set_result(None)
    posted.run()
    assert done == [0, 1, 2, 9]


def test_what_need_not_wait_is_done_at_once() -> None:
    posted, done = _Posted(), list[BaseException | None]()
    ticket = Future[None]()
    ticket.set_result(None)
    CompletionLine(posted.completions).then(ticket, done.append)
    posted.completions.after([], done.append)
    posted.completions.after([ticket, ticket], done.append)
    assert done == [None, None, None]
    assert posted.calls == []


def test_a_failed_ticket_is_told_as_its_error() -> None:
    posted, done = _Posted(), list[BaseException | None]()
    failed, fine = Future[None](), Future[None]()
    posted.completions.after([failed, fine], done.append)
    problem = OSError("no space")
    failed.set_exception(problem)
    posted.run()
    assert done == []
    fine.set_result(None)
    posted.run()
    assert done == [problem]


def test_an_action_that_fails_does_not_keep_the_others_from_it() -> None:
    posted, done = _Posted(), list[BaseException | None]()
    line, tickets = CompletionLine(posted.completions), [Future[None](), Future[None]()]

    def fail(_: BaseException | None) -> None:
        raise ValueError

    line.then(tickets[0], fail)
    line.then(tickets[1], done.append)
    for ticket in tickets:
        ticket.set_result(None)
    posted.run()
    assert done == [None]


def test_tickets_settled_by_other_threads_are_all_noticed() -> None:
    posted, done = _Posted(), list[int]()
    lines = [CompletionLine(posted.completions) for _ in range(4)]
    tickets = [[Future[None]() for _ in range(200)] for _ in lines]
    for line, some in zip(lines, tickets, strict=True):
        for number, ticket in enumerate(some):
            line.then(ticket, lambda _, number=number: done.append(number))  # type: ignore[misc]
    threads = [
        threading.Thread(target=lambda some=some: [ticket.set_result(None) for ticket in some]) for some in tickets
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        posted.run()
    for thread in threads:
        thread.join()
    posted.run()
    assert len(done) == 800
    assert not any(map(len, lines))
