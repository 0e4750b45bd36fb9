"""The verifier: of some findings, those to ask about; one request for each secret; results in the state.

    fresh       a stored answer of the same host that is young enough: no request
    read        the secret, read again from its source, with the keyed hash of the finding
    asked       one request; a refusal of the pace or a host that does not answer leaves it unknown

Invariants: a secret is sent only if its keyed hash is that of a finding and its form is that of its provider; each
answer is stored before the next secret is sent; an unknown is asked again sooner than a known one, and no answer does
not replace one that the same host gave.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from strandline.clock import NS_PER_S, Clock, SystemClock
from strandline.detect.revealed import Revealed
from strandline.findings.reports.values import ReportFinding
from strandline.pipeline.identity import SecretHash, norm_hash, secret_hash
from strandline.pipeline.verifications import Liveness, Verification, read_verifications, record_verifications
from strandline.scan.state import State
from strandline.verify.addresses import Addresses
from strandline.verify.credentials import Credential
from strandline.verify.host_limits import HostLimits
from strandline.verify.http_client import NotAnswered
from strandline.verify.item_secrets import ItemSecrets
from strandline.verify.providers import Judged, Provider, provider_of, unanswered

KNOWN_AGE_S = 24 * 3600
UNKNOWN_AGE_S = 15 * 60
_NOT_READ = "it could not be read again from its source"


@dataclass
class Verified:
    """What a verification did: secrets by state, those that were asked about, and those without a provider."""

    states: Counter[Liveness] = field(default_factory=Counter)
    asked: int = 0
    without_provider: int = 0


class Verifier:
    """Verifies findings of one state."""

    def __init__(
        self,
        state: State,
        addresses: Addresses,
        limits: Callable[[], HostLimits],
        *,
        clock: Clock | None = None,
        again: bool = False,
    ) -> None:
        self._state = state
        self._addresses = addresses
        self._limits = limits
        self._clock = clock or SystemClock()
        self._again = again
        self._hosts: dict[str, HostLimits] = {}

    def verify(self, findings: Iterable[ReportFinding], secrets: Sequence[ItemSecrets]) -> Verified:
        """Ask about findings, whose secrets are read from `secrets`; return what became of them."""
        done = Verified()
        providers: dict[SecretHash, Provider] = {}
        for finding in findings:
            provider = provider_of(finding.rule_id)
            if provider is None:
                done.without_provider += finding.secret not in providers
            else:
                providers[finding.secret] = provider
        known = read_verifications(self._state.stores.state, self._state.tenant)
        results = {one: known[one] for one, provider in providers.items() if self._is_fresh(known.get(one), provider)}
        left = set(providers) - set(results)
        incomplete: dict[SecretHash, Judged] = {}
        for each in secrets:
            for found in each.read(left):
                if found.secret not in left or found.rule_id not in providers[found.secret].rules:
                    continue
                provider = providers[found.secret]
                credential = self._credential(provider, found)
                if isinstance(credential, Judged):
                    incomplete[found.secret] = credential
                    continue
                left.discard(found.secret)
                done.asked += 1
                judged = self._asked(provider, credential)
                results[found.secret] = self._stored(found.secret, provider, judged, known.get(found.secret))
        for secret in left:
            judged = incomplete.get(secret) or unanswered(_NOT_READ)
            results[secret] = self._stored(secret, providers[secret], judged, known.get(secret))
        done.states.update(one.state for one in results.values())
        return done

    def _is_fresh(self, known: Verification | None, provider: Provider) -> bool:
        if known is None or self._again or known.host != self._addresses.host(provider):
            return False
        age_s = (self._clock.now_ns() - known.when_ns) / NS_PER_S
        return 0 <= age_s < (UNKNOWN_AGE_S if known.state is Liveness.UNKNOWN else KNOWN_AGE_S)

    def _credential(self, provider: Provider, found: Revealed) -> Credential | Judged:
        """Return what may be sent to a provider, or why it is not sent."""
        if secret_hash(self._state.key, norm_hash(found.data)) != found.secret:
            return unanswered(_NOT_READ)
        if provider.form.fullmatch(found.data) is None:
            return unanswered("its form is not that of the provider's secrets")
        return provider.credential(found) or unanswered(provider.missing())

    def _asked(self, provider: Provider, credential: Credential) -> Judged:
        """Return what a provider says."""
        base, host = self._addresses.base(provider), self._addresses.host(provider)
        limits = self._hosts.setdefault(host, self._limits())
        try:
            answer = limits.send(lambda: provider.request(base, credential, self._now()))
        except NotAnswered as error:
            return unanswered(str(error))
        return provider.judge(answer, credential)

    def _stored(
        self, secret: SecretHash, provider: Provider, judged: Judged, known: Verification | None
    ) -> Verification:
        """Store an answer; where there is none, what the host said before stays, so that no outage hides a live one."""
        host = self._addresses.host(provider)
        is_kept = known is not None and known.state is not Liveness.UNKNOWN and known.host == host
        if known is not None and is_kept and not judged.is_answer:
            return known
        answer = Verification(judged.state, self._clock.now_ns(), host, judged.reason)
        record_verifications(self._state.stores.state, self._state.tenant, [(secret, answer)])
        return answer

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ns() / NS_PER_S, UTC)
