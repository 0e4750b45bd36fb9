"""Which filters decided about which messages of a stream."""

from strandline.broker.consumers.filter_history import SPANS_MAX, Span, cut, skipped, turned


def test_filters_that_decided_nothing_leave_no_span() -> None:
    history = turned(turned((), 5, ("a",)), 5, ("b",))
    assert history == (Span(5, ("a",)),)
    assert turned(history, 9, ()) == (Span(5, ("a",)), Span(9, ()))


def test_of_what_lies_too_many_changes_back_nothing_is_decided() -> None:
    history: tuple[Span, ...] = ()
    for number in range(1, SPANS_MAX + 3):
        history = turned(history, number, (str(number),))
    assert len(history) == SPANS_MAX
    assert history[:2] == (Span(3, None), Span(4, ("4",)))


def test_a_crash_that_puts_a_consumer_back_cuts_its_history() -> None:
    history = (Span(3, ("a",)), Span(5, ("b",)), Span(9, None))
    assert cut(history, 9) == history
    assert cut(history, 4) == (Span(3, ("a",)), Span(4, ("b",)))
    assert cut(history, 3) == (Span(3, ("a",)),)
    assert cut(history, 0) == ()
    assert cut(history, 9, first_seq=4) == (Span(5, ("b",)), Span(9, None))


def test_a_reset_leaves_decided_what_is_done_with() -> None:
    assert skipped((), 2, ("a",), 9) == (Span(2, ("a",)), Span(8, None))
    assert skipped((Span(1, ("b",)),), 5, ("a",), 3) == (Span(1, ("b",)), Span(2, ("a",)))
    assert skipped((), 0, (), 1) == ()
