"""The policy of this machine: rule files, lists, and the paths that are protected whatever the rules say."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from posixpath import normpath

from curtainwall.config.loader import line_of, read_plain
from curtainwall.config.schema import Config
from curtainwall.facts import PathRoots, Unclear, canonical_path, links_to
from curtainwall.host.home import Home, find_home, named_home
from curtainwall.model import Broken
from curtainwall.policy import Lists, Policy, Protection, RuleCard, RuleSource, shipped
from curtainwall.session import RuleOwner, table_of

Load = Callable[[Sequence[RuleSource]], Policy]
"""Makes a policy from rule files, with the lists and protected paths of this machine."""


def rule_sources(home: Home, policy_files: Iterable[Path] = ()) -> tuple[RuleSource, ...]:
    """Return the rule files that apply to all: those that ship, the user's own, and `policy_files`."""
    try:
        own = sorted(path for path in home.policy.iterdir() if path.suffix.lower() == ".cedar" and not path.name.startswith("."))
    except FileNotFoundError:
        if home.policy.is_symlink():
            raise Broken(f"`{home.policy}` is a link that leads nowhere; nothing is judged without the rules in it") from None
        own = []
    except OSError as error:
        raise Broken(f"the rules in `{home.policy}` cannot be read: {error.strerror}; nothing is judged without them") from None
    return (*shipped(), *(_source(path, path.name) for path in own), *(_source(path, str(path)) for path in policy_files))


def known_in(config: Config) -> frozenset[RuleOwner]:
    """Return the configured teams, jobs and webhooks."""
    return frozenset(_rule_files(config))


def own_files(config: Config) -> dict[RuleOwner, Path]:
    """Return the rule file of each team, job and webhook that has one."""
    return {owner: Path(normpath(Path(file).expanduser())) for owner, file in _rule_files(config).items() if file is not None}


def own_policies(home: Home, config: Config, sources: Sequence[RuleSource], load: Load) -> dict[RuleOwner, Policy]:
    """Return the policy of each team, job and webhook with a rule file: the shared rules, and what the file forbids in addition."""
    policies: dict[Path, Policy] = {}
    by_owner: dict[RuleOwner, Policy] = {}
    for owner, file in own_files(config).items():
        try:
            if file.resolve().parent == home.policy.resolve():
                raise Broken(f"`{file}` lies among the rules that hold for all; put it into another directory")
            if file not in policies:
                policies[file] = load((*sources, _source(file, str(file), narrows=True)))
        except Broken as fault:
            raise Broken(f"`{table_of(owner)}.policy`: {fault}") from None
        by_owner[owner] = policies[file]
    return by_owner


def own_cards(policy: Policy, others: Mapping[RuleOwner, Policy]) -> dict[RuleCard, str]:
    """Return the rules that do not apply to all, and to whom each applies: `job nightly`, `team backend, job weekly`."""
    names_by_card: dict[RuleCard, list[str]] = {}
    for (kind, name), other in others.items():
        for card in other.rules:
            if policy.card(card.id) is None:
                names_by_card.setdefault(card, []).append(f"{kind} {name}")
    return {card: ", ".join(names) for card, names in names_by_card.items()}


def _rule_files(config: Config) -> dict[RuleOwner, str | None]:
    return {
        **{("team", name): team.policy for name, team in config.teams.items()},
        **{("job", name): job.policy for name, job in config.cron.items()},
        **{("webhook", name): hook.policy for name, hook in config.webhooks.hooks.items()},
    }


def _source(path: Path, name: str, *, narrows: bool = False) -> RuleSource:
    try:
        return RuleSource(name, read_plain(path).decode(), user=True, narrows=narrows)
    except OSError as error:
        raise Broken(f"the rule file `{path}` cannot be read: {error.strerror}; correct it or take it away") from None
    except UnicodeDecodeError as error:
        raise Broken(f"the rule file `{path}` is not UTF-8 at byte {error.start}; save it as UTF-8 text") from None


def lists_of(path: Path, config: Config) -> Lists:
    """Return the lists of a configuration; raise `Broken`, which names the file at `path`."""
    lists = config.lists
    try:
        return Lists(lists.hosts, lists.remotes, lists.push_remotes, lists.teams)
    except Broken as fault:
        key = str(fault).split("`")[1]
        raise Broken(f"`{path}`: {_line(path, key)}{fault}") from None


def _line(path: Path, key: str) -> str:
    try:
        line = line_of(path.read_text(encoding="utf-8"), key.split("."))
    except (OSError, UnicodeDecodeError):
        return ""
    return "" if line is None else f"line {line}: "


