"""Resolves git remotes, as an agent writes them, to the repository `host/owner/repo` that each of them means.

A name is looked up in the repository's own config and rewritten as git would. The result is a URL that the same config does not rewrite
again, so that git goes where the rules judged. The user's and the system's git config are not read: the network step must run without them.
"""

import os
import re

from curtainwall.facts.git.config import Repository, find_repository
from curtainwall.facts.refusal import Unclear, quoted
from curtainwall.facts.urls import canonical_url
from curtainwall.model import FORGES, HostFacts, on_disk, record

_MAX_REMOTE = 4_096
_MAX_PLACES = 32
_WRITE_A_URL = "write a URL such as `https://host/owner/repo`"
_TREACHEROUS = re.compile(r"[\x00-\x20\x7f\\]")
_HELPER = re.compile(r"[A-Za-z0-9+.-]*::")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_AUTHORITY = re.compile(r"(?:([^/@]*)@)?(\[[0-9A-Fa-f:.]+\]|[^/@:\[\]]+)(?::([0-9]{1,5}))?(/.*)")
_SCP = re.compile(r"(?:([^/@:]*)@)?([^/@:\[\]]+):(.*)")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")
_SEGMENT = re.compile(r"[A-Za-z0-9._~+@=,-]+")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")
_DEFAULT_PORTS = {"https": 443, "http": 80, "ssh": 22, "git": 9418}


@record
class Remote:
    """One repository on the network.

    `value` is its identity, `host[:port]/path`. `url` is what the network step must be given, and nothing else.
    """

    value: str
    url: str
    host: HostFacts


def canonical_remotes(
    text: object, *, repository: str | None, push: bool, workspace: str = "/", own_ports: frozenset[int] = frozenset()
) -> tuple[Remote, ...]:
    """Return every repository that git would talk to: one to read from, or all that a push goes to.

    `repository` is the real path that git would be started in, or None if there is no repository yet; none above the `workspace` counts.
    Our `own_ports` on this machine are forbidden.
    """
    if not isinstance(text, str):
        raise Unclear(f"a remote must be a string, not {quoted(text)}")
    if not text or len(text) > _MAX_REMOTE or _TREACHEROUS.search(text) or text[0] == "-":
        raise Unclear(f"the remote {quoted(text)} is empty or too long, or holds a leading dash, a space, or a backslash; {_WRITE_A_URL}")
    if text[0] == "/":
        raise Unclear(f"the remote {quoted(text)} is a path on this machine; {_WRITE_A_URL}")
    if not _is_encodable(text):
        raise Unclear(f"the remote {quoted(text)} is not valid text")
    opened = None if repository is None else find_repository(repository, workspace)
    if opened is None:
        return (_read_url(text, own_ports),)
    remotes: dict[str, Remote] = {}
    addresses = _addresses(opened, text, push=push)
    if len(addresses) > _MAX_PLACES:
        raise Unclear(f"the remote {quoted(text)} pushes to {len(addresses)} places, more than {_MAX_PLACES}")
    for address in addresses:
        remote = _read_url(address, own_ports)
        if _addresses(opened, remote.url, push=push) != (remote.url,):
            raise Unclear(f"the repository's config would rewrite {quoted(remote.url)} once more")
        remotes.setdefault(remote.url, remote)
    return tuple(remotes.values())


