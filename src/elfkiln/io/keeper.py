"""The program between elfkiln and its child processes: whatever ends elfkiln ends them, with all they started.

Run as `python -I -S keeper.py` with one end of a socket pair as standard input; `elfkiln.io.child` starts it, and no
other code imports it. For each child it forks a guardian. The guardian becomes the reaper of everything below it
(PR_SET_CHILD_SUBREAPER), starts the child in a session of its own with the limits asked for, and waits for the child to
end or for elfkiln to hang up. Then it kills what is left, also what has left the session, and says how the child ended.

It is one process apart, and forks in it, because elfkiln has threads: between fork and exec a process with threads must
not run Python, and the signal that follows a parent's death (PR_SET_PDEATHSIG) follows the death of a thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
"""From linux/prctl.h."""

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
"""From linux/sched.h."""

DESCRIPTORS = 4
"""What comes with a request: the line to elfkiln, and the child's standard input, output and error."""

LENGTH_BYTES = 4
"""A request is its length, big-endian, and JSON; the answer is one JSON object, ended by the end of the stream."""


def main() -> int:
    """Serve until elfkiln hangs up, which the kernel sees to however it ends."""
    requests = socket.socket(fileno=os.dup(0))
    # No guardian and no child shall hold this line open.
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # guardians are nobody's to wait for
    while True:
        _, descriptors, _, _ = socket.recv_fds(requests, 1, DESCRIPTORS)
        if len(descriptors) != DESCRIPTORS:
            return 0
        if os.fork() == 0:
            requests.close()
            try:
                guard(*descriptors)
            finally:
                os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)


def guard(control: int, *streams: int, work: Callable[[], int] | None = None) -> None:
    """Run one child and answer on `control`; `streams` become its standard input, output and error.

    The child is the program asked for or, in a process that was forked for it, `work`, which returns its exit code.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for descriptor in (control, *streams):
        os.set_inheritable(descriptor, False)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    with socket.socket(fileno=control) as line:
        request = json.loads(_read(line, int.from_bytes(_read(line, LENGTH_BYTES), "big")))
        child = _start(request, streams, work)
        for descriptor in streams:
            os.close(descriptor)
        answer: dict[str, object] = {"failure": child} if isinstance(child, str) else {"status": _watch(child, line)}
        with contextlib.suppress(OSError):
            line.sendall(json.dumps(answer).encode())


def _read(line: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = line.recv(length - len(data))
        if not part:
            os._exit(0)  # hung up before there was a child
        data += part
    return data


def _start(request: dict[str, Any], streams: tuple[int, ...], work: Callable[[], int] | None) -> int | str:
    """Fork the child and return its number, or why it could not be started."""
    heard, said = os.pipe()
    guardian = os.getpid()
    child = os.fork()
    if child == 0:
        code = 127
        try:
            _enter(request, streams, guardian)
            if work is None:
                _become(request)
            else:
                os.close(heard)
                os.close(said)
                code = work()
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.write(said, (getattr(error, "strerror", None) or str(error) or type(error).__name__).encode())
        finally:
            os._exit(code)
    os.close(said)
    with open(heard, "rb") as stream:
        # Nothing but the end comes when the child became another program, which closed its end.
        failure = stream.read(4096).decode("utf-8", "replace")
    if not failure:
        return child
    os.waitpid(child, 0)
    return failure


def _enter(request: dict[str, Any], streams: tuple[int, ...], guardian: int) -> None:
    """Give this forked process the child's session, streams, folder and limits."""
    os.setsid()
    if request.get("offline"):
        leave_network()
    dies_with(guardian)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    os.chdir(_bytes(request["cwd"]))
    for name, value in request["limits"].items():
        _limit(getattr(resource, name), value)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        # Python ignores these, and what is ignored stays ignored in a new program.
        signal.signal(number, signal.SIG_DFL)


def _become(request: dict[str, Any]) -> None:
    """Turn this process into the program; texts come as Latin-1, which holds any bytes."""
    words = [_bytes(word) for word in request["argv"]]
    os.execve(words[0], words, {_bytes(name): _bytes(value) for name, value in request["environment"].items()})


def leave_network() -> None:
    """Put this process into a network of its own, which has no way out; raises `OSError` where that is not allowed.

    The superuser can do that at once. Anybody else first enters a user namespace, in which they are who they were.
    """
    user, group = os.getuid(), os.getgid()
    call = ctypes.CDLL(None, use_errno=True).unshare
    if user == 0 and call(CLONE_NEWNET) == 0:
        return
    if call(CLONE_NEWUSER | CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    for name, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(line)


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


def _limit(kind: int, value: int) -> None:
    """Set a limit, or keep a lower one that this process is under already."""
    _, hard = resource.getrlimit(kind)
    most = value if hard == resource.RLIM_INFINITY else min(value, hard)
    if kind == resource.RLIMIT_CPU:
        # The soft limit sends SIGXCPU, by which this end is known from others; the hard one kills.
        grace = most + 5 if hard == resource.RLIM_INFINITY else min(most + 5, hard)
        resource.setrlimit(kind, (most, grace))
    else:
        resource.setrlimit(kind, (most, most))


def _watch(child: int, line: socket.socket) -> int:
    """Wait until the child ends or elfkiln hangs up; kill what is left; return the child's wait status."""
    poll = select.poll()
    poll.register(line, select.POLLIN)
    try:
        ended = os.pidfd_open(child)
    except (AttributeError, OSError):
        # An older kernel: look every few milliseconds.
        while not poll.poll(5) and os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            pass
    else:
        poll.register(ended, select.POLLIN)
        poll.poll()
        os.close(ended)
    return _end_all(child)


def _end_all(child: int) -> int:
    """Kill the child's session and every descendant there is, until none is left; return the child's wait status."""
    status = 0
    # The child is not reaped yet, so the number of its session is nobody else's.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    while True:
        try:
            number, found = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if number == child:
            status = found
        elif number == 0:
            for descendant in _children():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(descendant, signal.SIGKILL)
            time.sleep(0.002)


def _children() -> list[int]:
    """Return the processes whose parent this one is: every orphan below it has become that."""
    own = str(os.getpid())
    found = []
    with contextlib.suppress(FileNotFoundError):
        for name in filter(str.isdecimal, os.listdir("/proc")):
            with contextlib.suppress(OSError, IndexError), open(f"/proc/{name}/stat", "rb") as stat:
                # "pid (name) state ppid ...", and a name may hold anything.
                if stat.read().rpartition(b")")[2].split()[1] == own.encode():
                    found.append(int(name))
    return found


def dies_with(parent: int) -> None:
    """Let the kernel kill this process when its parent dies; for a fork of a process without threads."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(127)  # it died before its death could be followed


def _prctl(option: int, value: int) -> None:
    # Where the system has no such call, the session alone is killed.
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
