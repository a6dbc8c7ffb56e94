"""Sets that go to a registry and come back: a real registry, skopeo beside it, and every way it may go wrong."""

from __future__ import annotations

import hashlib
import json
import subprocess
import threading
from pathlib import Path

import pytest

from elfkiln.cli import main
from elfkiln.errors import Differs, Refused
from elfkiln.models.catalogue import model_requirements
from elfkiln.store.blobs import Store
from elfkiln.store.oci_address import OciAddress
from elfkiln.store.oci_registry import OciRegistry
from elfkiln.store.registry import load_registry
from elfkiln.targets.table import builder_for
from elfkiln.work.asked import asked_by_model
from elfkiln.work.build import build_elfs
from elfkiln.work.gc import collect
from elfkiln.work.lookup import lookup
from elfkiln.work.pull import pull_set
from elfkiln.work.push import push_sets
from elfkiln.work.take_artifact import take_blob
from kilns import copy_kiln, lean_copy
from oci_server import Registry, running_docker_registry, serving
from programs import need_package, need_program
from projects import TINY_NAMES, TINY_RECIPES, TINY_ROLES, make_project


@pytest.fixture(scope="module")
def built(sim_kiln, tmp_path_factory):
    """A project whose tiny model is built for target sim."""
    return copy_kiln(sim_kiln, tmp_path_factory.mktemp("built") / "project")


@pytest.fixture(scope="module")
def lean(sim_kiln, tmp_path_factory):
    """The same with one geometry alone: 4 names, 2 recipes."""
    return lean_copy(sim_kiln, tmp_path_factory.mktemp("lean") / "project")


@pytest.fixture
def fresh(tmp_path):
    """Another checkout of the same project: nothing built, nothing registered."""
    return make_project(tmp_path / "fresh")


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    need_program("docker-registry")
    with running_docker_registry(tmp_path_factory.mktemp("registry")) as host:
        yield host


@pytest.fixture
def memory():
    registry = Registry()
    with serving(registry) as host:
        yield registry, host


@pytest.fixture(scope="module")
def filled(lean):
    registry = Registry()
    with serving(registry) as host:
        push(lean, host)
    return registry


@pytest.fixture
def pushed(filled):
    """A registry in memory that has the lean set."""
    registry = Registry(dict(filled.blobs), dict(filled.manifests))
    with serving(registry) as host:
        yield registry, host


def client(host, repository="team/kernels"):
    address = OciAddress.parse(f"oci://{host}/{repository}")
    return OciRegistry(address, plain_http=True, environment={}, pause=lambda _: None)


def push(project, host):
    return push_sets(project, client(host), [asked_by_model(project, "tiny")])


def entries(project):
    return dict(load_registry(project.registry_file).entries("sim"))


def test_a_set_goes_and_comes_back(built, fresh, real):
    pushed = push(built, real)
    assert pushed.artifacts == TINY_RECIPES
    assert [tag for tag, _ in pushed.tags] == ["tiny-sim"]
    assert pushed.there == 0
    pulled = pull_set(fresh, client(real), "tiny-sim")
    assert (pulled.names, pulled.artifacts) == (TINY_NAMES, TINY_RECIPES)
    assert entries(fresh) == entries(built)
    assert pulled.set_digest == lookup(built, asked_by_model(built, "tiny")).set_digest
    store = Store(fresh.store)
    assert all(store.holds(entry.elf) for entry in entries(fresh).values())
    # What was pulled is what a build would have made: nothing is left to do.
    report = build_elfs(fresh, builder_for(fresh, "sim"), [model_requirements(fresh, "tiny")])
    assert report.built == ()
    assert report.exit_code == 0


def test_a_second_push_sends_nothing_and_a_second_pull_fetches_nothing(lean, fresh, real):
    push(lean, real)
    again = push(lean, real)
    assert (again.sent, again.sent_bytes) == (0, 0)
    pull_set(fresh, client(real), "tiny-sim")
    pulled = pull_set(fresh, client(real), "tiny-sim")
    assert (pulled.blobs, pulled.registered) == (0, ())


