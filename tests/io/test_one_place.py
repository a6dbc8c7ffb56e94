"""Rules that stand once: reading files, starting children, parsing formats, picking the error out of an output.

Each of these stood in several places, with other bounds and other words; whoever adds another place is told here.
"""

from __future__ import annotations

import ast

import pytest

from projects import CHECKOUT

PACKAGE = CHECKOUT / "src" / "elfkiln"

# Modules that only one place may import, and that place.
IMPORTS = {
    "subprocess": {"io/child.py"},
    "tomllib": {"io/strict_toml.py"},
    "yaml": {"io/strict_yaml.py", "store/registry.py"},
    "filelock": {"io/locking.py", "io/workspace.py"},
    "fcntl": {"io/files.py", "io/workspace.py"},
}
# Calls that read a file without asking what it is, and the places that may: the reader, kernel files of /proc, the
# child of a generator, which has nothing but its own folder, and what reads archives through their library.
READS = {"read_bytes", "read_text", "read", "load", "loads"}
READERS = {
    "io/reading.py",
    "io/locking.py",
    "io/keeper.py",
    "design/iron_sim/__main__.py",
    "targets/sim/zig_toolchain.py",
}


def imported(source: str) -> set[str]:
    """Return the top modules a source imports."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(str(node.module).partition(".")[0])
    return found


def own_reads(source: str) -> list[str]:
    """Return what reads a file in a source: `open` for reading, and the methods of a path that read it."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id == "open":
            mode = next((arg.value for arg in node.args[1:2] if isinstance(arg, ast.Constant)), "r")
            if not set("wxa") & set(str(mode)):
                found.append(f"open at line {node.lineno}")
        elif isinstance(called, ast.Attribute) and called.attr in ("read_bytes", "read_text") and not node.args:
            found.append(f"{called.attr} at line {node.lineno}")
        elif isinstance(called, ast.Attribute) and called.attr in ("load", "loads"):
            owner = called.value
            if isinstance(owner, ast.Name) and owner.id in ("json", "tomllib", "yaml"):
                found.append(f"{owner.id}.{called.attr} at line {node.lineno}")
    return found


def sources():
    return {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


@pytest.mark.parametrize("module", IMPORTS)
def test_one_place_imports_it(module):
    assert {place for place, source in sources().items() if module in imported(source)} <= IMPORTS[module]


def test_files_are_read_by_the_one_reader():
    allowed = READERS | {"io/strict_json.py", "io/strict_toml.py", "io/child.py"}
    found = {place: own_reads(source) for place, source in sources().items() if place not in allowed}
    assert {place: reads for place, reads in found.items() if reads} == {}


@pytest.mark.parametrize(
    "line",
    [
        "data = path.read_bytes()",
        "text = (folder / 'x').read_text()",
        "with open(path) as stream: pass",
        "with open(path, 'rb') as stream: pass",
        "table = json.loads(text)",
    ],
)
def test_the_fence_sees_a_reader_of_ones_own(line):
    assert len(own_reads(line)) == 1


def test_writing_is_no_reading():
    assert own_reads("with open(os.devnull, 'w') as stream: pass\nread_text(path, limit=3)\n") == []


def test_one_place_looks_for_the_error_in_an_output():
    found = set()
    for place, source in sources().items():
        for node in ast.walk(ast.parse(source)):
            value = node.value if isinstance(node, ast.Constant) else None
            if isinstance(value, str) and (value == "error:" or r"error\b" in value):
                found.add(place)
    assert found <= {"io/complaint.py"}
