"""`elfkiln plan --from-config`: the role table of a model without a container."""

from __future__ import annotations

import os
from pathlib import Path

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json, show_notes
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE, Differs, Refused, one_line, refusal
from elfkiln.io.files import write_atomic
from elfkiln.io.json_difference import differences
from elfkiln.models.from_config import DerivedTable, TableOptions, table_data, table_from_config
from elfkiln.models.role_table import ROLES_FILE, read_role_table

_NOT_WITH = ("--kernels",)


def run_from_config(arguments: Arguments) -> int:
    """Derive the table, then print it, write it to `--out`, or compare the file there with it."""
    for option in _NOT_WITH:
        if option in arguments.valued:
            raise Refused(f"plan: {option} does not go with --from-config: no kernel directory decides a role table")
    if arguments.words or {"dir", "tag"} & arguments.keys.keys():
        raise Refused("plan: --from-config takes a config.json or a folder with one, and no MODELDIR, dir= or tag=")
    out = arguments.valued.get("--out")
    if out == "":
        raise refusal("plan: --out", expected="a file", found="nothing")
    file = None if out is None else Path(out)
    if "--check" in arguments.flags and file is None:
        raise Refused("plan: --from-config --check takes --out FILE, the role table to compare")
    derived = table_from_config(Path(arguments.valued["--from-config"]), _options(arguments, file))
    show_notes(derived.notes)
    if file is not None and "--check" in arguments.flags:
        return _check(file, derived, json=arguments.json)
    written = file is not None and "--print" not in arguments.flags
    if written:
        assert file is not None
        write_atomic(file, derived.text.encode())
    if arguments.json:
        print_json(_data(derived) | {"file": str(file) if written else None})
    elif written:
        print(
            f"wrote {one_line(file)}: {len(derived.table.rows)} geometries, {sum(derived.table.layers.values())} layers"
        )
    else:
        print(derived.text, end="")
    return EXIT_DONE


def _data(derived: DerivedTable) -> dict[str, object]:
    rows = [
        {"role": row.role, "K": row.K, "N": row.N, "columns": row.columns, "layers": list(row.kinds), "note": row.note}
        for row in derived.table.rows
    ]
    return table_data(derived.table) | {"rows": rows, "source": derived.table.source, "notes": list(derived.notes)}


def _options(arguments: Arguments, file: Path | None) -> TableOptions:
    decode = arguments.keys.get("decode", "true")
    if decode not in ("true", "false"):
        raise refusal("plan: decode", expected="true or false", found=decode)
    name, folder = arguments.keys.get("name", ""), ""
    if file is not None and file.name == ROLES_FILE:
        folder = file.absolute().parent.name
    if name and folder and name != folder:
        expected = f"{folder}, the folder of {file}, as the reader of role tables asks"
        raise refusal("plan: name", expected=expected, found=name)
    return TableOptions(name or folder, arguments.keys.get("layout"), decode == "true")


def _check(file: Path, derived: DerivedTable, *, json: bool) -> int:
    if not os.path.exists(file):
        raise Differs(f"missing role table {file}; write it with elfkiln plan --from-config")
    found = differences(table_data(read_role_table(file)), table_data(derived.table))
    if json:
        rows = [entry.data("table", "derived") for entry in found]
        print_json({"file": str(file), "current": not found, "differences": rows, "notes": list(derived.notes)})
    elif found:
        print("\n".join([f"{one_line(file)} differs from what config.json gives:", *(f"  {entry}" for entry in found)]))
    else:
        print(f"{one_line(file)} is current")
    return EXIT_DIFFERS if found else EXIT_DONE
