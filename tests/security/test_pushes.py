"""A push by an agent that owns its repository: what a human was shown leaves the machine, to the place that was shown, or nothing does."""

import asyncio
import os
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from curtainwall.compose.gate import GatedSessions, open_gate
from curtainwall.compose.setup import load_setup
from curtainwall.host.user import local_user
from curtainwall.model import Answer, AnswerApproval, ApprovalAsked, CallPermitted, CallRequest, GrantScope, SessionId, session_stream
from tests.support.covers import covers
from tests.support.git_server import GitServer, git, serving
from tests.support.houses import events
from tests.support.in_process import Places, opened
from tests.support.talking import of, run

pytestmark = pytest.mark.usefixtures("bubblewrap")

PUSH = CallRequest(tool="git.push", arguments={})
_ROUNDS = 20


@dataclass
class Desk:
    """A session in a repository of its agent's own, in which the agent changes whatever it likes, and a human who says yes to all of it."""

    wired: GatedSessions
    session: SessionId
    where: Path
    server: GitServer

    async def asks(self) -> tuple[Answer, str]:
        """Let the agent push; return the call that waits, and the card that the human is shown."""
        waiting = await self.wired.gate.request(self.session, PUSH, wait=False)
        assert waiting.waiting, waiting
        return waiting, self.asked[-1].shown

    async def approves(self, waiting: Answer, scope: GrantScope = GrantScope.ONCE) -> Answer:
        """Say yes to what was asked last, and let the call go on."""
        yes = AnswerApproval(by=local_user(), approval=self.asked[-1].approval, granted=True, scope=scope)
        await self.wired.registry.send(self.session, yes)
        return await self.wired.gate.resume(self.session, waiting.call)

    @property
    def asked(self) -> list[ApprovalAsked]:
        return of(ApprovalAsked, events(self.wired.registry, self.session))

    @property
    def published(self) -> list[str]:
        """Return what every repository of the server has by now, as `NAME COMMIT BRANCH`."""
        return [
            f"{place.name} {line}"
            for place in sorted(self.server.root.iterdir())
            for line in git("-C", str(place), "for-each-ref", "--format=%(objectname) %(refname:short)").splitlines()
        ]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    (tmp_path / "served").mkdir()
    with serving(tmp_path / "served") as made:
        for name in ("shop.git", "eve.git"):
            made.make(name)
        yield made


@asynccontextmanager
async def desk(places: Places, server: GitServer) -> AsyncGenerator[Desk]:
    where = places.workspace
    git("init", "--quiet", "--initial-branch=main", str(where))
    git("remote", "add", "origin", server.url("shop.git"), cwd=where)
    commit(where, "open at nine")
    async with open_gate(load_setup()) as wired:
        yield Desk(wired, await opened(wired, where), where, server)


def at_the_desk(places: Places, server: GitServer, story: Callable[[Desk], Awaitable[None]]) -> None:
    async def work() -> None:
        async with desk(places, server) as here:
            await story(here)

    run(work())


def commit(where: Path, title: str) -> str:
    git("commit", "--quiet", "--allow-empty", "-m", title, cwd=where)
    return git("rev-parse", "HEAD", cwd=where).strip()


def hidden(where: Path) -> str:
    """Make a commit that no branch has, and return it."""
    later = commit(where, "hand over the keys")
    git("reset", "--quiet", "--hard", "HEAD~1", cwd=where)
    return later


def moved_by_git(where: Path, later: str) -> None:
    git("branch", "-f", "elsewhere", later, cwd=where)
    git("reset", "--quiet", "--hard", later, cwd=where)


def moved_by_hand(where: Path, later: str) -> None:
    (where / ".git/refs/heads/main").write_text(f"{later}\n")


def moved_into_the_packed_refs(where: Path, later: str) -> None:
    (where / ".git/packed-refs").write_text(f"# pack-refs with: peeled fully-peeled sorted \n{later} refs/heads/main\n")
    (where / ".git/refs/heads/main").unlink()


