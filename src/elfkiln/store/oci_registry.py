"""A client of OCI registries (distribution-spec 1.1 and older): blobs, manifests, referrers, tags.

Nothing a registry says is believed: sizes are bounded, every byte is hashed, headers are compared with what arrived,
and who failed is named. Redirects are followed without the caller's credentials when they leave the host, never from
https to http. `urllib3` moves the bytes; certificates are the system's.
"""

from __future__ import annotations

import hashlib
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit, urlunsplit

import urllib3

from elfkiln.errors import Differs, ElfkilnError, Refused, brief, refusal
from elfkiln.io.canonical import canonical_json, sha256_hex
from elfkiln.io.strict_json import parse_strict_json
from elfkiln.store.blobs import INDEX_TYPE, MANIFEST_TYPE, Descriptor, parse_digest
from elfkiln.store.oci_address import OciAddress
from elfkiln.store.registry_auth import Credentials, credentials_for, parse_challenge

MOST_MANIFEST = 4 << 20
"""Bytes of a manifest or index: what registries must take, and the most that is read."""

_CONNECT_SECONDS, _READ_SECONDS = 15.0, 60.0
_LEAST_RATE = 16 << 10
"""Bytes a second below which a body counts as dripping, after a minute of grace."""
_CHUNK = 1 << 18
_MOST_ANSWER = 1 << 16
_MOST_REDIRECTS = 5
_TRIES = 4
_MOST_PAUSE = 10.0
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_AGENT = "elfkiln"


class NotThere(Differs):
    """A manifest or blob that the registry does not have."""


