"""Teams that foreign agents in containers serve: remembered like any other, and what we have to say about them comes with the answer."""

import os

from tests.integration.brokered.conftest import MODELS, SHELL, Brokered, configuration
from tests.support.covers import covers

AGENT = 1000
"""Whose the projects are: an agent never is root."""


def teams(brokered: Brokered, **agents: str) -> None:
    """Let agents serve teams, each in a project of its own."""
    assert brokered.provider is not None
    more = '[lists]\nteams = ["*"]\n'
    for team, agent in agents.items():
        project = brokered.scratch / team
        project.mkdir()
        os.chown(project, AGENT, AGENT)
        model = f'model = "{MODELS[agent]}"\n' if agent in MODELS else ""
        more += f'[teams.{team}]\nproject = "{project}"\nagent = "{agent}"\n{model}'
    brokered.configure(configuration(brokered.provider, more))


@covers("teams.any-agent-serves")
def test_an_agent_in_a_container_serves_a_team_and_remembers_each_asker(brokered: Brokered) -> None:
    teams(brokered, backend="claude-code", frontend=SHELL)

    def ask(team: str, text: str, *words: str) -> str:
        return str(brokered.json("teams", "ask", team, "--timeout", "2m", *words, text)["text"])

    assert ask("backend", "word=alpha") == "HEARD: alpha"
    assert ask("backend", "word=beta") == "HEARD: alpha, beta"
    assert ask("backend", "word=gamma", "--from", "frontend") == "HEARD: gamma"
    told = ask("frontend", "pwd; echo evil >.envrc; echo done")
    assert told.startswith("[`"), "what was set aside is said"
    assert "it was renamed to `.envrc.held`]\n\n[" in told
    assert "says how to put it back]\n\n/workspace\ndone" in told, "beside the answer, not in its place"
