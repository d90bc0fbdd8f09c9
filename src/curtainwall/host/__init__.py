"""This machine: processes confined, and files opened by descriptor so that what was judged is what is touched."""

from curtainwall.host.beneath import (
    LinkInTheWay,
    delete_entry,
    make_directories,
    move_entry,
    open_beneath,
    open_directory_above,
    replace_file,
)
from curtainwall.host.bridging import PROXY_PORT, Bridge
from curtainwall.host.bubblewrap import Bubblewrap, Guarantee, Missing, confinement_report, find_bubblewrap, look_for_bubblewrap
from curtainwall.host.confine import ConfinedProcess, run_confined, start_confined
from curtainwall.host.confine_terms import HOME, MIB, Bounds, Confinement, ConfinementFailed, Finished, Network, Sockets
from curtainwall.host.contents import Contents, ContentsChanged, Extent, Unbound, move_contents, read_contents
from curtainwall.host.credential_sources import FromCommand, FromEnvironment, FromFile, FromKeyring, Source, Unavailable
from curtainwall.host.credentials import Credential, Credentials, Secret, Sending
from curtainwall.host.dialling import Connection, Dialler, Resolver, ScopeOf, SystemResolver, Unreachable, system_trust
from curtainwall.host.doors import BACKLOG, SocketFile, is_served
from curtainwall.host.fifos import MOST_FIFOS, TooManyFifos, find_fifos
from curtainwall.host.holding import put_back, told_of
from curtainwall.host.later import Later, TooMany, find_later, set_aside, take_owners_bits
from curtainwall.host.locks import FileLock, lock_file, locked
from curtainwall.host.piped import Piped
from curtainwall.host.shares import Share, ShareLimits, Shares, charged_to, limits_of_this_machine
from curtainwall.host.watch_record import HeldRecord, WatchRecord, WatchRecords
from curtainwall.host.wires import Wire
from curtainwall.host.workers import How, Worker, confined_worker, find_monty

__all__ = [
    "BACKLOG",
    "HOME",
    "MIB",
    "MOST_FIFOS",
    "PROXY_PORT",
    "Bounds",
    "Bridge",
    "Bubblewrap",
    "ConfinedProcess",
    "Confinement",
    "ConfinementFailed",
    "Connection",
    "Contents",
    "ContentsChanged",
    "Credential",
    "Credentials",
    "Dialler",
    "Extent",
    "FileLock",
    "Finished",
    "FromCommand",
    "FromEnvironment",
    "FromFile",
    "FromKeyring",
    "Guarantee",
    "HeldRecord",
    "How",
    "Later",
    "LinkInTheWay",
    "Missing",
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
    "Source",
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
    "charged_to",
    "confined_worker",
    "confinement_report",
    "delete_entry",
    "find_bubblewrap",
    "find_fifos",
    "find_later",
    "find_monty",
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
    "read_contents",
    "replace_file",
    "run_confined",
    "set_aside",
    "start_confined",
    "system_trust",
    "take_owners_bits",
    "told_of",
]
