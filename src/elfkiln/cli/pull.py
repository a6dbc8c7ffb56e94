"""`elfkiln pull oci://HOST/REPO:TAG`: bring a pushed set into the store and register its names."""

from __future__ import annotations

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import asked_of, policy_of, print_json, project_of
from elfkiln.errors import EXIT_DONE, Refused
from elfkiln.store.model_index import tag_of
from elfkiln.store.oci_address import OciAddress
from elfkiln.store.oci_registry import OciRegistry
from elfkiln.work.asked import asked_by_model
from elfkiln.work.pull import pull_set
from elfkiln.work.trust import accepting


def run(arguments: Arguments) -> int:
    """Pull the sets asked for: the address' own tag or digest, or the tags of model=."""
    project = project_of(arguments)
    address = OciAddress.parse(arguments.words[0])
    registry = OciRegistry(address, plain_http="--plain-http" in arguments.flags)
    named = bool(address.tag or address.digest)
    if named == ("model" in arguments.keys):
        raise Refused("pull: takes a tag or digest in the address, or model=..., and not both")
    if named:
        references = [address.reference]
    else:
        sets = [one.wanted for one in asked_of(project, arguments, "pull")]
        target = asked_of(project, arguments, "pull")[0].target
        references = [
            tag_of(one.model, target, one.layout, asked_by_model(project, one.model, target=target).wanted.layout)
            for one in sets
        ]
    accept = accepting(project, policy_of(arguments, "pull"))
    pulled = [pull_set(project, registry, reference, accept) for reference in references]
    if arguments.json:
        print_json([one.to_json() for one in pulled])
    else:
        print("\n".join(one.text() for one in pulled))
    return EXIT_DONE
