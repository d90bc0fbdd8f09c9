"""What the stand-in can do: each deed in words, and the Python that does it with the session's tools."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pydantic import JsonValue

from curtainwall.agents.builtin.stubs import call_expression

MOST_FILES: Final = 1_000


@dataclass(frozen=True, slots=True)
class Step:
    """One deed, such as read `notes.txt`: the expression to await, the helpers that it uses, and what `it` means afterwards."""

    deed: str
    code: str
    uses: tuple[str, ...] = ()
    changes: bool = False
    path: str = ""


HELPERS: Final = MappingProxyType({
    "names": '''\
def names(found):
    shown = [entry["name"] + ("/" if entry["type"] == "directory" else "") for entry in found["entries"]]
    if found.get("left_out"):
        shown.append("and " + str(found["left_out"]) + " more")
    return "\\n".join(shown)
''',
    "branches": '''\
def branches(nodes, indent=""):
    lines = []
    for node in nodes:
        lines.append(indent + node["name"] + ("/" if node["type"] == "directory" else ""))
        lines.extend(branches(node.get("children") or [], indent + "  "))
    return lines
''',
    "listed": '''\
async def listed(path):
    return names(await filesystem.list_directory(path=path))
''',
    "tree": '''\
async def tree(path):
    found = await filesystem.directory_tree(path=path)
    return "\\n".join(branches(found["tree"]) + (["and more"] if found.get("cut") else []))
''',
    "look": '''\
async def look(path):
    try:
        return await filesystem.read_file(path=path)
    except RuntimeError as why:
        if "is a directory" not in str(why):
            raise
    return names(await filesystem.list_directory(path=path))
''',
    "create": '''\
async def create(path):
    try:
        await filesystem.get_file_info(path=path)
    except RuntimeError as why:
        if "does not exist" not in str(why):
            raise
        return await filesystem.write_file(path=path, content="")
    return "it was already there, and was left as it is"
''',
    "append": '''\
async def append(path, text):
    try:
        before = await filesystem.read_file(path=path)
    except RuntimeError as why:
        if "does not exist" not in str(why):
            raise
        before = ""
    if before and not before.endswith("\\n"):
        before += "\\n"
    return await filesystem.write_file(path=path, content=before + text + "\\n")
''',
    "replace": '''\
async def replace(path, old, new):
    try:
        return await filesystem.edit_file(path=path, edits=[{"oldText": old, "newText": new}])
    except RuntimeError as why:
        if " times" not in str(why):
            raise
    text = await filesystem.read_file(path=path)
    await filesystem.write_file(path=path, content=text.replace(old, new))
    return "replaced in " + str(text.count(old)) + " places"
''',
    "copy": '''\
async def copy(source, destination):
    text = await filesystem.read_file(path=source)
    return await filesystem.write_file(path=destination, content=text)
''',
    "search": f'''\
async def search(path, wanted):
    try:
        found = await filesystem.search_files(path=path, pattern="*")
        paths = found["matches"][:{MOST_FILES}]
    except RuntimeError as why:
        if "not a directory" not in str(why):
            raise
        paths = [path]
    any_case = wanted == wanted.lower()
    hits = []
    for start in range(0, len(paths), 100):
        try:
            files = await filesystem.read_multiple_files(paths=paths[start : start + 100])
        except Exception as why:
            hits.append("(some files were not searched: " + str(why) + ")")
            continue
        for file in files:
            for number, line in enumerate((file.get("content") or "").splitlines(), 1):
                if wanted in (line.lower() if any_case else line):
                    hits.append(file["path"] + ":" + str(number) + ": " + line.strip()[:200])
    return "\\n".join(hits) or "it is nowhere in there"
''',
    "matching": '''\
async def matching(path, pattern):
    found = await filesystem.search_files(path=path, pattern=pattern)
    return "\\n".join(found["matches"] + (["and more"] if found.get("cut") else [])) or "there are none"
''',
    "counted": '''\
def counted(text, what):
    parts = {"lines": text.splitlines(), "words": text.split(), "characters": text}[what]
    return str(len(parts)) + " " + what
''',
    "count": '''\
async def count(path, what):
    return counted(await filesystem.read_file(path=path), what)
''',
    "count_files": '''\
async def count_files(path):
    found = await filesystem.list_directory(path=path)
    files = [entry for entry in found["entries"] if entry["type"] != "directory"]
    return str(len(files)) + " files and " + str(len(found["entries"]) - len(files)) + " directories"
''',
    "about": '''\
async def about(path):
    found = await filesystem.get_file_info(path=path)
    return "\\n".join(key + ": " + str(found[key]) for key in found)
''',
    "exists": '''\
async def exists(path):
    try:
        found = await filesystem.get_file_info(path=path)
    except RuntimeError as why:
        if "does not exist" not in str(why):
            raise
        return "no, it does not exist"
    return "yes, it is a " + found["type"]
''',
    "page": '''\
def page(found):
    notes = [str(note) for note in found.get("notes") or []]
    status = [] if found["status"] < 400 else ["the server answered with status " + str(found["status"])]
    return "\\n".join(status + [found.get("content") or ""] + notes)
''',
    "get": '''\
async def get(url):
    return page(await fetch.get(url=url))
''',
    "post": '''\
async def post(url, body):
    return page(await fetch.get(url=url, method="POST", body=body))
''',
    "save": '''\
async def save(url, path):
    found = await fetch.get(url=url, format="raw")
    if found["status"] >= 400:
        return page(found)
    return await filesystem.write_file(path=path, content=found["content"])
''',
    "run": '''\
async def run(command):
    done = await shell.run(command=command)
    parts = [done.get("stdout") or "", done.get("stderr") or ""] + [str(note) for note in done.get("notes") or []]
    text = "\\n".join(part.rstrip() for part in parts if part.strip())
    if done["exit_code"] != 0:
        text = "it ended with exit code " + str(done["exit_code"]) + "\\n" + text
    return text or "it printed nothing"
''',
    "calculated": '''\
async def calculated(value):
    return str(value)
''',
    "noted": '''\
async def noted(text):
    found = await session.remember(text=text)
    return "the note is in " + found["in"]
''',
    "recalled": '''\
async def recalled(query):
    found = await session.recall(query=query)
    notes = ["- " + note["text"] + " (by " + note["by"] + ")" for note in found["notes"]]
    return "\\n".join(notes + found.get("skipped", [])) or "nothing is noted about that"
''',
    "commit_all": '''\
async def commit_all(message):
    await git.add(files=["."])
    return await git.commit(message=message)
''',
})  # fmt: skip
"""The helpers of the programs, by name. They name a refusal by its class alone, which every type checker knows."""

NEEDS: Final = MappingProxyType({
    "listed": ("names",),
    "look": ("names",),
    "tree": ("branches",),
    "count": ("counted",),
    "get": ("page",),
    "post": ("page",),
    "save": ("page",),
})  # fmt: skip
"""Which helpers another one calls."""


def _helped(deed: str, helper: str, *arguments: JsonValue, changes: bool = False, path: str = "") -> Step:
    return Step(deed, f"{helper}({', '.join(map(repr, arguments))})", (helper,), changes, path)


def _shown(text: str, most: int = 60) -> str:
    line = " ".join(text.split())
    cut = line if len(line) <= most else f"{line[:most]}…"
    return f"“{cut}”" if "`" in cut else f"`{cut}`"


# Looking


def read(path: str) -> Step:
    """Read a file."""
    return Step(f"read {_shown(path)}", call_expression("filesystem.read_file", {"path": path}), path=path)


def read_part(path: str, end: str, count: int) -> Step:
    """Read the first (`head`) or last (`tail`) lines of a file."""
    which = f"{'first' if end == 'head' else 'last'} {f'{count} lines' if count > 1 else 'line'}"
    return Step(f"read the {which} of {_shown(path)}", call_expression("filesystem.read_file", {"path": path, end: count}), path=path)


def look(path: str) -> Step:
    """Read what may be a file or a directory."""
    return _helped(f"read {_shown(path)}", "look", path, path=path)


def list_entries(path: str) -> Step:
    """List a directory."""
    return _helped(f"list {_place(path)}", "listed", path)


def show_tree(path: str) -> Step:
    """Show a directory with all below it."""
    return _helped(f"list everything below {_place(path)}", "tree", path)


def search(wanted: str, path: str) -> Step:
    """Look for a text in files."""
    return _helped(f"search {_place(path)} for {_shown(wanted)}", "search", path, wanted)


def find_files(pattern: str, path: str) -> Step:
    """Look for files by name."""
    return _helped(f"look for files named {_shown(pattern)} in {_place(path)}", "matching", path, pattern)


def count(path: str, what: str) -> Step:
    """Count the lines, words or characters of a file."""
    return _helped(f"count the {what} of {_shown(path)}", "count", path, what, path=path)


def count_files(path: str) -> Step:
    """Count what a directory holds."""
    return _helped(f"count the files in {_place(path)}", "count_files", path)


def about(path: str) -> Step:
    """Tell size, times and permissions."""
    return _helped(f"look up {_shown(path)}", "about", path, path=path)


def check_for(path: str) -> Step:
    """Tell whether something is there."""
    return _helped(f"check whether {_shown(path)} exists", "exists", path, path=path)


def allowed_directories() -> Step:
    """Tell which directories are free to use."""
    return Step("ask which directories are free to use", call_expression("filesystem.list_allowed_directories", {}))


# Changing


def write(path: str, text: str) -> Step:
    """Write a file."""
    return Step(f"write {_shown(path)}", call_expression("filesystem.write_file", {"path": path, "content": text}), changes=True, path=path)


def create(path: str) -> Step:
    """Make an empty file; one that is there stays as it is."""
    return _helped(f"create {_shown(path)}", "create", path, changes=True, path=path)


def append(path: str, text: str) -> Step:
    """Add a line to a file, which may be new."""
    return _helped(f"append to {_shown(path)}", "append", path, text, changes=True, path=path)


def replace(path: str, old: str, new: str) -> Step:
    """Replace a text in a file."""
    return _helped(f"replace {_shown(old)} with {_shown(new)} in {_shown(path)}", "replace", path, old, new, changes=True, path=path)


def make_directory(path: str) -> Step:
    """Make a directory."""
    return Step(f"make the directory {_shown(path)}", call_expression("filesystem.create_directory", {"path": path}), changes=True)


def delete(path: str) -> Step:
    """Delete a file."""
    return Step(f"delete {_shown(path)}", call_expression("filesystem.delete_file", {"path": path}), changes=True, path=path)


def move(source: str, destination: str) -> Step:
    """Move or rename."""
    code = call_expression("filesystem.move_file", {"source": source, "destination": destination})
    return Step(f"move {_shown(source)} to {_shown(destination)}", code, changes=True, path=destination)


def copy(source: str, destination: str) -> Step:
    """Copy a text file."""
    return _helped(f"copy {_shown(source)} to {_shown(destination)}", "copy", source, destination, changes=True, path=destination)


# Beyond the workspace's files


def fetch(url: str) -> Step:
    """Fetch a page."""
    return _helped(f"fetch {url}", "get", url)


def post(url: str, body: str) -> Step:
    """Send a text."""
    return _helped(f"post {_shown(body)} to {url}", "post", url, body, changes=True)


def save(url: str, path: str) -> Step:
    """Fetch a page into a file."""
    return _helped(f"save {url} as {_shown(path)}", "save", url, path, changes=True, path=path)


def run(command: str) -> Step:
    """Run a command."""
    return _helped(f"run {_shown(command, 200)}", "run", command, changes=True)


def git(deed: str, tool: str, *, changes: bool = False, **arguments: JsonValue) -> Step:
    """Do something with git."""
    return Step(deed, call_expression(f"git.{tool}", arguments), changes=changes)


def commit(message: str, *, everything: bool) -> Step:
    """Commit what is staged, or everything."""
    if everything:
        return _helped(f"commit everything as {_shown(message)}", "commit_all", message, changes=True)
    return git(f"commit as {_shown(message)}", "commit", changes=True, message=message)


def remember(text: str) -> Step:
    """Keep a note for later sessions."""
    return _helped(f"remember {_shown(text)}", "noted", text, changes=True)


def recall(query: str) -> Step:
    """Search the notes."""
    return _helped(f"recall what is known about {_shown(query)}", "recalled", query)


def call(tool: str, arguments: dict[str, JsonValue]) -> Step:
    """Call any tool by its name."""
    return Step(f"call `{tool}`", call_expression(tool, arguments), changes=True)


def _place(path: str) -> str:
    return "the current directory" if path in {".", "./"} else _shown(path)
