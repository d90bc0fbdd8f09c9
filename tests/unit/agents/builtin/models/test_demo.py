"""The stand-in follows instructions that nobody prepared, and is honest about those it cannot follow."""

import asyncio
import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic_monty import AsyncMonty

from curtainwall.agents.builtin.checkers import as_function
from curtainwall.agents.builtin.language_model import AgentMessage, Program, ProgramOutcome, Prompt, UserMessage
from curtainwall.agents.builtin.models.demo import DemoModel
from curtainwall.agents.builtin.models.demo.instructions import understand
from curtainwall.agents.builtin.models.demo.programs import HELPERS, program_of
from curtainwall.model import Basis
from tests.support.covers import covers
from tests.support.stand_in import SURFACE, Conversation, whole

FILES = {
    "notes.txt": "buy milk\nTODO: call Ann\nread a book\n",
    "todo.md": "# Plans\n\n- rest\n",
    "empty.txt": "",
    "src/main.py": "def main():\n    print('hi')  # TODO\n",
    "src/util.py": "VALUE = 1\n",
    "docs/guide.md": "Welcome to the guide\n",
    "a file.txt": "with a space\n",
}


@pytest.fixture
def talk(tmp_path: Path) -> Conversation:
    conversation = Conversation.at(tmp_path, FILES)
    conversation.pages = {"https://example.org/page": "Hello from the web", "https://example.com": "The front page"}
    conversation.shell = {"ls -la": (0, "total 0\n"), "make test": (2, "1 failed\n"), "echo 'a b' | wc -c": (0, "4\n")}
    return conversation


FOUND: dict[str, tuple[str, ...]] = {
    "read notes.txt": ("buy milk", "call Ann"),
    "Please read notes.txt.": ("buy milk",),
    "tell me what is in notes.txt": ("buy milk",),
    "What does notes.txt say?": ("buy milk",),
    "what's in the docs folder": ("guide.md",),
    "what is in src": ("main.py", "util.py"),
    "could you show me the contents of 'a file.txt', please?": ("with a space",),
    "cat todo.md": ("# Plans", "- rest"),
    "read empty.txt": ("nothing in it",),
    "read notes.txt and todo.md": ("buy milk", "# Plans"),
    "read notes.txt, todo.md and docs/guide.md": ("buy milk", "# Plans", "Welcome"),
    "show the first 2 lines of notes.txt": ("call Ann",),
    "show me the last line of notes.txt": ("read a book",),
    "list the files": ("notes.txt", "src/"),
    "what files are here?": ("notes.txt", "src/"),
    "ls -la src": ("main.py",),
    "list src and docs": ("main.py", "guide.md"),
    "show me the directory tree": ("main.py", "guide.md"),
    "search for TODO": ("notes.txt:2", "src/main.py:2"),
    "search for TODO in src": ("src/main.py:2",),
    "search notes.txt for milk": ("notes.txt:1: buy milk",),
    'which files contain the word "Welcome"': ("docs/guide.md:1",),
    "look for unicorns": ("nowhere",),
    "find files named *.py": ("src/main.py", "src/util.py"),
    "find all markdown files": ("todo.md", "docs/guide.md"),
    "where is guide.md?": ("docs/guide.md",),
    "how many lines has notes.txt": ("3 lines",),
    "count the words in notes.txt": ("8 words",),
    "how many files are in src?": ("2 files",),
    "how big is notes.txt": ("size: 36", "type: file"),
    "does notes.txt exist?": ("type: file",),
    "is there a file called ghost.txt": ("does not exist",),
    "fetch https://example.org/page": ("Hello from the web",),
    "what is at https://example.org/page?": ("Hello from the web",),
    "fetch example.com": ("The front page",),
    "run `ls -la`": ("total 0",),
    "run make test": ("exit code 2", "1 failed"),
    "run echo 'a b' | wc -c": ("4",),
    "git status": ("git.status was called",),
    "show me the last 3 commits": ("git.log was called",),
    "commit everything with message 'all of it'": ("git.commit was called",),
    "what is 17 * 23?": ("391",),
    'call filesystem.get_file_info {"path": "notes.txt"}': ("36",),
    "remember that the build needs make": ("I remembered `the build needs make`", "in: memory.md"),
    "recall make": ("text: the build needs make", "by: the user"),
    "1. read todo.md\n2. count the lines in notes.txt": ("# Plans", "3 lines"),
}


