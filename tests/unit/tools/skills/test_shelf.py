"""Which skills there are, whose they are, and whether somebody has seen them as they are."""

import os
from pathlib import Path

import pytest

from curtainwall.model import NotFound, Workspace
from curtainwall.tools.skills import Skill, SkillIndex, SkillTrust, own_folders
from tests.support.covers import covers


class Stage:
    def __init__(self, root: Path) -> None:
        self.own, self.project = root / "home" / "skills", root / "project"
        for made in (self.own, self.project):
            made.mkdir(parents=True)
        self.shelf = SkillIndex(self.own, root / "home" / "skills.json")
        self.workspace = Workspace(path=str(self.project), own=False)

    def write(self, root: Path | str, name: str, text: str = "", **files: str) -> Path:
        folder = (self.project / root if isinstance(root, str) else root) / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(text or f"---\nname: {name}\ndescription: about {name}\n---\nDo {name}.\n")
        for file, content in files.items():
            (folder / file).write_text(content)
        return folder

    def get(self, name: str) -> Skill:
        return self.shelf.get(name, self.workspace)

    def passed(self) -> dict[str, str]:
        return {Path(each.path).name: each.why for each in self.shelf.look(self.workspace)[1]}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(Path(os.path.realpath(tmp_path)))


def test_skills_are_found_where_people_keep_them_the_users_first(stage: Stage) -> None:
    stage.write(stage.own, "mine")
    for root in (".curtainwall/skills", ".claude/skills", ".agents/skills"):
        stage.write(root, f"of{root.partition('/')[0]}")
    skills, passed = stage.shelf.look(stage.workspace)
    assert [(skill.name, skill.trust) for skill in skills] == [
        ("mine", SkillTrust.OWN),
        ("of.curtainwall", SkillTrust.UNSEEN),
        ("of.claude", SkillTrust.UNSEEN),
        ("of.agents", SkillTrust.UNSEEN),
    ]
    assert passed == ()
    assert (skills[0].description, skills[0].body) == ("about mine", "Do mine.\n")


def test_a_skill_of_the_workspace_does_not_stand_in_for_one_of_the_users(stage: Stage) -> None:
    stage.write(stage.own, "deploy")
    stage.write(".claude/skills", "deploy")
    assert stage.get("deploy").trust is SkillTrust.OWN
    assert "comes first" in stage.passed()["deploy"]


def test_in_the_directory_above_our_home_the_users_skills_are_there_once(stage: Stage) -> None:
    own = stage.project / ".curtainwall" / "skills"
    stage.write(own, "mine")
    stage.write(".claude/skills", "theirs")
    skills, passed = SkillIndex(own, stage.project / "pins.json").look(stage.workspace)
    assert [(skill.name, skill.trust) for skill in skills] == [("mine", SkillTrust.OWN), ("theirs", SkillTrust.UNSEEN)]
    assert passed == ()


@covers("tools.a-skill-is-pinned-by-everything-in-its-folder")
@pytest.mark.parametrize("change", ["text", "file", "new file", "gone", "renamed", "deep"])
def test_a_pin_holds_for_exactly_what_was_seen(stage: Stage, change: str) -> None:
    folder = stage.write(".claude/skills", "deploy", run="echo 1")
    (folder / "more").mkdir()
    (folder / "more" / "deep").write_text("1")
    stage.shelf.pin(stage.get("deploy"))
    assert stage.get("deploy").trust is SkillTrust.PINNED
    match change:
        case "text":
            (folder / "SKILL.md").write_text((folder / "SKILL.md").read_text() + "And curl it.\n")
        case "file":
            (folder / "run").write_text("echo 2")
        case "new file":
            (folder / "other").write_text("")
        case "gone":
            (folder / "run").unlink()
        case "renamed":
            (folder / "run").rename(folder / "ran")
        case _:
            (folder / "more" / "deep").write_text("2")
    assert stage.get("deploy").trust is SkillTrust.CHANGED
    stage.shelf.pin(stage.get("deploy"))
    assert stage.get("deploy").trust is SkillTrust.PINNED


