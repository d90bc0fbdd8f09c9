"""Curtainwall's home directory: where it is, how it is laid out, and that only its user can read it."""

import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from curtainwall.host.home_path import VARIABLE, home_path
from curtainwall.model import Broken, SessionId, record

_DIRECTORIES = ("policy", "blobs", "cache", "keys", "ca", "logs", "servers", "skills", "memory", "sessions", "run", "run/watch")
WORKSPACE = "workspace"
_OF_SESSION = (WORKSPACE, "orientation", "state", "escalations")


@record
class SessionPlace:
    """The directories of one session. An agent only ever sees workspace, orientation and state."""

    root: Path

    @property
    def workspace(self) -> Path:
        """Return the session's workspace."""
        return self.root / WORKSPACE

    @property
    def escalations(self) -> Path:
        """Return the directory that shows open approvals as files; it is never mounted into a sandbox."""
        return self.root / "escalations"

    @property
    def view(self) -> Path:
        """Return the directory of what a session changed in its view of a project; no sandbox ever sees it."""
        return self.root / "view"

    @property
    def audit(self) -> Path:
        """Return the file with verdicts, approvals and outcomes."""
        return self.root / "audit.jsonl"

    def prepare(self) -> None:
        """Create the directories, readable only by the user."""
        for path in (self.root, *(self.root / name for name in _OF_SESSION)):
            private_directory(path)


@record
class Home:
    """`CURTAINWALL_HOME` as a real path; it may not exist yet."""

    root: Path

    @property
    def config(self) -> Path:
        """Return the configuration file."""
        return self.root / "config.toml"

    @property
    def policy(self) -> Path:
        """Return the directory of the user's rule files."""
        return self.root / "policy"

    @property
    def skills(self) -> Path:
        """Return the directory of the user's own skills."""
        return self.root / "skills"

    @property
    def memory(self) -> Path:
        """Return the directory of the memory that sessions share."""
        return self.root / "memory"

    @property
    def database(self) -> Path:
        """Return the file that holds the log."""
        return self.root / "curtainwall.db"

    @property
    def mask_key(self) -> Path:
        """Return the file with the key for masks."""
        return self.root / "keys" / "mask.key"

    @property
    def authority(self) -> Path:
        """Return the directory with the certificate authority of egress."""
        return self.root / "ca"

    @property
    def watched(self) -> Path:
        """Return the directory that records the state of projects before commands could write to them."""
        return self.root / "watched"

    @property
    def sessions(self) -> Path:
        """Return the directory with one directory per session."""
        return self.root / "sessions"

    def session(self, session: SessionId) -> SessionPlace:
        """Return the directories of a session; we minted its id, so it is a plain name."""
        if not session.isalnum():
            raise Broken(f"`{session}` is no id of a session")
        return SessionPlace(self.sessions / session)

    def prepare(self) -> None:
        """Create missing directories and make all of them private."""
        try:
            self.root.parent.mkdir(parents=True, exist_ok=True)
            for path in (self.root, *(self.root / name for name in _DIRECTORIES)):
                private_directory(path)
        except OSError as error:
            raise Broken(f"our directory `{self.root}` cannot be used: {error.strerror}; set {VARIABLE} to one that is yours") from None


def find_home(environ: Mapping[str, str] = os.environ) -> Home:
    """Return the home that the environment names, or `~/.curtainwall`; raise `Broken` if we cannot use it."""
    root = Path(os.path.realpath(home_path(environ)))
    nearest = next((path for path in (root, *root.parents) if os.path.lexists(path)), root)
    if os.path.lexists(nearest) and not nearest.is_dir():
        # Otherwise a mistyped name would look like a home without sessions.
        raise Broken(f"our directory `{root}` cannot be used: `{nearest}` is no directory; set {VARIABLE} to one that is yours")
    if not os.access(nearest, os.X_OK | (os.R_OK if nearest == root else 0), effective_ids=True):
        # A directory that we cannot read is not an empty home.
        raise Broken(f"our directory `{root}` cannot be used: `{nearest}` is closed to you; set {VARIABLE} to one that is yours")
    return Home(root)


def named_home(environ: Mapping[str, str] = os.environ) -> str:
    """Return the home as the environment names it, made absolute, with links not resolved."""
    return str(home_path(environ).absolute())


def user_homes(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the real home directories of the user: the one that `~` means, then the account's if it differs."""
    homes = [environ.get("HOME", "")]
    with contextlib.suppress(ImportError, KeyError):
        import pwd

        homes.append(pwd.getpwuid(os.geteuid()).pw_dir)
    return tuple(dict.fromkeys(os.path.realpath(path) for path in homes if path.startswith("/"))) or ("/",)


def private_directory(path: Path) -> None:
    """Create a directory with mode 0700, or give an existing one that mode; raise OSError if it is not a directory."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(20, "it is not a directory", str(path))
    if stat.S_IMODE(status.st_mode) != 0o700:
        path.chmod(0o700)
