"""When a consumer that failed is loaded again: at once, then after pauses that grow, and never if its files are bad."""

from strandline.broker.consumers.offline import PAUSE_MAX_NS, PAUSE_MIN_NS, WELL_NS, OfflineConsumers
from strandline.errors import Damaged

KEY = ("S", "A")


def test_pauses_grow_while_it_fails_and_begin_anew_when_it_went_well() -> None:
    offline, now_ns, pauses = OfflineConsumers(), 0, []
    for _ in range(15):
        pause_ns = offline.note(KEY, ValueError("why"), now_ns)
        assert pause_ns is not None
        pauses.append(pause_ns)
        assert offline.next_ns == now_ns + pause_ns
        assert offline.take_due(now_ns + pause_ns - 1) == []
        now_ns += pause_ns
        assert offline.take_due(now_ns) == [KEY]
        assert offline.take_due(now_ns) == []
    assert pauses[:4] == [0, PAUSE_MIN_NS, 2 * PAUSE_MIN_NS, 4 * PAUSE_MIN_NS]
    assert pauses[-1] == PAUSE_MAX_NS
    assert offline.note(KEY, ValueError("why"), now_ns + WELL_NS) == PAUSE_MAX_NS
    offline.take_due(now_ns + 2 * WELL_NS)
    assert offline.note(KEY, ValueError("why"), now_ns + 4 * WELL_NS) == 0


def test_nothing_is_tried_where_files_are_bad_or_the_consumer_is_removed() -> None:
    offline = OfflineConsumers()
    assert offline.note(KEY, Damaged("x", "torn", safe="y"), 0) is None
    assert offline.note(("T", ""), OSError("a whole stream"), 0) is None
    assert offline.next_ns is None
    assert offline.reasons == {KEY: "x: torn", ("T", ""): "a whole stream"}
    for name in "BC":
        offline.note(("S", name), ValueError(), 0)
    assert offline.reasons["S", "B"] == "ValueError"
    offline.forget("S", "B")
    assert offline.take_due(1) == [("S", "C")]
    offline.forget("S")
    assert list(offline.reasons) == [("T", "")]
    assert offline.note(("S", "C"), ValueError(), 1) == 0
