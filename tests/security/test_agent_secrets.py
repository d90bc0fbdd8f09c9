"""Secrets around the built-in agent: whichever way one comes in, neither the model nor the log nor a screen ever has it."""

import json

import pytest

import curtainwall
from curtainwall.agents.builtin.language_model import ModelFault
from curtainwall.library.session import Session
from curtainwall.model import CallDenied, Live, TurnFailed, TurnStatus
from tests.support import forks
from tests.support.covers import covers
from tests.support.talking import Home, Playing, of, playing, read_in, run, runs, write_in

KEY = "sk-ant-api03-" + "Zq7" * 30
TOKEN = "ghp_" + "a1B2" * 9
MADE_UP = "github_pat_" + "11ABCDE0Y0" * 6
WORD = "hunter2-and-more"
ALL = (KEY, TOKEN, MADE_UP, WORD)


def kept(home: Home) -> dict[str, bytes]:
    """Return everything that lies in the home, besides the workspace itself."""
    files = (path for path in home.root.rglob("*") if path.is_file() and "workspace" not in path.parts)
    return {str(path.relative_to(home.root)): path.read_bytes() for path in files}


def seen_by(model: Playing) -> str:
    return json.dumps([[prompt.system, [item.model_dump() for item in prompt.items]] for prompt in model.prompts])


def see_that_nobody_has_it(home: Home, model: Playing, *others: str) -> None:
    for secret in ALL:
        assert secret not in seen_by(model), f"the model saw {secret[:8]}"
        for text in others:
            assert secret not in text
        for name, content in kept(home).items():
            assert secret.encode() not in content, f"{name} holds {secret[:8]}"


async def whole_life(session: Session, model: Playing) -> str:
    """Let a secret in by every way there is, and return everything that was said out loud meanwhile."""
    write_in(session, "settings.txt", f"port: 80\nkey: {KEY}\npassword = {WORD}\nhost: a\n")
    write_in(session, "long.txt", f"{'filler ' * 8_000}{TOKEN}\n")
    loud: list[Live] = []

    async with session._work.journal.listen(session.id) as heard:
        text = (await session.send(f"use {TOKEN} for it")).text
        text += (await session.send("and the long one")).text
        await session.inject(f"the key is {KEY}")
        with pytest.raises(TurnFailed) as failed:
            await session.send("once more")
        async for live in heard:
            loud.append(live)
            if "".join(each.text for each in loud).endswith("the end"):
                break
    return "".join([text, str(failed.value), *(live.text for live in loud)])


@covers("agents.secrets-are-masked-everywhere")
def test_a_secret_by_any_way_is_masked_in_the_models_view_the_log_the_blobs_the_audit_and_what_is_printed(home: Home) -> None:
    model = playing(
        runs('text = await filesystem.read_file(path="settings.txt")\nprint(text)\n{"all": text}', text=f"I will use {TOKEN}."),
        f"The key is {KEY}, the other {MADE_UP}.",
        runs('print((await filesystem.read_file(path="long.txt"))[-60:])'),
        "Long, the end",
        ModelFault("rejected", f"the provider says no to {MADE_UP}"),
    )

    async def main() -> tuple[str, str]:
        async with curtainwall.open_session(model=model) as session:
            loud = await whole_life(session, model)
            return session.id, loud

    session, loud = run(main())
    assert "[masked:" in seen_by(model)
    assert model.results[0].count("[masked:") >= 4
    assert "port: 80" in model.results[0]
    assert (home.root / "sessions" / session / "audit.jsonl").stat().st_size > 0
    assert list((home.root / "blobs").rglob("*"))
    printed = [forks.curtainwall(*words, session) for words in (("sessions", "show"), ("sessions", "export"), ("audit", "tail"))]
    assert [done.returncode for done in printed] == [0, 0, 0]
    assert "[masked:" in printed[1].stdout
    see_that_nobody_has_it(home, model, loud, *(done.stdout for done in printed))


@covers("agents.masks-are-not-written-back")
def test_writing_a_mask_back_is_refused_with_what_to_do_instead(home: Home) -> None:
    model = playing(
        runs(
            'text = await filesystem.read_file(path="settings.txt")\n'
            'await filesystem.write_file(path="settings.txt", content=text.replace("80", "81"))'
        ),
        runs('await filesystem.edit_file(path="settings.txt", edits=[{"oldText": "port: 80", "newText": "port: 81"}])'),
        "changed",
    )
    before = f"port: 80\nkey: {KEY}\n"

    async def main() -> str:
        async with curtainwall.open_session(model=model) as session:
            write_in(session, "settings.txt", before)
            assert (await session.send("change the port")).status is TurnStatus.DONE
            [denied] = of(CallDenied, session.timeline())
            assert "mask" in str(denied.verdict.because)
            return read_in(session, "settings.txt")

    assert run(main()) == before.replace("80", "81")
    assert "PermissionError" in model.results[0]
    assert "edit_file" in model.results[0]
    see_that_nobody_has_it(home, model)


