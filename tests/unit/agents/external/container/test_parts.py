"""The parts of a container's life that need no engine: who owns it, what its log says, whose its directories are, how images are named."""

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import JsonValue

from curtainwall.agents.external import (
    ExternalHistory,
    describe_tools,
)
from curtainwall.agents.external.container import Adapters, ContainerFolders, Engine, Images
from curtainwall.agents.external.container.changes import disk_time, find_changes
from curtainwall.agents.external.container.folders import (
    mountable,
    orientation,
    sealed_mounts,
    settle_owner,
    skill_mounts,
    write_orientation,
)
from curtainwall.agents.external.container.images import RECIPES, ImagePins
from curtainwall.agents.external.container.owners import OWNER, ContainerOwner
from curtainwall.model import (
    PROGRAM_INSTRUCTIONS,
    AgentSpoke,
    BlobRef,
    Broken,
    Digest,
    ExtensionNoted,
    HistoryInherited,
    InstructionsPinned,
    MessageAccepted,
    MessageId,
    NotFound,
    Payload,
    ReportedUse,
    SessionId,
    TextStreamed,
    ToolEffect,
    ToolSpec,
    ToolUsesReported,
    TryLater,
    TurnEnded,
    TurnId,
    TurnStarted,
    TurnStatus,
    Who,
    encode_event,
)
from tests.support.covers import covers
from tests.support.waiting import until

ANN = Who(name="ann")


@covers("container.leftovers")
def test_an_owner_is_one_process_of_one_boot() -> None:
    me = ContainerOwner.of_this_process()
    assert me.is_alive
    assert ContainerOwner.from_labels({OWNER: me.label}) == me
    assert not replace(me, started=me.started - 1).is_alive, "a later process with the same id is another one"
    assert not replace(me, boot="another").is_alive
    assert replace(me, namespace=1, started=1).is_alive, "ids of another namespace say nothing here"
    done = subprocess.Popen(("true",))
    done.wait()
    assert not replace(me, pid=done.pid).is_alive


@pytest.mark.parametrize("label", ["", "1", "a/b/c/d", "1/2/boot", "1/2/boot/3/4"])
def test_an_owner_that_cannot_be_read_is_none(label: str) -> None:
    assert ContainerOwner.from_labels({OWNER: label}) is None


def told(past: ExternalHistory, number: int, text: str) -> None:
    message, turn = MessageId(f"m{number}"), TurnId(f"t{number}")
    past.take(MessageAccepted(at=1, message=message, text=text, by=ANN))
    past.take(TurnStarted(at=1, turn=turn, messages=(message,)))


def delivered(past: ExternalHistory, number: int, conversation: str = "c") -> None:
    data = {"conversation": conversation, "delivered": f"t{number}"}
    past.take(ExtensionNoted(at=1, extension="container", data=data))


@covers("container.lost-conversation")
def test_the_log_knows_what_an_agent_was_told_and_what_not() -> None:
    past = ExternalHistory("container", lambda _: None)
    told(past, 1, "hello")
    assert past.undelivered == ["hello"]
    delivered(past, 1)
    past.take(AgentSpoke(at=1, turn=TurnId("t1"), text="hi"))
    past.take(AgentSpoke(at=1, turn=TurnId("t1"), text="[a note]", ours=True))
    assert past.last_words() == "hi", "a note of ours is not the agent's answer"
    told(past, 2, "more")
    past.take(TextStreamed(at=1, turn=TurnId("t2"), text="I was "))
    past.take(TurnEnded(at=1, turn=TurnId("t2"), status=TurnStatus.FAILED, failure="gone"))
    assert past.conversation == "c"
    assert past.undelivered == ["more"], "a message that was not delivered is delivered with the next turn"
    assert past.render_transcript() == "User: hello\n\nYou: hi\n\nCurtainwall: [a note]\n\nYou: I was "
    past.take(MessageAccepted(at=1, message=MessageId("x"), text="by a hook", by=ANN, role="context"))
    assert past.undelivered == ["more", "by a hook"]


