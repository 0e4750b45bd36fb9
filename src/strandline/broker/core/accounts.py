"""Accounts: isolated subject spaces, and the users that may connect to each.

Invariants: a client belongs to one account, decided at CONNECT (or at once, where no credentials are required). The
answer to wrong credentials does not tell which part of them was wrong.
"""

from dataclasses import dataclass

from strandline.broker.core.auth import Background, Passwords, PendingCheck, load_signatures, signature_is_valid
from strandline.broker.core.connect import ConnectOptions
from strandline.broker.core.router import Router, Soon
from strandline.broker.core.session import Session
from strandline.broker.settings import GLOBAL_ACCOUNT, AccountSettings, Permissions, ServerSettings, UserSettings
from strandline.broker.settings.identities import anonymous_user

STANDARD = "STANDARD"


@dataclass(frozen=True, slots=True)
class Account:
    """One isolated subject space."""

    name: str
    router: Router
    settings: AccountSettings

    def is_full_for(self, session: Session) -> bool:
        """Tell whether the connection limit is reached, this session not counted."""
        most, sessions = self.settings.max_connections, self.router.sessions
        return most is not None and len(sessions) - (session.client_id in sessions) >= most


@dataclass(frozen=True, slots=True)
class Login:
    """The identity of a client; `user` is empty where no credentials are required."""

    account: Account
    user: str = ""
    permissions: Permissions | None = None


class Accounts:
    """The accounts and users of a server."""

    def __init__(self, settings: ServerSettings, soon: Soon, background: Background | None = None) -> None:
        self.by_name: dict[str, Account] = {}
        self._soon = soon
        self._passwords = Passwords(background)
        self._read(settings)

    def reload(self, settings: ServerSettings) -> None:
        """Apply new settings: disconnect clients that are no longer allowed, update the permissions of the others."""
        self._read(settings)
        for account in list(self.by_name.values()):
            for session in list(account.router.sessions.values()):
                session.log_in_again()

    def _read(self, settings: ServerSettings) -> None:
        for each in settings.accounts:
            known = self.by_name.get(each.name)
            router = Router(each.name, self._soon) if known is None else known.router
            self.by_name[each.name] = Account(each.name, router, each)
        self._token = settings.token
        accounts = [self.by_name[each.name] for each in settings.accounts]
        pairs = [(user, account) for account in accounts for user in account.settings.users]
        self._users = {user.user: (user, account) for user, account in pairs if user.user}
        self._nkeys = {user.nkey: (user, account) for user, account in pairs if user.nkey}
        if self._nkeys:
            load_signatures()
        self._no_auth = settings.no_auth_user
        self._websocket_no_auth = settings.websocket.no_auth_user if settings.websocket is not None else ""

    @property
    def needs_nonce(self) -> bool:
        """Tell whether some user authenticates with an nkey."""
        return bool(self._nkeys)

    @property
    def needs_credentials(self) -> bool:
        """Tell whether clients must authenticate."""
        return bool(self._token or self._users or self._nkeys)

    @property
    def asks_all_for_credentials(self) -> bool:
        """Tell whether INFO asks for credentials that clients need not give, as nats-server's does in this case."""
        return self._no_auth == anonymous_user().user

    def before_connect(self, kind: str = STANDARD) -> Login | None:
        """Return the login of a client before CONNECT; None if it must authenticate."""
        if not self.needs_credentials:
            return self._global()
        name = (kind != STANDARD and self._websocket_no_auth) or self._no_auth
        found = self._users.get(name) or self._nkeys.get(name)
        return _login(found, kind) if found is not None else None

    def login(self, options: ConnectOptions, nonce: str, kind: str = STANDARD) -> Login | PendingCheck | None:
        """Return the login for the credentials of a CONNECT; None if they are refused."""
        if not self.needs_credentials or not _has_credentials(options):
            return self.before_connect(kind)
        if options.nkey and self._nkeys:
            found = self._nkeys.get(options.nkey)
            signed = found is not None and signature_is_valid(options.nkey, options.sig, nonce)
            return _login(found, kind) if found is not None and signed else None
        if options.user and self._users:
            return self._by_password(options, kind)
        if self._token:
            matches = self._passwords.match(self._token, options.auth_token)
            return matches if isinstance(matches, PendingCheck) else self._global() if matches else None
        return None

    def _global(self) -> Login:
        return Login(self.by_name[GLOBAL_ACCOUNT])

    def _by_password(self, options: ConnectOptions, kind: str) -> Login | PendingCheck | None:
        found = self._users.get(options.user)
        if found is None:
            return None
        matches = self._passwords.match(found[0].password, options.pass_)
        return matches if isinstance(matches, PendingCheck) else _login(found, kind) if matches else None


def _has_credentials(options: ConnectOptions) -> bool:
    return bool(options.user or options.pass_ or options.auth_token or options.nkey or options.sig or options.jwt)


def _login(found: tuple[UserSettings, Account], kind: str) -> Login | None:
    user, account = found
    if user.connection_types and kind not in user.connection_types:
        return None
    return Login(account, user.user or user.nkey, user.permissions)
