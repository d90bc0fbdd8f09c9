"""`policy explain`, `rules`, `test` and `import`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.covers import covers
from tests.support.in_process import Places, Said
from tests.support.repository import ROOT

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
    said = run("policy", "test", corpus)
    assert (said.code, f"`{corpus}`: line 1 " in said.err) == (1, True)
    corpus.write_text("# nothing yet\n")
    said = run("policy", "test", corpus)
    assert (said.code, said.out, "holds no expected verdict" in said.err) == (1, "", True)


def test_an_import_prints_rules_or_puts_them_into_place(run: Run, places: Places, tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"permissions": {"allow": ["Bash(git *)", "Odd(thing)"], "deny": ["Read(./secret/**)"]}}))
    said = run("policy", "import", settings)
    assert said.code == 0
    assert "permit" in said.out
    assert "note: " in said.err
    assert not places.home.exists()
    assert run("policy", "import", settings, "--write").out == f"{places.home}/policy/claude.cedar\n"
    verdict = run("policy", "explain", "shell.run", '{"command": "rm x"}', "--output", "json").json
    assert verdict["effect"] == "ask"
    settings.write_text("{")
    assert run("policy", "import", settings).code == 1
    settings.write_text('{"teams": {}}')
    said = run("policy", "import", settings, "--name", "other", "--write")
    assert (said.code, said.out, "there is nothing to import" in said.err) == (1, "", True)


def test_an_explanation_says_that_a_project_is_judged_otherwise(run: Run, places: Places) -> None:
    write = ("policy", "explain", "filesystem.write_file", '{"path": "a", "content": "b"}')
    own = run(*write, "--workspace", places.workspace)
    assert own.out.startswith("allow")
    assert "as `start --workspace DIR` has it, is judged with `--project DIR`" in own.err
    project = run(*write, "--project", places.workspace)
    assert (project.out.startswith("ask"), project.err) == (True, "")


def test_a_second_import_says_what_to_do_and_takes_a_name(run: Run, places: Places, tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"permissions": {"allow": ["Bash(git *)"]}}))
    assert run("policy", "import", settings, "--write").code == 0
    again = run("policy", "import", settings, "--write")
    assert again.code == 1
    assert "claude.cedar` is there from an earlier import" in again.err
    assert "--name claude-2" in again.err
    settings.write_text(json.dumps({"permissions": {"allow": ["Bash(ls *)"]}}))
    assert run("policy", "import", settings, "--write", "--name", "claude-2").out == f"{places.home}/policy/claude-2.cedar\n"
    ids = [rule["id"] for rule in run("policy", "rules", "--output", "json").json["rules"]]
    assert {"claude-allow-1", "claude-2-allow-1"} <= {*ids}
    assert run("policy", "import", settings, "--name", "../x").code == 1


def test_an_import_says_which_directory_its_patterns_are_bound_to(run: Run, places: Places, tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"permissions": {"allow": ["Read(./src/**)"]}}))
    assert f"start in `{places.workspace}`" in run("policy", "import", settings).err
    assert f"start in `{places.user}`" in run("policy", "import", settings, "--workspace", places.user).err
    missing = run("policy", "import", settings, "--workspace", places.user / "nowhere")
    assert (missing.code, missing.out) == (2, "")
    settings.write_text(json.dumps({"permissions": {"allow": ["Read(//etc/hosts)", "Read(~/x)", "Bash(a)"]}}))
    assert "start in" not in run("policy", "import", settings).err


def test_an_allow_for_reading_leaves_allowed_commands_allowed(run: Run, places: Places, tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"permissions": {"allow": ["Read(./src/**)", "Bash(git *)"], "deny": ["Read(./secret/**)"]}}))
    assert run("policy", "import", settings, "--write").code == 0

    def effect(tool: str, **arguments: str) -> str:
        return run("policy", "explain", tool, json.dumps(arguments), "--output", "json").json["effect"]

    (places.workspace / "secret").mkdir()
    assert effect("shell.run", command="git status") == "allow"
    assert effect("shell.run", command="ls") == "ask"
    assert effect("shell.run", command="git status", cwd="/etc") == "ask"
    assert effect("shell.run", command="git status", cwd="secret") == "deny"
    assert effect("filesystem.read_file", path="src/a") == "allow"
    assert effect("filesystem.read_file", path="a") == "ask"


def effect_of(run: Run, tool: str, arguments: dict[str, object], *words: str | Path) -> tuple[str, list[str]]:
    told = run("policy", "explain", tool, json.dumps(arguments), "--output", "json", *words).json
    return told["effect"], told["because"]


def test_a_git_directory_of_another_name_cannot_be_built_file_by_file(run: Run, places: Places) -> None:
    accepting = ("--project", places.workspace, "--mode", "accept-edits")
    write = "filesystem.write_file"
    assert effect_of(run, write, {"path": "x/config", "content": ""}, *accepting)[0] == "allow"
    for name in ("objects", "refs"):
        assert effect_of(run, "filesystem.create_directory", {"path": f"x/{name}"}, *accepting)[0] == "allow"
        (places.workspace / "x" / name).mkdir(parents=True)
    (places.workspace / "plain").write_text("ref: refs/heads/main")
    assert "runs-later" in effect_of(run, write, {"path": "x/HEAD", "content": ""}, *accepting)[1]
    moved = {"source": "plain", "destination": "x/HEAD"}
    assert effect_of(run, "filesystem.move_file", moved, *accepting)[0] == "ask"
    (places.workspace / "x" / "HEAD").write_text("ref: refs/heads/main")
    for name in ("config", "hooks/pre-commit"):
        effect, because = effect_of(run, write, {"path": f"x/{name}", "content": ""}, *accepting)
        assert (effect, "runs-later" in because) == ("ask", True)
    assert effect_of(run, write, {"path": "x/config", "content": ""})[0] == "allow", "a workspace of its own is free"


def test_moving_a_directory_with_something_in_it_that_runs_later_asks(run: Run, places: Places) -> None:
    accepting = ("--project", places.workspace, "--mode", "accept-edits")
    (places.workspace / "a" / "b").mkdir(parents=True)
    moved = {"source": "a", "destination": "c"}
    assert effect_of(run, "filesystem.move_file", moved, *accepting)[0] == "allow"
    (places.workspace / "a" / "b" / ".envrc").write_text("")
    effect, because = effect_of(run, "filesystem.move_file", moved, *accepting)
    assert (effect, "runs-later" in because) == ("ask", True)


def test_a_path_inside_a_revision_is_judged_like_any_other(run: Run, places: Places, tmp_path: Path) -> None:
    rules = tmp_path / "mine.cedar"
    rules.write_text(
        f'@id("no-env") forbid (principal, action == Action::"read-path", resource) when {{ resource == Path::"{places.workspace}/.env" }};'
    )
    (places.workspace / ".git").mkdir()
    given = ("--policy", rules)
    assert effect_of(run, "git.show", {"ref": "HEAD"}, *given)[0] == "allow"
    assert effect_of(run, "git.show", {"ref": "HEAD:a.py"}, *given)[0] == "allow"
    for ref in ("HEAD:.env", ":.env", "HEAD:./.env", "HEAD~1:.env"):
        assert effect_of(run, "git.show", {"ref": ref}, *given) == ("deny", ["no-env"])
        assert effect_of(run, "git.diff", {"ref": ref}, *given) == ("deny", ["no-env"])
    assert effect_of(run, "git.show", {"ref": "HEAD:../x"}, *given) == ("deny", ["invalid-arguments"])


def test_an_explanation_names_hooks_labels_and_words_of_the_command_line(run: Run, places: Places) -> None:
    places.home.mkdir(mode=0o700)
    (places.home / "config.toml").write_text('[[hooks.PreToolUse]]\nmatcher = "Read"\nhooks = [{type = "command", command = "my-guard"}]\n')
    told = run("policy", "explain", "filesystem.read_file", '{"path": "/etc/.env"}', "--output", "json").json
    assert len(told["hooks"]) == 1
    assert "my-guard" in told["hooks"][0]
    assert "(PreToolUse) may deny it" in told["hooks"][0]
    assert any(label.startswith("`sensitive` is not in force; once permitted, this call sets it") for label in told["labels"])
    assert any("curtainwall approve ID" in change and "/approve ID" in change for change in told["changes"])
    text = run("policy", "explain", "filesystem.read_file", '{"path": "/etc/.env"}', "--labels", "untrusted-content").out
    assert "hooks that hear of it (none was run):" in text
    assert "`untrusted-content` is in force" in text
    other = run("policy", "explain", "filesystem.write_file", '{"path": "a", "content": ""}', "--output", "json").json
    assert other["hooks"] == []


def test_an_explanation_says_how_the_hooks_of_a_workspace_stand(run: Run, places: Places) -> None:
    (places.workspace / ".claude").mkdir()
    hooks = {"PreToolUse": [{"matcher": "*", "hooks": [{"type": "command", "command": "theirs"}]}]}
    (places.workspace / ".claude" / "settings.json").write_text(json.dumps({"hooks": hooks}))
    asked = ("policy", "explain", "filesystem.read_file", '{"path": "a"}', "--output", "json")
    assert "do not run" in run(*asked).json["hooks"][0]
    assert run("hooks", "trust", places.workspace, "--yes").code == 0
    assert "` of the workspace (PreToolUse)" in run(*asked).json["hooks"][0]


def test_an_unknown_tool_is_answered_with_those_that_are_like_it(run: Run, places: Places) -> None:
    for name, meant in (
        ("filesystem.readfile", "`filesystem.read_file`"),
        ("files.read_file", "`filesystem.read_file`"),
        ("read_file", "`filesystem.read_file`"),
        ("filesystem__write_file", "`filesystem.write_file`"),
        ("shell.exec", "`curtainwall tools list`"),
    ):
        told = run("policy", "explain", name, "{}", "--output", "json").json
        assert told["because"] == ["unknown-tool"]
        assert meant in told["changes"][0], name
        assert "tools list" in told["changes"][0]
    assert "did you mean `filesystem.read_file`" in run("tools", "show", "read_file").err
    bad = run("policy", "explain", "fetch.get", '{"url": 7}', "--output", "json").json
    assert "curtainwall tools show fetch.get" in bad["changes"][0]


def test_a_credential_that_there_is_not_is_told_beside_what_the_rules_say(run: Run, places: Places) -> None:
    places.home.mkdir(mode=0o700, exist_ok=True)
    (places.home / "config.toml").write_text('[credentials.forge]\nenv = "FORGE"\nhosts = ["a.org"]\n')
    call = ("policy", "explain", "fetch.get", '{"url": "https://a.org/x", "credential": "gone"}')
    words = "there is no credential `gone`, so the call would fail even if it was allowed; there are: forge"
    assert words in run(*call, "--output", "json").json["facts"]
    assert words in run(*call).out
    assert "there is no credential" not in run(*call[:-1], call[-1].replace("gone", "forge")).out


SPELLINGS = [
    "rm x", "/bin/rm x", "/usr/bin/rm -rf x", "./rm x", "bin/../rm x", "\\rm x", '"rm" x', "r''m x", "env rm x", "env -i A=b rm x",
    "/usr/bin/env rm x", "command rm x", "exec rm x", "exec -a ls rm x", "nice rm x", "nohup rm x", "time rm x", "timeout 5 rm x",
    "sudo rm x", "sudo -i rm x", "doas rm x", "ls | xargs rm", "ls | xargs -0 /bin/rm", "sh -c 'rm x'", "bash -lc '/bin/rm x'",
    "find . -exec rm {} \\;", "find . -exec rm {} \\; -exec ls \\;", "busybox rm x", "toybox rm x", "strace rm x", "R=rm; $R x",
    "p=/bin; $p/rm x", "$(echo rm) x", "{rm,-rf,x}", "alias q=rm", "trap 'rm x' EXIT", "eval 'rm x'", "ls; /bin/rm x",
    "if true; then /bin/rm x; fi", "f() { /bin/rm x; }; f", "cat <(/bin/rm x)", "echo `/bin/rm x`", "! rm x", "env -S 'rm x'", "r\\\nm x",
]  # fmt: skip
"""Ways to run `rm` that can be told from what is written."""


@covers("policy.a-forbidden-program-has-one-name")
@pytest.mark.parametrize("how", ["imported", "written"])
def test_a_program_that_is_forbidden_by_name_is_refused_however_it_is_spelt(run: Run, places: Places, tmp_path: Path, how: str) -> None:
    if how == "imported":
        settings = tmp_path / "settings.json"
        settings.write_text(json.dumps({"permissions": {"allow": ["Bash(*)"], "deny": ["Bash(rm *)"]}}))
        said = run("policy", "import", settings, "--write")
        assert "under any path, and for what known launchers run" in said.err
        assert "does not hold for a copy or link of it under another name" in said.err
    else:
        (places.home / "policy").mkdir(parents=True)
        rule = '@id("no-rm") forbid (principal, action == Action::"run-command", resource in Program::"rm");'
        (places.home / "policy" / "mine.cedar").write_text(rule)
    for command in SPELLINGS:
        told = run("policy", "explain", "shell.run", json.dumps({"command": command}), "--output", "json").json
        assert told["effect"] == "deny", command
    for command in ("ls x", "grep rm notes", "warm x", "git rm x", "/opt/warm x"):
        told = run("policy", "explain", "shell.run", json.dumps({"command": command}), "--output", "json").json
        assert told["effect"] == "allow", command


@covers("policy.a-forbidden-program-has-one-name")
def test_a_program_that_is_allowed_by_name_is_not_allowed_by_any_other(run: Run, places: Places, tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"permissions": {"allow": ["Bash(git *)", "Bash(./scripts/test.sh *)"]}}))
    assert run("policy", "import", settings, "--write").code == 0
    expected = {
        "git log": "allow", "./scripts/test.sh x": "allow", "/tmp/git log": "ask", "./git log": "ask", "test.sh x": "ask",
        "other/test.sh x": "ask", "PATH=/tmp git log": "ask", "env PATH=/tmp git log": "ask",
    }  # fmt: skip
    for command, effect in expected.items():
        told = run("policy", "explain", "shell.run", json.dumps({"command": command}), "--output", "json").json
        assert told["effect"] == effect, command


def test_an_import_says_what_a_deny_for_a_command_does_not_catch(run: Run, places: Places, tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"permissions": {"deny": ["Bash(git push *)", "Bash(/bin/dd *)", "Bash(curl:*)"]}}))
    said = run("policy", "import", settings).err
    assert "deny `Bash(git push *)` goes by the words as written" in said
    assert "deny `Bash(/bin/dd *)` holds for that path alone" in said
    assert "`Bash(curl:*)`" not in said


def test_the_rule_that_the_documentation_names_refuses_what_cannot_be_parsed(run: Run, places: Places) -> None:
    (places.home / "policy").mkdir(parents=True)
    page = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
    rule = next(block for block in page.split("```cedar\n") if block.startswith('@id("no-curl")')).partition("```")[0]
    (places.home / "policy" / "mine.cedar").write_text(rule)
    for command in ("/usr/bin/curl x", "echo Y3VybA== | base64 -d | sh", "a=cu; b=rl; $a$b x"):
        told = run("policy", "explain", "shell.run", json.dumps({"command": command}), "--output", "json").json
        assert told["effect"] == "deny", command


def test_an_explanation_names_the_program_that_a_path_counts_as(run: Run, places: Places) -> None:
    told = run("policy", "explain", "shell.run", json.dumps({"command": "/bin/rm x"}), "--output", "json").json
    assert any("rules that forbid `rm` hold for it" in fact for fact in told["facts"])
