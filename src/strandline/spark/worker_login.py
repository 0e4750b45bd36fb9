"""The login of workers on other machines to the state: that of the driver, as far as it may leave the driver.

The request for workers spells out the settings that the driver takes from its environment, a service file or the name
of its account. A password that is not in the address goes with it only where it stays private: where Spark encrypts its
traffic, or uses the loopback interface alone. Elsewhere workers need a password of their own.

Invariants: a password is in the pickled task and nowhere else: in no setting, no argument and no environment of a
process.
"""

from collections.abc import Callable
from dataclasses import replace

from strandline.pipeline.errors import AccessRefused
from strandline.pipeline.sql.postgres import PostgresDatabase
from strandline.pipeline.sql.postgres_login import Login, spelled_out
from strandline.pipeline.stores import open_database
from strandline.scan.errors import WorkersFailed
from strandline.scan.events import StateNearby
from strandline.scan.request import ScanRequest
from strandline.scan.retries import retried
from strandline.spark.settings import LOOPBACK, is_loopback

LOGIN_HINT = (
    "a worker logs in from its own machine: give it a password file (~/.pgpass) there, or encrypt what Spark sends "
    "(spark.authenticate and spark.network.crypto.enabled), and the password of this process goes to it; "
    "docs/cluster.md has more"
)


def request_for_workers(
    request: ScanRequest,
    master: str,
    setting: Callable[[str], str],
    warn: Callable[[StateNearby], None] = lambda _: None,
) -> ScanRequest:
    """Return a request with which workers of a cluster can log in; `setting` reads one of the session's.

    `warn` hears of a server that workers on other machines cannot reach: they would wait for it for a minute.
    """
    with open_database(request.address) as database:
        if not isinstance(database, PostgresDatabase):
            return request
        where = database.describe()
    login = retried(lambda: spelled_out(request.address, where))
    if login.nearby is not None and not _is_here(master, setting):
        warn(StateNearby(login.nearby))
    return replace(request, address=_address(login, is_private=is_private(master, setting)))


def _address(login: Login, *, is_private: bool) -> str:
    return login.with_password() if is_private else login.address


def is_private(master: str, setting: Callable[[str], str]) -> bool:
    """Return whether Spark's traffic to the executors stays private."""

    def is_on(name: str) -> bool:
        return setting(name).lower() == "true"

    is_encrypted = is_on("spark.authenticate") and is_on("spark.network.crypto.enabled")
    return _is_here(master, setting) or is_encrypted or is_on("spark.ssl.rpc.enabled")


def _is_here(master: str, setting: Callable[[str], str]) -> bool:
    """Return whether all executors are on this machine: others could reach neither the master nor the driver."""
    return is_loopback(master) and setting("spark.driver.host") in LOOPBACK


def worker_error(kind: str, reason: str, hint: str | None) -> WorkersFailed:
    """Return the error for a worker that gave up."""
    return WorkersFailed(kind, reason, LOGIN_HINT if kind == AccessRefused.__name__ else hint)
