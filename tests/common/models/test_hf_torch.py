import sys

import pytest

from common.errors import ConfigError
from common.models import hf_torch, pretrained
from tests import t5_folder


def test_without_torch_the_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    folder = t5_folder.make(tmp_path / "t5")
    (folder / "pytorch_model.bin").write_bytes(b"")
    assert not hf_torch.has_only_pickles(folder)  # safetensors are there, too
    pretrained.load(folder)
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    assert hf_torch.has_only_pickles(folder)
    with pytest.raises(ConfigError, match=r"pytorch_model.bin alone.*pip install \.\[torch\]"):
        pretrained.load(folder)
