"""Our directory on this machine: where it is, where each thing in it is, and that nobody else may look inside."""

import contextlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from curtainwall.model import Broken, SessionId

VARIABLE = "CURTAINWALL_HOME"

_DIRECTORIES = ("policy", "blobs", "keys", "ca", "logs", "servers", "skills", "memory", "sessions", "run", "run/watch")
WORKSPACE = "workspace"
_OF_SESSION = (WORKSPACE, "orientation", "state", "escalations")


@dataclass(frozen=True, slots=True)
class SessionPlace:
    """The directories of one session. Of these, only workspace, orientation and state are ever shown to an agent."""

    root: Path

    @property
    def workspace(self) -> Path:
        """Return the session's own workspace."""
        return self.root / WORKSPACE

    @property
    def escalations(self) -> Path:
        """Return where open approvals appear as files; it is never mounted anywhere."""
        return self.root / "escalations"

    @property
    def audit(self) -> Path:
        """Return the file with verdicts, approvals and outcomes."""
        return self.root / "audit.jsonl"

    def prepare(self) -> None:
        """Make the directories, closed to others."""
        for path in (self.root, *(self.root / name for name in _OF_SESSION)):
            private_directory(path)


@dataclass(frozen=True, slots=True)
class Home:
    """`CURTAINWALL_HOME`, by its real path; it need not be there yet."""

    root: Path

    @property
    def config(self) -> Path:
        """Return the file with everything that a user sets."""
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
        """Return the directory of what is remembered between sessions."""
        return self.root / "memory"

    @property
    def database(self) -> Path:
        """Return the file that holds the log."""
        return self.root / "curtainwall.db"

    @property
    def mask_key(self) -> Path:
        """Return the file with the key that masks are made with."""
        return self.root / "keys" / "mask.key"

    @property
    def authority(self) -> Path:
        """Return the directory with the certificate authority of egress."""
        return self.root / "ca"

    @property
    def watched(self) -> Path:
        """Return the directory with what was in projects before commands could write there."""
        return self.root / "watched"

    @property
    def sessions(self) -> Path:
        """Return the directory with one directory per session."""
        return self.root / "sessions"

    def session(self, session: SessionId) -> SessionPlace:
        """Return the directories of a session; its id was minted by us and is a plain name."""
        if not session.isalnum():
            raise Broken(f"`{session}` is no id of a session")
        return SessionPlace(self.sessions / session)

    def prepare(self) -> None:
        """Make what is missing and close what others could read."""
        try:
            self.root.parent.mkdir(parents=True, exist_ok=True)
            for path in (self.root, *(self.root / name for name in _DIRECTORIES)):
                private_directory(path)
        except OSError as error:
            raise Broken(f"our directory `{self.root}` cannot be used: {error.strerror}; set {VARIABLE} to one that is yours") from None


def find_home(environ: Mapping[str, str] = os.environ) -> Home:
    """Return the home that the environment names, or `~/.curtainwall`; raise `Broken` where it cannot be one of ours."""
    root = Path(os.path.realpath(_named_in(environ)))
    there = next((path for path in (root, *root.parents) if os.path.lexists(path)), root)
    if os.path.lexists(there) and not there.is_dir():
        # An empty list of sessions would be a wrong answer to a wrong name.
        raise Broken(f"our directory `{root}` cannot be used: `{there}` is no directory; set {VARIABLE} to one that is yours")
    if not os.access(there, os.X_OK | (os.R_OK if there == root else 0), effective_ids=True):
        # Nor is what cannot be looked into empty.
        raise Broken(f"our directory `{root}` cannot be used: `{there}` is closed to you; set {VARIABLE} to one that is yours")
    return Home(root)


def named_home(environ: Mapping[str, str] = os.environ) -> str:
    """Return the home as it is named, from `/` on; links may lead from there to where it really is."""
    return str(_named_in(environ).absolute())


def _named_in(environ: Mapping[str, str]) -> Path:
    named = environ.get(VARIABLE) or "~/.curtainwall"
    if "\0" in named:
        raise Broken(f"{VARIABLE} holds a NUL")
    return Path(named).expanduser()


def user_homes(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the real home directory of the user: what `~` means, then the one of the account where that is another."""
    found = [environ.get("HOME", "")]
    with contextlib.suppress(ImportError, KeyError):
        import pwd

        found.append(pwd.getpwuid(os.geteuid()).pw_dir)
    return tuple(dict.fromkeys(os.path.realpath(path) for path in found if path.startswith("/"))) or ("/",)


def private_directory(path: Path) -> None:
    """Make a directory with mode 0700, or give one of ours that mode; raise OSError for what is no directory."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(20, "it is not a directory", str(path))
    if stat.S_IMODE(found.st_mode) != 0o700:
        path.chmod(0o700)
