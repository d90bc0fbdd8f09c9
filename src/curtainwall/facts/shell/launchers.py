"""Programs that run other programs, and what they run as far as their words tell; also shell builtins that change what runs.

INVARIANT: a launcher keeps its own name. What it runs is reported in addition; if we cannot tell, the launcher counts as not parsed.
"""

import re

from curtainwall.facts.shell.words import Word
from curtainwall.model import record


@record
class Launch:
    """The programs that a command runs besides its own, and whether these are all."""

    known: bool = True
    argv: tuple[Word, ...] = ()
    script: str | None = None
    extended: bool = False
    """`argv` gets more words than are written here, as with xargs."""
    disturbed: bool = False
    """`argv` runs in an environment that the agent chose."""


_PLAIN = Launch()
_UNKNOWN = Launch(known=False)

_SHELLS = frozenset("bash sh dash zsh ksh ash rbash".split())

# Flags without a value, flags that take the next word, and the number of operands before the program to run.
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

# The words of these do not tell what they run, or what they change for later commands.
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
# Options whose value git runs, by subcommand; git accepts any unique prefix of a long one.
_GIT_RUN_OPTIONS: dict[str, tuple[str, ...]] = {
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
# What follows `--` in these is a remote, and some remotes are programs.
_GIT_REMOTE = frozenset({"clone", "fetch", "pull", "push", "ls-remote", "remote", "fetch-pack", "send-pack"})
_GIT_TAKES_TEXT = frozenset({"-m", "--message", "--"})


def may_set(name: str) -> bool:
    """Tell whether a shell variable with this name certainly does not change what a program does."""
    return bool(_HARMLESS_NAME.fullmatch(name)) and "proxy" not in name


def is_launcher(program: str) -> bool:
    """Tell whether a program may run other programs."""
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
    for index, word in enumerate(words):
        if word.value is None:
            return _UNKNOWN
        if re.fullmatch(r"-[a-z]*c", word.value):
            script = words[index + 1].value if index + 1 < len(words) else None
            return Launch(known=script is not None and word.value in ("-c", "-ec", "-lc", "-xc", "-euc"), script=script)
        if not re.fullmatch(r"-[eux]+", word.value):
            # Either an option that we do not know, or a file to run.
            return _UNKNOWN if word.value[:1] in ("-", "+") else _PLAIN
    # It reads its commands from standard input.
    return _UNKNOWN


def _eval(words: tuple[Word, ...]) -> Launch:
    values = [word.value for word in words]
    script = " ".join(value for value in values if value is not None)
    return Launch(script=script) if values and None not in values and not script.startswith("-") else _UNKNOWN


def _prefixed(name: str, words: tuple[Word, ...]) -> Launch:
    flags, with_value, operands = _PREFIXES[name]
    index, disturbed = 0, False
    while index < len(words):
        value = words[index].value
        if value is None:
            return _UNKNOWN
        if name == "env" and _ASSIGNMENT.match(value):
            disturbed = True
        elif value in with_value:
            index += 1
        elif value not in flags and value != "--" and value[:2] not in with_value:
            if value.startswith("-") and not re.fullmatch(r"-\d+", value):
                return _UNKNOWN
            if operands == 0 and not value.startswith("-"):
                break
            operands -= not value.startswith("-")
        disturbed = disturbed or (name, value) in (("env", "-i"), ("env", "-u"), ("sudo", "-E"))
        index += 1
    if index >= len(words):
        # Without a program, these two only print something.
        return _PLAIN if name in ("env", "time") and not disturbed else _UNKNOWN
    return Launch(argv=words[index:], extended=name == "xargs", disturbed=disturbed)


def _find(words: tuple[Word, ...]) -> Launch:
    if any(word.loose for word in words):
        return _UNKNOWN
    values = [word.value for word in words]
    starts = [index for index, value in enumerate(values) if value in ("-exec", "-execdir", "-ok", "-okdir")]
    if any(value in ("-fprint", "-fprint0", "-fprintf", "-fls", "-delete", "-files0-from") for value in values):
        return _UNKNOWN
    if len(starts) != 1:
        return _UNKNOWN if starts else _PLAIN
    start = starts[0] + 1
    ends = [index for index in range(start, len(values)) if values[index] in (";", "+")]
    if not ends or ends[0] == start:
        return _UNKNOWN
    return Launch(argv=words[start : ends[0]], extended=True)


def _git(words: tuple[Word, ...]) -> Launch:
    index = 0
    while index < len(words) and (words[index].value or "").startswith("-"):
        if words[index].value == "-C" and index + 1 < len(words) and words[index + 1].value is not None:
            index += 1
        elif words[index].value not in _GIT_GLOBAL:
            return _git_alias(words[index:])
        index += 1
    if index == len(words):
        return _PLAIN
    command, rest = words[index].value, words[index + 1 :]
    if command is None or command in _GIT_OPAQUE or "=" in command:
        return _UNKNOWN
    # Git accepts options only before the first other word, so only an option in front makes sure that nothing is written.
    if command == "config" and not (rest and rest[0].value in _GIT_CONFIG_READS):
        return _UNKNOWN
    runs = _GIT_RUN_OPTIONS.get(command, ())
    previous = ""
    is_after_dashes = False
    for word in rest:
        is_after_dashes = is_after_dashes or previous == "--"
        if is_after_dashes and "::" not in (word.value or "") and command not in _GIT_REMOTE:
            continue
        if word.value is None:
            if word.loose and (is_after_dashes or not (previous in _GIT_TAKES_TEXT and word.source.startswith('"'))):
                return _UNKNOWN
        elif "::" in word.value or _is_option_in(word.value, runs):
            return _UNKNOWN
        previous = word.value or ""
    return _PLAIN


def _git_alias(words: tuple[Word, ...]) -> Launch:
    """Return the shell text that `-c alias.x=!…` would run; git stays unknown anyway, because -c can make it run anything."""
    if len(words) > 1 and words[0].value == "-c":
        match = re.fullmatch(r"alias\.[^=]*=!(.*)", words[1].value or "", flags=re.IGNORECASE | re.DOTALL)
        return Launch(known=False, script=match[1] if match else None)
    return _UNKNOWN


def _is_option_in(value: str, options: tuple[str, ...]) -> bool:
    name = value.partition("=")[0]
    for option in options:
        if option.startswith("--"):
            if len(name) > 2 and option.startswith(name):
                return True
        elif re.match(r"-[A-Za-z]*" + option[1], value):
            return True
    return False
