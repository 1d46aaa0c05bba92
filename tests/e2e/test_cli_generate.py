from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file
from toys import toy_gpt2, toy_llama

import orion_ane
from orion_ane.cli.main import main
from orion_ane.errors import BackendError


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    return str(toy_gpt2(tmp_path_factory.mktemp("gpt2")))


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return str(toy_llama(tmp_path_factory.mktemp("llama")))


def orion(capfd, *words):
    code = main(["generate", *words])
    out, err = capfd.readouterr()
    return code, out, err


@pytest.mark.parametrize("device", ["cpu", "emulator"])
@pytest.mark.parametrize("model", ["gpt2", "llama"])
def test_json_holds_what_the_contract_names(request, capfd, model, device):
    path = request.getfixturevalue(model)
    words = ["--model", path, "--device", device, "--prompt", "ab", "--max-tokens", "6", "--json"]
    code, out, err = orion(capfd, *words)
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert document["device"] == device
    assert document["seed"] == 0
    assert len(document["ids"]) == 6 or document["finish_reason"] == "stop"
    assert document["prompt_ids"][-2:] == orion_ane.load(path, device="cpu").tokenizer.encode("ab")
    assert document["evaluations_per_token"] == 2  # a body and a head
    assert document["programs"] == document["compiles"] >= 2
    assert document["weight_bytes_per_token"] > 10_000
    for key in ("text", "compile_ms", "prefill_ms", "ttft_ms", "decode_tokens_per_s", "target"):
        assert key in document
    assert document["numerics"] == {"cpu": "fp32", "emulator": "exact"}[device]


def test_the_help_says_where_the_device_is(capfd):
    with pytest.raises(BackendError, match="there is no Neural Engine"):
        orion_ane.load("gpt2", device="ane")
    _, out, _ = orion(capfd, "--help")
    assert "ane where a probe has passed, else cpu" in " ".join(out.split())


def test_verifying_is_told_as_a_phase_of_its_own(capfd, gpt2):
    _, _, err = orion(capfd, "--model", gpt2, "--prompt", "a", "--max-tokens", "2", "--verify")
    assert re.search(r", verified in \d+ ms\n", err)


def test_text_goes_to_stdout_and_the_rest_to_stderr(capfd, gpt2):
    plain = ["--model", gpt2, "--prompt", "ab", "--max-tokens", "5"]
    code, streamed, err = orion(capfd, *plain)
    assert code == 0
    assert "device: cpu (auto)" in err
    assert "tokens/s" in err
    _, whole, _ = orion(capfd, *plain, "--no-stream")
    assert whole == streamed
    with orion_ane.load(gpt2, device="cpu") as model:
        assert model.generate("ab", max_tokens=5).text + "\n" == whole


def test_json_lines_stream(capfd, gpt2):
    words = ["--model", gpt2, "--prompt", "ab", "--max-tokens", "4", "--json", "--stream"]
    code, out, _ = orion(capfd, *words)
    *pieces, last = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert "".join(piece["text"] for piece in pieces) == last["text"]


@pytest.mark.parametrize("end", ["stop", "length"])
def test_the_last_line_of_a_stream_says_why_it_ended_U05(capfd, gpt2, end):
    words = ["--model", gpt2, "--prompt", "ab", "--max-tokens", "4", "--json"]
    whole = json.loads(orion(capfd, *words)[1])["text"]
    stop = ["--stop", whole[-1]] if end == "stop" else []
    _, out, _ = orion(capfd, *words, "--stream", *stop)
    *pieces, last = [json.loads(line) for line in out.splitlines()]
    assert last["finish_reason"] == end
    assert not any("finish_reason" in piece for piece in pieces)


def test_a_seed_repeats_and_another_differs_G17(capfd, gpt2):
    def ids(seed):
        words = ["--model", gpt2, "--prompt", "ab", "--max-tokens", "12", "--temperature", "1.5"]
        return json.loads(orion(capfd, *words, "--seed", seed, "--json")[1])["ids"]

    assert ids("7") == ids("7") != ids("8")


