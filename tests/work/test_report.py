"""The decode report against figures worked out by hand and the published ones."""

from __future__ import annotations

import pytest

from elfkiln.cli import main
from elfkiln.errors import Refused
from elfkiln.models.catalogue import model_requirements
from elfkiln.project import Project
from elfkiln.work.report import decode_report, rate_of
from projects import CHECKOUT


@pytest.fixture(scope="module")
def bonsai():
    wanted = model_requirements(Project(CHECKOUT), "bonsai2-27b")
    return decode_report(wanted, hidden=5120, layers=64, vocabulary=None)


def test_launches_are_the_published_ones(bonsai):
    # 48 GDN layers of 6 GEMMs and 16 full-attention layers of 5.
    assert bonsai.launches == 48 * 6 + 16 * 5 == 368
    by_role = {role.role: role.launches for role in bonsai.roles}
    assert by_role == {"QKV": 64, "O": 64, "G": 64, "U": 64, "D": 64, "Z": 48}


def test_bytes_by_role(bonsai):
    bytes_of = {role.role: role.int8_bytes for role in bonsai.roles}
    assert bytes_of["QKV"] == 16 * 5120 * 14336 + 48 * 5120 * 10240
    assert bytes_of["Z"] == 48 * 5120 * 6144
    # The published per-phase gigabytes: G and U together 11.409, D 5.704, QKV 3.691, O 2.013, Z 1.510.
    assert round((bytes_of["G"] + bytes_of["U"]) / 1e9, 3) == 11.409
    assert [round(bytes_of[role] / 1e9, 3) for role in ("D", "QKV", "O", "Z")] == [5.704, 3.691, 2.013, 1.510]


def test_weight_bytes_a_token(bonsai):
    rm, b8, pb16i = bonsai.layouts
    assert (rm.layout, b8.layout, pb16i.layout) == ("rm", "b8", "pb16i")
    assert rm.layer_bytes == b8.layer_bytes == 48 * 382_730_240 + 16 * 372_244_480
    assert rm.head_bytes == 248320 * 5120
    assert round((b8.layer_bytes + b8.head_bytes) / 1e9, 2) == 25.60
    assert pb16i.layer_bytes * 4 == b8.layer_bytes


def test_predicted_wait_is_within_five_percent_of_the_published_one(bonsai):
    rm, b8, pb16i = bonsai.layouts
    assert rm.seconds == pytest.approx(8.01, rel=0.05)
    assert b8.seconds == pytest.approx(3.32, rel=0.05)
    assert (rm.published, b8.published, pb16i.published) == (8.01, 3.32, None)
    # By hand: 11.409/8.13 + 5.704/8.25 + 3.691/8.15 + 2.013/8.15 + 1.510/8.36 = 2.975 s; 368 launches of 0.55 ms;
    # the head 1.271/8.13.
    assert b8.seconds == pytest.approx(2.975 + 368 * 0.55e-3 + 0.1564, abs=0.002)
    assert pb16i.predicted_only
    assert not b8.predicted_only
    # A quarter of the layer bytes, the same overhead and head.
    assert pb16i.seconds == pytest.approx(2.975 / 4 + 368 * 0.55e-3 + 0.1564, abs=0.002)


def test_the_text_marks_the_prediction_and_states_the_formula(bonsai):
    text = bonsai.text()
    assert "368 (published 368)" in text
    assert "a prediction: nothing is published" in text
    assert "predicted s = sum(role bytes / published phase rate) + launches * 0.55 ms" in text


def test_another_model_has_nothing_published():
    wanted = model_requirements(Project(CHECKOUT), "qwen3-0.6b")
    report = decode_report(wanted, hidden=1024, layers=28, vocabulary=151936)
    # The published weight bytes of Qwen3-0.6B: QKV 112, O 56, GU 168, D 84 MiB.
    assert {role.role: role.int8_bytes / 2**20 for role in report.roles} == {"QKV": 112, "O": 56, "GU": 168, "D": 84}
    assert all(cost.published is None and cost.error is None for cost in report.layouts)


def test_a_model_that_only_has_the_same_width_and_depth_is_credited_with_nothing():
    wanted = model_requirements(Project(CHECKOUT), "qwen3-0.6b")
    other = decode_report(wanted, hidden=5120, layers=64, vocabulary=None)
    assert (other.run, other.vocabulary) == (None, 0)
    assert all(cost.published is None for cost in other.layouts)
    assert "published 368" not in other.text()


@pytest.mark.parametrize("vocabulary", [0, 152064])
def test_published_times_are_compared_with_the_head_they_had(vocabulary):
    wanted = model_requirements(Project(CHECKOUT), "bonsai2-27b")
    report = decode_report(wanted, hidden=5120, layers=64, vocabulary=vocabulary)
    assert all(cost.published is None for cost in report.layouts)
    assert report.layouts[1].head_bytes == vocabulary * 5120


def test_a_mixture_runs_its_mlp_once_per_chosen_expert():
    wanted = model_requirements(Project(CHECKOUT), "qwen3.6-35b-a3b")
    one, eight = (decode_report(wanted, hidden=2048, layers=40, vocabulary=0, experts=count) for count in (1, 8))
    launches = {role.role: role.launches for role in eight.roles}
    assert (launches["G"], launches["U"], launches["D"], launches["O"]) == (320, 320, 320, 40)
    # 40 layers, 8 of 256 experts, three matrices of 2048 x 512 each.
    mlp = sum(role.int8_bytes for role in eight.roles if role.role in "GUD")
    assert mlp == 40 * 8 * 3 * 2048 * 512
    assert "give experts=" in one.text()
    assert "run 8 times a layer" in eight.text()


def test_rates():
    assert rate_of("U", "b8") == pytest.approx(8.13e9)
    assert rate_of("Z", "rm") == pytest.approx(3.44e9)
    assert rate_of("PLEGATE", "rm") == pytest.approx((3.32 + 3.19 + 3.35 + 3.19 + 3.44) / 5 * 1e9)


def test_refusals_and_the_verb(capsys, monkeypatch):
    wanted = model_requirements(Project(CHECKOUT), "qwen3-0.6b")
    with pytest.raises(Refused, match="vocab: expected 0 or more rows, found -1"):
        decode_report(wanted, hidden=1024, layers=28, vocabulary=-1)

    # The model of time has tests of its own, and tests/cli/test_json.py has its figures in a report.
    def refuse(*_, **__):
        raise Refused("a design that cannot be followed")

    monkeypatch.setattr("elfkiln.work.predict_token.predict_model", refuse)
    assert main(["report", f"root={CHECKOUT}", "model=bonsai2-27b"]) == 0
    out = capsys.readouterr().out
    assert "launches without the head: 368 (published 368)" in out
    assert out.endswith("\n  a design that cannot be followed\n")
    assert main(["report", f"root={CHECKOUT}", "model=bonsai2-27b", "vocab=many"]) == 2
    assert "vocab=many" in capsys.readouterr().err