def _is_encodable(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _addresses(repository: Repository, name: str, *, push: bool) -> tuple[str, ...]:
    """Return the URLs that git would use for a remote, by the rules of its `remote.c`: the first to read, all to push."""
    own: dict[str, list[str]] = {"url": [], "pushurl": []}
    bases: dict[str, dict[str, list[str]]] = {"insteadof": {}, "pushinsteadof": {}}
    for entry in repository.entries:
        if entry.subsection is None:
            continue
        if entry.section == "remote" and entry.subsection == name:
            if entry.key == "vcs":
                raise Unclear(f"the remote {quoted(name)} is reached by a helper program")
            if entry.key in own:
                own[entry.key].append(_require_value(entry.value, name))
        elif entry.section == "url" and entry.key in bases:
            bases[entry.key].setdefault(entry.subsection, []).append(_require_value(entry.value, entry.subsection))
    urls, push_urls = own["url"], [_rewritten(url, bases["insteadof"]) or url for url in own["pushurl"]]
    if not urls:
        if "/" not in name and any(
            os.path.lexists(on_disk(os.path.join(repository.directory, old, name))) for old in ("remotes", "branches")
        ):
            raise Unclear(f"the remote {quoted(name)} is kept in a file of git's old ways")
        urls = [name]
        if ":" not in name and not push_urls:
            raise Unclear(f"the repository has no remote named {quoted(name)}")
    # An explicit push URL overrides `pushInsteadOf`, except if git takes the name itself for the URL.
    if push and not (own["url"] and own["pushurl"]):
        push_urls += [new for url in urls if (new := _rewritten(url, bases["pushinsteadof"]))]
    if push and push_urls:
        return tuple(push_urls)
    read = [_rewritten(url, bases["insteadof"]) or url for url in urls]
    return tuple(read) if push else (read[0],)


def _require_value(value: str | None, name: str) -> str:
    if not value:
        raise Unclear(f"the repository's config has an empty entry for {quoted(name)}, which versions of git read differently")
    return value


def _rewritten(url: str, bases: dict[str, list[str]]) -> str | None:
    """Return a URL with its longest matching prefix replaced by the base, the first of equals; None if none matches."""
    matches = [(len(prefix), base) for base, prefixes in bases.items() for prefix in prefixes if url.startswith(prefix)]
    if not matches:
        return None
    length, base = max(matches, key=lambda pair: pair[0])
    return base + url[length:]


def _read_url(text: str, own_ports: frozenset[int]) -> Remote:
    """Return the repository that a URL means, in any of git's spellings."""
    if _TREACHEROUS.search(text) or text.startswith("-"):
        raise Unclear(f"the remote {quoted(text)} holds a leading dash, a space, a backslash or a control character")
    if _HELPER.match(text):
        raise Unclear(f"the remote {quoted(text)} is reached by a helper program")
    scheme = _SCHEME.match(text)
    if scheme is not None:
        kind = scheme[1].lower()
        parts = _AUTHORITY.fullmatch(text, scheme.end())
        if kind not in _DEFAULT_PORTS or scheme[1] != kind:
            raise Unclear(f"the remote {quoted(text)} must be `https`, `ssh`, `http` or `git`, or written `git@host:owner/repo`")
        if parts is None:
            raise Unclear(f"the remote {quoted(text)} has no host and path that can be read in one way")
        user, host, port, path = parts[1], parts[2], parts[3], parts[4]
    else:
        kind, port, parts = "ssh", None, _SCP.fullmatch(text)
        if parts is None or len(parts[2]) == 1 or (parts[1] is None and parts[2].isdigit()):
            raise Unclear(f"the remote {quoted(text)} is a local path, or neither a remote's name nor a URL; {_WRITE_A_URL}")
        user, host, path = parts[1], parts[2], parts[3]
        if "%" in path:
            raise Unclear(f"the remote {quoted(text)} holds a percent sign, which programs read differently")
    return _judged(text, kind, user, _place(text, kind, host, port, own_ports), path, absolute=scheme is not None or path.startswith("/"))


def _place(text: str, kind: str, host: str, port: str | None, own_ports: frozenset[int]) -> HostFacts:
    if host.startswith("-") or "%" in host:
        raise Unclear(f"the host of {quoted(text)} cannot be read in one way")
    number = int(port) if port else _DEFAULT_PORTS[kind]
    if not 0 < number < 65_536:
        raise Unclear(f"the remote {quoted(text)} names a port that does not exist")
    facts = canonical_url(f"https://{host}:{number}/", own_ports).facts
    if facts.host.startswith("-"):
        raise Unclear(f"the host of {quoted(text)} cannot be read in one way")
    return facts.model_copy(update={"secure": kind in ("https", "ssh")})


def _judged(text: str, kind: str, user: str | None, place: HostFacts, path: str, *, absolute: bool) -> Remote:
    if user is not None and ":" in user:
        raise Unclear(f"the remote at {quoted(place.host)} holds a password; leave it out and use a credential")
    if user is not None and not _USER.fullmatch(user):
        raise Unclear(f"the remote {quoted(text)} has a user name that cannot be read in one way")
    forge = place.host in FORGES
    segments = _segments(text, path)
    if forge and len(segments) < 2:
        raise Unclear(f"the remote {quoted(text)} must name an owner and a repository")
    host = f"[{place.host}]" if ":" in place.host else place.host
    standard = place.port == _DEFAULT_PORTS[kind]
    where = host if standard else f"{host}:{place.port}"
    home = kind == "ssh" and not absolute and not forge and user not in (None, "git")
    identity = "/".join([f"~{user}", *segments] if home else segments)
    value = f"{where}/{identity.lower() if forge else identity}".removesuffix(".git")
    path = "/".join(segments)
    if kind == "ssh":
        login = "git@" if forge else f"{user}@" if user else ""
        # On a private host, `host:a/b` is below the user's home and `ssh://host/a/b` is not.
        url = f"ssh://{login}{where}/{path}" if absolute or forge else f"{login}{host}:{path}"
        return Remote(value, url, place)
    if forge and standard:
        kind, where = "https", host
        place = place.model_copy(update={"port": 443, "secure": True})
    return Remote(value, f"{kind}://{where}/{path}", place)


def _segments(text: str, path: str) -> list[str]:
    """Return the parts of a path without `.` and `..`; refuse what would hide a part or leave the root."""
    segments: list[str] = []
    for raw in path.removeprefix("/").rstrip("/").split("/"):
        segment = _ESCAPE.sub(lambda match: letter if _UNRESERVED.match(letter := chr(int(match[1], 16))) else match[0], raw)
        if not _SEGMENT.fullmatch(segment):
            raise Unclear(f"the path of {quoted(text)} has an empty part, or letters that servers read differently")
        if segment == "..":
            if not segments:
                raise Unclear(f"the path of {quoted(text)} leads above its host")
            segments.pop()
        elif segment != ".":
            segments.append(segment)
    if not segments or segments[0].startswith("-") or segments[-1].lower() == ".git":
        raise Unclear(f"the path of {quoted(text)} names no repository")
    return segments
