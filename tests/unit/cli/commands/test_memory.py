"""`curtainwall memory`: notes from outside a session."""

from collections.abc import Callable

from curtainwall.model import Label, Workspace
from curtainwall.tools.memory import Note, Notebook
from tests.support.covers import covers
from tests.support.in_process import Places, Said, session_in

Run = Callable[..., Said]


def remembered(places: Places) -> Notebook:
    (places.home / "memory").mkdir(parents=True, exist_ok=True)
    notebook = Notebook(places.home / "memory")
    notebook.add(Workspace(path="/x", own=True), Note("quiet", "c1", 1_700_000_000_000, "s1", "builtin", (Label("sensitive"),)))
    notebook.add(Workspace(path=str(places.workspace), own=False), Note("two\n\x1b[2Jlines", "c2", 1_700_000_000_000, "s2", "codex"))
    notebook.add(
        Workspace(path="/srv/other", own=False), Note("elsewhere sk-ant-api03-abcdefghijklmnopqrstuvwxyz", "c3", 1, "s3", "builtin")
    )
    return notebook


def listed(run: Run, *words: object) -> list[tuple[str, str]]:
    return [(it["id"], it["of"]) for it in run("memory", "list", *map(str, words), "--output", "json").json["notes"]]


@covers("cli.memory")
def test_notes_are_listed_by_project_workspace_and_session(run: Run, places: Places) -> None:
    remembered(places)
    here = str(places.workspace)
    assert sorted(listed(run)) == [("c1", "general"), ("c2", here), ("c3", "/srv/other")]
    assert listed(run, "--workspace", places.workspace) == [("c1", "general"), ("c2", here)]
    own, _ = session_in(places.workspace)
    there, _ = session_in(places.workspace, own=False)
    assert listed(run, "--session", own) == [("c1", "general")]
    assert listed(run, "--session", there[:12] if own[:12] != there[:12] else there) == [("c1", "general"), ("c2", here)]
    text = run("memory", "list").out
    assert all(word in text for word in ("c1", "sensitive", "quiet", "codex"))
    assert "\x1b" not in text
    assert "sk-ant" not in text, "secrets are masked again when a note is read"


@covers("cli.memory")
def test_a_note_is_shown_whole_forgotten_and_put_back(run: Run, places: Places) -> None:
    remembered(places)
    told = run("memory", "show", "c2").out
    assert all(word in told for word in ("s2", "codex", str(places.workspace)))
    assert "\x1b" not in told
    assert run("memory", "show", "c1", "--output", "json").json["labels"] == ["sensitive"]
    said = run("memory", "forget", "c1", "c2")
    assert (said.out, "`curtainwall memory undo`" in said.err) == ("forgot c1\nforgot c2\n", True)
    assert listed(run) == [("c3", "/srv/other")]
    assert [it["id"] for it in run("memory", "list", "--forgotten", "--output", "json").json] == ["c2", "c1"]
    assert "quiet" in run("memory", "list", "--forgotten").out
    assert run("memory", "undo", "c1").out == "c1 is back\n"
    assert run("memory", "undo", "--output", "json").json["note"] == "c2"
    assert len(listed(run)) == 3
    refused = run("memory", "forget", "c3", "--for-good")
    assert (refused.code, "add --yes" in refused.err, len(listed(run))) == (2, True, 3)
    assert run("memory", "forget", "c3", "--for-good", "--yes").code == 0
    assert "nothing was forgotten" in run("memory", "undo").err


def test_what_is_not_there_is_said_with_where_it_was_looked_for(run: Run, places: Places) -> None:
    assert "nothing is remembered yet" in run("memory", "list").err
    assert not places.home.exists(), "looking makes nothing"
    assert run("memory", "list", "--output", "json").json == {"notes": [], "skipped": []}
    remembered(places)
    for words, code, complaint in (
        (("show", "zz"), 1, f"there is no note `zz` in `{places.home / 'memory'}`"),
        (("forget", "c1", "zz"), 1, "there is no note `zz`"),
        (("show", "c"), 1, "more than one note begins with `c`"),
        (("undo", "zz"), 1, "nothing was forgotten"),
        (("list", "--workspace", "/nowhere"), 2, "does not exist"),
        (("list", "--session", "zz"), 1, "there is no session `zz`"),
        (("list", "--session", "zz", "--workspace", "/"), 2, "give one of them"),
        (("list", "--session", "zz", "--forgotten"), 2, "leave --workspace and --session out"),
        (("show",), 2, "missing argument"),
    ):
        said = run("memory", *words)
        assert (said.code, complaint in said.err) == (code, True), said.err
    assert len(listed(run)) == 3, "a command that names a wrong note forgets none"
    (places.home / "memory" / "general.md").write_text("## x\n<!-- curtainwall: {} -->\n\n> y\n")
    assert "is passed over" in run("memory", "list").err
