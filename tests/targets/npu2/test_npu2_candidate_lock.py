"""A candidate lock from given wheels: what replaces what, and what a person has to see to."""

import hashlib
import json
import tomllib
import zipfile
from pathlib import Path

import pytest

from elfkiln.errors import Refused
from elfkiln.io.canonical import canonical_json
from elfkiln.project import Project
from elfkiln.targets.given_wheels import read_given
from elfkiln.targets.npu2.candidate_lock import candidate_lock
from npu2_standins import assembler, make_wheel

CHECKOUT = Path(__file__).resolve().parents[3]
REAL_LOCK = (CHECKOUT / "toolchain.lock").read_text()


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    root.mkdir()
    (root / "toolchain.lock").write_text(REAL_LOCK)
    return Project(root)


def real_wheel(folder, version="1.4.4", *, tag="cp312-cp312-manylinux_2_35_x86_64", requires=()):
    return make_wheel(folder, "mlir_aie", version, {"mlir_aie/x": version}, tag=tag, requires=requires)


def test_the_candidate_pins_the_given_wheel_and_keeps_everything_else(project, tmp_path):
    wheel = real_wheel(tmp_path / "new")
    candidate = candidate_lock(project.lock_file, [wheel.path])
    before, after = tomllib.loads(REAL_LOCK), tomllib.loads(candidate.text)
    row = after["target"]["npu2"]["wheels"][0]
    assert row == {
        "name": "mlir-aie",
        "version": "1.4.4",
        "file": "mlir_aie-1.4.4-cp312-cp312-manylinux_2_35_x86_64.whl",
        "url": "https://github.com/Xilinx/mlir-aie/releases/download/v1.4.4/mlir_aie-1.4.4-cp312-cp312-manylinux_2_35_x86_64.whl",
        "sha256": hashlib.sha256(wheel.path.read_bytes()).hexdigest(),
        "size": wheel.path.stat().st_size,
    }
    assert after["target"]["sim"] == before["target"]["sim"]
    assert after["target"]["npu2"]["wheels"][1:] == before["target"]["npu2"]["wheels"][1:]
    assert after["known_wheels"] == before["known_wheels"]
    assert candidate.digest == hashlib.sha256(canonical_json(after["target"]["npu2"])).hexdigest()
    # Comments stay: only the lines of that wheel differ.
    old, new = REAL_LOCK.splitlines(), candidate.text.splitlines()
    assert len([line for line in old if line.startswith("#")]) == len([line for line in new if line.startswith("#")])
    assert [c.name for c in candidate.changes] == ["mlir-aie"]
    assert candidate.notes == ()


def test_a_peano_nightly_keeps_its_address_with_the_plus_encoded(project, tmp_path):
    wheel = make_wheel(tmp_path / "new", "llvm_aie", "23.0.0.2026110101+abcdef01", {"llvm-aie/x": ""})
    row = tomllib.loads(candidate_lock(project.lock_file, [tmp_path / "new"]).text)["target"]["npu2"]["wheels"][1]
    assert row["url"] == (
        "https://github.com/Xilinx/llvm-aie/releases/download/nightly/llvm_aie-23.0.0.2026110101%2Babcdef01-py3-none-any.whl"
    )
    assert row["file"] == wheel.path.name


def test_another_python_tag_moves_the_python_and_names_what_no_longer_fits(project, tmp_path):
    wheel = real_wheel(tmp_path / "new", "1.5.0", tag="cp313-cp313-manylinux_2_35_x86_64")
    candidate = candidate_lock(project.lock_file, [wheel.path])
    assert tomllib.loads(candidate.text)["target"]["npu2"]["python"] == "3.13"
    unfit = [note.partition(":")[0] for note in candidate.notes]
    assert [name.partition("-")[0] for name in unfit] == ["ml_dtypes", "numpy"]


