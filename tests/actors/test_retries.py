"""The queue of episodes to be played again."""

import concurrent.futures
import itertools

from actors import retries
from actors.retries import Retries, Retry


def test_another_actor_gets_it_at_once_and_the_same_one_only_later(tmp_path):
    patient, impatient = Retries(tmp_path), Retries(tmp_path, patience_s=0.0)
    retry = Retry("t", 7, 1, "a")
    assert patient.put(retry)
    assert patient.take("a") is None
    assert patient.take("b") == retry
    assert patient.take("b") is None
    patient.put(retry)
    assert impatient.take("a") == retry


def test_an_episode_has_so_many_attempts(tmp_path):
    queue = Retries(tmp_path)
    assert not queue.put(Retry("t", 7, retries.ATTEMPTS, "a"))
    assert len(queue) == 0


def test_the_queue_has_a_size(tmp_path, monkeypatch):
    monkeypatch.setattr(retries, "LIMIT", 2)
    queue = Retries(tmp_path)
    assert [queue.put(Retry("t", seed, 1, "a")) for seed in range(3)] == [True, True, False]


def test_each_episode_goes_to_one_of_many(tmp_path):
    queue = Retries(tmp_path)
    for seed in range(40):
        queue.put(Retry("t", seed, 1, "a"))

    def take_all(name: str) -> list[int]:
        taken = []
        while (retry := Retries(tmp_path).take(name)) is not None:
            taken.append(retry.seed)
        return taken

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(take_all, "bcde"))
    assert sorted(itertools.chain(*taken)) == list(range(40))
