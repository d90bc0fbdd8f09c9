"""Plain instructions as steps: forms of words for each deed, names and quoted texts in them, sentences joined by “and” or “then”."""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Final, cast

from pydantic import JsonValue

from curtainwall.agents.builtin.models.demo.programs import Step
from curtainwall.agents.builtin.stubs import call_expression, is_tool_name
from curtainwall.model import record

_LONGEST: Final = 1_000_000
_LONGEST_WORDS: Final = 4_000  # without what is quoted
_MOST_FRAGMENTS: Final = 80
_MOST_JOINED: Final = 20
_IT: Final = "\0it"
_CALL: Final = "call"

# Forms. `(a|b)` is either, `[a|b]` either or neither, `{name}` a few words, `{name*}` as many as fit, `{name:kind}` words of that kind.
_IN: Final = "(in|inside|inside of|under|within|of|from|below|at|through|on)"
_WHERE: Final = f"[{_IN} {{path:place}}]"
_ALL: Final = "[all|all of|every|each|any] [the|my|our]"
_SEE: Final = (
    "(read|cat|show|print|print out|display|view|open|see|get|give|check|examine|inspect|review|dump|look at|look into|look inside|"
    "take a look at|have a look at|tell|find out|list) [me|us]"
)
_FETCH: Final = (
    "(fetch|get|download|visit|browse|open|request|curl|wget|load|go to|read|retrieve|look at|see|show|show me|check) "
    "[the|this] [page|url|site|website|web page|address|link|contents of|content of|text of] [at|from]"
)
_FIND: Final = "(find|list|show|show me|search for|look for|locate|get|where is|where are)"
_SEARCH: Final = "(search|grep|look|scan|hunt)"
_TEXT: Final = "[[the|a|this|another] [new] (text|line|word|words|string|phrase|content|sentence|note) [saying|that says]]"
_WITH: Final = f"(with|containing|saying|that says|that contains|which says|which contains|that reads|reading)[:] {_TEXT}[:]"
_NEW: Final = "[a|an|the] [new|empty|blank|small|text] [new|empty|blank|text]"
_FOLDER: Final = "(directory|folder|dir|subdirectory|subfolder|directories|folders)"
_FILES: Final = "(files|directories|folders|entries|everything|files and folders|files and directories)"
_MESSAGE: Final = "[with|using|as] [the|a] [message][:] {message:text}"