@pytest.mark.parametrize(
    ("version", "generation", "said"),
    [("1.4.0", "get-full-elf", False), ("1.1.4", "generate-full-elf", False), ("1.3.1", "get-full-elf", True)],
)
def test_the_generation_of_aiecc_follows_the_release(version, generation, said, project, tmp_path):
    candidate = candidate_lock(project.lock_file, [real_wheel(tmp_path / "new", version).path])
    assert tomllib.loads(candidate.text)["target"]["npu2"]["aiecc_generation"] == generation
    assert any("which command line its aiecc takes is not known" in note for note in candidate.notes) is said


def test_a_requirement_without_a_wheel_is_said(project, tmp_path):
    requires = (
        "numpy<3.0,>=2.5.1",
        "eudsl-python-extras",
        "newdep>=2",
        "pytest; extra == 'test'",
        'tomli; python_version < "3.11"',
    )
    wheel = real_wheel(tmp_path / "new", requires=requires)
    said = "mlir-aie 1.4.4 requires newdep>=2, of which no wheel is pinned"
    assert candidate_lock(project.lock_file, [wheel.path]).notes == (said,)
    # One of a version that the requirement does not take is as good as none.
    old = make_wheel(tmp_path / "old", "newdep", "1.9", {"newdep.py": ""})
    notes = candidate_lock(project.lock_file, [wheel.path, old.path]).notes
    assert notes == ("mlir-aie 1.4.4 requires newdep>=2, and 1.9 is pinned",)
    extra = make_wheel(tmp_path / "new", "newdep", "2.1", {"newdep.py": ""})
    candidate = candidate_lock(project.lock_file, [tmp_path / "new"])
    assert candidate.notes == ()
    assert tomllib.loads(candidate.text)["target"]["npu2"]["wheels"][-1] == {
        "name": "newdep",
        "version": "2.1",
        "file": "newdep-2.1-py3-none-any.whl",
        "sha256": extra.sha256,
        "size": extra.path.stat().st_size,
    }
    assert [(c.name, c.before) for c in candidate.changes][-1] == ("newdep", None)


def test_a_known_wheel_without_its_pair_is_said(project, tmp_path):
    wheel = real_wheel(tmp_path / "new")
    text = REAL_LOCK + (
        f'\n[[known_wheels]]\nfile = "{wheel.path.name}"\nsha256 = "{wheel.sha256}"\n'
        'pairs_with = "llvm_aie-9-py3-none-any.whl"\naiecc_generation = "generate-full-elf"\n'
    )
    project.lock_file.write_text(text)
    candidate = candidate_lock(project.lock_file, [wheel.path])
    assert f"{wheel.path.name} is known together with llvm_aie-9-py3-none-any.whl" in candidate.notes[0]
    assert tomllib.loads(candidate.text)["target"]["npu2"]["aiecc_generation"] == "generate-full-elf"


def test_other_bytes_under_the_name_of_a_known_wheel_are_said(project, tmp_path):
    # The lock knows this very file of release 1.1.4, by this digest.
    tag = "cp312-cp312-manylinux_2_27_x86_64.manylinux_2_28_x86_64"
    wheel = real_wheel(tmp_path / "new", "1.1.4", tag=tag)
    assert candidate_lock(project.lock_file, [wheel.path]).notes == (
        (
            f"mlir_aie-1.1.4-{tag}.whl: toolchain.lock knows a file of this name with sha256 "
            f"933149c588c4eb1c6479f057453c6331e4ac036a09cfd82f567e4bd763873ce2, this one has {wheel.sha256}; "
            "find out which of the two upstream published"
        ),
    )


def test_other_bytes_under_the_name_of_a_pinned_wheel_are_said(project, tmp_path):
    wheel = make_wheel(tmp_path / "new", "aiofiles", "25.1.0", {"aiofiles.py": "evil = 1\n"})
    (note,) = candidate_lock(project.lock_file, [wheel.path]).notes
    assert note.startswith("aiofiles-25.1.0-py3-none-any.whl: toolchain.lock knows a file of this name with sha256 ")
    assert f"abe311e527c862958650f9438e859c1fa7568a141b22abcd015e120e86a85695, this one has {wheel.sha256}" in note


