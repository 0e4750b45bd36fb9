"""Many workers over coordination in objects: repeatable, complete, and with requests that interleave."""

from strandline.sim.object_workers import Fleet, simulate_workers

FLEET = Fleet(20, 60, pages_per_shard=6)


def test_the_same_seed_is_the_same_simulation() -> None:
    assert simulate_workers(7, FLEET) == simulate_workers(7, FLEET)
    assert simulate_workers(7, FLEET) != simulate_workers(8, FLEET)


def test_every_shard_is_done_though_workers_die_and_stop_past_their_leases() -> None:
    fleet = Fleet(20, 60, pages_per_shard=6, paused_share=0.2, died_share=0.2)
    traffic = simulate_workers(3, fleet)  # which checks that all are done
    assert traffic.died
    assert traffic.lost_leases
    assert traffic.taken_over >= traffic.died
    assert traffic.requests["put page"] >= 2 * 60 * 6


def test_workers_that_claim_at_once_meet() -> None:
    """Requests interleave: with one free shard for many workers, writes conflict."""
    traffic = simulate_workers(1, Fleet(20, 20, pages_per_shard=2))
    assert traffic.requests["put conflict"]


def test_the_requests_of_a_claim_do_not_grow_with_the_workers() -> None:
    """Without stragglers: what is listed and read for each claim is the same for few and many, but for the end."""
    calm = {"slow_share": 0.0, "paused_share": 0.0, "died_share": 0.0}
    few, many = (simulate_workers(1, Fleet(count, 8 * count, 4, **calm)) for count in (5, 40))
    assert few.claims == 40
    assert many.claims == 320
    assert many.requests["list"] / many.claims <= 2 * few.requests["list"] / few.claims
    assert many.claim_s / many.claims <= 2 * few.claim_s / few.claims