# The call, its description, and the forms that ask for it. The first form that matches counts.
_TABLE: Final[tuple[tuple[str, str, Sequence[str]], ...]] = (
    ("save", "save {url} as {path}", [
        f"({_FETCH}|save|store) {{url}} [and (save|store|write|put) it] (to|into|as|in) {{path:word}}"]),
    ("git.clone", "clone {url} into {path}", ["[git] clone [the] [repo|repository] {url} (to|into|in|as) {path:word}"]),
    ("get", "fetch {url}", [f"{_FETCH} {{url}}", "what is (at|on) {url}", "what does {url} (say|contain|return|show)", "{url:full}"]),
    ("run", "run {command}", [
        "(run|execute|exec|launch|invoke) [[the|this] [shell] (command|script|program)][:] {command} [in (the|a) (shell|terminal)]",
        "$ {command}"]),
    ("git.status", "look at git's status", [f"[{_SEE}|what is] [the] git status", "what [has|have] [i|we|you] changed [here|in git]"]),
    ("git.log", "look at the last {count} commits", [
        f"[{_SEE}] [the] [last|latest|recent] [{{count:number}}] [git] (log|history|commits)",
        f"[{_SEE}] [the] (last|latest) {{count:one}}", "git log -[n] {count:number}"]),
    ("git.diff", "show the changes", [f"[{_SEE}] [the] [git] (diff|differences|changes|uncommitted changes)"]),
    ("git.branch", "list the branches", [f"[{_SEE}|which|what] [the|all] [git] (branch|branches) [are there|am i on|are we on]"]),
    ("git.branch", "make the branch {name}", ["(create|make) [a|the] [new] [git] branch [called|named] {name:word}"]),
    ("git.checkout", "switch to {ref}", ["([git] checkout|check out|[git] switch [to]) [the] [branch|commit] {ref:word}"]),
    ("git.add", "stage {files}", ["(git add|stage) {files}"]),
    ("commit_all", "commit everything as {message}", [f"[git] commit ({_ALL} (everything|changes|files|all)|-am|all) {_MESSAGE}"]),
    ("git.commit", "commit as {message}", [f"[git] commit [it|this|them|-m] {_MESSAGE}"]),
    ("git.push", "push to the remote", ["[git] push [it|everything|[the|my] (changes|commits)] [to (origin|the remote)]"]),
    ("git.pull", "pull from the remote", ["[git] pull [the (changes|commits|latest)] [from (origin|the remote)]"]),
    ("git.init", "make a git repository in {path}", ["git init", "(make|create|start|init) [a|the] [new] git (repo|repository) [here]"]),
    ("run", "run {command}", ["{command:git}"]),
    ("session.remember", "remember {text}", ["remember [that|this|the fact that][:] {text:words}"]),
    ("session.recall", "recall what is known about {query}", ["(recall|what do you (remember|know) about) {query:words}"]),
    ("filesystem.create_directory", "make the directory {path}", [
        f"(create|make|add) [me] {_NEW} {_FOLDER} [called|named] {{path}}", f"(create|make) {_NEW} {{path:word}} {_FOLDER}",
        "mkdir [-p] {path}"]),
    ("append", "append to {path}", [
        f"append {_TEXT} {{text*}} (to|into|onto|at) [the (end|bottom) of] {{path}}",
        f"(add|write) {_TEXT} {{text*}} (to|at|in) the (end|bottom) of {{path}}",
        f"add {_TEXT} {{text*}} (to|into) {{path:likely}}", f"(append|add) to {{path:word}}[:] {_TEXT} {{text}}"]),
    ("replace", "replace {old} with {new} in {path}", [
        f"(replace|change|substitute) {_ALL} [occurrences of|word|text] {{old:text}} (with|by|to|into) {{new*:text}} {_IN} {{path}}",
        f"in {{path:word}}[,] (replace|change|substitute) {_ALL} [occurrences of] {{old:text}} (with|by|to|into) {{new*:text}}"]),
    ("filesystem.delete_file", "delete {path}", ["(delete|remove|erase|unlink|rm|rm -f|get rid of|trash) [file|files] {path}"]),
    ("filesystem.move_file", "move {source} to {destination}", [
        "rename {source:path} (to|as|into) {renamed:path}", "(move|mv) {source:path} (to|into|in|under|inside) {destination:path}",
        "mv {source:word} {destination:word}"]),
    ("copy", "copy {source} to {destination}", [
        "(copy|cp|duplicate) {source:path} (to|into|as|in|under|inside) {destination:path}", "cp {source:word} {destination:word}"]),
    ("filesystem.write_file", "write {path}", [
        f"(create|make|write|add|put) [me] {_NEW} [file] [called|named|at] {{path:word}}[,] [file] {_WITH} {{content:text}} [in it|inside]",
        f"(write|save|put) (to|into|in) {{path:word}}[:] {_TEXT} {{content:text}}", "(write|save) {path:word}: {content:text}",
        f"(overwrite|fill) {{path}} with {_TEXT} {{content:text}}",
        f"(write|save|put|store|type|place|echo) {_TEXT} {{content*:text}} (to|into|in|as|onto|inside|>) {{path}}"]),
    ("create", "create {path}", ["touch {path}", f"(create|make|add) [me] {_NEW} [file|document] [called|named|at] {{path:likely}}"]),
    ("filesystem.read_file", "read the first {head} lines of {path}", [
        f"[{_SEE}] [the] (first|top) [{{head:number}}] (line|lines) {_IN} {{path}}", "head [-n|-][ ][{head:number}] {path}"]),
    ("filesystem.read_file", "read the last {tail} lines of {path}", [
        f"[{_SEE}] [the] (last|bottom) [{{tail:number}}] (line|lines) {_IN} {{path}}", "tail [-n|-][ ][{tail:number}] {path}"]),
    ("count_files", "count the files in {path}", [f"(count|how many) {_ALL} (files|entries) [are|do (we|i) have] [there] [here] {_WHERE}"]),
    ("count", "count the {unit} of {path}", [
        f"(count|how many|{_SEE}) {_ALL} [number of] {{unit}} (are|is|has|have|does|do|in|of) [there] [in] {{path}} [have|has|contain]",
        "how many {unit} {path} (has|have|contains)", "(how long is|wc|wc -l) {path:likely}"]),
    ("filesystem.get_file_info", "look up {path}", [
        "(how (big|large|old) is|stat|tell me about) {path:likely}", f"[{_SEE}|what (is|are)] [the] (size|age|info|details) of {{path}}",
        "(does|(check|see) (if|whether)) [there is] {path} (exist|exists|is there)", "(is there|do (we|i) have) {path} [here]",
        "when was {path} [last] (changed|modified|edited|written|created|updated)"]),
    ("matching", "look for files named {pattern} in {path}", [
        f"{_FIND} {_ALL} (file|files) (named|called|matching|like|ending in|ending with) {{pattern:words}} {_WHERE}",
        f"{_FIND} {_ALL} {{pattern:type}} (file|files|scripts|documents) {_WHERE}", f"{_FIND} {_ALL} [file] {{pattern:glob}} {_WHERE}",
        f"(find|locate|where is|search for|look for) [the] [file] {{pattern:bare}} {_WHERE}"]),
    ("below", "list everything below {path}", [
        f"[{_SEE}] [the|a] [directory|file|folder] (tree|structure) {_WHERE}", f"(list|show) [me] [{_ALL} {_FILES}] recursively {_WHERE}",
        f"(list|show) [me] {_ALL} {_FILES} {_WHERE} recursively"]),
    ("search", "search {path} for {text}", [
        f"(which|what) (file|files) (contain|contains|mention|mentions|use|uses|has|have|include) {_TEXT} {{text}} {_WHERE}",
        f"{_FIND} {_ALL} (file|files) (containing|that contain|that mention|mentioning|with) {_TEXT} {{text}} {_WHERE}",
        f"{_FIND} {_ALL} (occurrences|mentions|uses|usages|instances) of {{text}} {_WHERE}",
        f"{_SEARCH} [everywhere|here] for {_TEXT} {{text*}} {_IN} {{path:place}}", f"{_SEARCH} [everywhere|here] for {_TEXT} {{text}}",
        f"{_SEARCH} [in|through|inside] {{path:place}} for {_TEXT} {{text}}", "grep [-r|-n|-rn|-i] {text:word} {path:place}",
        f"(search|grep|find|locate|where is|where are) [me] {_TEXT} {{text}} [used|mentioned|defined|written] {_WHERE}"]),
    ("entries", "list {path}", [
        "(ls|dir|list|look around) [here|-la|-l|-a|-al]", "what is [here|there|around]", "(ls|dir|list) [-la|-l|-a|-al] {path:place}",
        f"({_SEE}|what are|which are) [a list of] {_ALL} {_FILES} [[that] (are|is)] [there] [here] {_WHERE}",
        f"(what|which) {_FILES} [are|is|exist|do (i|we|you) (have|see)] [there] [here] {_WHERE}",
        "list [the] (content|contents) of {path:place}", "what do (we|i|you) have in {path:place}"]),
    ("look", "read {path}", [
        f"(what (is|are)|{_SEE}) [the] [whole|full|entire] (content|contents|text) (of|in) {{path:place}}",
        f"[{_SEE}] what (is|are) [written|stored|saved] (in|inside|inside of|within) {{path:place}}",
        "what (does|do) {path:place} (say|contain|hold|include|look like)", "what {path:likely} (says|contains|holds)",
        "(read|cat|look at|look into|look inside|examine|inspect|open) [me] {path:place} [out loud|aloud|out]", f"{_SEE} {{path:likely}}"]),
)  # fmt: skip
_CHANGES: Final = frozenset(
    "save run append replace copy create commit_all filesystem.create_directory filesystem.delete_file filesystem.move_file "
    "filesystem.write_file git.clone git.branch git.checkout git.add git.commit git.push git.pull git.init session.remember".split()
)
_DEFAULTS: Final[Mapping[str, JsonValue]] = {"path": ".", "count": 10, "head": 1, "tail": 1, "unit": "lines"}