# Relative to the user's home. Paths that do not exist yet are protected, too.
_KEY_STORES = """
    .ssh .gnupg .aws .azure .config/gcloud .kube .docker .oci .config/doctl .config/hcloud .terraform.d .vault-token .config/sops
    .netrc _netrc .git-credentials .config/git/credentials .config/gh .config/glab-cli .config/hub .config/rclone
    .npmrc .yarnrc.yml .pypirc .cargo/credentials .cargo/credentials.toml .gem/credentials .m2/settings-security.xml .composer/auth.json
    .pgpass .my.cnf .mylogin.cnf .s3cfg .boto .htpasswd .msmtprc .fetchmailrc .pki .config/op .1password
    .password-store .local/share/keyrings .gnome2/keyrings .local/share/kwalletd .kde/share/apps/kwallet .config/keepassxc
    .config/1Password .config/Bitwarden .config/KeePass .local/share/gopass .config/gopass
    .claude.json .claude/.credentials.json .codex/auth.json .gemini/oauth_creds.json .local/share/opencode/auth.json
    .bitcoin .ethereum .electrum .config/solana .gnupg2
""".split()
_BROWSERS = """
    .mozilla .thunderbird .config/google-chrome .config/google-chrome-beta .config/chromium .config/BraveSoftware .config/microsoft-edge
    .config/vivaldi .config/opera .librewolf .waterfox .zen .config/mozilla snap/firefox snap/chromium snap/thunderbird snap/brave
    .var/app/org.mozilla.firefox .var/app/com.google.Chrome .var/app/org.chromium.Chromium .var/app/com.brave.Browser
    .var/app/org.mozilla.Thunderbird .config/Signal .config/Slack .config/discord .config/Element
""".split()
_START_UP = """
    .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .mkshrc
    .cshrc .tcshrc .login .logout .inputrc .xprofile .xinitrc .xsession .xsessionrc .pam_environment .config/fish .config/nushell
    .config/autostart .config/systemd .config/environment.d .config/plasma-workspace .local/share/systemd .config/git .gitconfig
    .vimrc .gvimrc .vim .config/nvim .emacs .emacs.d .tmux.conf .screenrc .gdbinit .pythonrc.py
""".split()
_SYSTEM = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/ssl/private", "/etc/krb5.keytab", "/run/secrets")
_SYSTEM_START_UP = """
    /etc/profile /etc/profile.d /etc/bash.bashrc /etc/zsh /etc/environment /etc/ld.so.preload /etc/ld.so.conf /etc/ld.so.conf.d
    /etc/sudoers /etc/sudoers.d /etc/pam.d /etc/crontab /etc/cron.d /etc/cron.hourly /etc/cron.daily /var/spool/cron
""".split()


def protection_of(
    home: Home, users: tuple[str, ...], never: Iterable[str] = (), readonly: Iterable[str] = (), programs: Iterable[str] = ()
) -> Protection:
    """Return the protected paths of this machine, with the user's own; `users` are real home directories, `~` first."""
    closed = [str(home.root), *_SYSTEM, *(f"{user.rstrip('/')}/{name}" for user in users for name in (*_KEY_STORES, *_BROWSERS))]
    fixed = [*_SYSTEM_START_UP, *(f"{user.rstrip('/')}/{name}" for user in users for name in _START_UP)]
    return Protection(
        never=_once(*(form for path in closed for form in _forms(path)), *(form for path in never for form in _named(path, users[0]))),
        readonly=_once(*(form for path in fixed for form in _forms(path)), *(form for path in readonly for form in _named(path, users[0]))),
        programs=_once(*(form for path in programs for form in _named(path, users[0]))),
    )


def linked_paths(home: Home, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield our paths outside our home: every link that leads to it, and the links and targets that its own links lead to."""
    if find_home(environ) == home:
        yield from links_to(named_home(environ))
    yield from links_to(environ.get("HOME") or "/")
    for path in (home.config, home.database, home.policy, home.mask_key.parent, *_in(home.policy), *_in(home.mask_key.parent)):
        if path.is_symlink():
            yield from links_to(str(path))
            yield os.path.realpath(path)


def _in(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []  # The code that reads its files reports the error.


def _once(*paths: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths))


def _forms(path: str) -> Iterator[str]:
    """Yield a path as written, the links on the way, which must not be replaced, and its target.

    If we cannot follow a path, our tools cannot either.
    """
    yield path
    yield from links_to(path)
    with contextlib.suppress(Unclear):
        yield canonical_path(path, PathRoots(workspace="/", home="/"))


def _named(path: str, user: str) -> Iterator[str]:
    """Yield the forms of a path from the configuration."""
    if not path.startswith(("/", "~/")):
        raise Broken(f"the protected path `{path}` is relative; write the whole path, or `~/…`")
    try:
        canonical_path(path, PathRoots(workspace="/", home=user))
    except Unclear as fault:
        raise Broken(f"the protected path `{path}` cannot be followed: {fault.message}") from None
    yield from _forms(normpath(user + path[1:] if path.startswith("~") else path))
