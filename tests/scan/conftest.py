"""What tests of the scan share."""

from tests.scan.fixtures import address, own_cache, postgres_address, things  # noqa: F401 - fixtures
