"""Rule files of one team, job or webhook: found by the configuration, shown with whom they hold for, and refused with what to do."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from curtainwall.compose.gate import open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.model import Broken, CallRequest, Effect, SessionId, Who
from curtainwall.operations.explanations import Explanations
from curtainwall.operations.fork import fork
from curtainwall.operations.open import SessionSpec, open_new, reset
from tests.support.covers import covers
from tests.support.in_process import Places, Said

Run = Callable[..., Said]

JOB = '[cron.NAME]\nschedule = "0 3 * * *"\ninstructions = "go"\n'
FORBID = '@id("no-writing") @title("Nothing is written") forbid (principal, action == Action::"write-path", resource);\n'
CRON = Who(name="strict", channel="cron")
HOOK = '[webhooks.hooks.NAME]\nsecret-env = "CI_SECRET"\nprompt = "go"\n'
SENDER = Who(name="strict", channel="webhook")
LOOK = CallRequest(tool="filesystem.list_directory", arguments={"path": "."})
WRITE = CallRequest(tool="filesystem.write_file", arguments={"path": "a.txt", "content": "x"})


def configured(places: Places, text: str, *, jobs: tuple[str, ...] = ("strict",), file: Path | None = None) -> Path:
    """Let jobs have a rule file of their own, and one job have none."""
    own = file or places.user / "own.cedar"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(text)
    places.home.mkdir(mode=0o700, exist_ok=True)
    tables = "".join(f'{JOB.replace("NAME", name)}policy = "{own}"\n' for name in jobs)
    (places.home / "config.toml").write_text(tables + JOB.replace("NAME", "free"))
    return own


@covers("cron.a-job-has-rules-of-its-own")
def test_the_rules_of_a_job_hold_in_its_sessions_and_in_what_comes_of_them_and_in_no_other(places: Places) -> None:
    configured(places, FORBID)

    async def story() -> None:
        async with open_gate(load_setup()) as wired:
            explanations = Explanations(wired.sessions)

            def has_it(session: SessionId) -> bool:
                return "no-writing" in [it.rule for it in explanations.rules(session)]

            strict = await open_new(wired.sessions, SessionSpec("demo", job="strict"), CRON)
            free = await open_new(wired.sessions, SessionSpec("demo", job="free"), CRON)
            copy = (await fork(wired.sessions, strict, Who(name="ann"))).session
            fresh = await reset(wired.sessions, strict, Who(name="ann"))
            assert [has_it(session) for session in (strict, copy, fresh, free)] == [True, True, True, False]
            versions = {
                session: opened.policy for session in (strict, copy, fresh, free) if (opened := wired.sessions.state(session).opened)
            }
            assert len({versions[session] for session in (strict, copy, fresh)}) == 1
            assert versions[free] == wired.setup.policy.version != versions[strict]

    asyncio.run(story())


@covers("cron.a-job-has-rules-of-its-own")
@pytest.mark.parametrize("left", ["", JOB.replace("NAME", "renamed")], ids=["taken away", "renamed"])
def test_sessions_of_a_job_that_is_gone_do_nothing_until_it_is_back(places: Places, left: str) -> None:
    configured(places, FORBID)
    before = (places.home / "config.toml").read_text()

    async def story() -> None:
        async with open_gate(load_setup()) as wired:
            strict = await open_new(wired.sessions, SessionSpec("demo", job="strict"), CRON)
            copy = (await fork(wired.sessions, strict, Who(name="ann"))).session
            assert (await wired.gate.request(strict, LOOK)).verdict.effect is Effect.ALLOW
            (places.home / "config.toml").write_text(left)
            wired.active.take(load_setup())
            other = await open_new(wired.sessions, SessionSpec("demo"), Who(name="ann"))
            for session in (strict, copy):
                denied = (await wired.gate.request(session, LOOK)).verdict
                assert (denied.effect, denied.because) == (Effect.DENY, ("job-gone",))
                assert "put `cron.strict` back, or begin a new session" in denied.reason
            assert (await wired.gate.request(other, LOOK)).verdict.effect is Effect.ALLOW
            (places.home / "config.toml").write_text(before)
            wired.active.take(load_setup())
            assert (await wired.gate.request(strict, LOOK)).verdict.effect is Effect.ALLOW

    asyncio.run(story())


@covers("webhook.rules-of-its-own")
def test_the_rules_of_a_webhook_hold_in_its_sessions_and_in_what_comes_of_them_and_in_no_other(places: Places, run: Run) -> None:
    own = places.user / "own.cedar"
    own.write_text(FORBID)
    places.home.mkdir(mode=0o700)
    # A job of the same name is another thing.
    tables = f'{HOOK.replace("NAME", "strict")}policy = "{own}"\n{HOOK.replace("NAME", "free")}{JOB.replace("NAME", "strict")}'
    (places.home / "config.toml").write_text(tables)

    async def story() -> None:
        async with open_gate(load_setup()) as wired:

            async def effect(session: SessionId, request: CallRequest) -> tuple[Effect, tuple[str, ...]]:
                verdict = (await wired.gate.request(session, request)).verdict
                return verdict.effect, verdict.because

            strict = await open_new(wired.sessions, SessionSpec("demo", hook="strict"), SENDER)
            copy = (await fork(wired.sessions, strict, Who(name="ann"))).session
            fresh = await reset(wired.sessions, strict, Who(name="ann"))
            for session in (strict, copy, fresh):
                assert await effect(session, WRITE) == (Effect.DENY, ("no-writing",))
                opened = wired.sessions.state(session).opened
                assert opened is not None
                assert opened.policy != wired.setup.policy.version, "the log tells that other rules hold"
            free = [
                await open_new(wired.sessions, wanted, SENDER)
                for wanted in (SessionSpec("demo", hook="free"), SessionSpec("demo", job="strict"))
            ]
            assert [(await effect(session, WRITE))[0] for session in free] == [Effect.ALLOW, Effect.ALLOW]
            (places.home / "config.toml").write_text(tables.replace("hooks.strict", "hooks.renamed"))
            wired.active.take(load_setup())
            for session in (strict, copy):
                denied = (await wired.gate.request(session, LOOK)).verdict
                assert (denied.effect, denied.because) == (Effect.DENY, ("webhook-gone",))
                assert "put `webhooks.hooks.strict` back" in denied.reason
            assert (await effect(free[1], LOOK))[0] is Effect.ALLOW
            (places.home / "config.toml").write_text(tables)
            wired.active.take(load_setup())
            assert (await effect(strict, LOOK))[0] is Effect.ALLOW

    asyncio.run(story())
    assert [it["for"] for it in run("policy", "rules", "--output", "json").json["rules"] if it["id"] == "no-writing"] == ["webhook strict"]
    verdict = run("policy", "explain", "filesystem.read_file", f'{{"path": "{own}"}}', "--output", "json").json
    assert verdict["because"] == ["protected-path"], "no agent can touch the file"
    own.write_text('@id("more") permit (principal, action, resource);')
    with pytest.raises(Broken, match=r"`webhooks\.hooks\.strict\.policy`: `\S+own\.cedar`, line 1, rule `more`: .* only narrows"):
        load_setup()


def test_the_list_of_rules_and_the_list_of_jobs_tell_whose_they_are(places: Places, run: Run) -> None:
    own = configured(places, FORBID, jobs=("strict", "weekly"))
    assert [it["for"] for it in run("policy", "rules", "--output", "json").json["rules"] if it["id"] == "no-writing"] == [
        "job strict, job weekly"
    ]
    assert f"{own}, for job strict, job weekly" in run("policy", "rules").out
    assert "Nothing is written" in run("policy", "rules", "no-writing").out
    assert {it["job"]: it["policy"] for it in run("cron", "list", "--output", "json").json} == {
        "free": "", "strict": str(own), "weekly": str(own),
    }  # fmt: skip
    assert str(own) in run("cron", "list").out


@covers("policy.own-files-only-narrow")
def test_no_agent_can_touch_the_file(places: Places, run: Run) -> None:
    own = configured(places, FORBID)
    verdict = run("policy", "explain", "filesystem.read_file", f'{{"path": "{own}"}}', "--output", "json").json
    assert (verdict["effect"], verdict["because"]) == ("deny", ["protected-path"])


@covers("policy.own-files-only-narrow")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            f'{FORBID}\n@id("more") permit (principal, action, resource);',
            r"`cron.strict.policy`: `\S+own.cedar`, line 3, rule `more`: .* only narrows",
        ),
        ("", r"`cron.strict.policy`: `\S+own.cedar` holds no rule; take the key away if nothing is to be forbidden"),
        ("// later\n", r"`cron.strict.policy`: `\S+own.cedar` holds no rule"),
        ("forbid (principal", r"`cron.strict.policy`: `\S+own.cedar`, line 1, is no Cedar"),
        ('@id("known-tool") forbid (principal, action, resource);', "rule `known-tool` stands 2 times"),
    ],
)
def test_a_file_that_does_not_load_is_refused_with_its_key_and_line(places: Places, text: str, words: str) -> None:
    configured(places, text)
    with pytest.raises(Broken, match=words):
        load_setup()


def test_a_file_that_is_not_there_or_holds_for_all_is_refused(places: Places) -> None:
    own = configured(places, FORBID)
    own.unlink()
    with pytest.raises(Broken, match=r"`cron\.strict\.policy`: the rule file `.*` cannot be read: No such file"):
        load_setup()
    configured(places, FORBID, file=places.home / "policy" / "own.cedar")
    with pytest.raises(Broken, match=r"`cron\.strict\.policy`: .* lies among the rules that hold for all; put it into another directory"):
        load_setup()
