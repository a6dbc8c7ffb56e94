"""Recipes: canonical, complete, and comparable input by input."""

from __future__ import annotations

import hashlib
import json

from elfkiln.io.canonical import canonical_json
from elfkiln.store.recipe import Step, differing_inputs, facts, input_blobs, make_recipe

COMPILE = Step("kernels/mm.cc", ("c++", "-O3", "kernels/mm.cc"), {"kernels/mm.cc": b"int f();\n", "kernels/t.h": b"\n"})
LINK = Step("elf", ("ld.lld", "-shared"), {"exports.map": b"{ global: f; };\n"})
TOOLS = {"zig": "d" * 64}


def sha(data):
    return hashlib.sha256(data).hexdigest()


def test_canonical_json_is_one_spelling():
    assert canonical_json({"b": [1, 2], "a": "ü"}) == '{"a":"ü","b":[1,2]}'.encode()
    assert canonical_json({"a": 1, "b": 2}) == canonical_json(dict(reversed([("a", 1), ("b", 2)])))


def test_the_digest_is_the_sha256_of_the_canonical_bytes():
    recipe = make_recipe("sim", TOOLS, [COMPILE, LINK])
    assert recipe.digest == sha(recipe.data)
    assert json.loads(recipe.data) == {
        "schema": "elfkiln-recipe/2",
        "target": "sim",
        "tools": {"zig": "d" * 64},
        "steps": [
            {
                "makes": "kernels/mm.cc",
                "command": ["c++", "-O3", "kernels/mm.cc"],
                "inputs": {"kernels/mm.cc": sha(b"int f();\n"), "kernels/t.h": sha(b"\n")},
            },
            {"makes": "elf", "command": ["ld.lld", "-shared"], "inputs": {"exports.map": sha(b"{ global: f; };\n")}},
        ],
    }
    assert input_blobs([COMPILE, LINK])[sha(b"int f();\n")] == b"int f();\n"
    assert set(input_blobs([COMPILE, LINK])) == {sha(b"int f();\n"), sha(b"\n"), sha(b"{ global: f; };\n")}


def test_every_input_changes_the_digest():
    others = [
        make_recipe("npu2", TOOLS, [COMPILE, LINK]),
        make_recipe("sim", {"zig": "e" * 64}, [COMPILE, LINK]),
        make_recipe("sim", TOOLS, [COMPILE]),
        # Objects are linked in the order of the steps.
        make_recipe("sim", TOOLS, [LINK, COMPILE]),
        make_recipe("sim", TOOLS, [Step("kernels/mm.cc", ("c++", "-O2", "kernels/mm.cc"), COMPILE.inputs), LINK]),
        make_recipe("sim", TOOLS, [Step("kernels/mm.cc", COMPILE.command, {"kernels/mm.cc": b"int g();\n"}), LINK]),
        make_recipe("sim", TOOLS, [Step("other.cc", COMPILE.command, COMPILE.inputs), LINK]),
    ]
    digests = [make_recipe("sim", TOOLS, [COMPILE, LINK]).digest, *(recipe.digest for recipe in others)]
    assert len(set(digests)) == len(digests)


def test_what_differs_is_named():
    old = make_recipe("sim", TOOLS, [COMPILE, LINK]).table
    changed = Step("kernels/mm.cc", ("c++", "-O2", "kernels/mm.cc"), {"kernels/mm.cc": b"int g();\n"})
    new = make_recipe("sim", {"zig": "e" * 64}, [changed, LINK]).table
    assert differing_inputs(old, new) == (
        ("zig", "d" * 64, "e" * 64),
        ("kernels/mm.cc: command", "c++ -O3 kernels/mm.cc", "c++ -O2 kernels/mm.cc"),
        ("kernels/mm.cc", sha(b"int f();\n"), sha(b"int g();\n")),
        ("kernels/mm.cc: kernels/t.h", sha(b"\n"), "absent"),
    )
    assert differing_inputs(old, old) == ()
    assert [name for name, _ in facts(old)][:2] == ["target", "zig"]
