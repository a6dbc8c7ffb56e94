"""The one list of plan.json's fields: written, read back, compared, and a new one added by a line."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from elfkiln.models.plan.fields import header_fields, plan_fields, written_fields
from elfkiln.models.plan.load import parse_plan
from plan_data import plan_data
from projects import CHECKOUT

# Section 1 of the engine contract: the schema's places, without those below layers.
PLACES = [
    "format",
    "generated_by",
    "model.hidden",
    "model.layers",
    "model.arch",
    "container.layout",
    "container.chunk_kind",
    "container.pb16i",
    "container.tile_order",
    "fusion.gate_up",
    "prefill.M",
    "decode.M",
    "decode.enabled",
    "decode.dirs",
    "decode.sealed_elf",
    "kernels.tag",
    "attention.mode",
    "kv.key",
    "kv.value",
    "kv.hadamard.block",
    "kv.hadamard.signs",
    "moe.batched_expert_gu.enabled",
    "moe.batched_expert_gu.K",
    "moe.batched_expert_gu.N",
    "layers",
]


def places(data, prefix=""):
    """Yield dotted places of an object's values; a list is a value."""
    for key, value in data.items():
        if isinstance(value, dict):
            yield from places(value, f"{prefix}{key}.")
        else:
            yield prefix + key


def test_the_fields_are_those_of_the_schema_in_its_order():
    assert list(places(written_fields(dict.fromkeys(PLACES, 1)))) == PLACES
    full = plan_fields(parse_plan(plan_data()))
    assert list(places(full)) == [place for place in PLACES if place != "generated_by"]
    assert list(places(header_fields(parse_plan(plan_data())))) == [
        place for place in PLACES if place not in ("generated_by", "layers")
    ]


def test_what_is_not_a_field_is_not_written():
    with pytest.raises(KeyError):
        written_fields({"kernels.tags": "_b8"})


def test_a_plan_comes_back_from_its_fields():
    data = plan_data(kv={"key": "int8", "hadamard": {"block": 64, "signs": "s.bin"}}, moe={})
    data["layers"][0]["gate_up"]["fused"] = False
    plan = parse_plan(data)
    assert parse_plan(plan_fields(plan) | {"generated_by": "by hand"}) == plan
    assert plan_fields(plan)["layers"] == data["layers"]


ADDED = '    window: int = plan_field("attention.window", checks.whole, default=0)\n'
PROGRAM = """
import json
from elfkiln.errors import Refused
from elfkiln.io.json_difference import differences
from elfkiln.models.plan.compare import compare_headers
from elfkiln.models.plan.fields import plan_fields, written_fields
from elfkiln.models.plan.load import parse_plan
old, new, wrong = (json.loads(text) for text in json.load(open("plans.json")))
old, new = parse_plan(old), parse_plan(new)
print(old.window, new.window, new.notes)
print(*compare_headers(old, new))
print(plan_fields(new)["attention"], written_fields({"attention.mode": "causal"})["attention"])
try:
    parse_plan(wrong)
except Refused as error:
    print(error)
"""


def test_a_field_is_added_by_one_line(tmp_path):
    """A copy of the package with one more line in the list: loaded, checked, compared and written, nothing else."""
    shutil.copytree(CHECKOUT / "src" / "elfkiln", tmp_path / "elfkiln", ignore=shutil.ignore_patterns("__pycache__"))
    schema = tmp_path / "elfkiln" / "models" / "plan" / "schema.py"
    before, line, after = schema.read_text().partition('    kv: KeyValueCache = plan_section("kv"')
    assert line
    schema.write_text(before + ADDED + line + after)
    plans = [plan_data(), plan_data(attention__window=4096), plan_data(attention__window="wide")]
    (tmp_path / "plans.json").write_text(json.dumps([json.dumps(plan) for plan in plans]))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "0 4096 ()",
        "attention.window: 0 -> 4096",
        "{'mode': 'causal', 'window': 4096} {'mode': 'causal', 'window': 0}",
        "plan.json: attention.window: expected a whole number, found 'wide'",
    ]
