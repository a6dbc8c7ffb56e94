"""A sigstore of the tests' own: authority, certificate log, transparency log, time stamps, and a server of them.

What is signed is made here from the specifications (RFC 5280, RFC 6962, DSSE, Rekor's `dsse` 0.0.1 and `hashedrekord`
0.0.2 entries, C2SP's signed notes), with `cryptography` and, for RFC 3161, the `openssl` program. Nothing of sigstore
is imported, so that a bundle which its verifier takes is one by two readings of the formats.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import datetime
import hashlib
import json
import struct
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from programs import need_program

BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
IN_TOTO = "application/vnd.in-toto+json"
ISSUER = "https://issuer.example"
SOMEBODY = "build@example.com"
START = "2020-01-01T00:00:00Z"
_SCT_LIST = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_FULCIO = "1.3.6.1.4.1.57264.1"
_SHA256 = ec.ECDSA(hashes.SHA256())


def b64(data: bytes) -> str:
    """Return base64 as text."""
    return base64.b64encode(data).decode()


def compact(value: object) -> bytes:
    """Return JSON with sorted keys and no white space, as RFC 8785 has it for what is used here."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def pae(payload: bytes, kind: str = IN_TOTO) -> bytes:
    """Return what a DSSE signature is over."""
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind.encode(), len(payload), payload)


