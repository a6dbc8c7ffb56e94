"""`elfs target=npu2` from role table to registry, with stand-in tools.

No real aiecc runs here. The stand-in `aie` package prints what our own stand-in made of the same program, and the
stand-in aiecc hands out full ELFs that the tests' assembler put together from that design and a recorded PDI. So what
is tested is elfkiln's part: recipes, driving, validation against the name, registration, and simulation of the very
design that went into the ELF.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace

import numpy as np
import pytest

import cdo
from elf_assembler import assemble, gemm_stream, parts
from elfkiln.cli import main
from elfkiln.design.reader import read_design
from elfkiln.engine.layouts import pack
from elfkiln.errors import Refused
from elfkiln.models.catalogue import model_requirements
from elfkiln.store.artifacts import find_artifact, read_log
from elfkiln.store.blobs import Store
from elfkiln.store.registry import load_registry
from elfkiln.targets.npu2.install_toolchain import install
from elfkiln.targets.table import builder_for
from elfkiln.work.build import build_elfs
from elfkiln.work.jobs import generator_of
from elfkiln.work.verify import exit_code_of, verify_set
from npu2_standins import NEW_HELP, make_standins, make_wheel, this_python, unpack
from projects import CHECKOUT, TINY_NAMES, TINY_RECIPES, make_project
from rendered import printed_by
from simulating import product

QKV = "full_i8_QKV_K256_N768_b8.elf"
EXAMPLE = CHECKOUT / "tests" / "examples" / "full-elf" / "panel_gemm.2026-08.elf"

# A package whose modules have every name a generator imports; the context prints the design recorded for the program.
AIE = """\
import hashlib, sys
from pathlib import Path
RECORDED = Path(__file__).resolve().parent / "recorded"
class Anything:
    def __getattr__(self, name): return self
    def __call__(self, *_, **__): return self
    def __enter__(self): return self
    def __exit__(self, *_): return False
    def __iter__(self): return iter(())
    def __getitem__(self, key): return self
    def __str__(self):
        text = Path(sys.argv[0]).read_bytes()
        return (RECORDED / (hashlib.sha256(text).hexdigest() + ".mlir")).read_text()
"""
MODULE = "from aie import Anything\ndef __getattr__(name):\n    return Anything()\n"
AIE_OPT = '#!/usr/bin/env -S python3 -IS\nimport sys\nsys.stdout.write(open("design.mlir").read())\n'
AIECC = """\
#!/usr/bin/env -S python3 -IS
import hashlib, sys
from pathlib import Path
if sys.argv[1:] == ["--help"]:
    print(@HELP@)
    sys.exit()
if sys.argv[1:] == ["--version"]:
    sys.exit(print("aiecc (stand-in)"))
given = dict(word.partition("=")[::2] for word in sys.argv[1:])
digest = hashlib.sha256(Path("design.mlir").read_text().strip().encode()).hexdigest()
elf = (Path(__file__).resolve().parent.parent / "recorded-elfs" / digest).read_bytes()
(Path(given["--output-dir"]) / given["--full-elf-name"]).write_bytes(elf)
"""


def recorded_wheel(folder, project, swap=None):
    """The mlir_aie wheel: for every program of the model `tiny` its design and its full ELF; `swap` exchanges two."""
    pdi, _ = parts(EXAMPLE)
    designs, elfs = {}, {}
    wanted = model_requirements(project, "tiny")
    for need in wanted.requirements:
        text = generator_of(project, wanted, need).text
        design, read = printed_by(text)
        designs[hashlib.sha256(text.encode()).hexdigest()] = design
        digest = hashlib.sha256(design.strip().encode()).hexdigest()
        elfs[digest] = assemble(cdo.image_for(pdi, read), [("seq", gemm_stream(read))])
    if swap is not None:
        one, other = (list(elfs)[position] for position in swap)
        elfs[one], elfs[other] = elfs[other], elfs[one]
    files = {
        "aie.pth": "mlir_aie/python\n",
        "mlir_aie/python/aie/__init__.py": AIE,
        "mlir_aie/include/aie_api/aie.hpp": "// stand-in\n",
        "+mlir_aie/bin/aiecc": AIECC.replace("@HELP@", repr(NEW_HELP)),
        "+mlir_aie/bin/aie-opt": AIE_OPT,
        "+mlir_aie/bin/aiebu-asm": "#!/usr/bin/env -S python3 -IS\n",
        **{f"mlir_aie/python/aie/recorded/{name}.mlir": text for name, text in designs.items()},
        **{f"mlir_aie/recorded-elfs/{name}": data for name, data in elfs.items()},
    }
    for name in (
        "dialects",
        "dialects/aie",
        "dialects/aiex",
        "extras",
        "extras/context",
        "helpers",
        "helpers/dialects",
    ):
        files[f"mlir_aie/python/aie/{name}/__init__.py"] = MODULE
    files["mlir_aie/python/aie/helpers/dialects/scf/__init__.py"] = MODULE
    return make_wheel(folder / "wheels", "mlir_aie", "1.4.3", files)


def npu_project(folder, swap=None):
    """A project with the model `tiny`, whose lock pins stand-in wheels, and the toolchain installed from them."""
    project = make_project(folder / "project")
    standins = make_standins(folder / "wheels", requires=())
    standins.wheels["mlir_aie"] = recorded_wheel(folder, project, swap)
    # The generators need numpy; the stand-in modules only its name.
    class_of = "class _T:\n    def __getitem__(self, key): return self\n    def __call__(self, *a): return self\n"
    names = "".join(f"{name} = dtype\n" for name in ("ndarray", "int8", "uint8", "int32"))
    standins.wheels["numpy"] = make_wheel(
        folder / "wheels", "numpy", "1.0", {"numpy/__init__.py": f"{class_of}dtype = _T()\n{names}"}
    )
    project.lock_file.write_text(standins.lock_text(imports=["aie.dialects.aie", "aie.extras.context"]))
    # What pip does is test_npu2_install's.
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("elfkiln.targets.npu2.install_toolchain.run_pip", unpack)
        install(project, wheels=standins.folder, find=this_python)
    return project


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The project after `elfs model=tiny target=npu2`."""
    project = npu_project(tmp_path_factory.mktemp("npu"))
    report = build_elfs(project, builder_for(project, "npu2"), [model_requirements(project, "tiny")])
    assert [failure.reason for failure in report.failures] == []
    assert (report.names, report.recipes) == (TINY_NAMES, TINY_RECIPES)
    return project


