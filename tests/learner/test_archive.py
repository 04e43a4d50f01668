"""The list of episodes has each once, over all lives of a learner."""

import contextlib
import json

from learner.archive import Archive
from tests.episodes import episode


def write(folder, *positions):
    with contextlib.closing(Archive(folder)) as archive:
        for position in positions:
            archive.write(episode(2, seq=position), position)


def test_what_an_earlier_life_has_written_is_not_written_again(tmp_path):
    write(tmp_path, 0, 1, 2)
    write(tmp_path, 1, 2, 3)
    index = tmp_path / "episodes.jsonl"

    def written():
        return [json.loads(line)["position"] for line in index.read_text().splitlines()]

    assert written() == [0, 1, 2, 3]
    with index.open("rb+") as file:  # a life that was killed while it wrote
        file.truncate(index.stat().st_size - 5)
    write(tmp_path, 3, 4)
    assert written() == [
        0,
        1,
        2,
        3,
        4,
    ]