@pytest.mark.parametrize("api", [True, False])
def test_a_push_with_nothing_to_send_asks_twice_for_each_recipe(built, memory, api):
    """Once for its tag, once for what refers to it; not for its blobs, which a registry has that has their manifest."""
    state, host = memory
    state.referrers_api = api
    push(built, host)
    state.asked.clear()
    again = push(built, host)
    assert (again.sent, again.there) == (0, len(state.blobs))
    sent = [path for method, path in state.asked if method in ("PUT", "POST")]
    assert sent == ["/v2/team/kernels/manifests/tiny-sim"]
    # And where the API is missing, that is learned within the first few.
    assert len(state.asked) <= 2 * TINY_RECIPES + 1 + (0 if api else 4)


def test_a_recipe_whose_tag_names_something_else_is_pushed_again(lean, memory):
    state, host = memory
    push(lean, host)
    kept = dict(state.manifests)
    first, second = sorted(name for name in kept if name.startswith("recipe-"))[:2]
    state.manifests[first] = kept[second]
    push(lean, host)
    assert state.manifests == kept


def test_by_digest_and_by_the_command_line(lean, fresh, real, capsys):
    words = [f"oci://{real}/team/cli", "--plain-http", "--json"]
    assert main(["push", words[0], "model=tiny", f"root={lean.root}", *words[1:]]) == 0
    tags = json.loads(capsys.readouterr().out)["tags"]
    assert main(["pull", f"{words[0]}@{tags['tiny-sim']}", f"root={fresh.root}", *words[1:]]) == 0
    assert entries(fresh) == entries(lean)
    capsys.readouterr()
    assert main(["pull", words[0], "model=tiny", f"root={fresh.root}", *words[1:]]) == 0
    assert json.loads(capsys.readouterr().out)[0]["blobs_fetched"] == 0


def test_skopeo_reads_what_was_pushed_and_pushes_what_is_pulled(lean, fresh, real, tmp_path):
    skopeo = need_program("skopeo")
    push(lean, real)
    entry = entries(lean)["full_i8_G_K256_N512_b8.elf"]
    source = f"docker://{real}/team/kernels:recipe-{entry.recipe}"
    raw = subprocess.run(
        [skopeo, "inspect", "--raw", "--tls-verify=false", source], capture_output=True, check=True
    ).stdout
    assert hashlib.sha256(raw).hexdigest() == entry.manifest
    place = f"oci:{tmp_path / 'layout'}:it"
    subprocess.run([skopeo, "copy", "--src-tls-verify=false", source, place], check=True, capture_output=True)
    assert (tmp_path / "layout" / "blobs" / "sha256" / entry.elf).read_bytes() == Store(lean.store).read(entry.elf)
    # And back, artifact by artifact, into another repository; the index follows.
    for recipe in {one.recipe for one in entries(lean).values()}:
        tag = f"recipe-{recipe}"
        subprocess.run(
            [skopeo, "copy", "--src-tls-verify=false", "--dest-tls-verify=false",
             f"docker://{real}/team/kernels:{tag}", f"docker://{real}/team/copied:{tag}"],
            check=True, capture_output=True,
        )  # fmt: skip
    data, media = client(real).get_manifest("tiny-sim")
    client(real, "team/copied").put_manifest("tiny-sim", data, media)
    pull_set(fresh, client(real, "team/copied"), "tiny-sim")
    assert entries(fresh) == entries(lean)


def test_oras_reads_what_was_pushed_and_pushes_what_is_pulled(lean, fresh, real, tmp_path):
    oras = need_package("oras.provider").Registry(hostname=real, insecure=True)
    push(lean, real)
    pull_set(fresh, client(real), "tiny-sim")
    known = entries(lean)
    entry = known["full_i8_G_K256_N512_b8.elf"]
    files = oras.pull(target=f"{real}/team/kernels:recipe-{entry.recipe}", outdir=str(tmp_path))
    assert {hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in files} >= {entry.elf, entry.design}
    assert {f"recipe-{one.recipe}" for one in known.values()} < set(oras.get_tags(f"{real}/team/kernels"))
    # And what was pulled goes into another repository by its hands. It would print a manifest anew, so that its bytes
    # and its digest would be others: it sends the bytes.
    store = Store(fresh.store)

    def put(reference, data, media):
        container = oras.get_container(f"{real}/team/by-oras:{reference}")
        url = f"http://{container.manifest_url()}"
        assert oras.do_request(url, "PUT", data=data, headers={"Content-Type": media}).status_code == 201

    for one in known.values():
        table = json.loads(store.read(one.manifest))
        for blob in (table["config"], *table["layers"]):
            path = store.path(blob["digest"].removeprefix("sha256:"))
            assert oras.upload_blob(str(path), f"{real}/team/by-oras:x", blob).status_code in (200, 201)
        put(f"recipe-{one.recipe}", store.read(one.manifest), table["mediaType"])
    put("tiny-sim", *client(real).get_manifest("tiny-sim"))
    second = make_project(tmp_path / "second")
    pull_set(second, client(real, "team/by-oras"), "tiny-sim")
    assert entries(second) == known


