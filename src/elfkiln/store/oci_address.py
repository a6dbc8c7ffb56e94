"""Addresses of OCI registries: `oci://HOST[:PORT]/REPOSITORY[:TAG|@sha256:DIGEST]`, checked piece by piece."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace

from elfkiln.errors import refusal
from elfkiln.store.blobs import parse_digest

# OCI distribution-spec 1.1, "Pulling manifests": the grammar of <name> and <reference>.
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*", re.ASCII)
_TAG = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}", re.ASCII)
_HOST = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9a-fA-F:.]{2,45}\])(?::[0-9]{1,5})?", re.ASCII
)
_MOST_REPOSITORY = 255
_SCHEME = "oci://"


@dataclass(frozen=True, slots=True)
class OciAddress:
    """A repository on a registry, and what of it is meant: a tag, a digest (64 hex digits), or neither.

    >>> str(OciAddress.parse("oci://ghcr.io/team/kernels:bonsai2-27b-npu2"))
    'oci://ghcr.io/team/kernels:bonsai2-27b-npu2'
    """

    host: str
    repository: str
    tag: str = ""
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> OciAddress:
        """Return the address a text says; raises `Refused` naming the part that does not fit."""
        form = f"{_SCHEME}HOST[:PORT]/REPOSITORY[:TAG|@sha256:DIGEST]"
        if not text.startswith(_SCHEME):
            raise refusal("address", expected=form, found=text)
        host, slash, rest = text.removeprefix(_SCHEME).partition("/")
        if not slash or not rest:
            raise refusal("address", expected=form, found=text)
        if not _HOST.fullmatch(host) or not _port_fits(host):
            raise refusal("address: host", expected="a host name or address, and a port up to 65535", found=host)
        name, at, digest = rest.partition("@")
        name, colon, tag = name.partition(":")
        if not _REPOSITORY.fullmatch(name) or len(name) > _MOST_REPOSITORY:
            raise refusal("address: repository", expected="lower-case names joined by /, as OCI has them", found=name)
        if colon and not _TAG.fullmatch(tag):
            raise refusal("address: tag", expected="up to 128 letters, digits and . _ -", found=tag)
        return cls(host, name, tag, parse_digest(digest) if at else "")

    def __str__(self) -> str:
        """Return the text `parse` reads."""
        end = f"@sha256:{self.digest}" if self.digest else f":{self.tag}" if self.tag else ""
        return f"{_SCHEME}{self.host}/{self.repository}{end}"

    @property
    def reference(self) -> str:
        """What a manifest is asked for by: `sha256:<hex>`, the tag, or `latest`."""
        return f"sha256:{self.digest}" if self.digest else self.tag or "latest"

    @property
    def loopback(self) -> bool:
        """Whether the host is this machine itself: `localhost`, or an address of a loopback range."""
        name = self.host_name
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return name.lower() == "localhost"

    @property
    def host_name(self) -> str:
        """The host without its port and brackets."""
        if self.host.startswith("["):
            return self.host[1:].partition("]")[0]
        return self.host.partition(":")[0]

    def tagged(self, tag: str) -> OciAddress:
        """Return the same repository with another tag; raises `Refused` for one that OCI does not have."""
        if not _TAG.fullmatch(tag):
            raise refusal("tag", expected="up to 128 letters, digits and . _ -", found=tag)
        return replace(self, tag=tag, digest="")


def _port_fits(host: str) -> bool:
    _, colon, port = host.rpartition(":")
    if not colon or host.endswith("]") or not port.isdigit():
        return True
    return 0 < int(port) <= 65535