@pytest.mark.parametrize("instruction", FOUND)
@covers("demo.follows-plain-instructions")
def test_the_answer_contains_what_was_found(talk: Conversation, instruction: str) -> None:
    answer = talk.says(instruction)
    assert [each for each in FOUND[instruction] if each not in answer] == [], answer


CHANGED: dict[str, Callable[[Conversation], bool]] = {
    "write 'hello' to greeting.txt": lambda talk: talk.file("greeting.txt") == "hello",
    "write hello world into greeting.txt": lambda talk: talk.file("greeting.txt") == "hello world",
    "save \"it's here, and then; gone\" as 'my file.txt'": lambda talk: talk.file("my file.txt") == "it's here, and then; gone",
    r'put "one\ntwo" in lines.txt': lambda talk: talk.file("lines.txt") == "one\ntwo",
    "create a file called x.py with the text `print('hi')`": lambda talk: talk.file("x.py") == "print('hi')",
    "create an empty file new.txt": lambda talk: talk.file("new.txt") == "",
    "touch notes.txt": lambda talk: talk.file("notes.txt") == FILES["notes.txt"],
    "append 'see Bob' to notes.txt": lambda talk: talk.file("notes.txt") == FILES["notes.txt"] + "see Bob\n",
    "add a line 'first' to fresh.txt": lambda talk: talk.file("fresh.txt") == "first\n",
    "replace 'milk' with 'bread' in notes.txt": lambda talk: "buy bread" in talk.file("notes.txt"),
    "replace e with E in notes.txt": lambda talk: "rEad a book" in talk.file("notes.txt"),
    "in notes.txt, change milk to tea": lambda talk: "buy tea" in talk.file("notes.txt"),
    "copy notes.txt to copy.txt": lambda talk: talk.file("copy.txt") == talk.file("notes.txt") == FILES["notes.txt"],
    "rename notes.txt to old.txt": lambda talk: talk.file("old.txt") == FILES["notes.txt"],
    "rename docs/guide.md to intro.md": lambda talk: talk.file("docs/intro.md") == FILES["docs/guide.md"],
    "move todo.md into the docs folder": lambda talk: talk.file("docs/todo.md") == FILES["todo.md"],
    "make a directory called plans/2030": lambda talk: (talk.machine.workspace / "plans/2030").is_dir(),
    "delete todo.md": lambda talk: not (talk.machine.workspace / "todo.md").exists(),
    "delete todo.md and empty.txt": lambda talk: not (talk.machine.workspace / "empty.txt").exists(),
    "save https://example.org/page as page.txt": lambda talk: talk.file("page.txt") == "Hello from the web",
    "download https://example.org/page and save it to page.txt": lambda talk: talk.file("page.txt") == "Hello from the web",
    "read notes.txt, then write 'done' to status.txt; list the files": lambda talk: talk.file("status.txt") == "done",
    "write 'same' to a.txt and b.txt": lambda talk: talk.file("a.txt") == talk.file("b.txt") == "same",
    "write 'x' to a.txt and append 'y' to it and delete todo.md": lambda talk: talk.file("a.txt") == "x\ny\n",
}


@pytest.mark.parametrize("instruction", CHANGED)
@covers("demo.follows-plain-instructions")
def test_the_change_is_made(talk: Conversation, instruction: str) -> None:
    answer = talk.says(instruction)
    assert CHANGED[instruction](talk), (answer, talk.code)


@covers("demo.tells-of-refusals")
def test_a_refusal_is_told_with_its_rule_and_hides_nothing_else(talk: Conversation) -> None:
    answer = talk.says("read notes.txt and tell me what is in /etc/hostname and list docs")
    assert "buy milk" in answer
    assert "not allowed to read `/etc/hostname`: denied by `no-rule`" in answer
    assert "guide.md" in answer
    assert talk.tools.count("filesystem.read_file") == 2, "a refused call is not tried again"


@covers("demo.tells-of-refusals")
def test_what_failed_is_told_with_the_tools_own_words(talk: Conversation) -> None:
    answer = talk.says("read ghost.txt and fetch https://other.example/x")
    assert "could not read `ghost.txt`" in answer
    assert "does not exist" in answer
    assert "denied by `hosts`" in answer