def test_every_name_is_registered_for_npu2_only(built):
    registry = load_registry(built.registry_file)
    assert sorted(registry.targets) == ["npu2"]
    assert len(registry.entries("npu2")) == TINY_NAMES
    assert main(["check-missing", f"root={built.root}", "model=tiny", "target=npu2"]) == 0
    # The default target is sim: nothing of npu2 is served for it.
    assert main(["check-missing", f"root={built.root}", "model=tiny"]) == 1


def test_the_artifact_holds_the_full_elf_its_design_and_the_log(built):
    store = Store(built.store)
    entry = load_registry(built.registry_file).entries("npu2")[QKV]
    artifact = find_artifact(store, entry.recipe)
    design = read_design(store.read(artifact.design).decode())
    pdi, _ = parts(EXAMPLE)
    assert store.read(entry.elf) == assemble(cdo.image_for(pdi, design), [("seq", gemm_stream(design))])
    log = read_log(store, entry.recipe)
    assert "aiecc" in log
    assert str(built.root) not in log


def test_verify_simulates_the_very_design_of_the_full_elf(built):
    results = verify_set(
        built, builder_for(built, "npu2"), model_requirements(built, "tiny"), jobs=2, say=lambda _: None
    )
    assert exit_code_of(results) == 0
    whats = {result.what for result in results}
    assert {"M=128 against numpy, random", "M=16 twin against M=128, random", "b8 against rm, random"} <= whats
    # The full ELFs are what is registered; the ELFs they are compared with were only stored.
    assert sorted(load_registry(built.registry_file).targets) == ["npu2"]


def test_an_elf_of_another_design_is_never_registered(tmp_path):
    project = npu_project(tmp_path, swap=(0, 1))
    asked = model_requirements(project, "tiny")
    # Of the first two recipes each gets the other's ELF.
    asked = replace(asked, requirements=asked.requirements[:2])
    report = build_elfs(project, builder_for(project, "npu2"), [asked])
    assert report.exit_code == 1
    wanted = asked.requirements
    assert {failure.key for failure in report.failures} >= {wanted[0].file_name}
    assert wanted[0].file_name not in load_registry(project.registry_file).entries("npu2")
    (reason,) = (failure.reason for failure in report.failures if failure.key == wanted[0].file_name)
    assert reason.startswith("wrong-design: ")


def test_without_an_installed_toolchain_one_line_says_so(built, tmp_path, capsys):
    project = make_project(tmp_path / "project")
    shutil.copy(built.lock_file, project.lock_file)
    assert main(["elfs", f"root={project.root}", "model=tiny", "target=npu2"]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "is not installed" in captured.err
    with pytest.raises(Refused):
        builder_for(project, "npu2").describe()
    # Recipes can be told all the same.
    assert main(["explain", f"root={project.root}", QKV, "target=npu2"]) == 1


def test_a_tampered_full_elf_in_a_model_folder_is_found(built, tmp_path, capsys):
    folder = tmp_path / "model"
    assert main(["install", f"root={built.root}", "model=tiny", "target=npu2", f"dir={folder}"]) == 0
    path = folder / "kernels" / QKV
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)
    capsys.readouterr()
    assert main(["check-missing", f"root={built.root}", "model=tiny", "target=npu2", f"dir={folder}"]) == 1
    assert f"missing full ELF {path}" in capsys.readouterr().out
    assert main(["inspect", str(path), f"name={QKV}"]) == 1


def test_the_npu2_design_computes_the_product_in_the_simulator(built):
    """verify's own way in, by hand: the stored design of the full ELF, compiled for sim, against numpy."""
    from elfkiln.store.toolchain_lock import read_lock
    from elfkiln.targets.sim.make_elf import build_sim_elf
    from elfkiln.targets.sim.sim_builder import SimBuilder
    from elfkiln.targets.sim.sim_elf import SimElf

    store = Store(built.store)
    entry = load_registry(built.registry_file).entries("npu2")[QKV]
    wanted = model_requirements(built, "tiny")
    (need,) = [need for need in wanted.requirements if need.file_name == QKV]
    workdir = built.out / "by-hand"
    workdir.mkdir()
    elf = build_sim_elf(
        store.read(find_artifact(store, entry.recipe).design).decode(),
        generator_of(built, wanted, need).kernels,
        kernel_root=built.kernels,
        toolchain=SimBuilder(built, read_lock(built.lock_file).target("sim")).checked_toolchain(),
        cache=built.out / "cache",
        workdir=workdir,
    )
    rng = np.random.default_rng(3)
    a = rng.integers(-128, 128, (128, 256), dtype=np.int8)
    b = rng.integers(-128, 128, (256, 768), dtype=np.int8)
    with SimElf(elf.path) as runnable:
        assert np.array_equal(runnable.run(a, pack(b, "b8")), product(a, b))
