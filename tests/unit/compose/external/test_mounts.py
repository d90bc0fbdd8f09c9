"""What a user adds to a container: mounts that may never reach a protected path, caches of one project, and variables."""

import os
import socket
from pathlib import Path

import pytest

from curtainwall.agents.external.container.adapters.adapter import SURROUNDINGS
from curtainwall.compose.external.mounts import cache_mounts, extra_mounts, is_worth_masking
from curtainwall.config.agents import RESERVED_VARIABLES, AgentSection
from curtainwall.config.loader import parse_config
from curtainwall.model import CommandRefused, Mode, Workspace
from curtainwall.policy import Protection
from tests.support.covers import covers


def mounted(tmp_path: Path, *mounts: str, mode: Mode = Mode.DEFAULT, never: str = "", readonly: str = "") -> list[tuple[str, bool]]:
    protection = Protection(never=(never or f"{tmp_path}/user/.ssh",), readonly=(readonly or f"{tmp_path}/user/.bashrc",))
    workspace = Workspace(path=f"{tmp_path}/project", own=False)
    return [(str(each.here), each.is_readonly) for each in extra_mounts(AgentSection(mounts=mounts), workspace, mode, protection)]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("user/.ssh", "data", "project", "repository/.git", "repository/sub"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "user/.bashrc").touch()
    return tmp_path


@covers("container.mounts-are-checked")
def test_a_mount_is_read_only_unless_the_user_says_otherwise_and_always_in_plan_mode(tree: Path) -> None:
    assert mounted(tree, f"{tree}/data:/data") == [(f"{tree}/data", True)]
    assert mounted(tree, f"{tree}/data:/data:rw") == [(f"{tree}/data", False)]
    assert mounted(tree, f"{tree}/data:/data:rw", mode=Mode.PLAN) == [(f"{tree}/data", True)]


@covers("container.mounts-are-checked")
@pytest.mark.parametrize("path", ["user", "user/.ssh", "user/.ssh/keys", "way", "", "project", "project/sub"])
def test_no_mount_is_contains_or_leads_to_a_protected_path_or_the_workspace(tree: Path, path: str) -> None:
    (tree / "user/.ssh/keys").mkdir()
    (tree / "project/sub").mkdir()
    (tree / "way").symlink_to(tree / "user/.ssh")
    with pytest.raises(CommandRefused, match=r"protected path|overlaps the workspace"):
        mounted(tree, f"{tree}/{path}:/data")


@covers("container.mounts-are-checked")
@pytest.mark.parametrize("path", ["/.", "/run", "/var/run", "/proc", "/sys", "/dev", "/etc", "/etc/ssl", "/var/lib", "/root"])
def test_no_mount_reaches_the_system_or_the_engine(tree: Path, path: str) -> None:
    with pytest.raises(CommandRefused, match=r"protected path|is not there"):
        mounted(tree, f"{path}:/data")


@covers("container.mounts-are-checked")
def test_the_engines_own_socket_is_out_of_reach_wherever_it_is(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tree}/data/docker.sock")
    with pytest.raises(CommandRefused, match=r"protected path .*docker\.sock"):
        mounted(tree, f"{tree}/data:/data")


@covers("container.mounts-are-checked")
def test_what_is_read_only_for_agents_or_runs_later_cannot_be_mounted_for_writing(tree: Path) -> None:
    assert mounted(tree, f"{tree}/user/.bashrc:/rc", never=f"{tree}/x") == [(f"{tree}/user/.bashrc", True)]
    with pytest.raises(CommandRefused, match="protected path"):
        mounted(tree, f"{tree}/user/.bashrc:/rc:rw", never=f"{tree}/x")
    assert mounted(tree, f"{tree}/repository/sub:/data") == [(f"{tree}/repository/sub", True)]
    with pytest.raises(CommandRefused, match="git repository"):
        mounted(tree, f"{tree}/repository/sub:/data:rw")


