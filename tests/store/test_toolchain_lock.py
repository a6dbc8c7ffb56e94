"""toolchain.lock: what it pins, and what is refused."""

from __future__ import annotations

import pytest

from elfkiln.errors import Refused
from elfkiln.store import toolchain_lock
from elfkiln.store.toolchain_lock import read_lock
from projects import CHECKOUT

GOOD = (
    'schema = "elfkiln-toolchain/1"\ndefault_target = "sim"\n[target.sim]\ncpu = "v3"\n[target.npu2]\npython = "3.12"\n'
)


def test_the_shipped_lock_builds_for_sim_unless_told():
    lock = read_lock(CHECKOUT / "toolchain.lock")
    assert lock.default_target == "sim"
    assert sorted(lock.targets) == ["npu2", "sim"]
    assert lock.target().name == "sim"
    assert lock.target("npu2").name == "npu2"


def test_any_edit_of_a_target_changes_its_digest_and_no_other(tmp_path):
    path = tmp_path / "toolchain.lock"
    path.write_text(GOOD)
    before = read_lock(path)
    path.write_text(GOOD.replace('"v3"', '"v4"'))
    after = read_lock(path)
    assert before.target("sim").digest != after.target("sim").digest
    assert before.target("npu2").digest == after.target("npu2").digest
    path.write_text("# a comment\n" + GOOD)
    assert read_lock(path).target("sim").digest == before.target("sim").digest


def test_a_lock_that_each_model_asks_for_is_parsed_once(tmp_path, monkeypatch):
    parsed, parse = [], toolchain_lock.parse_strict_toml
    monkeypatch.setattr(
        toolchain_lock,
        "parse_strict_toml",
        lambda text, *rest, **more: (parsed.append(text), parse(text, *rest, **more))[1],
    )
    path = tmp_path / "toolchain.lock"
    path.write_text(f"# {tmp_path}\n{GOOD}")
    for _ in range(3):
        assert read_lock(path).target("sim").table == {"cpu": "v3"}
    assert len(parsed) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "schema"),
        ("schema = ", "expected TOML"),
        (GOOD.replace("toolchain/1", "toolchain/2"), "expected elfkiln-toolchain/1, found 'elfkiln-toolchain/2'"),
        (GOOD.replace('"sim"\n[', '"gpu"\n['), "default_target: expected one of npu2, sim, found 'gpu'"),
        ('schema = "elfkiln-toolchain/1"\ndefault_target = "sim"\n', "target"),
        ('schema = "elfkiln-toolchain/1"\ndefault_target = "sim"\ntarget = 3\n', "target"),
        ('schema = "elfkiln-toolchain/1"\ndefault_target = "sim"\n[target]\nsim = 3\n', "target.sim: expected a table"),
        (GOOD + "x = 1e999\n", "target.npu2.x: expected a text, a finite number"),
        (GOOD + "x = 1979-05-27\n", "target.npu2.x: expected a text, a finite number"),
        (GOOD + "x = " + "[" * 20_000, "deeper nesting"),
        ("\0", "expected TOML"),
    ],
)
def test_what_does_not_fit_is_one_line(tmp_path, text, says):
    path = tmp_path / "toolchain.lock"
    path.write_text(text)
    with pytest.raises(Refused) as raised:
        read_lock(path)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_absent_lock_and_an_unknown_target(tmp_path):
    with pytest.raises(Refused, match=r"toolchain\.lock: missing"):
        read_lock(tmp_path / "toolchain.lock")
    (tmp_path / "toolchain.lock").write_text(GOOD)
    with pytest.raises(Refused, match="target=gpu: expected one of npu2, sim"):
        read_lock(tmp_path / "toolchain.lock").target("gpu")
