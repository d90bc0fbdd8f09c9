"""The checks behind `doctor`: each finding says whether a guarantee holds on this machine and, if not, what to do."""

import asyncio
import ctypes
import os
import platform
import shutil
import sqlite3
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

from curtainwall.channels.plain import counted
from curtainwall.compose.config_checks import fault_in_config, missing_references
from curtainwall.compose.external.providers import accesses, missing_keys
from curtainwall.compose.models import default_model_name
from curtainwall.compose.setup import load_setup
from curtainwall.compose.store import open_store
from curtainwall.compose.tools import share_limits
from curtainwall.config.agents import LOCAL
from curtainwall.config.loader import load_config
from curtainwall.config.schema import Config
from curtainwall.config.secrets import faults_in_secrets
from curtainwall.facts import is_beneath
from curtainwall.host import BubblewrapMissing, confined_worker, confinement_report, find_bubblewrap, find_monty
from curtainwall.host.extras import ExtraMissing
from curtainwall.host.home import Home
from curtainwall.host.home_path import VARIABLE, default_homes
from curtainwall.model import Broken, CurtainwallError, Index, Marks, SessionId, SessionQuery, ViewMechanism, record
from curtainwall.operations.fork import FICLONE

FindingStatus = Literal["ok", "warn", "fail"]

_OPENAT2, _LANDLOCK_CREATE, _ASK_VERSION = 437, 444, 1
_NETWORKED = ("nfs", "cifs", "smb", "9p", "fuse.sshfs", "glusterfs", "ceph", "afs")
_FORGETFUL = ("tmpfs", "ramfs")
_LITTLE_SPACE = 512 * 1024 * 1024
_LOOKED_AT = 1_000
_PATIENCE = 15


@record
class DoctorFinding:
    """The result of one check."""

    name: str
    status: FindingStatus
    what: str
    todo: str = ""


def examine(home: Home) -> Iterator[DoctorFinding]:
    """Check everything that our guarantees depend on."""
    for look in (_python, _kernel, _openat2, _landlock, _docker, _sqlite):
        yield look()
    yield from _confinement(home)
    for look_at in (
        _workers,
        _views,
        _file_system,
        _durability,
        _sharing,
        _space,
        _modes,
        _config,
        _secrets,
        _matrix,
        _keys,
        _local_agents,
        _model,
        _servers,
        _policy,
        _log,
        _workspaces,
    ):
        yield look_at(home)


def _python() -> DoctorFinding:
    return DoctorFinding("python", "ok", platform.python_version())


def _kernel() -> DoctorFinding:
    if sys.platform != "linux":
        return DoctorFinding(
            "kernel", "fail", f"{platform.system()} is not Linux", "leases, confinement and file opening are made for Linux"
        )
    return DoctorFinding("kernel", "ok", f"Linux {platform.release()}")


def _syscall(number: int, *arguments: object) -> tuple[int, int]:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return call(ctypes.c_long(number), *arguments), ctypes.get_errno()


def _openat2() -> DoctorFinding:
    how = (ctypes.c_uint64 * 3)(getattr(os, "O_PATH", 0) | os.O_CLOEXEC, 0, 0x08)
    opened, error = _syscall(_OPENAT2, ctypes.c_int(-100), ctypes.c_char_p(b"."), ctypes.byref(how), ctypes.c_size_t(24))
    if opened >= 0:
        os.close(opened)
        return DoctorFinding("openat2", "ok", "files are opened beneath the approved directory by the kernel itself")
    return DoctorFinding("openat2", "warn", f"missing ({os.strerror(error)}): a walk without links is used", "a kernel from 5.6 on has it")


def _landlock() -> DoctorFinding:
    version, error = _syscall(_LANDLOCK_CREATE, ctypes.c_void_p(None), ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION))
    if version > 0:
        return DoctorFinding("landlock", "ok", f"ABI {version}: holds code workers where bubblewrap is missing")
    return DoctorFinding("landlock", "warn", f"missing ({os.strerror(error)})", "boot with `lsm=landlock,…`, or install bubblewrap")


