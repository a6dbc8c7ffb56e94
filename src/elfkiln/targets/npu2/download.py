"""Fetches one pinned file over http(s): the bytes of the pinned digest arrive whole, or nothing is left."""

from __future__ import annotations

import hashlib
import http.client
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from elfkiln.errors import Differs, ElfkilnError, Refused, brief, mismatch_line, refusal
from elfkiln.io.files import storage_refusal

SECONDS = 60.0
"""How long one read or connect may take. The whole may take as long as it moves on (`SLOWEST`)."""

SLOWEST = 1024
"""Bytes a second, on average after the first `SECONDS`, below which a server is taken to be dripping."""

MOST_BYTES = 4 << 30
"""The most that is read when the lock does not know the size; the largest wheel here is some hundred MB."""

_CHUNK = 1 << 20
_AGENT = "elfkiln"
_ADVICE = "give the pinned file with wheels=DIR"


def fetch(url: str, target: Path, *, sha256: str, size: int | None, timeout: float = SECONDS) -> None:
    """Fetch `url` into the new file `target` and check its sha256 (and size, where the lock has it).

    Redirects are followed (release pages answer with one), never from https to http. Raises `Differs` when the server
    fails, stays silent or ends early, `Refused` when the bytes are not the pinned ones, are more than pinned, or do
    not fit on the disk. The target is then removed.
    """
    try:
        with target.open("xb") as sink:
            try:
                _fetch_into(url, target.name, sink, sha256, size, timeout)
            except BaseException:
                target.unlink(missing_ok=True)
                raise
    except ElfkilnError:
        raise
    except OSError as error:
        raise storage_refusal(target, error) from error


def _fetch_into(url: str, file: str, sink: IO[bytes], sha256: str, size: int | None, timeout: float) -> None:
    where = f"{file} from {urlsplit(url).hostname}"
    digest, total, limit = hashlib.sha256(), 0, size or MOST_BYTES
    began = time.monotonic()
    try:
        request = urllib.request.Request(url, headers={"User-Agent": _AGENT, "Accept-Encoding": "identity"})
        with urllib.request.build_opener(_SafeRedirects()).open(request, timeout=timeout) as answer:
            announced = _length(answer.headers.get("Content-Length"))
            if announced is not None and announced > limit:
                raise _too_large(where, size, announced)
            # read1, which gives what there is: read would wait for the whole of a chunk that comes byte by byte.
            while chunk := answer.read1(_CHUNK):
                total += len(chunk)
                if total > limit:
                    raise _too_large(where, size, total)
                seconds = time.monotonic() - began
                if seconds > timeout and total < SLOWEST * seconds:
                    raise Differs(f"{where}: {total} bytes came in {seconds:.0f} s; run again, or {_ADVICE}")
                digest.update(chunk)
                _write(sink, chunk, file)
    except urllib.error.HTTPError as error:
        error.close()
        reason = brief(error.reason, 60)
        raise Differs(f"{where}: the server answered {error.code} {reason}; {_ADVICE}") from error
    except TimeoutError as error:
        raise Differs(f"{where}: nothing came for {timeout:g} s; run again, or {_ADVICE}") from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise Differs(f"{where}: nothing came for {timeout:g} s; run again, or {_ADVICE}") from error
        raise Differs(f"{where}: not reachable ({brief(error.reason)}); run again, or {_ADVICE}") from error
    except (http.client.HTTPException, ConnectionError) as error:
        reason = brief(repr(error), 80)
        raise Differs(f"{where}: the connection broke after {total} bytes ({reason}); run again") from error
    except ValueError as error:
        # An address that no request can be made of: brackets without end, a port in letters, a name with an empty part.
        reason = brief(error, 80)
        raise Differs(f"{where}: its address, or the one it redirects to, is broken ({reason}); {_ADVICE}") from error
    if announced is not None and total < announced:
        raise Differs(f"{where}: ended after {total} of {announced} bytes; run again")
    remedy = "the file there is not the pinned one"
    if size is not None and total != size:
        raise refusal(f"{where}: size", expected=f"{size} bytes", found=total, remedy=remedy)
    if digest.hexdigest() != sha256:
        raise refusal(f"{where}: sha256", expected=sha256, found=digest.hexdigest(), remedy=remedy)


def _write(sink: IO[bytes], chunk: bytes, file: str) -> None:
    try:
        sink.write(chunk)
    except OSError as error:
        raise storage_refusal(Path(file), error) from error


def _too_large(where: str, size: int | None, found: int) -> Refused:
    expected = f"{size} bytes" if size is not None else f"at most {MOST_BYTES} bytes"
    return Refused(mismatch_line(f"{where}: size", expected=expected, found=f"{found} or more"))


def _length(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    max_redirections = 5

    def http_error_302(self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any) -> Any:
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except BaseException:
            fp.close()
            raise

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        split = urlsplit(newurl)
        # Asking for the port checks it: a connection to one over 65535 would fail with its socket left open.
        scheme = split.scheme if split.port is None or split.port else ""
        if scheme != "https" and not (scheme == "http" and req.type == "http"):
            raise Refused(f"redirected from {req.type} to {brief(scheme or newurl, 20)}; {_ADVICE}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
