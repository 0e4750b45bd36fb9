"""The settings of a connection: servers, credentials, TLS and the time limit.

Invariants: settings are values, compared by content; neither `repr` nor an error shows a secret. They pickle, so that
workers elsewhere can connect too: the pickle carries the credentials, and certificates and creds files by their paths.
"""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from strandline.errors import InvalidInput
from strandline.nats.logins import Login, parse_creds, parse_creds_base64, parse_user_info

DEFAULT_PORT = 4222
DEFAULT_API = "$JS.API"
DEFAULT_INBOX = "_INBOX"
SCHEMES = ("nats", "tls")


@dataclass(frozen=True, slots=True)
class NatsSettings:
    """Where and how to connect.

    `servers` is one URL, several separated by commas, or a sequence: `nats://host:port`, or `tls://…`, which refuses a
    server without TLS. User info in a URL is taken out of it; where several have some, it must be the same.

    The login is the first of these that is given: `creds` (the text of a creds file, in base64), `creds_file`, user
    info of the URL (`user:password` or a token), none. `timeout_s` is the limit of every operation. `domain` names a
    JetStream domain; `prefix` is the API's prefix where an account imports it under another name.
    """

    servers: tuple[str, ...] | Sequence[str] | str = "nats://127.0.0.1:4222"
    creds: str = field(default="", repr=False, kw_only=True)
    creds_file: str = field(default="", kw_only=True)
    user_info: str = field(default="", repr=False, kw_only=True)
    tls_ca: str = field(default="", kw_only=True)
    tls_cert: str = field(default="", kw_only=True)
    tls_key: str = field(default="", kw_only=True)
    tls_server_name: str = field(default="", kw_only=True)
    tls_first: bool = field(default=False, kw_only=True)
    name: str = field(default="strandline", kw_only=True)
    timeout_s: float = field(default=30.0, kw_only=True)
    domain: str = field(default="", kw_only=True)
    prefix: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        given = self.servers.split(",") if isinstance(self.servers, str) else self.servers
        split = [_split_server(server.strip()) for server in given]
        infos = {info for _, info in split if info} | ({self.user_info} if self.user_info else set())
        if not split:
            raise InvalidInput("there is no server to connect to", hint="give a URL, such as nats://127.0.0.1:4222")
        if len(infos) > 1:
            raise InvalidInput("the servers' URLs name different users", hint="the servers of a cluster share users")
        if self.tls_cert and not self.tls_key:
            raise InvalidInput("a client's certificate needs its key", hint="give tls_key too")
        if self.timeout_s <= 0:
            raise InvalidInput(f"a time limit of {self.timeout_s} s leaves no time")
        if self.domain and self.prefix:
            raise InvalidInput("a domain is a prefix of its own", hint="give domain or prefix, not both")
        object.__setattr__(self, "servers", tuple(server for server, _ in split))
        object.__setattr__(self, "user_info", next(iter(infos), ""))

    @property
    def urls(self) -> tuple[str, ...]:
        """Return the servers' URLs, each with scheme and port, and none with user info."""
        return tuple(self.servers)

    @property
    def addresses(self) -> str:
        """Return the servers as a message shows them."""
        return ", ".join(server.partition("://")[2] for server in self.servers)

    @property
    def api_prefix(self) -> str:
        """Return what subjects of the JetStream API begin with, without the dot."""
        return self.prefix or (f"$JS.{self.domain}.API" if self.domain else DEFAULT_API)

    @property
    def inbox_prefix(self) -> str:
        """Return what subjects of answers begin with, without the dot."""
        return DEFAULT_INBOX

    @property
    def wants_tls(self) -> bool:
        """Tell whether a server without TLS is refused."""
        files = self.tls_ca or self.tls_cert or self.tls_server_name or self.tls_first
        return bool(files) or any(server.startswith("tls://") for server in self.servers)

    def login(self) -> Login:
        """Return who connects; a creds file is read anew each time, for it may be renewed."""
        if self.creds:
            return parse_creds_base64(self.creds)
        if self.creds_file:
            return parse_creds(_read(self.creds_file))
        return parse_user_info(self.user_info) if self.user_info else Login()

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return how TLS is spoken, None unless it is asked for; the machine's authorities decide if none is given."""
        if not self.wants_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.tls_ca or None)
            if self.tls_cert:
                context.load_cert_chain(self.tls_cert, self.tls_key)
        except OSError as refused:  # an SSLError is one
            files = ", ".join(file for file in (self.tls_ca, self.tls_cert, self.tls_key) if file)
            hint = "they must be PEM files that can be read, the key that of the certificate"
            raise InvalidInput(f"the certificates cannot be loaded: {files}", hint=hint) from refused
        return context


def _split_server(server: str) -> tuple[str, str]:
    """Return a server's URL, with scheme and port and without user info, and the user info."""
    scheme, found, rest = server.rpartition("://")
    scheme = (scheme if found else SCHEMES[0]).lower()
    info, _, address = rest.rpartition("@")
    # What cannot be read is not shown: where a comma or slash of a password ends an address, it is half of that.
    hint = "give nats://host:port or tls://host:port; in a password, write %2C for a comma, %2F for a slash"
    if scheme not in SCHEMES:
        shown = f"by {scheme}://" if scheme.isalnum() else "by such an address"
        raise InvalidInput(f"a server cannot be reached {shown}", hint=hint)
    try:
        parts = urlsplit(f"{scheme}://{address}")
        host, port = parts.hostname, parts.port or DEFAULT_PORT
    except ValueError:
        host = None
    if not host or parts.path.strip("/") or parts.query:
        raise InvalidInput("the address of a server cannot be read", hint=hint)
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}", info


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as refused:
        raise InvalidInput(f"the creds file {path!r} cannot be read", hint="look at its path and rights") from refused
