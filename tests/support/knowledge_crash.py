"""Skill, plan and notes in a real process that dies at its n-th commit: `python -m tests.support.knowledge_crash PLACE N before|after`.

Each note that is really kept is a line of the general memory, which only grows, so what happened is counted there.
"""

from pathlib import Path

from tests.support.crashing import NOTED, play

PROGRAM = f"""
{NOTED}
told = [await noted("skill", session.load_skill(name="ship"))]
steps = [{{"tool": "session.remember", "arguments": {{"text": text}}}} for text in ("one", "two")]
told.append(await noted("plan", session.propose_plan(steps=steps)))
told.append(await noted("one", session.remember(text="one")))
told.append(await noted("two", session.remember(text="two")))
told.append(await noted("three", session.remember(text="three")))
print(told)
"""


def bring_along(workspace: Path) -> None:
    folder = workspace / ".claude" / "skills" / "ship"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text("---\nname: ship\n---\nShip it.\n")


if __name__ == "__main__":
    play(PROGRAM, bring=bring_along)
