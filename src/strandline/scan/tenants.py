"""Tenants by name: what a command line calls them, and what the stores do."""

from strandline.pipeline.identity import TenantId
from strandline.pipeline.texts import check_text
from strandline.protocol.canonical import derive, prefixed

NAME_BYTES_MAX = 256


def tenant_named(name: str) -> TenantId:
    """Return the id of the tenant of a name; equal names are one tenant, on every machine."""
    check_text(name, "a tenant's name", NAME_BYTES_MAX)
    return TenantId(derive("strandline/tenant/v1", prefixed(name.encode())))
