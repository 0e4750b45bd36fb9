"""Texts that look like secrets and are none, made from a seed: what a rule must not report."""

import base64
import hashlib
import json
import random
import uuid

SEED = 20_241_115


def hard_negatives() -> dict[str, str]:
    """Return texts by the name of what they are."""
    rng = random.Random(SEED)
    return {
        "hashes": _hashes(rng),
        "uuids": _uuids(rng),
        "npm lock file": _npm_lock(rng),
        "python lock file": _python_lock(rng),
        "go sums": _go_sums(rng),
        "cargo lock file": _cargo_lock(rng),
        "minified code": _minified(rng),
        "images in base64": _images(rng),
        "certificates": _certificates(rng),
        "git objects": _git_objects(rng),
        "code about secrets": CODE,
        "placeholders": "\n".join(_placeholders()),
        "vendors' documentation": DOCUMENTATION,
    }


def _hex(rng: random.Random, count: int) -> str:
    return rng.randbytes(count // 2).hex()


def _base64(rng: random.Random, count: int) -> str:
    return base64.b64encode(rng.randbytes(count)).decode()


def _hashes(rng: random.Random) -> str:
    lines = []
    for at in range(200):
        data = rng.randbytes(8)
        lines += [
            f"{hashlib.md5(data).hexdigest()}  file{at}.bin",  # noqa: S324 - the form is what counts
            f"sha1sum = {hashlib.sha1(data).hexdigest()}",  # noqa: S324 - the form is what counts
            f'checksum: "{hashlib.sha256(data).hexdigest()}"',
            f'"etag": "\\"{hashlib.md5(data).hexdigest()}\\"",',  # noqa: S324 - the form is what counts
            f"digest = sha512:{hashlib.sha512(data).hexdigest()}",
        ]
    return "\n".join(lines)


def _uuids(rng: random.Random) -> str:
    names = ("id", "request_id", "tenant", "trace", "session_id", "correlationId", "user")
    ids = (uuid.UUID(bytes=rng.randbytes(16), version=4) for _ in range(300))
    return "\n".join(f'{names[at % len(names)]}: "{value}"' for at, value in enumerate(ids))


def _npm_lock(rng: random.Random) -> str:
    packages = {
        f"node_modules/pkg-{at}": {
            "version": f"1.{at}.0",
            "resolved": f"https://registry.npmjs.org/pkg-{at}/-/pkg-{at}-1.{at}.0.tgz",
            "integrity": f"sha512-{_base64(rng, 64)}",
        }
        for at in range(200)
    }
    return json.dumps({"lockfileVersion": 3, "packages": packages}, indent=2)


def _python_lock(rng: random.Random) -> str:
    return "\n".join(f"pkg-{at}==1.{at} \\\n    --hash=sha256:{_hex(rng, 64)}" for at in range(200))


def _go_sums(rng: random.Random) -> str:
    return "\n".join(f"github.com/acme/pkg{at} v1.{at}.0 h1:{_base64(rng, 32)}" for at in range(200))


def _cargo_lock(rng: random.Random) -> str:
    return "\n".join(f'[[package]]\nname = "c{at}"\nchecksum = "{_hex(rng, 64)}"\n' for at in range(200))


def _minified(rng: random.Random) -> str:
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_$"
    out = []
    for _ in range(2_000):
        a, b, c = (rng.choice(letters) + rng.choice(letters) for _ in range(3))
        out.append(
            rng.choice(
                (
                    f"function {a}({b},{c}){{return {b}.token===null?{c}:{b}.password({c})}}",
                    f"{a}.secret={b}.key||{c}.getApiKey(this.{a}),{b}.prototype.{c}=void 0;",
                    f'var {a}={{apiKey:{b}.{c},password:{c}.value,token:"{a}"+{b}}};',
                    f"!function({a}){{{a}.exports={b}({rng.randrange(10**6)})}}({c});",
                )
            )
        )
    return "".join(out)


def _images(rng: random.Random) -> str:
    heads = ("data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA", "data:image/jpeg;base64,/9j/4AAQSkZJRgABAQAA")
    return "\n".join(f'<img src="{heads[at % 2]}{_base64(rng, 3_000)}">' for at in range(20))


def _certificates(rng: random.Random) -> str:
    dashes = "-" * 5
    kinds = ("CERTIFICATE", "PUBLIC KEY", "PGP PUBLIC KEY BLOCK", "CERTIFICATE REQUEST")
    blocks = []
    for at in range(12):
        kind = kinds[at % len(kinds)]
        blocks.append(f"{dashes}BEGIN {kind}{dashes}\n{_base64(rng, 600)}\n{dashes}END {kind}{dashes}")
    return "\n".join([*blocks, f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{_base64(rng, 33)} jo@acme"])


def _git_objects(rng: random.Random) -> str:
    lines = []
    for _ in range(100):
        blob, tree = _hex(rng, 40), _hex(rng, 40)
        lines += [f"commit {blob}", f"tree {tree}", f"index {blob[:8]}..{tree[:8]} 100644", f"+revision: {blob}"]
    return "\n".join(lines)


def _placeholders() -> list[str]:
    names = (
        *("API_KEY", "api_key", "SECRET_KEY", "client_secret", "AUTH_TOKEN", "access_token", "DB_PASSWORD", "password"),
        *(
            "GITHUB_TOKEN",
            "STRIPE_SECRET_KEY",
            "HEROKU_API_KEY",
            "TWILIO_AUTH_TOKEN",
            "DATADOG_API_KEY",
            "OKTA_API_TOKEN",
        ),
        *("AZURE_CLIENT_SECRET", "MISTRAL_API_KEY", "ALGOLIA_API_KEY", "CLOUDFLARE_API_TOKEN", "JENKINS_API_TOKEN"),
    )
    values = (
        *(
            "changeme",
            "change-me-please",
            "xxxxxxxx",
            "XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX",
            "your-api-key-here",
            "<your-token>",
        ),
        *(
            "${API_KEY}",
            "{{ api_key }}",
            "$(cat /run/secrets/key)",
            "%API_KEY%",
            "process.env.API_KEY",
            "********",
            "TODO",
        ),
        *(
            "00000000000000000000000000000000",
            "0123456789abcdef0123456789abcdef",
            "1234567890123456789012345678901234567890",
        ),
        *(
            "abcdefghijklmnopqrstuvwxyz0123456789",
            "test_key_for_unit_tests",
            "not-a-real-secret",
            "example-secret-value",
        ),
        *(
            "REPLACE_ME_WITH_YOUR_TOKEN",
            "insert_your_api_key_here",
            "dummy-token-1234567890",
            "aaaaaaaaaaaaaaaaaaaaaaaa",
            "null",
        ),
        *(
            "os.environ['API_KEY']",
            "config.get('api_key')",
            "vault:secret/data/app#key",
            "secretsmanager:prod/app",
            "p@ssw0rd",
        ),
        *(
            "placeholder",
            "redacted",
            "my-secret-token",
            "superSecretPassword123",
            "foobar123456789012",
            "deadbeefdeadbeefdeadbeef",
        ),
    )
    forms = ("{}={}", '{}: "{}"', '"{}": "{}",', "{} = '{}'", "export {}={}")
    return [forms[at % len(forms)].format(name, value) for at, name in enumerate(names) for value in values]


CODE = """
def login(user: str, password: Optional[str] = None, token: str | None = None) -> Session:
    password = password or getpass.getpass("Password: ")
    token = self.token_provider.get_token(scope="https://management.azure.com/.default")
    headers = {"Authorization": f"Bearer {token}", "X-Api-Key": self.api_key}
    client = Client(api_key=settings.STRIPE_API_KEY, secret=settings.STRIPE_SECRET)
    if password == confirm_password and csrf_token.is_valid():
        return Session(secret_key=app.config["SECRET_KEY"], password_hash=hash_password(password))
const apiKey = process.env.OPENAI_API_KEY || config.openai.apiKey;
password_field: "input[name=password]"
public string ConnectionString => $"Server={Host};Database={Db};User Id={User};Password={Password};";
token_endpoint = "https://login.acme.io/oauth2/v2.0/token"
secretName: shop-database-credentials
secretKeyRef: {name: shop, key: postgres-password}
<input type="password" name="current-password" autocomplete="current-password">
PublicKeyToken=b77a5c561934e089, processorArchitecture=MSIL
psql postgresql://localhost:5432/shop
curl -u "$USER:$PASSWORD" https://api.acme.io
git clone https://github.com/acme/shop.git && git@github.com:acme/shop.git
machine-learning login password reset token email template
"""

DOCUMENTATION = """
aws_access_key_id = AKIAIOSFODNN7EXAMPLE
aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY
Authorization: Basic YWxhZGRpbjpvcGVuc2VzYW1l
https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX
xoxb-xxxxxxxxxxxx-xxxxxxxxxxxxx-xxxxxxxxxxxxxxxxxxxxxxxx
ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
sk_live_xxxxxxxxxxxxxxxxxxxxxxxx
SG.xxxxxxxxxxxxxxxxxxxxxx.xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
mongodb+srv://<username>:<password>@cluster0.mongodb.net/test
postgresql://user:password@localhost:5432/mydb
postgres://postgres:postgres@db.acme.io:5432/postgres
redis://default:password@redis.example.com:6379
AccountName=devstoreaccount1;AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==
-----BEGIN RSA PRIVATE KEY-----
MIIEpAIBAAKCAQEA...
-----END RSA PRIVATE KEY-----
"""