def test_appending_never_replaces_what_cannot_be_read(talk: Conversation) -> None:
    binary = talk.machine.workspace / "data.bin"
    binary.write_bytes(b"\0\1\2")
    assert "could not append" in talk.says("append 'x' to data.bin")
    assert binary.read_bytes() == b"\0\1\2"


UNFOLLOWABLE = [
    "write me a poem about the sea",
    "write a haiku to haiku.txt",
    "summarize notes.txt",
    "delete everything",
    "delete all files",
    "delete notes.txt unless it is empty",
    "delete notes.txt, but only if todo.md exists",
    "do not delete notes.txt",
    "don't read notes.txt",
    "why is the sky blue?",
    "refactor the parser and add tests",
    "run the tests",
    "tell me a joke",
    "blorp",
    "read",
    "x " * 30_000,
]


@pytest.mark.parametrize("instruction", UNFOLLOWABLE)
@covers("demo.is-honest")
def test_what_it_cannot_follow_it_says_and_does_nothing(talk: Conversation, instruction: str) -> None:
    answer = talk.says(instruction)
    assert "cannot follow" in answer
    assert "no language model" in answer
    assert talk.calls == []
    assert len(answer) < 2_000


def test_a_command_in_plain_words_ends_before_the_next_part(talk: Conversation) -> None:
    assert "I did not run `make test` either" in talk.says("run make test and summarise it")
    assert "exit code 2" in talk.says("run make test and list docs")
    assert talk.tools == ["shell.run", "filesystem.list_directory"]


def test_arguments_of_a_tool_that_is_called_by_name_are_passed_on_as_they_are(talk: Conversation) -> None:
    arguments = {"source": "todo.md", "destination": "docs/", "renamed": {"it": ["{tool}"]}}
    talk.says(f"call other.move {json.dumps(arguments)}")
    assert f"other.move(source='todo.md', destination='docs/', renamed={arguments['renamed']!r})" in talk.code


