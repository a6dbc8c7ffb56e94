"""Children without network: what the system allows is used, in the order of its cost, and what it does not is said."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import replace

import pytest

from elfkiln.io import keeper, sandbox
from elfkiln.io.child import GIB, MIB, ChildStopped, Limits, run_child
from programs import need_program

LIMITS = Limits(seconds=60, cpu_seconds=60, memory_bytes=GIB, file_bytes=64 * MIB)
CALL = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5); print('reached')"


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def unasked():
    """The way is found out anew, and again afterwards."""
    for cached in (sandbox.way, sandbox.say_what_is_not_forbidden):
        cached.cache_clear()
    yield
    for cached in (sandbox.way, sandbox.say_what_is_not_forbidden):
        cached.cache_clear()


def call(port, folder, **limits):
    program = [sys.executable, "-c", CALL, str(port)]
    return run_child(program, name="caller", cwd=folder, environment={}, limits=replace(LIMITS, **limits))


def need_a_way():
    if sandbox.way().kind == sandbox.NONE:
        if os.environ.get("ELFKILN_TEST_PROGRAMS"):
            pytest.fail(sandbox.way().reason)
        pytest.skip(f"this system does not forbid the network: {sandbox.way().reason}")


def test_a_child_without_network_reaches_not_even_this_machine(port, tmp_path):
    need_a_way()
    assert call(port, tmp_path).out == "reached\n"
    done = call(port, tmp_path, offline=True)
    assert done.exit_code == 1
    assert "Network is unreachable" in done.err


@pytest.mark.usefixtures("unasked")
def test_bubblewrap_serves_where_namespaces_are_not_allowed(port, tmp_path, monkeypatch):
    need_program("bwrap")
    honest = sandbox._refusal
    monkeypatch.setattr(sandbox, "_refusal", lambda way: "not here" if way.kind == sandbox.NAMESPACE else honest(way))
    assert (sandbox.way().kind, sandbox.way().reason) == (sandbox.BUBBLEWRAP, "not here")
    done = call(port, tmp_path, offline=True)
    assert done.exit_code == 1
    # bubblewrap gives it a loopback of its own, on which nobody listens.
    assert "Connection refused" in done.err
    # Folder, streams and exit code are those of the program itself.
    program = [sys.executable, "-c", "import os, sys; print(os.getcwd(), dict(os.environ).get('A')); sys.exit(3)"]
    done = run_child(program, name="p", cwd=tmp_path, environment={"A": "1"}, limits=replace(LIMITS, offline=True))
    assert (done.exit_code, done.out, done.argv[0]) == (3, f"{tmp_path} 1\n", os.path.abspath(sys.executable))


@pytest.mark.usefixtures("unasked")
def test_where_nothing_works_children_run_and_it_is_said_once(port, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sandbox, "_refusal", lambda _: "this system says no")
    assert call(port, tmp_path, offline=True).out == "reached\n"
    for _ in range(2):
        sandbox.say_what_is_not_forbidden()
    said = capsys.readouterr().err
    assert said.count("not kept from the network: this system says no") == 1
    assert "docs/security.md" in said


@pytest.mark.usefixtures("unasked")
def test_nothing_is_said_where_the_network_is_forbidden(capsys):
    need_a_way()
    sandbox.say_what_is_not_forbidden()
    assert capsys.readouterr().err == ""


def test_a_user_without_rights_stays_who_he_is():
    """Leaves the network in a forked process that is nobody in particular, and looks from there."""
    if os.getuid() and sandbox.way().kind != sandbox.NAMESPACE:
        pytest.skip("this system lets no user make namespaces")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            before = os.getuid(), os.getgid()
            keeper.leave_network()
            interfaces = [name for _, name in socket.if_nameindex()]
            os.write(writer, repr((before == (os.getuid(), os.getgid()), interfaces)).encode())
        except OSError as error:
            os.write(writer, f"refused: {error.strerror}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as stream:
        told = stream.read().decode()
    os.waitpid(child, 0)
    assert told == "(True, ['lo'])" or told.startswith("refused: ")


def test_files_in_the_folder_and_open_files_are_bounded(tmp_path):
    many = "import time\nfor n in range(300): open(f'{n}', 'w').close()\ntime.sleep(60)"
    with pytest.raises(ChildStopped, match="made more than 100 files in its folder and was killed"):
        run_child(
            [sys.executable, "-c", many],
            name="maker",
            cwd=tmp_path,
            environment={},
            limits=replace(LIMITS, folder_bytes=GIB, folder_files=100),
        )
    opened = "import os\nfiles = [os.dup(0) for _ in range(200)]"
    done = run_child(
        [sys.executable, "-c", opened], name="o", cwd=tmp_path, environment={}, limits=replace(LIMITS, open_files=64)
    )
    assert done.exit_code == 1
    assert "Too many open files" in done.err
