"""What could be written next on the command line, at once. It imports no model, writes nothing and never fails aloud."""

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

_MOST = 200
_PATIENCE = 0.1


class Candidate(NamedTuple):
    """Something that could be named, and what it is."""

    value: str
    meaning: str


def sessions(log: Path, start: str) -> list[Candidate]:
    """Return sessions whose id begins so, newest first, with their names."""
    query = (
        "SELECT session, status || '  ' || name FROM session WHERE substr(session, 1, ?) = ? ORDER BY created DESC, session DESC LIMIT ?"
    )
    return _look(log, query, (len(start), start, _MOST))


def open_approvals(log: Path) -> list[Candidate]:
    """Return the approvals that wait, newest first, with what each is about."""
    query = "SELECT approval, tool || '  ' || session FROM approval WHERE status = 'open' ORDER BY asked DESC LIMIT ?"
    return _look(log, query, (_MOST,))


def standing_grants(log: Path) -> list[Candidate]:
    """Return the answers that stand, newest first, with where they do."""
    return _look(log, "SELECT id, stream FROM standing WHERE revoked IS NULL ORDER BY at DESC LIMIT ?", (_MOST,))


def configured(config: Path, table: str) -> list[Candidate]:
    """Return what the configuration calls `[TABLE.NAME]`, with what it says of each."""
    try:
        tables: dict[str, dict[str, dict[str, object]]] = tomllib.loads(config.read_text(encoding="utf-8"))
        return [Candidate(name, str(it.get("description", ""))) for name, it in tables.get(table, {}).items()]
    except (OSError, ValueError, AttributeError):  # missing, no TOML, or no such tables: for `config show` to say
        return []


def _look(log: Path, query: str, values: tuple[object, ...]) -> list[Candidate]:
    if not log.is_file():
        return []
    # While somebody has the log open, its journal is there and is read along. Otherwise SQLite would make one just to look.
    is_open = all(log.with_name(f"{log.name}{end}").exists() for end in ("-wal", "-shm"))
    with closing(sqlite3.connect(f"{log.as_uri()}?mode=ro{'' if is_open else '&immutable=1'}", uri=True, timeout=_PATIENCE)) as db:
        return [Candidate(str(value), str(meaning)) for value, meaning in db.execute(query, values)]


# Nothing of ours that builds the model is imported here: that alone would take longer than a person waits for a key.

MODELS = (
    ("demo", "needs neither key nor network"),
    ("script:", "a file with the replies"),
    ("anthropic:", "a model of Anthropic's"),
    ("openai:", "a model of OpenAI's"),
)
AGENTS = (
    ("builtin", "needs nothing"),
    ("claude-local", "Claude Code as a process here"),
    *((name, "in a container") for name in ("claude-code", "codex", "opencode", "gemini", "goose")),
)
TABLE = Path(__file__).with_name("completion.json")

# A shell puts a candidate into the line as it is: one that the shell would read otherwise is none.
_HARMLESS = re.compile(r"[A-Za-z0-9_.:=@/+-]+")
_LONGEST_MEANING = 60


class ParameterSpec(TypedDict):
    """What an option or an argument takes: one of several words, or a kind of thing; None is for a flag."""

    takes: str | list[str] | None
    about: str
    many: bool


class CommandSpec(TypedDict):
    """One command: the commands below it, its options, and its arguments in order."""

    commands: dict[str, str]
    options: dict[str, ParameterSpec]
    arguments: list[ParameterSpec]


class CompletionReply(NamedTuple):
    """Candidates, or that files or directories are wanted, which the shell itself knows best."""

    kind: str
    words: Sequence[Candidate] = ()


NOTHING = CompletionReply("words")


def complete(arguments: Sequence[str]) -> int:
    """Print the answer to `SHELL -- PROGRAM WORD… CURRENT`: what is wanted, then a candidate and its meaning per line."""
    with suppress(Exception):
        shell, words = arguments[0], list(arguments[2:])
        joined = _joined(words) if shell == "bash" else words
        reply = propose(joined, table(), database(os.environ))
        # Where bash has split a word, it goes on with the last piece of it.
        lead = re.sub(r"[^:=]*$", "", joined[-1]) if joined != words else ""
        lines = [reply.kind, *(f"{it.value.removeprefix(lead)}\t{_plain(it.meaning)}" for it in reply.words)]
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
    return 0


def table() -> Mapping[str, CommandSpec]:
    """Return what `completion_table` wrote down of every command, by its words."""
    return json.loads(TABLE.read_bytes())


def database(environ: Mapping[str, str]) -> Path:
    """Return where the log is; `home.find_home` says the same, and takes ten times as long to import."""
    return Path(os.path.realpath(Path(environ.get("CURTAINWALL_HOME") or "~/.curtainwall").expanduser())) / "curtainwall.db"


def propose(words: Sequence[str], commands: Mapping[str, CommandSpec], log: Path) -> CompletionReply:
    """Return what the last of the words could become; the first is the program."""
    *before, current = words[1:]
    path: list[str] = []
    here, open_option, passed, options_over = commands[""], None, 0, False
    used: set[str] = set()
    for word in before:
        if open_option is not None:
            open_option = None
        elif word == "--" and not options_over:
            options_over = True
        elif word.startswith("-") and not options_over:
            used.add(word.partition("=")[0])
            known = here["options"].get(word)
            open_option = known if known and known["takes"] is not None else None
        elif here["commands"]:
            path.append(word)
            if " ".join(path) not in commands:
                return NOTHING
            here = commands[" ".join(path)]
            used.clear()
        else:
            passed += 1
    if open_option is not None:
        return _values(open_option, current, log)
    if current.startswith("-") and not options_over:
        return _options(here, current, used, log)
    if here["commands"]:
        return _fitting((Candidate(*it) for it in here["commands"].items()), current)
    left = here["arguments"][passed:] or [it for it in here["arguments"][-1:] if it["many"]]
    return _values(left[0], current, log) if left else _options(here, current, used, log)


def _options(here: CommandSpec, current: str, used: set[str], log: Path) -> CompletionReply:
    name, equals, value = current.partition("=")
    if equals:
        known = here["options"].get(name)
        reply = _values(known, value, log) if known and known["takes"] is not None else NOTHING
        return CompletionReply(reply.kind, [Candidate(f"{name}={it.value}", it.meaning) for it in reply.words])
    free = {name: it for name, it in here["options"].items() if it["many"] or name not in used}
    return _fitting((Candidate(name, it["about"]) for name, it in free.items()), current)


def _values(taking: ParameterSpec, current: str, log: Path) -> CompletionReply:
    match taking["takes"]:
        case list() as words:
            return _fitting((Candidate(word, "") for word in words), current)
        case "files" | "directories" as kind:
            return CompletionReply(kind)
        case "session":
            return _fitting(sessions(log, current), current)
        case "session or file":
            found = _fitting(sessions(log, current), current)
            return found if found.words else CompletionReply("files")
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


def _fitting(found: Iterable[Candidate], current: str) -> CompletionReply:
    return CompletionReply("words", [it for it in found if it.value.startswith(current) and _HARMLESS.fullmatch(it.value)])


def _plain(meaning: str) -> str:
    """Return one short line that no terminal follows; a session's name is whatever somebody called it."""
    shown = " ".join("".join(letter if letter.isprintable() else " " for letter in meaning).split())
    return shown if len(shown) <= _LONGEST_MEANING else f"{shown[: _LONGEST_MEANING - 1]}…"


def _joined(words: Sequence[str]) -> list[str]:
    """Return the words as they were written: bash makes three words of `anthropic:x` and of `--mode=plan`."""
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
