"""Scripts of a workspace: read once and whole, and what they need beside themselves.

Scripts are read by patterns alone, since an agent may have written them: what the patterns miss is not found beside a copy, and never runs
unseen.
"""

import hashlib
import os
import re
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Final

from curtainwall.facts import is_beneath
from curtainwall.model import Broken

_BIGGEST_PROGRAM: Final = 64 * 1024 * 1024
_MOST_LINKS: Final = 40
_BINARY: Final = b"\x7fELF"


@dataclass(frozen=True, slots=True)
class ScriptFile:
    """A file as it was when it was looked at: opened once, and all of this is of what was open.

    `place` is where in the workspace it really lies, `leads_to` the program outside that a link leads to; of that one nothing is read.
    """

    content: bytes
    is_executable: bool
    has_one_name: bool
    place: str
    leads_to: str | None = None

    @property
    def digest(self) -> str:
        """Return what a pin says of it: its content and whether it may be executed, or where it leads."""
        if self.leads_to is not None:
            return f"leads to {self.leads_to}"
        return hashlib.sha256(self.content).hexdigest() + ("-x" if self.is_executable else "")


def workspace_path(workspace: str, word: str) -> str | None:
    """Return the path in the workspace that a word names there, be it by another way in; None where it names none."""
    if not word or "\0" in word:
        return None
    path = os.path.normpath(os.path.join(workspace, word))
    if not is_beneath(path, workspace):
        path = os.path.realpath(path)
    return path if path != workspace and is_beneath(path, workspace) else None


def read_workspace_file(path: str, workspace: str) -> ScriptFile | None:
    """Return a file of a workspace as it is now, or None where there is no such file; raise `Broken` where it cannot be read."""
    outside = link_target_outside(path, workspace)
    if outside is not None and (about := _binary(outside)) is not None:
        return ScriptFile(b"", bool(about.st_mode & 0o111), about.st_nlink == 1, path, outside)
    found, real = read_regular_file(Path(path), _BIGGEST_PROGRAM), os.path.realpath(path)
    return found if found is None or not is_beneath(real, workspace) else replace(found, place=real)


def link_target_outside(path: str, workspace: str) -> str | None:
    """Return the first place after which the links at a path stay outside the workspace, under the name that it has there; or None."""
    outside: str | None = None
    for _ in range(_MOST_LINKS):
        directory = os.path.realpath(os.path.dirname(path))
        path = os.path.join(directory, os.path.basename(path))
        outside = None if is_beneath(path, workspace) else outside or path
        try:
            path = os.path.join(directory, os.readlink(path))
        except OSError:
            return outside
    return None


def read_regular_file(path: Path, most: int) -> ScriptFile | None:
    """Return a regular file as it is now, or None where there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as fault:
        raise Broken(f"`{path}` cannot be read: {(fault.strerror or '').lower()}") from None
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):
        os.close(descriptor)
        return None
    with open(descriptor, "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise Broken(f"`{path}` is bigger than {most} bytes")
    return ScriptFile(content, bool(about.st_mode & 0o111), about.st_nlink == 1, str(path))


def _binary(path: str) -> os.stat_result | None:
    """Return what is told of a file that the kernel runs by itself, without a script's interpreter; None for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        about = os.fstat(descriptor)
        return about if stat.S_ISREG(about.st_mode) and os.read(descriptor, len(_BINARY)) == _BINARY else None
    finally:
        os.close(descriptor)


_MOST_TEXT: Final = 256 * 1024
_MOST_WORDS: Final = 500
_MOST_OF_A_PACKAGE: Final = 1000
_MOST_STRINGS: Final = 8


class Language(Enum):
    """What a script is written in."""

    SHELL = "shell"
    PYTHON = "python"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class ScriptNeeds:
    """What a script needs.

    `files` are words for what may lie beside it, `modules` what it imports by name, `is_module` whether it is written in modules of
    JavaScript. `finds_itself` tells whether it finds anything from where it lies, `goes_there` whether it goes there.
    """

    files: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    is_module: bool = False
    finds_itself: bool = False
    changes_directory: bool = False


