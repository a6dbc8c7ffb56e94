"""What a template can see and reach: the values of its family, and files of its folder."""

from __future__ import annotations

import pytest

from elfkiln.errors import Refused
from elfkiln.families.family import Program, _rendered


def rendered(root, text, **values):
    (root / "templates").mkdir(exist_ok=True)
    (root / "templates" / "one.j2").write_text(text)
    return _rendered(root, Program("one.j2", values, ())).text


def test_a_template_sees_its_values(tmp_path):
    assert rendered(
        tmp_path, "x = {{ x }}\n{% for n in rows %}\ny{{ n }} = {{ n }}\n{% endfor %}\n", x=1, rows=(2, 3)
    ) == ("x = 1\ny2 = 2\ny3 = 3\n")


@pytest.mark.parametrize(
    "text",
    [
        "x = {{ y }}\n",
        "x = {{ range(3) }}\n",
        "x = {{ lipsum() }}\n",
        "x = {{ cycler(1) }}\n",
        "x = {{ x.__class__ }}\n",
        "x = {{ x.__class__.__mro__[1].__subclasses__() }}\n",
        "x = {{ ''.__class__ }}\n",
        "x = {{ rows.append(1) }}\n",
        "x = {{ self.__init__.__globals__ }}\n",
    ],
)
def test_a_template_sees_nothing_else(tmp_path, text):
    with pytest.raises(Refused, match=r"templates/one\.j2: does not render"):
        rendered(tmp_path, text, x=1, rows=[2])


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "sub/../../secret"])
def test_a_template_s_name_cannot_leave_the_folder(tmp_path, name):
    (tmp_path / "secret").write_text("x = 1\n")
    with pytest.raises(Refused, match="missing; restore it"):
        rendered(tmp_path, f"{{% include '{name}' %}}\n")


def test_a_link_out_of_the_folder_is_not_followed(tmp_path):
    (tmp_path / "secret").write_text("x = 1\n")
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "inner.j2").symlink_to(tmp_path / "secret")
    with pytest.raises(Refused, match=r"templates/inner\.j2: expected a file below templates/, found a link"):
        rendered(tmp_path, "{% include 'inner.j2' %}\n")
    (tmp_path / "templates" / "real").write_text("x = 1\n")
    (tmp_path / "templates" / "inner.j2").unlink()
    (tmp_path / "templates" / "inner.j2").symlink_to("real")
    assert rendered(tmp_path, "{% include 'inner.j2' %}\n") == "x = 1\n"
