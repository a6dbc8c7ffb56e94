"""`elfkiln push oci://HOST/REPO`: send a model's artifacts, or named ones, to an OCI registry."""

from __future__ import annotations

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import asked_of, print_json, project_of, target_of
from elfkiln.errors import EXIT_DONE, Refused
from elfkiln.store.oci_address import OciAddress
from elfkiln.store.oci_registry import OciRegistry
from elfkiln.work.lookup import lookup_glob
from elfkiln.work.push import push_names, push_sets


def run(arguments: Arguments) -> int:
    """Push what is asked for and print what went and under which tags it is found."""
    project = project_of(arguments)
    address = OciAddress.parse(arguments.words[0])
    if address.digest:
        raise Refused(f"push: {address}: a digest cannot be chosen; name a tag, or nothing")
    registry = OciRegistry(address, plain_http="--plain-http" in arguments.flags)
    given = (len(arguments.words) > 1) + ("model" in arguments.keys) + ("plan" in arguments.keys)
    if given != 1:
        raise Refused("push: takes one of model=..., plan=..., or a name or pattern behind the address")
    if len(arguments.words) > 1:
        pushed = push_names(project, registry, lookup_glob(project, target_of(project, arguments), arguments.words[1]))
    else:
        pushed = push_sets(project, registry, asked_of(project, arguments, "push"), tag=address.tag)
    if arguments.json:
        print_json(pushed.to_json())
    else:
        print(pushed.text())
    return EXIT_DONE
