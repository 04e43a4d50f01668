"""Each life of a run has a lineage of its own."""

import pytest

from common.errors import ConfigError
from learner.progress import begin_life


def test_lives_are_counted_and_the_run_keeps_its_id(tmp_path):
    first = begin_life(tmp_path)
    assert (first.lineage, first.run.rpartition("-")[0]) == (1, tmp_path.name)
    assert begin_life(tmp_path) == first._replace(lineage=2)
    assert begin_life(tmp_path, lineage=7) == first._replace(lineage=8)
    (tmp_path / "other").mkdir()
    assert begin_life(tmp_path / "other").run != first.run


def test_a_damaged_record_is_named(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"run\.json is no usable record"):
        begin_life(tmp_path)
