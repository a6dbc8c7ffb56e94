"""The note of a sim ELF: what its entries are, as canonical JSON and without any artifact name.

    {"schema": "elfkiln-sim/3", "design": <sha256 of the design's text>, "device": "main", "cpu": "x86_64_v3",
     "entries": [{"symbol": "main_seq", "again": "main_seq_again", "sequence": "seq", "loads": true,
                  "arguments": [{"elements": 655360, "element": "i8"}, ...],
                  "geometry": {"M": 128, "K": 5120, "N": 14336, "weight_bits": 8, "contiguous": true,
                               "columns": 8, "rows": 4} or null}]}

`cpu` is the -mcpu it was compiled for, `loads` says whether the sequence loads the array itself (load_pdi first), and
`again` names the entry that leaves that out (null for a sequence that does not load).
"""

from __future__ import annotations

from dataclasses import asdict

from elfkiln.design.gemm import geometry_of
from elfkiln.design.model import Design
from elfkiln.io.canonical import canonical_json
from elfkiln.targets.sim.machine import again_symbol, entry_symbol, loads

SCHEMA = "elfkiln-sim/3"
SECTION = ".note.elfkiln"
OWNER = "elfkiln"
TYPE = 1


def note_of(design: Design, digest: str, cpu: str) -> bytes:
    """Return the descriptor of the note for a design whose text has the sha256 `digest`, compiled for `cpu`."""
    entries = []
    for sequence in design.sequences:
        geometry = geometry_of(sequence, design)
        entries.append(
            {
                "symbol": entry_symbol(design, sequence),
                "again": again_symbol(design, sequence),
                "sequence": sequence.name,
                "loads": loads(sequence),
                "arguments": [{"elements": one.elements, "element": one.element} for one in sequence.arguments],
                "geometry": None if geometry is None else asdict(geometry),
            }
        )
    note = {"schema": SCHEMA, "design": digest, "device": design.name, "cpu": cpu, "entries": entries}
    return canonical_json(note)