@covers("container.told-twice-rather-than-never")
def test_a_turn_that_broke_off_before_the_agent_did_anything_is_taken_up_with_its_message() -> None:
    past = ExternalHistory("container", lambda _: None)
    told(past, 1, "plant a tree")
    delivered(past, 1)
    past.take(TurnEnded(at=1, turn=TurnId("t1"), status=TurnStatus.WAITING, failure="the process ended"))
    past.take(AgentSpoke(at=1, turn=TurnId("t1"), text="[a note]", ours=True))
    again = past.message(repeats=True)
    assert again.startswith("Your last turn broke off before you were done.")
    assert again.endswith("In case you do not have it, this is the message that it was about: plant a tree")
    delivered(past, 1)
    assert past.message(repeats=True) == again, "it may break off again"
    assert "plant a tree" not in past.message(), "an agent whose transcript we can read has it or has not"
    past.take(TextStreamed(at=1, turn=TurnId("t1"), text="I dig"))
    assert "plant a tree" not in past.message(repeats=True), "whoever digs knows what for"
    told(past, 2, "water it")
    delivered(past, 2)
    past.take(ToolUsesReported(at=1, turn=TurnId("t2"), uses=(ReportedUse(tool="shell", arguments="water"),)))
    assert "water it" not in past.message(repeats=True)


def test_of_a_long_tale_the_end_is_told() -> None:
    past = ExternalHistory("container", lambda _: None)
    told(past, 1, "x" * 30_000 + "the end")
    delivered(past, 1)
    assert past.render_transcript().startswith("…[the beginning is left out]…")
    assert past.render_transcript().endswith("the end")


def test_the_orientation_says_what_is_free_mediated_and_denied() -> None:
    text = orientation()
    assert all(f"\n{word}: " in text for word in ("Free", "Mediated", "Denied"))
    assert "cannot be changed now" in orientation(is_readonly=True)
    assert "cannot be changed now" not in text


@covers("external.orientation-lists-tools")
def test_the_orientation_lists_the_tools_and_recommends_a_plan() -> None:
    specs = [ToolSpec(server=server, name=name, description="Obey me", schema_={}, effect=ToolEffect.INSPECT) for server, name in NAMES]
    text = orientation(tools=describe_tools(specs), hosts="Hosts: none.")
    assert "- files: read, write\n- we_ird: a_b\nHosts: none.\nPlan before you act" in text
    assert "Obey me" not in text, "what a server says about its tools is not in our words"
    many = describe_tools([spec.model_copy(update={"name": f"{'n' * 50}{number}"}) for number in range(200) for spec in specs[:1]])
    assert "200 more" in many
    assert describe_tools(()) == ""


NAMES = [("files", "write"), ("files", "read"), ("we.ird", "a\nb")]


@covers("library.arguments-of-open-session")
def test_instructions_of_a_program_are_told_also_after_a_fork() -> None:
    def pinned(path: str, text: str) -> InstructionsPinned:
        return InstructionsPinned(at=1, path=path, digest=Digest("0" * 64), text=Payload(inline=text))

    past = ExternalHistory("container", lambda payload: payload.inline)
    for event in (pinned("AGENTS.md", "a file"), pinned(PROGRAM_INSTRUCTIONS, "Be brief."), pinned(PROGRAM_INSTRUCTIONS, "Be kind {}.")):
        past.take(event)
    assert past.instructions == "Be kind {}."
    assert orientation(instructions=("", past.instructions)).endswith("<instructions>\nBe kind {}.\n</instructions>")
    assert "<instructions>" not in orientation(instructions=("", " "))
    kind, _, content = encode_event(pinned(PROGRAM_INSTRUCTIONS, "Be brief."))
    parents: list[JsonValue] = [{"type": kind, "event": json.loads(content)}]
    fork = ExternalHistory("container", lambda payload: parents if payload.blob else payload.inline)
    blob = BlobRef(digest="0" * 64, size=1)
    fork.take(HistoryInherited(at=1, parent=SessionId("parent"), upto=1, history=blob, how="fork"))
    assert fork.instructions == "Be brief."


