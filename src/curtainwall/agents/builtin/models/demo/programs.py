"""The stand-in's work: steps, the program that takes them, and the answer with the outcome of each."""

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Final, cast

from curtainwall.model import record

MOST_STEPS: Final = 40
_MOST_SHOWN: Final = 20_000
_LONGEST_LINE: Final = 300

_HELPERS: Final = """
def plain(value):
    if isinstance(value, dict):
        return "\\n".join(key + ": " + plain(value[key]) for key in value)
    if isinstance(value, list):
        return "\\n".join("- " + plain(each) for each in value)
    return str(value)

async def step(number, deed, most, work):
    try:
        end, value = "done", plain(await work())
    except Exception as why:
        end, value = "refused" if type(why).__name__ == "PermissionError" else "failed", str(why)
    print(json.dumps({"step": number, "deed": deed, "end": end, "cut": len(value) > most, "text": value[:most]}, ensure_ascii=False))

def names(found):
    shown = [entry["name"] + ("/" if entry["type"] == "directory" else "") for entry in found["entries"]]
    return "\\n".join(shown + (["and " + str(found["left_out"]) + " more"] if found.get("left_out") else []))

async def entries(path):
    return names(await filesystem.list_directory(path=path))

async def look(path):
    try:
        return await filesystem.read_file(path=path)
    except RuntimeError as why:
        if "is a directory" not in str(why):
            raise
    return names(await filesystem.list_directory(path=path))

async def old_text(path):
    try:
        return await filesystem.read_file(path=path)
    except RuntimeError as why:
        if "does not exist" not in str(why):
            raise
    return None

async def create(path):
    if await old_text(path) is not None:
        return "it was already there, and was left as it is"
    return await filesystem.write_file(path=path, content="")

async def append(path, text):
    before = await old_text(path) or ""
    if before and not before.endswith("\\n"):
        before += "\\n"
    return await filesystem.write_file(path=path, content=before + text + "\\n")

async def replace(path, old, new):
    text = await filesystem.read_file(path=path)
    if old not in text:
        raise ValueError("it is not in there")
    await filesystem.write_file(path=path, content=text.replace(old, new))
    return "in " + str(text.count(old)) + " places"

async def copy(source, destination):
    return await filesystem.write_file(path=destination, content=await filesystem.read_file(path=source))

async def matching(path, pattern):
    found = await filesystem.search_files(path=path, pattern=pattern)
    return "\\n".join(found["matches"] + (["and more"] if found.get("cut") else [])) or "there are none"

async def below(path):
    return await matching(path, "*")

async def search(path, text):
    try:
        paths = (await filesystem.search_files(path=path, pattern="*"))["matches"][:1000]
    except RuntimeError as why:
        if "not a directory" not in str(why):
            raise
        paths = [path]
    any_case = text == text.lower()
    hits = []
    for start in range(0, len(paths), 100):
        try:
            files = await filesystem.read_multiple_files(paths=paths[start : start + 100])
        except Exception as why:
            hits.append("(some files were not searched: " + str(why) + ")")
            continue
        for file in files:
            for number, line in enumerate((file.get("content") or "").splitlines(), 1):
                if text in (line.lower() if any_case else line):
                    hits.append(file["path"] + ":" + str(number) + ": " + line.strip()[:200])
    return "\\n".join(hits) or "it is nowhere in there"

async def count(path, unit):
    text = await filesystem.read_file(path=path)
    parts = text.splitlines() if unit == "lines" else text.split() if unit == "words" else text
    return str(len(parts)) + " " + unit

async def count_files(path):
    kinds = [entry["type"] for entry in (await filesystem.list_directory(path=path))["entries"]]
    return str(len(kinds) - kinds.count("directory")) + " files and " + str(kinds.count("directory")) + " directories"

def page(found):
    status = [] if found["status"] < 400 else ["the server answered with status " + str(found["status"])]
    return "\\n".join(status + [found.get("content") or ""] + [str(note) for note in found.get("notes") or []])

async def get(url):
    return page(await fetch.get(url=url))

async def save(url, path):
    found = await fetch.get(url=url, format="raw")
    if found["status"] >= 400:
        return page(found)
    return await filesystem.write_file(path=path, content=found["content"])

async def run(command):
    ended = await shell.run(command=command)
    parts = [ended.get("stdout") or "", ended.get("stderr") or ""] + [str(note) for note in ended.get("notes") or []]
    if ended["exit_code"] != 0:
        parts = ["it ended with exit code " + str(ended["exit_code"])] + parts
    return "\\n".join(part.rstrip() for part in parts if part.strip()) or "it printed nothing"

async def commit_all(message):
    await git.add(files=["."])
    return await git.commit(message=message)

async def calculated(value):
    return value
"""

