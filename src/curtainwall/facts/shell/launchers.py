"""Programs that run other programs: what they would run, where their words tell; and the shell's own words that change what runs.

INVARIANT: a launcher keeps its own name. What it runs is told in addition; where that cannot be told, the launcher counts as not parsed.
"""

import re
from dataclasses import dataclass

from curtainwall.facts.shell.words import Word


@dataclass(frozen=True, slots=True)
class Launch:
    """What a command's words say about what runs: whether all of it is known, and what runs besides the program itself."""

    known: bool = True
    argv: tuple[Word, ...] = ()
    script: str | None = None
    extended: bool = False
    """More words reach `argv` than are written here, as from xargs."""
    disturbed: bool = False
    """`argv` runs in an environment of the agent's making."""


_PLAIN = Launch()
_UNKNOWN = Launch(known=False)

_SHELLS = frozenset("bash sh dash zsh ksh ash rbash".split())

# Flags that stand alone, and flags that take the next word, in front of the program to run.
_PREFIXES: dict[str, tuple[frozenset[str], frozenset[str], int]] = {
    "nohup": (frozenset(), frozenset(), 0),
    "setsid": (frozenset({"-f", "-w", "-c"}), frozenset(), 0),
    "time": (frozenset({"-p"}), frozenset(), 0),
    "coproc": (frozenset(), frozenset(), 0),
    "command": (frozenset({"-p"}), frozenset(), 0),
    "builtin": (frozenset(), frozenset(), 0),
    "exec": (frozenset({"-c", "-l", "-cl"}), frozenset({"-a"}), 0),
    "nice": (frozenset(), frozenset({"-n"}), 0),
    "timeout": (frozenset({"--foreground", "--preserve-status", "-v", "--verbose"}), frozenset({"-s", "-k"}), 1),
    "stdbuf": (frozenset(), frozenset({"-i", "-o", "-e"}), 0),
    "xargs": (frozenset({"-0", "-r", "-t", "-x", "--null", "--no-run-if-empty"}), frozenset({"-n", "-P", "-L", "-I", "-d", "-s", "-a"}), 0),
    "sudo": (frozenset({"-n", "-E", "-H", "-k", "-S"}), frozenset({"-u", "-g"}), 0),
    "doas": (frozenset({"-n"}), frozenset({"-u"}), 0),
    "env": (frozenset({"-i", "-0"}), frozenset({"-u"}), 0),
}

# What these run, or change for later commands, is not told by their words.
_OPAQUE = frozenset(
    (
        "parallel watch strace ltrace gdb chroot unshare nsenter flock busybox toybox script su runuser ssh ionice taskset chrt setarch "
        "systemd-run start-stop-daemon daemonize at batch crontab entr direnv nix-shell dbus-run-session fakeroot proot bwrap firejail "
        ". source alias unalias hash enable trap shopt mapfile readarray getopts let complete compgen bind fc history wait unset "
        "export declare typeset local readonly setpriv capsh pkexec expect unbuffer rlwrap xvfb-run screen tmux"
    ).split()
)

_HARMLESS_NAME = re.compile(r"[a-z][a-z0-9_]*")
_SET_WORD = re.compile(r"[-+][efhnuvxCE]*o?|pipefail|errexit|nounset|xtrace|noglob|verbose")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")

_GIT_GLOBAL = frozenset("--no-pager -P --version --help -v -h --no-replace-objects --no-optional-locks --literal-pathspecs".split())
_GIT_OPAQUE = frozenset(
    (
        "bisect difftool mergetool filter-branch submodule instaweb daemon shell cvsserver p4 svn hook for-each-repo send-email credential "
        "upload-pack receive-pack upload-archive http-backend remote-ext remote-fd web--browse citool gui gitk maintenance "
        "merge-index merge-octopus merge-resolve submodule--helper difftool--helper bisect--helper mergetool--lib add--interactive"
    ).split()
)
# Options whose value git runs, by sub-command; git takes any unique beginning of a long one.
_GIT_RUNS: dict[str, tuple[str, ...]] = {
    "clone": ("-c", "-u", "--config", "--upload-pack", "--template"),
    "init": ("--template",),
    "fetch": ("--upload-pack",),
    "pull": ("--upload-pack",),
    "ls-remote": ("--upload-pack", "--exec"),
    "fetch-pack": ("--upload-pack", "--exec"),
    "push": ("--receive-pack", "--exec"),
    "send-pack": ("--receive-pack", "--exec"),
    "archive": ("--exec", "--remote"),
    "rebase": ("-x", "--exec"),
    "grep": ("-O", "--open-files-in-pager"),
}
_GIT_CONFIG_READS = frozenset({"--get", "--get-all", "--get-regexp", "--list", "-l"})
# What stands behind `--` in these is a place to go to, and some places are programs.
_GIT_REMOTE = frozenset({"clone", "fetch", "pull", "push", "ls-remote", "remote", "fetch-pack", "send-pack"})
_GIT_TAKES_TEXT = frozenset({"-m", "--message", "--"})


def may_set(name: str) -> bool:
    """Say whether a shell variable of this name is surely none that changes what a program does."""
    return bool(_HARMLESS_NAME.fullmatch(name)) and "proxy" not in name


def is_launcher(program: str) -> bool:
    """Say whether a program may run others, or what its words name."""
    name = program.rpartition("/")[2]
    return name in _SHELLS or name in _PREFIXES or name in _OPAQUE or name in ("git", "find", "eval")


