"""The forms of words that reach beyond files: pages, commands, git, notes, and any tool by its name."""

import ast
import json
import re
from typing import Final, cast

from pydantic import JsonValue

from curtainwall.agents.builtin.models.demo import steps
from curtainwall.agents.builtin.models.demo.forms import Build, FormRule, Found, one, rule
from curtainwall.agents.builtin.models.demo.names import NameReader
from curtainwall.agents.builtin.models.demo.steps import Step
from curtainwall.agents.builtin.stubs import is_tool_name

_FETCH: Final = (
    "(fetch|get|download|visit|browse|open|request|curl|wget|load|go to|navigate to|read|retrieve|pull up|look at|see|show|show me)"
)
_PAGE: Final = "[[the|this] (page|url|site|website|web page|address|link|content of|contents of|text of|page at) [at|from]]"
_GIT: Final = "[show|show me|tell me|give me|check|get|see|print|display|look at|what is] [the]"
_LONGEST_SUM: Final = 200
_DESCRIBED: Final = frozenset("the a an my your our some all any it this that them these those".split())


def _fetch(reader: NameReader, found: re.Match[str]) -> Found:
    urls = [reader.url(part) for part in re.split(r",\s*(?:and\s+)?|\s+and\s+", found["url"])]
    sure = [url for url in urls if url]
    return tuple(map(steps.fetch, sure)) if len(sure) == len(urls) else None


def _fetch_bare(reader: NameReader, found: re.Match[str]) -> Found:
    """Fetch an address that stands alone, if it is written in full."""
    span = reader.words.span(found["url"])
    return _fetch(reader, found) if span and span.kind == "url" else None


def _save(reader: NameReader, found: re.Match[str]) -> Found:
    url, path = reader.url(found["url"]), reader.path(found["path"])
    return one(steps.save(url, path) if url and path else None)


def _post(reader: NameReader, found: re.Match[str]) -> Found:
    url, body = reader.url(found["url"]), reader.text(found["body"])
    return one(steps.post(url, body) if url and body is not None else None)


def _run(reader: NameReader, found: re.Match[str]) -> Found:
    """Run what is quoted, or the words as they are unless they describe a command instead of being one."""
    words = found["command"].strip()
    quoted = reader.quoted(words)
    if quoted is None and words.split(" ")[0].lower() in _DESCRIBED:
        return None
    command = quoted if quoted is not None else reader.words.source(words)
    return one(steps.run(command) if command.strip() else None)


def _git(deed: str, tool: str, *, changes: bool = False, **arguments: JsonValue) -> Build:
    step = steps.git(deed, tool, changes=changes, **arguments)
    return lambda _reader, _found: (step,)


def _log(_reader: NameReader, found: re.Match[str]) -> Found:
    given = found["count"] or found.groupdict().get("short")
    count = int(given) if given else 10
    return one(steps.git(f"look at the last {count} commits", "log", count=count) if 0 < count <= 1000 else None)


def _show_commit(reader: NameReader, found: re.Match[str]) -> Found:
    ref = reader.words.source(found["ref"])
    return (steps.git(f"show the commit `{ref}`", "show", ref=ref),)


def _diff_of(reader: NameReader, found: re.Match[str]) -> Found:
    named = reader.paths(found["path"])
    if not named:
        return None
    files: list[JsonValue] = [each.path for each in named]
    return (steps.git("show the changes in " + ", ".join(f"`{each.path}`" for each in named), "diff", files=files),)


def _prompt(reader: NameReader, found: re.Match[str]) -> Found:
    everything = re.fullmatch(
        r"everything|all(?: (?:the )?(?:changes|files))?|(?:the |my )?changes|\.|-A|--all", found["path"], re.IGNORECASE
    )
    named = None if everything else reader.paths(found["path"])
    if not everything and not named:
        return None
    files: list[JsonValue] = ["."] if everything or not named else [each.path for each in named]
    return (
        steps.git("stage " + ("everything" if everything else ", ".join(f"`{file}`" for file in files)), "add", changes=True, files=files),
    )


def _commit(*, everything: bool) -> Build:
    def build(reader: NameReader, found: re.Match[str]) -> Found:
        message = reader.text(found["message"])
        return one(steps.commit(message, everything=everything) if message else None)

    return build


def _ref(deed: str, tool: str, key: str, **arguments: JsonValue) -> Build:
    def build(reader: NameReader, found: re.Match[str]) -> Found:
        span = reader.words.span(found["ref"])
        name = span.value if span else found["ref"]
        return (steps.git(f"{deed} `{name}`", tool, changes=True, **{key: name}, **arguments),)

    return build


def _remote(deed: str, tool: str) -> Build:
    def build(_reader: NameReader, found: re.Match[str]) -> Found:
        remote = found["remote"]
        return (steps.git(f"{deed} `{remote or 'origin'}`", tool, changes=True, **({"remote": remote} if remote else {})),)

    return build


def _clone(reader: NameReader, found: re.Match[str]) -> Found:
    url = reader.url(found["url"]) or reader.words.source(found["url"])
    path = reader.path(found["path"]) if found["path"] else url.rstrip("/").removesuffix(".git").rpartition("/")[2]
    return one(steps.git(f"clone {url} into `{path}`", "clone", changes=True, url=url, path=path) if path and ("/" in url) else None)


def _remember(reader: NameReader, found: re.Match[str]) -> Found:
    text = reader.quoted(found["text"]) or reader.words.source(found["text"])
    return one(steps.remember(text) if text else None)


def _recall(reader: NameReader, found: re.Match[str]) -> Found:
    text = reader.quoted(found["text"]) or reader.words.source(found["text"])
    return one(steps.recall(text) if text else None)


