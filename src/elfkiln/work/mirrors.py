"""Mirrors: repositories of OCI registries that artifacts are fetched from by recipe, instead of being built here.

A mirror is not believed. What it has under a recipe's tag is compared with the recipe, the names, registry.yaml and,
where there is one, a policy, before anything bears a name. A mirror that fails or lies is said once, and the next one
is asked; who asked decides what becomes of a recipe that none has.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elfkiln.errors import ElfkilnError, Refused
from elfkiln.io.terminal import tell
from elfkiln.project import Project
from elfkiln.store.artifacts import Artifact
from elfkiln.store.blobs import Store
from elfkiln.store.oci_address import OciAddress
from elfkiln.store.registry import Entry, load_registry

if TYPE_CHECKING:
    from elfkiln.store.oci_registry import OciRegistry
    from elfkiln.store.policy import Policy
    from elfkiln.work.lookup import Found

AT_ONCE = 4

Check = Callable[[Store, Artifact], None]
"""Opens the ELF of an artifact whose blobs are in the store and compares it with its names; raises `Differs`."""


@dataclass(frozen=True, slots=True)
class Mirrors:
    """Where artifacts may come from: addresses in the order they are asked, and what they must pass.

    `must_hit` says that what none of them has is not built. Nothing is opened before the first question, so this can
    be handed to another process.
    """

    addresses: tuple[str, ...]
    plain_http: bool = False
    must_hit: bool = False
    policy: Policy | None = None

    def opened(self) -> OpenMirrors:
        """Return the mirrors ready to be asked; raises `Refused` for an address that is none."""
        return OpenMirrors(self, [_open(address, self.plain_http) for address in self.addresses])


def chosen_mirrors(
    project: Project,
    given: str | None,
    *,
    plain_http: bool = False,
    must_hit: bool = False,
    policy: Policy | None = None,
) -> Mirrors:
    """Return the mirrors of `mirror=` (several with commas between), else those of registry.yaml; maybe none.

    Raises `Refused` for an address that is none, and for one with a tag: a mirror is a whole repository.
    """
    addresses = load_registry(project.registry_file).mirrors if given is None else tuple(filter(None, given.split(",")))
    for address in addresses:
        check_mirror(address)
    return Mirrors(tuple(addresses), plain_http, must_hit, policy)


def check_mirror(text: str) -> OciAddress:
    """Return the address of a mirror; `Refused` for what is not one."""
    address = OciAddress.parse(text)
    if address.tag or address.digest:
        raise Refused(f"mirror: {text}: expected a repository without a tag; artifacts are found by their recipes")
    return address


@dataclass
class OpenMirrors:
    """Mirrors while they are asked: clients, and which of them have failed. Safe to use from several threads."""

    mirrors: Mirrors
    clients: list[OciRegistry]
    gone: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def fetch(
        self,
        project: Project,
        target: str,
        recipe: str,
        entries: Callable[[Artifact], Mapping[str, Entry]],
        check: Check | None = None,
    ) -> Artifact | None:
        """Bring the artifact of a recipe into the store and name it, from the first mirror that has one that passes.

        `entries` says which entry each name of it would have, and raises `Differs` when it is not the one that is
        wanted; `check` opens its ELF (default: as the target does). None when no mirror has it; what went wrong with
        one is on standard error.
        """
        from elfkiln.store.oci_registry import Unanswered

        for client in self.clients:
            where = str(client.address)
            if where in self.gone:
                continue
            try:
                found = self._fetch(project, client, target, recipe, entries, check)
            except (Unanswered, Refused) as error:
                with self._lock:
                    said = where in self.gone
                    self.gone.add(where)
                if not said:
                    tell(f"elfkiln: mirror {where} is not asked again: {error}")
            except ElfkilnError as error:
                tell(f"elfkiln: mirror {where}: recipe {recipe[:12]} is not taken: {error}")
            else:
                if found is not None:
                    return found
        return None

    def why_not(self, recipe: str) -> str:
        """Return the line that says that no mirror has a recipe."""
        names = ", ".join(self.mirrors.addresses)
        return f"recipe {recipe[:12]} is neither in the store nor to be had from {names}; build it without --must-hit"

    def _fetch(
        self,
        project: Project,
        client: OciRegistry,
        target: str,
        recipe: str,
        entries: Callable[[Artifact], Mapping[str, Entry]],
        check: Check | None,
    ) -> Artifact | None:
        from elfkiln.work.pull import fetch_artifact

        def accept(names: Mapping[str, Entry]) -> None:
            if self.mirrors.policy is not None:
                from elfkiln.work.lookup import Found
                from elfkiln.work.trust import require_signed

                rows = [Found(target, key, key, entry) for key, entry in names.items()]
                require_signed(project, target, rows, self.mirrors.policy)

        return fetch_artifact(Store(project.store), client, target, recipe, entries, check=check, accept=accept)


def fetch_missing(project: Project, target: str, rows: Iterable[Found], mirrors: Mirrors) -> tuple[str, ...]:
    """Fetch the artifacts of registered names whose bytes are not in the store; return the names that came.

    Each has the digests that registry.yaml says, whatever a mirror has. What no mirror has stays missing.
    """
    store = Store(project.store)
    wanted: dict[str, dict[str, Entry]] = {}
    for row in rows:
        if row.entry is not None:
            wanted.setdefault(row.entry.recipe, {})[row.key] = row.entry
    gone = {
        recipe: names
        for recipe, names in wanted.items()
        if not all(store.holds(digest) for entry in names.values() for digest in entry.digests)
    }
    if not gone:
        return ()
    opened = mirrors.opened()

    def fetch(recipe: str) -> tuple[str, ...]:
        names = gone[recipe]
        found = opened.fetch(project, target, recipe, lambda _: names)
        return tuple(names) if found is not None else ()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return tuple(sorted(key for keys in pool.map(fetch, sorted(gone)) for key in keys))


def _open(text: str, plain_http: bool) -> OciRegistry:
    from elfkiln.store.oci_registry import OciRegistry

    return OciRegistry(check_mirror(text), plain_http=plain_http)
