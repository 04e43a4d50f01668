"""What has been delivered is known, in bounded memory, and over restarts."""

import numpy as np

from learner import ledger as ledger_module
from learner.ledger import EpisodeId, Ledger, Seen


def test_seen_agrees_with_a_set_over_many_numbers():
    rng, seen, twin = np.random.default_rng(0), Seen(), set()
    for base in range(5000):
        number = max(0, base + int(rng.integers(-20, 20)))
        assert (number in seen) == (number in twin)
        seen.add(number)
        twin.add(number)


def test_a_gap_costs_bounded_memory():
    seen = Seen()
    for number in range(1, 10_000):  # 0 was refused
        assert number not in seen
        seen.add(number)
        assert len(seen.ahead) <= ledger_module.MAX_AHEAD
    assert all(number in seen for number in range(1, 10_000))


def test_a_ledger_survives_as_bytes():
    rng, ledger, twin = np.random.default_rng(1), Ledger(), set()
    for number in range(300):
        made = EpisodeId("ab"[rng.integers(2)], "xyz"[rng.integers(3)], int(rng.integers(80)))
        assert (made in ledger) == (made in twin)
        ledger.add(made)
        twin.add(made)
        if number % 50 == 0:
            ledger = Ledger.from_bytes(ledger.to_bytes())
    every = {EpisodeId(a, b, n) for a in "ab" for b in "xyz" for n in range(90)}
    assert {made for made in every if made in ledger} == twin


def test_the_start_that_was_silent_for_longest_is_forgotten(monkeypatch):
    monkeypatch.setattr(ledger_module, "MAX_BOOTS", 2)
    ledger = Ledger()
    first, second, third = (EpisodeId("a", boot, 0) for boot in "123")
    for made in (first, second, first._replace(seq=1), third):
        ledger.add(made)
    assert [made in ledger for made in (first, second, third)] == [True, False, True]