def _confinement(home: Home) -> Iterator[DoctorFinding]:
    """Report what `host` can confine; it has tried each guarantee."""
    bubblewrap = find_bubblewrap()
    if isinstance(bubblewrap, BubblewrapMissing):
        yield DoctorFinding("bubblewrap", "warn", f"{bubblewrap.reason}; shell, git and sandboxed servers are absent", bubblewrap.remedy)
        return
    yield DoctorFinding("bubblewrap", "ok", f"{bubblewrap.version}: commands run without network, with the workspace alone")
    limits = None
    with suppress(CurtainwallError):
        limits = share_limits(load_config(home.config).sandboxes)
    for guarantee in confinement_report(limits)[1:]:
        yield DoctorFinding(guarantee.name, "ok" if guarantee.holds else "warn", guarantee.detail)


def _workers(home: Home) -> DoctorFinding:
    """Report what confines code workers, after starting one each way until one works."""
    binary = find_monty()
    if binary is None:
        return DoctorFinding("code workers", "warn", "no `monty` here: code mode is refused", "install pydantic-monty anew")
    try:
        # The launcher is written here, so this also checks that programs may be started here.
        with tempfile.TemporaryDirectory(dir=_nearest(home.root)) as directory:
            how = confined_worker(binary, Path(directory)).how
    except OSError as error:
        return DoctorFinding("code workers", "warn", f"cannot be tried: {error.strerror}", "make our directory writable")
    except CurtainwallError as error:
        return DoctorFinding("code workers", "warn", f"none: code mode is refused; {error}")
    means = "bubblewrap" if how == "bubblewrap" else "Landlock and a system-call filter"
    return DoctorFinding("code workers", "ok", f"held by {means}: no network, no files, one life with us")


def _views(home: Home) -> DoctorFinding:
    """Report what agents work on in review mode, after trying it."""
    # Start-up time: only this check needs them.
    from curtainwall.host.views.choice import choose_mechanism, remove_view
    from curtainwall.host.views.copy import MOST_BYTES, MOST_FILES

    copies = f"copies of up to {MOST_FILES:,} files and {MOST_BYTES // 1024**2} MiB"
    try:
        with tempfile.TemporaryDirectory(dir=_nearest(home.root)) as directory:
            project, state = Path(directory, "project"), Path(directory, "state")
            project.mkdir()
            state.mkdir()
            try:
                choice = choose_mechanism(os.path.realpath(project), state)
            finally:
                # The kernel leaves directories there that are closed to us.
                remove_view(state)
    except (OSError, CurtainwallError) as error:
        return DoctorFinding("views", "warn", f"review mode cannot be tried: {error}", "make our directory writable")
    if choice.mechanism is ViewMechanism.OVERLAY:
        return DoctorFinding("views", "ok", f"in review mode our own agent works on an overlay, and those in containers on {copies}")
    what = f"in review mode agents work on {copies}, because {choice.reason}"
    return DoctorFinding("views", "warn", what, "use a kernel and a file system that let users mount overlays")


def _docker() -> DoctorFinding:
    async def version() -> str:
        # Start-up time: only this check needs the engine's client.
        from curtainwall.agents.external.container import Engine

        engine = Engine()
        try:
            async with asyncio.timeout(_PATIENCE):
                return str((await engine.about()).get("ServerVersion"))
        finally:
            await engine.close()

    fix = "install and start Docker; nothing else needs it"
    try:
        # Connect as agents do. The `docker` client may be missing, or talk to another engine.
        return DoctorFinding("docker", "ok", f"engine {asyncio.run(version())}: container agents can run")
    except ExtraMissing as fault:
        return DoctorFinding("docker", "warn", f"container agents cannot run: {fault}")
    except CurtainwallError as fault:
        return DoctorFinding("docker", "warn", f"container agents cannot run: {fault}", fix)
    except TimeoutError:
        return DoctorFinding("docker", "warn", f"container agents cannot run: the engine did not answer within {_PATIENCE} seconds", fix)


def _sqlite() -> DoctorFinding:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < (3, 37):
        return DoctorFinding("sqlite", "fail", f"{version} is too old", "3.37 or newer is needed")
    return DoctorFinding("sqlite", "ok", version)


