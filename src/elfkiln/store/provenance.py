"""Where an artifact comes from, as a statement: SLSA provenance v1 over its recipe and what led to it.

Nothing volatile is in one: equal inputs give equal statements, on any machine, so a build attaches the same referrer
wherever it runs. What decides the bytes stands in the recipe; `origin` is what led there (template, generator, lock).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from elfkiln.store.artifacts import Artifact, recipe_ref
from elfkiln.store.attestations import result_predicate, statement
from elfkiln.store.recipe import facts
from elfkiln.store.statement_types import PROVENANCE, TEST_RESULT

BUILD_TYPE = "urn:elfkiln:build:1"
_BUILDER = "urn:elfkiln:builder:"
_SHA256 = re.compile(r"(?:sha256:)?([0-9a-f]{64})", re.ASCII)
_LINT = re.compile(r"(?:object )?lint: (.+)")
NOTHING: Mapping[str, str] = MappingProxyType({})


def provenance(artifact: Artifact, recipe: Mapping[str, Any], origin: Mapping[str, str] = NOTHING) -> bytes:
    """Return the statement of where an artifact's ELF comes from.

    The digests of its recipe are resolved dependencies: the toolchain's wheels, the generated source or design, the
    microkernels. `origin` adds what led to the recipe, sha256 by name.
    """
    dependencies = [
        {"name": name, "digest": {"sha256": match[1]}}
        for name, value in (*facts(recipe), *sorted(origin.items()))
        if (match := _SHA256.fullmatch(value)) is not None
    ]
    target = str(recipe["target"])
    predicate = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"target": target, "columns": artifact.columns}
            | ({"sealed": [list(pair) for pair in sorted(artifact.sealed)]} if artifact.sealed else {}),
            "internalParameters": {"recipe": f"sha256:{artifact.recipe}", "design": f"sha256:{artifact.design}"},
            "resolvedDependencies": dependencies,
        },
        "runDetails": {
            "builder": {"id": f"{_BUILDER}{target}"},
            "metadata": {"invocationId": recipe_ref(artifact.recipe)},
        },
    }
    return statement(recipe_ref(artifact.recipe), artifact.elf, PROVENANCE, predicate)


def lint_result(artifact: Artifact, target: str, log: str) -> bytes:
    """Return the statement that an artifact's design passed lint, with the warnings its build's log has of it.

    A design with an error of lint is not compiled, so there is no artifact of it.
    """
    warned = list(dict.fromkeys(match[1] for line in log.splitlines() if (match := _LINT.fullmatch(line))))
    design = {"name": "design", "digest": {"sha256": artifact.design}}
    rules = {"name": "elfkiln lint", "annotations": {"target": target}}
    predicate = result_predicate(["lint: no errors"], [], warned, [rules, design])
    return statement(recipe_ref(artifact.recipe), artifact.elf, TEST_RESULT, predicate)
