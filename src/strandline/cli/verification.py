"""What `scan --verify` and `findings verify` share: asking about findings, and saying what came of it."""

import sys
from collections.abc import Iterable, Sequence

from strandline.cli.output import Record
from strandline.findings.reports.values import ReportFinding
from strandline.pipeline.triage import TriageState
from strandline.pipeline.verifications import Liveness
from strandline.scan import ScanRequest
from strandline.scan.inventory import find_inventory
from strandline.scan.state import State
from strandline.scan.worker.engine_cache import engine_for
from strandline.verify import Addresses, Verified, Verifier
from strandline.verify.host_limits import HostLimits
from strandline.verify.http_client import HttpClient
from strandline.verify.item_secrets import ItemSecrets, SecretVersions


def verify_scan(
    state: State, request: ScanRequest, findings: Iterable[ReportFinding], addresses: Addresses
) -> Verified:
    """Ask about the findings of a scan that has ended; its own sources are read again."""
    inventory = find_inventory(state.stores.state, state.tenant, request.inputs_digest)
    engine = engine_for(request.rules, request.limits, state.key)
    sources = dict(enumerate(request.sources))
    secrets = [] if inventory is None else [ItemSecrets(state, inventory, sources, engine, SecretVersions(state))]
    return verify_findings(state, findings, secrets, addresses)


def verify_findings(
    state: State,
    findings: Iterable[ReportFinding],
    secrets: Sequence[ItemSecrets],
    addresses: Addresses,
    *,
    again: bool = False,
) -> Verified:
    """Ask about findings, but for false positives."""
    wanted = [one for one in findings if one.decision is None or one.decision.state != TriageState.FALSE_POSITIVE]
    client = HttpClient()
    return Verifier(state, addresses, lambda: HostLimits(client), again=again).verify(wanted, secrets)


def verified_record(verified: Verified) -> Record:
    """Return what a verification did as a JSON record."""
    return {
        **{state.value: verified.states[state] for state in Liveness},
        "asked": verified.asked,
        "without_provider": verified.without_provider,
    }


def print_verified(verified: Verified) -> None:
    """Print what a verification did, on standard error."""
    total = verified.states.total()
    states = ", ".join(f"{verified.states[state]:,} {state.value}" for state in Liveness)
    what = "1 secret" if total == 1 else f"{total:,} secrets"
    more = f"; {verified.without_provider:,} of providers that are not asked" if verified.without_provider else ""
    print(f"verified {what}: {states} ({verified.asked:,} asked now){more}", file=sys.stderr)