# Forms as patterns. A space stands for white space, which what was left out before it may have taken already.
_SPACE: Final = r"(?:\s+|(?<=\s))"
_TOKEN = re.compile(r"\{(?P<slot>\w+)(?P<greedy>\*)?(?::(?P<kind>\w+))?\}|(?P<mark> ?\[|[(\] $])")
_MARKS: Final = {"(": "(?:", " [": f"(?:{_SPACE}(?:", "[": "(?:(?:", "]": "))?", " ": _SPACE, "$": r"\$"}
_SLOTS: Final = {"number": r"\d{1,7}", "one": "commit", "git": r"git\s.+"}
_ONE_WORD: Final = frozenset({"word", "type", "glob", "bare", "full", "unit"})


def _piece(token: re.Match[str]) -> str:
    kind = token["kind"] or token["slot"]
    words = _SLOTS.get(kind) or (r"\S+?" if kind in _ONE_WORD else ".+" if token["greedy"] else ".+?")
    return _MARKS.get(token["mark"]) or f"(?P<{token['slot']}__{kind}>{words})"


@cache
def _pattern(form: str) -> re.Pattern[str]:
    """Compile a form when it is first tried; all of them take longer than the rest of the model's start."""
    return re.compile(_TOKEN.sub(_piece, f" {form}"), re.IGNORECASE | re.DOTALL)