def test_an_empty_prompt_starts_from_bos_U11(capfd, gpt2):
    words = ["--model", gpt2, "--prompt", "", "--max-tokens", "2", "--json"]
    code, out, _ = orion(capfd, *words)
    assert code == 0
    assert json.loads(out)["prompt_ids"] == [256]


def test_the_prompt_may_come_from_stdin(capfd, gpt2, monkeypatch, tmp_path):
    source = tmp_path / "prompt.txt"
    source.write_text("  ab é")
    with source.open() as handle:
        monkeypatch.setattr(sys, "stdin", handle)
        words = ["--model", gpt2, "--max-tokens", "2", "--json"]
        code, out, _ = orion(capfd, *words)
    assert code == 0
    with orion_ane.load(gpt2, device="cpu") as model:
        assert json.loads(out)["prompt_ids"] == model.tokenizer.prompt_ids("  ab é")


@pytest.mark.parametrize(("count", "told"), [("1", False), ("2", True)])
def test_the_speed_of_decoding_is_told_where_there_was_any(capfd, gpt2, count, told):
    _, _, err = orion(capfd, "--model", gpt2, "--prompt", "a", "--max-tokens", count)
    assert ("tokens/s" in err) is told


@pytest.mark.parametrize(("piped", "prompt"), [("ab\n", "ab"), ("ab\n\n", "ab\n"), ("\n", "")])
def test_one_newline_at_the_end_of_stdin_is_no_part_of_the_prompt(
    capfd, gpt2, monkeypatch, tmp_path, piped, prompt
):
    source = tmp_path / "prompt.txt"
    source.write_text(piped)
    with source.open() as handle:
        monkeypatch.setattr(sys, "stdin", handle)
        code, out, _ = orion(capfd, "--model", gpt2, "--max-tokens", "1", "--json")
    assert code == 0
    with orion_ane.load(gpt2, device="cpu") as model:
        assert json.loads(out)["prompt_ids"] == model.tokenizer.prompt_ids(prompt)


def test_a_prompt_of_the_whole_context_is_taken_and_one_more_is_refused_G01(capfd, gpt2):
    words = ["--model", gpt2, "--json", "--max-tokens", "5"]
    code, out, err = orion(capfd, *words, "--prompt", "a" * 64)
    assert code == 0
    assert len(json.loads(out)["ids"]) <= 1
    code, out, err = orion(capfd, *words, "--prompt", "a" * 65)
    assert (code, json.loads(out)["error"]["where"]) == (2, "--prompt")
    assert err == (
        "orion: --prompt: longer than the model's context: got 65 tokens, want at most 64\n"
        "  hint: shorten it\n"
    )


@pytest.mark.parametrize(
    ("device", "numerics"),
    [("emulator", "exact"), ("emulator", "fp16"), ("emulator", "fp32"), ("cpu", "fp16")],
)
def test_numerics_are_those_that_are_asked_for(capfd, llama, device, numerics):
    words = ["--model", llama, "--prompt", "ab", "--max-tokens", "4", "--verify", "--json"]
    code, out, err = orion(capfd, *words, "--device", device, "--numerics", numerics)
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert document["numerics"] == numerics
    assert 0 < document["max_logit_error"] < 0.1
    assert document["ranges"]["first_bad"] is None
    nearest = document["ranges"]["nearest"]
    assert nearest["op"] in ("conv1x1", "matmul")
    assert nearest["room"] == 2**15 / nearest["largest"] > 1
    assert 0 <= nearest["lost_share"] < 1


