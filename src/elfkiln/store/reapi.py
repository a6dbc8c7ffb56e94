"""A client of the Remote Execution API v2: a shared store of blobs, a cache of what actions came to, and execution.

Nothing a server says is believed: blobs are hashed and bounded, a result without its outputs is none. What a call may
end in is one of four failures, so that who asks can go on without the server; none of them is an answer.
"""

from __future__ import annotations

import importlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import uuid4

from elfkiln.errors import Refused, brief, refusal
from elfkiln.io.canonical import sha256_hex
from elfkiln.store import reapi_messages as wire

MOST_BLOB = 64 << 20
"""Bytes of the largest blob that is read: an ELF has some hundred KB."""

TOKEN = "ELFKILN_REMOTE_TOKEN"
"""The environment variable whose value is sent as a bearer token, over TLS or to this machine only."""

_ADDRESS = re.compile(
    r"(grpcs?)://([A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9a-fA-F:.]{2,45}\]):([0-9]{1,5})(?:/(.*))?"
)
_INSTANCE = re.compile(r"[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*")
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_PIECE = 1 << 20
_BATCH = 3 << 20
"""Bytes that go in one call where the server names no limit: gRPC's own is 4 MiB."""

_MOST_MESSAGE = 16 << 20
_TRIES = 3
_T = TypeVar("_T")


class RemoteFailure(Exception):
    """A call that came to nothing; the text is one line."""


class Lost(RemoteFailure):
    """The server cannot be reached, broke off, failed or did not answer in time."""


class Full(RemoteFailure):
    """The server takes nothing more: its store is full, or a quota is reached."""


class NotAllowed(RemoteFailure):
    """The server does not do this, or not for us."""


class Lied(RemoteFailure):
    """The server sent something else than it said: other bytes, no outputs, no message at all."""


class Failed(RemoteFailure):
    """The action itself ended with another exit code than 0, or was stopped at its time limit."""


