"""Registries on this machine for the tests: Debian's docker-registry, and one of our own that lies on demand."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import ipaddress
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import URLError
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

from programs import need_program

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


@contextlib.contextmanager
def running_docker_registry(folder: Path, **options: str) -> Iterator[str]:
    """Run a real registry with its files below `folder` and yield HOST:PORT."""
    port = _free_port()
    config = folder / "config.yml"
    folder.mkdir(parents=True, exist_ok=True)
    auth = "".join(
        f"auth:\n  htpasswd:\n    realm: tests\n    path: {path}\n" for path in [options.get("htpasswd")] if path
    )
    config.write_text(
        f"version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {folder / 'files'}\n"
        f"  delete:\n    enabled: true\nhttp:\n  addr: 127.0.0.1:{port}\n{auth}"
    )
    program = need_program("docker-registry")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, "serve", str(config)], stdout=log, stderr=log)
    try:
        _wait_for(f"http://127.0.0.1:{port}/v2/", process)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urlopen(url, timeout=2):
                return
        except URLError as error:
            if getattr(error, "code", None) == 401:
                return
            time.sleep(0.05)
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"no registry at {url}")


@dataclass
class Registry:
    """A registry in memory. `lie(method, path)` may return another answer: a callable that gets the handler."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    referrers_api: bool = True
    ranges: bool = True
    lie: Callable[[str, str], Callable[[BaseHTTPRequestHandler], None] | None] | None = None
    asked: list[tuple[str, str]] = field(default_factory=list)
    authorize: Callable[[str, str, str], tuple[int, dict[str, str]] | None] | None = None


def self_signed(folder: Path) -> tuple[Path, Path]:
    """Write a certificate for 127.0.0.1 that signs itself, and its key; return both files."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tests")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    day = datetime.timedelta(days=1)
    builder = builder.not_valid_before(now - day).not_valid_after(now + day)
    certificate = builder.add_extension(address, critical=False).sign(key, hashes.SHA256())
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files


@contextlib.contextmanager
def serving(registry: Registry, tls: tuple[Path, Path] | None = None) -> Iterator[str]:
    """Serve a registry on loopback, with a certificate and its key over https, and yield HOST:PORT."""

    class Handler(_Handler):
        state = registry

    server = _Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that goes away in the middle is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    state: Registry
    protocol_version = "HTTP/1.1"
    # Head and body are two writes: without this the second waits 40 ms for the client to acknowledge the first.
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _any(self) -> None:
        state, parts = self.state, urlsplit(self.path)
        state.asked.append((self.command, parts.path))
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size) if size else b""
        if state.authorize is not None:
            verdict = state.authorize(self.command, self.path, self.headers.get("Authorization", ""))
            if verdict is not None:
                return self.answer(verdict[0], b"", **verdict[1])
        other = state.lie(self.command, parts.path) if state.lie else None
        if other is not None:
            return other(self)
        pieces = parts.path.split("/")
        kind = next((word for word in ("blobs", "manifests", "referrers", "tags") if word in pieces), "")
        last = pieces[-1]
        if kind == "blobs":
            return self._blob(last, parts.query, body)
        if kind == "manifests":
            return self._manifest(last, body)
        if kind == "referrers" and state.referrers_api:
            found = [
                {"mediaType": MANIFEST, "digest": name, "size": len(data)}
                for name, (data, _) in sorted(state.manifests.items())
                if name.startswith("sha256:") and (json.loads(data).get("subject") or {}).get("digest") == last
            ]
            index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": found}).encode()
            return self.answer(200, index, Content_Type=INDEX)
        if kind == "tags":
            names = sorted(name for name in state.manifests if not name.startswith("sha256:"))
            return self.answer(200, json.dumps({"name": "x", "tags": names}).encode(), Content_Type="application/json")
        return self.answer(404)

    do_GET = do_HEAD = do_POST = do_PUT = _any

    def _blob(self, last: str, query: str, body: bytes) -> None:
        state = self.state
        if self.command == "POST":
            return self.answer(202, Location=self.path.rstrip("/") + "/1?state=a")
        if self.command == "PUT":
            digest = parse_qs(query)["digest"][0]
            if f"sha256:{hashlib.sha256(body).hexdigest()}" != digest:
                return self.answer(
                    400, b'{"errors":[{"code":"DIGEST_INVALID","message":"provided digest did not match"}]}'
                )
            state.blobs[digest] = body
            return self.answer(201, Docker_Content_Digest=digest)
        data = state.blobs.get(last)
        if data is None:
            return self.answer(404)
        start = self.headers.get("Range", "").removeprefix("bytes=").partition("-")[0]
        if start and state.ranges:
            part = data[int(start) :]
            return self.answer(206, part, Content_Range=f"bytes {start}-{len(data) - 1}/{len(data)}")
        return self.answer(200, data, Docker_Content_Digest=last)

    def _manifest(self, last: str, body: bytes) -> None:
        state = self.state
        if self.command == "PUT":
            digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
            state.manifests[digest] = state.manifests[last] = (body, self.headers["Content-Type"])
            subject = (json.loads(body).get("subject") or {}).get("digest")
            extra = {"OCI_Subject": subject} if subject and state.referrers_api else {}
            return self.answer(201, Docker_Content_Digest=digest, **extra)
        if last not in state.manifests:
            return self.answer(404)
        data, media = state.manifests[last]
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        return self.answer(200, data, Content_Type=media, Docker_Content_Digest=digest)
