"""Find a token in bytes, by a rule that is compiled here."""

from strandline.detect import Engine, parse_rules
from strandline.pipeline.identity import TenantSecretKey

rules = parse_rules("[[rules]]\nid = 'token'\nregex = 'tok_[a-z0-9]{16}'\n")
engine = Engine(rules, key=TenantSecretKey(bytes(range(32))))
assert len(engine.scan(b"key = tok_" + b"a1b2c3d4e5f6a7b8", "config.py").findings) == 1
