"""Foreign agents in review mode: their container has a view of the project, which stays as it is until somebody accepts."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.brokered.conftest import SHELL, Brokered, OrdinaryUser, configuration
from tests.integration.brokered.test_owners import calls, outcomes
from tests.support import real_parts
from tests.support.covers import covers
from tests.support.views import give_to, plant
from tests.support.waiting import until

AGENT = 1000
CLAUDE = "claude-code"
FILES = {"a.txt": "one\ntwo\n", "src/b.py": "x = 1\n", "gone": "soon\n", ".gitignore": "build/\n"}


MEDIATED = calls(
    ("filesystem__write_file", {"path": "/workspace/mediated.txt", "content": "m\n"}),
    ("shell__run", {"command": "cat a.txt >> mediated.txt"}),
)
WORK = f"""\
pwd; cat a.txt; echo 2 >> a.txt; rm gone; mkdir -p new build; echo n > new/n.txt; echo junk > build/junk
git config user.name a; git config user.email a@localhost; git add -A; git commit -qm mine && echo committed
echo 'touch /tmp/ran' > .git/hooks/post-checkout
{MEDIATED}
cat mediated.txt
(sleep 900; echo late >> a.txt) &
"""


def make_project(brokered: Brokered, owner: int) -> Path:
    """Make a repository with a commit in it, which belongs to a user."""
    project = brokered.scratch / "pro,ject"
    plant(project, FILES)
    git = ("git", "-C", str(project), "-c", "user.name=ann", "-c", "user.email=ann@localhost")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "all")):
        subprocess.run((*git, *words), check=True)
    give_to(project, owner)
    return project


def whole_tree(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return everything in a directory, git directories included, with owners, modes, times and contents."""
    found = {}
    for path in root.rglob("*"):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(root))] = (status.st_uid, status.st_mode, status.st_mtime_ns, content)
    return found


def presented(brokered: Brokered, session: str) -> dict[str, str]:
    """Return the changes that were last presented, in words, by path."""
    return {file["path"]: file["words"] for file in brokered.json("sessions", "changes", session)["files"]}


def told(brokered: Brokered, session: str) -> list[str]:
    """Return what the agent was told besides people's messages."""
    return [event["text"] for event in brokered.told(session, "MessageAccepted") if event["role"] == "context"]


MEDIATED = calls(
    ("filesystem__write_file", {"path": "/workspace/mediated.txt", "content": "m\n"}),
    ("shell__run", {"command": "cat a.txt >> mediated.txt"}),
)
WORK = f"""\
pwd; cat a.txt; echo 2 >> a.txt; rm gone; mkdir -p new build; echo n > new/n.txt; echo junk > build/junk
git config user.name a; git config user.email a@localhost; git add -A; git commit -qm mine && echo committed
echo 'touch /tmp/ran' > .git/hooks/post-checkout
{MEDIATED}
cat mediated.txt
(sleep 900; echo late >> a.txt) &
"""


def start(brokered: Brokered, *words: str | Path) -> Any:
    """Do a task after which somebody has to answer, and return what came of it."""
    return json.loads(brokered("start", "--output", "json", *words, fails=True).stdout)


@covers("review.containers", "review.mediated-calls")
@pytest.mark.parametrize("who", ["root", "an ordinary user"])
def test_an_agent_in_a_container_works_on_a_view_and_what_is_accepted_is_applied(
    who: str, brokered: Brokered, ordinary_user: OrdinaryUser
) -> None:
    owner = AGENT if who == "root" else ordinary_user.uid
    project = make_project(brokered, owner)
    if who != "root":
        ordinary_user.take(brokered)
    before = whole_tree(project)
    done = start(brokered, "--agent", SHELL, "--workspace", project, "--mode", "review", WORK)
    session = done["session"]
    assert done["status"] == "waiting", done
    assert [result.get("isError", False) for result in outcomes(done["text"])] == [False, False], done["text"]
    assert done["text"].splitlines()[:4] == ["/workspace", "one", "two", "committed"]
    assert done["text"].splitlines()[-4:] == ["m", "one", "two", "2"], "mediated calls and the agent see the same files"
    assert whole_tree(project) == before
    assert brokered.containers() == []
    (ask,) = brokered.told(session, "ApprovalAsked")
    assert presented(brokered, session) == {
        "a.txt": "modified, +1 -0",
        "gone": "deleted, +0 -1",
        "mediated.txt": "added, +4 -0",
        "new": "added, a directory",
        "new/n.txt": "added, +1 -0",
    }
    brokered("approve", ask["approval"], "a.txt", "new/n.txt", "gone")
    assert whole_tree(project) == before, "nobody is there to apply it"
    # The agent is a shell, for which what it is told before the message is no command.
    again = start(brokered, "--resume", session, "cat a.txt; ls; git log --oneline | wc -l; echo again >> src/b.py")
    assert again["text"].splitlines() == ["one", "two", "2", "a.txt", "build", "mediated.txt", "new", "src", "2"]
    assert told(brokered, session) == [
        "Your changes in the project were answered: 4 changes were applied; 1 change was not accepted and is only in your view"
    ]
    after = whole_tree(project)
    assert {path for path in after.keys() | before.keys() if after.get(path) != before.get(path)} == {"a.txt", "gone", "new", "new/n.txt"}
    assert (after["a.txt"][3], after["new/n.txt"][3]) == (b"one\ntwo\n2\n", b"n\n")
    assert {uid for uid, *_ in after.values()} == {owner}
    assert presented(brokered, session) == {"mediated.txt": "added, +4 -0", "src/b.py": "modified, +1 -0"}
    assert brokered.json("sessions", "replay", session)["violations"] == []