_PART = re.compile(r"\{[^}]*\}|[()\[\]|]|[^\s()\[\]|{}]+")


@cache
def _needed(form: str) -> Sequence[frozenset[str]]:
    """Return sets of words: a clause that a form fits has at least one word of each. Looking for them is cheaper than compiling."""
    return _needed_by(iter(_PART.findall(form)))


def _needed_by(parts: Iterator[str]) -> Sequence[frozenset[str]]:
    """Take the alternatives up to the bracket that ends them, and return what whichever of them fits needs."""
    each: list[list[frozenset[str]]] = [[]]
    for part in parts:
        match part:
            case ")" | "]":
                break
            case "|":
                each.append([])
            case "(":
                each[-1] += _needed_by(parts)
            case "[":
                # It may be left out.
                _needed_by(parts)
            case _ if not part.startswith("{"):
                each[-1].append(frozenset({part}))
            case _:
                pass
    if len(each) == 1:
        return each[0]
    return [frozenset[str]().union(*(needed[0] for needed in each))] if all(each) else []


def _may_fit(form: str, folded: str) -> bool:
    return all(any(word in folded for word in words) for words in _needed(form))


_RULES: Final = tuple((call, deed, form) for call, deed, forms in _TABLE for form in forms)

# Names, texts, and what is around them
_NOUNS: Final = "file|document|directory|folder|dir|path"
_PHRASE = re.compile(
    rf"((?P<article>the|this|that|my|our|a|an|its) )?((new|empty|text|existing|whole|entire|local) )*((?P<noun>{_NOUNS})s? )?"
    rf"((called|named|at) )?(?P<word>[^\s,;]+)( (?P<after>{_NOUNS}))?",
    re.IGNORECASE,
)
_HERE = re.compile(
    r"here|there|\.|((all|all of|any of) )?((the|my|our) )?files|every file|everything|everywhere|"
    r"((the|this|my|our|your) )?((current|working|whole|entire|root) )*(directory|folder|dir|workspace|project|repo|repository|codebase)",
    re.IGNORECASE,
)
_PRONOUN = re.compile("it|that|this|this file|that file|the file|the same file|them", re.IGNORECASE)
_LIKELY = re.compile(r".*[./~].*|README|LICEN[SC]E|Makefile|Dockerfile|CHANGELOG|NOTICE|AUTHORS")
_DOMAIN = re.compile(r"([a-z0-9-]+\.)+(com|org|net|io|dev|edu|gov|info|app|ai|eu|de|uk)(:\d+)?(/\S*)?", re.IGNORECASE)
_TYPES: Final = {
    "python": "*.py", "markdown": "*.md", "text": "*.txt", "yaml": "*.{yaml,yml}", "javascript": "*.js", "typescript": "*.ts",
    "shell": "*.sh", "image": "*.{png,jpg,jpeg,gif,svg}", **{each: f"*.{each}" for each in "json toml html css rs go c csv log".split()},
}  # fmt: skip
_UNITS: Final = {"line": "lines", "word": "words", "character": "characters", "letter": "characters"}
_LIST = re.compile(r",\s*(?:and\s+)?|\s+and\s+|\s+&\s+")
# Words that people say where a name could stand, and that name nothing; the first of them also begin the description of a text.
_DESCRIBING: Final = frozenset("a an the some my your our its all any it them these those this that what how why something".split())
_NO_NAMES: Final = (_DESCRIBING - {"a"}) | frozenset(
    "anything everything nothing none each every both files file folder directory document lines words text contents things me you us here "
    "there now then again which who when where if unless but or and not no yes only just about with without from into over of in on at to "
    "by as for is are was do does has have can will would should may must please time date day today help more less".split()
)
_SPAN = re.compile(  # None of these looks further than to the next quote of its kind, so that unclosed ones take no time.
    r"```(?:\w*\n)?(?P<block>(?:(?!```).)*?)\n?```|`(?P<code>[^`\n]+)`|\"(?P<double>[^\"]*)\"|“(?P<curly>[^“”]*)”|"
    r"(?<![\w)])'(?P<single>(?:[^'\\]|\\.|(?<=\w)'(?=\w))*)'(?!\w)|(?P<url>https?://[^\s<>\"'`]*[^\s<>\"'`.,;:!?)\]])|"
    r"(?P<json>\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})|[\U000F0000-\U000FFFFD]",
    re.IGNORECASE | re.DOTALL,
)
_FIRST_MARK: Final = 0xF0000  # the first of the characters that mean nothing to anyone else
_BULLET = re.compile(r"^\s*(?:[-*•]|\d{1,3}[.)])\s+", re.MULTILINE)
_BETWEEN = re.compile(r"\s*;\s*|\s*\n\s*|(?<=\S)[.!?]+(?=\s|$)\s*|,?\s+(?:and\s+)?then\s+|,\s+(?:and\s+)?|\s+and\s+", re.IGNORECASE)
_LEAD = re.compile(
    r"((please|kindly|now|then|also|first(ly)?|second(ly)?|third(ly)?|next|finally|lastly|after that|ok(ay)?|so|well|hey|hi|hello|just|and|"
    r"quickly|go ahead and|(can|could|would|will) you|i(['’]d| would) like( you)? to|i (want|need)( you)? to|you (should|must|can)|"
    r"let(['’]s| us)|help me( to)?|try to|do the following|(tell|show) me(?= (what|which|how|where|when|if) ))(\s*[,:!]\s*|\s+))+",
    re.IGNORECASE,
)
_TAIL = re.compile(r"([\s,]+(please|for me|thanks|thank you|now|if you (can|could|please)|too|as well))+$|(?<=\S)[.!?:,]+$", re.IGNORECASE)
_POLITE = re.compile(
    r"(hi|hello|hey|hallo|good (morning|evening|afternoon|day)|please|thanks?|thank you|cheers|ok(ay)?|great|nice|sorry)"
    r"( (there|you|again|very much|so much|a lot|everyone|all|demo|in advance|now))*",
    re.IGNORECASE,
)


