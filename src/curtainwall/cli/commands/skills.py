"""`curtainwall skills`: which instructions for particular tasks agents can load, where each is from, and what it says."""

from pathlib import Path
from typing import Annotated

import typer

from curtainwall.cli.screen import Output, OutputOption, columns, note, require_directory, show, show_json
from curtainwall.compose.knowledge import skill_index, trust_text
from curtainwall.compose.setup import judging_masker, load_setup
from curtainwall.model import NotFound, Workspace
from curtainwall.session import inert
from curtainwall.tools.skills import Skill, SkippedFolder

app = typer.Typer()

WorkspaceOption = Annotated[Path, typer.Option(metavar="DIR", help="a directory that may bring skills of its own")]


@app.command("list")
def list_skills(workspace: WorkspaceOption = Path(), output: OutputOption = Output.TEXT) -> None:
    """List your skills, and those that a workspace brings along."""
    setup = load_setup()
    skills, passed = skill_index(setup.home).look(_at(workspace))
    if output is Output.JSON:
        show_json({"skills": [_as_json(skill) for skill in skills], "unusable": [_passed_as_json(each) for each in passed]})
        return
    mask = judging_masker(setup.home).mask_text
    rows = [(skill.name, trust_text(skill), skill.digest[:12], inert(mask(skill.description))) for skill in skills]
    if rows:
        show(columns(("skill", "is", "digest", "says of itself"), rows))
    elif not passed:
        note(f"there are no skills; your own belong into `{setup.home.skills}`, one folder with a SKILL.md each")
    for each in passed:
        note(f"`{inert(each.path)}` is not usable: {inert(each.why)}")


@app.command("show")
def show_skill(
    name: Annotated[str, typer.Argument(metavar="NAME", help="as `skills list` names it")],
    workspace: WorkspaceOption = Path(),
    output: OutputOption = Output.TEXT,
) -> None:
    """Show one skill as agents get it, with its files."""
    setup = load_setup()
    shelf, place = skill_index(setup.home), _at(workspace)
    skills, passed = shelf.look(place)
    if all(skill.name != name for skill in skills) and (broken := next((it for it in passed if Path(it.path).name == name), None)):
        raise NotFound(f"`{inert(broken.path)}` is not usable: {inert(broken.why)}")
    skill = shelf.get(name, place)
    text = judging_masker(setup.home).mask_text(skill.body)
    if output is Output.JSON:
        show_json({**_as_json(skill), "text": text, "files": list(skill.folder.files)})
        return
    show(f"{skill.name}: {trust_text(skill)}\n{inert(skill.path)}\ndigest {skill.digest}\nfiles: {inert(', '.join(skill.folder.files))}\n")
    show("\n".join(inert(line) for line in text.split("\n")))


def _at(workspace: Path) -> Workspace:
    require_directory(workspace, "--workspace")
    return Workspace(path=str(workspace.resolve()), own=False)


def _as_json(skill: Skill) -> dict[str, object]:
    told = {"name": skill.name, "trust": skill.trust.value, "path": skill.path, "digest": skill.digest}
    return {**told, "source": "workspace" if skill.is_of_workspace else "user", "description": skill.description}


def _passed_as_json(passed: SkippedFolder) -> dict[str, str]:
    return {"path": passed.path, "why": passed.why}
