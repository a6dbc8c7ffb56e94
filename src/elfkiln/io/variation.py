"""What a reproduction changes in the programs that a build runs.

Builders give their programs a fixed environment, so what surrounds elfkiln does not reach them. `reproduce` wants it
to: its rebuild runs in a process of its own, and a variable there says what every child gets on top. Whoever builds
does not set it, and elfkiln's command line drops it.
"""

from __future__ import annotations

import os
from itertools import count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VARIABLE = "ELFKILN_REPRODUCTION"
_FIXED_NAMES = "ELFKILN_REPRODUCTION_NAMES"
_numbers: Iterator[int] = count(1)


def variables(extra: Mapping[str, str], *, fixed_names: bool) -> dict[str, str]:
    """Return the variables that hand `extra` to every child; with `fixed_names` private folders are numbered.

    Two builds under equal conditions then run in folders of equal names, so what hangs on a path shows as that.
    """
    import json

    return {VARIABLE: json.dumps(dict(extra))} | ({_FIXED_NAMES: "1"} if fixed_names else {})


def varied(environment: Mapping[str, str]) -> dict[str, str]:
    """Return a child's environment as a reproduction wants it; anywhere else the one that is given."""
    import json

    extra = os.environ.get(VARIABLE)
    return {**environment, **json.loads(extra)} if extra else dict(environment)


def reproducing() -> bool:
    """Whether this process works for a reproduction, which varies what it was started with."""
    return VARIABLE in os.environ


def number_from(first: int) -> None:
    """Let the numbers of private folders begin at `first`: processes that build together must not share them."""
    global _numbers
    _numbers = count(first)


def folder_token() -> str:
    """Return what makes a private folder's name its own: 16 hex digits."""
    import secrets

    return f"{next(_numbers):016x}" if os.environ.get(_FIXED_NAMES) else secrets.token_hex(8)


def drop() -> None:
    """Forget what a caller's environment says of a reproduction."""
    for name in (VARIABLE, _FIXED_NAMES):
        os.environ.pop(name, None)