@record
class _Request:
    """One thing to call, in the words that asked for it, with the values that a form has found in them."""

    call: str
    deed: str
    words: str
    values: Mapping[str, JsonValue]


@record
class Understood:
    """The steps that an instruction asks for, the parts that could not be followed, and the file that it spoke of last."""

    steps: tuple[Step, ...] = ()
    lost: tuple[str, ...] = ()
    it: str = ""

    @property
    def may_be_done(self) -> bool:
        """Tell whether the steps are safe to take: what was not understood may have been a condition of a change."""
        return bool(self.steps) and not (self.lost and any(step.changes for step in self.steps))


def understand(text: str, it: str = "") -> Understood:
    """Return what an instruction asks for, with as few parts lost as possible; `it` is the file that was spoken of before."""
    words = _Words(text if len(text) <= _LONGEST else "")
    fragments = words.fragments()
    if len(text) > _LONGEST or len(fragments) > _MOST_FRAGMENTS or len(words.text) > _LONGEST_WORDS:
        return Understood(lost=(text[:200],), it=it)
    # From the end: the best way to read the fragments from each one on. Each is a request, a part of a longer one, or lost.
    best: list[tuple[int, tuple[_Request | str, ...]]] = [(0, ())]
    for start in reversed(range(len(fragments))):
        ways: list[tuple[int, tuple[_Request | str, ...]]] = []
        for count, (lost, rest) in enumerate(best[:_MOST_JOINED], 1):
            requests = words.requests(fragments[start][0], fragments[start + count - 1][1], is_joined=count > 1)
            if requests is not None:
                ways.append((lost, (*requests, *rest)))
        ways.append((best[0][0] + 1, (words.source(words.text[slice(*fragments[start])]), *best[0][1])))
        best.insert(0, min(ways, key=lambda way: way[0]))
    steps: list[Step] = []
    not_followed: list[str] = []
    for part in best[0][1]:
        if isinstance(part, str) or (_IT in part.values.values() and not it):
            not_followed.append(part if isinstance(part, str) else part.words)
            continue
        values = {name: it if value == _IT else value for name, value in part.values.items()}
        steps.append(_step(part.call, part.deed, values))
        file = str(values.get("destination") or values.get("path") or ".")
        it = it if file.endswith((".", "/")) else file
    return Understood(tuple(steps), tuple(not_followed), it)


