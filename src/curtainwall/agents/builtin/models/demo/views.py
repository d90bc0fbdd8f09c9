"""The forms of words that ask to be shown something: files, directories, searches, counts."""

import re
from typing import Final

from curtainwall.agents.builtin.models.demo import steps
from curtainwall.agents.builtin.models.demo.forms import FormRule, Found, one, rule
from curtainwall.agents.builtin.models.demo.names import NamedThing, NameReader
from curtainwall.agents.builtin.models.demo.steps import Step

_LANGUAGES: Final = {
    "python": "*.py", "markdown": "*.md", "text": "*.txt", "json": "*.json", "yaml": "*.{yaml,yml}", "toml": "*.toml", "html": "*.html",
    "css": "*.css", "javascript": "*.js", "typescript": "*.ts", "rust": "*.rs", "go": "*.go", "java": "*.java", "c": "*.{c,h}",
    "shell": "*.sh", "bash": "*.sh", "log": "*.log", "csv": "*.csv", "image": "*.{png,jpg,jpeg,gif,svg}", "pdf": "*.pdf", "xml": "*.xml",
}  # fmt: skip

_UNITS: Final = {"line": "lines", "word": "words", "character": "characters", "letter": "characters", "char": "characters"}

_SHOW: Final = "(show|print|print out|display|view|open|give|get|tell) [me|us]"
_READ: Final = (
    "(read|cat|type|dump|load|examine|inspect|read out|look at|look into|look inside|check|see|take a look at|have a look at|review) [me]"
)
_WHAT_IS: Final = "[tell me|show me|see|find out] what (is|are)"
_CONTENTS: Final = "[the] [whole|full|entire] (content|contents|text)"
_WHERE: Final = "[(in|inside|inside of|under|within|of|from|below|at|through) {where}]"
_FILES: Final = "[all|all of] [the|my|our] (files|directories|folders|entries|everything|files and folders|files and directories)"
_THE_TEXT: Final = "[(the|a) (text|word|words|string|phrase|term)]"
_LOOK_FOR: Final = "(find|list|show|show me|search for|look for|locate|get)"


def _seen(named: NamedThing) -> Step:
    if named.directory:
        return steps.list_entries(named.path)
    name = named.path.rpartition("/")[2]
    return steps.read(named.path) if "." in name.strip(".") else steps.look(named.path)


def _all_seen(reader: NameReader, words: str, *, likely: bool = False) -> Found:
    found = reader.paths(words)
    if found is None or (likely and not all(each.likely for each in found)):
        return None
    return tuple(_seen(each) for each in found)


def _read(reader: NameReader, found: re.Match[str]) -> Found:
    return _all_seen(reader, found["what"])


def _show(reader: NameReader, found: re.Match[str]) -> Found:
    return _all_seen(reader, found["what"], likely=True)


def _part(reader: NameReader, found: re.Match[str]) -> Found:
    if found["end"].lower() not in {"first", "last", "top", "bottom", "head", "tail"}:
        return None
    path = reader.path(found["what"])
    count = int(found["count"] or 1)
    end = "head" if found["end"].lower() in {"first", "top", "head"} else "tail"
    return one(steps.read_part(path, end, count) if path and 0 < count <= 1_000_000 else None)


def _list(reader: NameReader, found: re.Match[str]) -> Found:
    path = reader.place(found["where"])
    return one(steps.list_entries(path) if path else None)


def _list_several(reader: NameReader, found: re.Match[str]) -> Found:
    named = reader.paths(found["where"])
    return tuple(steps.list_entries(each.path) for each in named) if named else None


def _tree(reader: NameReader, found: re.Match[str]) -> Found:
    path = reader.place(found["where"])
    return one(steps.show_tree(path) if path else None)


def _search(reader: NameReader, found: re.Match[str]) -> Found:
    path, wanted = reader.place(found["where"]), reader.text(found["what"])
    if not path or not wanted:
        return None
    if "*" in wanted and reader.quoted(found["what"]) is None:
        return (steps.find_files(wanted, path),)
    return (steps.search(wanted, path),)


def _search_everywhere(reader: NameReader, found: re.Match[str]) -> Found:
    wanted = reader.text(found["what"])
    if wanted and "*" in wanted and reader.quoted(found["what"]) is None:
        return (steps.find_files(wanted, "."),)
    return one(steps.search(wanted, ".") if wanted else None)


