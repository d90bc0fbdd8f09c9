"""Claude Code's permission lists become rules that are never looser than they were."""

import pytest
from pydantic import JsonValue

from curtainwall.model import Broken, Effect, Mode, Resource, Role, Scope, Subject, SubjectKind, ToolEffect
from curtainwall.policy import Lists, Policy, Protection, RuleSource, import_permissions, judge, load, shipped
from curtainwall.policy.claude_permissions import any_of, literal, pattern
from tests.support.policies import call, command, plain, read, session, subject, tool, url, write

OPEN = Lists(hosts=("*",))


def imported(
    *, allow: list[str] | None = None, ask: list[str] | None = None, deny: list[str] | None = None, home: str = "/home/ann"
) -> Policy:
    lists: JsonValue = {"permissions": {"allow": [*(allow or [])], "ask": [*(ask or [])], "deny": [*(deny or [])]}}
    rules = import_permissions(lists, workspace="/w", home=home).cedar_text
    return load((*shipped(), RuleSource("claude.cedar", rules, user=True)), lists=OPEN, protection=Protection())


def notes(*, home: str = "", **lists: list[str]) -> str:
    return "\n".join(import_permissions({name: [*texts] for name, texts in lists.items()}, workspace="/w", home=home).notes)


def effect(policy: Policy, *resources: Resource) -> Effect:
    return judge(policy, subject(*resources, kind=SubjectKind.EGRESS), session()).effect


def runs(policy: Policy, *commands: str, parsed: bool = True) -> str:
    return effect(policy, *(command(text, parsed=parsed) for text in commands)).value


def test_commands_are_judged_one_by_one() -> None:
    policy = imported(allow=["Bash(git *)"])
    assert runs(policy, "git status") == "allow"
    assert runs(policy, "git") == "allow"
    assert runs(policy, "git status", "rm -rf /") == "ask"
    assert runs(policy, "git status\nrm x") == "ask"
    assert runs(policy, "git $(rm x)", "rm x") == "ask"
    assert runs(policy, "git status", parsed=False) == "ask"
    assert runs(policy, "gitk") == "ask"
    assert runs(policy, "ls") == "ask"


@pytest.mark.parametrize(
    ("entry", "yes", "no"),
    [
        ("Bash", ["ls", "rm -rf /"], []),
        ("Bash(*)", ["ls", "rm -rf /"], []),
        ("Bash(npm run test:*)", ["npm run test", "npm run test unit"], ["npm run testing", "npm run"]),
        ("Bash(ls*)", ["ls", "lsof"], ["xls"]),
        ("Bash(npm run build)", ["npm run build"], ["npm run build x", "npm run"]),
        ("Bash(git * main)", ["git push main", "git x y main"], ["git push dev", "git main x"]),
        ("Bash(* --version)", ["node --version"], ["node --versions"]),
        ("Bash(* x:*)", ["a x", "b x c"], ["x"]),
        ("Bash(echo \"a\" 'b')", ["echo \"a\" 'b'"], ["echo a b"]),
    ],
)
def test_patterns_of_commands(entry: str, yes: list[str], no: list[str]) -> None:
    allowing, denying = imported(allow=[entry]), imported(allow=["Bash"], deny=[entry])
    for text in yes:
        assert (runs(allowing, text), runs(denying, text)) == ("allow", "deny"), text
    for text in no:
        assert (runs(allowing, text), runs(denying, text)) == ("ask", "allow"), text


def test_a_deny_also_holds_for_what_cannot_be_parsed() -> None:
    assert runs(imported(allow=["Bash"], deny=["Bash(rm *)"]), "if rm", parsed=False) == "deny"
    assert runs(imported(allow=["Bash"], ask=["Bash(rm *)"]), "if rm", parsed=False) == "ask"
    assert runs(imported(allow=["Bash"], ask=["Bash(rm *)"]), "rm x") == "ask"
    assert runs(imported(allow=["Bash"], deny=["Bash(rm:*)"]), "rm\tx") == "deny"


