"""Cards: what an agent wrote cannot act, hide or pretend, and what is cut is said to be."""

import pytest

from curtainwall.model import (
    ApprovalAsked,
    CallRequested,
    Cover,
    Effect,
    Finding,
    Label,
    LabelSource,
    Mode,
    Role,
    RuleId,
    Subject,
    Verdict,
    Workspace,
)
from curtainwall.session import card_text, covers_of, inert, shows_all
from tests.support.covers import covers
from tests.support.given import OWN, PROJECT, asked, fetch_with_key, given, read, ready, run, source, wish, write

ASKS = RuleId("read-outside")


def asking(subject: Subject) -> Verdict:
    findings = tuple(Finding(resource=place, effect=Effect.ASK, because=(ASKS,)) for place in range(1, len(subject.resources)))
    return Verdict(effect=Effect.ASK, because=(ASKS,), findings=findings)


def card(subject: Subject, reason: str = "", labels: dict[Label, LabelSource] | None = None) -> str:
    return card_text(subject, covers_of(asking(subject), subject), reason, labels or {})


def test_a_card_says_who_wants_what_because_of_which_rules() -> None:
    subject = read("/etc/a", "/etc/b").model_copy(update={"raw": {"paths": ["~/x"]}})
    labels = {
        Label("sensitive"): source("sensitive", "/srv/own/.env", "c0"),
        Label("untrusted-content"): source("untrusted-content", "a parent"),
    }
    assert card(subject, "other files may be private", labels).splitlines() == [
        "tool: filesystem.read_multiple_files",
        "wants read-path /etc/a (read-outside)",
        "wants read-path /etc/b (read-outside)",
        "because other files may be private",
        "label sensitive was set by call c0 (/srv/own/.env)",
        "label untrusted-content was set by a parent",
        "as written:",
        '  paths: ["~/x"]',
        "would run as:",
        '  paths: ["/etc/a", "/etc/b"]',
    ]


def test_a_card_about_a_credential_alone_says_how_long_a_yes_holds() -> None:
    def shown(subject: Subject, rule: str, *places: int) -> list[str]:
        findings = tuple(Finding(resource=place, effect=Effect.ASK, because=(RuleId(rule),)) for place in places)
        verdict = Verdict(effect=Effect.ASK, because=(RuleId(rule),), findings=findings)
        return card_text(subject, covers_of(verdict, subject), "", {}).splitlines()

    words = "a yes holds for the rest of this session"
    subject = fetch_with_key("example.org", "github")
    assert shown(subject, "credential-asks", 2)[:3] == ["tool: fetch.get", "wants use-credential github (credential-asks)", words]
    assert words not in shown(subject, "credential-asks", 1, 2)
    assert words not in shown(subject, "mine", 2)


@pytest.mark.parametrize(
    ("workspace", "mode", "is_told"),
    [(PROJECT, Mode.DEFAULT, True), (PROJECT, Mode.ACCEPT_EDITS, False), (OWN, Mode.DEFAULT, False)],
)
def test_the_card_of_a_command_says_where_the_project_will_be_read_only_for_it(workspace: Workspace, mode: Mode, is_told: bool) -> None:
    subject = run("cp /etc/hosts hosts")
    subject = subject.model_copy(update={"resources": (*subject.resources, *read("/etc/hosts").resources[1:])})
    here = given(ready(workspace, mode)).when(asked(wish("c", subject))).then(CallRequested, ApprovalAsked)
    (open_,) = here.state.approvals.values()
    words = "the project is read-only for this command until edits are granted as a whole (`/mode accept-edits`)"
    assert (words in open_.asked.shown.split("\nas written:")[0].split("\n")) == is_told


def test_arguments_are_shown_once_where_they_are_canonical() -> None:
    assert "would run as" not in card(read("/etc/a"))


@covers("session.cards-are-inert")
@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("a\x1b]0;title\x07b", r"a\x1b]0;title\x07b"),
        ("a\rwants nothing", r"a\rwants nothing"),
        ("a\nwants read-path /etc/ok (fine)", r"a\nwants read-path /etc/ok (fine)"),
        ("a\x0b\x0c\x85\u2028\u2029b", r"a\x0b\x0c\x85\u2028\u2029b"),
        ("a\u202egpj.exe", r"a\u202egpj.exe"),
        ("\u2066\u2067\u2068\u2069\u200e\u200f\u061c", r"\u2066\u2067\u2068\u2069\u200e\u200f\u061c"),
        ("a\u200b\u200c\u200d\u2060\ufeffb", r"a\u200b\u200c\u200d\u2060\ufeffb"),
        ("a\u00a0\u2003\u3000b", r"a\xa0\u2003\u3000b"),
        ("a\u00adb", r"a\xadb"),
        ("\u115f\u1160\u3164\uffa0\u2800", r"\u115f\u1160\u3164\uffa0\u2800"),
        ("a\ufe0f\U000e0100\u034fb", r"a\ufe0f\U000e0100\u034fb"),
        ("a\U000e0041\U000e007f", r"a\U000e0041\U000e007f"),
        ("\ud800", r"\ud800"),
        ("\x00\x7f\x9b", r"\x00\x7f\x9b"),
        ("\ue000\uffff", r"\ue000\uffff"),
        ("e" + "\u0301" * 6, "e" + "\u0301" * 3 + r"\u0301\u0301\u0301"),
    ],
)
def test_what_the_agent_wrote_cannot_act_or_hide(hostile: str, shown: str) -> None:
    assert inert(hostile) == shown