def _step(call: str, deed: str, values: dict[str, JsonValue]) -> Step:
    if deed == _CALL:
        return Step(f"call `{call}`", call_expression(call, values), changes=True)
    if call == "look" and str(values["path"]).endswith(("/", ".")):
        call, deed = "entries", "list {path}"
    folder, slash, name = str(values.get("source", "")).rpartition("/")
    if "renamed" in values:
        # A new name without a directory stays in the old one's directory.
        new = str(values.pop("renamed"))
        values["destination"] = new if "/" in new else f"{folder}{slash}{new}"
    elif str(values.get("destination", "")).endswith("/"):
        values["destination"] = f"{values['destination']}{name}"
    words = re.sub(r" 1 (line|commit)s\b", r" \1", deed.format(**{name: _shown(value) for name, value in values.items()}))
    arguments = values["sum"] if call == "calculated" else ", ".join(f"{name}={value!r}" for name, value in values.items())
    code = call_expression(call, values) if "." in call else f"{call}({arguments})"
    return Step(words, code, changes=call in _CHANGES and words != "list the branches")


def _shown(value: JsonValue) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    line = " ".join(str(value).split())
    if not isinstance(value, str) or line == "." or line in _UNITS.values() or re.match("https?://", line):
        return "the current directory" if line == "." else line
    cut = line if len(line) <= 100 else f"{line[:100]}…"
    return f"“{cut}”" if "`" in cut else f"`{cut}`"


