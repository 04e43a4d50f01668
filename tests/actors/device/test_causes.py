"""Causes are what the adb server says, and are explained."""

import pathlib

import pytest

from actors.device.causes import Cause, of_refusal, of_state
from actors.phone.faults import FAULTS, Faults

DOCS = pathlib.Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("device 'emulator-6554' not found", Cause.GONE),
        ("device offline", Cause.OFFLINE),
        ("device still connecting", Cause.OFFLINE),
        ("device unauthorized.\nThis adb server's $ADB_VENDOR_KEYS is not set", Cause.UNAUTHORIZED),
        ("device still authorizing", Cause.UNAUTHORIZED),
        ("closed", Cause.CUT),
    ],
)
def test_a_refusal_has_a_cause(said, cause):
    assert of_refusal(said) is cause


def test_a_state_has_a_cause():
    states = ("", "offline", "unauthorized", "recovery")
    assert [of_state(s) for s in states] == ["gone", "offline", "unauthorized", "not_ready"]


def test_each_cause_is_explained():
    text = (DOCS / "failures.md").read_text()
    assert [cause for cause in Cause if f"| `{cause}` |" not in text] == []


@pytest.mark.parametrize("switches", ["nope=1", "anr=2", "anr=x"])
def test_a_switch_that_is_unknown_is_refused(switches):
    with pytest.raises(ValueError, match=r"no fault|must be from 0 to 1|could not convert"):
        Faults(switches)


def test_faults_repeat_with_their_seed():
    first, second, other = (Faults("cut=0.3", seed) for seed in (1, 1, 2))
    draws = [[faults.hit("cut") for _ in range(50)] for faults in (first, second, other)]
    assert draws[0] == draws[1] != draws[2]
    assert first.counts["cut"] == sum(draws[0])
    assert not any(Faults("").hit(name) for name in FAULTS)