@pytest.mark.parametrize("text", ["plain text", "naïve Straße", "日本語", "файл", "नमस्ते", "😀", "e\u0301", "a (b) `c` \\d"])
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert inert(text) == text


@covers("session.cards-are-in-order")
@pytest.mark.parametrize("letters", ["\u05d0\u05d1", "\u0627\u0628", "\u0661\u0662", "\U00010840"])
def test_letters_from_right_to_left_move_nothing_on_a_card(letters: str) -> None:
    escaped = letters.encode("unicode_escape").decode()
    path, line = f"/etc/{letters}/1/x", f"rm {letters} 1 x"
    told = card(read(path), f"because of {path}", {Label("sensitive"): source("sensitive", path, "c0")})
    assert told.count(f"/etc/{escaped}/1/x") >= 4
    assert letters not in told
    told = card(run(line))
    assert f"rm {escaped} 1 x" in told
    assert letters not in told


@covers("session.cards-are-in-order")
def test_a_value_that_becomes_too_long_in_its_order_is_not_shown_whole() -> None:
    assert not shows_all([Cover(role=Role.READ_PATH, value="\u05d0" * 400, rules=(ASKS,))])
    assert shows_all([Cover(role=Role.READ_PATH, value="\u05d0" * 300, rules=(ASKS,))])


@covers("session.cards-are-inert")
@pytest.mark.parametrize("hostile", ["x\nbecause it is safe", "x\r\ntool: other", "x\u2028label a was set by b", "x\x85as written:"])
def test_nothing_on_a_card_can_begin_a_line_of_its_own(hostile: str) -> None:
    label = Label(f"sensitive{hostile}")
    rule = RuleId(f"hook:{hostile}")
    subject = read(f"/etc/{hostile}").model_copy(
        update={"tool": f"a.{hostile}", "raw": {hostile: hostile}, "canonical": {hostile: {"deep": [hostile]}}}
    )
    verdict = Verdict(
        effect=Effect.ASK, because=(rule,), reason=hostile, findings=(Finding(resource=1, effect=Effect.ASK, because=(rule,)),)
    )
    lines = card_text(subject, covers_of(verdict, subject), hostile, {label: source(label, hostile, f"c{hostile}")}).splitlines()
    assert [line.split()[0] for line in lines] == [
        "tool:",
        "wants",
        "a",
        "because",
        "label",
        "as",
        lines[6].split()[0],
        "would",
        lines[8].split()[0],
    ]
    assert lines[6].startswith("  x")
    assert lines[8].startswith("  x")


@covers("session.cuts-are-stated")
def test_a_long_value_is_cut_in_the_middle_and_says_so() -> None:
    shown = inert("a" * 1_500 + "b" * 1_500)
    assert shown.startswith("a" * 1_000 + " …[1000 characters cut]… ")
    assert shown.endswith("b" * 1_000)
    assert inert("a" * 2_000) == "a" * 2_000


@covers("session.cuts-are-stated")
def test_a_flood_of_resources_does_not_hide_the_rest_of_the_card() -> None:
    paths = [f"/etc/{number:0100}" for number in range(250)]
    shown = card(read(*paths), "other files may be private").splitlines()
    wants = [line for line in shown if line.startswith("wants")]
    assert shown[len(wants) + 1] == f"…[{250 - len(wants)} more are not shown]…"
    assert shown[len(wants) + 2] == "because other files may be private"
    assert sum(map(len, shown)) < 30_000


@covers("session.cuts-are-stated")
def test_a_flood_of_arguments_is_cut_and_says_so() -> None:
    subject = write("/etc/a").model_copy(update={"raw": {f"argument{number}": "x" * 1_000 for number in range(100)}})
    shown = card(subject).splitlines()
    assert "…[93 more are not shown]…" in shown
    assert shown[1] == "wants write-path /etc/a (read-outside)"
    assert shown[-1] == '  content: "x"'


def test_a_card_shows_all_only_where_nothing_is_cut() -> None:
    def covers_(*values: str) -> list[Cover]:
        return [Cover(role=Role.READ_PATH, value=value, rules=(ASKS,)) for value in values]

    assert shows_all(covers_("/etc/a", "/etc/b"))
    assert shows_all(covers_("x" * 2_000))
    assert not shows_all(covers_("x" * 2_001))
    assert not shows_all(covers_("\x1b" * 501))
    assert not shows_all(covers_(*["x" * 1_000] * 12))
    assert shows_all(covers_(*["x" * 1_000] * 11))
