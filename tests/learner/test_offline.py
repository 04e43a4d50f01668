"""Recorded episodes come back after a restart, beside those of the journal."""

import dataclasses

import numpy as np

from common.codec import EpisodeSpec, encode_episode
from learner import offline
from learner.config import LearnerConfig, WarmStartConfig
from learner.curriculum import Curriculum
from learner.dataset import Dataset, Writer
from learner.feed import Feed
from learner.journal import Journal
from learner.ledger import EpisodeId
from learner.memory import Memory
from tests.episodes import episode

SPEC = EpisodeSpec(prompt_length=8, action_length=6, image_tokens=4, image_dim=12, vocab_size=64)


def remembering():
    config = LearnerConfig(warm_start=WarmStartConfig(demonstrations=2))
    return Memory(config, None, np.random.default_rng(0), Curriculum([], config.curriculum))


def test_recorded_episodes_are_in_replay_again_with_those_of_the_journal(tmp_path):
    with Writer(tmp_path / "recorded", SPEC, "{}") as writer:
        for seq in range(5):
            writer.write(episode(3, seq=seq, success=seq % 2 == 0))
    recorded = Dataset(tmp_path / "recorded")
    memory = remembering()
    memory.take_recorded(offline.numbered(recorded))
    assert memory.demonstrations.positions == [-1, -3]
    assert memory.replay.positions == [-2, -4, -5] and memory.replay.inserted_steps == 0
    with Journal(tmp_path / "journal") as journal:
        for seq in range(2):
            made = dataclasses.replace(episode(3, seq=seq), boot="new")
            header_and_body = encode_episode(made, run="r")
            journal.append(EpisodeId(made.actor, made.boot, seq), header_and_body)
        journal.commit()
        with Feed(tmp_path / "journal", SPEC) as feed:
            for position, made in feed.take(2):
                memory.insert(made, position)
            again = remembering()
            again.restore(memory.save(), lambda wanted: offline.recall(feed, recorded, wanted))
    kept = [
        (e.position, e.episode.boot, e.episode.seq, e.ages) for e in memory.replay._entries if e
    ]
    assert kept == [
        (e.position, e.episode.boot, e.episode.seq, e.ages) for e in again.replay._entries if e
    ]
    assert [row[3] for row in kept] == [False] * 3 + [True] * 2
    assert [one.seq for one in again.demonstrations] == [0, 2]
    assert len(again.replay) == 5
