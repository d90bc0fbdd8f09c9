"""Loading a skill at the gate: what it means, who is asked, and what the agent gets."""

from collections.abc import Mapping

from pydantic import JsonValue

from curtainwall.facts import Masker
from curtainwall.model import (
    LOAD_SKILL,
    TRUST_SKILL,
    BadCall,
    CallPermitted,
    NotFound,
    Place,
    Prepared,
    Resource,
    Role,
    ToolEffect,
    ToolResult,
)
from curtainwall.tools.runners import CannotDo, Refiner, Runner, extra_resource, refined
from curtainwall.tools.schema_check import RULE
from curtainwall.tools.skills.folders import BIGGEST_SHOWN, MAIN
from curtainwall.tools.skills.index import Skill, SkillIndex


def skill_refiners(shelf: SkillIndex, masker: Masker) -> Mapping[str, Refiner]:
    """Return what finds out which skill a call is about; the call is bound to that skill as it is now."""

    def load_skill(prepared: Prepared, place: Place) -> Prepared:
        try:
            skill = shelf.get(str(prepared.arguments["name"]), place.workspace)
        except NotFound as missing:
            raise BadCall(RULE, str(missing)) from None
        wanted = str(prepared.arguments.get("file", MAIN))
        if wanted not in skill.folder.files:
            raise BadCall(RULE, f"the skill `{skill.name}` has no such file; it has {_listed(skill)}")
        more: dict[str, JsonValue] = {"path": skill.path, "digest": skill.digest}
        touched: list[Resource] = []
        if skill.is_of_workspace:
            touched.append(Resource(role=Role.READ_PATH, value=f"{skill.path}/{wanted}"))
        trust = skill.trust_in(wanted)
        if not trust.is_known:
            # INVARIANT: a human is shown the file that the agent would get, and trusts no other by it.
            more |= {"stands": trust.value, "shows": wanted, "text": _shown(skill, wanted), "files": list(skill.folder.files)}
            touched.append(extra_resource(TRUST_SKILL, ToolEffect.INSPECT))
        return refined(prepared, more, tuple(touched), masker)

    return {LOAD_SKILL: load_skill}


def skill_runners(shelf: SkillIndex) -> Mapping[str, Runner]:
    """Return the tool that loads skills."""
    # Start-up time: judging a call runs none.
    import asyncio

    async def load_skill(prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
        return await asyncio.to_thread(_load, shelf, prepared, permit, place)

    return {LOAD_SKILL: load_skill}


def _load(shelf: SkillIndex, prepared: Prepared, permit: CallPermitted, place: Place) -> ToolResult:
    name, wanted = str(prepared.arguments["name"]), str(prepared.arguments.get("file", MAIN))
    skill = shelf.get(name, place.workspace)
    if (skill.path, skill.digest) != (prepared.arguments["path"], prepared.arguments["digest"]):
        raise CannotDo(f"the skill `{name}` was changed a moment ago; load it again")
    try:
        text = skill.body if wanted == MAIN else skill.folder.files[wanted].decode()
    except UnicodeDecodeError:
        raise CannotDo(f"`{wanted}` of the skill `{name}` is no text") from None
    if not skill.trust_in(wanted).is_known and permit.is_approved_by_human:
        shelf.pin(skill, wanted)
    source = "the workspace" if skill.is_of_workspace else "the user"
    result: dict[str, JsonValue] = {"name": name, "from": source, "path": skill.path, "digest": skill.digest, "text": text}
    others: list[JsonValue] = [file for file in skill.folder.files if file != wanted]
    return ToolResult(ok=True, value={**result, "files": others} if others else result)


def _shown(skill: Skill, file: str) -> str:
    content = skill.folder.files[file]
    if len(content) > BIGGEST_SHOWN:
        raise BadCall(RULE, f"`{file}` of the skill `{skill.name}` is bigger than {BIGGEST_SHOWN // 1024} KiB, too big to be approved")
    return content.decode(errors="backslashreplace")


def _listed(skill: Skill) -> str:
    names = list(skill.folder.files)
    shown = ", ".join(f"`{name}`" for name in names[:20])
    return f"{shown} and {len(names) - 20} more" if len(names) > 20 else shown