HELPERS: Final = MappingProxyType({
    part.partition("(")[0].split()[-1]: f"{part.strip()}\n" for part in _HELPERS.split("\n\n")
})  # fmt: skip
"""The functions that programs are made of, by name; one may use those before it."""

_STEP = re.compile(r"^await step\(", re.MULTILINE)
_REPORT = re.compile(r'^\{"step": ', re.MULTILINE)
_PAST: Final = {"read": "read", "write": "wrote", "make": "made", "run": "ran", "find": "found", "commit": "committed", "copy": "copied"}


@record
class Step:
    """One deed in words, such as read `notes.txt`, and the expression to await for it."""

    deed: str
    code: str
    changes: bool = False


def program_of(steps: Sequence[Step], among: int = 1) -> str:
    """Return one program that takes every step, whatever became of the one before; where there are more `among` others, each tells less."""
    most = max(400, _MOST_SHOWN // max(1, among, len(steps)))
    code = "".join(f"await step({number}, {step.deed!r}, {most}, lambda: {step.code})\n" for number, step in enumerate(steps, 1))
    for name, helper in reversed([*HELPERS.items()]):
        if re.search(rf"(?<![\w.]){name}\(", code):
            code = f"{helper}\n{code}"
    return f"import json\n\n{code}"


def answer_of(codes: Sequence[str], results: Sequence[str]) -> str:
    """Return the answer to give after programs ended with these texts."""
    parts: list[str] = []
    for code, result in zip(codes, results, strict=False):
        starts = [match.start() for match in _REPORT.finditer(result)]
        reports = [_report(result[start:end]) for start, end in pairwise([*starts, len(result)])]
        parts += reports
        missing = len(_STEP.findall(code)) - len(reports)
        if not reports:
            parts.append(f"The program did not get to its end:\n\n{_fenced(result.strip() or 'it said nothing')}")
        elif missing > 0:
            parts.append(f"What came of {missing} more steps is not in the part of the result that I was given.")
    return "\n\n".join(parts)


def _report(line: str) -> str:
    try:
        report = cast("dict[str, str]", json.loads(line))
        deed, end, text, cut = report["deed"], report["end"], report["text"], report["cut"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return f"What came of a step was cut off on its way to me:\n\n{_fenced(line.strip())}"
    if end != "done":
        why = text.strip() or "no reason was given"
        stop = "" if why.endswith((".", "!", "?")) else "."
        return f"{'I was not allowed to' if end == 'refused' else 'I could not'} {deed}: {why}{stop}"
    verb, _, rest = deed.partition(" ")
    done = f"I {_PAST.get(verb) or verb + ('d' if verb.endswith('e') else 'ed')} {rest}"
    text = text.rstrip()
    if not text:
        return f"{done}. There is nothing in it." if verb == "read" else f"{done}. There was nothing to show."
    short = "\n" not in text and len(text) <= _LONGEST_LINE
    return f"{done}:{f' {text}' if short else f'{chr(10) * 2}{_fenced(text)}'}" + ("\n\n(The rest is cut off.)" if cut else "")


def _fenced(text: str) -> str:
    fence = "`" * max([3, *(len(ticks) + 1 for ticks in re.findall("`{3,}", text))])
    return f"{fence}\n{text}\n{fence}"
