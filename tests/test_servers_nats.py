"""A test that takes the shared cluster has all of it, whatever the test before has done to it."""

from collections.abc import Mapping
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from strandline.nats.errors import ELECTING_CODES, NoAnswer, ServerRefused
from strandline.nats.jetstream import JetStreamApi
from strandline.nats.settings import NatsSettings
from strandline.nats.socket import NatsSocket
from tests.servers_nats import NatsCluster, fresh_bucket
from tests.waiting import eventually


def answer(api: JetStreamApi, subject: str, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what the server says; None while it has no leader: one that stands still for seconds loses the others."""
    try:
        return api.call(subject, request, subject)
    except (NoAnswer, ServerRefused) as error:
        if isinstance(error, ServerRefused) and error.code not in ELECTING_CODES:
            raise
        return None


@pytest.mark.parametrize("number", [0, *(pytest.param(number, marks=pytest.mark.long) for number in (1, 2))])
def test_a_cluster_that_lost_a_member_places_replicas_on_all_of_them_once_it_is_mended(
    nats_cluster: NatsCluster, number: int
) -> None:
    nats_cluster.members[number].kill()
    nats_cluster.mend()
    for member in nats_cluster.members:
        name = fresh_bucket()
        with closing(NatsSocket.connect(NatsSettings(member.url))) as connection:
            api = JetStreamApi(connection, "$JS.API")
            made = eventually(partial(answer, api, f"STREAM.CREATE.{name}", {"name": name, "num_replicas": 3}))
            assert made is not None
            assert len(made["cluster"]["replicas"]) == 2
