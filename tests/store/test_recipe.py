"""Recipes: canonical, complete, and comparable input by input."""

from __future__ import annotations

import hashlib
import json

from elfkiln.families.family import KernelObject, RenderedGenerator
from elfkiln.io.canonical import canonical_json
from elfkiln.store.recipe import differing_inputs, flatten, make_recipe
from elfkiln.store.toolchain_lock import TargetPin

PIN = TargetPin("sim", {"triple": "x86_64", "flags": {"link": ["-shared", "-s"]}}, "d" * 64)
KERNEL = KernelObject("mm_32x64x128.o", "mm_i8.cc", {"DIM_M": "32"})
GENERATOR = RenderedGenerator("print(1)\n", (KERNEL,))
SOURCES = {"kernels/mm_i8.cc": "a" * 64}


def test_canonical_json_is_one_spelling():
    assert canonical_json({"b": [1, 2], "a": "ü"}) == '{"a":"ü","b":[1,2]}'.encode()
    assert canonical_json({"a": 1, "b": 2}) == canonical_json(dict(reversed([("a", 1), ("b", 2)])))


def test_the_digest_is_the_sha256_of_the_canonical_bytes():
    recipe = make_recipe(PIN, GENERATOR, SOURCES)
    assert recipe.digest == hashlib.sha256(recipe.data).hexdigest()
    table = json.loads(recipe.data)
    assert table["schema"] == "elfkiln-recipe/1"
    assert table["target"] == "sim"
    assert table["generator"] == hashlib.sha256(b"print(1)\n").hexdigest()
    assert table["toolchain"]["digest"] == "d" * 64
    assert table["kernels"] == [{"object": "mm_32x64x128.o", "source": "mm_i8.cc", "defines": {"DIM_M": "32"}}]
    assert table["sources"] == SOURCES


def test_every_input_changes_the_digest():
    base = make_recipe(PIN, GENERATOR, SOURCES).digest
    others = [
        make_recipe(TargetPin("npu2", PIN.table, PIN.digest), GENERATOR, SOURCES),
        make_recipe(TargetPin("sim", PIN.table, "e" * 64), GENERATOR, SOURCES),
        make_recipe(TargetPin("sim", {"triple": "other"}, PIN.digest), GENERATOR, SOURCES),
        make_recipe(PIN, RenderedGenerator("print(2)\n", (KERNEL,)), SOURCES),
        make_recipe(PIN, RenderedGenerator("print(1)\n", ()), SOURCES),
        make_recipe(PIN, RenderedGenerator("print(1)\n", (KernelObject("o", "s", {"DIM_M": "16"}),)), SOURCES),
        make_recipe(PIN, GENERATOR, {"kernels/mm_i8.cc": "b" * 64}),
        make_recipe(PIN, GENERATOR, SOURCES | {"kernels/new.h": "a" * 64}),
    ]
    digests = [base, *(recipe.digest for recipe in others)]
    assert len(set(digests)) == len(digests)


def test_flatten_names_every_leaf():
    assert dict(flatten({"a": {"b": [1, {"c": None}]}, "d": True})) == {"a.b[0]": "1", "a.b[1].c": "None", "d": "True"}


def test_differing_inputs_names_the_field_of_the_pin_not_its_digest():
    old = make_recipe(PIN, GENERATOR, SOURCES).table
    pin = TargetPin("sim", {"triple": "x86_64", "flags": {"link": ["-shared"]}}, "e" * 64)
    new = make_recipe(pin, GENERATOR, {"kernels/mm_i8.cc": "b" * 64}).table
    assert differing_inputs(old, new) == (
        ("sources.kernels/mm_i8.cc", "a" * 64, "b" * 64),
        ("toolchain.pin.flags.link[1]", "-s", "absent"),
    )
    assert differing_inputs(old, old) == ()
