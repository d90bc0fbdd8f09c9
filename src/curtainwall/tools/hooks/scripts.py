"""Read the scripts of a workspace, once and whole, and work out what they need beside themselves.

Scripts are only matched against patterns, since an agent may have written them. Whatever the patterns miss is absent beside a copy, so it
never runs unseen.
"""

import hashlib
import os
import re
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Final

from curtainwall.facts import is_beneath
from curtainwall.model import Broken, record

_BIGGEST_PROGRAM: Final = 64 * 1024 * 1024
_MOST_LINKS: Final = 40
_BINARY: Final = b"\x7fELF"


@record
class ScriptFile:
    """A snapshot of a file; all fields come from a single open descriptor.

    `place` is its real path in the workspace. `leads_to` is the program outside that a link points to, which is not read.
    """

    content: bytes
    is_executable: bool
    has_one_name: bool
    place: str
    leads_to: str | None = None

    @property
    def digest(self) -> str:
        """Return its digest for a pin: of its content and executable bit, or of its link target."""
        if self.leads_to is not None:
            return f"leads to {self.leads_to}"
        return hashlib.sha256(self.content).hexdigest() + ("-x" if self.is_executable else "")


def workspace_path(workspace: str, word: str) -> str | None:
    """Return the path in the workspace that a word names, also through links from outside; None if it names none."""
    if not word or "\0" in word:
        return None
    path = os.path.normpath(os.path.join(workspace, word))
    if not is_beneath(path, workspace):
        path = os.path.realpath(path)
    return path if path != workspace and is_beneath(path, workspace) else None


def read_workspace_file(path: str, workspace: str) -> ScriptFile | None:
    """Read a file of a workspace; return None if it does not exist, and raise `Broken` if it cannot be read."""
    outside = link_target_outside(path, workspace)
    if outside is not None and (status := _binary(outside)) is not None:
        return ScriptFile(b"", bool(status.st_mode & 0o111), status.st_nlink == 1, path, outside)
    file, real = read_regular_file(Path(path), _BIGGEST_PROGRAM), os.path.realpath(path)
    return file if file is None or not is_beneath(real, workspace) else replace(file, place=real)


def link_target_outside(path: str, workspace: str) -> str | None:
    """Return the first path from which the links at a path stay outside the workspace, or None."""
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
    """Read a regular file; return None if there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise Broken(f"`{path}` cannot be read: {(error.strerror or '').lower()}") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        return None
    with open(descriptor, "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise Broken(f"`{path}` is bigger than {most} bytes")
    return ScriptFile(content, bool(status.st_mode & 0o111), status.st_nlink == 1, str(path))


def _binary(path: str) -> os.stat_result | None:
    """Return the status of a native executable, which needs no interpreter; None for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        return status if stat.S_ISREG(status.st_mode) and os.read(descriptor, len(_BINARY)) == _BINARY else None
    finally:
        os.close(descriptor)


_MOST_TEXT: Final = 256 * 1024
_MOST_WORDS: Final = 500
_MOST_OF_A_PACKAGE: Final = 1000
_MOST_STRINGS: Final = 8


class Language(Enum):
    """The language of a script."""

    SHELL = "shell"
    PYTHON = "python"
    NODE = "node"


@record
class ScriptNeeds:
    """The needs of a script.

    `files` are words that may name files beside it, `modules` its imports by name, and `is_module` tells whether it is a JavaScript
    module. `finds_itself` tells whether it locates files by its own path, `changes_directory` whether it changes to that directory.
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
    """Return the language of a script by its first line or its extension."""
    first = os.fsdecode(content[:256].partition(b"\n")[0])
    words = [os.path.basename(word) for word in first[2:].split()] if first.startswith("#!") else []
    words = [word for word in words if word != "env" and not word.startswith("-")][:1] or [os.path.splitext(path)[1][1:]]
    return next((language for language, names in _NAMES.items() if names.fullmatch(words[0])), None)


def script_needs(language: Language, content: bytes) -> ScriptNeeds:
    """Extract what a script needs from its text."""
    text = content[:_MOST_TEXT].decode(errors="replace")
    files, finds_itself, changes_directory = _from_itself(language, text)
    modules: list[str] = []
    if language is Language.PYTHON:
        names = [name.split()[0] for match in _IMPORTED.finditer(text) for name in (match[1] or match[2]).split(",") if name.strip()]
        tops = [name.partition(".")[0] for name in names if not name.startswith(".")]
        modules = [name for name in tops if name and name not in sys.stdlib_module_names]
    elif language is Language.NODE:
        required = [match[2] for match in _REQUIRED.finditer(text)]
        files += [word + ending for word in required if word.startswith(".") for ending in _ENDINGS]
        bare = [word for word in required if re.match(r"[@a-z]", word) and ":" not in word]
        modules = ["/".join(word.split("/")[: 2 if word.startswith("@") else 1]) for word in bare]
    is_module = language is Language.NODE and _IS_MODULE.search(text) is not None and "require(" not in text
    return ScriptNeeds(_some(files), _some(modules), is_module, finds_itself, changes_directory)


def _some(words: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))[:_MOST_WORDS]


def _from_itself(language: Language, text: str) -> tuple[list[str], bool, bool]:
    """Return the words on lines that use the script's own path, and whether it locates files by it or changes to its directory."""
    files, variables, finds_itself, changes_directory = list[str](), set[str](), False, False
    for line in text.split("\n"):
        is_about_it = _ITSELF[language].search(line) is not None or not variables.isdisjoint(_WORD.findall(line))
        if not is_about_it or line.lstrip().startswith(("#", "//")):
            continue
        if (assigned := _ASSIGNED.match(line)) is not None:
            variables.add(assigned[1])
        files += _words_behind(line) if language is Language.SHELL else _strings(line)
        finds_itself = finds_itself or _PLACED.search(line) is not None
        changes_directory = changes_directory or _GOES[language].match(line) is not None
    return files, finds_itself, changes_directory


