"""The digest of a set of files is what coreutils make of it."""

import hashlib
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elfkiln.errors import Refused
from elfkiln.models.set_digest import set_digest


def test_the_set_digest_is_what_coreutils_print(tmp_path):
    entries = []
    for name, data in (("kernels/b.elf", b"two"), ("kernels/a.elf", b"one"), ("c.elf", b"two")):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)
        entries.append((name, hashlib.sha256(data).hexdigest()))
    assert shutil.which("sha256sum")
    command = "sha256sum kernels/b.elf c.elf kernels/a.elf | LC_ALL=C sort | sha256sum"
    printed = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert set_digest(entries) == printed.split()[0]


DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)


@settings(deadline=None)
@given(st.dictionaries(st.text("abc/.", min_size=1).filter(lambda text: text[0] != "/"), DIGESTS), st.randoms())
def test_the_set_digest_knows_no_order_and_no_repeats(files, random):
    entries = list(files.items())
    shuffled = entries + entries[:1]
    random.shuffle(shuffled)
    assert set_digest(shuffled) == set_digest(entries)


def test_the_set_digest_tells_names_and_bytes_apart():
    one, two = "1" * 64, "2" * 64
    sets = [(("a", one), ("b", two)), (("a", two), ("b", one)), (("a", one),), (("a", one), ("c", two)), ()]
    assert len({set_digest(entries) for entries in sets}) == len(sets)


@pytest.mark.parametrize(
    "entries",
    [
        [("a", "1" * 63)],
        [("a", "G" * 64)],
        [("a", "")],
        [("/a", "1" * 64)],
        [("", "1" * 64)],
        [("a\nb", "1" * 64)],
        [("a\\b", "1" * 64)],
        [("a", "1" * 64), ("a", "2" * 64)],
    ],
)
def test_a_set_that_has_no_clear_digest_is_refused(entries):
    with pytest.raises(Refused):
        set_digest(entries)