class Unanswered(Differs):
    """A registry that cannot be reached, or that says it fails: another may do."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a registry answered: status, headers (names in lower case), and the body that was read of it."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str


@dataclass
class OciRegistry:
    """One repository on one registry. Safe to use from several threads at once."""

    address: OciAddress
    plain_http: bool = False
    environment: Mapping[str, str] | None = None
    pause: Callable[[float], None] = time.sleep
    _pool: urllib3.PoolManager = field(init=False, repr=False)
    _tokens: dict[str, str] = field(default_factory=dict, repr=False)
    _by_tag: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse plain http to anything but this machine itself."""
        if self.plain_http and not self.address.loopback:
            raise refusal(
                "--plain-http", expected="a loopback address (127.0.0.1, [::1], localhost)", found=self.address.host
            )
        self._pool = urllib3.PoolManager(
            num_pools=4,
            maxsize=8,
            retries=False,
            timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS),
            ssl_context=ssl.create_default_context(),
            headers={"User-Agent": _AGENT},
        )

    # Blobs.

    def has_blob(self, digest: str) -> bool:
        """Whether the registry says that it has a blob (64 hex digits)."""
        answer = self._ask("HEAD", f"blobs/sha256:{digest}", "pull", allowed=(200, 404))
        return answer.status == 200

    def push_blob(self, digest: str, path: Path) -> None:
        """Upload a file as a blob in one piece; its bytes must have the digest, or the registry refuses them."""

        def upload() -> None:
            begun = self._ask("POST", "blobs/uploads/", "push", headers={"Content-Length": "0"}, allowed=(202,))
            place = begun.headers.get("location", "")
            if not place:
                raise self._lied("an upload without a Location", "POST blobs/uploads/")
            url = _with_query(urljoin(begun.url, place), digest=f"sha256:{digest}")
            with path.open("rb") as stream:
                size = stream.seek(0, 2)
                stream.seek(0)
                headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
                self._ask("PUT", url, "push", headers=headers, body=stream, allowed=(201,), tries=1)

        # A cut upload begins anew: the session that it belonged to is gone on most registries.
        self._again(upload)

    def pull_blob(self, digest: str, size: int, sink: IO[bytes]) -> None:
        """Write a blob of a known digest and size to `sink`, which can seek; what arrives is hashed as it comes.

        A cut body goes on where it stopped where the registry can (`Range`), else from the start. Raises `Differs`
        naming the registry for other bytes, a shorter, longer or dripping body.
        """
        what = f"blob sha256:{digest}"
        hashed, have, last = hashlib.sha256(), 0, None
        for attempt in range(_TRIES):
            headers = {"Range": f"bytes={have}-"} if have else {}
            try:
                for chunk, start in self._stream(f"blobs/sha256:{digest}", headers, size, what):
                    if start != have:
                        # It began at 0 again: a registry without ranges.
                        sink.seek(0)
                        sink.truncate()
                        hashed, have = hashlib.sha256(), 0
                    hashed.update(chunk)
                    sink.write(chunk)
                    have += len(chunk)
                    if have > size:
                        raise self._lied(f"more than {size} bytes", what)
            except _Cut as cut:
                last = cut
                self.pause(min(0.2 * 2**attempt, _MOST_PAUSE))
                continue
            break
        if have != size:
            raise self._lied(f"{have} of {size} bytes{f' ({last})' if last else ''}", what)
        if hashed.hexdigest() != digest:
            raise self._lied(f"bytes of sha256:{hashed.hexdigest()}", what)

    # Manifests.

    def get_manifest(
        self, reference: str, *, accept: tuple[str, ...] = (MANIFEST_TYPE, INDEX_TYPE)
    ) -> tuple[bytes, str]:
        """Return a manifest's or index's bytes and media type; raises `NotThere`, or `Differs` for a lie.

        `reference` is a tag or `sha256:<hex>`. The bytes have the digest that was asked for and the one that the
        registry's own header names; the media type is one of `accept`, in the header and in the JSON alike.
        """
        what = f"manifest {reference}"
        headers = {"Accept": ", ".join(accept)}
        answer = self._ask(
            "GET", f"manifests/{reference}", "pull", headers=headers, allowed=(200, 404), most=MOST_MANIFEST
        )
        if answer.status == 404:
            raise NotThere(f"{self._named}: {what} is not there")
        found = sha256_hex(answer.body)
        said = answer.headers.get("docker-content-digest")
        wanted = reference if reference.startswith("sha256:") else said
        for claim in (wanted, said):
            if claim is not None and claim != f"sha256:{found}":
                raise self._lied(f"{len(answer.body)} bytes of sha256:{found} as {claim}", what)
        media = answer.headers.get("content-type", "").partition(";")[0].strip()
        inner = _table(answer.body).get("mediaType", media)
        if media not in accept or inner != media:
            raise self._lied(f"media type {media or 'none'} over {inner!r}; expected {' or '.join(accept)}", what)
        return answer.body, media

    def manifest_digest(self, reference: str) -> str | None:
        """Return the digest (hex) of what a tag names, None when it names nothing or the registry does not say."""
        headers = {"Accept": f"{MANIFEST_TYPE}, {INDEX_TYPE}"}
        answer = self._ask("HEAD", f"manifests/{reference}", "pull", headers=headers, allowed=(200, 404))
        said = answer.headers.get("docker-content-digest", "") if answer.status == 200 else ""
        return said.removeprefix("sha256:") or None

    def put_manifest(self, reference: str, data: bytes, media_type: str) -> bool:
        """Upload a manifest under a tag or its digest; return whether the registry indexed its subject."""
        digest = sha256_hex(data)
        headers = {"Content-Type": media_type, "Content-Length": str(len(data))}
        answer = self._ask("PUT", f"manifests/{reference}", "push", headers=headers, body=data, allowed=(201, 202))
        said = answer.headers.get("docker-content-digest")
        if said is not None and said != f"sha256:{digest}":
            raise self._lied(f"the digest {said} for bytes of sha256:{digest}", f"PUT manifest {reference}")
        return "oci-subject" in answer.headers

    # Referrers.

    def referrers(self, digest: str) -> tuple[Descriptor, ...]:
        """Return the manifests that refer to one: by the referrers API, or by its tag where that is missing."""
        if not self._by_tag:
            answer = self._ask("GET", f"referrers/sha256:{digest}", "pull", allowed=(200, 404), most=MOST_MANIFEST)
            media = answer.headers.get("content-type", "").partition(";")[0].strip()
            if answer.status == 200 and media == INDEX_TYPE:
                return self._descriptors(answer.body, f"referrers of sha256:{digest}")
        try:
            data, _ = self.get_manifest(_referrers_tag(digest), accept=(INDEX_TYPE,))
        except NotThere:
            return ()
        # A registry with the API answers with an empty index, and has no need of such a tag.
        self._by_tag = True
        return self._descriptors(data, f"referrers of sha256:{digest}")

    def put_referrer(self, subject: str, data: bytes, artifact_type: str) -> None:
        """Upload a manifest that refers to `subject`; where the registry does not index it, under the tag scheme.

        The tag's index is read, merged, written and read again: another writer in between makes it merge once more.
        """
        descriptor = Descriptor(MANIFEST_TYPE, sha256_hex(data), len(data))
        if self.put_manifest(f"sha256:{descriptor.digest}", data, MANIFEST_TYPE):
            return
        entry = {**descriptor.to_json(), "artifactType": artifact_type}
        tag = _referrers_tag(subject)
        for attempt in range(2 * _TRIES):
            known = self._index_entries(tag)
            if any(one.get("digest") == entry["digest"] for one in known):
                return
            merged = sorted([*known, entry], key=lambda one: str(one.get("digest")))
            index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": merged}
            self.put_manifest(tag, canonical_json(index), INDEX_TYPE)
            self.pause(0.05 * attempt)
        raise Differs(f"{self._named}: the referrers of sha256:{subject} keep being overwritten by others; run again")

    def tags(self) -> tuple[str, ...]:
        """Return all tags of the repository, page by page; empty when it has none or is not there."""
        found: list[str] = []
        url = "tags/list?n=1000"
        for _ in range(10_000):
            answer = self._ask("GET", url, "pull", allowed=(200, 404), most=MOST_MANIFEST)
            if answer.status == 404:
                break
            names = _table(answer.body).get("tags") or []
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise self._lied("a list of tags that is not one", "tags/list")
            found += names
            url = _next_page(answer)
            if not url:
                break
        return tuple(dict.fromkeys(found))

    # One question.

    @property
    def _named(self) -> str:
        return f"oci://{self.address.host}/{self.address.repository}"

    def _lied(self, found: str, what: str) -> Differs:
        return Differs(f"{self._named}: {what}: the registry sent {brief(found, 200)}; nothing was taken from it")

    def _descriptors(self, data: bytes, what: str) -> tuple[Descriptor, ...]:
        entries = _table(data).get("manifests")
        try:
            return tuple(
                Descriptor(str(one["mediaType"]), parse_digest(one["digest"]), int(one["size"]))
                for one in entries or ()
            )
        except (KeyError, TypeError, ValueError, Refused):
            raise self._lied("an index whose entries are not descriptors", what) from None

    def _index_entries(self, tag: str) -> list[dict[str, Any]]:
        try:
            data, _ = self.get_manifest(tag, accept=(INDEX_TYPE,))
        except NotThere:
            return []
        entries = _table(data).get("manifests")
        return [one for one in entries if isinstance(one, dict)] if isinstance(entries, list) else []

    def _again(self, work: Callable[[], None]) -> None:
        for attempt in range(_TRIES):
            try:
                return work()
            except _Cut as cut:
                if attempt == _TRIES - 1:
                    raise Differs(f"{self._named}: {cut}; run again, what arrived stays") from None
                self.pause(min(0.2 * 2**attempt, _MOST_PAUSE))
        return None

    def _ask(
        self,
        method: str,
        place: str,
        action: str,
        *,
        allowed: tuple[int, ...],
        headers: Mapping[str, str] | None = None,
        body: bytes | IO[bytes] | None = None,
        most: int = _MOST_ANSWER,
        tries: int = _TRIES,
    ) -> Answer:
        """Ask until the answer has an allowed status; what is asked must bear being asked twice, or `tries` be 1.

        Raises `Differs` for a server that fails or cannot be reached, `Refused` for one that wants other credentials.
        """
        last: ElfkilnError | None = None
        for attempt in range(tries):
            try:
                with self._send(method, place, action, headers or {}, body) as answer:
                    status = answer.status
                    read = self._read(answer, most, f"{method} {place}") if method != "HEAD" else b""
                    if status in allowed:
                        return Answer(status, _headers(answer), read, answer.url or "")
                    last = self._failure(method, place, status, read)
                    pause = _retry_after(answer)
            except _Cut as cut:
                if tries == 1:
                    raise
                last, status, pause = Unanswered(f"{self._named}: {cut}; run again"), 0, None
            if status and status not in _AGAIN:
                break
            if attempt < tries - 1:
                self.pause(min(pause if pause is not None else 0.2 * 2**attempt, _MOST_PAUSE))
        assert last is not None
        raise last

    def _stream(self, place: str, headers: Mapping[str, str], size: int, what: str) -> Iterator[tuple[bytes, int]]:
        """Yield (bytes, offset at which they begin) of a blob; raises `_Cut` where it broke off."""
        with self._send("GET", place, "pull", headers, None) as answer:
            start = 0
            if answer.status == 206:
                start = _range_start(answer.headers.get("Content-Range", ""))
                if f"bytes={start}-" != headers.get("Range"):
                    raise self._lied(f"another range than asked for: {answer.headers.get('Content-Range')}", what)
            elif answer.status in _AGAIN:
                raise _Cut(f"{what}: status {answer.status}")
            elif answer.status == 404:
                raise NotThere(f"{self._named}: {what} is not there")
            elif answer.status != 200:
                raise self._failure("GET", place, answer.status, self._read(answer, _MOST_ANSWER, what))
            deadline = time.monotonic() + 60 + size / _LEAST_RATE
            at = start
            for chunk in _chunks(answer, what):
                yield chunk, at
                at += len(chunk)
                if time.monotonic() > deadline:
                    raise self._lied(f"{at} of {size} bytes, slower than {_LEAST_RATE >> 10} KiB/s", what)

    def _read(self, answer: urllib3.BaseHTTPResponse, most: int, what: str) -> bytes:
        data = bytearray()
        deadline = time.monotonic() + 60 + most / _LEAST_RATE
        for chunk in _chunks(answer, what):
            data += chunk
            if len(data) > most:
                raise self._lied(f"more than {most} bytes", what)
            if time.monotonic() > deadline:
                raise self._lied(f"{len(data)} bytes, slower than {_LEAST_RATE >> 10} KiB/s", what)
        return bytes(data)

    def _send(
        self, method: str, place: str, action: str, headers: Mapping[str, str], body: bytes | IO[bytes] | None
    ) -> urllib3.BaseHTTPResponse:
        """Send one request, with credentials and through redirects, and return the answer, its body unread."""
        base = f"{'http' if self.plain_http else 'https'}://{self.address.host}/v2/{self.address.repository}/"
        url, scope = urljoin(base, place), f"repository:{self.address.repository}:{_ACTIONS[action]}"
        home, asked = urlsplit(base).netloc, False
        for _ in range(_MOST_REDIRECTS + 2):
            own = urlsplit(url).netloc == home
            sent = {**headers, **({"Authorization": self._tokens[scope]} if own and scope in self._tokens else {})}
            answer = self._request(method, url, sent, body)
            if answer.status == 401 and own and not asked:
                asked = True
                self._read(answer, _MOST_ANSWER, "401")
                self._tokens[scope] = self._authorize(answer.headers.get("WWW-Authenticate", ""), scope)
                if body is not None and not isinstance(body, bytes):
                    body.seek(0)
                continue
            if answer.status in _REDIRECTS and method in ("GET", "HEAD"):
                answer.close()
                url = self._redirect(url, answer.headers.get("Location", ""))
                continue
            answer.url = url
            return answer
        raise self._lied(f"more than {_MOST_REDIRECTS} redirects", f"{method} {place}")

    def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | IO[bytes] | None
    ) -> urllib3.BaseHTTPResponse:
        try:
            return self._pool.request(
                method,
                url,
                headers=dict(headers),
                body=body,
                preload_content=False,
                redirect=False,
                decode_content=False,
            )
        except urllib3.exceptions.LocationValueError as error:
            raise self._lied(f"the address {url} ({error})", method) from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _Cut(f"{urlsplit(url).netloc} cannot be reached: {_reason(error)}") from None

    def _redirect(self, url: str, place: str) -> str:
        target = urljoin(url, place)
        scheme = urlsplit(target).scheme
        if not place or scheme not in ("http", "https") or (url.startswith("https:") and scheme != "https"):
            raise self._lied(f"a redirect to {place or 'nowhere'}", url)
        return target

    def _authorize(self, challenge: str, scope: str) -> str:
        """Return the `Authorization` header that a challenge asks for; `Refused` when there are no credentials."""
        scheme, parameters = parse_challenge(challenge)
        known = credentials_for(self.address.host, self.environment)
        if scheme == "basic":
            if known is None:
                raise Refused(f"{self.address.host}: asks for a user and password; log in (docker login)")
            return known.basic
        if scheme != "bearer" or not parameters.get("realm"):
            raise self._lied(f"a challenge of a kind that is not known: {challenge or 'none'}", "401")
        return "Bearer " + self._token(parameters, parameters.get("scope", scope), known)

    def _token(self, parameters: Mapping[str, str], scope: str, known: Credentials | None) -> str:
        realm = parameters["realm"]
        secure = urlsplit(realm).scheme == "https" or (self.plain_http and urlsplit(realm).scheme == "http")
        if not secure:
            raise self._lied(f"a token realm that is not https: {realm}", "401")
        query = {"scope": scope, **({"service": parameters["service"]} if "service" in parameters else {})}
        if known is not None and known.user == "<token>":
            form = urlencode(
                {**query, "grant_type": "refresh_token", "refresh_token": known.password, "client_id": _AGENT}
            )
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            answer = self._request("POST", realm, headers, form.encode())
        else:
            headers = {"Authorization": known.basic} if known is not None else {}
            answer = self._request("GET", _with_query(realm, **query), headers, None)
        with answer:
            data = self._read(answer, _MOST_ANSWER, "token")
        if answer.status in (400, 401, 403):
            raise Refused(
                f"{urlsplit(realm).netloc}: refuses a token for {scope}; log in (docker login) or ask for access"
            )
        table = _table(data)
        token = table.get("token") or table.get("access_token")
        if answer.status != 200 or not isinstance(token, str) or not token.isprintable():
            raise self._lied(f"no token (status {answer.status})", realm)
        return token

    def _failure(self, method: str, place: str, status: int, body: bytes) -> ElfkilnError:
        said = _said(body)
        line = f"{self._named}: {method} {place.partition('?')[0]}: status {status}{f' ({said})' if said else ''}"
        if status in (401, 403):
            return Refused(f"{line}; log in (docker login) or ask for access")
        if status == 404:
            return NotThere(f"{line}; check the repository's name")
        if status == 405:
            return Refused(f"{line}; the registry does not take this")
        kind = Unanswered if status >= 500 else Differs
        return kind(f"{line}; run again, what arrived stays")


