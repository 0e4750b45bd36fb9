"""The verifier sends only bytes that have the keyed hash of a finding."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from strandline.detect.locations import FILE, Location
from strandline.detect.revealed import Revealed
from strandline.findings.reports.values import ReportFinding
from strandline.pipeline.identity import SecretHash, norm_hash, secret_hash
from strandline.pipeline.verifications import Liveness
from strandline.scan.state import open_state
from strandline.verify import Addresses, Verifier
from strandline.verify.host_limits import HostLimits
from strandline.verify.http_client import Answer, Request
from strandline.verify.item_secrets import ItemSecrets
from tests.verify.provider_server import example


class Host:
    """Accepts everything, and counts it."""

    def __init__(self) -> None:
        self.requests = 0

    def send(self, request: Request) -> Answer:
        self.requests += request.method == "GET"
        return Answer(200, {}, b'{"login": "a", "id": 1}')


class Read:
    """A source whose bytes are not what their hash says, or are."""

    def __init__(self, secret: SecretHash, data: bytes) -> None:
        self._found = Revealed("github-pat", secret, data, b"", b"", ())

    def read(self, wanted: set[SecretHash]) -> Iterator[Revealed]:
        assert self._found.secret in wanted
        yield self._found


@pytest.mark.parametrize(("read", "sent"), [("planted", 1), ("another", 0)])
def test_bytes_of_another_hash_are_not_sent(tmp_path: Path, read: str, sent: int) -> None:
    host = Host()
    with open_state(str(tmp_path / "state"), create=True) as state:
        secret = secret_hash(state.key, norm_hash(example("github", "planted")[1].encode()))
        finding = ReportFinding("00", "github-pat", secret, (Location(source=FILE, path="a"),), 1)
        source = cast("ItemSecrets", Read(secret, example("github", read)[1].encode()))
        done = Verifier(state, Addresses(), lambda: HostLimits(host)).verify([finding], [source])
    assert host.requests == sent
    assert done.states == {Liveness.LIVE if sent else Liveness.UNKNOWN: 1}
