"""Paths that are sensitive by name: protected ones, which no agent reads or writes, and files that hold secrets."""

from dataclasses import field

from curtainwall.model import Broken, Role, Workspace, ancestors, is_beneath, record
from curtainwall.policy.canonical import fault_of

_CHANGES = (Role.WRITE_PATH, Role.DELETE_PATH)


@record
class Protection:
    """Canonical absolute paths: neither read nor written (`never`), never written (`readonly`), and exceptions inside them (`except_`).

    Anyone may read `programs`, because others may need them too; nobody writes them, and no workspace contains them.
    """

    never: tuple[str, ...] = ()
    readonly: tuple[str, ...] = ()
    except_: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    _never: frozenset[str] = field(init=False, repr=False, compare=False, default=frozenset())
    _readonly: frozenset[str] = field(init=False, repr=False, compare=False, default=frozenset())

    def __post_init__(self) -> None:
        for path in (*self.never, *self.readonly, *self.except_, *self.programs):
            fault = fault_of("Path", path)
            if fault is not None:
                raise Broken(f"the protected path `{path}` is not canonical: {fault}")
        object.__setattr__(self, "_never", frozenset(self.never))
        object.__setattr__(self, "_readonly", frozenset((*self.readonly, *self.programs)))

    def stops(self, role: Role, path: str, workspace: Workspace) -> bool:
        """Tell whether a canonical path is closed to this role; so is deleting a directory that contains a protected path."""
        for ancestor in (path, *ancestors(path)):
            closed = ancestor in self._never or (role in _CHANGES and ancestor in self._readonly)
            if closed and not self._is_free(path, ancestor, workspace):
                return True
        return role is Role.DELETE_PATH and any(is_beneath(inner, path) for inner in (*self.never, *self._readonly))

    def conflict(self, workspace: Workspace) -> str | None:
        """Return the protected path that a workspace contains or lies in, or None; a session's own workspace may lie in our home."""
        for protected in (*self.never, *self.programs):
            lies_in = is_beneath(workspace.path, protected) and not (workspace.own and workspace.path != protected)
            if lies_in or is_beneath(protected, workspace.path):
                return protected
        return None

    def _is_free(self, path: str, protected: str, workspace: Workspace) -> bool:
        # INVARIANT: an exception lifts the protection around it, never a protection inside it.
        exceptions = (*self.except_, workspace.path) if workspace.own else self.except_
        return any(exception != protected and is_beneath(exception, protected) and is_beneath(path, exception) for exception in exceptions)


_SECRET_FILES = frozenset(
    """
    .env .netrc _netrc .pgpass .my.cnf .htpasswd .git-credentials .npmrc .pypirc .dockercfg .s3cfg .boto
    id_rsa id_dsa id_ecdsa id_ed25519 credentials credentials.json credentials.toml secrets.json secrets.yaml secrets.yml secrets.toml
    service-account.json master.key .vault-token
    """.split()
)
_SECRET_ENDINGS = (".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk", ".asc")
_HARMLESS_ENV = (".env.example", ".env.sample", ".env.template", ".env.dist")


SECRET_PATTERNS = tuple(sorted((*_SECRET_FILES, ".env.*", *(f"*{ending}" for ending in _SECRET_ENDINGS))))
"""Patterns that match every such name, ignoring case, and a few harmless names."""


def is_secret_name(path: str) -> bool:
    """Tell whether a file is named like one that holds keys or passwords."""
    name = path.rpartition("/")[2].casefold()
    if name.startswith(".env."):
        return not name.endswith(_HARMLESS_ENV)
    return name in _SECRET_FILES or name.endswith(_SECRET_ENDINGS)
