"""A conversation in a real terminal, with keys as a person presses them: asks, queues, interruptions, slash words."""

import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.covers import covers
from tests.support.program import Program
from tests.support.serving import script_of
from tests.support.tmux import Tmux
from tests.support.upstream import KEY, PAUSE, Says, Upstream
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("tmux")

MODEL = "anthropic:claude-sonnet-5"
READY = "write what you want done"
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]")

FILES = {
    "cellar.csv": "wine,year\nrioja,2019\nchianti,2021\n",
    "letters/aunt.txt": "Dear aunt,\nthank you for the scarf.\n",
    "letters/bank.txt": "Dear bank,\nplease send no more cards.\n",
}

INSTRUCTIONS: dict[str, Callable[[str, Path], bool]] = {
    "please open letters/aunt.txt for me": lambda said, _: "thank you for the scarf." in said,
    "print the last line of cellar.csv": lambda said, _: "chianti,2021" in said,
    "what's inside the letters folder?": lambda said, _: "aunt.txt" in said and "bank.txt" in said,
    "how many words are in letters/aunt.txt?": lambda said, _: "7 words" in said,
    "look for the word Dear in all files": lambda said, _: "letters/aunt.txt:1" in said and "letters/bank.txt:1" in said,
    "put 'buy cheese' into errands.md": lambda _, place: (place / "errands.md").read_text() == "buy cheese",
    "add the line 'barolo,2017' to cellar.csv": lambda _, place: (place / "cellar.csv").read_text().endswith("barolo,2017\n"),
    "change 'scarf' to 'hat' in letters/aunt.txt": lambda _, place: "for the hat" in (place / "letters/aunt.txt").read_text(),
    "duplicate letters/bank.txt as old-bank.txt": lambda _, place: (place / "old-bank.txt").read_text() == FILES["letters/bank.txt"],
    "get rid of letters/bank.txt, then count the files in letters": lambda said, place: (
        "1 file" in said and not (place / "letters/bank.txt").exists()
    ),
}


def lay_out(program: Program) -> None:
    for name, text in FILES.items():
        path = program.workspace / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def ask(screen: Tmux) -> str:
    """Wait until keys answer the one ask, and return its id."""
    found = until(lambda: re.search(r"^(\w{6})\? y once", screen.visible, re.MULTILINE))
    return found[1]


def press(screen: Tmux, key: str, words: str) -> None:
    """Press a key about the one ask, as soon as that counts, and wait for what comes of it."""
    ask(screen)
    screen.press(key)
    screen.until(words)


def rests(screen: Tmux, words: str) -> None:
    """Wait until these words stand there and the agent has nothing more to do."""
    screen.until(words)
    until(lambda: "Ctrl-C interrupts" not in screen.visible)


def told(screen: Tmux, word: str, *words: str) -> str:
    """Write a slash word and wait for everything that it says, however its lines are broken."""
    before = screen.screen
    screen.enter(word)
    return screen.until(lambda seen: seen != before and all(each in f"{seen}\n{' '.join(seen.split())}" for each in words))


@pytest.fixture
def talk(provider: Upstream) -> Upstream:
    """Return the provider that a conversation of the test talks to."""
    return provider


# The first minute


@covers("start.first-minute")
def test_approving_continues_the_first_conversation(program: Program) -> None:
    (program.workspace / "notes.txt").write_text("Shopping: milk\n")
    with program.terminal("start", "--workspace", program.workspace) as screen:
        screen.until(READY)
        screen.enter("read notes.txt and tell me what is in /etc/hostname")
        card = screen.until("y once")
        assert "✓ filesystem.read_file notes.txt" in card
        assert "wants read-path /etc/hostname (read-outside)" in card
        screen.until("1 open ask")
        screen.enter("/approve")
        answer = screen.until(f"I read /etc/hostname: {socket.gethostname()}")
        assert "Shopping: milk" in answer
        screen.until(lambda seen: "open ask" not in seen)
        screen.enter("/quit")
        assert screen.exit_code() == 0


