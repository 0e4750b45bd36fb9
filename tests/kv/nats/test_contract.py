"""Buckets on a real nats-server keep the same contract as the memory twin."""

import pytest

from strandline.kv.nats.connection import NatsConnection
from strandline.testing import KV_STORE_CHECKS, KvStoreCheck
from tests.kv.nats.opening import opener, run_on_a_server
from tests.servers_nats import NatsServer


@pytest.mark.parametrize("check", KV_STORE_CHECKS, ids=lambda check: check.__name__)
def test_buckets_of_a_nats_server_keep_the_contract(nats_server: NatsServer, check: KvStoreCheck) -> None:
    run_on_a_server(check, opener(lambda: NatsConnection(nats_server.url)))