class _Words:
    """An instruction in which each quoted text, address or JSON object is replaced by one character."""

    def __init__(self, text: str) -> None:
        self._spans: list[tuple[str, str, str]] = []  # the kind, what it means, and how it was written
        marked = _SPAN.sub(self._mark, text)
        self.text = re.sub(r"[^\S\n]+", " ", _BULLET.sub("", marked)).strip()

    def _mark(self, match: re.Match[str]) -> str:
        kind = match.lastgroup
        if kind is None or len(self._spans) > 0xFFFD:
            return ""
        value = match[kind]
        if kind in {"double", "single"}:
            value = re.sub(r"\\([nt'\\])", lambda escape: {"n": "\n", "t": "\t"}.get(escape[1], escape[1]), value)
        self._spans.append((kind, value, match.group()))
        return chr(_FIRST_MARK + len(self._spans) - 1)

    def _span(self, words: str) -> tuple[str, str, str] | None:
        mark = words.rstrip(".,:;!?")
        at = ord(mark) - _FIRST_MARK if len(mark) == 1 else -1
        return self._spans[at] if 0 <= at < len(self._spans) else None

    def source(self, words: str) -> str:
        """Return words as the human wrote them."""
        return "".join(span[2] if (span := self._span(letter)) else letter for letter in words)

    def fragments(self) -> list[tuple[int, int]]:
        """Return where the pieces are that may each be a request, or a part of one."""
        gaps = [(0, 0), *(gap.span() for gap in _BETWEEN.finditer(self.text)), (len(self.text), 0)]
        return [(before[1], after[0]) for before, after in pairwise(gaps) if self.text[before[1] : after[0]].strip()]

    def requests(self, start: int, end: int, *, is_joined: bool) -> tuple[_Request, ...] | None:
        """Return the requests in a clause: none if it is only polite, None if it is not understood."""
        clause = _TAIL.sub("", _TAIL.sub("", _TAIL.sub("", self.text[start:end].strip())))
        if _POLITE.fullmatch(clause):
            return ()
        clause = _LEAD.sub("", clause, count=1) if _LEAD.match(clause) else clause
        clause = re.sub(r"\b(what|where|who|there)['’]?s\b", r"\1 is", clause, flags=re.IGNORECASE)
        folded = clause.casefold()
        for call, deed, form in _RULES:
            match = _pattern(form).fullmatch(f" {clause}") if _may_fit(form, folded) else None
            requests = match and self._filled(call, deed, match, is_joined=is_joined)
            if requests:
                return requests
        return self._tool_call(clause) or _calculation(clause)

    def _filled(self, call: str, deed: str, match: re.Match[str], *, is_joined: bool) -> tuple[_Request, ...] | None:
        """Return a request with the values of the slots; for a list of files or pages, one request for each."""
        values: dict[str, list[JsonValue]] = {name: [value] for name, value in _DEFAULTS.items() if f"{{{name}}}" in deed}
        for slot, words in match.groupdict().items():
            name, _, kind = slot.partition("__")
            # Plain words that follow an “and” may be a part of a command, or something else to do.
            if words and kind == "command" and is_joined and not self._span(words):
                return None
            if words:
                listed = _LIST.split(words) if kind in {"path", "place", "likely", "url"} and name in {"path", "url"} else [words]
                values[name] = [self._value(kind, each.strip()) for each in listed]
        if any(None in several for several in values.values()):
            return None
        count = max(map(len, values.values()), default=1)
        source = self.source(match.group().strip())
        return tuple(
            _Request(call, deed, source, {name: several[at % len(several)] for name, several in values.items()}) for at in range(count)
        )

    def _tool_call(self, clause: str) -> tuple[_Request, ...] | None:
        match = re.fullmatch(
            r"(?:call|use|invoke)(?: the tool)? ([\w.]+)(?: with)?(?: the)?(?: arguments?)?(?: (\S))?", clause, re.IGNORECASE
        )
        span = self._span(match[2]) if match and match[2] else ("json", "{}", "")
        try:
            arguments = cast("JsonValue", json.loads(span[1])) if span else None
        except (ValueError, RecursionError):
            return None
        is_call = match and is_tool_name(match[1]) and isinstance(arguments, dict)
        return (_Request(match[1], _CALL, clause, cast("dict[str, JsonValue]", arguments)),) if match and is_call else None

    def _value(self, kind: str, words: str) -> JsonValue:
        """Return the value of the words in a slot, or None if they are not of that kind."""
        span = self._span(words)
        meant = span[1] if span else self.source(words)
        match kind:
            case "one":
                return 1
            case "number":
                return int(words) if 0 < int(words) <= 1_000 else None
            case "unit":
                return _UNITS.get(words.lower().rstrip("s"))
            case "type":
                return _TYPES.get(words.lower()) or (f"*{words}" if re.fullmatch(r"\.\w+", words) else None)
            case "glob":
                return words if "*" in words else None
            case "bare":
                return None if span else self._path(words, is_likely=True)
            case "url" | "full":
                url = meant.rstrip(".,:;!?")
                if re.fullmatch(r"https?://\S+", url, re.IGNORECASE):
                    return url
                return f"https://{url}" if kind == "url" and _DOMAIN.fullmatch(url) else None
            case "words" | "git":
                return meant
            case "text" | "content" | "command":
                return None if not span and words.split(" ", 1)[0].lower() in _DESCRIBING else meant
            case "files":
                is_all = re.fullmatch(r"everything|all|\.|-a|((all|the|my|all the) )?(changes|files)", words, re.IGNORECASE)
                files = ["."] if is_all else [self._path(word, is_likely=False) for word in _LIST.split(words)]
                return None if None in files else cast("list[JsonValue]", files)
            case "place" if _HERE.fullmatch(words):
                return "."
            case _:
                return self._path(words, is_likely=kind == "likely")

    def _path(self, words: str, *, is_likely: bool) -> str | None:
        """Return the path that words name, with a slash if they call it a directory; None if they may mean something else."""
        phrase = _PHRASE.fullmatch(words)
        if phrase is None or _PRONOUN.fullmatch(words):
            return _IT if phrase else None
        noun = (phrase["noun"] or phrase["after"] or "").lower()
        word, span = phrase["word"], self._span(phrase["word"])
        if span:
            path = span[1] if span[0] not in {"url", "json"} and span[1].strip() and "\n" not in span[1] else ""
        else:
            path = word if word.endswith("..") or word == "." else word.rstrip(".,:;!?").removesuffix("'s")
            is_bare = re.fullmatch(r"[\w./~@+\-#%=:()\[\]{}?!$&]+", path) and path.lower() not in _NO_NAMES
            # “the weather” does not name a file; “the weather file” and “the weather.txt” do.
            is_vague = (phrase["article"] or is_likely) and not noun and not _LIKELY.fullmatch(path)
            path = path if is_bare and not is_vague else ""
        return (f"{path.rstrip('/')}/" if noun in {"directory", "folder", "dir"} else path) if path else None


def _calculation(clause: str) -> tuple[_Request, ...] | None:
    sum_ = re.sub("^(what is|calculate|compute|work out|how much is|evaluate) ", "", clause, flags=re.IGNORECASE)
    try:
        tree = ast.parse(sum_, mode="eval").body if len(sum_) <= 200 else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    # A power could take for ever.
    allowed = (ast.BinOp, ast.UnaryOp, ast.Constant, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Mod, ast.USub, ast.UAdd)
    is_sum = isinstance(tree, ast.BinOp) and all(isinstance(node, allowed) for node in ast.walk(tree))
    return (_Request("calculated", "calculate {sum}", clause, {"sum": sum_}),) if is_sum else None
