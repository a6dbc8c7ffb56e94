"""The conditions a rebuild runs under, and which of them its output hangs on.

A build must come to the same bytes whatever these are. `reproduce` changes all of them at once; where bytes differ
then, `find_causes` builds a few times more and names the one that matters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

RANDOM = "random order or values: two builds under equal conditions differ, on one processor too"
RANDOM_OR_CLOCK = f"{RANDOM} (or the clock: faketime is not installed, so that is not known)"
THREADS = "the order of threads: builds on one processor are equal, on several they differ"
TOGETHER = "several conditions together: each alone changes nothing"
NONE_OF_THESE = "none of the conditions: it comes to these bytes whatever they are"


@dataclass(frozen=True, slots=True)
class Conditions:
    """What surrounds a build.

    `folder`, `home` and `tmpdir` are names below the reproduction's own folder; `clock` is a time that stands (UTC), or
    faketime's word for one that runs ("": the true one); `listing` the order in which folders are listed, `cpus` how
    many processors it may use (None: all there are).
    """

    folder: str
    home: str
    tmpdir: str
    user: str
    locale: str
    timezone: str
    umask: int
    clock: str
    hash_seed: int
    jobs: int
    listing: str
    cpus: int | None = None

    def to_json(self) -> dict[str, object]:
        """Return the JSON form; paths are relative to the reproduction's folder."""
        return {
            "folder": self.folder,
            "home": self.home,
            "tmpdir": self.tmpdir,
            "user": self.user,
            "locale": self.locale,
            "timezone": self.timezone,
            "umask": f"{self.umask:03o}",
            "clock": self.clock or None,
            "hash_seed": self.hash_seed,
            "jobs": self.jobs,
            "listing": self.listing,
        }


DIMENSIONS: Mapping[str, str] = MappingProxyType(
    {
        "clock": "the clock",
        "folder": "the path of the folder it is built in",
        "hash_seed": "Python's hash seed",
        "listing": "the order in which a folder is listed",
        "jobs": "how many recipes are built at once",
        "locale": "the locale",
        "timezone": "the time zone",
        "umask": "the umask",
        "home": "HOME",
        "tmpdir": "TMPDIR",
        "user": "the user's name",
    }
)
"""What is varied, the likeliest first, and how it is called in messages."""

PLAIN = Conditions(
    folder="plain",
    home="home",
    tmpdir="tmp",
    user="builder",
    locale="C.UTF-8",
    timezone="UTC",
    umask=0o022,
    clock="2030-01-02 03:04:05",
    hash_seed=0,
    jobs=1,
    listing="forward",
)
"""Fixed conditions, a standing clock among them: what differs between two builds under these is not deterministic."""

OTHER = Conditions(
    folder="another/folder-of-another-length/kiln",
    home="another-home",
    tmpdir="temporary-files",
    user="somebody-else",
    # Its i has no dot when it is made upper-case; where it is not installed, it is a locale that is not there.
    locale="tr_TR.UTF-8",
    timezone="<+1345>-13:45",
    umask=0o077,
    clock="2033-11-09 17:18:19",
    hash_seed=20261129,
    jobs=2,
    listing="backward",
)
"""In everything another than PLAIN."""

RUNNING_CLOCK = "+2468d"
"""For whole rebuilds: years ahead, and running."""


def find_causes(build: Callable[[Conditions], str], *, clock: bool) -> tuple[str, ...]:
    """Return what the output of a build hangs on, in words.

    `build` builds under given conditions and returns what came of it as text (a digest). `clock` says whether the
    clock can be set. Two builds under PLAIN come first; then each condition of OTHER alone, until those that were found
    explain everything.
    """
    plain = PLAIN if clock else replace(PLAIN, clock="")
    first = build(plain)
    if build(plain) != first:
        alone = replace(plain, cpus=1)
        return (THREADS,) if build(alone) == build(alone) else (RANDOM if clock else RANDOM_OR_CLOCK,)
    rest = [name for name in DIMENSIONS if clock or name != "clock"]
    if build(_changed(plain, rest)) == first:
        return (NONE_OF_THESE,)
    causes = []
    while rest:
        name = rest.pop(0)
        if build(_changed(plain, [name])) != first:
            causes.append(DIMENSIONS[name])
            if build(_changed(plain, rest)) == first:
                break
    return tuple(causes) or (TOGETHER,)


def _changed(plain: Conditions, names: list[str]) -> Conditions:
    return replace(plain, **{name: getattr(OTHER, name) for name in names})
