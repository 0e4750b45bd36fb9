"""Fixtures for tests with ordinary clients; tests that are coroutines are run as such."""

from tests.broker.clients.servers import (  # noqa: F401 - fixtures and a hook
    js,
    kind,
    launch,
    name,
    nc,
    pytest_pyfunc_call,
    runner,
    server,
    shared_servers,
    start,
)
