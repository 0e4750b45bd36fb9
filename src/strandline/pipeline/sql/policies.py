"""Policies in the tables `policies` and `policy_rules`: content under its own name, so it never changes."""

from strandline.pipeline.errors import ContentConflict
from strandline.pipeline.identity import PolicyHash, TenantId
from strandline.pipeline.policy import PolicyRecord, validate
from strandline.pipeline.sql.database import AnyConnection, Database
from strandline.pipeline.sql.statements import statements


class SqlPolicies:
    """Policies in SQLite or PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def register_policy(self, tenant: TenantId, policy: PolicyRecord) -> None:
        """Store a policy, and return once it is durable; idempotent. `ContentConflict` if its rules differ."""
        validate(tenant, policy)
        sql = statements(self._database.dialect, "policies")

        def write(connection: AnyConnection) -> None:
            if self._stored(connection, tenant, policy.policy) is None:
                row = tenant, policy.policy, policy.frame_digest, self._database.clock.now_ns()
                connection.execute(sql["insert"], row)
                rules = [(tenant, policy.policy, *rule) for rule in sorted(policy.rules)]
                connection.cursor().executemany(sql["insert_rule"], rules)
            # Read again: another writer may have been first, and with other rules.
            if self._stored(connection, tenant, policy.policy) != policy:
                raise ContentConflict("policies")

        self._database.write(write)

    def get_policy(self, tenant: TenantId, policy: PolicyHash) -> PolicyRecord | None:
        """Return a policy, or None if the tenant has no policy of that name."""
        return self._database.read(lambda connection: self._stored(connection, tenant, policy))

    def _stored(self, connection: AnyConnection, tenant: TenantId, policy: PolicyHash) -> PolicyRecord | None:
        sql = statements(self._database.dialect, "policies")
        wanted = {"tenant": tenant, "policy": policy}
        row = connection.execute(sql["get"], wanted).fetchone()
        if row is None:
            return None
        return PolicyRecord(policy, row[0], tuple(connection.execute(sql["rules"], wanted).fetchall()))