def _nearest(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


def _file_system(home: Home) -> DoctorFinding:
    kind, place = "unknown", str(_nearest(home.root))
    longest = -1
    for line in Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines() if os.path.exists("/proc/mounts") else ():
        _, at, type_, *_ = line.split(" ")
        at = at.encode().decode("unicode_escape") if "\\" in at else at
        if (place == at or place.startswith(at.rstrip("/") + "/")) and len(at) >= longest:
            kind, longest = type_, len(at)
    if kind.startswith(_NETWORKED):
        return DoctorFinding(
            "file system", "fail", f"{kind}: locks and WAL do not hold over a network", "put CURTAINWALL_HOME on a local disk"
        )
    if kind in _FORGETFUL:
        return DoctorFinding(
            "file system", "warn", f"{kind}: everything is gone when the machine restarts", "put CURTAINWALL_HOME on a disk"
        )
    return DoctorFinding("file system", "ok", kind)


def _durability(home: Home) -> DoctorFinding:
    """Time a sync where the log is or would be; a disk that answers at once probably did not write."""
    try:
        with tempfile.NamedTemporaryFile(dir=_nearest(home.root)) as file:
            took: list[float] = []
            for _ in range(5):
                file.write(b"x" * 4096)
                file.flush()
                start = time.perf_counter()
                os.fsync(file.fileno())
                took.append(time.perf_counter() - start)
    except OSError as error:
        return DoctorFinding("disk sync", "fail", f"cannot write beside the log: {error.strerror}", "make the disk writable")
    median = sorted(took)[2] * 1000
    if median < 0.02:
        return DoctorFinding(
            "disk sync", "warn", f"a sync returns after {median:.3f} ms", "this disk may not keep what it confirms when power fails"
        )
    return DoctorFinding("disk sync", "ok", f"a sync takes {median:.2f} ms")


def _sharing(home: Home) -> DoctorFinding:
    import fcntl

    try:
        with tempfile.TemporaryFile(dir=_nearest(home.root)) as one, tempfile.TemporaryFile(dir=_nearest(home.root)) as two:
            one.write(b"x" * 4096)
            one.flush()
            fcntl.ioctl(two.fileno(), FICLONE, one.fileno())
    except OSError:
        return DoctorFinding("reflink", "ok", "not here: forks copy their workspace byte by byte")
    return DoctorFinding("reflink", "ok", "forks share blocks with their parent")


def _space(home: Home) -> DoctorFinding:
    free = shutil.disk_usage(_nearest(home.root)).free
    text = f"{free / 1024**3:.1f} GiB free"
    return (
        DoctorFinding("space", "warn", text, "free some; a full disk parks every session")
        if free < _LITTLE_SPACE
        else DoctorFinding("space", "ok", text)
    )


def _modes(home: Home) -> DoctorFinding:
    if not home.root.exists():
        above = _nearest(home.root)
        if not os.access(above, os.W_OK | os.X_OK, effective_ids=True):
            text = f"{home.root} is not there, and {above} is not yours to make it in"
            return DoctorFinding("home", "fail", text, "set CURTAINWALL_HOME to a directory of your own")
        return DoctorFinding("home", "ok", f"{home.root} is not there yet; it is made with mode 0700")
    # Editors write files with mode 0644. That is fine: the directory is closed, so it matters only that nobody else can write there.
    edited = {home.config, *home.root.glob("policy/*")}
    open_to_others = [
        str(path.relative_to(home.root.parent))
        for path in (home.root, *home.root.iterdir(), *home.root.glob("keys/*"), *home.root.glob("policy/*"))
        if not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) & (0o022 if path in edited else 0o077)
    ]
    if open_to_others:
        return DoctorFinding("home", "fail", f"others can use {', '.join(open_to_others[:4])}", f"chmod -R go= {home.root}")
    if home.root.stat().st_uid != os.geteuid():
        return DoctorFinding("home", "fail", f"{home.root} belongs to somebody else", "set CURTAINWALL_HOME to a directory of your own")
    if not os.environ.get(VARIABLE):
        for other in (Path(path).expanduser() for path in default_homes()):
            if (other / home.database.name).exists() and other.resolve() != home.root:
                text = f"{home.root} is used, and there is another home in {other}"
                return DoctorFinding("home", "warn", text, "remove the one that you do not need, or choose with CURTAINWALL_HOME")
    return DoctorFinding("home", "ok", f"{home.root}, for us alone")


