"""Where secrets stand in real files: kinds of files, and lines of configuration that are no secret.

A surrounding (`data/surroundings.toml`) is a file with a place for a secret: `{v}` is its value, `{v64}` and `{vurl}`
the same encoded, and `{upper}`, `{lower}`, `{camel}` and so on its name, as that kind of file writes names; `is_named`
says that the name is there. The lines around it are chosen to mislead: their names speak of keys, tokens and passwords,
their values are hashes, identifiers, addresses and paths.
"""

import base64
import hashlib
import random
import tomllib
import uuid
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

OPEN, CLOSE = "\x02", "\x03"
"""Around a secret in a text that is being put together."""


@dataclass(frozen=True, slots=True)
class Surrounding:
    """A kind of file; `noise` is how it writes a harmless setting, and `{noise}` stands for some of them."""

    path: str
    text: str
    noise: str = '{key} = "{value}"'
    is_named: bool = True
    encoding: str = "utf-8"


_DATA = tomllib.loads(Path(__file__).with_name("data").joinpath("surroundings.toml").read_text())
SURROUNDINGS = tuple(Surrounding(**each) for each in _DATA["surroundings"])
BLOCKS = tuple(Surrounding(**each) for each in _DATA["blocks"])
"""The kinds of files for a value with a name, and for a text that brings its own surroundings."""
HARMLESS: dict[str, str] = _DATA["harmless"]


def harmless(rng: random.Random) -> tuple[str, str]:
    """Return the name and the value of a setting that is no secret."""
    data = rng.randbytes(24)
    made = {
        "commit": hashlib.sha1(data).hexdigest(),  # noqa: S324 - the form is what counts
        "image_digest": f"sha256:{hashlib.sha256(data).hexdigest()}",
        "etag": hashlib.md5(data).hexdigest(),  # noqa: S324 - the form is what counts
        "request_id": str(uuid.UUID(bytes=data[:16], version=4)),
        "integrity": f"sha512-{base64.b64encode(hashlib.sha512(data).digest()).decode()}",
        "trace_id": data[:16].hex(),
        "tenant_id": str(uuid.UUID(bytes=data[8:], version=4)),
        "build_number": str(rng.randrange(10**6)),
        "checksum": hashlib.sha256(data[1:]).hexdigest(),
        "key_fingerprint": f"SHA256:{base64.b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')}",
    }
    options = [*HARMLESS.items(), *made.items()]
    return options[rng.randrange(len(options))]


def noise(form: str, rng: random.Random) -> str:
    """Return some harmless settings in the form of a file."""
    lines = []
    for _ in range(rng.randrange(1, 5)):
        key, value = harmless(rng)
        encoded = base64.b64encode(value.encode()).decode()
        lines.append(form.format(key=key, upper_key=key.upper(), value=value, value64=encoded))
    return ("" if form.endswith((",", '");')) else "\n").join(lines)


def written(surrounding: Surrounding, number: int, name: str, value: str, rng: random.Random) -> tuple[str, str]:
    """Return the path and the text of a file with one secret, between `OPEN` and `CLOSE`."""
    words = name.lower().replace("-", "_").replace(".", "_").strip("_").split("_")
    encoded = base64.b64encode(value.encode()).decode()
    fields = {
        "n": f"{number:05}",
        "upper": "_".join(words).upper(),
        "lower": "_".join(words),
        "camel": words[0] + "".join(map(str.capitalize, words[1:])),
        "kebab": "-".join(words),
        "pascal": "".join(map(str.capitalize, words)),
        "dotted": ".".join(words),
        "head": words[0],
        "rest": "_".join(words[1:]) or "api_key",
        "v": OPEN + value + CLOSE,
        "v64": OPEN + encoded + CLOSE,
        "vurl": OPEN + quote(value, safe="") + CLOSE,
    }
    parts = surrounding.text.split("{noise}")
    text = "".join(
        part.format(**fields) + (noise(surrounding.noise, rng) if at < len(parts) - 1 else "")
        for at, part in enumerate(parts)
    )
    return surrounding.path.format(**fields), text