@covers("agents.secrets-are-masked-everywhere")
def test_a_secret_in_the_middle_of_streamed_text_is_masked_before_it_is_shown(home: Home) -> None:
    model = playing(f"{'word ' * 9}{KEY} and {'more ' * 9}")

    async def main() -> list[str]:
        async with curtainwall.open_session(model=model) as session:
            return [piece async for piece in session.stream("go")]

    pieces = run(main())
    assert KEY not in "".join(pieces)
    assert not any(KEY[:20] in piece for piece in pieces)
    assert "[masked:" in "".join(pieces)


@covers("agents.secrets-are-masked-everywhere")
def test_instructions_reasons_and_names_are_masked_as_well(home: Home) -> None:
    (home.project / "AGENTS.md").write_text(f"use the key {KEY}\n")
    model = playing(runs(f'await filesystem.write_file(path="{home.outside}/a", content="1")'), "one", "two")

    async def main() -> None:
        async with curtainwall.open_session(model=model, workspace=home.project) as session:
            [ask] = (await session.send("go")).pending
            await session.answer(ask.approval, granted=False, reason=f"use {TOKEN} instead")
            await session.go_on()
            await session.rename(f"about {MADE_UP}")
            await session.compact(f"and keep {KEY}")
            await session.send("more")
            await session.close(f"{TOKEN} is no more")

    run(main())
    assert "[masked:" in model.prompts[-1].system
    see_that_nobody_has_it(home, model)


@covers("agents.secrets-are-masked-everywhere")
def test_a_secret_that_a_program_puts_together_is_masked_where_it_comes_out(home: Home) -> None:
    halves = f'key = "{TOKEN[:9]}" + "{TOKEN[9:]}"\n'
    model = playing(runs(f"{halves}print(key)\nkey"), runs(f"{halves}raise ValueError(key)"), "done")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            await session.send("go")

    run(main())
    assert all("[masked:" in result for result in model.results)
    see_that_nobody_has_it(home, model)


def test_changed_instructions_with_a_secret_in_them_are_asked_about_and_followed(home: Home) -> None:
    file = home.project / "AGENTS.md"
    file.write_text("say hello\n")
    model = playing("one", "two", "three")

    async def main() -> None:
        async with curtainwall.open_session(model=model, workspace=home.project) as session:
            await session.send("go")
            file.write_text(f"log in with password: {WORD}\n")
            await session.send("go")
            [ask] = session.pending
            assert "[masked:" in ask.shown
            await session.answer(ask.approval, granted=True)
            await session.send("go")

    run(main())
    assert "log in with password: [masked:" in model.prompts[-1].system
    see_that_nobody_has_it(home, model)


KEY_LINES = [
    "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj",
    "MzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dVMvDuictGeurT8jNbvJZHtCSuYEvu",
]
FILES = {
    "one.pem": "\n".join(["-----BEGIN PRIVATE KEY-----", *KEY_LINES, "-----END PRIVATE KEY-----", ""]),
    "two.pem": "\n".join(["-----BEGIN PRIVATE KEY-----", *KEY_LINES[::-1], "-----END PRIVATE KEY-----", ""]),
    "netrc": f"machine example.org\n  login ann\n  password {WORD}\n",
    "docker.json": '{"auths": {"r.example.org": {"auth": "YW5uOmh1bnRlcjItYW5kLW1vcmU="}}}',
    "site.har": f'{{"headers": [{{"name": "Cookie", "value": "sid={WORD}"}}]}}',
    "deploy.sh": f"mysql -u root -p{WORD} shop\ncurl -u ann:{WORD} https://example.org\ndeploy --password {WORD}\n",
}


@pytest.mark.usefixtures("bubblewrap")
@covers("facts.secrets-are-found-where-they-are-kept", "facts.private-keys-are-found")
def test_a_secret_is_masked_in_what_commands_print_of_the_files_that_keep_them(home: Home) -> None:
    commands = (
        "head -n 2 one.pem two.pem",
        "grep -n '' one.pem two.pem",
        "cat -n one.pem | tail -n 3",
        "cat netrc docker.json site.har deploy.sh",
    )
    code = "".join(f"print(await shell.run(command={command!r}))\n" for command in commands)
    model = playing(runs(code), "done")

    async def main() -> None:
        async with curtainwall.open_session(model=model) as session:
            for name, content in FILES.items():
                write_in(session, name, content)
            assert (await session.send("look")).status is TurnStatus.DONE

    run(main())
    assert "login ann" in model.results[0]
    assert model.results[0].count("[masked:") >= 9
    for secret in (WORD, "YW5uOmh1bnRlcjItYW5kLW1vcmU", *KEY_LINES):
        assert secret not in seen_by(model)
        assert not any(secret.encode() in content for content in kept(home).values())
