"""A server of the Remote Execution API in this process, which fails and lies on demand.

It executes nothing: what an action comes to is in `outcomes`, by the action's digest, and its output in `made`.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from elfkiln.store import reapi_messages as wire
from programs import need_package


@dataclass
class FakeRemote:
    """What the server has and does. `lie` maps a method's name to a function (request, context) that answers instead.

    It may return None to have the true answer given.
    """

    blobs: dict[str, bytes] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    outcomes: dict[str, Any] = field(default_factory=dict)
    made: dict[str, bytes] = field(default_factory=dict)
    executes: bool = True
    takes_results: bool = True
    lie: dict[str, Callable[[Any, Any], Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def digest(self, data: bytes) -> Any:
        return wire.message("Digest", hash=hashlib.sha256(data).hexdigest(), size_bytes=len(data))

    def get_capabilities(self, _request, _context):
        cache = wire.message("CacheCapabilities", digest_functions=[wire.SHA256])
        cache.action_cache_update_capabilities.update_enabled = self.takes_results
        execution = wire.message("ExecutionCapabilities", digest_function=wire.SHA256, exec_enabled=self.executes)
        return wire.message("ServerCapabilities", cache_capabilities=cache, execution_capabilities=execution)

    def get_action_result(self, request, context):
        found = self.results.get(request.action_digest.hash)
        if found is None:
            context.abort(status("NOT_FOUND"), "no result")
        return found

    def update_action_result(self, request, _context):
        self.results[request.action_digest.hash] = request.action_result
        return request.action_result

    def find_missing_blobs(self, request, _context):
        gone = [one for one in request.blob_digests if one.hash not in self.blobs]
        return wire.message("FindMissingBlobsResponse", missing_blob_digests=gone)

    def batch_update_blobs(self, request, _context):
        answers = []
        for one in request.requests:
            assert hashlib.sha256(one.data).hexdigest() == one.digest.hash
            self.blobs[one.digest.hash] = one.data
            answers.append(wire.message("UpdateResponse", digest=one.digest))
        return wire.message("BatchUpdateBlobsResponse", responses=answers)

    def execute(self, request, _context):
        name = request.action_digest.hash
        # As a real one: what the action rests on has to be there.
        action = wire.message("Action")
        action.ParseFromString(self.blobs[name])
        assert action.command_digest.hash in self.blobs
        assert action.input_root_digest.hash in self.blobs
        self.results[name] = self.outcomes[name]
        for one in self.outcomes[name].output_files:
            self.blobs[one.digest.hash] = self.made[one.digest.hash]
        yield wire.message("Operation", name=f"operations/{name}")
        yield self.done(name, self.outcomes[name])

    def wait_execution(self, request, _context):
        name = request.name.rpartition("/")[2]
        yield self.done(name, self.outcomes[name])

    def done(self, name: str, result: Any) -> Any:
        answer = wire.encoded(wire.message("ExecuteResponse", result=result))
        return wire.message(
            "Operation", name=f"operations/{name}", done=True, response=wire.message("Any", value=answer)
        )

    def read(self, request, context):
        data = self.blobs.get(request.resource_name.split("/")[-2])
        if data is None:
            context.abort(status("NOT_FOUND"), "no such blob")
        for start in range(0, len(data), 1 << 16):
            yield wire.message("ReadResponse", data=data[start : start + (1 << 16)])

    def write(self, requests, _context):
        data, name = b"", ""
        for one in requests:
            name = name or one.resource_name
            data += one.data
        self.blobs[name.split("/")[-2]] = data
        return wire.message("WriteResponse", committed_size=len(data))


def status(name: str) -> Any:
    """Return a gRPC status code by its name."""
    return getattr(need_package("grpc").StatusCode, name)


def aborting(name: str, text: str = "told to") -> Callable[[Any, Any], Any]:
    """Return a lie that ends a call with a status."""
    return lambda _request, context: context.abort(status(name), text)


@contextlib.contextmanager
def serving_remote(state: FakeRemote) -> Iterator[str]:
    """Serve on loopback and yield the address."""
    grpc = need_package("grpc")
    handlers: dict[str, dict[str, Any]] = {}
    classes = wire.message_classes()
    for method, (path, request, _, kind) in wire.METHODS.items():
        maker = getattr(grpc, f"{kind}_rpc_method_handler")
        handlers.setdefault(path.strip("/"), {})[method] = maker(
            _answering(state, method, streams=kind == "unary_stream"),
            request_deserializer=classes[request].FromString,
            response_serializer=wire.encoded,
        )
    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers(
        tuple(grpc.method_handlers_generic_handler(service, own) for service, own in handlers.items())
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc://127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def _answering(state: FakeRemote, method: str, *, streams: bool) -> Callable[[Any, Any], Any]:
    own = getattr(state, "".join(f"_{c.lower()}" if c.isupper() else c for c in method).lstrip("_"))

    def truth(request, context):
        state.asked.append(method)
        state.headers.append(dict(context.invocation_metadata()))
        lie = state.lie.get(method)
        return (lie(request, context) if lie else None) or own(request, context)

    def stream(request, context):
        yield from truth(request, context)

    return stream if streams else truth
