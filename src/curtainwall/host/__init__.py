"""Access to this machine: the sandbox for processes, and files opened by descriptor, so that the file we judged is the file we use."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.host.credentials import (
        Credential,
        Credentials,
        CredentialSource,
        FromCommand,
        FromEnvironment,
        FromFile,
        FromKeyring,
        Secret,
        Sending,
        Unavailable,
    )
    from curtainwall.host.files.beneath import (
        FileOwner,
        LinkInTheWay,
        delete_entry,
        hand_over,
        make_directories,
        move_entry,
        open_beneath,
        open_directory_above,
        replace_file,
    )
    from curtainwall.host.files.contents import Contents, ContentsChanged, Extent, Unbound, move_contents, read_contents
    from curtainwall.host.files.later import Later, TooMany, find_later, quarantine, take_owners_bits
    from curtainwall.host.files.locks import FileLock, lock_file, locked
    from curtainwall.host.files.watch_record import HeldRecord, WatchRecord, WatchRecords, held_files_of, put_back
    from curtainwall.host.network.dialler import Connection, Dialler, Resolver, ScopeOf, SystemResolver, Unreachable, system_trust
    from curtainwall.host.network.unix_sockets import BACKLOG, SocketFile, is_served
    from curtainwall.host.network.wires import Wire
    from curtainwall.host.sandbox.bubblewrap import (
        Bubblewrap,
        BubblewrapMissing,
        Guarantee,
        confinement_report,
        find_bubblewrap,
        look_for_bubblewrap,
    )
    from curtainwall.host.sandbox.confinement import (
        HOME,
        MIB,
        PROXY_PORT,
        Bounds,
        Bridge,
        Confinement,
        ConfinementFailed,
        Finished,
        Network,
        Piped,
        Sockets,
    )
    from curtainwall.host.sandbox.process import ConfinedProcess, confinement_owner, run_confined, start_confined
    from curtainwall.host.sandbox.shares import Share, ShareLimits, Shares, charged_to, limits_of_this_machine
    from curtainwall.host.sandbox.sockets import MOST_FIFOS, TooManyFifos, find_fifos
    from curtainwall.host.sandbox.workers import Worker, WorkerConfinement, confined_worker, find_monty
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "BACKLOG",
    "HOME",
    "MIB",
    "MOST_FIFOS",
    "PROXY_PORT",
    "Bounds",
    "Bridge",
    "Bubblewrap",
    "BubblewrapMissing",
    "ConfinedProcess",
    "Confinement",
    "ConfinementFailed",
    "Connection",
    "Contents",
    "ContentsChanged",
    "Credential",
    "CredentialSource",
    "Credentials",
    "Dialler",
    "Extent",
    "FileLock",
    "FileOwner",
    "Finished",
    "FromCommand",
    "FromEnvironment",
    "FromFile",
    "FromKeyring",
    "Guarantee",
    "HeldRecord",
    "Later",
    "LinkInTheWay",
    "Network",
    "Piped",
    "Resolver",
    "ScopeOf",
    "Secret",
    "Sending",
    "Share",
    "ShareLimits",
    "Shares",
    "SocketFile",
    "Sockets",
    "SystemResolver",
    "TooMany",
    "TooManyFifos",
    "Unavailable",
    "Unbound",
    "Unreachable",
    "WatchRecord",
    "WatchRecords",
    "Wire",
    "Worker",
    "WorkerConfinement",
    "charged_to",
    "confined_worker",
    "confinement_owner",
    "confinement_report",
    "delete_entry",
    "find_bubblewrap",
    "find_fifos",
    "find_later",
    "find_monty",
    "hand_over",
    "held_files_of",
    "is_served",
    "limits_of_this_machine",
    "lock_file",
    "locked",
    "look_for_bubblewrap",
    "make_directories",
    "move_contents",
    "move_entry",
    "open_beneath",
    "open_directory_above",
    "put_back",
    "quarantine",
    "read_contents",
    "replace_file",
    "run_confined",
    "start_confined",
    "system_trust",
    "take_owners_bits",
]