def test_a_deny_goes_before_an_ask_and_an_ask_before_an_allow() -> None:
    policy = imported(allow=["Bash(git *)"], ask=["Bash(git push *)"], deny=["Bash(git push --force*)"])
    assert [runs(policy, text) for text in ("git log", "git push", "git push --force x")] == ["allow", "ask", "deny"]


@pytest.mark.parametrize(
    ("entry", "yes", "no"),
    [
        ("Read", ["/w/a", "/etc/x"], []),
        ("Read(src/**)", ["/w/src/a", "/w/src/a/b.c"], ["/w/srcx/a", "/w/a", "/src/a"]),
        ("Read(./src/**)", ["/w/src/a"], ["/w/x/src/a"]),
        ("Read(src)", ["/w/src", "/w/src/a", "/w/x/src/b"], ["/w/srcs"]),
        ("Read(.env)", ["/w/.env", "/w/a/b/.env"], ["/w/.env2", "/x/.env"]),
        ("Read(**/.env)", ["/w/.env", "/w/a/.env"], ["/w/x.env"]),
        ("Read(*.py)", ["/w/a.py", "/w/b/c.py"], ["/w/a.pyc", "/a.py"]),
        ("Read(**/*.py)", ["/w/a.py", "/w/b/c.py"], ["/w/a.pyc"]),
        ("Read(docs/**/*.md)", ["/w/docs/a.md", "/w/docs/b/c.md"], ["/w/a.md", "/w/docs/a.txt"]),
        ("Read(//etc/hosts)", ["/etc/hosts"], ["/w/etc/hosts", "/etc/hosts2"]),
        ("Read(//var/log/**)", ["/var/log/a/b"], ["/var/logs"]),
        ("Read(~/notes/**)", ["/home/ann/notes/a"], ["/w/notes/a", "/home/bob/notes/a"]),
        ("Read(a/./b//c)", ["/w/a/b/c"], ["/w/b/c"]),
        ("Glob(src/**)", ["/w/src/a"], ["/w/b"]),
        ("Read(**/secrets/**)", ["/w/secrets/a", "/w/x/secrets/b/c"], ["/w/secretsx/a"]),
    ],
)
def test_patterns_of_paths(entry: str, yes: list[str], no: list[str]) -> None:
    allowing, denying = imported(allow=[entry]), imported(allow=["Read"], deny=[entry])
    for text in yes:
        assert (effect(allowing, read(text)), effect(denying, read(text))) == (Effect.ALLOW, Effect.DENY), text
    for text in no:
        assert (effect(allowing, read(text)), effect(denying, read(text))) == (Effect.ASK, Effect.ALLOW), text


def test_one_star_stays_in_its_directory() -> None:
    policy = imported(allow=["Edit(docs/*.md)", "Edit(a/*/c)"])
    paths = {"/w/docs/a.md": "allow", "/w/docs/b/c.md": "ask", "/w/a/b/c": "allow", "/w/a/b/b/c": "ask", "/w/a/b/c/d": "ask"}
    assert {path: effect(policy, write(path)).value for path in paths} == paths


def test_what_a_deny_cannot_say_exactly_it_says_more_widely() -> None:
    for entry, hit in {
        "Read(a/*/b/**)": "/w/a/x/b/c",
        "Read(file?.txt)": "/w/x/file1.txt",
        "Read([ab].txt)": "/w/a.txt",
        "Read(a\\*b)": "/w/a*b",
        "Read(/etc/**)": "/etc/shadow",
        "Read(../secret/**)": "/secret/x",
        "Read(*)": "/etc/passwd",
        "Read(**/a/**/b/**/c/**/d)": "/w/a/b/c/d",
        "Read(**/foo*.c)": "/w/x/foo1.c",
        "Read()": "/w/a",
        "Read(a": "/w/a",
    }.items():
        assert effect(imported(allow=["Read"], deny=[entry]), read(hit)) is Effect.DENY, entry
    assert effect(imported(allow=["Read"], deny=["Read(~/.ssh/**)"], home=""), read("/home/ann/.ssh/id")) is Effect.DENY
    assert effect(imported(allow=["Read"], deny=["Read(!a)"]), read("/w/a")) is Effect.ALLOW
    assert runs(imported(allow=["Bash"], deny=["Bash(rm\\ x)"]), "rm x") == "deny"


