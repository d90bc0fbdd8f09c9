"""Switches to another user who can reach the paths of a confinement, with limits it cannot raise, and then executes a program.

Run as `python -I -S owner_entry.py UID GID LIMITS COUNT PATH … PROGRAM WORD …`. LIMITS are `RESOURCE=VALUE`, separated by commas, and
COUNT is the number of paths. The paths may lie in directories that this user cannot enter, such as root's home. Bubblewrap walks to them,
so this process gets a view of the file system in which those directories can be entered and hold nothing but the paths.

The limits are set here and not from outside, because a root without CAP_SYS_RESOURCE, as in most containers, cannot limit the processes of
others. The view is made in a user namespace, because such a root cannot mount either. It imports only the standard library.
"""

import ctypes
import os
import resource
import stat
import sys

_NEW_USERS, _NEW_MOUNTS = 0x10000000, 0x00020000
_BIND, _RECURSIVE, _PRIVATE, _NO_SUID, _NO_DEVICES, _NO_EXEC = 0x1000, 0x4000, 0x40000, 0x2, 0x4, 0x8

_libc = ctypes.CDLL(None, use_errno=True)


def main(uid: int, gid: int, limits: str, paths: list[str], argv: list[str]) -> None:
    """Become the program; exit with 126 if that fails."""
    try:
        for limit in limits.split(","):
            which, _, value = limit.partition("=")
            resource.setrlimit(int(which), (int(value), int(value)))
        closed = {path: top for path in paths if (top := _closed_above(path, uid, gid)) is not None}
        if closed:
            _uncover(closed, uid, gid)
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
        os.execve(argv[0], argv, {})  # noqa: S606 - no shell is the point
    except OSError as fault:
        os.write(2, f"bwrap: {fault}\n".encode())
        os._exit(126)


def _closed_above(path: str, uid: int, gid: int) -> str | None:
    """Return the first directory in a path that a user cannot enter."""
    directory = ""
    for name in ("", *path.split("/")[1:-1]):
        directory = f"{directory.rstrip('/')}/{name}"
        status = os.lstat(directory)
        needed = stat.S_IXUSR if status.st_uid == uid else stat.S_IXGRP if status.st_gid == gid else stat.S_IXOTH
        if not status.st_mode & needed:
            return directory
    return None


def _uncover(closed: dict[str, str], uid: int, gid: int) -> None:
    """Mount empty directories over closed ones, for this process only, with nothing but the paths in them."""
    _enter_namespaces(uid, gid)
    opened = {path: os.open(path, os.O_PATH | os.O_NOFOLLOW) for path in closed}
    for top in sorted(set(closed.values())):
        _mount("none", top, "tmpfs", _NO_SUID | _NO_DEVICES | _NO_EXEC, "size=64k,mode=0755")
    for path, descriptor in opened.items():
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            os.makedirs(path, exist_ok=True)
        else:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
        _mount(f"/proc/self/fd/{descriptor}", path, None, _BIND | _RECURSIVE)
        os.close(descriptor)


def _enter_namespaces(uid: int, gid: int) -> None:
    """Enter new user and mount namespaces, in which root and the other user have the same ids as outside."""
    ready, done = os.pipe(), os.pipe()
    if os.fork() == 0:
        # Only a process outside the namespace may map a user other than its own.
        code = 1
        try:
            os.close(ready[1])
            os.close(done[0])
            if os.read(ready[0], 1):
                for kind, number in (("uid", uid), ("gid", gid)):
                    lines = "\n".join(f"{each} {each} 1" for each in sorted({0, number}))
                    with open(f"/proc/{os.getppid()}/{kind}_map", "w") as file:
                        file.write(f"{lines}\n")
                os.write(done[1], b"1")
                code = 0
        finally:
            os._exit(code)
    os.close(ready[0])
    os.close(done[1])
    _require_success(_libc.unshare(_NEW_USERS), "a user namespace")
    os.write(ready[1], b"1")
    os.close(ready[1])
    is_mapped = os.read(done[0], 1)
    os.close(done[0])
    os.wait()
    if not is_mapped:
        raise OSError(0, "the owner of the directory cannot be mapped into a user namespace")
    _require_success(_libc.unshare(_NEW_MOUNTS), "a mount namespace")
    _mount("none", "/", None, _RECURSIVE | _PRIVATE)


def _mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    arguments = (source.encode(), target.encode(), None if kind is None else kind.encode(), ctypes.c_ulong(flags), options.encode())
    _require_success(_libc.mount(*arguments), target)


def _require_success(result: int, what: str) -> None:
    if result != 0:
        fault = ctypes.get_errno()
        raise OSError(fault, os.strerror(fault), what)


if __name__ == "__main__":
    count = int(sys.argv[4])
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[5 : 5 + count], sys.argv[5 + count :])
