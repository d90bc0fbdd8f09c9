"""`policy explain`, `rules`, `test` and `import`."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.unit.app.conftest import Places, Said

Run = Callable[..., Said]


def test_an_explanation_says_why_and_what_would_change_it(run: Run, places: Places) -> None:
    told = run("policy", "explain", "fetch.get", '{"url": "https://a.org/x"}', "--output", "json").json
    assert (told["effect"], told["because"]) == ("ask", ["unlisted-host"])
    assert told["rules"][0]["source"] == "default.cedar"
    assert "`a.org` in config `lists.hosts`" in told["changes"]
    text = run("policy", "explain", "fetch.get", '{"url": "https://a.org/x"}').out
    assert text.startswith("ask: ")
    assert "what would change it:" in text


def test_a_call_without_a_meaning_is_explained_too(run: Run, places: Places) -> None:
    for words in (("nothing.here", "{}"), ("fetch.get", "{"), ("fetch.get", '{"url": 7}'), ("fetch.get", '{"url": "a", "url": "b"}')):
        told = run("policy", "explain", *words, "--output", "json").json
        assert (told["effect"], told["resources"]) == ("deny", [])
        assert told["because"][0] in ("unknown-tool", "invalid-arguments")


def test_a_mode_that_answers_is_named(run: Run, places: Places) -> None:
    write = ("policy", "explain", "filesystem.write_file", '{"path": "a", "content": ""}', "--project", places.workspace)
    assert run(*write, "--output", "json").json["effect"] == "ask"
    told = run(*write, "--mode", "accept-edits", "--output", "json").json
    assert told["effect"] == "allow"
    assert "mode:accept-edits" in told["reason"]


def test_rules_are_listed_and_one_is_shown_whole(run: Run, places: Places) -> None:
    (places.home / "policy").mkdir(parents=True)
    (places.home / "policy" / "mine.cedar").write_text('@id("my-own") forbid (principal, action == Action::"run-command", resource);')
    told = run("policy", "rules", "--output", "json").json
    assert {"unknown-tool", "read-outside", "my-own"} <= {rule["id"] for rule in told["rules"]}
    assert "my-own" in run("policy", "rules").out
    assert "forbid" in run("policy", "rules", "my-own").out
    assert run("policy", "rules", "nothing").code == 1


def test_a_corpus_is_run_and_what_differs_is_named(run: Run, places: Places, tmp_path: Path) -> None:
    inside = {"tool": "filesystem.read_file", "arguments": {"path": "a"}}
    session = {"workspace": str(places.workspace)}
    trials = [
        {"name": "free", "session": session, "call": inside, "expect": {"effect": "allow"}},
        {
            "name": "no such tool",
            "session": session,
            "call": {"tool": "x.y", "arguments": {}},
            "expect": {"effect": "deny", "because": ["unknown-tool"]},
        },
        {
            "name": "given",
            "resources": [{"role": "read-path", "value": "/etc/x"}],
            "expect": {"effect": "ask", "because": ["read-outside"]},
        },
    ]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("\n".join(map(json.dumps, trials)))
    assert run("policy", "test", corpus, "--output", "json").json == {"passed": 3, "failed": 0, "faults": []}
    corpus.write_text(json.dumps({"name": "wrong", "session": session, "call": inside, "expect": {"effect": "deny"}}))
    said = run("policy", "test", corpus)
    assert said.code == 1
    assert "wrong" in said.out
    assert "expected `deny`, got `allow`" in said.out
    corpus.write_text("{}")
    assert run("policy", "test", corpus).code == 1


def test_an_import_prints_rules_or_puts_them_into_place(run: Run, places: Places, tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"permissions": {"allow": ["Bash(git *)", "Odd(thing)"], "deny": ["Read(./secret/**)"]}}))
    said = run("policy", "import", settings)
    assert said.code == 0
    assert "permit" in said.out
    assert "note: " in said.err
    assert not places.home.exists()
    for name in ("claude.cedar", "claude-2.cedar"):
        written = run("policy", "import", settings, "--write")
        if name == "claude-2.cedar":
            assert written.code == 1, "the same rules twice do not load together"
            assert not (places.home / "policy" / name).exists()
        else:
            assert written.out == f"{places.home}/policy/{name}\n"
    verdict = run("policy", "explain", "shell.run", '{"command": "rm x"}', "--output", "json").json
    assert verdict["effect"] == "ask"
    settings.write_text("{")
    assert run("policy", "import", settings).code == 1
