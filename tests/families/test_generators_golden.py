"""Pins what every family renders, byte for byte, and what a rendered program may be.

`python tests/test_generators_golden.py` writes the golden files anew; read the difference before it is committed.
"""

from __future__ import annotations

import ast
import os
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from elfkiln.families.family import DesignRequest, render, render_sealed

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"

# The decode geometries of Bonsai-2-27B.
SEALED = [(5120, 14336), (5120, 10240), (6144, 5120), (5120, 17408), (17408, 5120), (5120, 6144)]


def rendered():
    """Return golden file name -> rendered text."""
    texts = {}
    for family, tag in (("row_major", ""), ("n1_blocked", "_b8"), ("pb16i", "_pb16i")):
        for M in (128, 16):
            text = render(ROOT, DesignRequest(5120, 14336, M, tag, 8)).text
            texts[f"{family}_{M}x5120x14336.py"] = text
    texts["pb16i_sealed.py"] = render_sealed(ROOT, "_pb16i", SEALED, 8).text
    return texts


@pytest.fixture(scope="module")
def texts():
    return rendered()


def test_the_golden_files_are_what_is_rendered(texts):
    assert sorted(path.name for path in GOLDEN.glob("*.py")) == sorted(texts)
    for name, text in texts.items():
        assert (GOLDEN / name).read_bytes() == text.encode("ascii"), name


def test_rendering_depends_on_nothing_but_the_request(texts, tmp_path):
    """Another checkout folder, another working folder, HOME, time zone and hash seed: the same bytes."""
    other = tmp_path / "other place"
    for folder in ("generators", "templates"):
        shutil.copytree(ROOT / folder, other / folder, ignore=shutil.ignore_patterns("__pycache__"))
    program = (
        "import sys; from pathlib import Path; from elfkiln.families.family import *\n"
        "text = render(Path(sys.argv[1]), DesignRequest(5120, 14336, 128, '', 8)).text\n"
        "text += render_sealed(Path(sys.argv[1]), '_pb16i', eval(sys.argv[2]), 8).text\n"
        "sys.stdout.write(text)"
    )
    environment = {**os.environ, "HOME": str(tmp_path), "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7", "LC_ALL": "C"}
    result = subprocess.run(
        [sys.executable, "-c", program, str(other), repr(SEALED[::-1])],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        check=True,
    )
    assert result.stdout.decode() == texts["row_major_128x5120x14336.py"] + texts["pb16i_sealed.py"]


def test_a_rendered_program_is_tidy_python(texts, tmp_path):
    for name, text in texts.items():
        path = tmp_path / name
        path.write_text(text)
        py_compile.compile(str(path), doraise=True)
        assert text.isascii()
        assert text.endswith(")\n")
    ruff = [sys.executable, "-m", "ruff"]
    config = ["--no-cache", "--config", str(ROOT / "pyproject.toml")]
    # T201: a generator's purpose is to print its module.
    for command in (["check", "--ignore", "T201"], ["format", "--check"]):
        result = subprocess.run([*ruff, *command, *config, str(tmp_path)], capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr


def test_a_rendered_program_needs_only_numpy_and_aie(texts):
    for text in texts.values():
        imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
        roots = {(n.module if isinstance(n, ast.ImportFrom) else n.names[0].name).split(".")[0] for n in imports}
        assert roots == {"numpy", "aie"}
        # A star import rebinds names differently in different releases of the package.
        assert not any(alias.name == "*" for node in imports for alias in node.names)


@pytest.mark.parametrize("tag", ["", "_b8", "_pb16i"])
def test_a_rendered_program_is_short_whatever_its_size(tag):
    """Loops, not unrolled text: the largest design has as many lines as the smallest, and a person can read them."""
    for M in (128, 16):
        lengths = {
            len(render(ROOT, DesignRequest(K, N, M, tag, columns)).text.splitlines())
            for K, N, columns in ((256, 512, 4), (17408, 5120, 8), (5120, 17408, 8))
        }
        assert max(lengths) - min(lengths) <= 2  # a K tile deeper than 64 is told, and blocked
        assert max(lengths) < 175


if __name__ == "__main__":
    for name, text in rendered().items():
        (GOLDEN / name).write_text(text, encoding="ascii", newline="\n")
