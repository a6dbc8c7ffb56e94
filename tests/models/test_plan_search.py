"""Where the engine looks for what a plan asks for, and what it opens."""

from pathlib import Path

from elfkiln.models.catalogue import model_requirements
from elfkiln.models.plan.load import parse_plan
from elfkiln.models.plan.names import plan_requirements
from elfkiln.models.plan.search import choose, walk_candidates, walk_without_plan
from elfkiln.project import Project
from plan_data import PB16I, plan_data
from projects import CHECKOUT


def walk(plan, model_dir, kernels_dir=None):
    return walk_candidates(plan, plan_requirements(plan, "m"), model_dir, kernels_dir)


def test_the_engine_walks_decode_dirs_in_order_for_twins_alone():
    plan = parse_plan(plan_data())
    found = {entry.requirement.file_name: entry.paths for entry in walk(plan, Path("model"), Path("elfs"))}
    assert found["full_i8_D_K768_N256_b8.elf"] == (Path("elfs/full_i8_D_K768_N256_b8.elf"),)
    assert found["full_i8_D_K768_N256_b8_m16.elf"] == (
        Path("model/kernels-m16/full_i8_D_K768_N256_b8_m16.elf"),
        Path("elfs/full_i8_D_K768_N256_b8_m16.elf"),
    )
    assert len(found) == 14


def test_the_order_of_decode_dirs_is_the_order_of_the_walk():
    dirs = [{"root": "kernels", "path": "."}, {"root": "model", "path": "a/b"}, {"root": "kernels", "path": "./"}]
    plan = parse_plan(plan_data(decode__dirs=dirs))
    twin = next(entry for entry in walk(plan, Path("m")) if entry.requirement.name.m16)
    assert [path.parent for path in twin.paths] == [Path("m/kernels"), Path("m/a/b")]


def test_the_sealed_elf_is_looked_up_in_the_model_folder():
    plan = parse_plan(plan_data(**PB16I))
    entry = walk(plan, Path("m"), Path("k"))[-1]
    assert (entry.requirement.name, entry.paths) == (None, (Path("m/pb16i_sealed.elf"),))


def test_without_a_plan_twins_are_searched_in_both_folders():
    wanted = model_requirements(Project(CHECKOUT), "qwen3-0.6b")
    found = walk_without_plan(wanted, Path("m"), Path("k"))
    assert [path.parent for path in found[0].paths] == [Path("k")]
    assert [path.parent for path in found[-1].paths] == [Path("k"), Path("m/kernels"), Path("m/kernels-m16")]
    found = walk_without_plan(wanted, Path("m"))
    assert [path.parent for path in found[-1].paths] == [Path("m/kernels"), Path("m/kernels-m16")]


def test_the_first_file_with_a_byte_shadows_the_rest():
    def chosen(*sizes):
        files = {Path(f"{index}/x.elf"): size for index, size in enumerate(sizes)}
        choice = choose(files, files.get)
        opened = int(choice.opened.parent.name) if choice.opened else None
        return opened, [int(p.parent.name) for p in choice.shadowed], [int(p.parent.name) for p in choice.empty]

    assert chosen(4096, 4096) == (0, [1], [])
    assert chosen(None, 4096) == (1, [], [])
    assert chosen(0, 59, 4096) == (1, [2], [0])
    assert chosen(1, 0, None) == (0, [], [1])
    assert chosen(None, None) == (None, [], [])
    assert chosen(0) == (None, [], [0])
