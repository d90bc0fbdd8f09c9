"""Makes connections on behalf of a confined family, so that it cannot reach the user's Unix sockets through a mounted directory.

A read-only mount does not prevent connecting to a socket in it, and a system-call filter cannot see paths. So the filter installed here
stops every `connect` and hands it to a process outside. That process copies the address, finds the socket file as the confined process
would, and connects to the very file that it checked, so that nothing can be swapped in between. It allows sockets in the confinement's own
memory, sockets that were given by name, and addresses without a path: network addresses and abstract names, which belong to the
confinement's network namespace.

Run as `python -I -S connect_broker.py FILTER PLACES GIVEN PROGRAM WORD …`, it forks the broker and becomes PROGRAM. FILTER is the seccomp
program in hex, PLACES are the mount points of the confinement's own memory, separated by `:`, and GIVEN is `DEVICE-INODE` of each given
socket, separated by commas. It imports only the standard library, and little of it, because a command waits for it.
"""

import _socket
import ctypes
import os
import struct
import sys

_SET_NO_NEW_PRIVS, _SET_PDEATHSIG, _SIGKILL = 38, 1, 9
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 3, 1 << 5
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
_NOTICE, _REPLY = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
# The same numbers on every architecture.
_PIDFD_GETFD, _OPENAT2 = 438, 437
_IN_ROOT_WITHOUT_MAGIC = 0x10 | 0x02
_LONGEST_ADDRESS, _FAMILY = 128, 2
_MOST_AT_ONCE = 32

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def main(program: str, places: str, given: str, argv: list[str]) -> None:
    """Start the broker and become the program; exit with 126 if the filter cannot be installed."""
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    if os.fork() == 0:
        try:
            ours.close()
            pairs = (socket.split("-") for socket in given.split(",") if socket)
            _serve(theirs, frozenset(places.split(":")), frozenset((int(device), int(inode)) for device, inode in pairs))
        finally:
            os._exit(0)
    theirs.close()
    try:
        listener = install(bytes.fromhex(program))
        ours.sendmsg([b"1"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("@i", listener))])
        ours.close()
        os.close(listener)
        os.execve(argv[0], argv, {})  # noqa: S606 - no shell is the point
    except OSError as fault:
        os.write(2, f"bwrap: {fault}\n".encode())
        os._exit(126)


def install(program: bytes) -> int:
    """Filter this process and all that it will start, and return the descriptor that notifies the broker of calls; raise OSError."""
    buffer = ctypes.create_string_buffer(program, len(program))
    filter_struct = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer)))
    if _libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise _fault("no new privileges")
    number = _SECCOMP[os.uname().machine]
    # A signal must not interrupt a connection, or it would be made twice; kernels before 5.19 lack this flag.
    for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):
        listener = _libc.syscall(ctypes.c_long(number), ctypes.c_long(_SET_FILTER), ctypes.c_long(flags), filter_struct)
        if listener >= 0:
            return int(listener)
    raise _fault("system-call filter")