def launch(words: tuple[Word, ...]) -> Launch:
    """Return what the words of one command, the program first, would run."""
    program = words[0].value or ""
    match program.rpartition("/")[2]:
        case "git":
            return _git(words[1:])
        case "find":
            return _find(words[1:])
        case "eval":
            return _eval(words[1:])
        case "read":
            names = [word.value for word in words[1:]]
            return Launch(known=all(name is not None and (name in ("-r", "-s") or may_set(name)) for name in names))
        case "set":
            return Launch(known=all(word.value is not None and bool(_SET_WORD.fullmatch(word.value)) for word in words[1:]))
        case "printf":
            return Launch(known=len(words) > 1 and words[1].value is not None and not words[1].value.startswith("-"))
        case "test" | "[":
            return Launch(known=all(not word.loose and word.value not in ("-v", "-R", "-a", "-o") for word in words[1:]))
        case name if name in _SHELLS:
            return _shell(words[1:])
        case name if name in _PREFIXES:
            return _prefixed(name, words[1:])
        case name:
            return _UNKNOWN if name in _OPAQUE else _PLAIN


def _shell(words: tuple[Word, ...]) -> Launch:
    for at, word in enumerate(words):
        if word.value is None:
            return _UNKNOWN
        if re.fullmatch(r"-[a-z]*c", word.value):
            script = words[at + 1].value if at + 1 < len(words) else None
            return Launch(known=script is not None and word.value in ("-c", "-ec", "-lc", "-xc", "-euc"), script=script)
        if not re.fullmatch(r"-[eux]+", word.value):
            # A file to run, if it is not an option that we do not know.
            return _UNKNOWN if word.value[:1] in ("-", "+") else _PLAIN
    # It reads its commands from what is piped in.
    return _UNKNOWN


def _eval(words: tuple[Word, ...]) -> Launch:
    values = [word.value for word in words]
    script = " ".join(value for value in values if value is not None)
    return Launch(script=script) if values and None not in values and not script.startswith("-") else _UNKNOWN


def _prefixed(name: str, words: tuple[Word, ...]) -> Launch:
    alone, with_value, operands = _PREFIXES[name]
    at, disturbed = 0, False
    while at < len(words):
        value = words[at].value
        if value is None:
            return _UNKNOWN
        if name == "env" and _ASSIGNMENT.match(value):
            disturbed = True
        elif value in with_value:
            at += 1
        elif value not in alone and value != "--" and value[:2] not in with_value:
            if value.startswith("-") and not re.fullmatch(r"-\d+", value):
                return _UNKNOWN
            if operands == 0 and not value.startswith("-"):
                break
            operands -= not value.startswith("-")
        disturbed = disturbed or (name, value) in (("env", "-i"), ("env", "-u"), ("sudo", "-E"))
        at += 1
    if at >= len(words):
        # Alone, each of these shows something, or (exec) only moves redirections.
        return _PLAIN if name in ("env", "time") and not disturbed else _UNKNOWN
    return Launch(argv=words[at:], extended=name == "xargs", disturbed=disturbed)


def _find(words: tuple[Word, ...]) -> Launch:
    if any(word.loose for word in words):
        return _UNKNOWN
    values = [word.value for word in words]
    starts = [at for at, value in enumerate(values) if value in ("-exec", "-execdir", "-ok", "-okdir")]
    if any(value in ("-fprint", "-fprint0", "-fprintf", "-fls", "-delete", "-files0-from") for value in values):
        return _UNKNOWN
    if len(starts) != 1:
        return _UNKNOWN if starts else _PLAIN
    start = starts[0] + 1
    ends = [at for at in range(start, len(values)) if values[at] in (";", "+")]
    if not ends or ends[0] == start:
        return _UNKNOWN
    return Launch(argv=words[start : ends[0]], extended=True)


def _git(words: tuple[Word, ...]) -> Launch:
    at = 0
    while at < len(words) and (words[at].value or "").startswith("-"):
        if words[at].value == "-C" and at + 1 < len(words) and words[at + 1].value is not None:
            at += 1
        elif words[at].value not in _GIT_GLOBAL:
            return _git_alias(words[at:])
        at += 1
    if at == len(words):
        return _PLAIN
    command, rest = words[at].value, words[at + 1 :]
    if command is None or command in _GIT_OPAQUE or "=" in command:
        return _UNKNOWN
    # Git takes options up to the first word that is none, so only there does one say that nothing is written.
    if command == "config" and not (rest and rest[0].value in _GIT_CONFIG_READS):
        return _UNKNOWN
    runs = _GIT_RUNS.get(command, ())
    before = ""
    is_behind = False
    for word in rest:
        is_behind = is_behind or before == "--"
        if is_behind and "::" not in (word.value or "") and command not in _GIT_REMOTE:
            continue
        if word.value is None:
            if word.loose and (is_behind or not (before in _GIT_TAKES_TEXT and word.source.startswith('"'))):
                return _UNKNOWN
        elif "::" in word.value or _is_one_of(word.value, runs):
            return _UNKNOWN
        before = word.value or ""
    return _PLAIN


def _git_alias(words: tuple[Word, ...]) -> Launch:
    """Return the shell text that `-c alias.x=!…` would run; git stays unknown all the same, for -c can make it run anything."""
    if len(words) > 1 and words[0].value == "-c":
        found = re.fullmatch(r"alias\.[^=]*=!(.*)", words[1].value or "", flags=re.IGNORECASE | re.DOTALL)
        return Launch(known=False, script=found[1] if found else None)
    return _UNKNOWN


def _is_one_of(value: str, options: tuple[str, ...]) -> bool:
    name = value.partition("=")[0]
    for option in options:
        if option.startswith("--"):
            if len(name) > 2 and option.startswith(name):
                return True
        elif re.match(r"-[A-Za-z]*" + option[1], value):
            return True
    return False
