"""Every verb of `elfkiln`: what it takes, says and is called as a doit task. Data alone: nothing of a verb is imported.

The command line, dodo.py, `--help`, shell completion and docs/reference are all made from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elfkiln.cli.arguments import Spec

ROOT = {"root": "the elfkiln checkout (default: the nearest one upwards)"}
MODEL = {"model": "a model below plans/, or all"}
ROLES = {"roles": "known, or any: also take a plan whose layers have a role that is not known (default: known)"}
PLAN = {"plan": "a plan.json, or a model folder with one, instead of model="} | ROLES
LAYOUT = {"layout": "rm, b8, ... (default: the model's own)"}
# The names of the table of targets; a test holds the two together.
TARGET_WORDS = "npu2 or sim"
TARGET = {"target": f"{TARGET_WORDS} (default: default_target of toolchain.lock)"}
VOCABULARY = {"vocab": "rows of the lm_head (default: a published run's; 0: none)"}
EXPERTS = {"experts": "how often a layer's MLP runs for a token: the chosen experts of a mixture (default: 1)"}
PLAIN_HTTP = {"--plain-http": "speak http instead of https; for a registry on this machine only"}
SIGNED = {"policy": "a policy file: every ELF must be signed as it says (docs/trust.md)"}
REQUIRE_SIGNED = {"--require-signed": "insist on policy= (which insists by itself, too)"}
MIRROR = {"mirror": "fetch from oci://HOST/REPO, several with commas (default: mirrors: of registry.yaml)"}
FETCH = {"--fetch": "fetch what is registered and missing in the store from a mirror first"} | PLAIN_HTTP
REMOTE = {"remote": "grpc://HOST:PORT[/INSTANCE], a cache and workers of the Remote Execution API (docs/remote.md)"}
SET = MODEL | PLAN | LAYOUT | TARGET


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: the module below elfkiln.cli that runs it, one line of help, what it takes, and examples.

    `differs` says what exit code 1 means, "" for a verb that has none. `tasks` are the doit tasks that run it, by name,
    each with the words it puts first (default: one task of the verb's own name).
    """

    module: str
    help: str
    spec: Spec
    examples: tuple[str, ...]
    differs: str = ""
    tasks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