def test_values_that_leave_the_range_are_told_of(capfd, tmp_path):
    path = toy_llama(tmp_path / "loud")
    tensors = load_file(path / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"] *= 5e4
    save_file(tensors, path / "model.safetensors")
    words = ["--model", str(path), "--prompt", "ab", "--max-tokens", "2", "--device", "emulator"]
    code, _, err = orion(capfd, *words, "--verify")
    assert code == 0
    assert re.search(r"note: layers 0 to 1: \w+ \w+ fp16\[.*: \d+ values not finite", err), err


@pytest.mark.parametrize("target", ["strict", "paper", "m1", "m5"])
def test_the_emulator_is_the_device_that_was_asked_for(capfd, gpt2, target):
    words = ["--model", gpt2, "--prompt", "ab", "--max-tokens", "4", "--device", "emulator"]
    chosen = [] if target == "strict" else ["--target", target]
    code, out, err = orion(capfd, *words, *chosen, "--json")
    assert code == 0, err
    document = json.loads(out)
    assert document["target"] == target
    assert len(document["ids"]) <= 4


def test_a_target_file_is_a_device_of_its_own(capfd, gpt2, tmp_path):
    file = tmp_path / "desk.json"
    file.write_text('{"base": "m4", "behaviour": {"programs": 1}}')
    words = ["--model", gpt2, "--prompt", "ab", "--device", "emulator", "--target", str(file)]
    code, out, err = orion(capfd, *words, "--max-tokens", "4")
    assert (code, out.strip()) == (2, "")
    assert "compile: this process has used its 1 loaded programs" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--device", "cpu", "--target", "m1"], "--target: not with device cpu: want --device emu"),
        (["--device", "cpu", "--numerics", "exact"], "--numerics: not with device cpu: got exact"),
        (
            ["--device", "emulator", "--target", "m9"],
            "--target: no such target: got m9, want paper",
        ),
        (["--temperature", "-1"], "--temperature: out of range"),
        (["--top-p", "2"], "--top-p: out of range"),
        (["--top-k", "-1"], "--top-k: out of range"),
        (["--max-tokens", "0"], "--max-tokens: out of range"),
        (["--max-tokens", "many"], "'many' is not a valid integer"),
        (["--stop", ""], "--stop: empty text"),
        (["--seed", "-3"], "--seed: out of range"),
        (["--device", "gpu"], "'gpu' is not one of"),
        (["--nonsense"], "No such option"),
        (["--device", "emulator", "--weights", "fp32"], "the emulator computes in fp16"),
    ],
)
def test_impossible_options_give_one_message_and_exit_2(capfd, gpt2, words, message):
    code, out, err = orion(capfd, "--model", gpt2, "--prompt", "a", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_the_neural_engine_is_refused_where_there_is_none_A25(capfd, gpt2):
    code, out, err = orion(capfd, "--model", gpt2, "--prompt", "a", "--device", "ane")
    assert (code, out) == (2, "")
    assert "emulator" in err
    assert "cpu" in err


def test_without_a_model_the_package_has_one_and_says_so(capfd):
    code, out, err = orion(capfd, "--prompt", "Once upon a time", "--max-tokens", "4")
    assert code == 0
    assert out.startswith(", there was a")
    assert err.startswith("model: orion-stories, a small one that comes with the package")


def test_a_model_that_is_not_there_is_an_error_U09(capfd):
    code, _, err = orion(capfd, "--model", "/nope", "--prompt", "a")
    assert code == 2
    assert "/nope" in err


def test_debug_shows_the_trace(capfd):
    code, _, err = orion(capfd, "--model", "/nope", "--prompt", "a", "--debug")
    assert code == 2
    assert "Traceback" in err


def test_verify_compares_with_fp32(capfd, gpt2):
    words = ["--model", gpt2, "--device", "emulator", "--prompt", "ab", "--max-tokens", "5"]
    code, out, _ = orion(capfd, *words, "--verify", "--json")
    document = json.loads(out)
    assert code == 0
    assert 0 < document["max_logit_error"] < 0.5
    assert 0 <= document["argmax_agreement"] <= 1


def test_ctrl_c_leaves_the_text_so_far(tmp_path):
    path = toy_gpt2(tmp_path, context=4096)
    script = "import sys; from orion_ane.cli.main import main; sys.exit(main(sys.argv[1:]))"
    words = ["generate", "--model", str(path), "--prompt", "a", "--max-tokens", "4000"]
    process = subprocess.Popen(
        [sys.executable, "-c", script, *words, "--temperature", "1", "--device", "cpu"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},
    )
    first = process.stdout.read(5)
    process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert len(first + rest) < 3000
    assert rest.endswith(b"\n")
    assert b"Traceback" not in err


def test_help_names_every_option_of_the_contract(capfd):
    code, out, _ = orion(capfd, "--help")
    assert code == 0
    for flag in (
        "--model",
        "--device",
        "--target",
        "--prompt",
        "--max-tokens",
        "--temperature",
        "--top-k",
    ):
        assert flag in out
    for flag in ("--top-p", "--stop", "--seed", "--json", "--stream", "--verify", "--threads"):
        assert flag in out


def test_a_reader_that_leaves_is_no_error(gpt2):
    script = "import sys; from orion_ane.cli.main import main; sys.exit(main(sys.argv[1:]))"
    words = ["generate", "--model", gpt2, "--prompt", "a", "--max-tokens", "60", "--device", "cpu"]
    process = subprocess.Popen(
        [sys.executable, "-c", script, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == 0
    assert b"Traceback" not in err
    assert b"BrokenPipe" not in err


def test_it_starts_quickly_enough_to_be_pleasant():
    """Not a timing: help must not import what only a run needs."""
    code = (
        "import sys, orion_ane.cli.main as m; m.main(['--help']);"
        "print([n for n in ('numba', 'torch', 'transformers') if n in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert out.stdout.splitlines()[-1] == "[]"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_one_message(gpt2):
    script = "import sys; from orion_ane.cli.main import main; sys.exit(main(sys.argv[1:]))"
    words = ["generate", "--model", gpt2, "--prompt", "a", "--max-tokens", "2", "--device", "cpu"]
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [sys.executable, "-c", script, *words],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert process.returncode == 2
    assert "standard output: cannot be used: got No space left" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize("words", [["--max-tokens", "0"], ["--device", "ane"]])
def test_what_cannot_work_is_refused_before_the_weights_are_read(capfd, words, tmp_path):
    """The folder holds no model, which would be the next complaint."""
    code, _, err = orion(capfd, "--model", str(tmp_path), "--prompt", "a", *words)
    assert code == 2
    assert str(tmp_path) not in err


def test_an_option_without_effect_is_said(capfd, gpt2):
    words = ["--model", gpt2, "--prompt", "a", "--max-tokens", "1", "--top-k", "5"]
    assert "do nothing at temperature 0" in orion(capfd, *words)[2]


SCRIPT = "import sys; from orion_ane.cli.main import main; sys.exit(main(sys.argv[1:]))"


def test_a_prompt_is_utf8_whatever_the_locale_says(gpt2):
    words = ["generate", "--model", gpt2, "--max-tokens", "1", "--device", "cpu", "--json"]
    plain = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", SCRIPT, *words, "--prompt", "é".encode()]
    out = subprocess.run(command, capture_output=True, check=True, env=os.environ | plain)
    assert len(json.loads(out.stdout)["prompt_ids"]) == 2
    command[-1] = b"\xff"
    bad = subprocess.run(command, capture_output=True, check=False, env=os.environ | plain)
    assert bad.returncode == 2
    assert b"not UTF-8: got byte 0xff" in bad.stderr


def test_a_closed_output_is_one_message(gpt2):
    words = ["generate", "--model", gpt2, "--prompt", "a", "--max-tokens", "1", "--device", "cpu"]
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", SCRIPT, *words]
    process = subprocess.run(shell, capture_output=True, check=False, text=True)
    assert process.returncode == 2
    assert "standard output is closed" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize(
    ("weights", "rules", "way"),
    [("int8", "ANE158, ANE184", "--device cpu, or other"), ("q8_0", "ANE184", "m1 to m5")],
)
def test_codes_that_a_target_has_not_are_refused_in_one_message(capfd, llama, weights, rules, way):
    words = ["--model", llama, "--device", "emulator", "--prompt", "ab", "--max-tokens", "1"]
    code, _, err = orion(capfd, *words, "--weights", weights)
    assert code == 2
    assert f"break rules of target strict: got {rules}\n" in err
    assert way in err
    assert len(err.splitlines()) == 2
