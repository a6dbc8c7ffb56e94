"""A small project for the catalogue: real designs, a signed and a hostile statement, a refused model, hostile docs."""

from __future__ import annotations

from dataclasses import replace

from elfkiln.design.run_generator import run_generator
from elfkiln.models.catalogue import model_requirements
from elfkiln.store.attestations import attest, statement
from elfkiln.store.blobs import Store
from elfkiln.store.registry import load_registry, register
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.target import Built, silent
from elfkiln.work.build import build_elfs
from elfkiln.work.generations import changing
from projects import StandInBuilder, make_project
from stored import entry_of, stored

HOSTILE = "<script>alert('x')</script>"
QKV = "full_i8_QKV_K256_N768_b8.elf"
G, U = "full_i8_G_K256_N512_b8.elf", "full_i8_U_K256_N512_b8.elf"
QKV_RM = "full_i8_QKV_K256_N768.elf"

INDEX = """\
# Docs

## Learn

- [First steps](first.md): begin here

## Know

- [Tables](tables.md)
"""
FIRST = f"""\
# First steps

Read {HOSTILE} and [the tables](tables.md#two-words), or [the registry](../registry.yaml).
[Elsewhere](javascript:alert(1)) is no link.

## Two words

    elfkiln list

## Two words

The kiln's zebra is found by search.
"""
TABLES = """\
# Tables

## Two words

| left | right |
|-|-:|
| a | 1 |
"""


class DesigningBuilder(StandInBuilder):
    """A stand-in whose QKV has the design its generator prints; every other design is one that cannot be read."""

    def inputs(self, generator, sources, workdir, say=silent):
        """Run the generator of QKV at M = 128."""
        made = super().inputs(generator, sources, workdir, say)
        if "N = 128, 256, 768" in generator.text:
            return replace(made, design=run_generator(generator.text, workdir=workdir))
        return replace(made, design=f"module {{}} // {HOSTILE}")

    def compile(self, inputs, workdir, say=silent):
        """Say something hostile in the log."""
        built = super().compile(inputs, workdir, say)
        return Built(built.elf, f"built with care\n{HOSTILE}\n")


def make_site_world(root):
    """Make the project: tiny built, one ELF damaged, QKV in rm twice, a refused model, docs of three pages."""
    project = make_project(root)
    builder = DesigningBuilder(read_lock(project.lock_file).target())
    assert build_elfs(project, builder, [model_requirements(project, "tiny")]).exit_code == 0
    store = Store(project.store)
    entries = load_registry(project.registry_file).entries("sim")
    for text in ("first", HOSTILE):
        row_major = stored(store, text, b"\x7fELF row-major " + text.encode(), shape="K256_N768", columns=2)
        with changing(project, f"the {text} rm"):
            register(project.registry_file, "sim", {QKV_RM: entry_of(row_major)})
    predicate = {"result": "PASSED", "configuration": [], "note": HOSTILE}
    said = statement(QKV, entries[QKV].elf, "https://in-toto.io/attestation/test-result/v0.1", predicate)
    attest(store, entries[QKV].manifest, said, signed=False)
    damaged = store.path(entries["full_i8_D_K512_N256_b8.elf"].elf)
    damaged.chmod(0o644)
    damaged.write_bytes(b"other bytes")
    refused = project.plans / "bad <b>model"
    refused.mkdir()
    (refused / "roles.yaml").write_text("schema: elfkiln-roles/1\n")
    docs = project.root / "docs"
    docs.mkdir()
    for name, text in (("index.md", INDEX), ("first.md", FIRST), ("tables.md", TABLES)):
        (docs / name).write_text(text)
    return project
