"""A family for a known tag, added by the steps of docs/families.md alone: its names build, check, install and run."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest

from elfkiln.cli import main
from elfkiln.engine import layouts
from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.errors import Differs
from elfkiln.models.catalogue import model_requirements
from elfkiln.project import Project
from elfkiln.store.blobs import Store
from elfkiln.store.registry import load_registry
from elfkiln.targets.sim.sim_elf import SimElf
from elfkiln.targets.table import check_elf
from plan_data import plan_data, write_plan_file
from projects import CHECKOUT

PLAN = plan_data(container__layout="t2s", container__chunk_kind="t2", container__pb16i=True, kernels__tag="_t2s")


def renamed(text: str) -> str:
    return text.replace("_pb16i", "_t2s").replace("pb16i", "t2s")


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    """A project with the checkout's families and one more: what pb16i is, under the tag _t2s.

    The four things it touches are the four steps of docs/families.md.
    """
    root = tmp_path_factory.mktemp("grown") / "project"
    root.mkdir()
    for folder in ("generators", "templates", "kernels"):
        shutil.copytree(CHECKOUT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(CHECKOUT / "toolchain.lock", root / "toolchain.lock")
    before = {path.relative_to(root) for path in root.rglob("*")}
    module = renamed((root / "generators" / "pb16i.py").read_text())
    (root / "generators" / "t2s.py").write_text(module.replace('    sealed_template="t2s_sealed.py.j2",\n', ""))
    (root / "templates" / "t2s.py.j2").write_text(renamed((root / "templates" / "pb16i.py.j2").read_text()))
    (root / "kernels" / "mm_t2s.cc").write_text(renamed((root / "kernels" / "mm_pb16i.cc").read_text()))
    table = root / "generators" / "__init__.py"
    text = table.read_text()
    assert text.count("pb16i, row_major") == text.count("    pb16i.FAMILY,\n") == 1
    text = text.replace("pb16i, row_major", "pb16i, row_major, t2s")
    table.write_text(text.replace("    pb16i.FAMILY,\n", "    pb16i.FAMILY,\n    t2s.FAMILY,\n"))
    added = {str(path.relative_to(root)) for path in root.rglob("*") if path.relative_to(root) not in before}
    assert added == {"generators/t2s.py", "templates/t2s.py.j2", "kernels/mm_t2s.cc"}
    write_plan_file(root / "plans" / "t2stest", PLAN)
    return Project(root)


def run(grown, *words):
    return main([*words, "model=t2stest", f"root={grown.root}", "target=sim"])


@pytest.fixture(scope="module")
def built(grown):
    assert run(grown, "elfs") == 0
    return grown


def elf_of(project, name):
    return Store(project.store).path(load_registry(project.registry_file).entries("sim")[name].elf)


def test_the_page_names_the_four_steps():
    page = (CHECKOUT / "docs" / "families.md").read_text()
    steps = re.findall(r"^\*\*(\d)\. The (\w+)\*\*", page, re.MULTILINE)
    assert steps == [("1", "module"), ("2", "template"), ("3", "microkernel"), ("4", "row")]
    assert "`tests/families/test_new_family.py` adds a family for `_t2s`" in " ".join(page.split())


def test_every_name_of_the_new_tag_is_built(built):
    names = [need.file_name for need in model_requirements(built, "t2stest").requirements]
    assert len(names) == 14
    assert all("_t2s" in name for name in names)
    assert set(names) == set(load_registry(built.registry_file).entries("sim"))
    for name in names:
        check_elf("sim", elf_of(built, name), ArtifactName.parse(name), ())


def test_the_set_is_complete_and_installs(built, tmp_path, capsys):
    assert run(built, "check-missing") == 0
    assert run(built, "install", f"dir={tmp_path / 'engine'}") == 0
    assert len(list((tmp_path / "engine").rglob("*_t2s*.elf"))) == 14
    capsys.readouterr()


def test_its_elfs_compute_the_product(built):
    rng = np.random.default_rng(11)
    a = rng.integers(-128, 128, (128, 256), dtype=np.int8)
    b = rng.integers(-1, 2, (256, 1024), dtype=np.int8)
    # The toy's bytes are those of the family it was copied from.
    packed, expected = layouts.pack(b, "pb16i"), a.astype(np.int64) @ b.astype(np.int64)
    with SimElf(elf_of(built, "full_i8_QKV_K256_N1024_t2s.elf")) as elf:
        assert np.array_equal(elf.run(a, packed), expected)
    with SimElf(elf_of(built, "full_i8_QKV_K256_N1024_t2s_m16.elf")) as twin:
        assert np.array_equal(twin.run(a[:16], packed), expected[:16])


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ("full_i8_QKV_K1024_N256_t2s.elf", "K=1024 N=256"),
        ("full_i8_QKV_K256_N1024_t2s_m16.elf", "M=16"),
        ("full_i8_QKV_K256_N1024_b8.elf", "expected M=128 K=256 N=1024, 8-bit contiguous weights"),
        ("full_i8_QKV_K256_N1024.elf", "expected M=128 K=256 N=1024, 8-bit row-major weights"),
    ],
)
def test_under_another_name_it_is_refused(built, other, words):
    with pytest.raises(Differs, match=re.escape(words)):
        check_elf("sim", elf_of(built, "full_i8_QKV_K256_N1024_t2s.elf"), ArtifactName.parse(other), ())


def test_verify_says_that_the_layout_has_no_bytes(built, capsys):
    assert run(built, "verify") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "verify: layout t2s: its bytes are not defined, so no weights can be packed for its ELFs" in error
    assert run(built, "verify", "--json") == 2
