"""Where things lie: the project folder, and every path below it that more than one place uses.

The names of the folders stand here and nowhere else. The fast path of `check-missing` takes them from here too, so
nothing is imported that it does not have already.
"""

from __future__ import annotations

import os

from elfkiln.errors import refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

LOCK_FILE = "toolchain.lock"
REGISTRY_FILE = "registry.yaml"
PLANS = "plans"
OUT = "out"
STORE = f"{OUT}/registry"
"""The OCI image layout that holds the blobs."""

BLOBS = "blobs/sha256"
"""Where an OCI image layout keeps its blobs, below its own folder (image-spec 1.1, "Image Layout")."""

INDEX = f"{OUT}/index"
"""The answers that are kept for `check-missing`."""


MODEL_TABLES = ("plan.json", "roles.yaml")
"""What makes a folder below plans/ a model: the engine's plan, or a role table."""


def models_below(root: str | os.PathLike[str]) -> list[str]:
    """Return the names of the models below plans/, sorted.

    Whatever bears one of the names of `MODEL_TABLES` counts: what is not a file is refused where it is read.
    """
    plans = os.path.join(root, PLANS)
    try:
        names = sorted(os.listdir(plans))
    except OSError:
        return []
    return [name for name in names if any(os.path.lexists(os.path.join(plans, name, one)) for one in MODEL_TABLES)]


class Project:
    """A checkout of elfkiln: every path a command uses hangs below `root`.

    >>> from pathlib import Path
    >>> Project(Path("/kiln")).blobs.as_posix()
    '/kiln/out/registry/blobs/sha256'
    """

    __slots__ = ("root",)

    def __init__(self, root: Path) -> None:
        """Take the folder; nothing is looked at."""
        self.root = root

    def __eq__(self, other: object) -> bool:
        """Whether two stand for the same folder."""
        return isinstance(other, Project) and self.root == other.root

    def __hash__(self) -> int:
        """Return the hash of the folder's path."""
        return hash(self.root)

    def __repr__(self) -> str:
        """Return the folder as Python would write it."""
        return f"Project({self.root!r})"

    @property
    def registry_file(self) -> Path:
        """`registry.yaml`: names to digests, committed."""
        return self.root / REGISTRY_FILE

    @property
    def lock_file(self) -> Path:
        """`toolchain.lock`: the pinned toolchains by target."""
        return self.root / LOCK_FILE

    @property
    def plans(self) -> Path:
        """Folder of the models' plans and role tables."""
        return self.root / PLANS

    @property
    def kernels(self) -> Path:
        """Microkernel sources."""
        return self.root / "kernels"

    @property
    def templates(self) -> Path:
        """The jinja2 templates of the generators."""
        return self.root / "templates"

    @property
    def out(self) -> Path:
        """Folder of everything built; safe to delete."""
        return self.root / OUT

    @property
    def store(self) -> Path:
        """The OCI image layout that holds the blobs."""
        return self.root / STORE

    @property
    def blobs(self) -> Path:
        """The store's blobs, each named by its sha256."""
        return self.store / BLOBS

    @property
    def work(self) -> Path:
        """Private folders of running builds."""
        return self.out / "work"

    @property
    def locks(self) -> Path:
        """Locks of recipes, so that one process builds what others wait for."""
        return self.out / "locks"

    @property
    def cache(self) -> Path:
        """What only saves time: compiled objects that many builds share."""
        return self.out / "cache"

    @property
    def logs(self) -> Path:
        """Logs of failed builds."""
        return self.out / "logs"

    @property
    def toolchains(self) -> Path:
        """Installed toolchains, by digest."""
        return self.out / "toolchains"

    @property
    def generations(self) -> Path:
        """What registry.yaml was after each run that changed it."""
        return self.out / "generations"

    @property
    def installs(self) -> Path:
        """Notes of the folders that were installed into."""
        return self.out / "installs"

    @property
    def index(self) -> Path:
        """Answers that are kept for `check-missing`; they only save time."""
        return self.root / INDEX


def find_root(start: str) -> str | None:
    """Return the nearest folder, upwards from `start`, with a toolchain.lock; None when there is none.

    What bears the name and is not a file counts, and is refused where it is read: passed over, another checkout would
    answer for this one.
    """
    folder = os.path.abspath(start)
    while not os.path.lexists(os.path.join(folder, LOCK_FILE)):
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent
    return folder


def is_checkout(folder: str) -> bool:
    """Whether a folder has a toolchain.lock."""
    return os.path.isfile(os.path.join(folder, LOCK_FILE))


def find_project(start: str | os.PathLike[str] | None = None) -> Project:
    """Return the project that holds `start` (default: the current folder).

    The project is the nearest folder, upwards, with a toolchain.lock; the checkout this package runs from serves
    when there is none. Raises `Refused` when neither exists.
    """
    from pathlib import Path

    here = Path(start or os.curdir).resolve()
    found = find_root(str(here))
    if found is not None:
        return Project(Path(found))
    checkout = Path(__file__).resolve().parents[2]
    if is_checkout(str(checkout)):
        return Project(checkout)
    raise refusal(
        LOCK_FILE,
        expected=f"one in {here} or above it",
        found="none",
        remedy="run elfkiln inside its checkout, or name one with root=DIR",
    )


def named_project(root: str) -> Project:
    """Return the project whose folder was named; `Refused` unless it is a checkout itself.

    Nothing is looked for above it: another checkout's answer would be taken for this one's.
    """
    from pathlib import Path

    if not is_checkout(root):
        found = f"none in {root}" if os.path.isdir(root) else f"no folder {root}"
        raise refusal("root", expected=f"an elfkiln checkout, with a {LOCK_FILE}", found=found)
    return Project(Path(root).resolve())
