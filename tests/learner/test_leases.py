"""An actor that falls silent is reported once, and its return too."""

from learner.leases import Leases


def actor(last_seen_s):
    return {"last_seen_s": last_seen_s, "device": "phone 1", "state": "exploring", "detail": "x"}


def counts(live, lost):
    return {"actors/live": live, "actors/lost": lost}


def test_the_end_of_a_lease_is_reported_once(caplog):
    caplog.set_level("INFO")
    leases = Leases()
    assert leases.update({"a": actor(1.0), "b": actor(29.0)}) == {
        "actors/live": 2,
        "actors/lost": 0,
    }
    for _ in range(2):
        assert leases.update({"a": actor(1.0), "b": actor(31.0)}) == {
            "actors/live": 1,
            "actors/lost": 1,
        }
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "Actor b on phone 1 is lost" in caplog.text
    assert leases.update({"a": actor(1.0), "b": actor(0.1)}) == counts(2, 0)
    assert "Actor b is back" in caplog.text