def _words_behind(line: str) -> list[str]:
    return [match[1] for match in _BEHIND.finditer(line)]


def _strings(line: str) -> list[str]:
    """Return the strings of a line, and the last of them joined as paths."""
    words = [match[2].strip("/") for match in _STRING.finditer(line)][-_MOST_STRINGS:]
    return [*words, *("/".join(words[at:]) for at in range(len(words) - 1))]


def needed_files(needs: ScriptNeeds, language: Language, directory: str, workspace: str) -> Iterator[str]:
    """Yield the files in the workspace that a script in a directory may need; the caller checks that they exist."""
    ancestors = [directory]
    while ancestors[-1] != workspace and is_beneath(ancestors[-1], workspace):
        ancestors.append(os.path.dirname(ancestors[-1]))
    for word in needs.files:
        # A path may also be relative to a parent directory (`.parent.parent / "x"`).
        places = (os.path.normpath(os.path.join(path, word)) for path in ancestors)
        yield from [path for path in places if is_beneath(path, workspace) and os.path.isfile(path)][:1]
    if language is Language.PYTHON:
        searched = [directory, *(path for word in needs.files if os.path.isdir(path := os.path.normpath(os.path.join(directory, word))))]
        for name in needs.modules:
            for path in searched:
                if is_beneath(path, workspace):
                    yield f"{path}/{name}.py"
                    yield from _package(f"{path}/{name}")


def is_module(path: str, content: bytes) -> bool:
    """Tell whether a script is a JavaScript module only because its project says so in `package.json`, not by its extension."""
    return (
        not path.endswith((".mjs", ".mts"))
        and script_language(path, content) is Language.NODE
        and script_needs(Language.NODE, content).is_module
    )


def needed_packages(needs: ScriptNeeds, directory: str, workspace: str) -> Iterator[str]:
    """Yield the packages that a JavaScript script finds in the workspace."""
    while is_beneath(directory, workspace):
        yield from (name for name in needs.modules if os.path.isdir(f"{directory}/node_modules/{name}"))
        directory = os.path.dirname(directory)


def search_directory(script: ScriptFile, path: str) -> str:
    """Return the path from which a program looks for what it needs: Python and node resolve a link to a script, a shell does not."""
    follows_links = script_language(path, script.content) in (Language.PYTHON, Language.NODE)
    return script.place if follows_links else path


def script_interpreter(script: ScriptFile) -> str | None:
    """Return the interpreter in the first line of a script, also through `env`."""
    first = script.content[:256].partition(b"\n")[0]
    words = os.fsdecode(first[2:]).split() if first.startswith(b"#!") else []
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word and "/" in word] or words
    return words[0] if words else None


def environment_config(path: str) -> str:
    """Return the path of the configuration file that the Python environment of a program would have."""
    return os.path.join(os.path.dirname(os.path.dirname(path)), "pyvenv.cfg")


def is_activation(path: str) -> bool:
    """Tell whether a file is the activation script of a Python environment, which puts its programs on the PATH."""
    return os.path.basename(path) == "activate" and os.path.isfile(environment_config(path))


def _package(directory: str) -> Iterator[str]:
    for folder, below, names in islice(os.walk(directory), _MOST_OF_A_PACKAGE):
        below[:] = sorted(name for name in below if name.isidentifier() and name != "__pycache__")
        yield from (os.path.join(folder, name) for name in sorted(names)[:_MOST_OF_A_PACKAGE] if name.endswith(".py"))
