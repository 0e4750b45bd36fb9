-- What was seen in some object versions under a policy.

CREATE INDEX observations_by_object ON observations (tenant, policy, ovid);
