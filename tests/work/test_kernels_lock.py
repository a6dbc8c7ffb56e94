"""kernels.lock.json lies in somebody's folder: nothing in it is believed, and two installs at once lose nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from elfkiln.errors import Differs, Refused
from elfkiln.io.canonical import sha256_hex
from elfkiln.models.catalogue import model_requirements
from elfkiln.store.blobs import Store
from elfkiln.store.registry import load_registry
from elfkiln.work import install as module
from elfkiln.work.build import build_elfs
from elfkiln.work.install import install
from kilns import builder_of, copy_kiln
from projects import SUPPORT, TINY_NAMES

QKV = "full_i8_QKV_K256_N768_b8.elf"


@pytest.fixture(scope="module")
def both(tiny_kiln, tmp_path_factory):
    """A project with the sets b8 and rm of the model tiny."""
    project = copy_kiln(tiny_kiln, tmp_path_factory.mktemp("both") / "project")
    wanted = model_requirements(project, "tiny", "rm")
    assert build_elfs(project, builder_of(project), [wanted], jobs=1).exit_code == 0
    return project


@pytest.fixture
def built(both, tmp_path):
    """The test's own copy of it."""
    return copy_kiln(both, tmp_path / "project")


def put(project, folder, layout="b8"):
    return install(project, "sim", model_requirements(project, "tiny", layout), folder)


def read(folder):
    return json.loads((folder / "kernels.lock.json").read_text())


def everything(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


DIGEST = "sha256:" + "0" * 64
GOOD = {"elf": DIGEST, "recipe": DIGEST, "size": 1}


def lock_with(**fields):
    return json.dumps({"schema": "elfkiln-kernels-lock/1", "target": "sim", "sets": [], "artifacts": {}} | fields)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected JSON"),
        ("[]", "expected an object, found a list of 0"),
        ("{}", "expected the fields"),
        ("[" * 20_000, "levels of nesting"),
        ("\0", "expected JSON"),
        ("\udcff", "UTF-8"),
        (lock_with(schema="other/1"), "schema: expected elfkiln-kernels-lock/1"),
        (lock_with(target=3), "target: expected a string, found 3"),
        (lock_with(target=None), "target: expected a string, found nothing"),
        (lock_with(sets={}), "sets: expected a list"),
        (lock_with(sets=["tiny"]), "sets[0]: expected an object"),
        (lock_with(sets=[{"model": "../up", "layout": "b8"}]), "model"),
        (lock_with(sets=[{"model": "tiny", "layout": "x"}]), "sets[0].layout: expected one of"),
        (lock_with(artifacts=[]), "artifacts: expected an object"),
        (lock_with(artifacts={"kernels/x.elf": 3}), "artifacts.kernels/x.elf: expected an object, found 3"),
        (lock_with(artifacts={"kernels/x.elf": {"elf": DIGEST}}), "expected the fields elf recipe size"),
        (lock_with(artifacts={"kernels/x.elf": GOOD | {"size": 1e999}}), "expected finite numbers"),
        (lock_with(artifacts={"kernels/x.elf": GOOD | {"size": True}}), "size: expected a whole number"),
        (lock_with(artifacts={"kernels/x.elf": GOOD | {"elf": "sha256:../../x"}}), "elf: expected sha256:<64"),
        (lock_with(artifacts={"../x.elf": GOOD}), "expected a path below the folder, found '../x.elf'"),
        (lock_with(artifacts={"kernels/../../x.elf": GOOD}), "expected a path below the folder"),
        (lock_with(artifacts={"/etc/x.elf": GOOD}), "expected a path below the folder"),
        (lock_with(artifacts={"kernels/\0x.elf": GOOD}), "texts without NUL"),
        (lock_with(artifacts={"kernels/\x1b[2Jx.elf": GOOD}), "expected a path below the folder"),
        (lock_with(artifacts={"kernels/notes.txt": GOOD}), "ends in .elf"),
        (lock_with(artifacts={"kernels/.elf": GOOD}), "a bare file name"),
    ],
)
def test_a_lock_of_another_form_is_refused_in_one_line_and_nothing_is_installed(built, tmp_path, text, said):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "kernels.lock.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(Refused) as caught:
        put(built, folder)
    line = str(caught.value)
    assert line.startswith(f"{folder}/kernels.lock.json: not a kernels.lock.json of elfkiln (")
    assert said in line
    assert line.endswith("move it away and run again")
    assert line.isprintable()
    assert everything(folder) == ["kernels.lock.json"]


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        os.mkdir,
        lambda path: os.symlink("/dev/zero", path),
        lambda path: os.symlink("nothing", path),
        lambda path: os.symlink("other.json", path),
    ],
)
def test_what_is_no_file_in_its_place_is_neither_read_nor_written(built, tmp_path, make):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "other.json").write_text("{}")
    make(folder / "kernels.lock.json")
    with pytest.raises(Refused, match=r"kernels\.lock\.json: expected a file, or nothing, to write, found a"):
        put(built, folder)
    assert everything(folder) == ["kernels.lock.json", "other.json"]