def _search_there(reader: NameReader, found: re.Match[str]) -> Found:
    return None if found["where"].lower() in {"everywhere", "here"} else _search(reader, found)


def _find(reader: NameReader, found: re.Match[str]) -> Found:
    """Find a file where the word looks like one, and otherwise the word in files."""
    path = reader.place(found["where"])
    if not path:
        return None
    named = reader.named(found["what"])
    if named and reader.quoted(found["what"]) is None and (named.likely or "*" in named.path):
        return (steps.find_files(named.path, path),)
    wanted = reader.text(found["what"])
    return one(steps.search(wanted, path) if wanted else None)


def _named_files(reader: NameReader, found: re.Match[str]) -> Found:
    path, named = reader.place(found["where"]), reader.named(found["what"])
    return one(steps.find_files(named.path, path) if path and named else None)


def _kind_of_files(reader: NameReader, found: re.Match[str]) -> Found:
    path, kind = reader.place(found["where"]), found["kind"].lower()
    pattern = _LANGUAGES.get(kind) or (f"*{kind}" if re.fullmatch(r"\.\w+", kind) else kind if "*" in kind else None)
    return one(steps.find_files(pattern, path) if path and pattern else None)


def _count(reader: NameReader, found: re.Match[str]) -> Found:
    what = _UNITS.get(found["unit"].lower().rstrip("s"))
    if what is None:
        return None
    named = reader.paths(found["what"])
    return tuple(steps.count(each.path, what) for each in named) if named else None


def _long(reader: NameReader, found: re.Match[str]) -> Found:
    path = reader.likely_path(found["what"])
    return one(steps.count(path, "lines") if path else None)


def _count_files(reader: NameReader, found: re.Match[str]) -> Found:
    path = reader.place(found["where"])
    return one(steps.count_files(path) if path else None)


def _about(reader: NameReader, found: re.Match[str]) -> Found:
    path = reader.likely_path(found["what"])
    return one(steps.about(path) if path else None)


def _exists(reader: NameReader, found: re.Match[str]) -> Found:
    path = reader.path(found["what"])
    return one(steps.check_for(path) if path else None)


def _here(_reader: NameReader, _found: re.Match[str]) -> Found:
    return (steps.list_entries("."),)


def _directories(_reader: NameReader, _found: re.Match[str]) -> Found:
    return (steps.allowed_directories(),)


