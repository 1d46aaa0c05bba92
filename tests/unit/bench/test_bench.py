"""Benchmarks: what is measured in turn, held against a baseline, and asked of peers."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import toys

from orion_ane.bench import bandwidth, baseline, inference, kernels, peers
from orion_ane.bench.harness import Row, Samples, interleaved, machine
from orion_ane.cli.main import main
from orion_ane.errors import BackendError, ConfigError, DataError
from orion_ane.models.config import LlamaConfig
from orion_ane.ops import Weight
from orion_ane.types import DType

ROW = Row("decode", 100.0, 90.0, 110.0, "tokens/s", 9, machine())
PEER = """import json, sys
work = json.loads(sys.argv[1])
print(json.dumps({first}), flush=True)
for _ in sys.stdin:
    print({line}, flush=True)
"""


@pytest.fixture
def peer(tmp_path):
    """Writes the script of a peer."""

    def write(name="fake", first='{"ready": "fake 1"}', line='json.dumps({"decode": 5.0})'):
        path = tmp_path / f"{name}.py"
        path.write_text(PEER.format(first=first, line=line))
        return path

    return write


@pytest.fixture
def small(monkeypatch):
    """Memory of a few megabytes in place of a gigabyte."""
    monkeypatch.setattr(inference, "Bandwidth", partial(bandwidth.Bandwidth, size=1 << 22))


def test_works_take_turns_and_the_first_round_does_not_count():
    order, counted = [], []

    def work(name):
        return lambda: order.append(name) or {name: float(len(order))}

    works = {"a": work("a"), "b": work("b")}
    interleaved(works, 2, lambda name, found: counted.append((name, found[name])))
    assert order == ["a", "b"] * 3
    assert counted == [("a", 3), ("b", 4), ("a", 5), ("b", 6)]


def test_ratios_are_taken_round_by_round_and_come_first():
    samples = Samples({"a": "tokens/s"})
    for rate in (2.0, 20.0, 8.0):
        samples.add({"a": rate, "nobody asked": 1.0})
    samples.ratio("a, over b", [1.0, 20.0, 2.0], samples.rates["a"])
    ratio, row = samples.rows()
    assert (ratio.name, ratio.median, ratio.unit) == ("a, over b", 2.0, "x")
    assert (row.median, row.p10, row.p90, row.runs) == (
        8.0,
        *np.quantile([2, 8, 20], [0.1, 0.9]),
        3,
    )
    assert row.machine == machine()


@pytest.mark.parametrize(("now", "is_slower"), [(84.9, True), (85.1, False), (200.0, False)])
def test_a_rate_that_lost_over_15_percent_is_slower(tmp_path, now, is_slower):
    baseline.save(tmp_path / "b.json", [ROW, replace(ROW, name="gone")], {})
    found = baseline.compare(baseline.read(tmp_path / "b.json").rows, [replace(ROW, median=now)])
    assert [row.name for row in found.slower] == ["decode"] * is_slower
    assert found.missing == ("gone",)


@pytest.mark.parametrize(
    ("name", "unit", "counts"),
    [("decode", "tokens/s", True), ("llama-110m: prefill", "tokens/s", True),
     ("decode: weights read", "GB/s", True), ("read bandwidth", "GB/s", False),
     ("read: triad", "GB/s", False), ("llama-110m: read: sum", "GB/s", False),
     ("decode, share of read bandwidth", "x", False), ("decode, over fake", "x", False),
     ("decode, fake", "tokens/s", False), ("peak memory", "GB", False)],
)  # fmt: skip
def test_only_rates_of_ours_are_held_against_a_baseline(name, unit, counts):
    was = replace(ROW, name=name, unit=unit)
    found = baseline.compare([was], [replace(was, median=1.0)], ["fake"])
    assert [row.name for row in found.slower] == [name] * counts


def test_a_baseline_of_other_settings_is_refused_by_their_names(tmp_path):
    path, settings = tmp_path / "b.json", {"model": "m", "threads": 2}
    baseline.save(path, [ROW], settings)
    found = baseline.read(path)
    found.want_same(settings)
    with pytest.raises(ConfigError, match=r"other settings: got threads 2, want threads 1\b"):
        found.want_same({"model": "m", "threads": 1})
    with pytest.raises(ConfigError, match="got threads 2, model m, want threads 1, model unsaid"):
        found.want_same({"threads": 1})


def test_a_baseline_of_another_machine_or_of_other_rows_is_refused(tmp_path):
    path = tmp_path / "b.json"
    baseline.save(path, [replace(ROW, machine="there")], {})
    with pytest.raises(ConfigError, match="another machine: got there, want"):
        baseline.read(path)
    with pytest.raises(ConfigError, match="no row that was measured now"):
        baseline.compare([ROW], [replace(ROW, name="prefill")])


def test_what_cannot_be_kept_is_refused_before_anything_runs(tmp_path, capsys):
    lost = tmp_path / "no" / "b.json"
    assert main(["bench", "kernels", "--save-baseline", str(lost)]) == 2
    assert "no such folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["", "[]", '{"rows": 1}', '{"rows": [{}]}', '{"rows": [[]]}',
             json.dumps({"rows": [], "settings": []}),
             json.dumps({"rows": [{**ROW.document(), "median": "fast"}]})],
)  # fmt: skip
def test_a_file_that_is_no_baseline_is_refused(tmp_path, text):
    path = tmp_path / "b.json"
    path.write_text(text)
    with pytest.raises(DataError, match="not a baseline"):
        baseline.read(path)


def test_a_peer_works_when_it_is_asked_to(peer):
    with peers.Peer(peer(), {"what": "inference"}) as found:
        assert (found.what, found(), found()) == ("fake 1", {"decode": 5.0}, {"decode": 5.0})


def test_a_peer_that_cannot_be_had_is_named_and_the_others_run(peer):
    scripts = [peer("gone", '{"unavailable": "no such package"}'), peer()]
    with peers.started(scripts, {}) as (running, notes):
        assert [p.name for p in running] == ["fake"]
    assert notes == ["peer gone: not to be had: got no such package"]


@pytest.mark.parametrize(
    "line", ['"word"', "[]", 'json.dumps({"decode": 0})', "{}", 'sys.exit(3) or ""']
)
def test_a_peer_that_breaks_off_or_gives_no_rates_is_an_error(peer, line):
    with peers.Peer(peer(line=line), {}) as found, pytest.raises(BackendError, match="peer fake"):
        found()


def test_an_unknown_peer_names_those_there_are():
    with pytest.raises(ConfigError, match=r"no such peer: got nobody, want .*transformers_fp32"):
        peers.find("nobody")


def test_where_no_peers_are_that_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(peers, "__file__", str(tmp_path / "a" / "b" / "c" / "d.py"))
    with pytest.raises(ConfigError, match=r"no folder bench.peers here, and so no peers") as error:
        peers.find("llamacpp")
    assert "want" not in str(error.value)


def test_where_no_peers_are_the_rest_is_measured_unless_one_was_asked_for(
    tmp_path, monkeypatch, capsys
):
    """As in a package that is installed: the scripts are the source's alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(peers, "__file__", str(tmp_path / "a" / "b" / "c" / "d.py"))
    samples = Samples({"linear: 16 bit": "GFLOP/s"}, {"linear: 16 bit": [1.0]})
    monkeypatch.setattr(kernels, "measure", lambda *_, **__: samples)
    words = ["bench", "targets", "--only", "kernels", "--runs", "1", "--threads", "1"]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "peers that are not here: torch_eager_fp32, torch_eager_fp16, onnxruntime_fp32" in told
    assert main([*words, "--against", "torch_eager_fp32"]) == 2
    assert "no folder bench/peers here" in capsys.readouterr().err.replace("\\", "/")


