"""Works out what an agent's text means: paths, URLs, remotes, commands, secrets. Reads this machine, never changes it."""

from typing import TYPE_CHECKING

from curtainwall.model import is_beneath
from curtainwall.model.lazy_names import lazy_names

if TYPE_CHECKING:
    from curtainwall.facts.directories import MOST_NAMES, NamedFiles, find_named, holds_what_runs, is_without_key, writes_what_runs
    from curtainwall.facts.git.pushes import Push, find_push
    from curtainwall.facts.git.remotes import Remote, canonical_remotes
    from curtainwall.facts.git.revisions import paths_in_revision
    from curtainwall.facts.json_text import read_frame, read_json
    from curtainwall.facts.paths import PathRoots, canonical_path, links_to, require_no_url
    from curtainwall.facts.refusal import Unclear, quoted
    from curtainwall.facts.secrets.masks import Masker, Piece, StreamMasker, contains_mask, masked_excerpt, masks_in
    from curtainwall.facts.shell.commands import Redirect, Script, ShellCommand, parse_script
    from curtainwall.facts.urls import Url, canonical_url, scope_of_address
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "MOST_NAMES",
    "Masker",
    "NamedFiles",
    "PathRoots",
    "Piece",
    "Push",
    "Redirect",
    "Remote",
    "Script",
    "ShellCommand",
    "StreamMasker",
    "Unclear",
    "Url",
    "canonical_path",
    "canonical_remotes",
    "canonical_url",
    "contains_mask",
    "find_named",
    "find_push",
    "holds_what_runs",
    "is_beneath",
    "is_without_key",
    "links_to",
    "masked_excerpt",
    "masks_in",
    "parse_script",
    "paths_in_revision",
    "quoted",
    "read_frame",
    "read_json",
    "require_no_url",
    "scope_of_address",
    "writes_what_runs",
]