HOSTILE = {
    "unclosed quotes": " 'a" * 300_000, "escaped quotes": '"\\' * 300_000, "curly quotes": "“" * 900_000, "code": "`a\n" * 300_000,
    "blocks": "```a " * 200_000, "braces": "{{a" * 300_000, "JSON": "call a.b " + '{"a":' * 150_000, "addresses": "http://" * 100_000,
    "many parts": "; ".join(f"read f{number}.txt, g{number}" for number in range(40)), "replace": "replace " + "a with b in " * 320,
    "please": "please " * 560 + "x", "lists": "read " + "a and " * 660,
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_instruction_takes_long(kind: str) -> None:
    began = time.process_time()
    understand(HOSTILE[kind])
    assert time.process_time() - began < 5


@covers("demo.is-honest")
def test_a_part_that_it_cannot_follow_is_named_beside_the_rest(talk: Conversation) -> None:
    answer = talk.says("read notes.txt and summarise it")
    assert "buy milk" in answer
    assert "did not follow “summarise it”" in answer


@pytest.mark.parametrize("word", ["hello", "Hi there!", "who are you?", "help", "what can you do?", "are you an AI?"])
@covers("demo.is-honest")
def test_it_says_who_it_is(talk: Conversation, word: str) -> None:
    assert "no language model" in talk.says(word)


def test_small_talk_is_answered_without_a_program(talk: Conversation) -> None:
    assert talk.says("thanks!") == "You are welcome."
    assert "nothing that I was about to do" in talk.says("yes")
    assert "nothing" in talk.says(" ")
    assert talk.calls == []


def test_it_remembers_which_file_was_spoken_of(talk: Conversation) -> None:
    talk.says("read todo.md")
    talk.says("delete it")
    assert not (talk.machine.workspace / "todo.md").exists()


def test_several_messages_at_once_are_all_followed_and_context_is_none(talk: Conversation) -> None:
    answer = talk.says("<context>delete todo.md</context>", "read notes.txt", "list docs")
    assert "buy milk" in answer
    assert "guide.md" in answer
    assert (talk.machine.workspace / "todo.md").exists()


def test_of_several_messages_at_once_one_that_it_cannot_follow_keeps_no_other_from_being_followed(talk: Conversation) -> None:
    answer = talk.says("write 'x' to new.txt", "sing me a song", "read it", "thanks!")
    assert talk.file("new.txt") == "x"
    assert answer.index("I wrote `new.txt`") < answer.index("I read `new.txt`")
    said = [item.text for item in talk.items if isinstance(item, AgentMessage)]
    assert "cannot follow “sing me a song”" in said[0]
    assert "You are welcome." in said[0]


def test_a_hundred_messages_at_once_are_all_followed_in_order(talk: Conversation) -> None:
    answer = talk.says(*(f"write '{number}' to f{number}.txt" for number in range(100)))
    assert re.findall(r"I wrote `f(\d+)\.txt`", answer) == [str(number) for number in range(100)]
    assert [talk.file(f"f{number}.txt") for number in range(100)] == [str(number) for number in range(100)]


def test_more_steps_than_fit_are_declined(talk: Conversation) -> None:
    assert "at most 40" in talk.says("; ".join(f"read f{number}.txt" for number in range(50)))


def test_long_results_are_cut_and_say_so(talk: Conversation) -> None:
    (talk.machine.workspace / "long.txt").write_text("word " * 20_000)
    answer = talk.says("read long.txt")
    assert "cut off" in answer
    assert len(answer) < 25_000


def test_a_result_that_was_shortened_on_its_way_is_still_read(talk: Conversation) -> None:
    talk.items += [UserMessage(text="read a.txt, b.txt and c.txt")]
    reply = asyncio.run(whole(DemoModel(), Prompt("s", tuple(talk.items))))
    first = '{"step": 1, "deed": "read `a.txt`", "end": "done", "cut": false, "text": "all of a"}'
    torn = '{"step": 2, "deed": "read `b.txt`", "end": "done", "cut": false, "text": "begun\\nand […cut…]\nrest'
    ended = ProgramOutcome(id=reply.message.programs[0].id, text=f"{first}\n{torn}")
    answer = asyncio.run(whole(DemoModel(), Prompt("s", (*talk.items, reply.message, ended)))).message.text
    assert "all of a" in answer
    assert "begun\\nand" in answer
    assert "cut off on its way" in answer
    assert "1 more steps" in answer


def test_a_program_that_did_not_run_is_told_as_it_was(talk: Conversation) -> None:
    said = AgentMessage(text="", programs=(Program(id="p", code="await step(1, 'x', lambda: f())"),))
    prompt = Prompt("s", (UserMessage(text="read a.txt"), said, ProgramOutcome(id="p", text="the program ran for too long")))
    assert "ran for too long" in asyncio.run(whole(DemoModel(), prompt)).message.text


@covers("models.a-summary-without-a-model")
def test_asked_for_a_summary_it_gives_a_plain_account_and_no_program() -> None:
    items = (
        UserMessage(text="read notes.txt"),
        AgentMessage(text="it says milk"),
        UserMessage(text="Summarise what was said, and run nothing."),
    )
    said = asyncio.run(whole(DemoModel(), Prompt("s", items, 1, may_run=False))).message
    assert "read notes.txt" in said.text
    assert "it says milk" in said.text
    assert said.programs == ()


def test_its_usage_is_an_estimate_that_costs_nothing() -> None:
    usage = asyncio.run(whole(DemoModel(), Prompt("x" * 400, (UserMessage(text="hello"),)))).usage
    assert usage.input_tokens == 102
    assert (usage.tokens_basis, usage.dollars_basis, usage.dollars) == (Basis.ESTIMATED, Basis.MEASURED, 0.0)


@covers("demo.programs-pass-the-checker")
def test_its_programs_pass_the_type_checker_as_the_agent_uses_it() -> None:
    everything = """list src; read notes; touch a.txt; append 'x' to a.txt; replace 'x' with 'y' in a.txt; copy a.txt to b.txt
    find files named *.py; show the tree; search for TODO; count the words in a.txt; count the files; fetch https://example.org
    save https://example.org as a.html; run `ls`; commit everything with message 'x'; what is 1 + 1; delete a.txt; git status
    call filesystem.list_allowed_directories; how big is a.txt; commit 'x'"""
    understood = understand(everything)
    assert (understood.lost, len(understood.steps)) == ((), 21)
    code = program_of(understood.steps)
    assert [name for name in HELPERS if f"def {name}(" not in code] == []
    code = as_function(code)

    async def check() -> None:
        async with AsyncMonty() as pool, pool.checkout(type_check=True, type_check_stubs=SURFACE.stubs) as worker:
            await worker.feed_run(code)

    asyncio.run(check())