@dataclass(frozen=True, slots=True)
class RemoteAddress:
    """`grpc://HOST:PORT[/INSTANCE]`, or `grpcs://` over TLS.

    >>> RemoteAddress.parse("grpc://127.0.0.1:50071/main").instance
    'main'
    """

    host: str
    port: int
    instance: str = ""
    secure: bool = False

    @classmethod
    def parse(cls, text: str) -> RemoteAddress:
        """Return the address a text says; `Refused` for anything else."""
        match = _ADDRESS.fullmatch(text)
        instance = (match[4] or "") if match else ""
        if match is None or not 0 < int(match[3]) < 65536 or (instance and not _INSTANCE.fullmatch(instance)):
            raise refusal("remote", expected="grpc://HOST:PORT[/INSTANCE], or grpcs:// over TLS", found=text)
        return cls(match[2], int(match[3]), instance, match[1] == "grpcs")

    def __str__(self) -> str:
        """Return the text `parse` reads."""
        end = f"/{self.instance}" if self.instance else ""
        return f"{'grpcs' if self.secure else 'grpc'}://{self.host}:{self.port}{end}"

    @property
    def loopback(self) -> bool:
        """Whether it is this machine itself."""
        return self.host == "localhost" or self.host == "[::1]" or self.host.startswith("127.")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a server does: execution, taking results from us, and the most bytes of one batch."""

    executes: bool
    takes_results: bool
    most_batch: int


@dataclass
class RemoteClient:
    """One server. Safe to use from several threads; nothing is connected before the first call.

    `seconds` is how long a call may take that is not an execution. Every method raises a `RemoteFailure`.
    """

    address: RemoteAddress
    seconds: float = 60.0
    pause: Callable[[float], None] = time.sleep
    environment: Mapping[str, str] | None = None
    _calls: dict[str, Any] = field(default_factory=dict, repr=False)
    _channel: Any = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        """Refuse where gRPC is not installed, and a token that would go over the wire in the clear."""
        try:
            for package in ("google.protobuf", "grpc"):
                importlib.import_module(package)
        except ImportError:
            raise Refused("remote: needs gRPC, which is not installed; pip install 'elfkiln[remote]'") from None
        token = (os.environ if self.environment is None else self.environment).get(TOKEN, "")
        if token and not self.address.secure and not self.address.loopback:
            raise Refused(f"remote: {TOKEN} is not sent to {self.address} in the clear; use grpcs://")
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()

    def close(self) -> None:
        """End the connection."""
        if self._channel is not None:
            self._channel.close()

    # What it does.

    def capabilities(self) -> Capabilities:
        """Return what the server does; `NotAllowed` when it does not use sha256."""
        answer = self._call("GetCapabilities", "GetCapabilitiesRequest")
        cache = answer.cache_capabilities
        if cache.digest_functions and wire.SHA256 not in cache.digest_functions:
            raise NotAllowed(f"{self.address}: its digests are not sha256")
        most = cache.max_batch_total_size_bytes
        return Capabilities(
            answer.execution_capabilities.exec_enabled,
            cache.action_cache_update_capabilities.update_enabled,
            min(most, _BATCH) if most > 0 else _BATCH,
        )

    # Blobs.

    def missing(self, digests: Iterable[tuple[str, int]]) -> set[str]:
        """Return which of these blobs (digest, size) the server does not have."""
        asked = dict(digests)
        found: set[str] = set()
        names = sorted(asked)
        for start in range(0, len(names), 5000):
            part = [_digest(name, asked[name]) for name in names[start : start + 5000]]
            answer = self._call("FindMissingBlobs", "FindMissingBlobsRequest", blob_digests=part)
            found |= {one.hash for one in answer.missing_blob_digests}
        return found & asked.keys()

    def upload(self, blobs: Mapping[str, bytes], most_batch: int = _BATCH) -> int:
        """Send the blobs that the server does not have; return how many went."""
        gone = self.missing((digest, len(data)) for digest, data in blobs.items())
        batch: list[str] = []
        size = 0
        for digest in sorted(gone):
            length = len(blobs[digest])
            if length > most_batch - 1024:
                self._write(digest, blobs[digest])
                continue
            if batch and size + length + 256 > most_batch:
                self._send(batch, blobs)
                batch, size = [], 0
            batch.append(digest)
            size += length + 256
        if batch:
            self._send(batch, blobs)
        return len(gone)

    def read(self, digest: str, size: int) -> bytes:
        """Return a blob; `Lied` for other bytes and for one that is too large, `Lost` when it is not there."""
        if not 0 <= size <= MOST_BLOB:
            raise Lied(f"{self.address}: blob sha256:{digest[:12]} of {size} bytes: at most {MOST_BLOB} are read")
        if not _SHA256.fullmatch(digest):
            raise Lied(f"{self.address}: expected the sha256 of a blob, it sent {brief(digest, 80)!r}")

        def read() -> bytes:
            data = bytearray()
            name = "/".join(filter(None, [self.address.instance, "blobs", digest, str(size)]))
            for part in self._stream("Read", wire.message("ReadRequest", resource_name=name), self.seconds):
                data += part.data
                if len(data) > size:
                    break
            return bytes(data)

        data = self._again(read) if size else b""
        if len(data) != size or sha256_hex(data) != digest:
            found = "more" if len(data) > size else f"{len(data)} bytes of sha256:{sha256_hex(data)[:12]}"
            raise Lied(f"{self.address}: blob sha256:{digest[:12]} of {size} bytes: it sent {found}")
        return data

    # Actions.

    def result(self, action: str, size: int) -> Any | None:
        """Return what the cache has for an action, None when it has nothing."""
        try:
            return self._call("GetActionResult", "GetActionResultRequest", action_digest=_digest(action, size))
        except NotThere:
            return None

    def keep_result(self, action: str, size: int, result: Any) -> None:
        """Put what an action came to into the cache; its blobs must be there."""
        self._call(
            "UpdateActionResult", "UpdateActionResultRequest", action_digest=_digest(action, size), action_result=result
        )

    def execute(self, action: str, size: int, seconds: float, *, skip_cache: bool = False) -> Any:
        """Run an action whose blobs are there and return its result; `Failed` for an exit code other than 0.

        A stream that breaks off is taken up again where the server named the operation; a worker that dies is one
        more try. After `seconds` it is given up (`Lost`).
        """
        deadline = time.monotonic() + seconds
        request = wire.message(
            "ExecuteRequest",
            instance_name=self.address.instance,
            action_digest=_digest(action, size),
            skip_cache_lookup=skip_cache,
            digest_function=wire.SHA256,
        )
        operation, last = "", Lost(f"{self.address}: no answer")
        for attempt in range(_TRIES):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            try:
                if operation:
                    stream = self._stream("WaitExecution", wire.message("WaitExecutionRequest", name=operation), left)
                else:
                    stream = self._stream("Execute", request, left)
                for answer in stream:
                    operation = answer.name or operation
                    if answer.done:
                        return self._outcome(answer)
                last = Lost(f"{self.address}: the execution's stream ended before it was done")
            except NotThere:
                # The operation is known no more (a server that was started anew), or a blob was dropped meanwhile.
                if not operation:
                    raise
                operation, last = "", Lost(f"{self.address}: the operation is known no more")
            except Lost as error:
                last = error
                if isinstance(error, _Anew):
                    operation = ""
            self.pause(min(0.1 * 2**attempt, max(deadline - time.monotonic(), 0)))
        if time.monotonic() >= deadline:
            raise Lost(f"{self.address}: the action was not done after {seconds:g} s")
        raise last

    def _outcome(self, operation: Any) -> Any:
        if operation.error.code:
            raise _status_failure(self.address, operation.error)
        try:
            answer = wire.message("ExecuteResponse")
            answer.ParseFromString(operation.response.value)
        except Exception as error:
            raise Lied(f"{self.address}: an outcome that is no ExecuteResponse ({brief(error)})") from None
        if answer.status.code:
            raise _status_failure(self.address, answer.status)
        if not operation.response.value:
            raise Lied(f"{self.address}: it says done, and has no outcome")
        return answer.result

    # One call.

    def _send(self, names: list[str], blobs: Mapping[str, bytes]) -> None:
        requests = [
            wire.message("UpdateRequest", digest=_digest(name, len(blobs[name])), data=blobs[name]) for name in names
        ]
        answer = self._call("BatchUpdateBlobs", "BatchUpdateBlobsRequest", requests=requests)
        for one in answer.responses:
            if one.status.code:
                raise _status_failure(self.address, one.status)
        if {one.digest.hash for one in answer.responses} != set(names):
            raise Lied(f"{self.address}: it answered for other blobs than were sent")

    def _write(self, digest: str, data: bytes) -> None:
        name = "/".join(filter(None, [self.address.instance, "uploads", str(uuid4()), "blobs", digest, str(len(data))]))

        def parts() -> Iterator[Any]:
            for start in range(0, len(data), _PIECE):
                part = data[start : start + _PIECE]
                last = start + len(part) == len(data)
                yield wire.message("WriteRequest", resource_name=name, write_offset=start, finish_write=last, data=part)

        def write() -> None:
            answer = self._guarded(lambda: self._method("Write")(parts(), **self._options(self.seconds)))
            # -1 where a compressed upload of a blob that is there already was cut short by the server.
            if answer.committed_size not in (len(data), -1):
                raise Lied(f"{self.address}: it took {answer.committed_size} of {len(data)} bytes")

        self._again(write)

    def _call(self, method: str, request: str, **fields: Any) -> Any:
        fields["instance_name"] = self.address.instance
        if method != "GetCapabilities":
            fields["digest_function"] = wire.SHA256
        one = wire.message(request, **fields)
        return self._again(lambda: self._guarded(lambda: self._method(method)(one, **self._options(self.seconds))))

    def _stream(self, method: str, request: Any, seconds: float) -> Iterator[Any]:
        stream = self._guarded(lambda: self._method(method)(request, **self._options(seconds)))
        while True:
            try:
                one = self._guarded(lambda: next(stream))
            except StopIteration:
                return
            yield one

    def _options(self, seconds: float) -> dict[str, Any]:
        return {"timeout": seconds, "metadata": self._metadata}

    def _again(self, call: Callable[[], _T]) -> _T:
        for attempt in range(_TRIES):
            try:
                return call()
            except Lost as error:
                if attempt == _TRIES - 1 or isinstance(error, _Slow):
                    raise
                self.pause(0.1 * 2**attempt)
        raise AssertionError

    def _guarded(self, call: Callable[[], _T]) -> _T:
        import grpc

        try:
            return call()
        except StopIteration:
            raise
        except grpc.RpcError as error:
            code, said = error.code(), brief(error.details() or "", 160)  # type: ignore[attr-defined,unused-ignore]
            raise _failure(self.address, code.value[0], said) from None

    def _method(self, name: str) -> Any:
        with self._lock:
            if self._channel is None:
                self._channel = self._open()
            if name not in self._calls:
                path, _, answer, kind = wire.METHODS[name]
                self._calls[name] = getattr(self._channel, kind)(
                    path + name,
                    request_serializer=wire.encoded,
                    response_deserializer=wire.message_classes()[answer].FromString,
                )
            return self._calls[name]

    def _open(self) -> Any:
        # Beside gRPC's threads nothing of ours goes on in a fork (`io.child.has_threads`): what is forked runs another
        # program at once, and gRPC's own handling of forks would only have it wait.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
        import grpc

        options = [
            ("grpc.max_receive_message_length", _MOST_MESSAGE),
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.initial_reconnect_backoff_ms", 200),
        ]
        target = f"{self.address.host}:{self.address.port}"
        if self.address.secure:
            return grpc.secure_channel(target, grpc.ssl_channel_credentials(), options)
        return grpc.insecure_channel(target, options)


class NotThere(RemoteFailure):
    """A blob, a result or an operation that the server does not have."""


class _Slow(Lost):
    """A call that took its whole time: once is enough."""


class _Anew(Lost):
    """An execution that has to begin anew, since the worker is gone."""


def _digest(name: str, size: int) -> Any:
    return wire.message("Digest", hash=name, size_bytes=size)


def _status_failure(address: RemoteAddress, status: Any) -> RemoteFailure:
    return _failure(address, status.code, brief(status.message, 160))


def _failure(address: RemoteAddress, code: int, said: str) -> RemoteFailure:
    """Return the failure that a gRPC status code stands for (grpc.github.io, "Status codes and their use")."""
    text = f"{address}: {_CODES.get(code, f'status {code}')}{f' ({said})' if said else ''}"
    if code == 5:
        return NotThere(text)
    if code == 8:
        return Full(text)
    if code in (7, 12, 16):
        return NotAllowed(text)
    if code == 4:
        return _Slow(text)
    if code in (1, 10):
        return _Anew(text)
    if code in (3, 9, 11):
        return Lied(text)
    return Lost(text)


_CODES = {
    1: "cancelled",
    2: "unknown error",
    3: "refused as invalid",
    4: "no answer in time",
    5: "not there",
    7: "permission denied",
    8: "nothing more is taken",
    9: "refused: something is missing",
    10: "aborted",
    11: "out of range",
    12: "not done by this server",
    13: "internal error",
    14: "cannot be reached",
    15: "data lost",
    16: "not logged in",
}