def test_a_name_that_has_other_bytes_here_is_refused(lean, fresh, real):
    push(lean, real)
    pull_set(fresh, client(real), "tiny-sim")
    text = fresh.registry_file.read_text()
    elf = entries(fresh)["full_i8_G_K256_N512_b8.elf"].elf
    fresh.registry_file.write_text(text.replace(elf, "0" * 64))
    with pytest.raises(Differs, match=r"full_i8_G_K256_N512_b8\.elf: expected sha256:0000"):
        pull_set(fresh, client(real), "tiny-sim")
    assert "0" * 64 in fresh.registry_file.read_text()


# Lies. Whatever a registry sends, no wrong byte is registered or named.


def damaged(state, change):
    """Let the registry hand out changed bytes for every blob."""

    def lie(method, path):
        data = state.blobs.get(path.rpartition("/")[2])
        if method != "GET" or "/blobs/" not in path or data is None:
            return None
        return lambda handler: handler.answer(200, change(data))

    state.lie = lie


@pytest.mark.parametrize(
    "change",
    [lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda data: data[:-1], lambda data: data + b"x", lambda _: b""],
    ids=["a flipped bit", "short", "long", "empty"],
)
def test_wrong_bytes_of_a_blob_leave_nothing(lean, fresh, pushed, change):
    state, host = pushed
    damaged(state, change)
    with pytest.raises(Differs, match=f"oci://{host}/team/kernels: blob"):
        pull_set(fresh, client(host), "tiny-sim")
    assert not fresh.registry_file.exists()
    assert Store(fresh.store).refs() == {}
    state.lie = None
    pull_set(fresh, client(host), "tiny-sim")
    assert entries(fresh) == entries(lean)


def changed_index(state, change):
    data, media = state.manifests["tiny-sim"]
    table = json.loads(data)
    change(table)
    data = json.dumps(table).encode()
    state.manifests["tiny-sim"] = (data, media)
    state.manifests[f"sha256:{hashlib.sha256(data).hexdigest()}"] = (data, media)


def rows_of(table, number=0):
    return json.loads(table["manifests"][number]["annotations"]["dev.elfkiln.names"])


def set_rows(table, rows, number=0):
    table["manifests"][number]["annotations"]["dev.elfkiln.names"] = json.dumps(rows)


def swap_elves(table):
    first, second = rows_of(table, 0), rows_of(table, 1)
    first[0]["elf"], second[0]["elf"] = second[0]["elf"], first[0]["elf"]
    set_rows(table, first, 0)
    set_rows(table, second, 1)


def rename(table):
    rows = rows_of(table)
    rows[0]["name"] = "full_i8_QKV_K256_N1024_b8.elf"
    set_rows(table, rows)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (swap_elves, "set digest|elf: expected"),
        (rename, "full_i8_QKV_K256_N1024_b8.elf|set digest"),
        (lambda t: t.update(artifactType="application/vnd.other"), "artifactType: expected"),
        (lambda t: t["manifests"].pop(), "set digest: expected"),
        (lambda t: t["annotations"].update({"dev.elfkiln.set-digest": f"sha256:{'0' * 64}"}), "set digest: expected"),
        (lambda t: t["annotations"].update({"dev.elfkiln.target": "npu2"}), "npu2|expected|kind"),
        (lambda t: t["annotations"].update({"dev.elfkiln.target": "tpu"}), "target: expected one of"),
        (lambda t: t.pop("annotations"), "not an index of an elfkiln set"),
        (lambda t: t.update(manifests=[1]), "not an index of an elfkiln set"),
        (lambda t: set_rows(t, [{"name": "../x.elf"}]), "model: expected a name"),
        (lambda t: set_rows(t, [*rows_of(t), *rows_of(t)]), "each name once"),
    ],
)
def test_an_index_that_is_a_lie(fresh, pushed, change, words):
    state, host = pushed
    changed_index(state, change)
    with pytest.raises((Differs, Refused), match=words) as caught:
        pull_set(fresh, client(host), "tiny-sim")
    assert "\n" not in str(caught.value)
    assert not fresh.registry_file.exists()


