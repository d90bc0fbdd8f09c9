"""Fast completion of the command line. It imports no model, writes nothing and never reports errors."""

import json
import os
import re
import sqlite3
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple, TypedDict

from curtainwall.cli.global_options import BadGlobalOption, take_global_options
from curtainwall.host.home_path import home_path

_MOST = 200
_PATIENCE = 0.1


class Candidate(NamedTuple):
    """A possible word, and its meaning."""

    value: str
    meaning: str


def sessions(log: Path, start: str) -> list[Candidate]:
    """Return sessions whose id begins with `start`, newest first, with their names."""
    query = (
        "SELECT session, status || '  ' || name FROM session WHERE substr(session, 1, ?) = ? ORDER BY created DESC, session DESC LIMIT ?"
    )
    return _look(log, query, (len(start), start, _MOST))


def open_approvals(log: Path) -> list[Candidate]:
    """Return the open approvals, newest first, with their tools and sessions."""
    query = "SELECT approval, tool || '  ' || session FROM approval WHERE status = 'open' ORDER BY asked DESC LIMIT ?"
    return _look(log, query, (_MOST,))


def standing_grants(log: Path) -> list[Candidate]:
    """Return the standing grants, newest first, with their streams."""
    return _look(log, "SELECT id, stream FROM standing WHERE revoked IS NULL ORDER BY at DESC LIMIT ?", (_MOST,))


def configured(config: Path, table: str) -> list[Candidate]:
    """Return the names in `[TABLE.NAME]` of the configuration, with their descriptions."""
    try:
        tables: dict[str, dict[str, dict[str, object]]] = tomllib.loads(config.read_text(encoding="utf-8"))
        return [Candidate(name, str(it.get("description", ""))) for name, it in tables.get(table, {}).items()]
    except (OSError, ValueError, AttributeError):  # missing, not TOML, or no such tables: `config show` reports it
        return []


def _look(log: Path, query: str, values: tuple[object, ...]) -> list[Candidate]:
    if not log.is_file():
        return []
    # While the log is open elsewhere, its journal exists and is read, too. Otherwise SQLite would create one just for reading.
    is_open = all(log.with_name(f"{log.name}{end}").exists() for end in ("-wal", "-shm"))
    with closing(sqlite3.connect(f"{log.as_uri()}?mode=ro{'' if is_open else '&immutable=1'}", uri=True, timeout=_PATIENCE)) as db:
        return [Candidate(str(value), str(meaning)) for value, meaning in db.execute(query, values)]


# Import nothing that loads the model: that alone would take longer than a person waits for a completion.

MODELS = (
    ("demo", "needs neither key nor network"),
    ("script:", "a file with the replies"),
    ("anthropic:", "a model of Anthropic's"),
    ("openai:", "a model of OpenAI's"),
)
AGENTS = (
    ("builtin", "needs nothing"),
    ("claude-local", "Claude Code as a process here"),
    *((name, "in a container") for name in ("claude-code", "codex", "opencode", "gemini")),
)
TABLE = Path(__file__).with_name("completion.json")

# A shell inserts candidates without quoting, so leave out those with special characters.
_HARMLESS = re.compile(r"[A-Za-z0-9_.:=@/+-]+")
_LONGEST_MEANING = 60


class ParameterSpec(TypedDict):
    """The values of an option or argument: one of several words, or a kind of value; None for a flag."""

    takes: str | list[str] | None
    about: str
    many: bool


class CommandSpec(TypedDict):
    """One command: the commands below it, its options, and its arguments in order."""

    commands: dict[str, str]
    options: dict[str, ParameterSpec]
    arguments: list[ParameterSpec]


class CompletionReply(NamedTuple):
    """Candidates, or a request that the shell itself complete files or directories."""

    kind: str
    words: Sequence[Candidate] = ()


NOTHING = CompletionReply("words")


def complete(arguments: Sequence[str]) -> int:
    """Print the reply to `SHELL -- PROGRAM WORD… CURRENT`: its kind, then a candidate and its meaning per line."""
    with suppress(Exception):
        shell, words = arguments[0], list(arguments[2:])
        joined = _joined(words) if shell == "bash" else words
        program, *before, current = joined
        with suppress(BadGlobalOption):
            options, before = take_global_options(before)
            os.environ.update(options.environ)
        reply = propose([program, *before, current], table(), database(os.environ))
        # If bash has split a word, it completes only the last piece.
        lead = re.sub(r"[^:=]*$", "", joined[-1]) if joined != words else ""
        lines = [reply.kind, *(f"{it.value.removeprefix(lead)}\t{_plain(it.meaning)}" for it in reply.words)]
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
    return 0


