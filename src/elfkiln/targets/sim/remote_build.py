"""Builds sim ELFs with a shared cache and remote workers: looked up first, then compiled there or here.

Whatever a server answers or fails to, the outcome is an ELF that was compiled here, one that is the registered one, or
one that the server's word stands for where the caller takes that. Objects stay on the server: what enters the local
cache of objects was compiled here.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from elfkiln.errors import ElfkilnError, brief
from elfkiln.io.canonical import canonical_json, sha256_hex
from elfkiln.io.files import write_atomic
from elfkiln.io.locking import free_lock
from elfkiln.io.terminal import tell
from elfkiln.store import reapi
from elfkiln.store.reapi import Failed, Full, Lied, Lost, NotAllowed, NotThere, RemoteFailure
from elfkiln.targets.sim import remote_actions
from elfkiln.targets.sim.compiler import Compiler
from elfkiln.targets.sim.make_elf import ELF_NAME, SimUnits
from elfkiln.targets.sim.remote_actions import Blob, RemoteAction, compile_action, link_action, output_of, result_of
from elfkiln.targets.sim.sim_elf import read_sim_elf
from elfkiln.targets.sim.zig_toolchain import SimToolchain
from elfkiln.targets.target import RemoteAnswer, RemoteCounts, RemoteSpec, RemoteStep

PATIENCE = remote_actions.SECONDS + 60.0
"""Seconds after which an execution is given up: what an action may take, and as long as it may wait for a worker."""


@dataclass
class RemoteBuild:
    """The remote of one run: its client, what it was found unable to do, and what came of it.

    Safe to use from several threads.
    """

    spec: RemoteSpec
    toolchain: SimToolchain
    cache: Path
    counts: RemoteCounts = field(default_factory=RemoteCounts)
    _client: reapi.RemoteClient | None = None
    _capabilities: reapi.Capabilities | None = None
    _off: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def client(self) -> reapi.RemoteClient:
        """The client, made at its first use; raises `Refused` where gRPC is not installed."""
        with self._lock:
            if self._client is None:
                self._client = reapi.RemoteClient(reapi.RemoteAddress.parse(self.spec.address))
            return self._client

    def take_counts(self) -> RemoteCounts:
        """Return what was counted since the last time."""
        with self._lock:
            counts, self.counts = self.counts, RemoteCounts()
        return counts

    # One ELF.

    def elf(self, name: str, recipe: str, design: str, units: SimUnits, compiler: Compiler) -> Path:
        """Return the ELF of a recipe in the compiler's folder: from the cache, made there, or made here.

        `design` is the sha256 of the design's text, `name` the design's own, for what `explain` compares. Raises what
        compiling here raises.
        """
        actions = [compile_action(self.toolchain, unit) for unit in units.units]
        expected = self.spec.expected.get(recipe)
        data = None
        if "all" not in self._off and (expected is not None or not self.spec.only_registered):
            data = self._from_remote(name, expected, design, units, actions, compiler)
        if data is not None:
            path = compiler.workdir / ELF_NAME
            write_atomic(path, data, scratch=compiler.workdir)
            return path
        return self._here(name, expected, units, actions, compiler)

    def _from_remote(
        self,
        name: str,
        expected: str | None,
        design: str,
        units: SimUnits,
        actions: Sequence[RemoteAction],
        compiler: Compiler,
    ) -> bytes | None:
        try:
            executes = self._executes()
            known = self._known_objects(actions)
            data, how = self._linked(known, units), "cached"
            if data is None and executes:
                with self._local_slot() as free:
                    if free:
                        # Held while it is compiled here.
                        return self._here_bytes(name, expected, units, actions, compiler)
                data, how = self._executed(actions, known, units), "executed"
            if data is None:
                return None
            self._check(data, expected, design)
        except RemoteFailure as error:
            self._failed(error)
            return None
        for action in actions:
            self._remember(name, action)
        compiler.log += f"remote: {how}\n"
        self._count(how)
        return data

    def _known_objects(self, actions: Sequence[RemoteAction]) -> list[Blob | None]:
        with ThreadPoolExecutor(len(actions)) as pool:
            return list(pool.map(self._known, actions))

    def _known(self, action: RemoteAction) -> Blob | None:
        """Return the output that the cache has for an action; a result of another exit code or without it is none."""
        result = self.client.result(action.action.digest, action.action.size)
        if result is None or result.exit_code:
            return None
        return output_of(action, result)

    def _linked(self, objects: Sequence[Blob | None], units: SimUnits) -> bytes | None:
        """Return the ELF that the cache has for these objects, None when it has none, or has lost its bytes."""
        if any(one is None for one in objects):
            return None
        found = self._known(link_action(self.toolchain, [one for one in objects if one], units.exports))
        try:
            return None if found is None else self.client.read(found.digest, found.size)
        except (NotThere, Lied) as error:
            # A result whose output is not there, or is something else, is as good as none.
            self._failed(error)
            return None

    def _executed(self, actions: Sequence[RemoteAction], known: Sequence[Blob | None], units: SimUnits) -> bytes | None:
        """Return the ELF, with everything executed there that the cache does not have; None where that is not done."""
        client = self.client
        gone = client.missing((one.digest, one.size) for one in known if one is not None)

        def run(pair: tuple[RemoteAction, Blob | None]) -> Blob:
            action, found = pair
            if found is None or found.digest in gone:
                return self._run(action, skip_cache=found is not None)
            return found

        with ThreadPoolExecutor(len(actions)) as pool:
            objects = list(pool.map(run, zip(actions, known, strict=True)))
        # What the cache says of the link was no answer, or there would be nothing to execute.
        made = self._run(link_action(self.toolchain, objects, units.exports), skip_cache=True)
        return client.read(made.digest, made.size)

    def _run(self, action: RemoteAction, *, skip_cache: bool) -> Blob:
        client = self.client
        assert self._capabilities is not None
        client.upload(action.blobs, self._capabilities.most_batch)
        result = client.execute(action.action.digest, action.action.size, PATIENCE, skip_cache=skip_cache)
        if result.exit_code:
            said = brief(result.stderr_raw.decode("utf-8", "replace").strip().partition("\n")[0], 160)
            if result.exit_code == remote_actions.WRONG_ZIG:
                said = f"a worker whose zig is not the one of toolchain.lock{f' ({said})' if said else ''}"
            raise Failed(
                f"{self.spec.address}: {action.name}: exit code {result.exit_code}{f': {said}' if said else ''}"
            )
        made = output_of(action, result)
        if made is None:
            raise Lied(f"{self.spec.address}: {action.name}: it ended with exit code 0 and without {action.output}")
        return made

    def _check(self, data: bytes, expected: str | None, design: str) -> None:
        """Raise `Lied` unless an ELF is the registered one, or at least one of this design for this processor."""
        found = sha256_hex(data)
        if expected is not None and found != expected:
            raise Lied(
                f"{self.spec.address}: expected the ELF sha256:{expected[:12]} (registry.yaml), it made or kept "
                f"sha256:{found[:12]}"
            )
        try:
            info = read_sim_elf(data)
        except ElfkilnError as error:
            raise Lied(f"{self.spec.address}: {error}") from error
        if (info.design, info.cpu) != (design, self.toolchain.cpu):
            raise Lied(f"{self.spec.address}: an ELF of design sha256:{info.design[:12]}, not of sha256:{design[:12]}")

    # Here.

    def _here(
        self, name: str, expected: str | None, units: SimUnits, actions: Sequence[RemoteAction], compiler: Compiler
    ) -> Path:
        objects = compiler.compile_all(units.units)
        path = compiler.link(objects, units.exports, ELF_NAME)
        self._count("here")
        if self.spec.fill and not self._off & {"all", "fill"}:
            data = path.read_bytes()
            # What is not the registered ELF is about to be refused, and is nothing to share.
            if expected is None or sha256_hex(data) == expected:
                self._fill(name, units, actions, objects, data)
        return path

    def _here_bytes(
        self, name: str, expected: str | None, units: SimUnits, actions: Sequence[RemoteAction], compiler: Compiler
    ) -> bytes:
        return self._here(name, expected, units, actions, compiler).read_bytes()

    def _fill(
        self,
        name: str,
        units: SimUnits,
        actions: Sequence[RemoteAction],
        objects: Sequence[bytes],
        elf: bytes,
    ) -> None:
        """Put what was compiled here into the cache: the blobs first, and each result after its blobs."""
        try:
            self._executes()
            link = link_action(self.toolchain, [Blob.of(data) for data in objects], units.exports)
            for action, output in zip((*actions, link), (*objects, elf), strict=True):
                result, blob = result_of(action, output)
                assert self._capabilities is not None
                self.client.upload({**action.blobs, blob.digest: output}, self._capabilities.most_batch)
                self.client.keep_result(action.action.digest, action.action.size, result)
                self._remember(name, action)
            self._count("filled")
        except NotAllowed as error:
            self._turn_off("fill", f"{error}; its cache is not filled")
        except RemoteFailure as error:
            self._failed(error)

    # What it can do.

    def _executes(self) -> bool:
        """Whether actions are executed there; asks what the server does, once."""
        with self._lock:
            known = self._capabilities
        if known is None:
            known = self.client.capabilities()
            with self._lock:
                self._capabilities = known
            if self.spec.fill and not known.takes_results:
                self._turn_off("fill", f"{self.spec.address}: takes no results from clients; its cache is not filled")
        return known.executes and "executions" not in self._off

    def _failed(self, error: RemoteFailure) -> None:
        """Say what went wrong, and decide what is not tried again in this run."""
        self._count("failed")
        if isinstance(error, Full):
            self._turn_off("executions", f"{error}; nothing more is sent there, the rest is compiled here")
            self._turn_off("fill", "")
        elif isinstance(error, (Lost, NotAllowed)):
            self._turn_off("all", f"{error}; the rest is compiled here")
        else:
            tell(f"elfkiln: remote {error}; compiled here")

    def _turn_off(self, what: str, line: str) -> None:
        with self._lock:
            new = what not in self._off
            self._off.add(what)
        if new and line:
            tell(f"elfkiln: remote {line}")

    @contextlib.contextmanager
    def _local_slot(self) -> Iterator[bool]:
        """Hold one of the places for compiles here, if one is free, and say so; all processes share them."""
        with contextlib.ExitStack() as stack:
            for number in range(self.spec.local):
                if stack.enter_context(free_lock(self.spec.locks / f"compile-{number}.lock")):
                    yield True
                    return
            yield False

    def _count(self, what: str) -> None:
        with self._lock:
            setattr(self.counts, what, getattr(self.counts, what) + 1)

    # What explain compares with.

    def _remember(self, name: str, action: RemoteAction) -> None:
        table = {"action": action.action.digest, "facts": dict(action.facts)}
        # It only helps to explain.
        with contextlib.suppress(ElfkilnError, OSError):
            write_atomic(self._note(name, action), canonical_json(table))

    def _note(self, name: str, action: RemoteAction) -> Path:
        return self.cache / "remote" / f"{sha256_hex(f'{self.spec.address} {name} {action.name}'.encode())}.json"

    def _remembered(self, name: str, action: RemoteAction) -> tuple[str, Mapping[str, str]] | None:
        try:
            table = json.loads(self._note(name, action).read_bytes())
            return str(table["action"]), {str(key): str(value) for key, value in table["facts"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def explain(self, name: str, units: SimUnits) -> RemoteAnswer:
        """Return for each compile and the link what the cache has for it, and why not where it has nothing."""
        actions = [compile_action(self.toolchain, unit) for unit in units.units]
        try:
            does = self.client.capabilities()
        except Lost as error:
            # Nobody is there, so nobody is asked again for each step.
            names = [*(action.name for action in actions), "link"]
            return RemoteAnswer(tuple(RemoteStep(one, None, "failed", str(error)) for one in names), refused=str(error))
        except RemoteFailure as error:
            # Some servers say nothing of themselves, and answer all the same.
            return RemoteAnswer(self._steps(name, actions, units), refused=str(error))
        return RemoteAnswer(self._steps(name, actions, units), does.executes, does.takes_results)

    def _steps(self, name: str, actions: Sequence[RemoteAction], units: SimUnits) -> tuple[RemoteStep, ...]:
        steps: list[RemoteStep] = []
        objects: list[Blob | None] = []
        for action in actions:
            step, blob = self._explained(name, action)
            steps.append(step)
            objects.append(blob)
        if all(objects):
            link = link_action(self.toolchain, [one for one in objects if one], units.exports)
            steps.append(self._explained(name, link)[0])
        else:
            missed = ", ".join(step.step for step, one in zip(steps, objects, strict=True) if one is None)
            steps.append(RemoteStep("link", None, "miss", f"its objects are not known: {missed}"))
        return tuple(steps)

    def _explained(self, name: str, action: RemoteAction) -> tuple[RemoteStep, Blob | None]:
        def step(state: str, why: str = "", changes: Sequence[tuple[str, str, str]] = ()) -> RemoteStep:
            return RemoteStep(action.name, action.action.digest, state, why, tuple(changes))

        try:
            result = self.client.result(action.action.digest, action.action.size)
            if result is None:
                return self._miss(name, action, step), None
            if result.exit_code:
                return step("miss", f"it has a result with exit code {result.exit_code}"), None
            made = output_of(action, result)
            if made is None:
                return step("miss", f"it has a result without {action.output}"), None
            if self.client.missing([(made.digest, made.size)]):
                return step("miss", f"it has a result, and has dropped its output sha256:{made.digest}"), None
        except RemoteFailure as error:
            return step("failed", str(error)), None
        return step("hit"), made

    def _miss(self, name: str, action: RemoteAction, step: Callable[..., RemoteStep]) -> RemoteStep:
        known = self._remembered(name, action)
        if known is not None and known[0] != action.action.digest:
            before, now = known[1], action.facts
            keys = dict.fromkeys((*now, *before))
            changes = [
                (key, before.get(key, "absent"), now.get(key, "absent"))
                for key in keys
                if before.get(key) != now.get(key)
            ]
            named = ", ".join(key for key, _, _ in changes[:3])
            why = f"it is another action than the last one that was known there: {named or 'its command'} changed"
            return step("miss", why, changes)
        if known is not None:
            return step("miss", "this action was known there: the cache has dropped it")
        size = action.action.size
        if not self.client.missing([(action.action.digest, size)]):
            return step("miss", "the action was sent there, and has no result")
        why = "nobody has filled or executed this action, and no earlier one is known here"
        return step("miss", f"{why}: {self._new_there(action)}")

    def _new_there(self, action: RemoteAction) -> str:
        """Return what the server itself tells of an action it does not know: which parts of it it has never seen.

        What others built from is in its store, by digest: a part that is not there is what differs from all of theirs.
        """
        sizes = {one.digest: one.size for one in (action.command, *action.inputs.values())}
        gone = self.client.missing(sizes.items())
        inputs = [name for name, one in action.inputs.items() if one.digest in gone]
        named = f"{', '.join(inputs[:3])}{f' and {len(inputs) - 3} more' if len(inputs) > 3 else ''}"
        if inputs and len(inputs) == len(action.inputs):
            return f"the server has none of its inputs ({named})"
        if inputs:
            return f"of its {len(action.inputs)} inputs the server lacks {named}: it was never built from these bytes"
        if action.command.digest in gone:
            return "the server has all its inputs, and not its command: others build with another zig or other flags"
        return "the server has all its inputs and its command, but never had them together"