RULES: Final[tuple[FormRule, ...]] = (
    # What a directory holds
    rule("(ls|dir|list|look around|list it) [here|-la|-l|-a|-al]", _here),
    rule(f"{_WHAT_IS} [the files] (here|there|around|around here)", _here),
    rule(f"(list|{_SHOW}|{_READ}) [a list of] {_FILES} [[that] (are|is|there are|there is)] {_WHERE} [there] [here]", _list),
    rule("list [the] (content|contents) of {where}", _list),
    rule(
        "[tell me|show me] (what|which) (files|directories|folders|entries|files and folders) "
        f"[(are|is|exist|live|do i have|do we have|do you see)] [there] {_WHERE} [here|there]",
        _list,
    ),
    rule("what do (we|i|you) have in {where}", _list),
    rule("(what|which) (files|directories|folders) (do|does) {where} (have|contain|hold)", _list),
    rule(f"[{_SHOW}|list|draw] [the|a] [directory|file|folder] (tree|hierarchy|structure) {_WHERE}", _tree),
    rule(f"(list|show|show me) [{_FILES}] recursively {_WHERE}", _tree),
    rule(f"(list|show|show me) {_FILES} {_WHERE} recursively", _tree),
    rule("(ls|dir|list) [-la|-l|-a|-al] {where}", _list_several),
    rule(
        "(which|what) (directories|folders|places|paths) (are|may|can) [you|i|we] "
        "(free|allowed|use|touch|access|free to use|allowed to use)",
        _directories,
    ),
    # What files say
    rule(f"[{_SHOW}|{_READ}|list] [the] {{end:word}} [{{count:number}}] (line|lines) (of|in|from) {{what}}", _part),
    rule("{end:word} [-n] [{count:number}] {what:word}", _part),
    rule(f"{_SHOW} {_CONTENTS} (of|in) {{what}}", _read),
    rule(f"{_WHAT_IS} {_CONTENTS} (of|in) {{what}}", _read),
    rule(f"{_WHAT_IS} [written|stored|said|saved|contained] (in|inside|inside of|within) {{what}}", _read),
    rule(f"{_READ} [{_CONTENTS} (of|in)] {{what}} [out loud|aloud|out]", _read),
    rule("[tell me|show me|see] what [does|do] {what} (say|says|contain|contains|hold|holds|include|includes|look like|looks like)", _read),
    rule(f"{_SHOW} {{what}}", _show),
    # Counting and looking up
    rule(f"(count|{_SHOW}) [the|all|all the] [(number|count) of [the]] {{unit:word}} (in|of|from) {{what}}", _count),
    rule("[tell me|show me] how many {unit:word} (are|is|does|do|has|have) [there] [in] {what} [have|contain|has|hold]", _count),
    rule("[tell me|show me] how many {unit:word} {what} (has|have|contain|contains|hold|holds)", _count),
    rule("[what is] [the] {unit:word} count (of|for|in) {what}", _count),
    rule("(how long is|wc|wc -l) {what}", _long),
    rule(f"count [the|all|all the] (files|entries) [here] {_WHERE}", _count_files),
    rule(f"[tell me] how many (files|entries|things) [are|do i have|do we have|exist] [there] [here] {_WHERE} [here]", _count_files),
    rule(f"[{_SHOW}] [the] [file] (info|information|details|stats|stat|metadata|permissions|size) [about|of|on|for] {{what}}", _about),
    rule("[tell me] (how big is|how large is|how old is|stat|tell me about) {what}", _about),
    rule("what (is|are) the (size|age|permissions|details) of {what}", _about),
    rule("when was {what} [last] (changed|modified|written|edited|created|updated|touched) [last]", _about),
    rule(
        "(check if|check whether|see if|does|is there|do we have|do i have) [there is] {what} [exist|exists|is there|there] [here]",
        _exists,
    ),
    # Searching
    rule("grep [-r|-n|-rn|-i] {what:word} {where:word}", _search),
    rule(
        f"{_LOOK_FOR} [all|the|all the|every|any|me all] (file|files) (named|called|matching|like|ending in|ending "
        f"with) {{what:word}} {_WHERE}",
        _named_files,
    ),
    rule(f"{_LOOK_FOR} [all|the|all the|every|any|my] {{kind:word}} (file|files|scripts|documents|sources) {_WHERE}", _kind_of_files),
    rule(f"(list|show|show me) [all|the|all the] {{kind:word}} {_WHERE}", _kind_of_files),
    rule(f"(where is|locate|find) [the] file [named|called] {{what:word}} {_WHERE}", _named_files),
    rule(f"where (is|are) {{what:word}} [used|mentioned|defined|found|written] {_WHERE}", _find),
    rule(
        f"(which|what) (file|files) (contain|contains|mention|mentions|use|uses|has|have|include|includes) {_THE_TEXT} {{what}} {_WHERE}",
        _search,
    ),
    rule(
        f"{_LOOK_FOR} [all|the|all the] (file|files) (containing|that contain|that mention|which "
        f"contain|mentioning) {_THE_TEXT} {{what}} {_WHERE}",
        _search,
    ),
    rule(f"{_LOOK_FOR} [all|every|the|any|all the] (occurrences|occurrence|mentions|uses|usages|instances) of {{what}} {_WHERE}", _search),
    rule(f"(search|grep|look|scan) [in|through|inside] {{where}} for {_THE_TEXT} {{what}}", _search_there),
    rule(f"(search|look|grep|scan|hunt) [everywhere|here] for {_THE_TEXT} {{what*}} (in|inside|under|within|through) {{where}}", _search),
    rule(f"(search|look|grep|scan|hunt) [everywhere|here] for {_THE_TEXT} {{what}}", _search_everywhere),
    rule(f"(search|grep) {{what:word}} {_WHERE}", _search),
    rule(f"(find|locate) (the|a) (text|word|words|string|phrase|term) {{what}} {_WHERE}", _search),
    rule(f"(find|locate) [me] [the] {{what:word}} {_WHERE}", _find),
)