@covers("start.plain-instructions")
def test_plain_instructions_are_followed_and_what_cannot_be_is_said(program: Program) -> None:
    lay_out(program)
    with program.terminal("start", "--model", "demo", "--workspace", program.workspace, "--mode", "accept-edits") as screen:
        screen.until(READY)
        for instruction, is_done in INSTRUCTIONS.items():
            screen.enter(instruction)
            screen.until(partial(came_of, instruction, is_done, program.workspace))
        screen.enter("translate cellar.csv into Latin")
        screen.until("I cannot follow “translate cellar.csv into Latin”: I am the demo model")
        screen.press("C-d")
        assert screen.exit_code() == 0


def came_of(instruction: str, is_done: Callable[[str, Path], bool], workspace: Path, seen: str) -> bool:
    """Tell whether what was wanted has come of an instruction, and the agent rests again."""
    _, is_heard, said = seen.rpartition(f"> {instruction}\n")
    if not is_heard or said.count("┊ I ") < 2 or "Ctrl-C interrupts" in said:
        return False
    try:
        return is_done(said, workspace)
    except FileNotFoundError:
        return False


# Asks


def two_asks(program: Program) -> str:
    code = "import asyncio\nfound = await asyncio.gather({}, {})\nprint(len(found))"
    for name in ("one", "two"):
        (program.scratch / name).write_text(f"{name}\n")
    reads = (f"filesystem.read_file(path={str(program.scratch / name)!r})" for name in ("one", "two"))
    path = program.scratch / "script.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in ({"code": code.format(*reads)}, {"text": "Both are answered."})))
    return f"script:{path}"


@covers("terminal.real-asks")
def test_several_asks_are_listed_and_the_last_one_takes_a_key(program: Program) -> None:
    with program.terminal("start", "--model", two_asks(program), "--workspace", program.workspace) as screen:
        screen.until(READY)
        screen.enter("go")
        listed = screen.until("2 asks wait: `/approve ID`, `/deny ID`")
        first, second = re.findall(r"^  (\w{6}) filesystem.read_file", listed, re.MULTILINE)
        told(screen, "/approve", f"say which: {first}, {second}")
        told(screen, "/pending", f"{first} filesystem.read_file wants read-path {program.scratch}/one")
        screen.enter(f"/approve {second}")
        screen.until(f"approved once by {_me()}: {second}")
        assert ask(screen) == first
        press(screen, "y", f"approved once by {_me()}: {first}")
        screen.until("Both are answered.")
        screen.press("C-d")
        assert screen.exit_code() == 0


@covers("terminal.real-asks")
def test_a_key_denies_and_another_explains_and_an_edit_is_shown_before_it_is_made(program: Program) -> None:
    lay_out(program)
    with program.terminal("start", "--workspace", program.workspace) as screen:
        screen.until(READY)
        screen.enter("write 'so long' to farewell.txt")
        card = screen.until("y once")
        assert "┃ +so long" in card
        approval = ask(screen)
        press(screen, "w", "to change it: ")
        press(screen, "n", f"denied by {_me()}: {approval}")
        screen.until("I was not allowed to write farewell.txt")
        assert not (program.workspace / "farewell.txt").exists()
        screen.press("C-d")
        assert screen.exit_code() == 0


def _me() -> str:
    return subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()


def test_left_with_an_open_ask_the_screen_says_how_to_go_on(program: Program) -> None:
    with program.terminal("start", "--workspace", program.workspace) as screen:
        screen.until(READY)
        screen.enter("read /etc/hostname")
        approval = ask(screen)
        screen.press("C-d")
        assert screen.exit_code() == 0
        left = " ".join(screen.screen.split())
    (session,) = program.sessions()
    assert f"waits for an answer: `curtainwall approve {approval}` or `curtainwall deny {approval}`" in left
    assert f"`curtainwall start --resume {session['id']}` goes on with this session" in left
    program("approve", approval)
    with program.terminal("start", "--resume", session["id"]) as screen:
        screen.until(f"I read /etc/hostname: {socket.gethostname()}")
        screen.press("C-d")
        assert screen.exit_code() == 0