def test_the_best_of_three_loops_is_the_read_bandwidth():
    found = bandwidth.Bandwidth(threads=1, size=1 << 22)()
    assert set(found) == set(bandwidth.UNITS)
    assert found.pop(bandwidth.BEST) == max(found.values())


def test_a_model_is_called_as_it_was_asked_for(small, capsys):
    words = ["bench", "inference", "--model", "orion-stories", "--device", "cpu", "--threads", "1"]
    assert main([*words, "--prompt-tokens", "2", "--max-tokens", "1", "--runs", "1"]) == 0
    assert "model: orion-stories on cpu, " in capsys.readouterr().err


def test_inference_is_measured_for_the_target_that_is_asked_for(tmp_path, small, capsys):
    words = ["bench", "inference", "--model", str(toys.toy_llama(tmp_path / "m")), "--threads", "1"]
    words += ["--runs", "1", "--prompt-tokens", "2", "--max-tokens", "1", "--target", "m1"]
    assert main([*words, "--json", "--numerics", "fp16"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["device"], found["target"], found["numerics"]) == ("emulator", "m1", "fp16")
    assert main([*words, "--device", "cpu"]) == 2
    assert "--target: not with device cpu" in capsys.readouterr().err


def test_inference_is_measured_beside_memory_and_peers(tmp_path, peer, small, capsys):
    model = toys.toy_llama(tmp_path / "m")
    words = ["bench", "inference", "--model", str(model), "--device", "cpu", "--threads", "1"]
    words += ["--runs", "2", "--prompt-tokens", "8", "--max-tokens", "3", "--json"]
    saved = tmp_path / "b.json"
    assert main([*words, "--against", str(peer()), "--save-baseline", str(saved)]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row for row in document["rows"]}
    assert document["peers"] == {"fake": "fake 1"}
    assert list(rows)[:2] == ["decode, over fake", "decode, share of read bandwidth"]
    read, weights = (rows[f"decode: weights{more} read"] for more in (", keys and values", ""))
    assert read["median"] > weights["median"] > 0
    assert {"prefill", "decode", "decode, fake", "read bandwidth"} < set(rows)
    assert rows["decode"]["runs"] == 2

    kept = json.loads(saved.read_text())
    assert kept["settings"] == {
        "benchmark": "inference", "model": str(model), "device": "cpu", "numerics": "fp32",
        "weights": "auto", "prompt_tokens": 8, "max_tokens": 3, "threads": 1,
    }  # fmt: skip
    assert main([*words, "--weights", "fp16", "--baseline", str(saved)]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["got"], error["want"]) == ("weights auto", "weights fp16")
    for row in document["rows"]:
        row["median"] *= 100.0
    saved.write_text(json.dumps({"rows": document["rows"]}))
    assert main([*words, "--baseline", str(saved)]) == 1
    told = capsys.readouterr()
    said = told.err
    assert any(row.startswith("decode: ") for row in json.loads(told.out)["slower"])
    assert "the baseline has decode, over fake, which was not measured now" in said
    assert f"note: {saved} does not say what it was measured with" in said
    slower = [line.split(":")[1].strip() for line in said.splitlines() if line[:6] == "slower"]
    assert {"decode", "prefill"} <= set(slower)
    assert not [name for name in slower if "share" in name or name.startswith("read")]


def test_a_peer_that_was_asked_for_and_is_not_to_be_had_fails_after_the_table(
    tmp_path, peer, small, capsys
):
    model = toys.toy_llama(tmp_path / "m")
    words = ["bench", "inference", "--model", str(model), "--device", "cpu", "--threads", "1"]
    words += ["--runs", "1", "--prompt-tokens", "2", "--max-tokens", "1"]
    gone = peer("gone", '{"unavailable": "no package; install it"}')
    assert main([*words, "--against", str(gone)]) == 1
    out, said = capsys.readouterr()
    assert "decode" in out
    assert "no package; install it" in said
    assert f"asked for and not to be had: {gone}" in said


def test_more_tokens_than_the_context_has_are_refused_before_anything_runs(tmp_path, capsys):
    model = toys.toy_gpt2(tmp_path / "m")
    assert main(["bench", "inference", "--model", str(model), "--device", "cpu"]) == 2
    assert "together at most 64" in capsys.readouterr().err


def test_each_kernel_of_a_run_is_a_rate_of_what_it_computes():
    graph = kernels.product(8, 4, 2, kernels.MIXED)
    work = kernels.Repeated(graph, "row", 1.0, "cpu", threads=1)
    assert work()["row"] > 0
    work.close()


@pytest.mark.parametrize(
    "name",
    ["llamacpp", "torch_eager_fp32", pytest.param("transformers_fp32", marks=pytest.mark.slow)],
)
def test_peers_of_the_source_work_or_say_why_not(name):
    sizes = {"dim": 16, "layers": 1, "heads": 2, "kv_heads": 1, "head_dim": 8, "hidden": 24}
    shape = LlamaConfig(vocab=32, context=32, tied=True, **sizes)
    work = inference.peers_work(shape, 4, 2, origin="random", threads=1)
    with peers.started([peers.find(name)], work) as (running, notes):
        if notes:
            pytest.skip(notes[0])
        assert set(running[0]()) == {"prefill", "decode"}


def test_the_product_that_is_named_fp16_reads_fp16_and_computes_fp32():
    graph = kernels.product(*kernels.THIN, kernels.MIXED)
    (stored,) = [node for node in graph.nodes if isinstance(node.op, Weight)]
    assert kernels.THIN_ROW.startswith("fp16 ")
    assert (stored.type.dtype, graph.outputs["y"].type.dtype) == (DType.FP16, DType.FP32)