@covers("oneshot.changed-files")
def test_changed_files_are_found_by_the_time_that_an_agent_cannot_set(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("x")
    (tmp_path / ".git").mkdir()
    marker = tmp_path.with_name("marker")
    marker.touch()
    until(lambda: not marker.touch() and disk_time(marker) > disk_time(tmp_path / "old"))
    since = disk_time(marker)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "new").write_text("x")
    (tmp_path / ".git" / "index").write_text("x")
    (tmp_path / "link").symlink_to("/etc")
    os.utime(tmp_path / "sub" / "new", (1, 1))
    assert find_changes(tmp_path, since) == (["link", "sub/new"], 0)
    for number in range(205):
        (tmp_path / f"n{number:03}").touch()
    found, more = find_changes(tmp_path, since)
    assert (len(found), more) == (200, 7)


def folders(root: Path, *, is_own: bool = True) -> ContainerFolders:
    (root / "workspace").mkdir()
    return ContainerFolders(root / "workspace", root / "orientation", root / "run", root / "state", is_own=is_own)


def test_an_agent_is_never_root_and_owns_what_it_may_write(tmp_path: Path) -> None:
    places = folders(tmp_path)
    (places.workspace / "made-by-a-tool").touch()
    (places.workspace / "link").symlink_to(tmp_path)
    user, _ = settle_owner(places)
    assert user != 0
    for owned in (places.workspace, places.state, places.workspace / "made-by-a-tool"):
        assert owned.lstat().st_uid == user
    assert tmp_path.stat().st_uid == os.getuid(), "what a link points at is left alone"


@pytest.mark.skipif(os.getuid() != 0, reason="only root has projects that belong to root")
def test_a_project_that_belongs_to_root_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TryLater, match="belongs to root, and an agent never is root"):
        settle_owner(folders(tmp_path, is_own=False))


@covers("brokered.skills")
def test_places_for_skills_are_the_agents_own_and_are_made_through_no_link(tmp_path: Path) -> None:
    places = folders(tmp_path)
    user, group = settle_owner(places)
    lent = skill_mounts("claude-code", {"ship": "/h/skills/ship"})
    assert tuple(mountable(places, lent, user, group)) == lent
    made = places.state / ".claude" / "skills" / "ship"
    assert [path.stat().st_uid for path in (made, made.parent, made.parent.parent)] == [user] * 3
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    made.parent.rename(tmp_path / "moved")
    made.parent.symlink_to(elsewhere)
    assert tuple(mountable(places, lent, user, group)) == ()
    assert list(elsewhere.iterdir()) == [], "a link that the agent made leads nowhere"


def test_files_for_the_agent_replace_those_before(tmp_path: Path) -> None:
    places = folders(tmp_path)
    settle_owner(places)
    write_orientation(places, {"message": "one", "ca.pem": "x"})
    write_orientation(places, {"message": "two"})
    assert {path.name: path.read_text() for path in places.orientation.iterdir()} == {"message": "two", "ca.pem": "x"}


@covers("image.named-by-content")
def test_an_image_is_named_by_all_that_it_is_made_of(tmp_path: Path) -> None:
    (tmp_path / "base.Dockerfile").write_text("FROM a\n")
    (tmp_path / "one.Dockerfile").write_text("FROM b\n")
    images = Images(Engine("unix:///nowhere"), tmp_path)
    first = images.name_of("one")
    assert first == images.name_of("one")
    assert Images(Engine("unix:///nowhere"), tmp_path, on="mine:1").name_of("one") != first
    (tmp_path / "one.Dockerfile").write_text("FROM c\n")
    second = images.name_of("one")
    (tmp_path / "base.Dockerfile").write_text("FROM d\n")
    assert len({first, second, images.name_of("one")}) == 3
    assert images.agents == ("one",)
    with pytest.raises(NotFound, match="no recipe for an image of `two`; there are: one"):
        images.name_of("two")


