"""Files without a secret that look as if they had some: what precision is measured on.

Lock files, hashes, object ids, certificates, images, bundles, source maps, documentation with placeholders, schemas,
translations, code that handles secrets, and keys that vendors print for everybody. All is made from a seed.
"""

import base64
import hashlib
import json
import random
import string
import textwrap
import tomllib
import uuid
from collections.abc import Callable
from pathlib import Path

_DATA = tomllib.loads(Path(__file__).with_name("data").joinpath("decoys.toml").read_text())
DASHES = "-" * 5
KINDS = ("md5", "sha1", "sha224", "sha256", "sha512")
IDS = ("id", "session_id", "tenant_id", "traceparent", "api_key_id", "secret_version_id", "token_id", "client_id")
PEM = (
    *("CERTIFICATE", "PUBLIC KEY", "RSA PUBLIC KEY", "PGP PUBLIC KEY BLOCK", "PGP SIGNATURE", "CERTIFICATE REQUEST"),
    *("DH PARAMETERS", "X509 CRL"),
)
FORMS = (
    "{name}={value}",
    'export {name}="{value}"',
    "  {name}: {value}",
    '"{name}": "{value}",',
    "const {name} = '{value}';",
)
IMAGES = (
    "image/png;base64,iVBORw0KGgoAAAANSUhEUgAA",
    "image/svg+xml;base64,PHN2ZyB4bWxucz0i",
    "font/woff2;base64,d09GMgABAAAAA",
    "image/gif;base64,R0lGODlhAQAB",
)


class Maker:
    """Values that follow from a seed."""

    def __init__(self, seed: str) -> None:
        self.rng = random.Random(seed)

    def hash(self, kind: str = "sha256") -> str:
        """Return a digest in hex."""
        return hashlib.new(kind, self.rng.randbytes(16)).hexdigest()

    def b64(self, count: int) -> str:
        """Return so many bytes in base64."""
        return base64.b64encode(self.rng.randbytes(count)).decode()

    def uuid(self) -> str:
        """Return a UUID."""
        return str(uuid.UUID(bytes=self.rng.randbytes(16), version=4))

    def word(self) -> str:
        """Return a word that shops and their settings are full of."""
        return self.pick("words")

    def pick(self, name: str) -> str:
        """Return one of a list of texts."""
        return str(self.rng.choice(_DATA[name]))


Made = Callable[[Maker], str]


def lines(count: int, line: Callable[[Maker, int], str]) -> Made:
    """Return a maker of so many lines."""
    return lambda m: "\n".join(line(m, at) for at in range(count)) + "\n"


def npm_lock(m: Maker) -> str:
    """Return a lock file of npm."""
    packages = {
        f"node_modules/{m.word()}-{at}": {
            "version": f"{at % 9}.{at}.0",
            "resolved": f"https://registry.npmjs.org/pkg/-/pkg-{at}.tgz#{m.hash('sha1')}",
            "integrity": f"sha512-{m.b64(64)}",
        }
        for at in range(150)
    }
    return json.dumps({"name": "shop", "lockfileVersion": 3, "packages": packages}, indent=2)


def yarn_entry(m: Maker, at: int) -> str:
    """Return an entry of a lock file of Yarn."""
    where = f"https://registry.yarnpkg.com/x-{at}.tgz#{m.hash('sha1')}"
    return f'{m.word()}-token@^{at}.0.0:\n  version "{at}.0.1"\n  resolved "{where}"\n  integrity sha1-{m.b64(20)}\n'


def poetry_entry(m: Maker, at: int) -> str:
    """Return an entry of a lock file of Poetry."""
    file = f'{{file = "a-{at}.whl", hash = "sha256:{m.hash()}"}}'
    return f'[[package]]\nname = "{m.word()}-auth"\nversion = "{at}.1"\nfiles = [\n    {file},\n]\n'