@covers("review.containers", "review.mediated-calls")
def test_claude_code_edits_a_view_is_sent_back_and_is_told_what_was_accepted(brokered: Brokered, real_part: Callable[[str], str]) -> None:
    real_part(CLAUDE)
    project = make_project(brokered, AGENT)
    before = whole_tree(project)
    steps = [
        ["Read", {"file_path": "/workspace/a.txt"}],
        ["Edit", {"file_path": "/workspace/a.txt", "old_string": "two", "new_string": "2"}],
        ["Write", {"file_path": "/workspace/new.txt", "content": "new\n"}],
        ["filesystem__write_file", {"path": "/workspace/mediated.txt", "content": "mediated\n"}],
        ["Bash", {"command": "cat a.txt mediated.txt > all.txt; rm gone", "description": "put together"}],
    ]
    done = start(brokered, "--agent", CLAUDE, "--workspace", project, "--mode", "review", f"word=apple\nSTEPS {json.dumps(steps)}")
    session = done["session"]
    assert done["status"] == "waiting", done
    assert whole_tree(project) == before
    files = {
        "a.txt": "modified, +1 -1",
        "all.txt": "added, +3 -0",
        "gone": "deleted, +0 -1",
        "mediated.txt": "added, +1 -0",
        "new.txt": "added, +1 -0",
    }
    assert presented(brokered, session) == files
    (ask,) = brokered.told(session, "ApprovalAsked")
    brokered("deny", ask["approval"], "--reason", "word=plum, and think again")
    sent_back = start(brokered, "--resume", session)
    assert sent_back["status"] == "waiting", sent_back
    assert "plum" in sent_back["text"], "it is told why, in the same turn"
    heard = [json.dumps(request.body) for request in brokered.provider.asked]
    assert not any("Do not make this call again" in body for body in heard), "the call was not the agent's"
    assert len(brokered.told(session, "TurnStarted")) == 1
    assert presented(brokered, session) == files
    assert whole_tree(project) == before
    ask = brokered.told(session, "ApprovalAsked")[-1]
    brokered("approve", ask["approval"], "a.txt", "new.txt", "gone")
    brokered.provider.asked.clear()
    again = brokered.resumed(session, "what did I say? word=pear")
    assert again["status"] == "done", "the same rest is not presented again"
    assert "pear" in again["text"]
    heard = [json.dumps(request.body) for request in brokered.provider.asked]
    assert any("3 changes were applied; 2 changes were not accepted" in body for body in heard)
    after = whole_tree(project)
    assert {path for path in after.keys() | before.keys() if after.get(path) != before.get(path)} == {"a.txt", "gone", "new.txt"}
    assert after["a.txt"][3] == b"one\n2\n"
    assert brokered.json("sessions", "replay", session)["violations"] == []


@covers("review.containers-crash")
def test_a_process_killed_in_the_middle_of_a_turn_loses_nothing_of_the_view(brokered: Brokered) -> None:
    project = make_project(brokered, AGENT)
    before = whole_tree(project)
    # What it is told is told again where nothing shows that it was heard.
    script = "if [ -e begun ]; then cat a.txt; else echo 2 >> a.txt; touch begun; sleep 900; fi"
    running = brokered.starting(SHELL, "--workspace", project, "--mode", "review", script)
    (container,) = until(lambda: brokered.containers("running"), 120)
    until(lambda: "sleep 900" in brokered.engine.docker("top", container), 60)
    running.kill_everything()
    until(lambda: container not in brokered.containers("running"), 20)
    assert whole_tree(project) == before
    (row,) = brokered.sessions()
    done = start(brokered, "--resume", row["id"])
    assert (done["status"], done["text"]) == ("waiting", "one\ntwo\n2\n"), done
    assert whole_tree(project) == before
    assert presented(brokered, row["id"]) == {"a.txt": "modified, +1 -0", "begun": "added, empty"}
    (ask,) = brokered.told(row["id"], "ApprovalAsked")
    brokered("approve", ask["approval"])
    assert brokered.resumed(row["id"])["status"] == "done"
    assert (project / "a.txt").read_text() == "one\ntwo\n2\n"
    assert brokered.json("sessions", "replay", row["id"])["violations"] == []


@covers("review.where-no-view-is-possible")
def test_an_agent_that_cannot_work_on_a_view_is_refused_before_anything_is_opened(
    brokered: Brokered, real_part: Callable[[str], str]
) -> None:
    real_part(CLAUDE)
    brokered.configure(configuration(brokered.provider, f'[processes]\nprogram = "{real_parts.CLAUDE}"\n'))
    project = make_project(brokered, AGENT)
    local = brokered("start", "--agent", "claude-local", "--workspace", project, "--mode", "review", "hello", fails=True)
    assert "the agent `claude-local` cannot work in mode `review` in a project yet" in local.stderr
    plant(project, {f"many/{number}": "" for number in range(20_000)})
    too_many = brokered("start", "--agent", SHELL, "--workspace", project, "--mode", "review", "hello", fails=True)
    assert "mode `review` needs a view of" in too_many.stderr
    assert "the project has more than 20000 files or 512 MiB" in too_many.stderr
    assert brokered.sessions() == []
    findings = json.loads(brokered("doctor", "--output", "json", fails=True).stdout)["findings"]
    (views,) = (each["what"] for each in findings if each["name"] == "views")
    assert "those in containers on copies of up to 20,000 files and 512 MiB" in views
