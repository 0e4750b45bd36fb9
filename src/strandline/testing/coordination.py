"""The contract of coordination as checks, each a function of a coordinator without runs.

Time is an argument of every call, so a check needs no clock. The safety properties that the simulation watches, and the
checks that look at one coordinator for them:

    S1 mutual exclusion            exactly_one_worker_wins_a_shard, workers_that_claim_at_once_share_the_shards
    S2 fences grow                 fence_monotonicity_across_full_lifecycle, stale_fences_are_refused_for_every_…
    S3 terminal for good           done_and_split_are_for_good, idempotency_before_terminal_state_rejection
    S4 record invariants           records_keep_their_invariants
    S5 cursors grow                cursors_move_forward_across_leases, cursor_monotonicity_combined_with_split_residual
    S6 cursors in bounds           cursors_stay_in_their_shard
    S7 splits cover                split_coverage_key_range_partition, splits_of_splits_cover_the_whole
    S8 runs end for good           run_terminal_irreversibility_done, …_failed, …_cancelled
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

from strandline.testing.contract import named
from strandline.testing.coordination_helpers import LEASE_TTL_NS, CheckedCoordinator, CoordinationCheck
from strandline.testing.coordination_leases import LEASE_CHECKS
from strandline.testing.coordination_runs import RUN_CHECKS
from strandline.testing.coordination_shards import SHARD_CHECKS

COORDINATION_LEASE_TTL_NS = LEASE_TTL_NS
"""The lease duration of a coordinator under check."""

OpenCoordinator = Callable[[], AbstractContextManager[CheckedCoordinator]]
"""Opens a coordinator without runs, whose leases last `COORDINATION_LEASE_TTL_NS`."""

COORDINATION_CHECKS: tuple[CoordinationCheck, ...] = (*LEASE_CHECKS, *SHARD_CHECKS, *RUN_CHECKS)
"""Every promise of the contract, as a function whose name says what must hold."""


def check_coordination(open_coordinator: OpenCoordinator) -> None:
    """Run every check over a coordinator of its own; `ContractBroken` names the first that fails."""
    for check in COORDINATION_CHECKS:
        with named(check.__name__), open_coordinator() as coordinator:
            check(coordinator)
