"""Databases of a PostgreSQL server, made by name and dropped afterwards."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from tests.servers_postgres import PostgresServer


@contextmanager
def databases(server: PostgresServer) -> Iterator[Callable[[str], str]]:
    """Make databases of a server by name, return their addresses, and drop them afterwards."""
    names: list[str] = []

    def execute(statement: str, name: str) -> None:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(sql.Identifier(name)))

    def create(name: str) -> str:
        execute("CREATE DATABASE {}", name)
        names.append(name)
        return server.address(name)

    yield create
    for name in names:
        execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)