def test_a_manifest_of_another_recipe_under_a_digest(fresh, pushed):
    state, host = pushed
    digests = sorted(name for name in state.manifests if name.startswith("sha256:"))
    state.manifests[digests[0]], state.manifests[digests[1]] = state.manifests[digests[1]], state.manifests[digests[0]]
    with pytest.raises(Differs, match="as sha256:"):
        pull_set(fresh, client(host), "tiny-sim")


def test_a_server_that_fails_in_the_middle_loses_nothing(lean, fresh, memory):
    state, host = memory
    turns = iter(range(1000))

    def fail(method, path):
        if method == "PUT" and "/blobs/" in path and next(turns) == 7:
            return lambda handler: handler.answer(500)
        return None

    state.lie = fail
    with pytest.raises(Differs, match="status 500"):
        push(lean, host)
    assert "tiny-sim" not in state.manifests
    state.lie = None
    again = push(lean, host)
    assert again.there > 0
    pull_set(fresh, client(host), "tiny-sim")
    assert entries(fresh) == entries(lean)


def test_what_is_not_registered_is_not_pushed(fresh, memory):
    state, host = memory
    with pytest.raises(Differs, match="not registered for target sim; build it with doit elfs model=tiny"):
        push(fresh, host)
    assert state.blobs == {}


def test_a_damaged_blob_here_is_said_before_anything_is_sent(built, tmp_path, memory):
    import shutil

    state, host = memory
    copy = tmp_path / "copy"
    shutil.copytree(built.root, copy)
    project = type(built)(copy)
    entry = entries(project)["full_i8_D_K512_N256_b8.elf"]
    blob = Store(project.store).path(entry.elf)
    blob.chmod(0o644)
    blob.write_bytes(b"other")
    with pytest.raises(Differs, match=f"blob sha256:{entry.elf} is damaged"):
        push(project, host)
    assert state.blobs == {}


@pytest.mark.parametrize("method", ["PUT", "GET"])
def test_several_blobs_go_at_once(lean, fresh, memory, method):
    state, host = memory
    if method == "GET":
        push(lean, host)
    together, turns = threading.Barrier(2), iter(range(1000))

    def meet(asked, path):
        # The first two wait for each other: were they sent one by one, the first would wait in vain.
        if asked == method and "/blobs/" in path and next(turns) < 2:
            together.wait(10)

    state.lie = meet
    if method == "GET":
        pull_set(fresh, client(host), "tiny-sim")
    else:
        push(lean, host)
    assert not together.broken


def test_bytes_that_changed_on_the_disk_are_not_taken(tmp_path):
    """The network was right and said so: what is on the disk is read once more before it bears a name."""

    class Disk:
        def pull_blob(self, _digest, _size, sink):
            sink.write(b"other bytes")

    store = Store(tmp_path)
    digest = hashlib.sha256(b"these bytes").hexdigest()
    with pytest.raises(Differs, match=f"blob sha256:{digest}: arrived whole, and its 11 bytes on the disk have"):
        take_blob(store, Disk(), digest, 11)
    assert not store.holds(digest)
    assert list((tmp_path / "tmp").iterdir()) == []


# Several at once.


def missing_behind(state):
    """Return what a registry's indexes and manifests name and it does not have, at this moment."""
    gone = []
    for name, (data, _) in dict(state.manifests).items():
        table = json.loads(data)
        if name.startswith("sha256-"):
            continue
        parts = [("manifests", one) for one in table.get("manifests", ())]
        parts += [("blobs", one) for one in (*filter(None, [table.get("config")]), *table.get("layers", ()))]
        gone += [f"{name}: {one['digest']}" for kind, one in parts if one["digest"] not in getattr(state, kind)]
    return gone


