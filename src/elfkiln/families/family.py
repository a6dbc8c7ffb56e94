"""Kernel families: finds them in a project's generators/ and renders their templates into IRON programs."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from elfkiln.engine import contract
from elfkiln.errors import ElfkilnError, Refused, brief, refusal
from elfkiln.io.reading import require_inside
from elfkiln.project import find_project

GENERATORS = "generators"
TEMPLATES = "templates"


@dataclass(frozen=True, slots=True)
class KernelObject:
    """A microkernel object: its name in the design's `link_with`, its source below kernels/, and its -D defines."""

    object_name: str
    source: str
    defines: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RenderedGenerator:
    """A rendered IRON program and the microkernel objects its design links.

    `notes` say, a sentence each, what the design does otherwise than its family would where it could; `template` is
    the file below templates/ it was rendered from.
    """

    text: str
    kernels: tuple[KernelObject, ...]
    notes: tuple[str, ...] = ()
    template: str = ""


@dataclass(frozen=True, slots=True)
class DesignRequest:
    """One GEMM design: A is M x K, B is K x N, on `columns` columns of the array.

    `rows` are the core rows; None takes the most that fit: at most 4, at most the columns, and as many as share out
    the rows of M or, where the family does that at M = 16, the columns of a tile.
    """

    K: int
    N: int
    M: int
    tag: str
    columns: int
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """What a family makes of a legal request: a template below templates/, its values, the microkernels it links.

    `notes` as in `RenderedGenerator`.
    """

    template: str
    values: Mapping[str, object]
    kernels: tuple[KernelObject, ...]
    notes: tuple[str, ...] = ()


class KernelFamily(Protocol):
    """A kernel family: one module of generators/ makes one, and one row of the table there lists it."""

    @property
    def name(self) -> str:
        """The family's name, which is its module's."""

    @property
    def tag(self) -> str:
        """The tag of its artifacts."""

    def program(self, request: DesignRequest) -> Program:
        """Return the program of one design; raises `Refused` naming the rule an illegal request breaks."""

    def sealed(self, geometries: Sequence[tuple[int, int]], columns: int) -> Program:
        """Return the program that carries every decode geometry (K, N); raises `Refused` as `program` does."""


def render(project_root: Path, request: DesignRequest) -> RenderedGenerator:
    """Render the IRON program of one design: device `main`, sequence `seq` over (A, B, C).

    Raises `Refused` when no family serves the tag, when the geometry breaks a rule (nothing is rendered then), and
    when generators/ or templates/ cannot be used. The same request gives the same text, whatever the time, the
    folder or the environment.
    """
    return _rendered(project_root, family_of(request.tag, project_root).program(request))


def render_sealed(
    project_root: Path, tag: str, geometries: Sequence[tuple[int, int]], columns: int
) -> RenderedGenerator:
    """Render the sealed decode program: sequence `init` and one `seq_K<K>_N<N>` per geometry (K, N).

    The order of the geometries and repetitions do not matter: each comes once, sorted. Raises `Refused` as `render`
    does, naming the geometry that does not fit, and when the family has no sealed form.
    """
    return _rendered(project_root, family_of(tag, project_root).sealed(geometries, columns))


def family_of(tag: str, project_root: Path | None = None) -> KernelFamily:
    """Return the family that serves a tag, by default of the project around the current folder.

    Raises `Refused` for a tag the engine does not know and for one that no family serves yet.
    """
    if tag not in contract.TAGS:
        known = ", ".join(repr(known) for known in contract.TAGS)
        raise refusal("kernel family: tag", expected=f"one of {known}", found=repr(tag))
    for family in families(find_project().root if project_root is None else project_root):
        if family.tag == tag:
            return family
    raise Refused(f"no generator family is registered for tag {tag}")


def families(project_root: Path) -> tuple[KernelFamily, ...]:
    """Return the families of a project, in the order of its table (`FAMILIES` of generators/__init__.py).

    The package is loaded once per folder, under a name of its own, and leaves `sys.path` alone. Raises `Refused`
    when it is absent, does not load or has no such table.
    """
    table: object = getattr(_generators(project_root.resolve()), "FAMILIES", None)
    if not isinstance(table, tuple) or not table:
        raise refusal(f"{GENERATORS}/__init__.py: FAMILIES", expected="a tuple of families", found=table)
    return table


@cache
def _generators(root: Path) -> ModuleType:
    folder = root / GENERATORS
    name = f"elfkiln_generators_{sha256(os.fsencode(root)).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None or not (folder / "__init__.py").is_file():
        raise Refused(f"{GENERATORS}/__init__.py: missing; restore it from the repository")
    module = importlib.util.module_from_spec(spec)
    # The package's own relative imports look it up here.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        for loaded in [other for other in sys.modules if other == name or other.startswith(f"{name}.")]:
            del sys.modules[loaded]
        if isinstance(error, ElfkilnError):
            raise
        raise Refused(f"{GENERATORS}: does not load ({type(error).__name__}: {brief(error)}); correct it") from error
    return module


@cache
def _environment(folder: Path) -> Any:
    """Return the jinja2 environment of a folder of templates; it keeps compiled templates until their files change."""
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Loader(jinja2.FileSystemLoader):
        """Reads templates of the folder, and none that a link leads to outside it."""

        def get_source(self, environment: Any, template: str) -> Any:
            found = super().get_source(environment, template)
            require_inside(folder, Path(str(found[1])), f"{TEMPLATES}/{template}")
            return found

    # A template sees the values of its family and nothing else: no function of jinja2's, no insides of a value.
    environment = ImmutableSandboxedEnvironment(
        loader=Loader(folder),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        newline_sequence="\n",
        autoescape=False,  # what is rendered is Python
    )
    environment.globals.clear()
    return environment


def _rendered(project_root: Path, program: Program) -> RenderedGenerator:
    # Imported here: most commands never render, and jinja2 costs more than all they do.
    import jinja2

    where = f"{TEMPLATES}/{program.template}"
    try:
        text = _environment(project_root / TEMPLATES).get_template(program.template).render(program.values)
    except jinja2.TemplateNotFound as error:
        raise Refused(f"{TEMPLATES}/{error.name}: missing; restore it from the repository") from error
    except jinja2.TemplateSyntaxError as error:
        raise Refused(
            f"{TEMPLATES}/{error.name}: line {error.lineno}: {brief(error.message)}; correct the template"
        ) from error
    except (jinja2.TemplateError, ArithmeticError, LookupError, OSError, TypeError, ValueError) as error:
        raise Refused(f"{where}: does not render ({brief(error)}); correct the template") from error
    _check_text(where, text)
    return RenderedGenerator(text, program.kernels, program.notes, program.template)


def _check_text(where: str, text: str) -> None:
    if not text.isascii():
        raise refusal(f"{where}: rendered text", expected="ASCII", found=next(c for c in text if not c.isascii()))
    if not text.endswith("\n") or text.endswith("\n\n"):
        raise refusal(f"{where}: rendered text", expected="one line break at its end", found=repr(text[-2:]))
    try:
        compile(text, where, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise Refused(f"{where}: what it renders is not Python ({brief(error)}); correct the template") from error
