"""A notice is signed as receivers check it, and a project's configuration is read."""

from pathlib import Path

from strandline.alarms import sign, verify
from strandline.config import read_file, resolve

assert verify("secret", sign("secret", b"{}", 1_700_000_000), b"{}", 1_700_000_001)
path = Path("strandline.toml")
path.write_text('[findings]\nconfidence = "medium"\n')
assert resolve("findings", {}, read_file(path, {}))["confidence"].value == "medium"