def _tried(name: str, act: Callable[[], str], todo: str) -> DoctorFinding:
    try:
        return DoctorFinding(name, "ok", act())
    except CurtainwallError as error:
        return DoctorFinding(name, "fail", str(error), todo)


def _config(home: Home) -> DoctorFinding:
    def act() -> str:
        if fault := fault_in_config(home, load_config(home.config)):
            raise Broken(fault)
        return f"{home.config} is sound" if home.config.exists() else "the defaults"

    finding = _tried("config", act, "until then every command refuses")
    if finding.status != "ok":
        return finding
    missing = missing_references(load_config(home.config))
    more = f" (and {len(missing) - 1} more; `curtainwall config show` has all)" if len(missing) > 1 else ""
    return DoctorFinding("config", "warn", f"{missing[0]}{more}", "install it, or name another") if missing else finding


def _secrets(home: Home) -> DoctorFinding:
    """Report the secrets that `serve` would lack if started from here; another environment may have them."""
    try:
        faults = list(faults_in_secrets(load_config(home.config)))
    except CurtainwallError:
        return DoctorFinding("secrets", "warn", "unknown: the configuration cannot be read")
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        return DoctorFinding(
            "secrets", "warn", f"{faults[0]}{more}", "until then `serve` does not start, or goes without what stands on it"
        )
    return DoctorFinding("secrets", "ok", "what webhooks, teams, Matrix and notifications need is there, or they need none")


def _matrix(home: Home) -> DoctorFinding:
    """Report the problems that `serve` last recorded: only `serve` talks to the homeserver."""
    try:
        config = load_config(home.config)
        with open_store(home) as store:
            problems = list(matrix_trouble(config, store.marks, store.index))
    except CurtainwallError as fault:
        return DoctorFinding("matrix", "warn", f"unknown: {fault}")
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return DoctorFinding("matrix", "warn", f"{problems[0]}{more}", "docs/matrix.md, When something goes wrong")
    return DoctorFinding("matrix", "ok", "nothing is known to be wrong" if config.matrix.homeserver else "not configured")


def _keys(home: Home) -> DoctorFinding:
    """Report model keys that are not where the configuration says; keys in a program or a keyring are not read."""
    try:
        config = load_config(home.config)
        missing: dict[str, None] = {}
        served = [(agent, "") for agent in ("", *config.agents)]
        for agent, name in (*served, *((team.agent, name) for name, team in config.teams.items() if team.keys)):
            access_by_provider = accesses(config, lambda _name, _value: None, agent=agent, team=name)
            missing |= dict.fromkeys(asyncio.run(missing_keys(access_by_provider)).values())
    except CurtainwallError as fault:
        return DoctorFinding("keys", "warn", f"unknown: {fault}")
    if missing:
        return DoctorFinding("keys", "warn", "; ".join(missing), "until then agents cannot talk to the models that these are for")
    return DoctorFinding("keys", "ok", "every key that the configuration names is where it says")


def _model(home: Home) -> DoctorFinding:
    """Report which model a new session would use; having only the stand-in is fine."""
    try:
        config = load_config(home.config)
        name = default_model_name(config, lambda _name, _value: None)
    except CurtainwallError as error:
        return DoctorFinding("model", "warn", f"none can be found: {error}")
    how = (
        "set ANTHROPIC_API_KEY or OPENAI_API_KEY"
        if config.model.name == "auto"
        else "`model.name` in the configuration chooses it; change that"
    )
    keyless = f"demo, a stand-in that follows plain instructions; {how} for a language model"
    return DoctorFinding("model", "ok", keyless if name == "demo" else name)