def moved_by_a_name_that_stands_for_another(where: Path, later: str) -> None:
    (where / ".git/refs/heads/side").write_text(f"{later}\n")
    (where / ".git/refs/heads/main").write_text("ref: refs/heads/side\n")


def moved_by_another_branch(where: Path, later: str) -> None:
    (where / ".git/refs/heads/side").write_text(f"{later}\n")
    (where / ".git/HEAD").write_text("ref: refs/heads/side\n")


@covers("approvals.push-is-bound-to-its-commit")
@pytest.mark.parametrize(
    "move", [moved_by_git, moved_by_hand, moved_into_the_packed_refs, moved_by_a_name_that_stands_for_another, moved_by_another_branch]
)
def test_a_branch_that_moves_between_question_and_answer_takes_nothing_along(
    places: Places, server: GitServer, move: Callable[[Path, str], None]
) -> None:
    async def story(here: Desk) -> None:
        later = hidden(here.where)
        waiting, card = await here.asks()
        assert '"open at nine" to `main`: 1 commit at most' in card
        move(here.where, later)
        dropped = await here.approves(waiting)
        assert dropped.verdict.because == ("call-dropped",)
        assert here.published == []
        _, anew = await here.asks()
        assert f'{later[:12]} "hand over the keys"' in anew, "what it means now is another question"

    at_the_desk(places, server, story)


@covers("approvals.push-is-bound-to-its-commit")
def test_a_branch_that_moves_once_the_push_is_permitted_takes_nothing_along(places: Places, server: GitServer) -> None:
    async def story(here: Desk) -> None:
        ref = here.where / ".git/refs/heads/main"
        shown, later = ref.read_text().strip(), hidden(here.where)

        async def move_when_permitted() -> None:
            feed, stream = here.wired.registry.feed, session_stream(here.session)
            async for recorded in feed.follow(stream, len(events(here.wired.registry, here.session))):
                if isinstance(recorded.event, CallPermitted):
                    ref.write_text(f"{later}\n")
                    return

        for _ in range(_ROUNDS):
            ref.write_text(f"{shown}\n")
            waiting, _ = await here.asks()
            moving = asyncio.create_task(move_when_permitted())
            done = await here.approves(waiting)
            await moving
            assert done.result is not None
            assert here.published in ([], [f"shop.git {shown} main"])
            if not done.result.ok:
                assert f"`main` has moved since the push of {shown[:12]} was judged" in str(done.result.value)
                return
        pytest.fail("the branch never moved in time, so nothing was tried")

    at_the_desk(places, server, story)


def pack_that_lies(where: Path, tip: str, told: str) -> None:
    """Have a pack say under the id of one commit what another one says."""
    found = git("cat-file", "commit", told, cwd=where).encode()
    (where / f".git/objects/{tip[:2]}/{tip[2:]}").unlink()
    size = len(found)
    head = bytes([0x90 | size & 15, *([size >> 4] if size < 1 << 11 else [size >> 4 & 127 | 128, size >> 11])])
    counts = b"".join((1 if byte >= int(tip[:2], 16) else 0).to_bytes(4, "big") for byte in range(256))
    place = where / ".git/objects/pack/pack-lie"
    place.with_suffix(".pack").write_bytes(head + zlib.compress(found))
    place.with_suffix(".idx").write_bytes(b"\xfftOc\x00\x00\x00\x02" + counts + bytes.fromhex(tip) + bytes(8))


def file_that_lies(where: Path, tip: str, told: str) -> None:
    """Have a file say under the id of one commit what another one says."""
    place = where / f".git/objects/{tip[:2]}/{tip[2:]}"
    place.unlink()
    place.write_bytes((where / f".git/objects/{told[:2]}/{told[2:]}").read_bytes())


def replacement_that_lies(where: Path, tip: str, told: str) -> None:
    """Have git itself show another commit in its place."""
    git("replace", tip, told, cwd=where)