VERBS: dict[str, Verb] = {
    "elfs": Verb(
        "elfs",
        "build, check and register every ELF a model asks for",
        Spec(
            keys=SET
            | MIRROR
            | REMOTE
            | {"policy": "what comes from a mirror must be signed as this policy file says"}
            | ROOT,
            valued={
                "-n": "how many recipes are built at once (default: the number of processors)",
                "--local": "with remote=: how many may be compiled here at once (default: the number of processors)",
            },
            flags={
                "--rebuild": "build also what is up to date and compare the bytes with the registry",
                "--no-substitute": "build everything here, whatever a mirror has",
                "--fill": "with remote=: put what is compiled here into its cache",
                "--must-hit": "build nothing: what neither the store nor a mirror has is a failure",
                "--dry-run": "say what would be built and why, and build nothing",
                "--fail-fast": "end the build at the first failure (-k: go on with the others, which is the default)",
                "-k": "go on with the others when one fails (the default)",
            }
            | PLAIN_HTTP,
            words=("NAME",),
            optional_words=1,
        ),
        (
            "elfs model=bonsai2-27b",
            "elfs model=bonsai2-27b layout=rm -n 2",
            "elfs model=bonsai2-27b --dry-run",
            "elfs plan=/srv/models/bonsai",
            "elfs model=bonsai2-27b mirror=oci://registry.example/kernels --must-hit",
        ),
        "a name could not be built",
    ),
    "check-missing": Verb(
        "check_missing",
        "say which ELFs of a model are missing or have other bytes than registered",
        Spec(
            keys=SET
            | {
                "dir": "a model folder, walked on disk as the engine does (with plan=: default the plan's own)",
                "kernels": "with plan=: the engine's --kernels directory",
            }
            | SIGNED
            | MIRROR
            | ROOT,
            flags=REQUIRE_SIGNED | FETCH,
        ),
        ("check-missing model=bonsai2-27b", "check-missing model=all", "check-missing plan=/srv/models/bonsai"),
        "a name is missing or has other bytes",
    ),
    "lookup": Verb(
        "lookup",
        "print digest, size and recipe of a model's names, of a plan's layers, or of names that fit a pattern",
        Spec(keys=SET | ROOT, words=("NAME-OR-PATTERN",), optional_words=1),
        ("lookup model=bonsai2-27b", "lookup plan=/srv/models/bonsai --json", "lookup 'full_i8_QKV_*'"),
        "a name is not registered",
    ),
    "install": Verb(
        "install",
        "link or copy a model's ELFs into kernels/ and kernels-m16/ of a folder, with kernels.lock.json",
        Spec(
            keys=SET | SIGNED | MIRROR | {"dir": "the model folder to install into"} | ROOT,
            flags=REQUIRE_SIGNED | FETCH,
        ),
        ("install model=bonsai2-27b dir=/srv/models/bonsai",),
        "the set is not whole; nothing was installed",
    ),
    "resolve": Verb(
        "resolve",
        "say which file the engine would open for a name, which it would pass over, and why",
        Spec(
            keys=SET
            | {"dir": "the model folder (default: the plan's)", "kernels": "the engine's --kernels directory"}
            | ROOT,
            words=("NAME",),
        ),
        ("resolve full_i8_QKV_K5120_N14336_b8_m16.elf plan=/srv/models/bonsai",),
        "the engine would find no file",
    ),
    "explain": Verb(
        "explain",
        "say why a name would be rebuilt: which input changed against the nearest known recipe",
        Spec(keys=TARGET | REMOTE | ROOT, words=("NAME",)),
        (
            "explain full_i8_QKV_K5120_N14336_b8.elf",
            "explain full_i8_QKV_K5120_N14336_b8.elf remote=grpc://127.0.0.1:50071",
        ),
        "the name would be built",
    ),
    "log": Verb(
        "log",
        "show what the tools said when a name was built, or when that failed; without a name: the generations",
        Spec(keys=TARGET | ROOT, words=("NAME",), optional_words=1),
        ("log full_i8_QKV_K5120_N14336_b8.elf", "log"),
        "there is no log: the name was not built here",
    ),
    "verify": Verb(
        "verify",
        "run every ELF of a model at full size and compare each int32 with numpy",
        Spec(
            keys=SET | ROOT | {"on": "device: run the registered ELFs on the NPU itself (docs/device.md)"},
            valued={"-n": "how many geometries run at once (default: the number of processors)"},
            flags={"--quiet": "print only what failed and the closing line"},
        ),
        (
            "verify model=qwen3-0.6b",
            "verify model=bonsai2-27b layout=rm --quiet",
            "verify model=bonsai2-27b target=npu2 on=device",
        ),
        "a comparison failed",
    ),
    "reproduce": Verb(
        "reproduce",
        "rebuild in a fresh folder under other conditions, compare every byte with the registry, name what differs",
        Spec(
            keys=SET | ROOT,
            valued={"-n": "how many recipes are built at once (default: one more than there are processors)"},
            flags={"--take": "take what came out the same into the store, as a build would"},
            words=("NAME",),
            optional_words=1,
        ),
        ("reproduce model=bonsai2-27b", "reproduce full_i8_QKV_K5120_N14336_b8.elf", "reproduce model=all -n 4"),
        "something differs, or nothing was rebuilt",
    ),
    "bench": Verb(
        "bench",
        "time a model's registered ELFs on the NPU, each only if it is right, beside the predicted times",
        Spec(
            keys=SET
            | ROOT
            | {
                "pmode": "the power mode the device must be in: performance, turbo, ... (default: any, and recorded)",
                "iterations": "timed runs of each (default: 50)",
                "warmup": "runs before them that are not counted (default: 10)",
            },
        ),
        ("bench model=bonsai2-27b target=npu2", "bench model=bonsai2-27b target=npu2 pmode=performance --json"),
        "an ELF is wrong or could not be run",
    ),
    "report": Verb(
        "report",
        "report launches, weight bytes per token and layout, and the predicted device wait of a decode step",
        Spec(keys=MODEL | PLAN | VOCABULARY | EXPERTS | TARGET | ROOT),
        ("report model=bonsai2-27b", "report model=qwen3.6-35b-a3b experts=8"),
    ),
    "predict": Verb(
        "predict",
        "predict the time of a design, or of a model's token, from the design alone (nothing is measured)",
        Spec(
            keys=MODEL | PLAN | LAYOUT | VOCABULARY | EXPERTS | TARGET | ROOT,
            flags={"--validate": "hold the model of time against published points"},
            valued={
                "--compare": "a second DESIGN.mlir, or another layout of model=",
                "--baseline": "fail when a predicted time rises by more than 2 % over this file's, or binds elsewhere",
                "--write-baseline": "write the predicted times to this file",
            },
            words=("NAME.elf|DESIGN.mlir",),
            optional_words=1,
        ),
        ("predict model=bonsai2-27b --compare rm", "predict full_i8_QKV_K5120_N14336_b8.elf", "predict --validate"),
        "a predicted time rose over the baseline",
    ),
    "draw": Verb(
        "draw",
        "draw a design as SVG: the array, its taps and one step's predicted time",
        Spec(
            keys={"out": "the file to write (default: standard output)"} | TARGET | ROOT,
            words=("NAME.elf|DESIGN.mlir",),
        ),
        ("draw full_i8_QKV_K5120_N14336_b8.elf out=qkv.svg",),
    ),
    "site": Verb(
        "site",
        "write the catalogue, a static site of names, models, recipes, designs and docs/, to a folder",
        Spec(keys={"out": "the folder to write, one of its own (default: out/site)"} | ROOT),
        ("site", "site out=/srv/www/kernels"),
    ),
    "plan": Verb(
        "plan",
        "write the plan.json of a model folder, or the role table of a config.json; or check the one there is",
        Spec(
            keys={
                "dir": "the model folder, instead of MODELDIR",
                "layout": "rm, b8, pb16i or t2s, where container and config.json do not tell",
                "tag": "the family of a t2s container: _t2s or _t2s2",
                "decode": "false: without the 16-row twins (default: true)",
                "name": "with --from-config: the model's name in the table (default: the folder's)",
            },
            valued={
                "--from-config": "a config.json, or its folder, of a model without a container: make a role table",
                "--kernels": "the engine's kernel directory: what it holds decides fused or split, and batched experts",
                "--out": "the file to write or check (default: plan.json in the model folder; a role table is printed)",
            },
            flags={
                "--check": "generate again and compare; exit 1 and name the fields on any difference",
                "--print": "print the plan instead of writing it",
            },
            words=("MODELDIR",),
            optional_words=1,
        ),
        (
            "plan /srv/models/bonsai",
            "plan /srv/models/bonsai --check",
            "plan dir=/srv/models/bonsai --print",
            "plan --from-config /srv/hf/Qwen3-8B --out plans/qwen3-8b/roles.yaml",
        ),
        "with --check: the plan is missing, or not what the model folder gives",
    ),
    "diff": Verb(
        "diff",
        "compare what two plans or models ask for, or two generations have: names gained, lost and changed",
        Spec(keys=TARGET | ROOT | ROLES, words=("PLAN1|GEN1", "PLAN2|GEN2")),
        ("diff bonsai2-27b bonsai2-27b-pb16i", "diff old/plan.json new/plan.json", "diff 3 7"),
        "they differ",
    ),
    "design": Verb(
        "design",
        "run an IRON generator without the real aie package and print its design as generic MLIR",
        Spec(words=("FILE.py",)),
        ("design my_gemm.py > my_gemm.mlir",),
    ),
    "lint": Verb(
        "lint",
        "check a design (generic MLIR) against the array's limits and the tools' known traps",
        Spec(keys={"target": f"{TARGET_WORDS} (default: npu2)"}, words=("DESIGN.mlir",)),
        ("lint my_gemm.mlir", "lint my_gemm.mlir target=sim --json"),
        "a finding is an error",
    ),
    "inspect": Verb(
        "inspect",
        "say what an ELF is, what it exports and computes, whether that is what its name says, and what is attested",
        Spec(
            keys={
                "name": "the artifact name (or pb16i_sealed.elf) to compare with (default: the file's, if it is one)",
                "target": f"{TARGET_WORDS}: an ELF of another target is a fault",
            }
            | ROOT,
            words=("FILE|NAME",),
        ),
        (
            "inspect kernels/full_i8_QKV_K5120_N14336_b8.elf",
            "inspect a.elf name=full_i8_D_K512_N256_b8.elf target=npu2",
        ),
        "the file is not an artifact, or not the one its name says",
    ),
    "keygen": Verb(
        "keygen",
        "make an ed25519 signing key: FILE (mode 0600) and FILE.pub",
        Spec(flags={"--passphrase": "ask for a passphrase on the terminal"}, words=("FILE",)),
        ("keygen ~/.config/elfkiln/ci.key",),
    ),
    "sign": Verb(
        "sign",
        "sign the provenance and test results of a model's ELFs, or of registered names; or vouch for an installed set",
        Spec(
            keys=SET
            | {
                "dir": "a model folder: verify its files and sign kernels.lock.json, for an engine's policy",
                "key": "the private key's file (default: the PEM in ELFKILN_SIGNING_KEY)",
                "identity": "instead of a key: ambient, or a file with an OpenID Connect token (docs/trust.md)",
                "trust": "with identity=: the client trust config of the sigstore that makes the bundles",
            }
            | ROOT,
            words=("NAME-OR-PATTERN",),
            optional_words=1,
        ),
        (
            "sign model=bonsai2-27b key=ci.key",
            "sign model=bonsai2-27b identity=ambient trust=sigstore.json",
            "sign dir=models/bonsai2-27b key=ci.key",
        ),
    ),
    "attestations": Verb(
        "attestations",
        "show the provenance, test results and signatures of registered names",
        Spec(keys=SET | ROOT, words=("NAME-OR-PATTERN",), optional_words=1),
        ("attestations model=bonsai2-27b", "attestations full_i8_G_K5120_N17408_b8.elf --json"),
    ),
    "sbom": Verb(
        "sbom",
        "print the bill of materials of a model's ELFs (CycloneDX JSON): inputs, toolchain, packages, by digest",
        Spec(keys={"out": "the file to write (default: standard output)"} | SET | ROOT),
        ("sbom model=bonsai2-27b", "sbom model=qwen3-0.6b out=qwen3.cdx.json"),
        "a name is not registered",
    ),
    "push": Verb(
        "push",
        "send a model's artifacts, or registered names, to an OCI registry",
        Spec(
            keys=SET | ROOT,
            flags=PLAIN_HTTP,
            words=("oci://HOST/REPO[:TAG]", "NAME-OR-PATTERN"),
            optional_words=1,
        ),
        (
            "push oci://registry.example/kernels model=bonsai2-27b",
            "push oci://registry.example/kernels 'full_*'",
        ),
    ),
    "pull": Verb(
        "pull",
        "bring a set that was pushed to an OCI registry into the store, and register its names",
        Spec(
            keys=MODEL | LAYOUT | TARGET | SIGNED | ROOT,
            flags=PLAIN_HTTP | REQUIRE_SIGNED,
            words=("oci://HOST/REPO[:TAG]",),
        ),
        ("pull oci://registry.example/kernels:bonsai2-27b-npu2", "pull oci://registry.example/kernels model=qwen3-4b"),
    ),
    "export": Verb(
        "export",
        "write a model's set to one file (an OCI archive), for machines without a network",
        Spec(keys=SET | ROOT, words=("FILE.tar",)),
        ("export bonsai.tar model=bonsai2-27b",),
    ),
    "import": Verb(
        "import_sets",
        "take the sets of an exported file into the store, and register their names",
        Spec(keys=SIGNED | ROOT, flags=REQUIRE_SIGNED, words=("FILE.tar",)),
        ("import bonsai.tar",),
    ),
    "fsck": Verb(
        "fsck",
        "hash every blob and check store, registry.yaml and install folders against each other; --repair mends",
        Spec(
            keys={
                "dir": "an install folder to check as well (those this checkout installed into are known)",
            }
            | MIRROR
            | ROOT,
            flags={"--repair": "move damaged blobs aside, and fetch or build them anew"} | PLAIN_HTTP,
        ),
        ("fsck", "fsck dir=/srv/models/bonsai", "fsck --repair mirror=oci://registry.example/kernels"),
        "something is corrupt; 3 something is missing; 4 something is unreferenced, and that is all",
    ),
    "gc": Verb(
        "gc",
        "say what no registry.yaml of now or lately, plan, mirror or running build reaches; --delete frees it",
        Spec(
            keys=ROOT,
            valued={
                "--keep": "generations of registry.yaml whose artifacts are kept (default: 10)",
                "--grace": "seconds for which what is new is left alone (default: 3600)",
            },
            flags={
                "--delete": "free it (default: a dry run)",
                "--damaged": "with --delete: also what fsck has set aside",
            },
        ),
        ("gc", "gc --json", "gc --delete --keep 3"),
    ),
    "generations": Verb(
        "generations",
        "list what registry.yaml was after each run that changed it",
        Spec(keys=ROOT),
        ("generations", "generations --json"),
        "a generation is damaged",
    ),
    "rollback": Verb(
        "rollback",
        "make registry.yaml what it was in a generation; that is a generation itself",
        Spec(keys=ROOT, words=("GEN",)),
        ("rollback 7",),
        "the store lacks what some of its names stand for",
    ),
    "registry": Verb(
        "registry",
        "check registry.yaml by itself, and that no name left it or changed its bytes without a reason (ACTION: check)",
        Spec(
            keys=ROOT,
            valued={"--against": "the earlier registry.yaml: a file, or a git revision of the checkout"},
            words=("ACTION",),
        ),
        ("registry check", "registry check --against origin/main", "registry check --against v1.0 --json"),
        "a name was dropped or has other facts without a reason",
    ),
    "list": Verb(
        "list_models",
        "list the models, their layout, and how many of their names are registered",
        Spec(keys=TARGET | ROOT),
        ("list",),
        # doit keeps `list` for its own tasks.
        tasks={"models": ()},
    ),
    "toolchain": Verb(
        "toolchain",
        "install, show, mirror or bump the pinned toolchains (ACTION: install, status, mirror, bump)",
        Spec(
            keys=TARGET
            | ROOT
            | {
                "wheels": "install, mirror: a folder of wheels, to do without a network; bump: files, or a folder",
                "aiebu-asm": "bump: this machine's program of that name, which no wheel holds, to pin",
                "out": "bump: the file the candidate lock is written to",
            },
            flags={
                "--overwrite": "bump: out= may exist, and may be toolchain.lock itself",
                "--build": "bump: build every registered name under the candidate, register nothing, compare the bytes",
            },
            words=("ACTION",),
        ),
        ("toolchain status", "toolchain install target=npu2", "toolchain bump wheels=new/ out=candidate.lock"),
        "status target=...: that target is not usable",
        tasks={"toolchain": ("install",), "toolchain-status": ("status",), "toolchain-mirror": ("mirror",)},
    ),
    "kv-gate": Verb(
        "kv_gate",
        "measure what an int8 key cache does to attention weights, with and without rotation",
        Spec(
            keys={
                "seed": "seed of the synthetic vectors (default: 0)",
                "outliers": "outlier channels of 256 (default: 4)",
                "block": "size of the Hadamard blocks (default: 256, the whole head)",
            },
        ),
        ("kv-gate", "kv-gate seed=7 block=64"),
        "the published shape does not come out",
    ),
    "compare-runs": Verb(
        "compare_runs",
        "compare the greedy texts and timings of two engine logs",
        Spec(
            valued={"--tol": "percent by which B may be slower than A"},
            flags={
                "--texts": "compare texts alone; timings are not judged",
                "--self-test": "run the gate on built-in logs and say whether it judges them rightly",
            },
            words=("A.log", "B.log"),
            optional_words=2,
            paired={"--control": "two more logs of A's build: how far they lie apart is what B may be slower than A"},
        ),
        ("compare-runs a.log b.log --tol 2", "compare-runs a.log b.log --control a2.log a3.log"),
        "a text differs, or a timing is worse than allowed",
    ),
    "cross-check": Verb(
        "cross_check",
        "compare published geometry tables with what the engine derives from published dimensions",
        Spec(keys={"model": "one published model (default: all)"}),
        ("cross-check", "cross-check model=qwen3-4b"),
        "a published row contradicts the derivation",
    ),
    "doctor": Verb(
        "doctor",
        "say whether this machine can build, check and run, and what to do where it cannot",
        Spec(keys=ROOT),
        ("doctor", "doctor --json"),
        "something is wrong",
    ),
    "completion": Verb(
        "completion",
        "print the completion script of a shell: bash, zsh or fish",
        Spec(words=("SHELL",)),
        ("completion bash", "completion fish"),
    ),
}
