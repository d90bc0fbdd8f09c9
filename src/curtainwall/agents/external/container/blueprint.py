"""How a container is made: a wish and limits in, the engine's configuration out. What is not written here is not mounted or allowed."""

import os

from pydantic import JsonValue

from curtainwall.agents.external.container.inside import (
    HOME,
    MAIN,
    ORIENTATION,
    QUEUES,
    ROOT_FILES,
    RUN,
    SHARED_MEMORY,
    TEMPORARY,
    WORKSPACE,
)
from curtainwall.agents.external.container.owners import AGENT, HOUSE, OWNER, SESSION, Owner
from curtainwall.agents.external.container.terms import Folders, Limits, Wish

_SHARED = 64 * 1024**2


def blueprint(wish: Wish, limits: Limits, owner: Owner, house: str = "") -> dict[str, JsonValue]:
    """Return the configuration of a session's container."""
    folders = wish.folders
    mounts: list[JsonValue] = [
        _mount(str(folders.workspace), WORKSPACE, is_readonly=folders.is_readonly),
        *(_mount(path, _inside(path, folders), is_readonly=False) for path in folders.pinned),
        *(_mount(path, _inside(path, folders), is_readonly=True) for path in folders.fixed),
        *(_mount(os.devnull, _inside(path, folders), is_readonly=True) for path in folders.hidden),
        _mount(str(folders.orientation), ORIENTATION, is_readonly=True),
        # A socket can be connected to on a read-only mount; it cannot be replaced there.
        _mount(str(folders.run), RUN, is_readonly=True),
        _mount(str(folders.state), HOME, is_readonly=False),
        *(_mount(str(program.here), program.inside, is_readonly=True) for program in wish.programs),
    ]
    return {
        "Image": wish.image,
        "Entrypoint": [],
        "Cmd": list[JsonValue](MAIN),
        "User": f"{wish.user}:{wish.group}",
        "WorkingDir": WORKSPACE,
        "Hostname": "agent",
        "Env": [f"HOME={HOME}"],
        "Labels": {OWNER: owner.label, HOUSE: house, SESSION: wish.session, AGENT: wish.agent},
        "HostConfig": {
            "NetworkMode": "none",
            "Privileged": False,
            "CapDrop": ["ALL"],
            # Nothing is said of seccomp: the engine's default filter is the strictest that it has.
            "SecurityOpt": ["no-new-privileges:true"],
            "ReadonlyRootfs": True,
            "Mounts": mounts,
            "Tmpfs": {
                TEMPORARY: f"rw,exec,nosuid,nodev,mode=1777,size={limits.temporary}",
                SHARED_MEMORY: f"rw,noexec,nosuid,nodev,mode=1777,size={_SHARED}",
                ROOT_FILES: "rw,noexec,nosuid,nodev,mode=755,size=256k",
                # Otherwise the engine puts message queues there, which are files that anyone can make.
                QUEUES: "ro,noexec,nosuid,nodev,mode=555,size=4k",
            },
            "PidsLimit": limits.processes,
            "Memory": limits.memory,
            "MemorySwap": limits.memory,
            "NanoCpus": int(limits.cpus * 1_000_000_000),
            "Init": True,
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {"Type": "none"},
        },
    }


def _inside(path: str, folders: Folders) -> str:
    return WORKSPACE + path[len(str(folders.workspace)) :]


def _mount(here: str, inside: str, *, is_readonly: bool) -> dict[str, JsonValue]:
    return {"Type": "bind", "Source": here, "Target": inside, "ReadOnly": is_readonly, "BindOptions": {"Propagation": "rprivate"}}