_NAMES: Final = {
    Language.SHELL: re.compile(r"(?:ba|da|z|k)?sh"),
    Language.PYTHON: re.compile(r"python[0-9.]*w?|pypy3?|py"),
    Language.NODE: re.compile(r"node|nodejs|[cm]?[jt]s|tsx|bun|deno"),
}
_ITSELF: Final = {
    Language.SHELL: re.compile(r"\$\{?0\b|BASH_SOURCE"),
    Language.PYTHON: re.compile(r"\b__file__\b"),
    Language.NODE: re.compile(r"\b__dirname\b|\b__filename\b|\bimport\.meta\b"),
}
_GOES: Final = {
    Language.SHELL: re.compile(r"\s*(?:cd|pushd)\s"),
    Language.PYTHON: re.compile(r"\s*os\.chdir\("),
    Language.NODE: re.compile(r"\s*process\.chdir\("),
}
_PLACED: Final = re.compile(r"dirname|BASH_SOURCE|%/|realpath|readlink|\bparents?\b|\bjoin\b|\bwith_name\b|import\.meta\.(?:dir|url)")
_ASSIGNED: Final = re.compile(r"\s*(?:(?:export|readonly|local|const|let|var)\s+)?([A-Za-z_]\w{0,99})\s*=")
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_BEHIND: Final = re.compile(r"""(?:\$\w{1,99}|[)}"'])["']?/([\w.@+/-]{1,300})""")
_STRING: Final = re.compile(r"""(["'`])([^"'`\n\\]{1,300})\1""")
_IMPORTED: Final = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import\b|import[ \t]+([\w., \t]+))", re.MULTILINE)
_REQUIRED: Final = re.compile(r"""(?:\brequire(?:\.resolve)?\(|\bfrom\b|\bimport\b\(?)[ \t]*(["'])([^"'\n]{1,300})\1""")
_IS_MODULE: Final = re.compile(r"^[ \t]*(?:import\b[^(\n]*[\"']|export\b)", re.MULTILINE)
_ENDINGS: Final = ("", ".js", ".cjs", ".mjs", ".json", ".ts", "/index.js", "/index.cjs", "/index.mjs", "/index.ts")


def script_language(path: str, content: bytes) -> Language | None:
    """Return what a script is written in, by its first line or the end of its name."""
    first = os.fsdecode(content[:256].partition(b"\n")[0])
    words = [os.path.basename(word) for word in first[2:].split()] if first.startswith("#!") else []
    words = [word for word in words if word != "env" and not word.startswith("-")][:1] or [os.path.splitext(path)[1][1:]]
    return next((language for language, names in _NAMES.items() if names.fullmatch(words[0])), None)


def script_needs(language: Language, content: bytes) -> ScriptNeeds:
    """Return what a script needs."""
    text = content[:_MOST_TEXT].decode(errors="replace")
    files, finds_itself, changes_directory = _from_itself(language, text)
    modules: list[str] = []
    if language is Language.PYTHON:
        names = [name.split()[0] for found in _IMPORTED.finditer(text) for name in (found[1] or found[2]).split(",") if name.strip()]
        tops = [name.partition(".")[0] for name in names if not name.startswith(".")]
        modules = [name for name in tops if name and name not in sys.stdlib_module_names]
    elif language is Language.NODE:
        required = [found[2] for found in _REQUIRED.finditer(text)]
        files += [word + ending for word in required if word.startswith(".") for ending in _ENDINGS]
        bare = [word for word in required if re.match(r"[@a-z]", word) and ":" not in word]
        modules = ["/".join(word.split("/")[: 2 if word.startswith("@") else 1]) for word in bare]
    is_module = language is Language.NODE and _IS_MODULE.search(text) is not None and "require(" not in text
    return ScriptNeeds(_some(files), _some(modules), is_module, finds_itself, changes_directory)


def _some(words: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))[:_MOST_WORDS]


