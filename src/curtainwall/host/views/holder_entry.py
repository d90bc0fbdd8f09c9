"""Holds the one mount of a view in namespaces of its own, and mounts and unmounts it on request.

Run as `python -I -S holder_entry.py SOCKET UID GID LOCK`. SOCKET is a descriptor; each request on it, and each answer, is one message of
words that end with a zero byte, and answers come with descriptors. UID and GID own the project, and LOCK is a file: whoever holds its lock
may mount this view, so that there are never two mounts of one. The process ends when the other end of the socket is closed, and the mount
with it.

Everything is done in a user namespace, because a root in a container cannot mount outside of one. It imports only the standard library,
and of that only what is quickly there: an agent's first command waits for this process.
"""

import _socket
import ctypes
import errno
import fcntl
import os
import sys
import time

_NEW_USERS, _NEW_MOUNTS = 0x10000000, 0x00020000
_BIND, _RECURSIVE, _PRIVATE, _NO_SUID, _NO_DEVICES = 0x1000, 0x4000, 0x40000, 0x2, 0x4
_LONGEST = 65_536
_LOCK_SECONDS, _BUSY_SECONDS, _PAUSE = 5.0, 2.0, 0.002
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A change of the project below is undefined while these are on, even when nothing is mounted.
_OPTIONS = "userxattr,index=off,metacopy=off,xino=off,redirect_dir=nofollow"

_libc = ctypes.CDLL(None, use_errno=True)


def main(descriptor: int, uid: int, gid: int, lock: str) -> None:
    """Serve until the other end is closed."""
    requests = _socket.socket(fileno=descriptor)
    try:
        held = _take_lock(lock)
        _enter_namespaces(uid, gid)
        namespaces = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in ("user", "mnt")]
        _answer(requests, (), namespaces)
    except OSError as fault:
        _answer(requests, _described(fault))
        return
    while request := requests.recv(_LONGEST):
        do, target, *layers = (os.fsdecode(word) for word in request.split(b"\0"))
        opened: list[int] = []
        try:
            if do == "mount":
                opened.append(_mount_view(target, layers))
            else:
                _unmount(target)
            _answer(requests, (), opened)
        except OSError as fault:
            _answer(requests, _described(fault))
        finally:
            for each in opened:
                os.close(each)
    os.close(held)


def _answer(requests: _socket.socket, fault: tuple[str, ...], descriptors: list[int] | None = None) -> None:
    """Send what went wrong and where, or descriptors."""
    packed = b"".join(each.to_bytes(4, sys.byteorder) for each in descriptors or [])
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)] if packed else []
    requests.sendmsg([b"\0".join(os.fsencode(word) for word in (fault or ("done",)))], rights)


def _described(fault: OSError) -> tuple[str, ...]:
    return "fault", fault.strerror or str(fault), str(fault.filename or "")


def _take_lock(path: str) -> int:
    """Wait until the holder of a process that died is gone."""
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return opened
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise OSError(errno.EBUSY, "another process has this view mounted", path) from None
            time.sleep(_PAUSE)


def _mount_view(target: str, layers: list[str]) -> int:
    """Mount an overlay, or a directory, over the project, and return a descriptor of what is there now."""
    opened: list[int] = []
    try:
        while layers:
            path, device, inode, *layers = layers
            opened.append(_open_same(path, device, inode))
        if len(opened) == 3:
            # INVARIANT: no path is an option: a comma or a colon in it would be one more.
            named = zip(("lowerdir", "upperdir", "workdir"), opened, strict=True)
            options = ",".join((*(f"{name}=/proc/self/fd/{each}" for name, each in named), _OPTIONS))
            _mount("overlay", target, "overlay", _NO_SUID | _NO_DEVICES, options)
        else:
            _mount(f"/proc/self/fd/{opened[-1]}", target, None, _BIND)
    finally:
        for each in opened:
            os.close(each)
    try:
        return os.open(target, _DIRECTORY)
    except OSError:
        _unmount(target)
        raise


def _open_same(path: str, device: str, inode: str) -> int:
    """Open a directory in our namespace, and require it to be the one that was meant."""
    opened = os.open(path, _DIRECTORY)
    status = os.fstat(opened)
    if (status.st_dev, status.st_ino) != (int(device), int(inode)):
        os.close(opened)
        raise OSError(errno.ESTALE, "another directory was put in its place", path)
    return opened


def _unmount(target: str) -> None:
    deadline = time.monotonic() + _BUSY_SECONDS
    while _libc.umount2(os.fsencode(target), 0) != 0:
        fault = ctypes.get_errno()
        if fault != errno.EBUSY or time.monotonic() > deadline:
            raise OSError(fault, os.strerror(fault), target)
        time.sleep(_PAUSE)


def _enter_namespaces(uid: int, gid: int) -> None:
    """Enter new user and mount namespaces in which we, and the project's owner, have the same ids as outside."""
    ids = (("uid", {os.geteuid(), uid}), ("gid", {os.getegid(), gid}))
    ours = all(len(each) == 1 for _, each in ids)
    ready, done = os.pipe(), os.pipe()
    # Only a process outside the namespace may map a user other than its own.
    child = 0 if ours else os.fork()
    if not ours and child == 0:
        code = 1
        try:
            os.close(ready[1])
            os.close(done[0])
            if os.read(ready[0], 1):
                _map(f"/proc/{os.getppid()}", ids)
                os.write(done[1], b"1")
                code = 0
        finally:
            os._exit(code)
    os.close(ready[0])
    os.close(done[1])
    _require_success(_libc.unshare(_NEW_USERS), "a user namespace")
    if ours:
        with open("/proc/self/setgroups", "w") as file:
            file.write("deny")
        _map("/proc/self", ids)
    else:
        os.write(ready[1], b"1")
        is_mapped = os.read(done[0], 1)
        os.waitpid(child, 0)
        if not is_mapped:
            raise OSError(errno.EPERM, "the project's owner cannot be mapped into a user namespace")
    os.close(ready[1])
    os.close(done[0])
    _require_success(_libc.unshare(_NEW_MOUNTS), "a mount namespace")
    _mount("none", "/", None, _RECURSIVE | _PRIVATE)


def _map(process: str, ids: tuple[tuple[str, set[int]], ...]) -> None:
    for kind, numbers in ids:
        with open(f"{process}/{kind}_map", "w") as file:
            file.write("".join(f"{each} {each} 1\n" for each in sorted(numbers)))


def _mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    words = (os.fsencode(source), os.fsencode(target), None if kind is None else kind.encode())
    _require_success(_libc.mount(*words, ctypes.c_ulong(flags), options.encode()), target)


def _require_success(result: int, what: str) -> None:
    if result != 0:
        fault = ctypes.get_errno()
        raise OSError(fault, os.strerror(fault), what)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