def _serve(control: _socket.socket, places: frozenset[str], given: frozenset[tuple[int, int]]) -> None:
    """Act as the broker until no filtered process is left."""
    _libc.prctl(_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    _, ancillary, _, _ = control.recvmsg(1, _socket.CMSG_SPACE(4))
    (listener,) = struct.unpack("@i", ancillary[0][2])
    # The family's pipes must close with the family, not with us.
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != listener:
            try:
                os.close(int(name))
            except OSError:
                continue
    Broker(listener, places, given).serve()


class Broker:
    """Answers the calls of one family, each in a thread, so that a slow connection does not delay the others."""

    def __init__(self, listener: int, places: frozenset[str], given: frozenset[tuple[int, int]]) -> None:
        # Imported after the fork, so that the command does not wait for them.
        import errno
        import fcntl
        import threading
        from contextlib import suppress

        self._listener = listener
        self._places = places
        self._given = given
        self._devices: frozenset[int] | None = None
        self._free = threading.Semaphore(_MOST_AT_ONCE)
        self._thread = threading.Thread
        self._ioctl = fcntl.ioctl
        self._errno = errno
        self._suppress = suppress

    def serve(self) -> None:
        """Answer until the last process of the family is gone."""
        import select

        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        while True:
            self._free.acquire()
            ((_, event),) = poll.poll()
            if not event & select.POLLIN:
                return
            notice = bytearray(_NOTICE.size)
            try:
                self._ioctl(self._listener, _RECEIVE, notice)
            except OSError as fault:
                self._free.release()
                if fault.errno not in (self._errno.ENOENT, self._errno.EINTR):
                    return
                # The caller was killed meanwhile.
                continue
            self._thread(target=self._answer, args=(bytes(notice),), daemon=True).start()

    def _answer(self, notice: bytes) -> None:
        id_, task, _, _, _, _, descriptor, address, length, *_ = _NOTICE.unpack(notice)
        try:
            code = self._connect(id_, task, descriptor & 0xFFFFFFFF, address, length & 0xFFFFFFFF)
        except OSError as fault:
            code = fault.errno or self._errno.EACCES
        with self._suppress(OSError):
            # The caller may have been killed meanwhile.
            self._ioctl(self._listener, _SEND, _REPLY.pack(id_, 0, -code, 0))
        self._free.release()

    def _connect(self, id_: int, task: int, descriptor: int, address: int, length: int) -> int:
        """Make one connection and return 0, or an error number."""
        if not _FAMILY <= length <= _LONGEST_ADDRESS:
            return self._errno.EINVAL
        with open(f"/proc/{task}/mem", "rb", buffering=0) as memory:
            address_bytes = os.pread(memory.fileno(), length, address)
        if len(address_bytes) != length:
            return self._errno.EFAULT
        process = os.pidfd_open(_leader(task))
        try:
            socket_fd = int(_libc.syscall(ctypes.c_long(_PIDFD_GETFD), ctypes.c_long(process), ctypes.c_long(descriptor), ctypes.c_long(0)))
        finally:
            os.close(process)
        if socket_fd < 0:
            return ctypes.get_errno()
        try:
            # INVARIANT: what we read belongs to the caller that waits for us, not to another process that reuses its number.
            self._ioctl(self._listener, _IS_VALID, struct.pack("=Q", id_))
            return self._connect_socket(socket_fd, address_bytes, task, id_)
        finally:
            os.close(socket_fd)

    def _connect_socket(self, socket_fd: int, address: bytes, task: int, id_: int) -> int:
        probe = _socket.socket(fileno=os.dup(socket_fd))
        domain = probe.getsockopt(_socket.SOL_SOCKET, _socket.SO_DOMAIN)
        probe.close()
        if domain not in (_socket.AF_UNIX, _socket.AF_INET, _socket.AF_INET6):
            # We have rights over its network that the caller lacks.
            return self._errno.EOPNOTSUPP
        path = address[_FAMILY:].split(b"\0", 1)[0]
        if domain != _socket.AF_UNIX or not path:
            return _connect(socket_fd, address)
        target = self._find(path, task)
        try:
            status = os.fstat(target)
            if status.st_dev not in self._own_devices(task) and (status.st_dev, status.st_ino) not in self._given:
                return self._errno.EACCES
            # INVARIANT: the caller still waits for us, so its number, and with it the root and the mounts, belonged to no other process.
            self._ioctl(self._listener, _IS_VALID, struct.pack("=Q", id_))
            return _connect(socket_fd, address[:_FAMILY] + f"/proc/self/fd/{target}".encode() + b"\0")
        finally:
            os.close(target)

    def _find(self, path: bytes, task: int) -> int:
        """Open a path as the confined process sees it; the kernel's magic links are not followed."""
        if not path.startswith(b"/"):
            path = os.readlink(f"/proc/{task}/cwd".encode()) + b"/" + path
        root = os.open(f"/proc/{task}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, _IN_ROOT_WITHOUT_MAGIC)
        try:
            target = int(_libc.syscall(ctypes.c_long(_OPENAT2), ctypes.c_long(root), path, how, ctypes.c_long(len(how))))
        finally:
            os.close(root)
        if target < 0:
            raise OSError(ctypes.get_errno(), "not found")
        return target

    def _own_devices(self, task: int) -> frozenset[int]:
        """Return the devices of the confinement's own memory. Nobody inside can mount, so they never change."""
        if self._devices is None:
            devices: set[int] = set()
            with open(f"/proc/{task}/mountinfo") as mounts:
                for line in mounts:
                    fields = line.split(" ")
                    if fields[4] in self._places and fields[fields.index("-") + 1] == "tmpfs":
                        major, minor = fields[2].split(":")
                        devices.add(os.makedev(int(major), int(minor)))
            self._devices = frozenset(devices)
        return self._devices


def _leader(task: int) -> int:
    with open(f"/proc/{task}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("Tgid:"))


def _connect(socket_fd: int, address: bytes) -> int:
    return 0 if _libc.connect(socket_fd, address, len(address)) == 0 else ctypes.get_errno()


def _fault(what: str) -> OSError:
    fault = ctypes.get_errno()
    return OSError(fault, f"{what}: {os.strerror(fault)}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