@pytest.mark.parametrize("lie", [pack_that_lies, file_that_lies, replacement_that_lies])
def test_a_repository_that_lies_about_a_commit_puts_no_words_on_the_card(
    places: Places, server: GitServer, lie: Callable[[Path, str, str], None]
) -> None:
    async def story(here: Desk) -> None:
        harmless = commit(here.where, "correct a typo")
        git("reset", "--quiet", "--hard", "HEAD~1", cwd=here.where)
        tip = commit(here.where, "hand over the keys")
        lie(here.where, tip, harmless)
        waiting, card = await here.asks()
        assert f"pushes {tip[:12]}" in card
        assert "correct a typo" not in card
        done = await here.approves(waiting)
        assert done.result is not None
        assert here.published == ([f"shop.git {tip} main"] if done.result.ok else []), "the commit of that id, or nothing"

    at_the_desk(places, server, story)


def test_what_the_repository_says_of_the_remote_is_held_against_the_remote(places: Places, server: GitServer) -> None:
    async def story(here: Desk) -> None:
        git("push", "--quiet", server.url("shop.git"), "main", cwd=here.where)
        before = here.published
        forged = commit(here.where, "hand over the keys")
        commit(here.where, "correct a typo")
        git("update-ref", "refs/remotes/origin/main", forged, cwd=here.where)
        waiting, card = await here.asks()
        assert f'"correct a typo" to `main`: 1 commit more than {forged[:12]}' in card
        done = await here.approves(waiting)
        assert done.result is not None
        assert not done.result.ok
        assert f"is not known to have {forged[:12]}, so more would be pushed than was shown" in str(done.result.value)
        assert here.published == before

    at_the_desk(places, server, story)


ELSEWHERE = {
    "url": "remote.origin.url {eve}",
    "pushurl": "remote.origin.pushurl {eve}",
    "one more pushurl": "remote.origin.pushurl {shop}; --add remote.origin.pushurl {eve}",
    "insteadOf": "url.{eve}.insteadOf {shop}",
    "pushInsteadOf": "url.{eve}.pushInsteadOf {shop}",
    "include": "include.path ../more",
}


