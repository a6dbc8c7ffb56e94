"""Fetching a pinned file from a loopback server: whole and right, or one line and nothing left."""

import hashlib
import re

import pytest

from elfkiln.errors import Differs, Refused
from elfkiln.targets.npu2 import download
from elfkiln.targets.npu2.download import fetch
from npu2_server import serve

DATA = b"wheel " * 300_000
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def server():
    with serve() as running:
        yield running


@pytest.fixture
def target(tmp_path):
    return tmp_path / "a-1-py3-none-any.whl"


@pytest.mark.parametrize("size", [None, len(DATA)])
def test_the_pinned_bytes_arrive(server, target, size):
    fetch(server.body("/a.whl", DATA), target, sha256=SHA256, size=size)
    assert target.read_bytes() == DATA


def test_a_body_without_a_length_arrives_too(server, target):
    fetch(server.body("/a.whl", DATA, announced="none"), target, sha256=SHA256, size=None)
    assert target.read_bytes() == DATA


def test_a_redirect_is_followed(server, target):
    server.body("/there.whl", DATA)
    fetch(server.redirect("/a.whl", "/there.whl"), target, sha256=SHA256, size=None)
    assert target.read_bytes() == DATA
    assert server.asked == ["/a.whl", "/there.whl"]


def refused(target, url, kind, *, size=None, sha256=SHA256, timeout=30.0):
    with pytest.raises(kind) as error:
        fetch(url, target, sha256=sha256, size=size, timeout=timeout)
    line = str(error.value)
    assert "\n" not in line
    assert target.name in line or "redirected" in line
    assert not target.exists()
    return line


def test_other_bytes_are_refused(server, target):
    url = server.body("/a.whl", DATA)
    line = refused(target, url, Refused, sha256="0" * 64)
    assert f"expected {'0' * 64}, found {SHA256}" in line


def test_one_flipped_byte_is_refused(server, target):
    flipped = DATA[:1000] + bytes([DATA[1000] ^ 1]) + DATA[1001:]
    line = refused(target, server.body("/a.whl", flipped), Refused, size=len(DATA))
    assert "sha256: expected" in line


@pytest.mark.parametrize("code", [404, 403, 500, 503])
def test_an_error_answer_is_named(server, target, code):
    assert f"the server answered {code}" in refused(target, server.status("/a.whl", code), Differs)


def test_a_body_that_ends_early_is_named(server, target):
    url = server.body("/a.whl", DATA[:1_000_000], announced=len(DATA))
    line = refused(target, url, Differs)
    assert "ended after 1000000 of 1800000 bytes" in line


def test_a_body_larger_than_pinned_is_not_read_on(server, target):
    url = server.body("/a.whl", DATA)
    line = refused(target, url, Refused, size=1000)
    assert "expected 1000 bytes, found 1800000 or more" in line


def test_a_body_that_grows_past_the_pinned_size_is_not_read_on(server, target):
    url = server.body("/a.whl", DATA, announced="none")
    assert "expected 1000 bytes" in refused(target, url, Refused, size=1000)


def test_a_body_smaller_than_pinned_is_refused(server, target):
    line = refused(target, server.body("/a.whl", DATA), Refused, size=len(DATA) + 1)
    assert "size: expected 1800001 bytes, found 1800000" in line


def test_without_a_pinned_size_there_is_still_a_limit(server, target, monkeypatch):
    monkeypatch.setattr(download, "MOST_BYTES", 1_000_000)
    line = refused(target, server.body("/a.whl", DATA), Refused)
    assert "expected at most 1000000 bytes" in line


def test_a_silent_server_is_given_up(server, target):
    line = refused(target, server.silence("/a.whl"), Differs, timeout=0.3)
    assert "nothing came for 0.3 s" in line


def test_a_server_that_is_not_there(target):
    with serve() as gone:
        url = gone.base + "/a.whl"
    assert "not reachable" in refused(target, url, Differs)


def test_a_redirect_to_a_file_is_refused(server, target):
    url = server.redirect("/a.whl", "file:///etc/passwd")
    with pytest.raises((Refused, Differs)):
        fetch(url, target, sha256=SHA256, size=None)
    assert not target.exists()


def test_a_redirect_from_https_to_http_is_refused():
    request = download.urllib.request.Request("https://example.org/a.whl")
    with pytest.raises(Refused, match="redirected from https to http"):
        download._SafeRedirects().redirect_request(request, None, 302, "Found", {}, "http://example.org/a.whl")


def test_redirects_without_end_are_given_up(server, target):
    url = server.redirect("/a.whl", "/a.whl")
    assert "the server answered 302" in refused(target, url, Differs)
    assert len(server.asked) < 10


@pytest.mark.parametrize(
    "address",
    [
        "http://[::1/a.whl",
        "http://127.0.0.1:port/a.whl",
        "http://127.0.0.1:99999999/a.whl",
        "http://a..b/a.whl",
        f"http://{'a' * 70}.example/a.whl",
        "http:///a.whl",
        "http://",
        "http://127.0.0.1:1/\x01a.whl",
        "//[",
    ],
)
def test_a_redirect_to_a_broken_address_is_one_line(server, target, address):
    line = refused(target, server.redirect("/a.whl", address), Differs)
    assert line.isprintable()


def test_a_body_that_drips_without_end_is_given_up(server, target):
    def drip(request):
        request.send_response(200)
        request.end_headers()
        while not server.closing.wait(0.02):
            request.wfile.write(b"x")

    server.routes["/a.whl"] = drip
    line = refused(target, server.base + "/a.whl", Differs, timeout=0.5)
    assert re.search(r"a-1-py3-none-any\.whl from 127\.0\.0\.1: \d+ bytes came in \d s; run again", line)


def test_a_body_that_comes_in_small_parts_arrives(server, target):
    def parts(request):
        request.send_response(200)
        request.send_header("Content-Length", str(len(DATA)))
        request.end_headers()
        for start in range(0, len(DATA), 50_000):
            request.wfile.write(DATA[start : start + 50_000])
            server.closing.wait(0.03)

    server.routes["/a.whl"] = parts
    fetch(server.base + "/a.whl", target, sha256=SHA256, size=None, timeout=0.5)
    assert target.read_bytes() == DATA


def test_a_full_disk_is_named_and_nothing_stays(server, target, monkeypatch):
    class Full:
        def __init__(self, stream):
            self.stream = stream

        def __enter__(self):
            return self

        def __exit__(self, *_exc):
            self.stream.close()

        def write(self, _data):
            raise OSError(28, "No space left on device")

    opened = type(target).open
    monkeypatch.setattr(type(target), "open", lambda self, mode: Full(opened(self, mode)))
    line = refused(target, server.body("/a.whl", DATA), Refused)
    assert "no space left on the device" in line


def test_a_file_that_is_there_already_is_not_overwritten(server, target):
    target.write_bytes(b"mine")
    with pytest.raises(Refused, match="File exists"):
        fetch(server.body("/a.whl", DATA), target, sha256=SHA256, size=None)
    assert target.read_bytes() == b"mine"