@covers("container.mounts-are-checked")
def test_sockets_and_pipes_are_neither_mounted_nor_visible_below_a_mount(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tree / "data/pipe")
    monkeypatch.chdir(tree / "data")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("s")
        protection, workspace = Protection(), Workspace(path=f"{tree}/project", own=False)
        (mount,) = extra_mounts(AgentSection(mounts=(f"{tree}/data:/data",)), workspace, Mode.DEFAULT, protection)
        assert sorted(mount.hidden) == [f"{tree}/data/pipe", f"{tree}/data/s"]
        with pytest.raises(CommandRefused, match="neither a directory nor a plain file"):
            mounted(tree, f"{tree}/data/s:/s")


@covers("container.caches-belong-to-a-project")
def test_a_cache_is_shared_by_the_sessions_of_one_project_alone(tree: Path) -> None:
    section = AgentSection(caches=(".cache/pip", ".npm"))

    def of(agent: str, project: str, *, own: bool = False) -> list[tuple[Path, str]]:
        return [(each.here, each.inside) for each in cache_mounts(section, agent, Workspace(path=project, own=own), tree / "caches")]

    one = of("codex", "/one")
    assert one == of("codex", "/one")
    assert [inside for _, inside in one] == ["/home/agent/.cache/pip", "/home/agent/.npm"]
    assert {here for here, _ in one}.isdisjoint(here for here, _ in (*of("codex", "/two"), *of("gemini", "/one")))
    assert of("codex", "/one", own=True) == []


@covers("container.extras-in-the-configuration")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("mounts = ['data:/data']", "write it as `/path/here:/path/inside`"),
        ("mounts = ['/data:/data:ro']", "write it as `/path/here:/path/inside`"),
        ("mounts = ['/data:/workspace/x']", "`/workspace/x` belongs to the container itself"),
        ("mounts = ['/data:/home']", "`/home` belongs to the container itself"),
        ("mounts = ['/data:/etc/curtainwall']", "belongs to the container itself"),
        ("mounts = ['/data:/data/../etc']", "is not a plain path"),
        ("caches = ['../x']", "write a path in its home"),
        ("caches = ['.cache/../../x']", "write a path in its home"),
        ("caches = ['/etc']", "write a path in its home"),
        ("ports = ['22']", "22 cannot be forwarded"),
        ("ports = ['8080:99999']", "99999 cannot be forwarded"),
        ("ports = ['0.0.0.0:80']", "write a port"),
        ("env = ['HTTPS_PROXY=http://x']", "`HTTPS_PROXY` is set by Curtainwall"),
        ("env = ['no_proxy=*']", "`no_proxy` is set by Curtainwall"),
        ("env = ['OPENAI_API_KEY=k']", "`OPENAI_API_KEY` is set by Curtainwall"),
        ("env = ['CURTAINWALL_TOOLS=x']", "`CURTAINWALL_TOOLS` is set by Curtainwall"),
        ("resume = ['x']", "`resume` and `providers` are for an agent of your own"),
        ("image = 'devcontainer'\nready = true", "write the `image` that it runs in"),
    ],
)
def test_what_cannot_be_added_is_refused_when_the_configuration_is_loaded(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        parse_config(f"[agents.codex]\n{line}")


@covers("container.extras-in-the-configuration")
def test_a_shipped_agent_takes_variables_mounts_caches_and_ports() -> None:
    text = "[agents.codex]\nenv = ['REGION=eu']\nmounts = ['~/data:/data', '/srv:/srv:rw']\ncaches = ['.npm']\nports = ['3000', '8080:80']"
    with pytest.raises(ValueError, match="80 cannot be forwarded"):
        parse_config(text)
    section = parse_config(text.replace(":80'", ":8000'")).agents["codex"]
    assert (section.env, section.ports, section.keep) == (("REGION=eu",), ("3000", "8080:8000"), False)
    assert frozenset(name.upper() for name in SURROUNDINGS) <= RESERVED_VARIABLES


@covers("container.extras-in-the-configuration")
def test_a_variables_value_is_masked_unless_it_is_an_ordinary_word() -> None:
    assert [is_worth_masking(value) for value in ("tok-12345678", "production", "eu", "3000")] == [True, False, False, False]
