"""What all tests share: servers, a clean start and end, how hard hypothesis looks (`HYPOTHESIS_PROFILE`)."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import campaigns, isolation, leftovers, tally
from tests.scheduling import (  # noqa: F401 - hooks
    pytest_collection,
    pytest_collection_modifyitems,
    pytest_xdist_make_scheduler,
)
from tests.servers_etcd import etcd_prefix, etcd_server  # noqa: F401 - fixtures
from tests.servers_nats import nats_bucket, nats_cluster, nats_server, shared_nats_cluster  # noqa: F401 - fixtures
from tests.servers_postgres import postgres_schema, postgres_server, postgres_state  # noqa: F401 - fixtures
from tests.servers_seaweed import seaweed_address, seaweed_server  # noqa: F401 - fixtures
from tests.servers_spark import active_spark, spark  # noqa: F401 - fixtures

leftovers.restore_signals()


def pytest_configure(config: pytest.Config) -> None:
    """Register what looks for leftovers as a plugin: hooks of a conftest.py do not hear of fixtures of the session."""
    isolation.remove_settings(os.environ)
    if found := isolation.files_above([Path(tempfile.gettempdir()), config.rootpath]):
        raise pytest.UsageError(f"commands under test would read {found[0]}: move it away, or set TMPDIR")
    config.pluginmanager.register(leftovers)
    if settings.get_current_profile_name() == "long":
        tally.install(config)
    if campaign := os.environ.get("STRANDLINE_CAMPAIGN"):
        config.pluginmanager.register(campaigns.Campaign(campaign))


# Deadlines and slow draws measure a busy machine, not the code; the blob printed on failure replays it.
settings.register_profile(
    "default", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow], max_examples=30
)
settings.register_profile("long", settings.get_profile("default"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
