"""How children are kept from the network: what this system allows, found out once.

A network namespace of their own, made by the program that starts them (`elfkiln.io.keeper`), costs nothing that can be
measured. Where the system does not let its users make one, bubblewrap may be allowed to. Where neither works, they run
with the network, and that is said once.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from functools import cache

from elfkiln.io.terminal import tell

NAMESPACE, BUBBLEWRAP, NONE = "namespace", "bubblewrap", "none"


@dataclass(frozen=True, slots=True)
class Way:
    """How the network is forbidden, the words that go before a program for that, and why there is no better way."""

    kind: str
    prefix: tuple[str, ...] = ()
    reason: str = ""


_taken: list[Way] = []


def take(found: Way) -> None:
    """Take what the process that started this one found out, instead of trying it once more."""
    _taken[:] = [found]
    way.cache_clear()


@cache
def way() -> Way:
    """Return how the network can be forbidden here, tried once per process unless another one did."""
    if _taken:
        return _taken[0]
    first = Way(NAMESPACE)
    reason = _refusal(first)
    if not reason:
        return first
    program = shutil.which("bwrap")
    if program is not None:
        # The whole machine as it is, but for its network.
        prefix = (program, "--unshare-net", "--dev-bind", "/", "/", "--die-with-parent", "--")
        second = Way(BUBBLEWRAP, prefix, reason)
        if not _refusal(second):
            return second
    return Way(NONE, (), reason)


@cache
def say_what_is_not_forbidden() -> None:
    """Say, once per process, if generators and compilers run with the network."""
    found = way()
    if found.kind == NONE:
        tell(
            f"note: generators and compilers are not kept from the network: {found.reason}, and there is no bubblewrap "
            "that works; docs/security.md says what to do"
        )


def _refusal(tried: Way) -> str:
    """Return why a program cannot be run that way, "" when it can."""
    from elfkiln.io.child import GIB, ChildStopped, Limits, try_way

    limits = Limits(seconds=30, cpu_seconds=30, memory_bytes=4 * GIB, file_bytes=GIB)
    try:
        run = try_way(tried, (sys.executable, "-I", "-S", "-c", ""), limits)
    except ChildStopped as stopped:
        return str(stopped)
    return "" if run.exit_code == 0 else run.ending