# While the agent works


@covers("terminal.real-stream")
def test_markdown_is_drawn_as_it_comes_and_messages_queue_meanwhile(program: Program, talk: Upstream) -> None:
    talk.will(
        Says(("# Report\n\nIt is **go", "od**.\n\n- one\n- two\n\n", PAUSE, "That is all. ", PAUSE, "Really.\n")),
        Says(("Both heard.",), read=5000),
    )
    with program.terminal("start", "--model", MODEL, ANTHROPIC_API_KEY=KEY, NO_COLOR="") as screen:
        screen.until(READY)
        screen.enter("report")
        drawn = screen.until("It is good.")
        assert "**" not in drawn
        screen.until("• two")
        screen.until("thinking")
        screen.until("Ctrl-C interrupts")
        screen.enter("a first afterthought")
        screen.until("queued: a first afterthought")
        screen.enter("a second afterthoughd")
        screen.until("queued: a second afterthoughd")
        screen.press("Up")
        screen.until(lambda seen: "queued: a second" not in seen and "> a second afterthoughd" in seen)
        screen.press("BSpace")
        screen.enter("t")
        screen.until("queued: a second afterthought\n")
        assert "That is all" not in screen.screen
        talk.go_on()
        screen.until("That is all.")
        talk.go_on()
        answer = screen.until("Both heard.")
        assert "queued: " not in screen.visible
        assert answer.index("Really.") < answer.index("> a first afterthought")
        screen.until(f"{MODEL} · mode default · context ")
        assert COLOUR.search(screen.coloured), "on a terminal there are colours"
        screen.press("C-d")
        assert screen.exit_code() == 0
    (messages,) = {str(asked.body["messages"]) for asked in talk.asked[1:]}
    assert "a first afterthought" in messages
    assert "a second afterthought'" in messages


HTML = """Before.

<div class="x">
the answer is <b>42</b>
</div>

<!-- a comment --> and ![a picture](https://pictures.example/p.png)

[hidden]: https://elsewhere.example

After.
"""


@covers("terminal.shows-html-as-text")
@pytest.mark.parametrize("task", [("go",), ()], ids=["one task", "a conversation"])
def test_html_in_an_answer_is_shown_as_it_was_written(program: Program, task: tuple[str, ...]) -> None:
    model = script_of(program.scratch / "script.jsonl", [{"text": HTML}])
    with program.terminal("start", "--model", model, *task) as screen:
        if not task:
            screen.until(READY)
            screen.enter("go")
        seen = " ".join(screen.until("After.").replace("┊", "").split())
        assert '<div class="x"> the answer is <b>42</b> </div>' in seen
        assert "<!-- a comment --> and !a picture (https://pictures.example/p.png)" in seen
        assert "[hidden]: https://elsewhere.example" in seen


@covers("terminal.real-interrupts")
def test_an_interrupt_keeps_what_was_said_and_a_second_one_leaves(program: Program, talk: Upstream) -> None:
    talk.will(Says(("The moon is ", "made of ", PAUSE)), Says(("The sun is ", "made of ", PAUSE)))
    with program.terminal("start", "--model", MODEL, ANTHROPIC_API_KEY=KEY) as screen:
        screen.until(READY)
        screen.enter("the moon")
        screen.until("The moon is made")
        screen.press("C-c")
        screen.until("interrupted; what was said so far is kept")
        until(lambda: talk.left == 1)
        screen.enter("the sun")
        screen.until("The sun is made")
        screen.press("C-c", "C-c")
        assert screen.exit_code() == 130
        assert "Traceback" not in screen.screen
    until(lambda: talk.left == 2)
    (session,) = program.sessions()
    said = program("sessions", "export", session["id"]).stdout
    assert "The moon is made of" in said
    assert "The sun is made of" in said
    assert "no broken promises" in program("sessions", "replay", session["id"]).stdout
    with program.terminal("start", "--resume", session["id"], ANTHROPIC_API_KEY=KEY) as screen:
        screen.until("The sun is made of")
        screen.press("C-c")
        assert screen.exit_code() == 0


