"""Access to this machine: the sandbox for processes, and files opened by descriptor, so that the file we judged is the file we use."""

from typing import TYPE_CHECKING

from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.host.credential_transport import Sending as Sending
    from curtainwall.host.credentials import Credential as Credential
    from curtainwall.host.credentials import Credentials as Credentials
    from curtainwall.host.credentials import CredentialSource as CredentialSource
    from curtainwall.host.credentials import FromCommand as FromCommand
    from curtainwall.host.credentials import FromEnvironment as FromEnvironment
    from curtainwall.host.credentials import FromFile as FromFile
    from curtainwall.host.credentials import FromKeyring as FromKeyring
    from curtainwall.host.credentials import Secret as Secret
    from curtainwall.host.credentials import Unavailable as Unavailable
    from curtainwall.host.files.beneath import FileOwner as FileOwner
    from curtainwall.host.files.beneath import LinkInTheWay as LinkInTheWay
    from curtainwall.host.files.beneath import delete_entry as delete_entry
    from curtainwall.host.files.beneath import hand_over as hand_over
    from curtainwall.host.files.beneath import make_directories as make_directories
    from curtainwall.host.files.beneath import move_entry as move_entry
    from curtainwall.host.files.beneath import open_beneath as open_beneath
    from curtainwall.host.files.beneath import open_directory_above as open_directory_above
    from curtainwall.host.files.beneath import replace_file as replace_file
    from curtainwall.host.files.contents import Contents as Contents
    from curtainwall.host.files.contents import ContentsChanged as ContentsChanged
    from curtainwall.host.files.contents import Extent as Extent
    from curtainwall.host.files.contents import Unbound as Unbound
    from curtainwall.host.files.contents import move_contents as move_contents
    from curtainwall.host.files.contents import read_contents as read_contents
    from curtainwall.host.files.later import Later as Later
    from curtainwall.host.files.later import TooMany as TooMany
    from curtainwall.host.files.later import find_later as find_later
    from curtainwall.host.files.later import quarantine as quarantine
    from curtainwall.host.files.later import take_owners_bits as take_owners_bits
    from curtainwall.host.files.locks import FileLock as FileLock
    from curtainwall.host.files.locks import lock_file as lock_file
    from curtainwall.host.files.locks import locked as locked
    from curtainwall.host.files.watch_record import HeldRecord as HeldRecord
    from curtainwall.host.files.watch_record import WatchRecord as WatchRecord
    from curtainwall.host.files.watch_record import WatchRecords as WatchRecords
    from curtainwall.host.files.watch_record import held_files_of as held_files_of
    from curtainwall.host.files.watch_record import put_back as put_back
    from curtainwall.host.network.dialler import Connection as Connection
    from curtainwall.host.network.dialler import Dialler as Dialler
    from curtainwall.host.network.dialler import Resolver as Resolver
    from curtainwall.host.network.dialler import ScopeOf as ScopeOf
    from curtainwall.host.network.dialler import SystemResolver as SystemResolver
    from curtainwall.host.network.dialler import Unreachable as Unreachable
    from curtainwall.host.network.dialler import system_trust as system_trust
    from curtainwall.host.network.unix_sockets import BACKLOG as BACKLOG
    from curtainwall.host.network.unix_sockets import SocketFile as SocketFile
    from curtainwall.host.network.unix_sockets import is_served as is_served
    from curtainwall.host.network.wires import Wire as Wire
    from curtainwall.host.sandbox.bubblewrap import Bubblewrap as Bubblewrap
    from curtainwall.host.sandbox.bubblewrap import BubblewrapMissing as BubblewrapMissing
    from curtainwall.host.sandbox.bubblewrap import Guarantee as Guarantee
    from curtainwall.host.sandbox.bubblewrap import confinement_report as confinement_report
    from curtainwall.host.sandbox.bubblewrap import find_bubblewrap as find_bubblewrap
    from curtainwall.host.sandbox.bubblewrap import look_for_bubblewrap as look_for_bubblewrap
    from curtainwall.host.sandbox.confinement import HOME as HOME
    from curtainwall.host.sandbox.confinement import MIB as MIB
    from curtainwall.host.sandbox.confinement import PROXY_PORT as PROXY_PORT
    from curtainwall.host.sandbox.confinement import Bounds as Bounds
    from curtainwall.host.sandbox.confinement import Bridge as Bridge
    from curtainwall.host.sandbox.confinement import Confinement as Confinement
    from curtainwall.host.sandbox.confinement import ConfinementFailed as ConfinementFailed
    from curtainwall.host.sandbox.confinement import Finished as Finished
    from curtainwall.host.sandbox.confinement import Network as Network
    from curtainwall.host.sandbox.confinement import Piped as Piped
    from curtainwall.host.sandbox.confinement import Sockets as Sockets
    from curtainwall.host.sandbox.process import ConfinedProcess as ConfinedProcess
    from curtainwall.host.sandbox.process import confinement_owner as confinement_owner
    from curtainwall.host.sandbox.process import run_confined as run_confined
    from curtainwall.host.sandbox.process import start_confined as start_confined
    from curtainwall.host.sandbox.shares import Share as Share
    from curtainwall.host.sandbox.shares import ShareLimits as ShareLimits
    from curtainwall.host.sandbox.shares import Shares as Shares
    from curtainwall.host.sandbox.shares import charged_to as charged_to
    from curtainwall.host.sandbox.shares import limits_of_this_machine as limits_of_this_machine
    from curtainwall.host.sandbox.sockets import MOST_FIFOS as MOST_FIFOS
    from curtainwall.host.sandbox.sockets import TooManyFifos as TooManyFifos
    from curtainwall.host.sandbox.sockets import find_fifos as find_fifos
    from curtainwall.host.sandbox.workers import Worker as Worker
    from curtainwall.host.sandbox.workers import WorkerConfinement as WorkerConfinement
    from curtainwall.host.sandbox.workers import confined_worker as confined_worker
    from curtainwall.host.sandbox.workers import find_monty as find_monty
    from curtainwall.host.views.apply import apply_changes as apply_changes
    from curtainwall.host.views.apply import apply_in_steps as apply_in_steps
    from curtainwall.host.views.choice import choose_mechanism as choose_mechanism
    from curtainwall.host.views.choice import open_view as open_view
    from curtainwall.host.views.choice import remove_view as remove_view
    from curtainwall.host.views.sealed import ContentsLost as ContentsLost
    from curtainwall.host.views.sealed import SealedContents as SealedContents
else:
    __getattr__ = lazy_names(__name__)
