"""A learner out of its parts: what it says at the start, and what it takes up again."""

import jax
import numpy as np
import pytest

from actors.client import LearnerClient
from actors.spool import Spool
from common.errors import ConfigError
from common.models import autoui
from common.models.distribution import SamplingConfig
from learner import build
from learner.checkpoint import load_policy
from tests.learner.test_update import MODEL

SMALL = {"warm_start.demonstrations": 0, "vocab_size": 320}
LORA = {"update.lora.rank": 2}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setitem(autoui.PRESETS, "tiny", MODEL)


def learner(folder, **settings):
    config = build.configure("", "distrl", SMALL | settings)
    return build.learner(
        workdir=folder, listen="tcp://127.0.0.1:0", config=config, seed=0, insecure=False
    )


def fetched(made, folder):
    """Returns what an actor gets of a learner that is stopped at once, and of which lineage."""
    made.run(lambda: True)
    address = f"tcp://127.0.0.1:{made._ingest.port}"
    with Spool(folder) as spool, LearnerClient(address, "a", "b", "d", False, spool) as client:
        client.connect(5)
        version, params = client.fetch(None, timeout_s=5)
    return version.lineage, params


def test_actors_get_the_merged_policy_that_is_saved_also_after_a_restart(tmp_path):
    found = []
    for lineage in (1, 2):
        with learner(tmp_path, **LORA) as made:
            if lineage == 1:  # as after some learning: at first adapters change nothing
                moved = jax.tree.map(lambda leaf: leaf + 0.1, made._trainer.state.params)
                made._trainer.state = made._trainer.state._replace(params=moved)
            found.append(fetched(made, tmp_path / "spool"))
    saved, meta = load_policy(tmp_path / "checkpoints")
    assert meta["lora"]["rank"] == 2 and [lineage for lineage, _ in found] == [1, 2]
    for _, params in found:
        assert jax.tree.structure(params) == jax.tree.structure(saved)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), params, saved)


def test_a_run_goes_on_as_it_began(tmp_path):
    with learner(tmp_path, **LORA) as made:
        made.run(lambda: True)
    with (
        pytest.raises(ConfigError, match=r"holds a run with LoraConfig\(rank=2"),
        learner(tmp_path),
    ):
        pass
    changed = learner(tmp_path, **LORA, **{"update.critic.kind": "t5"})
    with pytest.raises(ConfigError, match="is of another critic"), changed:
        pass


def test_a_critic_that_needs_files_says_so(tmp_path):
    settings = {"update.critic.kind": "roberta"}
    with pytest.raises(ConfigError, match=r"roberta needs update.critic.roberta"):
        learner(tmp_path, **settings).__enter__()
    settings["update.critic.roberta"] = str(tmp_path)
    with pytest.raises(ConfigError, match="holds no RoBERTa"):
        learner(tmp_path, **settings).__enter__()


def test_the_way_of_sampling_is_set_by_name():
    config = build.configure(
        "quick",
        "distrl",
        {
            "sampling.temperature": "2",
            "sampling.top_k": "40",
            "sampling.top_p": "0.9",
            "sampling.grammar": "true",
        },
    )
    assert config.sampling == SamplingConfig(2.0, 40, 0.9, True)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("sampling.temperature", "0", "sampling.temperature must be above 0 to learn, not 0.0"),
        ("sampling.top_p", "2", "sampling.top_p must be above 0 and at most 1, not 2.0"),
        ("sampling.grammar", "1", "sampling.grammar must be bool, not 1"),
        ("reinforce.min_uses", "9", "min_uses must be in 0..reinforce.max_uses"),
        ("reinforce.arrival_lag", "-1", "arrival_lag must not be negative"),
        ("sampling.beams", "1", "There is no setting sampling.beams; SamplingConfig has"),
        ("temperature", "1", "There is no setting temperature"),
    ],
)
def test_what_cannot_be_is_refused(name, value, message):
    with pytest.raises(ConfigError, match=message):
        build.configure("quick", "distrl", {name: value})
