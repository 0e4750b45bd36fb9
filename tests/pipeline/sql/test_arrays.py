"""Columns arrive in PostgreSQL as they were, whatever they hold."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from strandline.pipeline.sql import arrays
from tests.effort import examples
from tests.servers_postgres import PostgresServer

i64 = st.integers(-(2**63), 2**63 - 1)
text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)


@pytest.fixture(scope="module")
def connection(postgres_server: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_server.dsn, autocommit=True) as made:
        arrays.register(made)
        yield made


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(
            st.binary(min_size=32, max_size=32),
            st.binary(max_size=9),
            i64,
            st.integers(-(2**31), 2**31 - 1),
            st.integers(-(2**15), 2**15 - 1),
            st.booleans(),
            st.none() | i64,
            st.none() | text,
        ),
        min_size=1,
        max_size=6,
    )
)
def test_every_kind_of_column_round_trips(connection: psycopg.Connection[Any], rows: list[tuple[object, ...]]) -> None:
    kinds: list[tuple[str, Any]] = [
        ("bytea", arrays.digests),
        ("bytea", arrays.byteas),
        ("int8", arrays.int8s),
        ("int4", arrays.int4s),
        ("int2", arrays.int2s),
        ("bool", arrays.bools),
        ("int8", arrays.optional_int8s),
        ("text", arrays.optional_texts),
    ]
    columns = zip(*rows, strict=True)
    parameters = [encode(column) for (_, encode), column in zip(kinds, columns, strict=True)]
    casts = ", ".join(f"%s::{kind}[]" for kind, _ in kinds)
    assert connection.execute(f"SELECT * FROM unnest({casts})", parameters).fetchall() == rows  # noqa: S608