@pytest.mark.parametrize(
    "entry",
    ["Read(a/*/b/**)", "Read(file?.txt)", "Read([ab].txt)", "Read(../x)", "Read(!a)", "Read(**/foo*.c)", "Read()",
     "Read(a", "Bash()", "Bash(a\\ b)", "Bash(x",
     "WebFetch(https://a.com)", "WebFetch(domain:bücher.de)", "WebSearch", "Task",
     "*", "(", "", "mcp__*", "mcp__a b", "mcp__a__b(c)", "Ba*"],
)  # fmt: skip
def test_what_an_allow_cannot_say_exactly_is_left_out_and_reported(entry: str) -> None:
    policy = imported(allow=[entry, "Read(none)"])
    assert f"allow `{entry}` is left out and asks: " in notes(allow=[entry])
    for resource in (read("/w/a/x/b/c"), read("/w/file1.txt"), command("a b"), url("a.com"), tool("a.b", ToolEffect.INSPECT)):
        assert effect(policy, resource) is Effect.ASK


def test_an_allow_of_everything_below_covers_the_workspace_alone() -> None:
    policy = imported(allow=["Read(**)"])
    assert (effect(policy, read("/w/a")), effect(policy, read("/etc/a"))) == (Effect.ALLOW, Effect.ASK)
    assert "as an allow it covers the workspace alone" in notes(allow=["Read(**)"])


def test_the_root_as_workspace() -> None:
    text = import_permissions({"allow": ["Read(src/**)"]}, workspace="/").cedar_text
    assert 'Path::"/src"' in text


def test_edits_do_not_cover_deleting() -> None:
    policy = imported(allow=["Edit"], deny=["Write(keep/**)"])
    delete = plain(Role.DELETE_PATH, "/w/a")
    assert effect(policy, write("/w/a")) is Effect.ALLOW
    assert effect(policy, delete) is Effect.ASK
    assert effect(policy, plain(Role.DELETE_PATH, "/w/keep/a")) is Effect.DENY
    assert effect(imported(), write("/w/a")) is Effect.ASK


@pytest.mark.parametrize(
    ("entry", "yes", "no"),
    [
        ("WebFetch", ["a.com"], []),
        ("WebFetch(*)", ["a.com"], []),
        ("WebFetch(domain:A.com.)", ["a.com"], ["b.com"]),
        ("WebFetch(domain:*.a.com)", ["x.a.com"], ["b.com"]),
        ("WebFetch(domain:*)", ["a.com", "b.org"], []),
    ],
)
def test_patterns_of_hosts(entry: str, yes: list[str], no: list[str]) -> None:
    allowing, denying = imported(allow=[entry]), imported(allow=["WebFetch"], deny=[entry])
    for host in yes:
        assert (effect(allowing, url(host)), effect(denying, url(host))) == (Effect.ALLOW, Effect.DENY)
    for host in no:
        assert (effect(allowing, url(host)), effect(denying, url(host))) == (Effect.ASK, Effect.ALLOW)


def test_hosts_stay_what_they_are() -> None:
    policy = imported(allow=["WebFetch(domain:a.com)", "WebFetch(domain:*.b.com)"], deny=["WebFetch(domain:c.com)"])
    assert effect(policy, url("x.a.com")) is Effect.ASK
    assert effect(policy, url("b.com")) is Effect.ASK
    assert effect(policy, url("x.c.com")) is Effect.DENY
    assert effect(policy, url("a.com", role=Role.SEND_URL)) is Effect.ASK
    assert effect(policy, url("c.com", role=Role.SEND_URL)) is Effect.DENY
    assert effect(imported(allow=["WebFetch"]), url("intranet", scope=Scope.PRIVATE)) is Effect.ASK