def cargo_entry(m: Maker, at: int) -> str:
    """Return an entry of a lock file of Cargo."""
    return f'[[package]]\nname = "{m.word()}-secret"\nversion = "0.{at}.0"\nchecksum = "{m.hash()}"\n'


def composer_lock(m: Maker) -> str:
    """Return a lock file of Composer."""
    packages = [{"name": f"acme/{m.word()}", "dist": {"reference": m.hash("sha1"), "shasum": ""}} for _ in range(120)]
    return json.dumps({"content-hash": m.hash("md5"), "packages": packages}, indent=4)


def terraform_entry(m: Maker, at: int) -> str:
    """Return an entry of a lock file of Terraform."""
    hashes = f'    "h1:{m.b64(32)}",\n    "zh:{m.hash()}",\n'
    return f'provider "registry.terraform.io/acme/p{at}" {{\n  hashes = [\n{hashes}  ]\n}}'


def commit(m: Maker, at: int) -> str:
    """Return a commit as `git log -p` shows it."""
    head = f"commit {m.hash('sha1')}\nMerge: {m.hash()[:9]} {m.hash()[:9]}\nAuthor: jo <jo@acme.io>\n"
    return f"{head}\n    {m.word()}: rotate the token (#{at})\n\nindex {m.hash()[:11]}..{m.hash()[:11]} 100644\n"


def certificates(m: Maker) -> str:
    """Return certificates, public keys and signatures."""
    blocks = [
        f"{DASHES}BEGIN {kind}{DASHES}\n{textwrap.fill(m.b64(900), 64)}\n{DASHES}END {kind}{DASHES}" for kind in PEM * 3
    ]
    keys = [
        f"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQ{m.b64(370)} jo@acme",
        f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{m.b64(33)}",
    ]
    return "\n".join([*blocks, *keys, ""])


def known_host(m: Maker, _: int) -> str:
    """Return a line of a known_hosts file."""
    key = f"AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABB{m.b64(66)}"
    return f"|1|{m.b64(20)}|{m.b64(20)} ecdsa-sha2-nistp256 {key}"


def css_line(m: Maker, at: int) -> str:
    """Return a rule of a style sheet."""
    name = f".token-{m.word()}__{m.word()}--{m.hash()[:8]}"
    return f"{name}{{color:#{m.hash()[:6]};--password-field:{at}px;transition:all .2s cubic-bezier(.4,0,.2,1)}}"


def source_map(m: Maker) -> str:
    """Return a source map."""
    digits = string.ascii_letters + string.digits + "+/,;"
    mappings = "".join(digits[byte % 66] for byte in m.rng.randbytes(20_000))
    sources = [f"webpack:///./src/{m.word()}/token.ts"]
    return json.dumps({"version": 3, "sources": sources, "names": _DATA["words"], "mappings": mappings})


def minified(m: Maker) -> str:
    """Return a bundle of JavaScript."""

    def piece(at: int) -> str:
        a, b, c = ("".join(m.rng.choice(string.ascii_letters) for _ in range(2)) for _ in range(3))
        return (
            f"function {a}({b},{c}){{return {b}.token===null?{c}:{b}.password({c})}}",
            f'var {a}={{apiKey:{b}.{c},password:{c}.v,accessToken:"{m.word()}"+{b},secretKey:{a}.get("{m.word()}")}};',
            f'{a}.headers["Authorization"]="Bearer "+{b}.accessToken,{c}.setItem("auth_token",{a}.data.token);',
            f'{c}={{chunk:"{m.hash()[:20]}",module:"./node_modules/{m.word()}/{m.hash("md5")}.js"}};',
            f'e.exports=JSON.parse(\'{{"{m.hash()[:16]}":"{m.word()}.{m.hash()[:8]}.js"}}\');',
        )[at % 5]

    return "".join(piece(at) for at in range(1_500))