def _from_itself(language: Language, text: str) -> tuple[list[str], bool, bool]:
    """Return the words of lines that have to do with where the script lies, and whether it finds anything so, or goes there."""
    files, known, finds_itself, changes_directory = list[str](), set[str](), False, False
    for line in text.split("\n"):
        is_about_it = _ITSELF[language].search(line) is not None or not known.isdisjoint(_WORD.findall(line))
        if not is_about_it or line.lstrip().startswith(("#", "//")):
            continue
        if (assigned := _ASSIGNED.match(line)) is not None:
            known.add(assigned[1])
        files += _words_behind(line) if language is Language.SHELL else _strings(line)
        finds_itself = finds_itself or _PLACED.search(line) is not None
        changes_directory = changes_directory or _GOES[language].match(line) is not None
    return files, finds_itself, changes_directory


def _words_behind(line: str) -> list[str]:
    return [found[1] for found in _BEHIND.finditer(line)]


def _strings(line: str) -> list[str]:
    """Return the strings of a line, and what the last of them are as one path."""
    words = [found[2].strip("/") for found in _STRING.finditer(line)][-_MOST_STRINGS:]
    return [*words, *("/".join(words[at:]) for at in range(len(words) - 1))]


def needed_files(needs: ScriptNeeds, language: Language, directory: str, workspace: str) -> Iterator[str]:
    """Yield the files in the workspace that a script may need, looked for from a directory; whether they are there, whoever looks sees."""
    above = [directory]
    while above[-1] != workspace and is_beneath(above[-1], workspace):
        above.append(os.path.dirname(above[-1]))
    for word in needs.files:
        # What is found from a directory further up is named from there as well (`.parent.parent / "x"`).
        places = (os.path.normpath(os.path.join(place, word)) for place in above)
        yield from [place for place in places if is_beneath(place, workspace) and os.path.isfile(place)][:1]
    if language is Language.PYTHON:
        searched = [directory, *(place for word in needs.files if os.path.isdir(place := os.path.normpath(os.path.join(directory, word))))]
        for name in needs.modules:
            for place in searched:
                if is_beneath(place, workspace):
                    yield f"{place}/{name}.py"
                    yield from _package(f"{place}/{name}")


def is_module(path: str, content: bytes) -> bool:
    """Tell whether a script is written in modules of JavaScript and does not say so by its name; its project says it in `package.json`."""
    return (
        not path.endswith((".mjs", ".mts"))
        and script_language(path, content) is Language.NODE
        and script_needs(Language.NODE, content).is_module
    )


def needed_packages(needs: ScriptNeeds, directory: str, workspace: str) -> Iterator[str]:
    """Yield the packages of a script in JavaScript that lie in the workspace."""
    while is_beneath(directory, workspace):
        yield from (name for name in needs.modules if os.path.isdir(f"{directory}/node_modules/{name}"))
        directory = os.path.dirname(directory)


def search_directory(looked: ScriptFile, path: str) -> str:
    """Return where in the workspace a program looks for what it needs: Python and node follow a link to a script, a shell does not."""
    is_led = script_language(path, looked.content) in (Language.PYTHON, Language.NODE)
    return looked.place if is_led else path


def script_interpreter(looked: ScriptFile) -> str | None:
    """Return what the first line of a script says that runs it, also by `env`."""
    first = looked.content[:256].partition(b"\n")[0]
    words = os.fsdecode(first[2:]).split() if first.startswith(b"#!") else []
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word and "/" in word] or words
    return words[0] if words else None


def environment_config(path: str) -> str:
    """Return where the configuration of a Python environment would lie that a program is of."""
    return os.path.join(os.path.dirname(os.path.dirname(path)), "pyvenv.cfg")


def is_activation(path: str) -> bool:
    """Tell whether a file has programs looked for in the environment of Python that it is of."""
    return os.path.basename(path) == "activate" and os.path.isfile(environment_config(path))


def _package(directory: str) -> Iterator[str]:
    for place, below, names in islice(os.walk(directory), _MOST_OF_A_PACKAGE):
        below[:] = sorted(name for name in below if name.isidentifier() and name != "__pycache__")
        yield from (os.path.join(place, name) for name in sorted(names)[:_MOST_OF_A_PACKAGE] if name.endswith(".py"))