def _call(reader: NameReader, found: re.Match[str]) -> Found:
    """Call a tool by its name, with arguments as JSON."""
    span = reader.words.span(found["arguments"].strip()) if found["arguments"] else None
    if not is_tool_name(found["tool"]) or (found["arguments"] and (span is None or span.kind not in {"json", "code"})):
        return None
    try:
        arguments = cast("JsonValue", json.loads(span.value)) if span else {}
    except ValueError:
        return None
    return one(steps.call(found["tool"], arguments) if isinstance(arguments, dict) else None)


def _calculate(_reader: NameReader, found: re.Match[str]) -> Found:
    """Work out plain arithmetic."""
    sum_ = " ".join(found["sum"].split())
    short = len(sum_) <= _LONGEST_SUM and _is_sum(sum_)
    return one(Step(f"calculate `{sum_}`", f"calculated({sum_})", ("calculated",)) if short else None)


def _is_sum(text: str) -> bool:
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    # A power could take for ever.
    allowed = (ast.BinOp, ast.UnaryOp, ast.Constant, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Mod, ast.USub, ast.UAdd)
    return isinstance(tree.body, ast.BinOp) and all(isinstance(node, allowed) for node in ast.walk(tree.body))


RULES: Final[tuple[FormRule, ...]] = (
    rule(f"(fetch|get|download|save|store) {_PAGE} {{url:word}} (to|into|as|in) {{path}}", _save),
    rule(f"(fetch|get|download) {_PAGE} {{url:word}} and (save|store|write|put) it (to|into|as|in) {{path}}", _save),
    rule(f"{_FETCH} {_PAGE} {{url}}", _fetch),
    rule("[tell me|see] what is (at|on) {url:word}", _fetch),
    rule("what does {url:word} (say|contain|return|show)", _fetch),
    rule("{url:word}", _fetch_bare),
    rule("(post|send|submit|upload) [the text|the body] {body*} to {url:word}", _post),
    rule("$ {command}", _run),
    rule(
        "(run|execute|exec|launch|invoke) [[the|this] [shell|bash|terminal] (command|script|program)][:] "
        "{command} [in (the|a) (shell|terminal)]",
        _run,
    ),
    rule(f"{_GIT} git status", _git("look at git's status", "status")),
    rule("[show me|tell me] what [has|have] [i|we|you] changed [here|in git]", _git("look at git's status", "status")),
    rule(f"{_GIT} (last|latest|recent) commit", _git("look at the last commit", "log", count=1)),
    rule(f"{_GIT} [last|latest|recent] [{{count:number}}] (git log|git history|git commits|commits|commit history|commit log)", _log),
    rule("git log (-n {count:number}|-{short:number})", _log),
    rule("(git show|show the commit|show commit|show me commit) {ref:word}", _show_commit),
    rule(
        "(git diff --staged|git diff --cached|[show|show me] [the] staged (changes|diff))",
        _git("show what is staged", "diff", staged=True),
    ),
    rule(f"{_GIT} [git] (diff|differences|unstaged changes|uncommitted changes|changes)", _git("show the changes", "diff")),
    rule("(git diff|[show|show me] [the] [git] (diff|changes) (of|in|for|to)) {path}", _diff_of),
    rule("(git add|stage) {path}", _prompt),
    rule(
        "[git] commit (all|everything|the changes|my changes|all changes|all the changes|all files|the work|-am) "
        "[with|using][,] [the|a] [message][:] {message}",
        _commit(everything=True),
    ),
    rule("[git] commit [it|this|them|-m|what is staged] [with|using|as] [the|a] [message][:] {message}", _commit(everything=False)),
    rule(f"{_GIT} [git] (branch|branches)", _git("list the branches", "branch")),
    rule(
        "(which|what) (branch|branches) [is this|am i on|are we on|are there|is checked out|do we have]",
        _git("list the branches", "branch"),
    ),
    rule("list [the|all|all the] branches", _git("list the branches", "branch")),
    rule("(create|make) [a|the] [new] [git] branch [called|named] {ref:word}", _ref("make the branch", "branch", "name")),
    rule("git branch {ref:word}", _ref("make the branch", "branch", "name")),
    rule("(git checkout -b|git switch -c) {ref:word}", _ref("make and switch to", "checkout", "ref", create=True)),
    rule("(git checkout|git switch|checkout|check out|switch to) [the] [branch|commit] {ref:word}", _ref("switch to", "checkout", "ref")),
    rule(
        "(git init|(make|create|initialize|initialise|start|init) [a|the|this] [new|empty] git [repo|repository] [here])",
        _git("make a git repository", "init", changes=True, path="."),
    ),
    rule("(make|turn) this [into] a git (repo|repository)", _git("make a git repository", "init", changes=True, path=".")),
    rule(
        "[git] push [it|the changes|the commits|my changes|my commits|my work|everything] [to [the] {remote:word}]",
        _remote("push to", "push"),
    ),
    rule("[git] pull [the changes|the commits|the latest] [from [the] {remote:word}]", _remote("pull from", "pull")),
    rule("git fetch [from] [{remote:word}]", _remote("fetch from", "fetch")),
    rule("[git] clone [the] [repo|repository] {url:word} [(to|into|in|as) {path}]", _clone),
    rule("remember [that|this|this:|the fact that] {text}", _remember),
    rule("(recall|what do you remember about|what do you know about) {text}", _recall),
    rule("(call|use|invoke) [the tool] {tool:word} [with] [the] [arguments|argument] [{arguments:word}]", _call),
    rule("[what is|calculate|compute|work out|how much is|evaluate] {sum}", _calculate),
)