def test_the_very_bytes_that_are_known_are_not_remarked_on(project, tmp_path):
    wheel = real_wheel(tmp_path / "new")
    project.lock_file.write_text(
        REAL_LOCK + f'\n[[known_wheels]]\nfile = "{wheel.path.name}"\nsha256 = "{wheel.sha256}"\n'
    )
    assert candidate_lock(project.lock_file, [wheel.path]).notes == ()


def spoilt(folder, spoil):
    folder.mkdir()
    path = folder / "mlir_aie-1.4.4-py3-none-any.whl"
    spoil(path)
    return path


def other_metadata(path):
    make_wheel(path.parent, "mlir_aie", "1.4.4", {}, metadata="Metadata-Version: 2.1\nName: mlir-aie\nVersion: 1.4.5\n")


def no_metadata(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", "")


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda path: path.write_bytes(b"no zip"), "not readable as a wheel"),
        (other_metadata, "METADATA: expected mlir-aie 1.4.4, found mlir-aie 1.4.5"),
        (no_metadata, "expected one .dist-info/METADATA, found 0"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_refused(spoil, expected, tmp_path):
    with pytest.raises(Refused) as refused:
        read_given(spoilt(tmp_path / "new", spoil))
    assert expected in str(refused.value)


def test_a_truncated_wheel_is_refused(tmp_path):
    wheel = real_wheel(tmp_path / "new")
    wheel.path.write_bytes(wheel.path.read_bytes()[:-30])
    with pytest.raises(Refused, match="not readable as a wheel"):
        read_given(wheel.path)


def test_wheels_that_are_none(project, tmp_path):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "absent", tmp_path / "empty"):
        with pytest.raises(Refused, match=r"^wheels: expected wheel files or a folder of them"):
            candidate_lock(project.lock_file, [path])


def test_two_wheels_of_one_package_are_refused(project, tmp_path):
    real_wheel(tmp_path / "new")
    real_wheel(tmp_path / "new", "1.4.5")
    with pytest.raises(Refused, match="expected one wheel per package, found several of mlir-aie"):
        candidate_lock(project.lock_file, [tmp_path / "new"])


def test_a_lock_laid_out_otherwise_is_not_half_edited(project, tmp_path):
    rows = tomllib.loads(REAL_LOCK)["target"]["npu2"]["wheels"]
    inline = ", ".join(
        "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in row.items()) + " }" for row in rows
    )
    head, _, rest = REAL_LOCK.partition("[[target.npu2.wheels]]")
    tail = rest[rest.index("# Other wheels whose digests") :]
    text = head.replace('python = "3.12"\n', f'python = "3.12"\nwheels = [{inline}]\n') + tail
    assert tomllib.loads(text) == tomllib.loads(REAL_LOCK)
    project.lock_file.write_text(text)
    with pytest.raises(Refused, match="not laid out as bump can edit"):
        candidate_lock(project.lock_file, [real_wheel(tmp_path / "new").path])


def test_a_comment_that_speaks_of_what_follows_stays_in_front_of_it(project, tmp_path):
    extra = make_wheel(tmp_path / "new", "newdep", "2.1", {"newdep.py": ""})
    lines = candidate_lock(project.lock_file, [extra.path]).text.splitlines()
    at = lines.index('name = "newdep"')
    assert lines[at - 1] == "[[target.npu2.wheels]]"
    after = lines[lines.index(f"size = {extra.path.stat().st_size}") :]
    assert after[1:3] == ["", REAL_LOCK.splitlines()[REAL_LOCK.splitlines().index("[[known_wheels]]") - 2]]
    # Taken out again, the lock is what it was.
    block = lines.index(f"size = {extra.path.stat().st_size}") + 1 - (at - 1) + 1
    assert "\n".join([*lines[: at - 2], *lines[at - 2 + block :]]) + "\n" == REAL_LOCK


