"""`elfkiln completion SHELL`: the completion script of a shell, and what it completes a command line with.

The scripts hold no words of their own: they ask `elfkiln completion candidates WORD ...` at each press of the key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.verbs import TARGET_WORDS, VERBS
from elfkiln.errors import EXIT_DONE, one_of, refusal
from elfkiln.project import REGISTRY_FILE, find_root, models_below

BASH = """\
# elfkiln: completion for bash. Put it to use with: eval "$(elfkiln completion bash)"
_elfkiln() {
    local line=${COMP_LINE:0:COMP_POINT} words last
    # Bash ends a word at `=`; elfkiln does not.
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    last=${words[-1]}
    mapfile -t COMPREPLY < <(elfkiln completion candidates "${words[@]:1}" 2>/dev/null)
    [[ $last == *=* ]] && COMPREPLY=("${COMPREPLY[@]#"${last%%=*}="}")
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[=/] ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -F _elfkiln elfkiln
"""
ZSH = """\
#compdef elfkiln
# elfkiln: completion for zsh. Put it to use with: eval "$(elfkiln completion zsh)"
_elfkiln() {
    local -a found
    found=("${(@f)$(elfkiln completion candidates "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    compadd -Q -S '' -- ${(M)found:#*[=/]}
    compadd -Q -- ${found:#*[=/]}
}
compdef _elfkiln elfkiln
"""
FISH = """\
# elfkiln: completion for fish. Put it to use with: elfkiln completion fish | source
function __elfkiln_candidates
    set -l words (commandline -opc) (commandline -ct)
    elfkiln completion candidates $words[2..-1] 2>/dev/null
end
complete -c elfkiln -f -a '(__elfkiln_candidates)'
"""
SCRIPTS: Mapping[str, str] = {"bash": BASH, "fish": FISH, "zsh": ZSH}
# Keys whose values are files or folders, and those of few words.
_PATH_KEYS = frozenset({"plan", "dir", "root", "kernels", "out", "wheels", "key", "policy", "identity", "trust"})
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "target": tuple(TARGET_WORDS.split(" or ")),
    "layout": ("b8", "pb16i", "rm", "t2s"),
    "roles": ("any", "known"),
    "decode": ("false", "true"),
}
_ACTIONS: Mapping[str, tuple[str, ...]] = {
    "toolchain": ("bump", "install", "mirror", "status"),
    "completion": tuple(SCRIPTS),
}
_NAME_VERBS = frozenset({"elfs", "lookup", "resolve", "explain", "attestations", "sign", "predict", "draw"})
_KEY = re.compile(r"^    (?:\? )?(\S+\.elf):?$", re.MULTILINE)


def run(arguments: Arguments) -> int:
    """Print the script of a shell."""
    shell = arguments.words[0]
    if shell not in SCRIPTS:
        raise refusal("completion", expected=one_of(shell, SCRIPTS), found=shell)
    if arguments.json:
        # Not at the top: at each press of the key only candidates are asked for.
        from elfkiln.cli.common import print_json

        print_json({"shell": shell, "script": SCRIPTS[shell]})
    else:
        print(SCRIPTS[shell], end="")
    return EXIT_DONE


def candidates(words: list[str], start: str = os.curdir) -> list[str]:
    """Return what the last word (the one being typed, maybe empty) may become, after those before it.

    >>> candidates(["ver"])
    ['verify']
    >>> candidates(["elfs", "--re"])
    ['--rebuild']
    >>> candidates(["check-missing", "target=s"])
    ['target=sim']
    """
    before, last = words[:-1], words[-1] if words else ""
    if not before:
        return [verb for verb in sorted(VERBS) if verb.startswith(last)]
    verb = VERBS.get(before[0])
    if verb is None:
        return []
    spec = verb.spec
    if before[-1] in (*spec.valued, *spec.paired) and before[-1] != "-n":
        return _paths(last)
    if last.startswith("-"):
        return _fitting(last, (*spec.flags, *spec.valued, *spec.paired, "--json", "--help"))
    key, equals, value = last.partition("=")
    if equals:
        return [f"{key}={found}" for found in _values(key, value, start)] if key in spec.keys else []
    given = {word.partition("=")[0] for word in before if "=" in word}
    keys = _fitting(last, (f"{name}=" for name in spec.keys if name not in given))
    return keys + (_words(before[0], last, start) if spec.words else [])


def _fitting(start: str, words: Iterable[str]) -> list[str]:
    return sorted({word for word in words if word.startswith(start)})


def _values(key: str, value: str, start: str) -> list[str]:
    if key in _PATH_KEYS:
        return _paths(value)
    if key == "model":
        return _fitting(value, ("all", *_models(start)))
    return _fitting(value, _CHOICES.get(key, ()))


def _words(verb: str, last: str, start: str) -> list[str]:
    if verb in _ACTIONS:
        return _fitting(last, _ACTIONS[verb])
    found = _paths(last) if last or verb not in _NAME_VERBS else []
    if verb == "diff":
        found = _fitting(last, _models(start)) + found
    if verb in _NAME_VERBS:
        found = _fitting(last, _registered(start)) + found
    return found


def _models(start: str) -> list[str]:
    root = find_root(start)
    return models_below(root) if root is not None else []


def _registered(start: str) -> list[str]:
    """Return the names of registry.yaml, found by their form: a key press is not a time to parse all of it."""
    root = find_root(start)
    try:
        with open(os.path.join(root or os.curdir, REGISTRY_FILE), encoding="utf-8") as stream:
            return _KEY.findall(stream.read(1 << 24))
    except (OSError, ValueError):
        return []


def _paths(start: str) -> list[str]:
    """Return the files and folders whose path begins like this; folders end in `/`."""
    folder, name = os.path.split(start)
    try:
        entries = sorted(os.listdir(os.path.expanduser(folder) or os.curdir))
    except OSError:
        return []
    found = [os.path.join(folder, one) for one in entries if one.startswith(name) and (name or one[0] != ".")]
    return [f"{path}/" if os.path.isdir(os.path.expanduser(path)) else path for path in found]