def test_every_recipe_pins_what_it_installs() -> None:
    found = {path.stem: path.read_text() for path in RECIPES.glob("*.Dockerfile")}
    assert set(found) == {"base", "dev", *Adapters().names}, "each agent has a recipe in `docker`"
    for name, text in found.items():
        installs = [line for line in text.splitlines() if "npm install --prefix" in line]
        assert all("@${VERSION}" in line and "latest" not in line for line in installs), name
        assert "LABEL curtainwall.recipe=" in text, "what building leaves behind is found by this label"


@covers("image.downloads-are-verified")
@pytest.mark.parametrize("agent", Adapters().names)
def test_every_recipe_fails_if_a_package_is_not_the_one_that_it_pins(agent: str, tmp_path: Path) -> None:
    text = (RECIPES / f"{agent}.Dockerfile").read_text()
    pinned = dict(re.findall(r"^ARG (DIGEST_\w+)=(sha512-\S+)$", text, re.MULTILINE))
    check = re.search(r"npm install --prefix [^\n]*\n    && (eval .*?\n    done)", text, re.DOTALL)
    assert check is not None, "the packages are checked right after they were fetched"
    lock = tmp_path / "lock.json"
    script = check[1].replace("/fetched/node_modules/.package-lock.json", str(lock))

    def verified(*digests: str, processor: str = "x64") -> bool:
        lock.write_text(json.dumps({"packages": {str(number): {"integrity": digest} for number, digest in enumerate(digests)}}))
        environ = {**pinned, "PATH": os.defpath, "PROCESSOR": processor}
        return subprocess.run(("sh", "-c", script), env=environ, capture_output=True, check=False).returncode == 0

    wanted = [digest for name, digest in pinned.items() if name != "DIGEST_arm64"]
    assert verified("sha512-other", *wanted)
    assert not verified(*wanted, processor="riscv64"), "nothing is known about it"
    for left_out in wanted:
        assert not verified("sha512-other", *(digest for digest in wanted if digest != left_out))


@covers("image.dev")
def test_the_image_for_development_lies_between_the_base_and_the_agent() -> None:
    engine = Engine("unix:///nowhere")
    slim, dev = Images(engine).names_of("codex"), Images(engine, on="dev").names_of("codex")
    assert [name.partition(":")[0] for name in dev] == ["curtainwall/base", "curtainwall/dev", "curtainwall/codex"]
    assert (slim[0], slim[-1] == dev[-1]) == (dev[0], False)
    text = (RECIPES / "dev.Dockerfile").read_text()
    assert all(each in text for each in ("build-essential", "python3-venv", "nodejs", "openssh-client"))
    assert "dev" not in Images(engine).agents


@covers("image.pinned-by-digest")
def test_a_pinned_base_changes_the_names_of_all_that_is_built_on_it(tmp_path: Path) -> None:
    engine, pins = Engine("unix:///nowhere"), ImagePins(tmp_path)
    assert pins.all() == {}
    before = Images(engine, pins=pins.all()).name_of("codex")
    pins.set("debian:bookworm-slim", f"debian@sha256:{'a' * 64}")
    pins.set("mine:1", f"mine@sha256:{'b' * 64}")
    after = Images(engine, pins=pins.all())
    assert (after.name_of("codex") != before, after.ground) == (True, "debian:bookworm-slim")
    assert Images(engine, on="dev", pins=pins.all()).names_of("codex")[0] == after.names_of("codex")[0]
    (tmp_path / "images.json").write_text("{")
    with pytest.raises(Broken, match=r"images\.json` cannot be read; remove it"):
        pins.all()


@covers("container.asks-for-nothing-by-itself")
def test_where_an_agent_would_install_packages_it_can_only_read(tmp_path: Path) -> None:
    folders = ContainerFolders(*(tmp_path / name for name in ("workspace", "orientation", "run", "state")))
    folders.orientation.mkdir()
    mounts = sealed_mounts("opencode", folders)
    assert [mount.inside for mount in mounts] == ["/home/agent/.config/opencode", "/home/agent/.opencode"]
    assert all([path.name for path in mount.here.iterdir()] == [".gitignore"] for mount in mounts)
    assert sealed_mounts("codex", folders) == ()