def _local_agents(home: Home) -> DoctorFinding:
    """Report what local agents lack, if one is configured or on the path; a missing agent that nobody configured is fine."""
    try:
        config = load_config(home.config)
    except CurtainwallError:
        return DoctorFinding("local agents", "warn", "unknown: the configuration cannot be read")
    program = config.processes.program or "claude"
    teams = [name for name, team in sorted(config.teams.items()) if team.agent == LOCAL]
    idle = f"; `peers.warm` starts nothing, as no team is served by `{LOCAL}`" if config.peers.warm and not teams else ""
    if shutil.which(program) is None:
        missing = f"no `{program}`" if config.processes.program else "no `claude` on the path"
        if not config.processes.program and not teams:
            return DoctorFinding("local agents", "ok", f"{missing}; `start --agent {LOCAL}` would need it{idle}")
        whose = f"; without it these teams cannot work: {', '.join(teams)}" if teams else ""
        return DoctorFinding("local agents", "warn", f"{missing}{whose}", "install it, or say in `processes.program` where it is")
    if shutil.which("socat") is None:
        return DoctorFinding("local agents", "warn", f"`{program}` is there and `socat` is not", "on Debian: apt-get install socat")
    return DoctorFinding("local agents", "ok", f"`start --agent {LOCAL}` finds `{program}` and `socat`{idle}")


def _servers(home: Home) -> DoctorFinding:
    try:
        servers = load_config(home.config).servers
    except CurtainwallError:
        return DoctorFinding("servers", "warn", "unknown: the configuration cannot be read")
    trusted = [name for name, section in servers.items() if section.trusted]
    if trusted:
        return DoctorFinding(
            "servers",
            "warn",
            f"outside any sandbox: {', '.join(trusted)}",
            "they have your network and files; take `trusted` away if you can",
        )
    return DoctorFinding("servers", "ok", f"{len(servers)}, each in a sandbox without network" if servers else "none")


def _policy(home: Home) -> DoctorFinding:
    try:
        setup = load_setup(environ={**os.environ, "CURTAINWALL_HOME": str(home.root)})
    except CurtainwallError as error:
        return DoctorFinding("policy", "fail", str(error), "until then nothing is allowed")
    summary = f"{len(setup.policy.rules)} rules, {len(setup.policy.protection.never)} protected paths"
    return DoctorFinding("policy", "warn", setup.warnings[0], summary) if setup.warnings else DoctorFinding("policy", "ok", summary)


def _log(home: Home) -> DoctorFinding:
    def act() -> str:
        with open_store(home) as store:
            waiting = store.tallies.tally().asks.get("open", 0)
        return f"opens; {counted(waiting, 'approval')} {'is' if waiting == 1 else 'are'} open" if home.database.exists() else "empty so far"

    return _tried("log", act, "make room on a full disk; otherwise see `curtainwall audit verify`")


def _workspaces(home: Home) -> DoctorFinding:
    """Check that the sessions' own workspaces are in this home; if not, the home was copied or moved."""
    try:
        with open_store(home) as store:
            rows = store.index.sessions(SessionQuery(limit=_LOOKED_AT))
    except CurtainwallError:
        return DoctorFinding("workspaces", "warn", "unknown: the log cannot be read")
    own = (row.workspace for row in rows if row.own_workspace)
    elsewhere = next((path for path in own if not is_beneath(path, os.path.realpath(home.sessions))), None)
    if elsewhere is None:
        return DoctorFinding("workspaces", "ok", "those that sessions have of their own are in this home")
    todo = "it is a copy, or was moved: let no other home use them, or move it back (docs/serve.md, Backup)"
    return DoctorFinding("workspaces", "warn", f"sessions of this home work in `{elsewhere}`, which is not in it", todo)


def matrix_trouble(config: Config, marks: Marks, index: Index) -> Iterator[str]:
    """Yield the problems that keep people on Matrix from reaching us."""
    if config.matrix.homeserver is None or config.matrix.user is None:
        return
    # Start-up time: the library behind it is big.
    from curtainwall.channels.matrix import Memory

    memory = Memory(marks, config.matrix.user)
    if memory.not_let_in:
        yield memory.not_let_in
    for room, left in memory.left().items():
        if count := sum(_is_open(index, session) for session in left.sessions):
            note = f"asks of {counted(count, 'session')} are not shown there; invite `{config.matrix.user}` again, or answer them elsewhere"
            yield f"we are no longer in `{room}` ({left.why}): {note}"


def _is_open(index: Index, session: SessionId) -> bool:
    rows = index.sessions(SessionQuery(prefix=session, limit=1))
    return bool(rows) and rows[0].status != "closed"