_ACTIONS = {"pull": "pull", "push": "pull,push"}


class _Cut(Exception):
    """A connection that could not be made or broke off: worth another try."""


def _chunks(answer: urllib3.BaseHTTPResponse, what: str) -> Iterator[bytes]:
    try:
        yield from answer.stream(_CHUNK, decode_content=False)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise _Cut(f"{what}: the connection broke off: {_reason(error)}") from None


def _reason(error: BaseException) -> str:
    inner = getattr(error, "reason", None) or error.__cause__ or error
    return brief(getattr(inner, "strerror", None) or inner, 120)


def _headers(answer: urllib3.BaseHTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers.items()}


def _table(data: bytes) -> dict[str, Any]:
    try:
        value = parse_strict_json(data, "its answer")
    except Refused:
        return {}
    return value if isinstance(value, dict) else {}


def _said(body: bytes) -> str:
    """Return the first message of a registry's error body, on one line."""
    errors = _table(body).get("errors")
    first = errors[0] if isinstance(errors, list) and errors and isinstance(errors[0], dict) else {}
    return brief(first.get("message") or first.get("code") or "", 120)


def _with_query(url: str, **values: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(query=urlencode([*parse_qsl(parts.query), *values.items()])))


def _next_page(answer: Answer) -> str:
    """Return where the `Link` header of a listing goes on, below the same repository; empty at its end."""
    link = answer.headers.get("link", "")
    if 'rel="next"' not in link or "<" not in link:
        return ""
    target = urljoin(answer.url, link.partition("<")[2].partition(">")[0])
    return target if urlsplit(target).netloc == urlsplit(answer.url).netloc else ""


def _range_start(text: str) -> int:
    start = text.removeprefix("bytes ").partition("-")[0]
    return int(start) if start.isascii() and start.isdigit() and len(start) < 20 else -1


def _retry_after(answer: urllib3.BaseHTTPResponse) -> float | None:
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else None


def _referrers_tag(digest: str) -> str:
    """Return the tag that stands for a manifest's referrers where the API is missing (distribution-spec 1.1)."""
    return f"sha256-{digest}"
