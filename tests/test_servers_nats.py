"""A test that takes the shared cluster has all of it, whatever the test before has done to it."""

from contextlib import closing

import pytest

from strandline.nats.jetstream import JetStreamApi
from strandline.nats.settings import NatsSettings
from strandline.nats.socket import NatsSocket
from tests.servers_nats import NatsCluster, fresh_bucket


@pytest.mark.parametrize("number", range(3))
def test_a_cluster_that_lost_a_member_places_replicas_on_all_of_them_once_it_is_mended(
    nats_cluster: NatsCluster, number: int
) -> None:
    nats_cluster.members[number].kill()
    nats_cluster.mend()
    name = fresh_bucket()
    for member in nats_cluster.members:
        with closing(NatsSocket.connect(NatsSettings(member.url))) as connection:
            api = JetStreamApi(connection, "$JS.API")
            made = api.call(f"STREAM.CREATE.{name}", {"name": name, "num_replicas": 3}, name)
            assert len(made["cluster"]["replicas"]) == 2
            api.call(f"STREAM.DELETE.{name}", None, name)