def translations(m: Maker) -> str:
    """Return the texts of an application in several languages."""
    texts = {f"{m.word()}.{m.word()}.password_{at}": m.pick("translations") for at in range(300)}
    return json.dumps(texts, ensure_ascii=False, indent=1)


def swagger(m: Maker) -> str:
    """Return the description of an interface."""
    schemas = (_DATA["schema"].format(at=at, word=m.word(), uuid=m.uuid()) for at in range(60))
    return str(_DATA["schema_head"]) + "".join(schemas)


def notebook(m: Maker) -> str:
    """Return a notebook with pictures."""
    cells = [
        {
            "cell_type": "code",
            "id": m.hash()[:8],
            "source": ["tokens = tokenizer(text)\n", "key = tokens[0]"],
            "outputs": [{"data": {"image/png": "iVBORw0KGgo" + m.b64(800)}}],
        }
        for _ in range(20)
    ]
    return json.dumps({"cells": cells, "nbformat": 4}, indent=1)


def build_line(m: Maker, at: int) -> str:
    """Return a line of a build's log."""
    shown = f"token=*** password=[MASKED] request={m.uuid()}"
    return f'2026-03-01T10:{at % 60:02}:00Z #{at} sha256:{m.hash()} done; {shown} etag="{m.hash("md5")}"'


def table(m: Maker, at: int) -> str:
    """Return a table of bytes in C."""
    numbers = ", ".join(f"0x{byte:02x}" for byte in m.rng.randbytes(16))
    return f"static const uint8_t {m.word()}_key_{at}[] = {{ {numbers} }};"


def names(m: Maker, at: int) -> str:
    """Return settings that name secrets and hold none."""
    name = m.pick("names").lower()
    arn = f"arn:aws:kms:eu-west-1:123456789012:key/{m.uuid()}"
    return f'{name}_name = "{m.word()}-{m.word()}-{m.word()}-{at}"\n{name}_arn: {arn}'


def row(m: Maker, at: int) -> str:
    """Return a row of a table."""
    return f"{at},{m.uuid()},{m.word()},{m.rng.random():.6f},{m.hash('md5')},jo{at}@acme.io,{m.b64(12)}"


DECOYS: dict[str, Made] = {
    "package-lock.json": npm_lock,
    "yarn.lock": lines(150, yarn_entry),
    "poetry.lock": lines(120, poetry_entry),
    "go.sum": lines(200, lambda m, at: f"github.com/acme/{m.word()} v1.{at}.0/go.mod h1:{m.b64(32)}"),
    "Cargo.lock": lines(150, cargo_entry),
    "composer.lock": composer_lock,
    ".terraform.lock.hcl": lines(40, terraform_entry),
    "SHA256SUMS": lines(300, lambda m, at: f"{m.hash(KINDS[at % 5])}  {m.word()}-{at}.tar.gz"),
    "ids.yml": lines(300, lambda m, at: f'{IDS[at % len(IDS)]}: "{m.uuid()}"'),
    "git.log": lines(120, commit),
    "ca-bundle.pem": certificates,
    "known_hosts": lines(60, known_host),
    "images.css": lines(24, lambda m, at: f".i{at} {{ background: url(data:{IMAGES[at % 4]}{m.b64(2_000)}); }}"),
    "theme.css": lines(400, css_line),
    "app.js.map": source_map,
    "bundle.min.js": minified,
    "messages.json": translations,
    "openapi.yaml": swagger,
    "sample.env": lines(400, lambda m, at: FORMS[at % 5].format(name=m.pick("names"), value=m.pick("placeholders"))),
    "auth_code.txt": lines(300, lambda m, _: m.pick("code").format(word=m.word())),
    "documentation.md": lines(120, lambda m, _: m.pick("documentation").format(word=m.word(), hash=m.hash("sha1"))),
    "rows.csv": lines(300, row),
    "model.ipynb": notebook,
    "build.log": lines(300, build_line),
    "tables.c": lines(300, table),
    "names.tf": lines(200, names),
}
