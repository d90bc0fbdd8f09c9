"""`curtainwall skills`: list and show the instructions that agents can load for particular tasks."""

from pathlib import Path
from typing import Annotated

import typer

from curtainwall.cli.screen import Output, OutputOption, columns, hint, note, require_directory, show, show_json
from curtainwall.compose.knowledge import skill_index, trust_text
from curtainwall.compose.masker import judging_masker
from curtainwall.host.home import find_home
from curtainwall.model import NotFound, Workspace
from curtainwall.session import inert
from curtainwall.tools.skills import Skill, SkippedFolder

app = typer.Typer()

WorkspaceOption = Annotated[Path, typer.Option(metavar="DIR", help="a directory that may bring skills of its own")]


@app.command("list")
def list_skills(workspace: WorkspaceOption = Path(), output: OutputOption = Output.TEXT) -> None:
    """List your skills, and those that a workspace brings along."""
    home = find_home()
    skills, skipped = skill_index(home).look(_at(workspace))
    if output is Output.JSON:
        show_json({"skills": [_as_json(skill) for skill in skills], "unusable": [_skipped_json(folder) for folder in skipped]})
        return
    mask = judging_masker(home).mask_text
    rows = [(skill.name, trust_text(skill), skill.digest[:12], inert(mask(skill.description))) for skill in skills]
    if rows:
        show(columns(("skill", "is", "digest", "says of itself"), rows))
    elif not skipped:
        hint(f"there are no skills; your own belong into `{home.skills}`, one folder with a SKILL.md each")
    for folder in skipped:
        note(f"`{inert(folder.path)}` is not usable: {inert(folder.why)}")


@app.command("show")
def show_skill(
    name: Annotated[str, typer.Argument(metavar="NAME", help="as `skills list` names it")],
    workspace: WorkspaceOption = Path(),
    output: OutputOption = Output.TEXT,
) -> None:
    """Show one skill as agents get it, with its files."""
    home = find_home()
    index, target = skill_index(home), _at(workspace)
    skills, skipped = index.look(target)
    if all(skill.name != name for skill in skills) and (broken := next((it for it in skipped if Path(it.path).name == name), None)):
        raise NotFound(f"`{inert(broken.path)}` is not usable: {inert(broken.why)}")
    skill = index.get(name, target)
    text = judging_masker(home).mask_text(skill.body)
    if output is Output.JSON:
        show_json({**_as_json(skill), "text": text, "files": list(skill.folder.files)})
        return
    show(f"{skill.name}: {trust_text(skill)}\n{inert(skill.path)}\ndigest {skill.digest}\nfiles: {inert(', '.join(skill.folder.files))}\n")
    show("\n".join(inert(line) for line in text.split("\n")))


def _at(workspace: Path) -> Workspace:
    require_directory(workspace, "--workspace")
    return Workspace(path=str(workspace.resolve()), own=False)


def _as_json(skill: Skill) -> dict[str, object]:
    document = {"name": skill.name, "trust": skill.trust.value, "path": skill.path, "digest": skill.digest}
    return {**document, "source": "workspace" if skill.is_of_workspace else "user", "description": skill.description}


def _skipped_json(folder: SkippedFolder) -> dict[str, str]:
    return {"path": folder.path, "why": folder.why}
