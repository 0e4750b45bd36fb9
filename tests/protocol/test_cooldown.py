"""The pause after claims that failed."""

from strandline.protocol.cooldown import COOLDOWN_FIRST_NS, COOLDOWN_MAX_NS, Cooldown, after_failure, remaining_ns


def test_the_pause_doubles_up_to_its_limit() -> None:
    pauses = []
    paused = Cooldown()
    for _ in range(40):
        paused = after_failure(paused, 1_000)
        pauses.append(paused.until - 1_000)
    assert pauses[:3] == [COOLDOWN_FIRST_NS, 2 * COOLDOWN_FIRST_NS, 4 * COOLDOWN_FIRST_NS]
    assert pauses[-1] == COOLDOWN_MAX_NS
    assert pauses == sorted(pauses)


def test_nobody_waits_before_the_first_failure_or_after_the_pause() -> None:
    assert remaining_ns(Cooldown(), 0) == 0
    paused = after_failure(Cooldown(), 1_000)
    assert remaining_ns(paused, paused.until - 1) == 1
    assert remaining_ns(paused, paused.until) == 0