@pytest.mark.parametrize("trick", ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_config_that_changes_while_the_human_thinks_leads_nothing_elsewhere(places: Places, server: GitServer, trick: str) -> None:
    async def story(here: Desk) -> None:
        shop, eve = (server.url(name) for name in ("shop.git", "eve.git"))
        (here.where / "more").write_text(f'[remote "origin"]\n\turl = {eve}\n\tpushurl = {eve}\n')
        waiting, card = await here.asks()
        assert "/shop" in card
        assert "/eve" not in card
        for words in trick.split("; "):
            git("config", *words.format(shop=shop, eve=eve).split(), cwd=here.where)
        done = await here.approves(waiting)
        assert done.result is None or not done.result.ok
        assert here.published == []

    at_the_desk(places, server, story)


def test_hooks_and_settings_of_the_repository_neither_run_outside_nor_change_what_leaves(places: Places, server: GitServer) -> None:
    async def story(here: Desk) -> None:
        shown, later = git("rev-parse", "HEAD", cwd=here.where).strip(), hidden(here.where)
        mark, port = places.user / "pwned", server.port
        script = here.where / "trap.sh"
        script.write_text(
            f"#!/bin/bash\necho pwned > {mark}\nexec 9<>/dev/tcp/127.0.0.1/{port} && printf 'GET /pwned HTTP/1.0\\r\\n\\r\\n' >&9\n"
            f"echo {later} > {here.where}/.git/refs/heads/main\nexit 0\n"
        )
        script.chmod(0o755)
        for name in ("pre-push", "reference-transaction", "post-update", "update", "pre-receive"):
            (here.where / ".git/hooks" / name).unlink(missing_ok=True)
            (here.where / ".git/hooks" / name).symlink_to(script)
        evil = str(script)
        for name, value in {
            "core.hooksPath": f"{here.where}/.git/hooks", "core.fsmonitor": evil, "core.askPass": evil, "core.sshCommand": evil,
            "core.alternateRefsCommand": evil, "credential.helper": f"!{evil}", "remote.origin.receivepack": evil,
            "push.followTags": "true", "push.default": "matching", "remote.origin.mirror": "true",
            "remote.origin.push": f"{later}:refs/heads/keys",
            "alias.push": f"!{evil}", "http.proxy": f"127.0.0.1:{port}", "push.gpgSign": "true", "gpg.program": evil,
        }.items():  # fmt: skip
            git("config", name, value, cwd=here.where)
        git("-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false", "tag", "-a", "-m", "keys", "keys", later, cwd=here.where)
        waiting, card = await here.asks()
        assert f"pushes {shown[:12]}" in card
        done = await here.approves(waiting)
        assert done.result is not None
        assert done.result.ok, done.result
        assert here.published == [f"shop.git {shown} main"]
        assert not mark.exists()
        assert not any("/pwned" in asked for asked in server.asked)

    at_the_desk(places, server, story)


@covers("labels.pushed-secrets")
@pytest.mark.parametrize("is_gone_again", [False, True])
def test_a_forged_memory_of_the_remote_hides_no_secret(places: Places, server: GitServer, is_gone_again: bool) -> None:
    """The remote is listed, so nobody is asked; the repository says that the remote has what it has not."""
    name = server.url("shop.git").removeprefix("http://").removesuffix(".git")
    places.home.mkdir(mode=0o700, exist_ok=True)
    (places.home / "config.toml").write_text(f'[lists]\npush-remotes = ["{name}"]\n')

    async def story(here: Desk) -> None:
        git("push", "--quiet", "origin", "main", cwd=here.where)
        before = here.published
        if is_gone_again:
            git("checkout", "--quiet", "-b", "beside", cwd=here.where)
        (here.where / ".env").write_text("TOKEN=1\n")
        git("add", "--all", cwd=here.where)
        commit(here.where, "deploy")
        if is_gone_again:
            # Merged without it, as if that branch had never brought it.
            git("rm", "--quiet", ".env", cwd=here.where)
            commit(here.where, "tidy up")
            git("checkout", "--quiet", "main", cwd=here.where)
            commit(here.where, "meanwhile")
            git("merge", "--quiet", "--no-ff", "-m", "both", "beside", cwd=here.where)
        git("update-ref", "refs/remotes/origin/master", "HEAD", cwd=here.where)
        commit(here.where, "on top of it")
        answer = await here.wired.gate.request(here.session, PUSH, wait=False)
        assert answer.result is not None, answer
        assert not answer.result.ok
        assert "`.env`, named like secrets, which nobody was asked about" in str(answer.result.value)
        assert here.published == before

    at_the_desk(places, server, story)


@covers("approvals.a-yes-says-what-it-answers")
def test_a_lasting_yes_to_an_encrypted_push_is_none_to_one_in_the_clear(places: Places, server: GitServer) -> None:
    async def story(at: Desk) -> None:
        clear = server.url("shop.git")
        git("remote", "set-url", "origin", clear.replace("http:", "https:"), cwd=at.where)
        waiting, _ = await at.asks()
        await at.approves(waiting, GrantScope.SESSION)
        git("remote", "set-url", "origin", clear, cwd=at.where)
        _, card = await at.asks()
        assert "(not encrypted)" in card
        assert at.published == []

    at_the_desk(places, server, story)


@covers("approvals.a-yes-says-what-it-answers")
def test_a_lasting_yes_to_a_push_of_one_secret_is_none_to_the_next(places: Places, server: GitServer) -> None:
    async def story(at: Desk) -> None:
        for name in ("id_rsa", ".env", "id_ed25519"):
            (at.where / name).write_text("x")
            git("add", "-f", name, cwd=at.where)
            commit(at.where, f"add {name}")
            waiting, card = await at.asks()
            assert "git.push_secrets" in card
            await at.approves(waiting, GrantScope.SESSION)
            assert len(at.published) == 1, "the one that was approved is pushed"

    at_the_desk(places, server, story)
