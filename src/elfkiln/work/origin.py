"""What leads to a recipe, by digest: the lock's section, the template with what it includes, the family's modules."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from elfkiln.families.family import GENERATORS, TEMPLATES, RenderedGenerator
from elfkiln.io.canonical import sha256_hex
from elfkiln.io.files import storage_refusal
from elfkiln.io.reading import read_regular
from elfkiln.project import LOCK_FILE, Project
from elfkiln.store.toolchain_lock import TargetPin

_MOST_BYTES = 16 << 20


def origin_of(project: Project, pin: TargetPin, generator: RenderedGenerator) -> dict[str, str]:
    """Return the sha256 of everything of the project that leads to a recipe, by name; what is not there is left out.

    The lock's section stands as its canonical JSON, since another target's pin takes no part. Raises `Refused` for what
    is there and cannot be read: a statement of where bytes come from that leaves something out is not repeatable.
    """
    found = {f"{LOCK_FILE}: target.{pin.name}": pin.digest, "generator.py": sha256_hex(generator.text.encode())}
    names = [f"{TEMPLATES}/{name}" for name in _templates(project.root / TEMPLATES, generator.template)]
    names += [f"{GENERATORS}/{path.name}" for path in sorted((project.root / GENERATORS).glob("*.py"))]
    for name in names:
        if (project.root / name).exists():
            found[name] = sha256_hex(read_regular(project.root / name, limit=_MOST_BYTES))
    return found


def _templates(folder: Path, name: str) -> list[str]:
    """Return a template's name and those of all it includes, imports or extends."""
    if not name:
        return []
    found: list[str] = []
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one in found:
            continue
        found.append(one)
        try:
            waiting += _referenced((folder / one).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            continue
        except OSError as error:
            raise storage_refusal(folder / one, error) from error
    return sorted(found)


@cache
def _referenced(text: str) -> tuple[str, ...]:
    """Return the templates that a template's text names, found out once; none where it is not a template."""
    import jinja2
    from jinja2 import meta

    try:
        parsed = jinja2.Environment(autoescape=False).parse(text)
        return tuple(other for other in meta.find_referenced_templates(parsed) if other)
    except jinja2.TemplateError:
        return ()
