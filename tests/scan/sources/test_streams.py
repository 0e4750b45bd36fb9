"""Streams and buckets are scanned by sequence, up to the last one of the listing, on our broker and on nats-server."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.js.api import KeyValueConfig, RetentionPolicy, StreamConfig

from strandline.errors import InvalidInput, StrandlineError
from strandline.scan.sources import InputUnusable, ItemProblem, Problem, StreamSource
from strandline.scan.sources.streams import BLOCK_SEQUENCES, format_block, parse_block
from tests.scan.dying import LEASE_S, hours_later, live
from tests.scan.sources.helpers import listed, locators
from tests.scan.threaded_workers import TENANT, ThreadWorkers, made, request_for, scanned
from tests.servers_nats import NatsServer, fresh_bucket, running_nats
from tests.spark.rows import rows_of


@pytest.fixture(scope="module", params=["nats-server", "broker"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "nats-server":
        server: NatsServer = request.getfixturevalue("nats_server")
        yield server.url
        return
    with running_nats(program=(sys.executable, "-m", "strandline", "serve")) as broker:
        yield broker.url


def do(url: str, what) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
    async def run() -> None:
        client = Client()
        await client.connect(url)
        await what(client.jetstream())
        await client.close()

    asyncio.run(run())


@pytest.fixture
def stream(url: str) -> str:
    name = fresh_bucket()

    async def make(js) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
        await js.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"]))
        for number in range(1, 2_101):
            text = f"alpha_{1000 + number}" if number in (3, 2_050) else f"nothing {number}"
            headers = {"Token": "beta_700"} if number == 7 else None
            await js.publish_async(f"{name}.a{number % 3}", text.encode(), headers=headers)
        await js.publish_async_completed()

    do(url, make)
    return name


def places(source: StreamSource, address: str) -> list[str]:
    outcome = scanned(request_for(address, source), ThreadWorkers(1))
    return sorted(one.observation.location_display or "" for one in outcome.findings)


def test_messages_are_scanned_once_by_their_sequences(url: str, stream: str, tmp_path: Path) -> None:
    source, address = StreamSource.at(f"{url}/{stream}"), made(str(tmp_path / "state.db"))
    assert [parse_block(locator) for locator in locators(source)] == [0, 1, 2]
    wanted = [
        f"{stream}/{stream}.a0@3:1:1",
        f"{stream}/{stream}.a1 (headers)@7:2:8",
        f"{stream}/{stream}.a1@2050:1:1",
    ]
    assert places(source, address) == sorted(wanted)

    async def more(js) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
        await js.publish(f"{stream}.b", b"beta_500")
        await js.delete_msg(stream, 3)
        await js.purge_stream(stream, seq=BLOCK_SEQUENCES)

    do(url, more)
    outcome = scanned(request_for(address, source), ThreadWorkers(1))
    assert outcome.new_items == 1, "the block that grew; what was purged is gone, and the next block is as it was"
    with source.open() as reader, pytest.raises(ItemProblem) as refused:
        reader.read(format_block(0), None)
    assert refused.value.code is Problem.VANISHED


def test_a_bucket_is_scanned_by_its_keys(url: str, tmp_path: Path) -> None:
    name = fresh_bucket()

    async def make(js) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
        bucket = await js.create_key_value(KeyValueConfig(bucket=name, history=5))
        await bucket.put("db.password", b"alpha_100")
        await bucket.put("db.password", b"clean now")

    do(url, make)
    found = places(StreamSource.at(f"{url}/kv/{name}"), made(str(tmp_path / "state.db")))
    assert found == [f"KV_{name}/db.password@1:1:1"], "an older value is still there for everyone who reads the history"


def test_what_cannot_be_scanned_is_a_typed_error(url: str) -> None:
    name = fresh_bucket()

    async def make(js) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
        await js.add_stream(StreamConfig(name=name, subjects=[name], retention=RetentionPolicy.WORK_QUEUE))

    do(url, make)
    with pytest.raises(InputUnusable, match="workqueue"):
        listed(StreamSource.at(f"{url}/{name}"))
    with pytest.raises(StrandlineError, match="nothing-here"):
        listed(StreamSource.at(f"{url}/nothing-here"))
    with pytest.raises(InvalidInput) as refused:
        StreamSource.at(url.replace("nats://", "nats://ada:secret-word@"))
    assert "secret-word" not in str(refused.value)


def test_a_scan_that_is_killed_goes_on(url: str, stream: str, tmp_path: Path) -> None:
    source = StreamSource.at(f"{url}/{stream}")
    calm = request_for(made(str(tmp_path / "calm.db")), source)
    scanned(calm, ThreadWorkers(1))
    killed = request_for(made(str(tmp_path / "killed.db")), source, lease_ttl_s=LEASE_S)
    assert live(killed, 9) != 0
    with hours_later():
        scanned(killed, ThreadWorkers(1))
    with calm.open_stores() as one, killed.open_stores() as other:
        assert rows_of(one, TENANT) == rows_of(other, TENANT)