def spki(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a public key as logs and roots have it: DER of SubjectPublicKeyInfo."""
    return key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf (RFC 6962, section 2.1)."""
    return hashlib.sha256(b"\0" + data).digest()


def tree_hash(leaves: list[bytes]) -> bytes:
    """Return the root of a tree of leaf hashes, by its definition."""
    if len(leaves) == 1:
        return leaves[0]
    split = _split(len(leaves))
    return hashlib.sha256(b"\1" + tree_hash(leaves[:split]) + tree_hash(leaves[split:])).digest()


def audit_path(index: int, leaves: list[bytes]) -> list[bytes]:
    """Return the proof that a leaf is in a tree, by its definition (RFC 6962, section 2.1.1)."""
    if len(leaves) == 1:
        return []
    split = _split(len(leaves))
    if index < split:
        return [*audit_path(index, leaves[:split]), tree_hash(leaves[split:])]
    return [*audit_path(index - split, leaves[split:]), tree_hash(leaves[:split])]


def _split(size: int) -> int:
    return 1 << ((size - 1).bit_length() - 1)


class FakeSigstore:
    """One instance with keys of its own. `now` is the time it gives certificates and log entries (default: now)."""

    def __init__(self, name: str = "tests") -> None:
        self.name = name
        self.now: datetime.datetime | None = None
        self.root_key, self.ca_key, self.ct_key, self.log_key = (
            ec.generate_private_key(ec.SECP256R1()) for _ in "abcd"
        )
        self.root = self._authority("root", self.root_key, None)
        self.ca = self._authority("intermediate", self.ca_key, self.root)
        # Entries by others before ours, so that proofs have hashes in them.
        self.leaves = [leaf_hash(b"one"), leaf_hash(b"two")]
        self.tsa: dict[str, Any] | None = None
        self.requests: list[str] = []

    @property
    def time(self) -> datetime.datetime:
        """The instance's clock, in whole seconds."""
        return (self.now or datetime.datetime.now(datetime.UTC)).replace(microsecond=0)

    # --- certificates -----------------------------------------------------------------------------------------------

    def _authority(
        self, what: str, key: ec.EllipticCurvePrivateKey, above: x509.Certificate | None
    ) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{self.name} {what}")])
        begin = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(above.subject if above else subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin.replace(year=2100))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None if above is None else 0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.root_key.public_key()), critical=False
            )
            .sign(self.root_key, hashes.SHA256())
        )

    def certificate(
        self,
        key: ec.EllipticCurvePublicKey,
        identity: str | list[x509.GeneralName] = SOMEBODY,
        issuer: str | None = ISSUER,
        *,
        logged: bool = True,
    ) -> x509.Certificate:
        """Return a certificate of ten minutes for a key and an identity, as Fulcio makes them."""
        begin = self.time - datetime.timedelta(seconds=5)
        if isinstance(identity, str):
            mail = "@" in identity and "://" not in identity
            identity = [x509.RFC822Name(identity) if mail else x509.UniformResourceIdentifier(identity)]
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self.ca.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin + datetime.timedelta(minutes=10))
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.ca_key.public_key()), critical=False)
            .add_extension(x509.SubjectAlternativeName(identity), critical=True)
        )
        if issuer is not None:
            text = issuer.encode()
            der = bytes((0x0C, len(text))) + text
            for number, value in ((1, text), (8, der)):
                oid = x509.ObjectIdentifier(f"{_FULCIO}.{number}")
                builder = builder.add_extension(x509.UnrecognizedExtension(oid, value), critical=False)
        if logged:
            # The certificate log signs the certificate as it is without its own promise (RFC 6962, section 3.2).
            promise = self._promise(builder.sign(self.ca_key, hashes.SHA256()).tbs_certificate_bytes)
            builder = builder.add_extension(x509.UnrecognizedExtension(_SCT_LIST, promise), critical=False)
        return builder.sign(self.ca_key, hashes.SHA256())

    def _promise(self, tbs: bytes) -> bytes:
        stamp = int(self.time.timestamp()) * 1000
        issuer = hashlib.sha256(spki(self.ca_key)).digest()
        signed = struct.pack("!BBQH32s", 0, 0, stamp, 1, issuer) + len(tbs).to_bytes(3) + tbs + b"\0\0"
        signature = self.ct_key.sign(signed, _SHA256)
        log = hashlib.sha256(spki(self.ct_key)).digest()
        sct = struct.pack("!B32sQHBBH", 0, log, stamp, 0, 4, 3, len(signature)) + signature
        listed = struct.pack("!HH", len(sct) + 2, len(sct)) + sct
        # An OCTET STRING; it is never longer than 255 bytes.
        return (bytes((0x04, len(listed))) if len(listed) < 128 else bytes((0x04, 0x81, len(listed)))) + listed

    # --- the transparency log ---------------------------------------------------------------------------------------

    def checkpoint(self) -> str:
        """Return the signed note of the log's present tree."""
        note = f"log.{self.name}.example - 1\n{len(self.leaves)}\n{b64(tree_hash(self.leaves))}\n"
        hint = hashlib.sha256(spki(self.log_key)).digest()[:4]
        return f"{note}\n— log.{self.name}.example {b64(hint + self.log_key.sign(note.encode(), _SHA256))}\n"

    def enter(self, body: bytes, kind: str = "dsse", version: str = "0.0.1", *, promise: bool = True) -> dict[str, Any]:
        """Append an entry and return it as a bundle has it, with its proof and (Rekor v1) the log's promise."""
        index = len(self.leaves)
        self.leaves.append(leaf_hash(body))
        entry: dict[str, Any] = {
            "logIndex": str(index),
            "logId": {"keyId": b64(hashlib.sha256(spki(self.log_key)).digest())},
            "kindVersion": {"kind": kind, "version": version},
            "inclusionProof": {
                "logIndex": str(index),
                "rootHash": b64(tree_hash(self.leaves)),
                "treeSize": str(len(self.leaves)),
                "hashes": [b64(one) for one in audit_path(index, self.leaves)],
                "checkpoint": {"envelope": self.checkpoint()},
            },
            "canonicalizedBody": b64(body),
        }
        if promise:
            entry["integratedTime"] = str(int(self.time.timestamp()))
            entry["inclusionPromise"] = {"signedEntryTimestamp": b64(self.log_key.sign(self._promised(entry), _SHA256))}
        return entry

    @staticmethod
    def _promised(entry: dict[str, Any]) -> bytes:
        return compact(
            {
                "body": entry["canonicalizedBody"],
                "integratedTime": int(entry["integratedTime"]),
                "logID": base64.b64decode(entry["logId"]["keyId"]).hex(),
                "logIndex": int(entry["logIndex"]),
            }
        )

    @staticmethod
    def dsse_body(envelope: dict[str, Any], pem: bytes) -> bytes:
        """Return the body of a `dsse` 0.0.1 entry about an envelope."""
        payload = base64.b64decode(envelope["payload"])
        spec = {
            "envelopeHash": {"algorithm": "sha256", "value": hashlib.sha256(compact(envelope)).hexdigest()},
            "payloadHash": {"algorithm": "sha256", "value": hashlib.sha256(payload).hexdigest()},
            "signatures": [{"signature": one["sig"], "verifier": b64(pem)} for one in envelope["signatures"]],
        }
        return compact({"apiVersion": "0.0.1", "kind": "dsse", "spec": spec})

    # --- bundles ----------------------------------------------------------------------------------------------------

    def bundle(
        self, payload: bytes, identity: str | list[x509.GeneralName] = SOMEBODY, issuer: str | None = ISSUER, **how: Any
    ) -> dict[str, Any]:
        """Return a bundle on a statement. `how`: logged=False (no certificate log), stamped=FOLDER (Rekor v2)."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self.certificate(key.public_key(), identity, issuer, logged=how.get("logged", True))
        signature = key.sign(pae(payload), _SHA256)
        envelope = {"payload": b64(payload), "payloadType": IN_TOTO, "signatures": [{"sig": b64(signature)}]}
        der = certificate.public_bytes(serialization.Encoding.DER)
        material: dict[str, Any] = {"certificate": {"rawBytes": b64(der)}}
        if "stamped" in how:
            verifier = {"keyDetails": "PKIX_ECDSA_P256_SHA_256", "x509Certificate": {"rawBytes": b64(der)}}
            digest = hashlib.sha256(pae(payload)).digest()
            spec = {
                "data": {"algorithm": "SHA2_256", "digest": b64(digest)},
                "signature": {"content": b64(signature), "verifier": verifier},
            }
            body = {"apiVersion": "0.0.2", "kind": "hashedrekord", "spec": {"hashedRekordV002": spec}}
            material["tlogEntries"] = [self.enter(compact(body), "hashedrekord", "0.0.2", promise=False)]
            stamp = self.timestamp(signature, how["stamped"])
            material["timestampVerificationData"] = {"rfc3161Timestamps": [{"signedTimestamp": b64(stamp)}]}
        else:
            body_1 = self.dsse_body(envelope, certificate.public_bytes(serialization.Encoding.PEM))
            material["tlogEntries"] = [self.enter(body_1)]
        return {"mediaType": BUNDLE, "verificationMaterial": material, "dsseEnvelope": envelope}

    def timestamp(self, data: bytes, folder: Path) -> bytes:
        """Return an RFC 3161 answer about some bytes by this instance's authority, which `openssl ts` plays."""
        openssl = need_program("openssl")
        if self.tsa is None:
            key = ec.generate_private_key(ec.SECP256R1())
            begin = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
            certificate = (
                x509.CertificateBuilder()
                .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{self.name} time")]))
                .issuer_name(self.root.subject)
                .public_key(key.public_key())
                .serial_number(7)
                .not_valid_before(begin)
                .not_valid_after(begin.replace(year=2100))
                .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING]), critical=True)
                .add_extension(_usage(signs_certificates=False), critical=True)
                .sign(self.root_key, hashes.SHA256())
            )
            self.tsa = {"certificate": certificate}
            (folder / "tsa.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
            (folder / "tsa.key").write_bytes(
                key.private_bytes(
                    serialization.Encoding.PEM,
                    serialization.PrivateFormat.PKCS8,
                    serialization.NoEncryption(),
                )
            )
            (folder / "tsa.cnf").write_text(
                "[tsa]\ndefault_tsa = one\n[one]\nserial = tsa.serial\ndefault_policy = 1.2.3.4\ndigests = sha256\n"
                "signer_digest = sha256\ness_cert_id_chain = no\ness_cert_id_alg = sha256\n"
            )
        (folder / "signed").write_bytes(data)
        _run(folder, openssl, "ts", "-query", "-data", "signed", "-sha256", "-cert", "-out", "query")
        _run(
            folder,
            *(openssl, "ts", "-reply", "-config", "tsa.cnf", "-section", "one", "-queryfile", "query"),
            *("-signer", "tsa.pem", "-inkey", "tsa.key", "-out", "answer"),
        )
        return (folder / "answer").read_bytes()

    # --- what verifiers and signers are given -----------------------------------------------------------------------

    def trusted_root(self) -> dict[str, Any]:
        """Return the trusted root of this instance."""

        def log(key: ec.EllipticCurvePrivateKey, what: str) -> dict[str, Any]:
            return {
                "baseUrl": f"https://{what}.{self.name}.example",
                "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": b64(spki(key)),
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": {"start": START},
                },
                "logId": {"keyId": b64(hashlib.sha256(spki(key)).digest())},
            }

        def authority(*chain: x509.Certificate) -> dict[str, Any]:
            return {
                "subject": {"organization": self.name, "commonName": self.name},
                "uri": f"https://ca.{self.name}.example",
                "certChain": {
                    "certificates": [{"rawBytes": b64(one.public_bytes(serialization.Encoding.DER))} for one in chain]
                },
                "validFor": {"start": START},
            }

        return {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log(self.log_key, "log")],
            "certificateAuthorities": [authority(self.ca, self.root)],
            "ctlogs": [log(self.ct_key, "ct")],
            "timestampAuthorities": [authority(self.tsa["certificate"], self.root)] if self.tsa else [],
        }

    def trust_config(self, url: str) -> dict[str, Any]:
        """Return the client trust config of this instance, served at `url`."""
        service = {"url": url, "majorApiVersion": 1, "validFor": {"start": START}, "operator": "tests"}
        return {
            "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
            "trustedRoot": self.trusted_root(),
            "signingConfig": {
                "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
                "caUrls": [service],
                "oidcUrls": [],
                "rekorTlogUrls": [service],
                "rekorTlogConfig": {"selector": "ANY"},
                "tsaUrls": [],
                "tsaConfig": {"selector": "ANY"},
            },
        }

    def token(self, identity: str = SOMEBODY, issuer: str = ISSUER, *, seconds: int = 600) -> str:
        """Return an identity token, as an OpenID Connect issuer makes them; nobody here checks its signature."""
        now = int(datetime.datetime.now(datetime.UTC).timestamp())
        claims = {"aud": "sigstore", "iss": issuer, "sub": identity, "iat": now - 10, "exp": now + seconds}
        parts = [compact({"alg": "RS256", "typ": "JWT"}), compact(claims), b"signature"]
        return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)

    # --- the services -----------------------------------------------------------------------------------------------

    def answer(self, path: str, headers: Any, body: dict[str, Any]) -> dict[str, Any]:
        """Return what Fulcio (v2) or Rekor (v1) say to a request."""
        self.requests.append(path)
        if path == "/api/v2/signingCert":
            claims = headers["Authorization"].removeprefix("Bearer ").split(".")[1]
            who = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
            pem = base64.b64decode(body["certificateSigningRequest"])
            key = x509.load_pem_x509_csr(pem).public_key()
            assert isinstance(key, ec.EllipticCurvePublicKey)
            chain = [self.certificate(key, who["sub"], who["iss"]), self.ca, self.root]
            pems = [one.public_bytes(serialization.Encoding.PEM).decode() for one in chain]
            return {"signedCertificateEmbeddedSct": {"chain": {"certificates": pems}}}
        assert path == "/api/v1/log/entries", path
        proposed = body["spec"]["proposedContent"]
        entry = self.enter(self.dsse_body(json.loads(proposed["envelope"]), base64.b64decode(proposed["verifiers"][0])))
        proof = entry["inclusionProof"]
        return {
            "24296fb24b8ad77a": {
                "body": entry["canonicalizedBody"],
                "integratedTime": int(entry["integratedTime"]),
                "logID": base64.b64decode(entry["logId"]["keyId"]).hex(),
                "logIndex": int(entry["logIndex"]),
                "verification": {
                    "inclusionProof": {
                        "checkpoint": proof["checkpoint"]["envelope"],
                        "hashes": [base64.b64decode(one).hex() for one in proof["hashes"]],
                        "logIndex": int(proof["logIndex"]),
                        "rootHash": base64.b64decode(proof["rootHash"]).hex(),
                        "treeSize": int(proof["treeSize"]),
                    },
                    "signedEntryTimestamp": entry["inclusionPromise"]["signedEntryTimestamp"],
                },
            }
        }


@contextlib.contextmanager
def serving_sigstore(sigstore: FakeSigstore) -> Iterator[str]:
    """Serve an instance's Fulcio and Rekor on loopback and yield the URL."""

    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                status, data = 201, compact(sigstore.answer(self.path, self.headers, body))
            except ConnectionError as error:
                status, data = 503, compact({"code": 503, "message": str(error)})
            # A client that went away is not an error of the server's.
            with contextlib.suppress(ConnectionError):
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def changed(bundle: dict[str, Any], *path: str | int, to: object) -> dict[str, Any]:
    """Return a copy of a bundle (or root) with one field of it changed; `to` may be a function of what was there."""
    made = copy.deepcopy(bundle)
    inner: Any = made
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = to(inner[path[-1]]) if callable(to) else to
    return made


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _run(folder: Path, *words: str) -> None:
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
