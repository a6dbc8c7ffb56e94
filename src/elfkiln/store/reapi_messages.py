"""Messages of the Remote Execution API v2, of its ByteStream and its operations, as far as elfkiln speaks them.

The numbers and types of fields are the interface (github.com/bazelbuild/remote-apis, `remote_execution.proto`, and
google/bytestream, google/longrunning, google/rpc of googleapis). Fields that are not named here are passed over when
they arrive. Messages are made from this table when the first is asked for, so that nothing is generated and nothing of
gRPC is needed to import this.
"""

from __future__ import annotations

from functools import cache
from typing import Any

# Message: field number type, `*` for repeated. An enum is a number on the wire, and here.
TABLE = """
Digest: hash 1 string, size_bytes 2 int64
Property: name 1 string, value 2 string
Platform: properties 1 Property*
Duration: seconds 1 int64, nanos 2 int32
Any: type_url 1 string, value 2 bytes
Status: code 1 int32, message 2 string, details 3 Any*
Action: command_digest 1 Digest, input_root_digest 2 Digest, timeout 6 Duration, do_not_cache 7 bool, \
platform 10 Platform
EnvironmentVariable: name 1 string, value 2 string
Command: arguments 1 string*, environment_variables 2 EnvironmentVariable*, output_files 3 string*, \
platform 5 Platform, output_paths 7 string*
FileNode: name 1 string, digest 2 Digest, is_executable 4 bool
DirectoryNode: name 1 string, digest 2 Digest
SymlinkNode: name 1 string, target 2 string
Directory: files 1 FileNode*, directories 2 DirectoryNode*, symlinks 3 SymlinkNode*
OutputFile: path 1 string, digest 2 Digest, is_executable 4 bool, contents 5 bytes
ExecutedActionMetadata: worker 1 string
ActionResult: output_files 2 OutputFile*, exit_code 4 int32, stdout_raw 5 bytes, stdout_digest 6 Digest, \
stderr_raw 7 bytes, stderr_digest 8 Digest, execution_metadata 9 ExecutedActionMetadata
GetCapabilitiesRequest: instance_name 1 string
ActionCacheUpdateCapabilities: update_enabled 1 bool
CacheCapabilities: digest_functions 1 int32*, action_cache_update_capabilities 2 ActionCacheUpdateCapabilities, \
max_batch_total_size_bytes 4 int64
ExecutionCapabilities: digest_function 1 int32, exec_enabled 2 bool, digest_functions 5 int32*
ServerCapabilities: cache_capabilities 1 CacheCapabilities, execution_capabilities 2 ExecutionCapabilities
GetActionResultRequest: instance_name 1 string, action_digest 2 Digest, inline_stderr 4 bool, digest_function 6 int32
UpdateActionResultRequest: instance_name 1 string, action_digest 2 Digest, action_result 3 ActionResult, \
digest_function 5 int32
ExecuteRequest: instance_name 1 string, skip_cache_lookup 3 bool, action_digest 6 Digest, digest_function 9 int32
WaitExecutionRequest: name 1 string
ExecuteResponse: result 1 ActionResult, cached_result 2 bool, status 3 Status, message 5 string
Operation: name 1 string, metadata 2 Any, done 3 bool, error 4 Status, response 5 Any
FindMissingBlobsRequest: instance_name 1 string, blob_digests 2 Digest*, digest_function 3 int32
FindMissingBlobsResponse: missing_blob_digests 2 Digest*
UpdateRequest: digest 1 Digest, data 2 bytes
BatchUpdateBlobsRequest: instance_name 1 string, requests 2 UpdateRequest*, digest_function 5 int32
UpdateResponse: digest 1 Digest, status 2 Status
BatchUpdateBlobsResponse: responses 1 UpdateResponse*
ReadRequest: resource_name 1 string, read_offset 2 int64, read_limit 3 int64
ReadResponse: data 10 bytes
WriteRequest: resource_name 1 string, write_offset 2 int64, finish_write 3 bool, data 10 bytes
WriteResponse: committed_size 1 int64
"""

PACKAGE = "elfkiln.reapi"
SHA256 = 1
"""`DigestFunction.SHA256`."""

V2 = "/build.bazel.remote.execution.v2."
# Method: path, request, answer, and how the two stream.
METHODS = {
    "GetCapabilities": (f"{V2}Capabilities/", "GetCapabilitiesRequest", "ServerCapabilities", "unary_unary"),
    "GetActionResult": (f"{V2}ActionCache/", "GetActionResultRequest", "ActionResult", "unary_unary"),
    "UpdateActionResult": (f"{V2}ActionCache/", "UpdateActionResultRequest", "ActionResult", "unary_unary"),
    "FindMissingBlobs": (
        f"{V2}ContentAddressableStorage/",
        "FindMissingBlobsRequest",
        "FindMissingBlobsResponse",
        "unary_unary",
    ),
    "BatchUpdateBlobs": (
        f"{V2}ContentAddressableStorage/",
        "BatchUpdateBlobsRequest",
        "BatchUpdateBlobsResponse",
        "unary_unary",
    ),
    "Execute": (f"{V2}Execution/", "ExecuteRequest", "Operation", "unary_stream"),
    "WaitExecution": (f"{V2}Execution/", "WaitExecutionRequest", "Operation", "unary_stream"),
    "Read": ("/google.bytestream.ByteStream/", "ReadRequest", "ReadResponse", "unary_stream"),
    "Write": ("/google.bytestream.ByteStream/", "WriteRequest", "WriteResponse", "stream_unary"),
}


def message(name: str, /, **fields: Any) -> Any:
    """Return a message of the table with these fields set; `KeyError` for a name that is not in it."""
    return message_classes()[name](**fields)


def encoded(one: Any) -> bytes:
    """Return the bytes of a message in the one order that a digest can be taken of."""
    data: bytes = one.SerializeToString(deterministic=True)
    return data


@cache
def message_classes() -> dict[str, Any]:
    """Return the class of every message by name. Needs the package protobuf."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field_type = descriptor_pb2.FieldDescriptorProto
    scalars = {
        "string": field_type.TYPE_STRING,
        "bytes": field_type.TYPE_BYTES,
        "bool": field_type.TYPE_BOOL,
        "int32": field_type.TYPE_INT32,
        "int64": field_type.TYPE_INT64,
    }
    file = descriptor_pb2.FileDescriptorProto(name="elfkiln_reapi.proto", package=PACKAGE, syntax="proto3")
    for name, fields in rows():
        described = file.message_type.add(name=name)
        for field, number, kind, repeated in fields:
            label = field_type.LABEL_REPEATED if repeated else field_type.LABEL_OPTIONAL
            scalar = scalars.get(kind)
            if scalar is not None:
                described.field.add(name=field, number=number, type=scalar, label=label)
            else:
                described.field.add(
                    name=field,
                    number=number,
                    type=field_type.TYPE_MESSAGE,
                    type_name=f".{PACKAGE}.{kind}",
                    label=label,
                )
    # A pool of its own: other packages may bring the real files, under the same names.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name, _ in rows()
    }


def rows() -> list[tuple[str, list[tuple[str, int, str, bool]]]]:
    """Return the table: each message with its fields as (name, number, type, whether repeated)."""
    found = []
    for line in TABLE.strip().splitlines():
        name, _, rest = line.partition(": ")
        fields = [tuple(text.split(" ")) for text in rest.split(", ")]
        found.append((name, [(f, int(number), kind.rstrip("*"), kind.endswith("*")) for f, number, kind in fields]))
    return found