def test_a_lock_of_a_terabyte_is_refused_by_its_size(built, tmp_path):
    with open(tmp_path / "kernels.lock.json", "wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(Refused, match="at most 16777216 bytes"):
        put(built, tmp_path)


def edited(folder, change):
    table = read(folder)
    change(table)
    (folder / "kernels.lock.json").write_text(json.dumps(table))


def foreign(folder, path, data=b"somebody else's bytes"):
    """Put a file of somebody's into a model folder, and a row that tells the truth about it into the lock."""
    (folder / path).parent.mkdir(exist_ok=True)
    (folder / path).write_bytes(data)
    row = {"elf": f"sha256:{sha256_hex(data)}", "recipe": DIGEST, "size": len(data)}
    edited(folder, lambda table: table["artifacts"].update({path: row}))


def test_a_row_of_somebody_else_is_not_carried_over_however_well_it_fits(built, tmp_path):
    put(built, tmp_path)
    mine = f"kernels/{QKV}"
    foreign(tmp_path, "kernels/full_i8_O_K512_N512.elf")
    foreign(tmp_path, "extra/own_sealed.elf")
    done = put(built, tmp_path, "rm")
    table = read(tmp_path)
    assert len(table["artifacts"]) == 2 * TINY_NAMES
    assert mine in table["artifacts"]
    assert done.dropped == ("extra/own_sealed.elf", "kernels/full_i8_O_K512_N512.elf")
    assert table["sets"] == [{"layout": "b8", "model": "tiny"}, {"layout": "rm", "model": "tiny"}]
    # They are somebody's: they stay where they are.
    assert (tmp_path / "extra" / "own_sealed.elf").exists()


def test_a_changed_file_and_a_lying_row_are_not_carried_over(built, tmp_path):
    put(built, tmp_path)
    rows = sorted(read(tmp_path)["artifacts"])
    (tmp_path / rows[0]).unlink()
    (tmp_path / rows[0]).write_bytes(b"changed")
    edited(tmp_path, lambda table: table["artifacts"][rows[1]].update(size=1))
    edited(tmp_path, lambda table: table["artifacts"][rows[2]].update(recipe=DIGEST))
    done = put(built, tmp_path, "rm")
    assert done.dropped == tuple(rows[:3])
    assert set(rows[3:]) <= set(read(tmp_path)["artifacts"])
    assert not set(rows[:3]) & set(read(tmp_path)["artifacts"])


def test_what_was_registered_before_is_still_ours(built, stand_in, tmp_path):
    """A model built anew has other digests; what an earlier install put elsewhere is what the store still has."""
    put(built, tmp_path)
    before = read(tmp_path)["artifacts"]
    stand_in.source, stand_in.suffix = "2" * 64, b"built anew"
    assert build_elfs(built, stand_in, [model_requirements(built, "tiny")]).exit_code == 0
    done = put(built, tmp_path, "rm")
    assert done.dropped == ()
    assert {path: row for path, row in read(tmp_path)["artifacts"].items() if path in before} == before


def test_a_set_without_a_file_is_not_carried_over(built, tmp_path):
    put(built, tmp_path)
    edited(tmp_path, lambda table: table["sets"].append({"model": "tiny", "layout": "pb16i"}))
    for path in read(tmp_path)["artifacts"]:
        (tmp_path / path).unlink()
    put(built, tmp_path, "rm")
    assert read(tmp_path)["sets"] == [{"layout": "rm", "model": "tiny"}]


def test_two_installs_at_once_lose_no_set(built, tmp_path):
    folder = tmp_path / "model"
    failures = []

    def work(layout):
        try:
            put(built, folder, layout)
        except Exception as error:
            failures.append(error)

    for _ in range(4):
        threads = [threading.Thread(target=work, args=(layout,)) for layout in ("b8", "rm", "b8", "rm")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert [one["layout"] for one in read(folder)["sets"]] == ["b8", "rm"]
        assert len(read(folder)["artifacts"]) == 2 * TINY_NAMES
        assert not [path for path in everything(folder) if path.rpartition("/")[2].startswith(".")]
        (folder / "kernels.lock.json").unlink()


INSTALL = (
    "import sys\n"
    "sys.path.insert(0, sys.argv[1])\n"
    "from pathlib import Path\n"
    "from elfkiln.models.catalogue import model_requirements\n"
    "from elfkiln.project import Project\n"
    "from elfkiln.work import install as module\n"
    "project = Project(Path(sys.argv[2]))\n"
    "def run(): module.install(project, 'sim', model_requirements(project, 'tiny', sys.argv[4]), Path(sys.argv[3]))\n"
)


def test_processes_wait_for_each_other_and_say_so(built, tmp_path):
    folder = tmp_path / "model"
    slow = INSTALL + (
        "import sys\n"
        "write = module.write_atomic\n"
        "def late(*words, **options):\n"
        "    print('in', flush=True)\n"
        "    sys.stdin.read()\n"
        "    write(*words, **options)\n"
        "module.write_atomic = late\n"
        "run()\n"
    )
    words = [str(SUPPORT), str(built.root), str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", slow, *words, "b8"], stdin=pipe, stdout=pipe) as first:
        assert first.stdout.readline() == b"in\n"
        program = f"{INSTALL}run()\n"
        with subprocess.Popen([sys.executable, "-c", program, *words, "rm"], stderr=pipe, text=True) as second:
            told = second.stderr.readline()
            assert told.startswith(f"elfkiln: waiting for the folder {folder}, which process {first.pid} (")
            # It goes on when the first has ended, and not before.
            assert second.poll() is None
            first.stdin.close()
            assert second.wait(60) == 0, second.stderr.read()
        assert first.wait(60) == 0
    assert [one["layout"] for one in read(folder)["sets"]] == ["b8", "rm"]


@pytest.mark.parametrize("moment", ["os.link", "Path.replace", "os.fsync"])
def test_an_install_that_was_killed_leaves_nothing_unfinished_after_the_next(built, tmp_path, moment):
    folder = tmp_path / "model"
    killing = INSTALL + (
        "import os, signal\n"
        "count = [0]\n"
        f"original = {moment}\n"
        "def once(*words, **options):\n"
        "    count[0] += 1\n"
        f"    done = original(*words, **options) if '{moment}' == 'os.link' else None\n"
        "    if count[0] == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"    return done if '{moment}' == 'os.link' else original(*words, **options)\n"
        f"{moment} = once\n"
        "run()\n"
    )
    words = [str(SUPPORT), str(built.root), str(folder), "b8"]
    done = subprocess.run([sys.executable, "-c", killing, *words], timeout=60)
    assert done.returncode == -signal.SIGKILL
    put(built, folder)
    assert not [path for path in everything(folder) if path.rpartition("/")[2].startswith(".")]
    assert len(read(folder)["artifacts"]) == TINY_NAMES


def test_a_blob_that_is_a_link_is_never_installed(built, tmp_path):
    path = Store(built.store).path(load_registry(built.registry_file).entries("sim")[QKV].elf)
    (tmp_path / "elsewhere").write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Differs, match=rf"missing full ELF kernels/{QKV} \(blob .* cannot be read \(not a regular"):
        put(built, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_blob_that_becomes_a_link_while_it_is_installed_is_not_either(built, tmp_path, monkeypatch):
    path = Store(built.store).path(load_registry(built.registry_file).entries("sim")[QKV].elf)
    (tmp_path / "elsewhere").write_bytes(path.read_bytes())
    link = os.link

    def swap(source, target, **options):
        if source == path:
            path.unlink()
            path.symlink_to(tmp_path / "elsewhere")
        link(source, target, **options)

    monkeypatch.setattr(module.os, "link", swap)
    with pytest.raises(Differs, match="became a symbolic link"):
        put(built, tmp_path / "model")
    assert not (tmp_path / "model" / "kernels" / QKV).exists()
    assert not [path for path in everything(tmp_path / "model") if "part" in path]


def test_nothing_is_touched_when_one_place_is_not_free(built, tmp_path):
    folder = tmp_path / "model"
    last = sorted(need.path for need in model_requirements(built, "tiny").requirements)[-1]
    (folder / last).parent.mkdir(parents=True)
    os.mkfifo(folder / last)
    before = everything(folder)
    with pytest.raises(Refused, match="expected a file or nothing, found a pipe; move it away"):
        put(built, folder)
    assert everything(folder) == before