# Slash words


@covers("terminal.real-words")
def test_slash_words_do_what_they_say(program: Program) -> None:
    lay_out(program)
    with program.terminal("start", "--model", "demo", "--workspace", program.workspace, size=(110, 50)) as screen:
        screen.until(READY)
        told(screen, "/help", "/approve [ID] [once|session|project]", "/compact [INSTRUCTIONS | at 70% | off]")
        told(screen, "/mode", "mode default: ", "there are plan, review, default, accept-edits, bypass")
        told(screen, "/mode plan", "mode plan: looks and proposes; changes nothing", "demo · mode plan")
        told(screen, "/mode default", "demo · mode default")
        told(screen, "/model", "model demo")
        told(screen, "/model parrot", "there is no model `parrot`; there are `demo`")
        told(screen, "/model demo", "model demo from the next request on")
        told(screen, "/rename the cellar", "this session is now `the cellar`")
        screen.enter("show the first line of cellar.csv")
        rests(screen, "wine,year")
        told(screen, "/budget", "steps    2 of 200 (measured)", "dollars  $0.00 of $5.00 (measured)")
        told(screen, "/budget steps 300", "steps    2 of 300 (measured)")
        told(screen, "/context", " of 200,000 tokens, ", "it is compacted at 83.5 %")
        told(screen, "/compact at 70%", "the context is compacted at 70 % from now on")
        screen.enter("append 'port,1997' to cellar.csv")
        screen.until("y once")
        told(screen, f"/why {ask(screen)}", "because of project-edit", "to change it: ")
        screen.enter("/approve session")
        granted = screen.until("files: ")
        assert "files: wrote cellar.csv" in granted
        (grant,) = re.findall(r"`/revoke (\w+)` takes it back", granted)
        told(screen, "/grants", f"{grant}  for the session, by {_me()}", "(project-edit)")
        told(screen, f"/revoke {grant}", f"grant {grant} is taken back")
        told(screen, "/grants", "no answer stands in this session")
        told(screen, "/pending", "nothing waits for an answer")
        told(screen, "/compact keep the wines", "older messages were summarised: ")
        told(screen, "/sessions", "ready", "the cellar")
        told(screen, "/nonsense", "there is no `/nonsense`")
        screen.press("C-d")
        assert screen.exit_code() == 0
    (session,) = program.sessions()
    assert (session["name"], session["mode"]) == ("the cellar", "default")
    assert "no broken promises" in program("sessions", "replay", session["id"]).stdout


@covers("terminal.real-words")
def test_forks_and_resets_lead_to_sessions_of_their_own(program: Program) -> None:
    lay_out(program)
    with program.terminal("start", "--model", "demo", "--workspace", program.workspace, "--name", "first") as screen:
        screen.until(READY)
        screen.enter("read letters/aunt.txt")
        rests(screen, "thank you for the scarf")
        told(screen, "/fork second", "both sessions work in the same project", "second · session ")
        told(screen, "/clear")
        screen.enter("how many lines has it")
        rests(screen, "2 lines")
        told(screen, "/reset third", "grants and credentials stay behind", "third · session ")
        screen.enter("how many lines has it")
        rests(screen, "cannot follow")
        told(screen, "/resume first", "first · session ", "thank you for the scarf")
        screen.press("C-d")
        assert screen.exit_code() == 0
    sessions = {row["name"]: row for row in program.sessions()}
    assert sessions.keys() == {"first", "second", "third"}
    assert sessions["second"]["parent"] == sessions["first"]["id"]
    assert sessions["third"]["parent"] == sessions["second"]["id"]
    assert [sessions[name]["turns"] for name in ("first", "third")] == [1, 1]


