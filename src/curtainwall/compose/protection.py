"""Which paths of this machine are protected: our own, key stores, browsers and password stores; start-up files for writing."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from posixpath import normpath

from curtainwall.facts import Scene, Unclear, canonical_path, links_to
from curtainwall.host.home import Home, find_home, named_home
from curtainwall.model import Broken
from curtainwall.policy import Protection

# Below the user's home. What is not there yet is protected all the same.
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


def led_to(home: Home, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield what is ours and lies outside our home: every link that leads to it, and what the links inside it lead through and to."""
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
        return []  # Whoever reads what is in it complains.


def _once(*paths: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths))


def _forms(path: str) -> Iterator[str]:
    """Return a path as it stands and the links on its way, which must not be replaced, and where it leads.

    What we cannot follow, our tools cannot either.
    """
    yield path
    yield from links_to(path)
    with contextlib.suppress(Unclear):
        yield canonical_path(path, Scene(workspace="/", home="/"))


def _named(path: str, user: str) -> Iterator[str]:
    """Return the forms of a path that the user named."""
    if not path.startswith(("/", "~/")):
        raise Broken(f"the protected path `{path}` is relative; write the whole path, or `~/…`")
    try:
        canonical_path(path, Scene(workspace="/", home=user))
    except Unclear as fault:
        raise Broken(f"the protected path `{path}` cannot be followed: {fault.message}") from None
    yield from _forms(normpath(user + path[1:] if path.startswith("~") else path))
