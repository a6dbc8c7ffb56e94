"""Runs this Python's pip so that it installs into this Python and nowhere else, and ends with whoever started it.

    python -I -S own_pip.py install --require-hashes -r requirements.txt

What the caller's pip settings say of where packages come from is kept; whatever else they say, in variables or in
configuration files, is not: `user`, `target`, `prefix` and `root` would install elsewhere, and a constraint would
refuse what is pinned by its hash. A program of its own, as ./doit needs it before anything is installed.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import os
import signal
import subprocess
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

PR_SET_PDEATHSIG = 1
"""From linux/prctl.h: the signal that this process gets when its parent ends, pip's too as it replaces this one."""

INDEX_SETTINGS = (
    "cache-dir",
    "cert",
    "client-cert",
    "default-timeout",
    "extra-index-url",
    "find-links",
    "index-url",
    "keyring-provider",
    "no-index",
    "proxy",
    "retries",
    "timeout",
    "trusted-host",
)
"""The names of pip's settings that say where packages come from and how they are reached."""


def variable(name: str) -> str:
    """Return the variable of a setting.

    >>> variable("index-url")
    'PIP_INDEX_URL'
    """
    return "PIP_" + name.upper().replace("-", "_")


def pip_environment(environ: dict[str, str], configuration: str) -> dict[str, str]:
    """Return the environment of a pip that knows the caller's index and none of the caller's other settings.

    `configuration` is what `pip config list` says: a line `section.name='value'` a setting, where those of the section
    `install` or `download` go before `global`. Variables go before files, as pip has it.
    """
    kept = {name: value for name, value in environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    said: dict[str, str] = {}
    for line in sorted(configuration.splitlines(), key=lambda line: not line.startswith("global.")):
        place, _, text = line.partition("=")
        section, _, name = place.rpartition(".")
        if section in ("global", "install", "download") and name in INDEX_SETTINGS:
            with contextlib.suppress(ValueError, SyntaxError):
                # Several values stand one a line in a file, and are one line of words in a variable.
                said[variable(name)] = " ".join(str(ast.literal_eval(text)).split())
    said |= {variable(name): environ[variable(name)] for name in INDEX_SETTINGS if variable(name) in environ}
    return {**kept, **said, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def main(words: list[str]) -> NoReturn:
    """Become pip with these words."""
    parent = os.getppid()
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)  # it ended before its end could be followed
    pip = [sys.executable, "-I", "-m", "pip"]
    asked = subprocess.run(
        [*pip, "config", "list"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    environment = pip_environment(dict(os.environ), asked.stdout)
    os.execve(sys.executable, [*pip, *words], environment)


if __name__ == "__main__":
    main(sys.argv[1:])