def table() -> Mapping[str, CommandSpec]:
    """Return the specs of all commands, by their words, as `completion_table` wrote them."""
    return json.loads(TABLE.read_bytes())


def database(environ: Mapping[str, str]) -> Path:
    """Return the path of the log; `home.find_home` also checks the home, but takes ten times as long to import."""
    return Path(os.path.realpath(home_path(environ))) / "curtainwall.db"


def propose(words: Sequence[str], commands: Mapping[str, CommandSpec], log: Path) -> CompletionReply:
    """Return completions for the last word; the first word is the program."""
    *before, current = words[1:]
    path: list[str] = []
    command, open_option, argument_count, options_over = commands[""], None, 0, False
    used: set[str] = set()
    for word in before:
        if open_option is not None:
            open_option = None
        elif word == "--" and not options_over:
            options_over = True
        elif word.startswith("-") and not options_over:
            used.add(word.partition("=")[0])
            option = command["options"].get(word)
            open_option = option if option and option["takes"] is not None else None
        elif command["commands"]:
            path.append(word)
            if " ".join(path) not in commands:
                return NOTHING
            command = commands[" ".join(path)]
            used.clear()
        else:
            argument_count += 1
    if open_option is not None:
        return _values(open_option, current, log)
    if current.startswith("-") and not options_over:
        return _options(command, current, used, log)
    if command["commands"]:
        return _fitting((Candidate(*it) for it in command["commands"].items()), current)
    remaining = command["arguments"][argument_count:] or [it for it in command["arguments"][-1:] if it["many"]]
    return _values(remaining[0], current, log) if remaining else _options(command, current, used, log)


def _options(command: CommandSpec, current: str, used: set[str], log: Path) -> CompletionReply:
    name, equals, value = current.partition("=")
    if equals:
        option = command["options"].get(name)
        reply = _values(option, value, log) if option and option["takes"] is not None else NOTHING
        return CompletionReply(reply.kind, [Candidate(f"{name}={it.value}", it.meaning) for it in reply.words])
    available = {name: it for name, it in command["options"].items() if it["many"] or name not in used}
    return _fitting((Candidate(name, it["about"]) for name, it in available.items()), current)


def _values(parameter: ParameterSpec, current: str, log: Path) -> CompletionReply:
    match parameter["takes"]:
        case list() as words:
            return _fitting((Candidate(word, "") for word in words), current)
        case "files" | "directories" as kind:
            return CompletionReply(kind)
        case "session":
            return _fitting(sessions(log, current), current)
        case "session or file":
            reply = _fitting(sessions(log, current), current)
            return reply if reply.words else CompletionReply("files")
        case "approval":
            return _fitting(open_approvals(log), current)
        case "grant":
            return _fitting(standing_grants(log), current)
        case "agent":
            shipped = [Candidate(*it) for it in AGENTS]
            own = [it for it in configured(_config(log), "agents") if it.value not in dict(AGENTS)]
            return _fitting([*shipped, *own], current)
        case "teams" | "cron" | "servers" as table:
            return _fitting(configured(_config(log), table), current)
        case "model":
            return CompletionReply("files") if current.startswith("script:") else _fitting((Candidate(*it) for it in MODELS), current)
        case _:
            return NOTHING


def _config(log: Path) -> Path:
    return log.with_name("config.toml")


def _fitting(candidates: Iterable[Candidate], current: str) -> CompletionReply:
    return CompletionReply("words", [it for it in candidates if it.value.startswith(current) and _HARMLESS.fullmatch(it.value)])


def _plain(meaning: str) -> str:
    """Return one short printable line; a session's name may contain anything."""
    shown = " ".join("".join(letter if letter.isprintable() else " " for letter in meaning).split())
    return shown if len(shown) <= _LONGEST_MEANING else f"{shown[: _LONGEST_MEANING - 1]}…"


def _joined(words: Sequence[str]) -> list[str]:
    """Return the words as typed: bash splits `anthropic:x` and `--mode=plan` into three words each."""
    return list(_pieces_joined(words))


def _pieces_joined(words: Sequence[str]) -> Iterator[str]:
    whole, goes_on = "", False
    for number, word in enumerate(words):
        is_break = bool(word) and not word.strip(":=")
        if number and word and (is_break or goes_on):
            whole += word
        else:
            if number:
                yield whole
            whole = word
        goes_on = is_break
    yield whole
