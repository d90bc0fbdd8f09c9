"""A container on a view: the engine mounts the same layers itself, while ours are not mounted."""

import os
import uuid
from pathlib import Path

import pytest

from tests.support.covers import covers
from tests.support.docker_engine import IMAGE, DockerEngine
from tests.support.views import NOBODY, give_to, place_of, plant, run_as

OURS = """
v = overlay.OverlayView(given["project"], Path(given["state"]))
print(views.run_inside(v.enter(), given["command"]), end="")
v.leave()
print(" ".join(f"{c.kind.value}:{c.path}:{c.refusal or c.conflict}" for c in v.changes().changes))
v.close()
"""
COMMAND = "cat a.txt ours; echo container >> a.txt; rm gone; rm -r e; mkdir e; echo 3 > e/3; mv d/b d/moved; echo c > container"


@covers("views.containers-see-the-view")
@pytest.mark.parametrize("user", [0, NOBODY], ids=["root", "an-ordinary-user"])
def test_a_container_works_on_the_same_view(docker_engine: DockerEngine, user: int, bubblewrap: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    with place_of(user) as (_, place):
        project, state, work = place / "pro,lowerdir=x:y", place / "state", place / "work"
        plant(project, {"a.txt": "a\n", "gone": "soon\n", "d/b": "bb\n", "e/1": "1\n", "e/2": "2\n"})
        for made in (state, work):
            made.mkdir()
        give_to(place, user)
        given = {"project": str(project), "state": str(state)}
        assert run_as(user, OURS, **given, command="echo ours > ours; rm e/2; cat a.txt") == "a\ndeleted:e/2: added:ours:\n"
        # The engine resolves our descriptors: no path is an option.
        layers = {"lowerdir": project, "upperdir": state / "upper", "workdir": work}
        opened = {name: os.open(path, os.O_PATH | os.O_DIRECTORY) for name, path in layers.items()}
        options = ",".join(f"{name}=/proc/{os.getpid()}/fd/{descriptor}" for name, descriptor in opened.items())
        volume = f"curtainwall-{uuid.uuid4().hex}"
        more = "userxattr,index=off,metacopy=off,xino=off,redirect_dir=nofollow"
        docker_engine.docker("volume", "create", "--opt", "type=overlay", "--opt", "device=overlay", "--opt", f"o={options},{more}", volume)
        try:
            words = ("run", "--rm", "--network", "none", "--user", f"{user}:{user}", "--cap-drop", "ALL")
            # Docker's short form of a mount has colons of its own.
            mount = f"type=volume,source={volume},target=/workspace"
            assert docker_engine.docker(*words, "--mount", mount, "-w", "/workspace", IMAGE, "sh", "-euc", COMMAND) == "a\nours"
        finally:
            docker_engine.docker("volume", "rm", volume)
            for descriptor in opened.values():
                os.close(descriptor)
        assert (project / "a.txt").read_text() == "a\n"
        assert {path.lstat().st_uid for path in (state / "upper").rglob("*") if not path.is_char_device()} == {user}
        after = run_as(user, OURS, **given, command="cat a.txt container e/3 d/moved; echo again >> a.txt; echo x > e/4; ls")
        assert after.splitlines() == [
            "a", "container", "c", "3", "bb", "a.txt", "container", "d", "e", "ours",
            "modified:a.txt: added:container: renamed:d/moved: deleted:e/1: deleted:e/2: added:e/3: added:e/4: deleted:gone: added:ours:",
        ]  # fmt: skip
        assert sorted(os.listdir(Path(project) / "e")) == ["1", "2"]