def test_tools_of_servers() -> None:
    policy = imported(
        allow=["mcp__github__get_issue", "mcp__files__read_*", "mcp__notes", "mcp__todo__*"], deny=["mcp__github__delete", "Task"]
    )
    tools = {
        "github.get_issue": "allow",
        "github.get_issues": "ask",
        "github.delete": "deny",
        "files.read_a": "allow",
        "files.write_a": "ask",
        "notes.x": "allow",
        "todo.x": "allow",
        "other.x": "ask",
        "any.Task": "deny",
        "filesystem.read_file": "allow",
        "session.remember": "allow",
    }
    assert {name: effect(policy, tool(name)).value for name in tools} == tools
    assert effect(imported(deny=["mcp__*"]), tool("a.b")) is Effect.DENY
    assert effect(imported(deny=["mcp__*"]), tool("git.status")) is Effect.ALLOW
    assert effect(imported(deny=["mcp__a__b(c)"]), tool("a.b")) is Effect.DENY
    assert effect(imported(deny=["*"]), tool("git.status")) is Effect.DENY


def test_plan_mode_is_not_lifted_by_an_allow_list() -> None:
    asked: Subject = call(write("/w/a"), name="filesystem.write_file", effect=ToolEffect.MODIFY)
    assert judge(imported(allow=["Edit", "Write"]), asked, session(mode=Mode.PLAN)).because == ("plan-reads-only",)


@pytest.mark.parametrize(
    "settings",
    [
        None,
        [],
        "x",
        {"permissions": []},
        {"permissions": {"allow": "Bash"}},
        {"allow": [1]},
        {"deny": ["\ud800"]},
        {"deny": ["("]},
        {"ask": [""]},
        {"deny": ["(x)"]},
    ],
)
def test_settings_that_cannot_be_read_are_refused(settings: JsonValue) -> None:
    with pytest.raises(Broken):
        import_permissions(settings, workspace="/w")


def test_paths_must_be_canonical() -> None:
    with pytest.raises(Broken, match="canonical"):
        import_permissions({}, workspace="w")
    with pytest.raises(Broken, match="canonical"):
        import_permissions({}, workspace="/w", home="~")


def test_what_else_stands_in_the_settings_is_reported() -> None:
    told = import_permissions(
        {"permissions": {"defaultMode": "bypassPermissions", "deny": ["Read(.env)"]}, "env": {}}, workspace="/w"
    ).notes
    assert told == (
        "patterns without `//` or `~/` start in `/w`, and hold for no other directory",
        "`defaultMode` is not imported; modes and directories are set in our own config",
        "a deny for reading binds the file tools; a shell command still sees whatever the workspace holds",
    )


def test_long_lists_load() -> None:
    policy = imported(allow=[f"Bash(tool{number} *)" for number in range(600)])
    assert runs(policy, "tool599 x") == "allow"


def test_a_title_is_cut() -> None:
    assert "…" not in import_permissions({"allow": ["Bash(x)"]}, workspace="/w").cedar_text
    assert f"{'x' * 60}" in import_permissions({"allow": [f"Bash({'x' * 500})"]}, workspace="/w").cedar_text


def test_words_stay_inside_their_quotes() -> None:
    assert literal('a"b\\c') == r'"a\u{22}b\u{5c}c"'
    assert pattern(["a*", None, "\n"]) == r'"a\**\u{a}"'
    assert any_of([]) == "false"
    assert any_of(["a", "b", "c"]) == "(a || (b || c))"
    with pytest.raises(ValueError, match="half a character"):
        literal("\ud800")
