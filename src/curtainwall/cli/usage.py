"""What the library that reads the command line complains about, in the words of this house: one line, names in backticks."""

import re
from collections.abc import Collection

_QUOTED = re.compile(r"'([^']*)'")
_COMMAND = re.compile(r"No such command '(?P<name>.*?)'\.(?: Did you mean (?P<meant>.*)\?)?", re.DOTALL)
_OPTION = re.compile(r"No such option: (?P<name>\S+)(?: \(Possible options: (?P<meant>.*)\))?", re.DOTALL)
_TOO_MANY = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((?P<words>.*)\)\.?", re.DOTALL)
# What the types of parameters complain about, each with what would be right.
_RIGHT = (
    (re.compile(r"Input should be greater than or equal to (\S+)"), r"write \1 or more"),
    (re.compile(r"Input should be less than or equal to (\S+)"), r"write \1 or less"),
    (re.compile(r"Input should be a valid integer.*", re.DOTALL), "write a whole number"),
    (re.compile(r"Input should be a valid number.*", re.DOTALL), "write a number"),
)
_CHOICE = re.compile(r"\. Choose from:\s*(?P<choice>.*)", re.DOTALL)


# How other programs call what we have under another name.
_ELSEWHERE = {"--json": "--output json"}


def usage_words(message: str, path: str, options: Collection[str] = ()) -> str:
    """Return a complaint and where to read on; `path` is the command that was misused, with its options."""
    told = _in_our_words(message, options)
    return f"{told}{'' if told.endswith('?') else ';'} see `{path} --help`"


def _in_our_words(message: str, options: Collection[str]) -> str:
    for kind, pattern in (("command", _COMMAND), ("option", _OPTION)):
        if found := pattern.fullmatch(message):
            meant = [word.strip(" '") for word in (found["meant"] or "").split(",") if word.strip(" '")]
            if (known := _ELSEWHERE.get(found["name"])) and known.split()[0] in options:
                meant = [known]
            guess = f"; did you mean {' or '.join(f'`{word}`' for word in meant)}?" if meant else ""
            return f"there is no {kind} `{found['name']}`{guess}"
    if found := _TOO_MANY.fullmatch(message):
        return f"there is no place for `{found['words']}`; put what belongs together into quotes"
    # A value may hold anything, so only what the library itself put before it is taken away.
    message = message.replace(": Value error, ", ": ", 1).rstrip(".")
    for pattern, right in _RIGHT:
        message = pattern.sub(right, message, count=1)
    if found := _CHOICE.search(message):
        message = f"{message[: found.start()]}; choose from {' '.join(found['choice'].split())}"
    return _QUOTED.sub(r"`\1`", f"{message[:1].lower()}{message[1:]}")