def test_the_same_folder_elsewhere_is_another_skill(stage: Stage) -> None:
    stage.write(".claude/skills", "deploy")
    stage.shelf.pin(stage.get("deploy"))
    (stage.project / ".claude").rename(stage.project / ".agents")
    assert stage.get("deploy").trust is SkillTrust.UNSEEN


def test_links_lead_to_no_skill(stage: Stage, tmp_path: Path) -> None:
    elsewhere = stage.write(tmp_path, "elsewhere")
    (stage.own / "linked").symlink_to(elsewhere)
    inside = stage.write(stage.own, "inside")
    (inside / "keys").symlink_to("/etc/passwd")
    (stage.project / ".claude").mkdir()
    (stage.project / ".claude" / "skills").symlink_to(tmp_path)
    assert stage.shelf.look(stage.workspace)[0] == ()
    assert "by a link" in stage.passed()["linked"]
    assert "`keys`" in stage.passed()["inside"]


def test_what_is_too_much_or_no_skill_is_said(stage: Stage) -> None:
    stage.write(stage.own, "headless", "Do it.")
    stage.write(stage.own, "named", "---\nname: ../../etc\n---\n")
    stage.write(stage.own, "long", "---\nname: long\n---\n" + "x" * 70_000)
    (stage.write(stage.own, "latin") / "SKILL.md").write_bytes(b"---\nname: x\n---\n\xff")
    big = stage.write(stage.own, "big")
    with (big / "big").open("wb") as file:
        file.truncate(9 * 1024 * 1024)
    os.mkfifo(stage.write(stage.own, "pipe") / "pipe")
    many = stage.write(stage.own, "many")
    for number in range(201):
        (many / str(number)).touch()
    (stage.own / "empty").mkdir()
    passed = stage.passed()
    assert sorted(passed) == ["big", "headless", "latin", "long", "many", "named", "pipe"]
    assert "8 MiB" in passed["big"]
    assert "200 files" in passed["many"]
    assert "UTF-8" in passed["latin"]


def test_an_unknown_name_is_answered_with_those_there_are(stage: Stage) -> None:
    with pytest.raises(NotFound, match="there are none here"):
        stage.get("x")
    stage.write(stage.own, "mine")
    with pytest.raises(NotFound, match="there are `mine`"):
        stage.get("x")


def test_a_container_is_shown_the_users_own_folders_alone(stage: Stage) -> None:
    mine = stage.write(stage.own, "mine")
    stage.write(".claude/skills", "theirs")
    assert own_folders(stage.shelf, stage.workspace) == {"mine": str(mine)}


def test_what_a_workspace_brings_along_is_read_within_bounds(stage: Stage) -> None:
    """It is read before each turn, and while everybody waits at each loading; holes cost whoever makes them nothing."""
    for number in range(60):
        folder = stage.write(".claude/skills", f"big{number:02}", "" if number % 2 else "without a head")
        with (folder / "hole").open("wb") as file:
            file.truncate(7 * 1024 * 1024)
    skills, passed = stage.shelf.look(stage.workspace)
    assert len(skills) == 2
    assert "all of its kind together are too big" in passed[-1].why
    assert sum(skill.folder.size for skill in skills) < 32 * 1024 * 1024
    assert len(passed) == 58


def test_a_folder_of_very_many_names_is_not_listed_to_its_end(stage: Stage) -> None:
    folder = stage.write(".claude/skills", "many")
    for number in range(300):
        (folder / str(number)).touch()
    assert "more than 200 files" in stage.passed()["many"]


def test_a_folder_of_very_many_empty_directories_is_not_walked_to_its_end(stage: Stage) -> None:
    folder = stage.write(".claude/skills", "hollow")
    for number in range(2_000):
        (folder / str(number % 20) / str(number % 400) / str(number)).mkdir(parents=True)
    assert "more than 200 files" in stage.passed()["hollow"]
