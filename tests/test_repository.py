"""What the repository promises of itself: no machine paths, no import-time work, the folders README names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from elfkiln.models.catalogue import all_models, model_requirements
from elfkiln.project import Project
from elfkiln.store.registry import load_registry
from projects import CHECKOUT


def tracked():
    done = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, check=True)
    return [CHECKOUT / name for name in done.stdout.decode().split("\0") if name]


def test_no_machine_path_is_in_a_tracked_file():
    pattern = re.compile(rb"(?<![\w.])/(?:work|root|farm)/|/home/[a-z]")
    found = [
        path.name
        for path in tracked()
        if path.is_file() and path.suffix not in (".lock", ".elf") and path.name != "test_repository.py"
        if pattern.search(path.read_bytes())
    ]
    assert found == []


def test_the_folders_and_docs_of_the_readme_are_there():
    text = (CHECKOUT / "README.md").read_text()
    linked = re.findall(r"\]\((docs/[^)#]+)\)", text)
    assert "docs/npu2.md" in linked
    for name in (
        *linked,
        "generators",
        "templates",
        "kernels",
        "plans",
        "benchmarks",
        "registry.yaml",
        "toolchain.lock",
    ):
        assert (CHECKOUT / name).exists(), name


def test_requirements_are_pinned_with_hashes_and_name_no_index():
    text = (CHECKOUT / "requirements.txt").read_text()
    assert "--index-url" not in text
    assert "--find-links" not in text
    assert "http" not in text
    pins = re.findall(r"^([A-Za-z0-9._-]+)==", text, re.MULTILINE)
    assert {"ziglang", "xdsl", "doit", "jinja2", "pyyaml", "pyelftools", "numpy", "filelock", "rich", "pytest"} <= set(
        pins
    )
    blocks = re.split(r"^(?=[A-Za-z0-9._-]+==)", text, flags=re.MULTILINE)
    assert all("--hash=sha256:" in block for block in blocks if "==" in block)


def test_the_zig_of_the_requirements_is_the_one_of_the_lock():
    import tomllib

    lock = tomllib.loads((CHECKOUT / "toolchain.lock").read_text())["target"]["sim"]["ziglang"]
    text = (CHECKOUT / "requirements.txt").read_text()
    assert f"ziglang=={lock['version']}" in text
    assert lock["sha256"] in text


def test_importing_the_library_does_no_work(tmp_path):
    """No folder is made, no environment variable read, no network met by importing every module of the library."""
    program = (
        "import os, socket, importlib, pkgutil, json, sys\n"
        "reads = []\n"
        "class Watched(dict):\n"
        "    def __getitem__(self, key): reads.append(key); return super().__getitem__(key)\n"
        "    def get(self, key, default=None): reads.append(key); return super().get(key, default)\n"
        "import doit, jinja2, yaml, numpy, filelock, xdsl.ir, elftools.elf.elffile, rich, ziglang, concurrent.futures\n"
        "import xdsl.dialects.builtin, xdsl.parser, xdsl.dialects.func, xdsl.dialects.scf, numpy.typing\n"
        "import doit.reporter, doit.task, urllib.request, tempfile, http.client, ctypes.util, sysconfig\n"
        "import elfkiln\n"
        "os.environ = Watched(os.environ)\n"
        "def refuse(*_): raise SystemExit('import met the network')\n"
        "socket.socket.connect = refuse\n"
        "for info in pkgutil.walk_packages(elfkiln.__path__, 'elfkiln.', onerror=lambda _: None):\n"
        "    if not info.name.startswith('elfkiln.design.iron_sim'):\n"
        "        importlib.import_module(info.name)\n"
        "print(json.dumps(reads))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
    assert list(tmp_path.iterdir()) == []


def test_the_committed_registry_has_the_promised_sets():
    project = Project(CHECKOUT)
    entries = load_registry(project.registry_file).entries("sim")
    for model, layout in (("bonsai2-27b", "b8"), ("bonsai2-27b", "rm"), ("qwen3-0.6b", None)):
        wanted = model_requirements(project, model, layout)
        assert [need.file_name for need in wanted.requirements if need.file_name not in entries] == []


def test_one_name_is_never_asked_for_with_two_column_counts():
    project = Project(CHECKOUT)
    columns = {}
    for model in all_models(project):
        for need in model_requirements(project, model).requirements:
            if need.name is not None:
                assert columns.setdefault(need.file_name, (need.columns, model))[0] == need.columns, need.file_name


@pytest.mark.parametrize("verb", ["elfs", "check-missing", "verify", "lookup", "install", "explain"])
def test_the_readme_shows_the_verb(verb):
    assert f"./doit {verb}" in (CHECKOUT / "README.md").read_text()
