"""The registry client: Debian's registry for real, and one that lies in every way the client must notice."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import socket
import stat
import struct
import time

import pytest

from elfkiln.errors import Differs, Refused
from elfkiln.store.blobs import INDEX_TYPE, MANIFEST_TYPE
from elfkiln.store.oci_address import OciAddress
from elfkiln.store.oci_registry import NotThere, OciRegistry
from elfkiln.store.registry_auth import credentials_for, parse_challenge
from oci_server import Registry, running_docker_registry, self_signed, serving
from programs import need_program

DATA = bytes(range(256)) * 1200
DIGEST = hashlib.sha256(DATA).hexdigest()


def client(host, repository="team/kernels", **options):
    address = OciAddress.parse(f"oci://{host}/{repository}")
    return OciRegistry(address, plain_http=True, environment={}, pause=lambda _: None, **options)


def manifest_of(*layers, subject=None):
    table = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "artifactType": "application/vnd.test"}
    empty = {"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest_of(b"{}"), "size": 2}
    table |= {"config": empty, "layers": [layer_of(data) for data in layers]}
    if subject is not None:
        table["subject"] = {"mediaType": MANIFEST_TYPE, "digest": digest_of(subject), "size": len(subject)}
    return json.dumps(table).encode()


def layer_of(data):
    return {"mediaType": "application/octet-stream", "digest": digest_of(data), "size": len(data)}


def digest_of(data):
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def pulled(registry):
    sink = io.BytesIO()
    registry.pull_blob(DIGEST, len(DATA), sink)
    return sink.getvalue()


# The address.


@pytest.mark.parametrize(
    ("text", "host", "repository", "reference"),
    [
        ("oci://ghcr.io/a/b:v1", "ghcr.io", "a/b", "v1"),
        ("oci://127.0.0.1:5000/a", "127.0.0.1:5000", "a", "latest"),
        ("oci://[::1]:5000/a-b/c__d", "[::1]:5000", "a-b/c__d", "latest"),
        (f"oci://h/a@sha256:{DIGEST}", "h", "a", f"sha256:{DIGEST}"),
    ],
)
def test_addresses(text, host, repository, reference):
    address = OciAddress.parse(text)
    assert (address.host, address.repository, address.reference) == (host, repository, reference)


@pytest.mark.parametrize(
    "text",
    ["ghcr.io/a", "http://h/a", "oci://h", "oci://h/", "oci:///a", "oci://h/A", "oci://h/../a", "oci://h/a:", "oci://h/a:-x",
     "oci://u@h/a", "oci://h/a@sha256:12", "oci://h/a b", "oci://h:99999/a", "oci://h/a?x=1", "oci://h/a//b", "oci://h/a\n"],
)  # fmt: skip
def test_what_is_not_an_address(text):
    with pytest.raises(Refused, match=r"address|digest"):
        OciAddress.parse(text)


def test_plain_http_is_for_this_machine_only():
    OciRegistry(OciAddress.parse("oci://localhost:5000/a"), plain_http=True)
    OciRegistry(OciAddress.parse("oci://[::1]:5000/a"), plain_http=True)
    for host in ("example.org", "10.0.0.1:5000", "127.0.0.1.example.org"):
        with pytest.raises(Refused, match="--plain-http: expected a loopback address"):
            OciRegistry(OciAddress.parse(f"oci://{host}/a"), plain_http=True)


# A real registry.


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    need_program("docker-registry")
    with running_docker_registry(tmp_path_factory.mktemp("registry")) as host:
        yield host


def test_blobs_and_manifests_of_a_real_registry(real, tmp_path):
    registry = client(real)
    file = tmp_path / "blob"
    file.write_bytes(DATA)
    assert not registry.has_blob(DIGEST)
    registry.push_blob(DIGEST, file)
    assert registry.has_blob(DIGEST)
    assert pulled(registry) == DATA
    file.write_bytes(b"{}")
    registry.push_blob(hashlib.sha256(b"{}").hexdigest(), file)
    manifest = manifest_of(DATA)
    registry.put_manifest("v1", manifest, MANIFEST_TYPE)
    assert registry.get_manifest("v1") == (manifest, MANIFEST_TYPE)
    assert registry.get_manifest(digest_of(manifest))[0] == manifest
    assert registry.tags() == ("v1",)
    with pytest.raises(NotThere, match="manifest v2 is not there"):
        registry.get_manifest("v2")


def test_a_real_registry_refuses_bytes_of_another_digest(real, tmp_path):
    file = tmp_path / "blob"
    file.write_bytes(b"other")
    with pytest.raises(Differs, match="status 400"):
        client(real).push_blob(hashlib.sha256(b"bytes").hexdigest(), file)


def test_referrers_by_the_tag_scheme_of_a_registry_without_the_api(real, tmp_path):
    registry = client(real, "team/referrers")
    file = tmp_path / "blob"
    file.write_bytes(b"{}")
    registry.push_blob(hashlib.sha256(b"{}").hexdigest(), file)
    subject = manifest_of()
    registry.put_manifest("it", subject, MANIFEST_TYPE)
    digest = hashlib.sha256(subject).hexdigest()
    assert registry.referrers(digest) == ()
    says = [manifest_of(b"{}" * n, subject=subject) for n in (1, 1)]
    says[1] = says[1].replace(b"vnd.test", b"vnd.second")
    for one in says:
        registry.put_referrer(digest, one, "application/vnd.test")
    registry.put_referrer(digest, says[0], "application/vnd.test")
    assert {f"sha256:{one.digest}" for one in registry.referrers(digest)} == {digest_of(one) for one in says}
    data, media = registry.get_manifest(f"sha256-{digest}")
    assert media == INDEX_TYPE
    assert len(json.loads(data)["manifests"]) == 2


# A registry of our own.


@pytest.fixture
def memory():
    registry = Registry()
    registry.blobs[f"sha256:{DIGEST}"] = DATA
    with serving(registry) as host:
        yield registry, client(host)


def test_referrers_by_the_api(memory):
    state, registry = memory
    subject = manifest_of()
    digest = hashlib.sha256(subject).hexdigest()
    says = manifest_of(b"x", subject=subject)
    registry.put_referrer(digest, says, "application/vnd.test")
    assert [one.digest for one in registry.referrers(digest)] == [hashlib.sha256(says).hexdigest()]
    assert f"sha256-{digest}" not in state.manifests


def test_another_writer_of_the_referrers_tag_loses_nothing(memory):
    state, registry = memory
    state.referrers_api = False
    subject = manifest_of()
    digest = hashlib.sha256(subject).hexdigest()
    other = {**layer_of(b"other"), "mediaType": MANIFEST_TYPE}
    turns = iter([True])

    def overwrite(method, path):
        # Once, right before our index arrives, somebody else's takes its place.
        if method == "PUT" and path.endswith(f"sha256-{digest}") and next(turns, False):

            def lose(handler):
                theirs = json.dumps({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [other]}).encode()
                state.manifests[f"sha256-{digest}"] = (theirs, INDEX_TYPE)
                handler.answer(201)

            return lose
        return None

    state.lie = overwrite
    says = manifest_of(b"x", subject=subject)
    registry.put_referrer(digest, says, "application/vnd.test")
    found = {f"sha256:{one.digest}" for one in registry.referrers(digest)}
    assert found == {other["digest"], digest_of(says)}


def test_a_cut_body_goes_on_where_it_stopped(memory):
    state, registry = memory
    cuts = iter([100_000, 50_000])

    def cut(method, path):
        at = next(cuts, None) if method == "GET" and "/blobs/" in path else None
        if at is None:
            return None

        def half(handler):
            start = int((handler.headers.get("Range") or "bytes=0-")[6:-1])
            status = 206 if start else 200
            handler.send_response(status)
            if start:
                handler.send_header("Content-Range", f"bytes {start}-{len(DATA) - 1}/{len(DATA)}")
            handler.send_header("Content-Length", str(len(DATA) - start))
            handler.end_headers()
            handler.wfile.write(DATA[start : start + at])
            handler.close_connection = True

        return half

    state.lie = cut
    assert pulled(registry) == DATA
    assert len([1 for method, path in state.asked if "/blobs/" in path]) == 3


def test_a_registry_without_ranges_starts_again(memory):
    state, registry = memory
    state.ranges = False
    cuts = iter([1])

    def cut(_method, path):
        if "/blobs/" not in path or next(cuts, None) is None:
            return None

        def half(handler):
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(DATA)))
            handler.end_headers()
            handler.wfile.write(DATA[:70_000])
            handler.close_connection = True

        return half

    state.lie = cut
    assert pulled(registry) == DATA


def answering(status, body=b"", **headers):
    return lambda _method, _path: lambda handler: handler.answer(status, body, **headers)


def endless(handler):
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    try:
        for _ in range(4000):
            handler.wfile.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
    except OSError:
        pass
    handler.close_connection = True


def reset(at):
    """Send the first bytes of a body and then a reset, not an end."""

    def cut(handler):
        handler.send_response(200)
        handler.send_header("Content-Type", MANIFEST_TYPE)
        handler.send_header("Content-Length", str(len(DATA)))
        handler.end_headers()
        handler.wfile.write(DATA[:at])
        # No lingering: closing sends RST.
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.connection.close()
        handler.close_connection = True

    return lambda _method, _path: cut


LIES = {
    "wrong bytes": (answering(200, DATA[:-1] + b"?"), "bytes of sha256:"),
    "a short body": (answering(200, DATA[:1000]), "1000 of 307200 bytes"),
    "a long body": (answering(200, DATA + b"x"), "more than 307200 bytes"),
    "an endless body": (lambda _m, _p: endless, "more than 307200 bytes"),
    "an empty body": (answering(200), "0 of 307200 bytes"),
    "a server that fails": (answering(503, b"down"), "307200 bytes"),
    "a reset": (reset(5000), "of 307200 bytes"),
    "not there": (answering(404), "is not there"),
    "a redirect in a circle": (
        lambda _m, path: lambda handler: handler.answer(307, Location=path),
        "more than 5 redirects",
    ),
    "a redirect to nowhere": (answering(307), "a redirect to nowhere"),
    "a redirect to a file": (answering(307, Location="file:///etc/passwd"), "a redirect to file:"),
    "no permission": (answering(403, b'{"errors":[{"code":"DENIED","message":"no"}]}'), r"status 403 \(no\)"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_blob_that_is_a_lie(memory, lie):
    state, registry = memory
    state.lie, words = LIES[lie]
    with pytest.raises((Differs, Refused), match=words) as caught:
        pulled(registry)
    assert f"oci://{registry.address.host}/team/kernels" in str(caught.value)
    assert "\n" not in str(caught.value)


MANIFEST = manifest_of(DATA)
MANIFEST_LIES = {
    "other bytes": (answering(200, MANIFEST + b" ", Content_Type=MANIFEST_TYPE), "bytes of sha256:"),
    "a wrong digest header": (
        answering(200, MANIFEST, Content_Type=MANIFEST_TYPE, Docker_Content_Digest=f"sha256:{'0' * 64}"),
        f"as sha256:{'0' * 64}",
    ),
    "another media type": (answering(200, MANIFEST, Content_Type="text/html"), "media type text/html"),
    "another kind inside": (answering(200, MANIFEST, Content_Type=INDEX_TYPE), "media type"),
    "too large": (answering(200, b" " * ((4 << 20) + 1), Content_Type=MANIFEST_TYPE), "more than 4194304 bytes"),
    "a server that fails": (answering(500), "status 500"),
    "a short body": (answering(200, MANIFEST[:100], Content_Type=MANIFEST_TYPE), "bytes of sha256:"),
    "an endless body": (lambda _m, _p: endless, "more than 4194304 bytes"),
    "a reset": (reset(20), "broke off"),
}  # fmt: skip


@pytest.mark.parametrize("lie", MANIFEST_LIES)
def test_a_manifest_that_is_a_lie(memory, lie):
    state, registry = memory
    state.lie, words = MANIFEST_LIES[lie]
    with pytest.raises(Differs, match=words):
        registry.get_manifest(digest_of(MANIFEST))


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (answering(202), "an upload without a Location"),
        (answering(201, Docker_Content_Digest=f"sha256:{'0' * 64}"), "status 201|the digest sha256:0000"),
        (answering(500), "status 500"),
        (answering(413, b'{"errors":[{"code":"SIZE_INVALID","message":"too big"}]}'), r"status 413 \(too big\)"),
    ],
)
def test_a_registry_that_fails_at_taking(memory, tmp_path, lie, words):
    state, registry = memory
    state.lie = lie
    file = tmp_path / "blob"
    file.write_bytes(DATA)
    with pytest.raises(Differs, match=words) as caught:
        registry.push_blob(DIGEST, file)
    assert f"oci://{registry.address.host}/team/kernels" in str(caught.value)
    state.lie = answering(201, Docker_Content_Digest=f"sha256:{'0' * 64}")
    with pytest.raises(Differs, match="the registry sent the digest sha256:0000"):
        registry.put_manifest("v1", MANIFEST, MANIFEST_TYPE)


def test_a_server_that_comes_back_is_asked_again(memory):
    state, registry = memory
    failures = iter([answering(503, Retry_After="1"), answering(502)])
    state.manifests["v1"] = (MANIFEST, MANIFEST_TYPE)
    state.lie = lambda method, path: next(failures, lambda *_: None)(method, path)
    assert registry.get_manifest("v1")[0] == MANIFEST


def test_nobody_listens():
    with pytest.raises(Differs, match=r"127\.0\.0\.1:1 cannot be reached"):
        client("127.0.0.1:1").tags()


def test_a_body_that_drips(memory, monkeypatch):
    state, registry = memory
    now = iter(range(0, 10_000_000, 100))
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    state.lie = None
    with pytest.raises(Differs, match=r"slower than 16 KiB/s"):
        pulled(registry)


def test_tags_come_page_by_page(memory):
    state, registry = memory
    pages = iter(
        [(b'{"tags": ["a", "b"]}', '</v2/team/kernels/tags/list?last=b>; rel="next"'), (b'{"tags": ["c"]}', "")]
    )

    def listing(_method, _path):
        body, link = next(pages)
        return lambda handler: handler.answer(200, body, **({"Link": link} if link else {}))

    state.lie = listing
    assert registry.tags() == ("a", "b", "c")


# Who one is.


def test_basic_and_bearer(memory):
    state, registry = memory
    state.manifests["v1"] = (MANIFEST, MANIFEST_TYPE)

    def basic(_method, _path, header):
        wanted = "Basic " + base64.b64encode(b"me:secret").decode()
        return None if header == wanted else (401, {"WWW_Authenticate": 'Basic realm="x"'})

    state.authorize = basic
    with pytest.raises(Refused, match="log in"):
        registry.get_manifest("v1")


def logged_in(folder, host, user, password):
    auth = base64.b64encode(f"{user}:{password}".encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))
    address = OciAddress.parse(f"oci://{host}/team/kernels")
    environment = {"DOCKER_CONFIG": str(folder)}
    return OciRegistry(address, plain_http=True, environment=environment, pause=lambda _: None)


def test_a_real_registry_with_a_password(tmp_path):
    need_program("docker-registry")
    passwords = tmp_path / "htpasswd"
    # bcrypt of "secret".
    passwords.write_text("me:$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n")
    file = tmp_path / "blob"
    file.write_bytes(DATA)
    with running_docker_registry(tmp_path / "registry", htpasswd=str(passwords)) as host:
        registry = logged_in(tmp_path, host, "me", "secret")
        registry.push_blob(DIGEST, file)
        assert pulled(registry) == DATA
        with pytest.raises(Refused, match="status 401") as caught:
            pulled(logged_in(tmp_path, host, "me", "another"))
        assert "another" not in str(caught.value)


def test_certificates_are_those_the_system_trusts(tmp_path, monkeypatch):
    certificate, key = self_signed(tmp_path)
    state = Registry()
    state.manifests["v1"] = (MANIFEST, MANIFEST_TYPE)
    with serving(state, tls=(certificate, key)) as host:
        address = OciAddress.parse(f"oci://{host}/team/kernels")
        with pytest.raises(Differs, match="certificate"):
            OciRegistry(address, environment={}, pause=lambda _: None).get_manifest("v1")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert OciRegistry(address, environment={}, pause=lambda _: None).get_manifest("v1")[0] == MANIFEST


def test_a_bearer_token_is_asked_for_with_the_scope(tmp_path):
    state = Registry()
    state.manifests["v1"] = (MANIFEST, MANIFEST_TYPE)
    with serving(state) as host:
        (tmp_path / "config.json").write_text(
            json.dumps({"auths": {host: {"auth": base64.b64encode(b"me:secret").decode()}}})
        )

        def bearer(_method, path, header):
            if path.startswith("/token"):
                assert header == "Basic " + base64.b64encode(b"me:secret").decode()
                return None
            if header == "Bearer t-1":
                return None
            return 401, {"WWW_Authenticate": f'Bearer realm="http://{host}/token",service="reg"'}

        state.authorize = bearer
        state.lie = lambda _m, path: (lambda h: h.answer(200, b'{"token": "t-1"}')) if path == "/token" else None
        address = OciAddress.parse(f"oci://{host}/team/kernels")
        registry = OciRegistry(address, plain_http=True, environment={"DOCKER_CONFIG": str(tmp_path)})
        assert registry.get_manifest("v1")[0] == MANIFEST
        assert registry.get_manifest("v1")[0] == MANIFEST
        assert [path for _, path in state.asked].count("/token") == 1


def test_credentials_do_not_follow_a_redirect_to_another_host(tmp_path):
    state, other = Registry(), Registry()
    seen = []
    other.authorize = lambda _m, _p, header: seen.append(header)
    other.lie = answering(200, DATA)
    with serving(state) as host, serving(other) as elsewhere:
        (tmp_path / "config.json").write_text(
            json.dumps({"auths": {host: {"auth": base64.b64encode(b"a:b").decode()}}})
        )
        state.authorize = lambda _m, _p, header: None if header else (401, {"WWW_Authenticate": "Basic realm=x"})
        state.lie = answering(307, Location=f"http://{elsewhere}/file")
        address = OciAddress.parse(f"oci://{host}/team/kernels")
        registry = OciRegistry(address, plain_http=True, environment={"DOCKER_CONFIG": str(tmp_path)})
        assert pulled(registry) == DATA
    assert seen == [""]


def helper(folder, text, code=0):
    program = folder / "docker-credential-test"
    program.write_text(f"#!/bin/sh\ncat >/dev/null\nprintf '%s' '{text}'\nexit {code}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (folder / "config.json").write_text('{"credsStore": "test"}')
    return {"DOCKER_CONFIG": str(folder), "PATH": f"{folder}:/usr/bin:/bin"}


def test_a_credential_helper(tmp_path, monkeypatch):
    environment = helper(tmp_path, '{"ServerURL":"h","Username":"me","Secret":"s"}')
    monkeypatch.setenv("PATH", environment["PATH"])
    found = credentials_for("h", environment)
    assert (found.user, found.password) == ("me", "s")
    assert "s" not in repr(found).replace("user", "").replace("Credentials", "")


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("", 1, "exit code 1"),
        ("not json", 0, "expected Username and Secret"),
        ("[]", 0, "expected Username and Secret"),
    ],
)
def test_a_helper_that_fails(tmp_path, monkeypatch, text, code, words):
    environment = helper(tmp_path, text, code)
    monkeypatch.setenv("PATH", environment["PATH"])
    with pytest.raises(Refused, match=words):
        credentials_for("h", environment)


@pytest.mark.parametrize(
    "text",
    ["[]", '{"auths": []}', '{"auths": {"h": 1}}', '{"auths": {"h": {"auth": "???"}}}', '{"credsStore": "../x"}',
     '{"auths": {"h": {"auth": "bm9jb2xvbg=="}}}', "{", '{"credHelpers": {"h": 1}}'],
)  # fmt: skip
def test_a_configuration_that_is_broken(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(Refused, match=r"config\.json"):
        credentials_for("h", {"DOCKER_CONFIG": str(tmp_path)})


def test_challenges():
    assert parse_challenge('Basic realm="a b"') == ("basic", {"realm": "a b"})
    assert parse_challenge("") == ("", {})
