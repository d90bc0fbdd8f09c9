"""Works out what an agent's text means: paths, URLs, remotes, commands, secrets. Reads this machine, never changes it."""

from typing import TYPE_CHECKING

from curtainwall.model import is_beneath as is_beneath
from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.facts.directories import MOST_NAMES as MOST_NAMES
    from curtainwall.facts.directories import NamedFiles as NamedFiles
    from curtainwall.facts.directories import find_named as find_named
    from curtainwall.facts.directories import holds_what_runs as holds_what_runs
    from curtainwall.facts.directories import is_without_key as is_without_key
    from curtainwall.facts.directories import writes_what_runs as writes_what_runs
    from curtainwall.facts.git.pushes import Push as Push
    from curtainwall.facts.git.pushes import find_push as find_push
    from curtainwall.facts.git.remotes import Remote as Remote
    from curtainwall.facts.git.remotes import canonical_remotes as canonical_remotes
    from curtainwall.facts.git.revisions import paths_in_revision as paths_in_revision
    from curtainwall.facts.json_text import read_frame as read_frame
    from curtainwall.facts.json_text import read_json as read_json
    from curtainwall.facts.paths import PathRoots as PathRoots
    from curtainwall.facts.paths import canonical_path as canonical_path
    from curtainwall.facts.paths import links_to as links_to
    from curtainwall.facts.paths import real_path as real_path
    from curtainwall.facts.paths import require_no_url as require_no_url
    from curtainwall.facts.refusal import Unclear as Unclear
    from curtainwall.facts.refusal import quoted as quoted
    from curtainwall.facts.secrets.masks import Masker as Masker
    from curtainwall.facts.secrets.masks import Piece as Piece
    from curtainwall.facts.secrets.masks import StreamMasker as StreamMasker
    from curtainwall.facts.secrets.masks import contains_mask as contains_mask
    from curtainwall.facts.secrets.masks import masked_excerpt as masked_excerpt
    from curtainwall.facts.secrets.masks import masks_in as masks_in
    from curtainwall.facts.shell.commands import Redirect as Redirect
    from curtainwall.facts.shell.commands import Script as Script
    from curtainwall.facts.shell.commands import ShellCommand as ShellCommand
    from curtainwall.facts.shell.commands import parse_script as parse_script
    from curtainwall.facts.urls import Url as Url
    from curtainwall.facts.urls import canonical_url as canonical_url
    from curtainwall.facts.urls import scope_of_address as scope_of_address
else:
    __getattr__ = lazy_names(__name__)
