"""The forms of what `--json` prints, verb by verb: written down once, documented from here, and held by the tests.

A form is a word (`text`, `count`, `number`, `flag`, `any`, `sha256` as `sha256:<64 hex digits>`, `hex` as 64 digits,
`null`, or some of them with `|` between), a list of one form, or a mapping of keys to forms: a key ending in `?` may be
absent, the key `*` stands for any other. Where a verb prints one of several forms they stand beside each other.

`VERSION` grows when a field of some form goes or changes its meaning; a new field or verb is not such a change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

VERSION = 1

Form: TypeAlias = str | list["Form"] | Mapping[str, "Form"]

_NAME = {
    "target": "text",
    "path": "text",
    "name": "text",
    "elf": "sha256|null",
    "size": "count|null",
    "recipe": "sha256|null",
    "design": "sha256|null",
    "columns": "count|null",
    "problem": "text|null",
}
_DIFFERENCE = {"field": "text", "*": "any"}
# first_line: {"number", "was", "is"}, or null where there are no lines to compare.
_CHANGE: dict[str, Form] = {"input": "text", "was": "text", "is": "text", "first_line": "any"}
_PASS: dict[str, Form] = {
    "what": "text",
    "launches": "count",
    "designs_seconds": "number",
    "launch_seconds": "number",
    "head_seconds": "number",
    "seconds": "number",
    "range_seconds": ["number"],
}
_PREDICTION: Form = {
    "kind": "text",
    "sequence": "text",
    "seconds": "number",
    "range_seconds": ["number"],
    "binds": "text",
    "next": {"resource": "text", "seconds": "number"},
    "roof_seconds": "number",
    "busy_seconds": {"*": "number"},
    "tasks": "count",
    "groups": "count",
    "steps": "count",
    "weight_bytes": "count",
    "shim_bytes": "count",
    "short_runs": "count",
    "shortest_run_bytes": "count",
    "weight_bytes_per_second": "number",
    "tops": "number",
}
_TAKEN: Form = {
    "target": "text",
    "model": "text",
    "layout": "text",
    "set_digest": "sha256",
    "index": "sha256",
    "names": "count",
    "registered": ["text"],
    "artifacts": "count",
    "blobs_fetched": "count",
    "referrers": "count",
}

_GENERATIONS: Form = {
    "current": "count|null",
    "generations": [
        {
            "number": "count",
            "what": "text",
            "time": "count",
            "registry": "sha256",
            "added": "count",
            "changed": "count",
            "dropped": "count",
        }
    ],
    "damaged": ["text"],
}

_ON_DEVICE: Form = {
    "target": "text",
    "sets": [
        {
            "model": "text",
            "layout": "text",
            "schema": "text",
            "results": [
                {
                    "names": ["text"],
                    "elf": "sha256",
                    "seed": "count",
                    "outcome": "text",
                    "checks": [{"*": "any"}],
                    "timings": [
                        {
                            "instance": "text",
                            "warmup": "count",
                            "runs": "count",
                            "median_ns": "number",
                            "mad_ns": "number",
                            "p95_ns": "number",
                            "min_ns": "number",
                            "max_ns": "number",
                            "nanoseconds": ["number"],
                        }
                    ],
                    "fault": "any",
                    # The machine's state around the run (docs/device.md).
                    "before": {"*": "any"},
                    "after": {"*": "any"},
                    "notes": ["text"],
                }
            ],
            "twins": [
                {"twin": "text", "other": "text", "elements": "count", "mismatched": "count", "largest": "count"}
            ],
            "left": ["text"],
            "stopped": "any",
            "predicted": [{"elf": "sha256", "instance": "text", "seconds": "number"}],
            "attested": ["sha256"],
        }
    ],
}

_ATTESTATION: dict[str, Form] = {
    "manifest": "sha256",
    "predicate_type": "text",
    "result": "text|null",
    "signatures": "count",
    # What the certificate of a sigstore bundle says; a policy says whether it counts.
    "identity": "text|null",
    "issuer": "text|null",
}

FORMS: dict[str, tuple[Form, ...]] = {
    "elfs": (
        {
            "target": "text",
            "toolchain": "hex",
            "names": "count",
            "recipes": "count",
            "built": ["text"],
            "fetched": ["text"],
            "registered": ["text"],
            "up_to_date": ["text"],
            "failed": [{"name": "text", "reason": "text"}],
            "remote?": {
                "address": "text",
                "cached": "count",
                "executed": "count",
                "here": "count",
                "filled": "count",
                "failed": "count",
            },
        },
        {"target": "text", "toolchain": "hex", "dry_run": [{"name": "text", "state": "text", "why": "text"}]},
    ),
    "log": (
        {
            "name": "text",
            "target": "text",
            "state": "text",
            "recipe": "sha256|null",
            "reason": "text",
            "log": "text",
        },
        # Without a name: the generations.
        _GENERATIONS,
    ),
    "reproduce": (
        {
            "target": "text",
            "conditions": {
                "folder": "text",
                "home": "text",
                "tmpdir": "text",
                "user": "text",
                "locale": "text",
                "timezone": "text",
                "umask": "text",
                "clock": "text|null",
                "hash_seed": "count",
                "jobs": "count",
                "listing": "text",
            },
            "not_varied": ["text"],
            "uncommitted": ["text"],
            "rebuilt": "count",
            "names": [
                {
                    "name": "text",
                    "state": "text",
                    "registered": "sha256|null",
                    "rebuilt": "sha256|null",
                    "reason": "text",
                    "changes": [_CHANGE],
                    "difference": ["text"],
                    "causes": ["text"],
                    "volatile": ["text"],
                    "kept": "text|null",
                }
            ],
        },
    ),
    "check-missing": (
        {
            "schema": "text",
            "target": "text",
            "dir": "text|null",
            "missing": "count",
            "models": [
                {
                    "model": "text",
                    "target": "text",
                    "layout": "text|null",
                    "names": "count",
                    "refused": "text|null",
                    "gaps": [
                        {
                            "name": "text",
                            "path": "text",
                            "kind": "text",
                            "detail": "text",
                            "expected": "sha256|null",
                            "found": "sha256|null",
                        }
                    ],
                }
            ],
        },
    ),
    "lookup": (
        [_NAME],
        {
            "model": "text",
            "layout": "text",
            "target": "text",
            "set_digest": "sha256|null",
            "names": [{**_NAME, "directory": "text", "uses": ["text"]}],
            "layers": [{**_NAME, "use": "text", "layer": "count|null", "role": "text|null"}],
        },
    ),
    "install": (
        {
            "dir": "text",
            "target": "text",
            "paths": ["text"],
            "unchanged": "count",
            "linked": "count",
            "copied": "count",
            "dropped": ["text"],
        },
    ),
    "resolve": (
        {
            "name": "text",
            "opened": "text|null",
            "candidates": [
                {"path": "text", "state": "text", "bytes": "count|null", "sha256": "hex|null", "is": "text|null"}
            ],
        },
    ),
    "explain": (
        {
            "name": "text",
            "target": "text",
            "recipe": "sha256",
            "state": "text",
            "nearest": "sha256|null",
            "changes": [_CHANGE],
            "generator_diff": ["text"],
            "remote?": {
                "address": "text",
                "executes": "flag|null",
                "takes_results": "flag|null",
                "refused": "text|null",
                "steps": [
                    {
                        "step": "text",
                        "action": "sha256|null",
                        "state": "text",
                        "why": "text|null",
                        "changes": [{"input": "text", "was": "text", "is": "text"}],
                    }
                ],
            },
            "notes": ["text"],
        },
    ),
    "verify": (
        {
            "target": "text",
            "sets": [
                {
                    "model": "text",
                    "layout": "text",
                    "operations": "count",
                    "seconds": "number",
                    "at_once": "count",
                    "checks": [
                        {
                            "names": ["text"],
                            "what": "text",
                            "passed": "flag",
                            "elements?": "count",
                            "mismatched?": "count",
                            "largest?": "count",
                            "must_differ?": "flag",
                            "reason?": "text",
                        }
                    ],
                }
            ],
        },
        # on=device
        _ON_DEVICE,
    ),
    "bench": (_ON_DEVICE,),
    "report": (
        {
            "model": "text",
            "launches": "count",
            "published_launches": "count|null",
            "vocabulary": "count",
            "experts": "count",
            "launch_seconds": "number",
            "roles": [{"role": "text", "launches": "count", "int8_bytes": "count"}],
            "layouts": [
                {
                    "layout": "text",
                    "layer_bytes": "count",
                    "head_bytes": "count",
                    "seconds": "number",
                    "prediction_only": "flag",
                    "published_seconds": "number|null",
                    "error": "number|null",
                }
            ],
            "designs": [_PASS],
            "designs_refused": "text|null",
        },
    ),
    "predict": (
        {
            "models": [
                {
                    "kind": "text",
                    "model": "text",
                    "layout": "text",
                    "names": [{"name": "text", "launches": "count", "sequences": [_PREDICTION]}],
                    "passes": [_PASS],
                }
            ]
        },
        {
            "points": [
                {
                    "group": "text",
                    "point": "text",
                    "unit": "text",
                    "published": "number",
                    "modelled": "number",
                    "error": "number",
                    "fitted": "flag",
                    "source": "text",
                }
            ],
            "rms": {"*": "number"},
        },
        {"*": [_PREDICTION]},
    ),
    "site": ({"out": "text", "files": "count", "pages": "count", "bytes": "count"},),
    "draw": ({"design": "text", "out": "text|null", "bytes": "count"},),
    "plan": (
        {"file": "text", "notes": ["text"], "layers": "count", "layout": "text", "gate_up": "text", "names": "count"},
        {
            "file": "text",
            "current": "flag",
            "differences": [_DIFFERENCE],
            # Of a plan alone: what its loader says.
            "refused?": "text|null",
            "notes": ["text"],
        },
        # --from-config: a role table.
        {
            "file": "text|null",
            "model": "text",
            "hidden": "count",
            "intermediate": "count",
            "layers": {"*": "count"},
            "layout": "text",
            "decode": "flag",
            "source": "text",
            "rows": [
                {"role": "text", "K": "count", "N": "count", "columns": "count", "layers": ["text"], "note": "text"}
            ],
            "notes": ["text"],
        },
    ),
    "diff": (
        {
            "same": "flag",
            "fields": [_DIFFERENCE],
            "gained": [{"name": "text", "directory": "text", "columns": "count"}],
            "lost": [{"name": "text", "directory": "text", "columns": "count"}],
            "changed": [{"name": "text", "*": {"old": "text", "new": "text"}}],
            "notes": ["text"],
        },
        # Two generations.
        {
            "old": "count",
            "new": "count",
            "same": "flag",
            "gained": ["text"],
            "lost": ["text"],
            "changed": [{"name": "text", "fields": {"*": {"old": "text", "new": "text"}}}],
        },
    ),
    "design": (
        {
            "name": "text",
            "device": "text",
            "digest": "hex",
            "design": "text",
            "cores": "count",
            "fifos": "count",
            "kernels": {"*": "text|null"},
            "sequences": {"*": {"tasks": "count"}},
        },
    ),
    "lint": (
        {
            "errors": "count",
            "warnings": "count",
            "findings": [{"*": "any"}],
            "tiles": [
                {
                    "tile": "text",
                    "memory": "count",
                    "stack": "count",
                    "buffers": [{"name": "text", "count": "count", "bytes_each": "count"}],
                    "used": "count",
                    "free": "number",
                    "s2mm": "count",
                    "mm2s": "count",
                    "descriptors": "count",
                    "locks": "count",
                }
            ],
        },
        {"refused": "text"},
    ),
    "inspect": (
        {
            "path": "text",
            "kind": "text",
            "size": "count",
            "sha256": "hex",
            "sound": "flag",
            "reject": "text|null",
            "fault": "text|null",
            # What is said about its bytes, by every name they are registered under; the statements: `attestations`.
            "attestations": [
                {
                    "name": "text",
                    "elf": "sha256",
                    "manifest": "sha256",
                    "attestations": [_ATTESTATION],
                }
            ],
            # Facts: what the kind of file has to say.
            "*": "any",
        },
    ),
    # CycloneDX 1.6 (https://cyclonedx.org/schema/bom-1.6.schema.json).
    "sbom": ({"bomFormat": "text", "specVersion": "text", "*": "any"},),
    "keygen": ({"file": "text", "ed25519": "text"},),
    "sign": (
        {"names": "count", "signed": "count"},
        {"names": "count", "signed": "count", "identity": "text", "issuer": "text"},
        {"path": "text", "lock": "sha256", "files": "count", "envelopes": "count"},
    ),
    "attestations": (
        [
            {
                "name": "text",
                "elf": "sha256",
                "manifest": "sha256",
                "attestations": [_ATTESTATION | {"statement": {"*": "any"}}],
            }
        ],
    ),
    "push": (
        {
            "address": "text",
            "artifacts": "count",
            "blobs_sent": "count",
            "bytes_sent": "count",
            "blobs_there": "count",
            "referrers": "count",
            "tags": {"*": "sha256"},
        },
    ),
    "pull": ([_TAKEN],),
    "export": ({"file": "text", "blobs": "count", "bytes": "count", "sets": {"*": "sha256"}},),
    "import": ([_TAKEN],),
    "fsck": (
        {
            "blobs": "count",
            "bytes": "count",
            "manifests": "count",
            "names": "count",
            "folders": ["text"],
            "corrupt": "count",
            "missing": "count",
            "unreferenced": "count",
            "findings": [{"state": "text", "what": "text", "detail": "text", "remedy": "text|null", "bytes": "count"}],
            "repaired": ["text"],
            "left": ["text"],
        },
    ),
    "gc": (
        {
            "deleted": "flag",
            "blobs": "count",
            "bytes": "count",
            "freed_bytes": "count",
            "kept_blobs": "count",
            "kept_bytes": "count",
            "young": "count",
            "generations": "count",
            "swept": "count",
            "damaged": "count",
            "damaged_bytes": "count",
            "loose": [{"name": "text", "what": "text", "bytes": "count", "shared": "flag"}],
        },
    ),
    "generations": (_GENERATIONS,),
    "rollback": ({"to": "count", "made": "count|null", "names": "count", "incomplete": ["text"]},),
    "registry": (
        {
            "against": "text|null",
            "passed": "flag",
            "names": "count",
            "new": "count",
            "changes": [
                {
                    "target": "text",
                    "name": "text",
                    "what": "text",
                    "detail": "text",
                    "why": "text|null",
                    "faulty": "flag",
                }
            ],
        },
    ),
    "list": (
        {
            "target": "text",
            "models": [
                {"model": "text", "layout?": "text", "names?": "count", "registered?": "count", "refused?": "text"}
            ],
        },
    ),
    "toolchain": (
        {"target": "text", "digest": "hex", "versions": "text"},
        {
            "targets": [
                {
                    "target": "text",
                    "default": "flag",
                    "digest": "hex",
                    "versions": "text",
                    "installed": "flag",
                    "usable": "flag",
                    "reason": "text",
                    "mirrored": "flag|null",
                }
            ]
        },
        {"ref": "text", "manifest": "sha256", "stored": ["text"], "kept": ["text"]},
        {
            "out": "text",
            "target": "text",
            "digest": "hex",
            "digest_before": "hex",
            "changes": [{"name": "text", "before": "text|null", "after": "text"}],
            "notes": ["text"],
            "why": "text|null",
            "names": ["text"],
            "recipes": "count",
            "models": "count",
            "wanted": "count",
            "unbuilt": "count",
            "preview?": [
                {
                    "name": "text",
                    "elf": "sha256",
                    "candidate_elf": "sha256|null",
                    "why": ["text"],
                    "difference": ["text"],
                    "failure": "text|null",
                }
            ],
        },
    ),
    "kv-gate": (
        {
            "holds": "flag",
            "settings": {"*": "count"},
            "rows": [{"severity": "number", "divergence": {"*": "number"}, "rotation_worth": "number"}],
            "score_error": {"plain": "number", "rotated": "number"},
            "checks": [{"statement": "text", "holds": "flag", "measured": "text"}],
        },
    ),
    "compare-runs": (
        {"passed": "flag", "compared": [{"kind": "text", "subject": "text", "what": "text", "fails": "flag"}]},
        {"passed": "flag", "cases": {"*": "flag"}},
    ),
    "doctor": (
        {"sound": "flag", "checks": [{"what": "text", "state": "text", "found": "text", "remedy": "text|null"}]},
    ),
    "completion": ({"shell": "text", "script": "text"},),
    "cross-check": ({"*": [{"where": "text", "subject": "text", "what": "text"}]},),
}

_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)


def misfit(value: object, form: Form, where: str = "") -> str | None:
    """Return in a line where a JSON value does not have a form, None when it has.

    >>> misfit({"names": 8, "failed": []}, {"names": "count", "failed": ["text"]})
    >>> misfit({"names": -1}, {"names": "count"})
    'names: expected count, found -1'
    >>> misfit({"a": 1}, {"b?": "count"})
    'a: not a field'
    """
    if isinstance(form, str):
        fits = any(_is(value, word) for word in form.split("|"))
        return None if fits else f"{where or 'the value'}: expected {form}, found {value!r}"
    if isinstance(form, list):
        if not isinstance(value, list):
            return f"{where or 'the value'}: expected a list, found {value!r}"
        return next((bad for n, one in enumerate(value) if (bad := misfit(one, form[0], f"{where}[{n}]"))), None)
    if not isinstance(value, dict):
        return f"{where or 'the value'}: expected an object, found {value!r}"
    return _object_misfit(value, form, f"{where}." if where else "")


def _object_misfit(value: Mapping[str, object], form: Mapping[str, Form], prefix: str) -> str | None:
    known = {key.removesuffix("?"): inner for key, inner in form.items()}
    for key in form:
        if not key.endswith("?") and key != "*" and key not in value:
            return f"{prefix}{key}: missing"
    for key, one in value.items():
        inner = known.get(key, known.get("*"))
        if inner is None:
            return f"{prefix}{key}: not a field"
        bad = misfit(one, inner, f"{prefix}{key}")
        if bad:
            return bad
    return None


def _is(value: object, word: str) -> bool:
    if isinstance(value, bool):
        return word in ("flag", "any")
    return {
        "any": True,
        "null": value is None,
        "text": isinstance(value, str),
        "count": isinstance(value, int) and value >= 0,
        "number": isinstance(value, (int, float)),
        "flag": False,
        "hex": isinstance(value, str) and _HEX.fullmatch(value) is not None,
        "sha256": isinstance(value, str) and value[:7] == "sha256:" and _HEX.fullmatch(value[7:]) is not None,
    }[word]