@pytest.fixture(scope="module")
def part(built):
    """A second model in the same project, which asks for a part of what `tiny` asks for."""
    folder = built.plans / "part"
    folder.mkdir()
    kept = [line for line in TINY_ROLES.splitlines() if "role: D" not in line]
    (folder / "roles.yaml").write_text("\n".join(kept).replace("model: tiny", "model: part") + "\n")
    return asked_by_model(built, "part")


def test_two_pushes_of_one_tag_and_pulls_between_see_one_set_or_the_other(built, part, tmp_path, memory):
    state, host = memory
    failures, holes = [], []

    def look(_method, _path):
        holes.extend(missing_behind(state))

    def work(what):
        try:
            what()
        except BaseException as error:
            failures.append(error)

    sets = [asked_by_model(built, "tiny"), part]
    digests = {lookup(built, one).set_digest for one in sets}
    assert len(digests) == 2
    state.lie = look
    push_sets(built, client(host), sets[:1], tag="it")
    seen = []
    place = make_project(tmp_path / "place")
    jobs = [lambda one=one: push_sets(built, client(host), [one], tag="it") for one in sets * 2]
    jobs += [lambda: seen.append(pull_set(place, client(host), "it").set_digest) for _ in range(3)]
    threads = [threading.Thread(target=work, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    # Meanwhile the store that all pull into names nothing that is not there.
    while any(thread.is_alive() for thread in threads):
        store = Store(place.store)
        for descriptor in store.refs().values():
            table = store.manifest(descriptor)
            holes.extend(one for one in (table["config"], *table["layers"]) if not store.holds(one["digest"][7:]))
    assert failures == []
    assert holes == []
    assert len(seen) == 3
    assert set(seen) <= digests
    assert {entries(place)[key] == entry for key, entry in entries(built).items() if key in entries(place)} == {True}


def test_gc_during_a_pull_takes_nothing_of_it(lean, fresh, pushed):
    """It begins when the first blob has arrived, which nothing names yet, and waits until all is named."""
    state, host = pushed
    blobs, started, freed = iter(range(1000)), [], []

    def begin(method, path):
        if method == "GET" and "/blobs/" in path and next(blobs) == 6:
            started.append(threading.Thread(target=lambda: freed.append(collect(fresh, delete=True, grace=0))))
            started[0].start()

    state.lie = begin
    pull_set(fresh, client(host), "tiny-sim")
    started[0].join(60)
    assert len(freed) == 1
    store = Store(fresh.store)
    assert entries(fresh) == entries(lean)
    for descriptor in store.refs().values():
        table = store.manifest(descriptor)
        assert all(store.holds(one["digest"].removeprefix("sha256:")) for one in (table["config"], *table["layers"]))


def test_two_pushes_and_a_pull_at_once_see_whole_sets(lean, tmp_path, memory):
    _, host = memory
    push(lean, host)
    failures: list[BaseException] = []

    def work(what):
        try:
            what()
        except BaseException as error:
            failures.append(error)

    places = [make_project(tmp_path / f"p{number}") for number in range(3)]
    jobs = [lambda: push(lean, host), lambda: push(lean, host)]
    jobs += [lambda place=place: pull_set(place, client(host), "tiny-sim") for place in places]
    threads = [threading.Thread(target=work, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []
    assert all(entries(place) == entries(lean) for place in places)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["push", "oci://127.0.0.1:1/a"], "takes one of model="),
        (["push", "oci://127.0.0.1:1/a", "model=tiny", "x.elf"], "takes one of model="),
        (["push", "oci://example.org/a", "model=tiny", "--plain-http"], "expected a loopback address"),
        (["push", f"oci://127.0.0.1:1/a@sha256:{'0' * 64}", "model=tiny"], "a digest cannot be chosen"),
        (["pull", "oci://127.0.0.1:1/a"], "takes a tag or digest in the address, or model="),
        (["pull", "http://127.0.0.1:1/a:x"], "address: expected oci://"),
    ],
)
def test_words_that_do_not_fit(project, capsys, words, line):
    assert main([*words, f"root={project.root}"]) == 2
    assert line in capsys.readouterr().err