def test_lines_that_do_not_change_stay_to_the_letter(project, tmp_path):
    odd = REAL_LOCK.replace('version = "1.4.3"', "version   =  '1.4.3'  # the newest", 1)
    odd = odd.replace("\n# Upstream's", "\n\n\n# Upstream's")
    project.lock_file.write_text(odd)
    wheel = make_wheel(tmp_path / "new", "aiofiles", "26.0", {})
    new = candidate_lock(project.lock_file, [wheel.path]).text
    old_lines, new_lines = odd.splitlines(), new.splitlines()
    assert len(old_lines) == len(new_lines)
    changed = {old.partition(" = ")[0] for old, now in zip(old_lines, new_lines, strict=True) if old != now}
    assert changed == {"version", "file", "sha256", "size"}


def program(tmp_path, abi=33):
    path = tmp_path / "xrt" / "bin" / "aiebu-asm"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(assembler(abi))
    path.chmod(0o755)
    return path


def test_the_machines_assembler_is_pinned_by_place_digest_and_abi(project, tmp_path):
    path = program(tmp_path)
    candidate = candidate_lock(project.lock_file, [], path)
    row = {"file": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "abi": 33}
    assert tomllib.loads(candidate.text)["target"]["npu2"]["outside_tools"] == {"aiebu-asm": row}
    assert [(c.name, c.before, c.after) for c in candidate.changes] == [("aiebu-asm", None, str(path))]
    assert (candidate.notes, candidate.digest != candidate.digest_before) == ((), True)
    # One line is new, under its heading.
    old, new = REAL_LOCK.splitlines(), candidate.text.splitlines()
    (added,) = [line for line in new if line not in old]
    assert new[new.index(added) - 1] == "[target.npu2.outside_tools]"
    assert [line for line in new if line != added] == old
    # Pinned again it changes nothing; another program is another toolchain.
    project.lock_file.write_text(candidate.text)
    assert candidate_lock(project.lock_file, [], path).text == candidate.text
    program(tmp_path, 16)
    again = candidate_lock(project.lock_file, [], path)
    assert tomllib.loads(again.text)["target"]["npu2"]["outside_tools"]["aiebu-asm"]["abi"] == 16
    assert len(again.text.splitlines()) == len(new)


def test_the_assembler_leaves_the_tools_of_the_wheels(project, tmp_path):
    head, heading, rest = REAL_LOCK.partition("[target.npu2.tools]\n")
    project.lock_file.write_text(f'{head}{heading}aiebu-asm = "mlir_aie/bin/aiebu-asm"\n{rest}')
    tools = tomllib.loads(candidate_lock(project.lock_file, [], program(tmp_path)).text)["target"]["npu2"]["tools"]
    assert "aiebu-asm" not in tools
    assert "aiecc" in tools


def test_wheels_and_the_assembler_at_once(project, tmp_path):
    wheel = make_wheel(tmp_path / "new", "aiofiles", "26.0", {})
    candidate = candidate_lock(project.lock_file, [wheel.path], program(tmp_path))
    assert [change.name for change in candidate.changes] == ["aiebu-asm", "aiofiles"]


@pytest.mark.parametrize("kind", ["absent", "folder", "not executable"])
def test_what_is_no_program_is_not_pinned(kind, project, tmp_path):
    path = tmp_path / "aiebu-asm"
    if kind == "folder":
        path.mkdir()
    elif kind == "not executable":
        path.write_text(assembler())
    with pytest.raises(Refused, match=r"^aiebu-asm=.*: expected a program, found none that can be run"):
        candidate_lock(project.lock_file, [], path)


def test_an_assembler_whose_abi_is_not_found_out_is_pinned_with_a_note(project, tmp_path):
    path = program(tmp_path)
    path.write_text("#!/bin/sh\nexit 1\n")
    candidate = candidate_lock(project.lock_file, [], path)
    assert set(tomllib.loads(candidate.text)["target"]["npu2"]["outside_tools"]["aiebu-asm"]) == {"file", "sha256"}
    assert candidate.notes == (f"aiebu-asm: the ABI version of what {path} makes could not be found out",)
