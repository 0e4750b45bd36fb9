"""Who may connect to a nats-server in tests: certificates, nkeys and credentials, made anew, and the server's settings.

Invariants: nothing made here is valid beyond the tests; keys are random, certificates are for 127.0.0.1 and localhost.
"""

import base64
import hashlib
import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nkeys

TIMEOUT = "timeout: 600"
"""For logins and handshakes of a client that stalls, which a server gives two seconds otherwise."""
USER = f'authorization {{ user: ann, password: "s3cret pass", {TIMEOUT} }}'
USER_INFO = "ann:s3cret%20pass"
TOKEN_TEXT = "t0ken-of-the-tests"  # noqa: S105 - of a server that lives for seconds
TOKEN = f'authorization {{ token: "{TOKEN_TEXT}", {TIMEOUT} }}'


@dataclass(frozen=True, slots=True)
class Nkey:
    """A pair of keys of a kind: user, account or operator."""

    seed: bytes
    public: str

    def sign(self, data: bytes) -> bytes:
        """Return the signature of some bytes."""
        signature: bytes = nkeys.from_seed(bytearray(self.seed)).sign(data)
        return signature


def make_nkey(prefix: int = nkeys.PREFIX_BYTE_USER) -> Nkey:
    """Return a new pair of keys."""
    seed: bytes = nkeys.encode_seed(os.urandom(32), prefix)
    return Nkey(seed, nkeys.from_seed(bytearray(seed)).public_key.decode())


def nkey_settings(user: Nkey) -> str:
    """Return the settings of a server that this key may connect to."""
    return f"authorization {{ users: [ {{ nkey: {user.public} }} ], {TIMEOUT} }}"


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator, a system account, and an account with a user: `settings` for the server, `creds` for the user."""

    settings: str
    creds: str

    @property
    def creds_base64(self) -> str:
        """Return the credentials as one word."""
        return base64.b64encode(self.creds.encode()).decode()


def make_operator(*, valid_s: int = 0) -> Operator:
    """Return a new operator, account and user with JetStream, by signed tokens; the user's expires if it is so said."""
    operator = make_nkey(nkeys.PREFIX_BYTE_OPERATOR)
    system, account = make_nkey(nkeys.PREFIX_BYTE_ACCOUNT), make_nkey(nkeys.PREFIX_BYTE_ACCOUNT)
    user = make_nkey()
    unlimited = {"subs": -1, "data": -1, "payload": -1}
    wide = {**unlimited, "imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1}
    stored = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
    operator_jwt = _signed(operator, operator, "operator", {"system_account": system.public})
    system_jwt = _signed(system, operator, "account", {"limits": wide})
    account_jwt = _signed(account, operator, "account", {"limits": {**wide, **stored}})
    user_jwt = _signed(user, account, "user", {"pub": {}, "sub": {}, **unlimited}, valid_s)
    settings = (
        f"operator: {operator_jwt}\nsystem_account: {system.public}\nresolver: MEMORY\n"
        f"resolver_preload: {{ {system.public}: {system_jwt}, {account.public}: {account_jwt} }}"
    )
    return Operator(settings, _format_creds(user_jwt, user))


def _signed(subject: Nkey, issuer: Nkey, kind: str, claims: dict[str, Any], valid_s: int = 0) -> str:
    body: dict[str, Any] = {
        **({"exp": int(time.time()) + valid_s} if valid_s else {}),
        "iat": int(time.time()) - 60,
        "iss": issuer.public,
        "name": kind,
        "sub": subject.public,
        "nats": {**claims, "type": kind, "version": 2},
    }
    digest = hashlib.sha256(json.dumps(body).encode()).digest()
    body["jti"] = base64.b32encode(digest).decode().rstrip("=")
    head = _url64(json.dumps({"typ": "JWT", "alg": "ed25519-nkey"}).encode())
    signing = f"{head}.{_url64(json.dumps(body).encode())}"
    return f"{signing}.{_url64(issuer.sign(signing.encode()))}"


def _url64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _format_creds(jwt: str, user: Nkey) -> str:
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
    )


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files of an authority, a server for 127.0.0.1 and localhost, and a client; and an authority of somebody else."""

    ca: Path
    cert: Path
    key: Path
    client_cert: Path
    client_key: Path
    other_ca: Path

    def settings(self, *, mutual: bool = False) -> str:
        """Return the settings of a server with TLS; `mutual` wants a certificate of the client."""
        verify = f', verify: true, ca_file: "{self.ca}"' if mutual else ""
        return f'tls {{ cert_file: "{self.cert}", key_file: "{self.key}"{verify}, {TIMEOUT} }}'


def make_certificates(folder: Path) -> Certificates:
    """Make new certificates in a folder."""
    ca, ca_key = _authority(folder, "ca")
    other_ca, _ = _authority(folder, "other-ca")
    cert, key = _issued(folder, "server", ca, ca_key, "subjectAltName=IP:127.0.0.1,DNS:localhost")
    client_cert, client_key = _issued(folder, "client", ca, ca_key, "extendedKeyUsage=clientAuth")
    return Certificates(ca, cert, key, client_cert, client_key, other_ca)


def _authority(folder: Path, name: str) -> tuple[Path, Path]:
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")  # without it Python 3.13 trusts no authority
    _openssl("req", "-x509", *_new_key(key), "-subj", f"/CN={name}", *usage, "-days", "1", "-out", str(cert))
    return cert, key


def _issued(folder: Path, name: str, ca: Path, ca_key: Path, extension: str) -> tuple[Path, Path]:
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    signer = ("-CA", str(ca), "-CAkey", str(ca_key))
    extensions = ("-addext", extension, "-addext", "basicConstraints=critical,CA:FALSE")
    _openssl(
        "req", "-x509", *signer, *_new_key(key), "-subj", f"/CN={name}", *extensions, "-days", "1", "-out", str(cert)
    )
    return cert, key


def _new_key(path: Path) -> tuple[str, ...]:
    return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(path))


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)  # noqa: S607 - wherever it is installed