def test_a_session_that_is_deleted_elsewhere_is_said_to_be_and_another_can_be_opened(program: Program) -> None:
    with program.terminal("start", "--model", "demo", "--name", "first") as screen:
        screen.until(READY)
        screen.enter("list the files")
        rests(screen, "There was nothing to show")
        (row,) = program.sessions()
        program("sessions", "delete", row["id"], "--yes")
        screen.until("this session was deleted; `/new` opens another")
        screen.enter("list the files")
        screen.until(f"there is no session `{row['id']}`")
        screen.press("C-u")
        told(screen, "/new second", "second · session ")
        screen.press("C-d")
        assert screen.exit_code() == 0
    assert [row["name"] for row in program.sessions()] == ["second"]


# The terminal itself


def test_one_interrupt_leaves_a_question_that_is_put_while_a_session_begins(program: Program) -> None:
    settings = program.workspace / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}}))
    with program.terminal("start", "--model", "demo", "--workspace", str(program.workspace)) as screen:
        screen.until("Trust them as they are now? [y/N]")
        screen.press("C-c")
        assert screen.exit_code(30) == 130
        assert "Traceback" not in screen.screen


def test_an_interrupt_at_a_question_is_none_of_its_answers(program: Program) -> None:
    program("start", "--model", "demo", "list files")
    (session,) = program.sessions()
    with program.terminal("sessions", "delete", session["id"]) as screen:
        screen.until("for good? [y/N]")
        screen.press("C-c")
        assert screen.exit_code() == 130
        assert "nothing was done" in screen.screen
    assert len(program.sessions()) == 1


def test_a_no_is_told_and_the_question_names_what_would_go(program: Program) -> None:
    program("start", "--model", "demo", "list files")
    (session,) = program.sessions()
    with program.terminal("sessions", "delete", session["id"]) as screen:
        assert session["id"] in screen.until("for good? [y/N]")
        screen.enter("n")
        assert screen.exit_code() == 1
        assert "nothing was done" in screen.screen
    assert len(program.sessions()) == 1


@covers("terminal.real-narrow")
def test_a_narrow_window_is_readable(program: Program) -> None:
    lay_out(program)
    with program.terminal("start", "--model", "demo", "--workspace", program.workspace, size=(60, 24)) as screen:
        screen.until(READY)
        screen.enter("write 'a line that is much longer than sixty columns, so that it has to go on below' to long.txt")
        ask(screen)
        rows = screen.visible.splitlines()
        assert all(len(row) <= 60 for row in rows)
        assert any(row.startswith("demo · mode default") for row in rows)
        card = " ".join(re.findall(r"^┃ (?:↪ )?(.*)$", screen.visible, re.MULTILINE))
        assert "so that it has to go on below" in " ".join(card.split())
        screen.enter("/approve")
        screen.until("files: wrote long.txt")
        screen.press("C-d")
        assert screen.exit_code() == 0


def test_one_task_on_a_terminal_asks_there_and_respects_no_color(program: Program) -> None:
    for no_color in ("", "1"):
        with program.terminal("start", "--model", "demo", "read /etc/hostname", NO_COLOR=no_color) as screen:
            screen.until("y once · n deny · s session")
            screen.press("y")
            screen.until(f"I read /etc/hostname: {socket.gethostname()}")
            assert screen.exit_code() == 0
            assert bool(COLOUR.search(screen.coloured)) is (no_color == "")


def test_the_program_is_also_called_cw(program: Program) -> None:
    short = Path(sys.executable).with_name("cw")
    done = subprocess.run([short, "--version"], capture_output=True, text=True, env=program.environ, timeout=60, check=True)
    assert done.stdout == program("--version").stdout
