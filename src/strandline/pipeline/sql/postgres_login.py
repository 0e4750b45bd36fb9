"""The complete login of this process to PostgreSQL, so that a process on another machine can log in the same way.

libpq completes an address from the environment (`PGUSER`, `PGSSLMODE`, …), a service file, the password
file and the name of the account. Another machine has none of these, or others.

Invariants: what the address says itself stays as it is; the password is apart, and only where the server asked for one
that the address lacks; passwords of client keys, and paths of password and service files, are never spelled out.
"""

import os
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from strandline.lazy_imports import deferred
from strandline.pipeline.sql.postgres_errors import bad_dsn, cause_of, postgres_error

if TYPE_CHECKING:
    import psycopg
    from psycopg import conninfo
else:
    psycopg, conninfo = deferred("psycopg", "postgres"), deferred("psycopg.conninfo", "postgres")

_ALWAYS = frozenset({"user", "dbname"})
_NEVER = frozenset({"password", "sslpassword", "passfile", "service", "servicefile", "client_encoding", "replication"})
# The driver tries the hosts of a list one by one, and then knows only of the one that answered.
_LISTS = {"host": "PGHOST", "hostaddr": "PGHOSTADDR", "port": "PGPORT"}


@dataclass(frozen=True)
class Login:
    """An address that needs nothing of the environment, and its password, if the server wants one."""

    address: str = field(repr=False)
    password: str | None = field(default=None, repr=False)
    nearby: str | None = None
    """Where the server was reached, if that is a place of this machine alone: a socket, or the loopback interface."""

    def with_password(self) -> str:
        """Return the address with the password in it."""
        return (
            self.address
            if self.password is None
            else f"{self.address}&{urlencode({'password': self.password}, quote_via=quote)}"
        )


def spelled_out(address: str, where: str) -> Login:
    """Log in at an address and return the login; errors call it `where`."""
    given = _given(address)
    try:
        with psycopg.connect(address, connect_timeout=10) as connection:
            pgconn = connection.pgconn
            options = [(one.keyword.decode(), one.envvar, one.compiled, one.val) for one in pgconn.info]
            password = connection.info.password if pgconn.used_password and "password" not in given else None
            nearby = nearby_place(connection.info.host, connection.info.hostaddr)
    except psycopg.Error as error:
        raise postgres_error(where, error) from cause_of(error)
    has_service = bool(given.pop("service", None) or os.environ.get("PGSERVICE"))
    found = {
        name: value.decode()
        for name, variable, compiled, value in options
        if value is not None
        and value != compiled
        and (name in _ALWAYS or has_service or (variable is not None and variable.decode() in os.environ))
    }
    lists = {name: os.environ[variable] for name, variable in _LISTS.items() if os.environ.get(variable)}
    parameters = {name: value for name, value in (found | lists).items() if name not in _NEVER} | given
    return Login("postgresql://?" + urlencode(parameters, quote_via=quote), password or None, nearby)


def nearby_place(host: str, address: str) -> str | None:
    """Return the place of a server that other machines cannot reach; None where they may."""
    if host.startswith(("/", "@")):
        return host
    try:
        return address if ip_address(address).is_loopback else None
    except ValueError:  # an address with a scope, which is none of the loopback interface
        return None


def _given(address: str) -> dict[str, str]:
    try:
        return {name: str(value) for name, value in conninfo.conninfo_to_dict(address).items() if value is not None}
    except psycopg.ProgrammingError:
        pass
    raise bad_dsn()  # outside the handler: the driver's error quotes the string, password and all
