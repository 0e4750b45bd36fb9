"""Which filters decided about which messages of a stream."""

from strandline.broker.consumers.filter_history import SPANS_MAX, Span, extend_history, skip_history, truncate_history


def test_filters_that_decided_nothing_leave_no_span() -> None:
    history = extend_history(extend_history((), 5, ("a",)), 5, ("b",))
    assert history == (Span(5, ("a",)),)
    assert extend_history(history, 9, ()) == (Span(5, ("a",)), Span(9, ()))


def test_of_what_lies_too_many_changes_back_nothing_is_decided() -> None:
    history: tuple[Span, ...] = ()
    for number in range(1, SPANS_MAX + 3):
        history = extend_history(history, number, (str(number),))
    assert len(history) == SPANS_MAX
    assert history[:2] == (Span(3, None), Span(4, ("4",)))


def test_a_crash_that_puts_a_consumer_back_cuts_its_history() -> None:
    history = (Span(3, ("a",)), Span(5, ("b",)), Span(9, None))
    assert truncate_history(history, 9) == history
    assert truncate_history(history, 4) == (Span(3, ("a",)), Span(4, ("b",)))
    assert truncate_history(history, 3) == (Span(3, ("a",)),)
    assert truncate_history(history, 0) == ()
    assert truncate_history(history, 9, first_seq=4) == (Span(5, ("b",)), Span(9, None))


def test_a_reset_leaves_decided_what_is_done_with() -> None:
    assert skip_history((), 2, ("a",), 9) == (Span(2, ("a",)), Span(8, None))
    assert skip_history((Span(1, ("b",)),), 5, ("a",), 3) == (Span(1, ("b",)), Span(2, ("a",)))
    assert skip_history((), 0, (), 1) == ()
