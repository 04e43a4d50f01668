import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

from common.models import hf_files, pretrained
from common.models.autoui import AutoUIConfig
from common.models.distribution import FREE
from common.models.text import Tokenizer
from launch import convert, evaluate
from learner.checkpoint import load_policy
from tests import t5_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return t5_folder.make(tmp_path_factory.mktemp("hf") / "autoui")


@pytest.fixture(scope="module")
def checkpoint(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("converted") / "a" / "b"
    words = ["import", str(folder), "--output", str(path)]
    assert convert.main([*words, "--prompt-length=40", "--action-length=120"]) == 0
    return path


def test_a_folder_becomes_a_checkpoint_like_a_run_s(folder, checkpoint):
    params, meta = load_policy(checkpoint)
    config = AutoUIConfig.from_dict(meta["model"])
    assert (config.prompt_length, config.action_length, config.gated) == (40, 120, True)
    jax.tree.map(np.testing.assert_array_equal, params, pretrained.load(folder).params)
    assert Tokenizer.from_json(meta["tokenizer"]).to_json() == t5_folder.tokenizer().to_json()
    assert meta["horizon"] == {"general": 15, "webshop": 20}
    assert meta["sampling"] == dataclasses.asdict(FREE)
    assert meta["step"] == 0


@pytest.mark.parametrize("size", [[], ["--max-shard-gb=0.0004"]])
def test_there_and_back_is_bitwise(size, folder, checkpoint, tmp_path):
    words = ["export", str(checkpoint), "--output", str(tmp_path / "out"), *size]
    assert convert.main(words) == 0
    before, after = (hf_files.read_tensors(path) for path in (folder, tmp_path / "out"))
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert after[name].tobytes() == tensor.tobytes(), name
    for name in ("config.json", "tokenizer.json"):
        there, back = (json.loads((path / name).read_text()) for path in (folder, tmp_path / "out"))
        assert there == back
    assert (tmp_path / "out" / "model.safetensors.index.json").exists() == bool(size)


def test_verify_prints_one_line_and_says_by_its_exit_code(folder, tmp_path, capsys):
    reference = t5_folder.GATED / "reference.npz"
    assert convert.main(["verify", str(folder), "--reference", str(reference)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    report = json.loads(lines[0])
    assert list(report) == ["logits_max_abs", "logprobs_max_abs", "greedy_equal"]
    assert max(report["logits_max_abs"], report["logprobs_max_abs"]) < 1e-4
    assert report["greedy_equal"] is True
    arrays = dict(np.load(reference))
    arrays["logits"] = arrays["logits"] + 1e-3
    np.savez(tmp_path / "other.npz", **arrays)
    assert convert.main(["verify", str(folder), f"--reference={tmp_path / 'other.npz'}"]) == 1
    assert json.loads(capsys.readouterr().out)["logits_max_abs"] == pytest.approx(1e-3, rel=0.1)


def test_a_plain_t5_is_said_to_have_a_fresh_fusion(folder, tmp_path, capsys):
    shutil.copytree(folder, tmp_path / "t5", ignore=shutil.ignore_patterns("*.safetensors*"))
    tensors = hf_files.read_tensors(folder)
    parts = ("image_dense", "mha_layer", "gate_dense")
    text = {name: t for name, t in tensors.items() if not name.startswith(parts)}
    hf_files.write_tensors(tmp_path / "t5", text, {})
    words = ["import", str(tmp_path / "t5"), f"--output={tmp_path / 'out'}"]
    assert convert.main(words) == 0
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "plain T5: the fusion with the screen's features is fresh" in said[0]
    params, _ = load_policy(tmp_path / "out")
    assert params["image"]["dense"]["kernel"].shape == (1408, 64)


def test_our_own_tokenizer_or_another_folder_s_can_be_asked_for(folder, tmp_path, capsys):
    golden = str(t5_folder.GATED)
    for name, words in (("x", []), ("grammar", ["--tokenizer=grammar"])):
        words = ["import", golden, f"--output={tmp_path / name}", *words]
        assert convert.main(words) == (0 if name == "grammar" else 2)
    assert "autoui_gated_untied has no tokenizer" in capsys.readouterr().err
    tokenizer = Tokenizer.from_json(load_policy(tmp_path / "grammar")[1]["tokenizer"])
    assert tokenizer.vocab_size <= t5_folder.VOCAB
    assert tokenizer.decode(tokenizer.encode_action("{é}", 20)) == "{é}"
    words = ["import", golden, f"--output={tmp_path / 'x'}", f"--tokenizer={folder}"]
    assert convert.main(words) == 0  # what failed before left an empty folder


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(tmp_path, capsys):
    other = tmp_path / "other"
    other.mkdir()
    large = Tokenizer.train([f"{i:03} {i * 7:04}" for i in range(900)], 400)
    (other / "tokenizer.json").write_text(large.to_json())
    words = ["import", str(t5_folder.GATED), f"--output={tmp_path / 'x'}", f"--tokenizer={other}"]
    assert convert.main(words) == 2
    assert f"has {large.vocab_size} tokens and the model 320" in capsys.readouterr().err


def test_bad_input_is_a_sentence_and_exit_code_2(folder, checkpoint, tmp_path, capsys):
    full = tmp_path / "full"
    full.mkdir()
    (full / "x").touch()
    for words, sentence in (
        (["import", str(folder), f"--output={full}"], f"--output {full} is not empty"),
        (["export", str(checkpoint), f"--output={full}"], f"--output {full} is not empty"),
        (["export", "nowhere", f"--output={tmp_path / 'a'}"], "There is no checkpoint folder"),
        (["import", "nowhere", f"--output={tmp_path / 'b'}"], "Cannot read nowhere/config.json"),
        (["import", str(folder), "--output=/dev/null/x"], "/dev/null/x can't be made"),
        (
            ["import", str(folder), f"--output={tmp_path / 'c'}", "--prompt-length=0"],
            "prompt_length is 0; it must be a positive integer.",
        ),
        (
            ["export", str(checkpoint), f"--output={tmp_path / 'd'}", "--max-shard-gb=0"],
            "--max-shard-gb must be above 0, not 0.0.",
        ),
        (["verify", str(folder), "--reference=nowhere.npz"], "Cannot read nowhere.npz"),
    ):
        assert convert.main(words) == 2, sentence
        out, err = capsys.readouterr()
        assert err.startswith(f"convert: {sentence}")
        assert out == "" and len(err.splitlines()) == 1


def test_an_evaluation_takes_what_was_imported(adb_server, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(evaluate.one_thread, "configure", lambda: None)
    folder = t5_folder.make(tmp_path / "hf", t5_folder.VISION_DIM)
    assert convert.main(["import", str(folder), f"--output={tmp_path / 'out'}"]) == 0
    words = [f"--checkpoint={tmp_path / 'out'}", f"--adb-port={adb_server.port}"]
    for more, sentence in (
        ([], "The model takes an image encoder's features"),
        (  # model, tokenizer and parameters were there, and the phone comes next
            [f"--vision-folder={t5_folder.VISION}", "--emulator=emulator-2"],
            "The device 'emulator-2' is not attached.",
        ),
    ):
        assert evaluate.main([*words, *more]) == 2
        assert capsys.readouterr().err.startswith(f"evaluate: {sentence}")
