from __future__ import annotations

import numpy as np
import pytest

from orion_ane.errors import ConfigError
from orion_ane.generate.loop import Checker, Outcome, run_loop
from orion_ane.generate.options import Options
from orion_ane.generate.stopping import StopFilter

V = 50257


class Scripted:
    """A session whose logits follow a script of tokens; each run may take fake time."""

    def __init__(self, tokens, clock=None, costs=()):
        self.evaluations = self.weight_bytes = 0
        self._tokens, self._clock, self._costs = list(tokens), clock, list(costs)
        self.seen = []

    def append(self, ids):
        self.evaluations += 2
        self.weight_bytes += 1000
        self.seen.append(list(ids))
        if self._costs:
            self._clock.now += self._costs.pop(0)
        logits = np.zeros(V, np.float32)
        logits[self._tokens.pop(0)] = 9
        return logits


class FakeClock:
    now = 0.0

    def __call__(self):
        return self.now


class Words:
    """A streamer that spells token n as the given text."""

    def __init__(self, **spelling):
        self._spelling = {int(key[1:]): value for key, value in spelling.items()}

    def push(self, token):
        return self._spelling[token]

    def flush(self):
        return ""


def run(session, streamer, *, limit=8, eos=(50256,), **options):
    *pieces, outcome = run_loop(
        [1], Options(**options), limit=limit, session=session, streamer=streamer, eos_ids=eos
    )
    assert isinstance(outcome, Outcome)
    assert "".join(piece.text for piece in pieces) == outcome.text
    return outcome


def test_the_end_token_stops_and_is_not_shown_G11():
    outcome = run(Scripted([11, 50256, 11]), Words(t11=","))
    assert (outcome.text, outcome.ids, outcome.reason) == (",", [11], "stop")


def test_the_limit_ends_with_length():
    session = Scripted([11, 11, 11])
    outcome = run(session, Words(t11=","), limit=3)
    assert (outcome.text, outcome.reason) == (",,,", "length")
    assert session.seen == [[1], [11], [11]]  # the last token is not run


def test_cancelling_keeps_the_text_so_far():
    outcome = run(Scripted([11] * 5), Words(t11=","), cancelled=lambda: True)
    assert (outcome.text, outcome.reason) == (",", "interrupted")


def test_prompt_and_decode_are_timed_apart_U03():
    clock = FakeClock()
    session = Scripted([11] * 11, clock, [0.5] + [0.010] * 10)
    *_, outcome = run_loop(
        [1] * 100,
        Options(),
        limit=11,
        session=session,
        streamer=Words(t11=","),
        eos_ids=(),
        clock=clock,
    )
    timings = outcome.timings
    assert timings.ttft_ms == pytest.approx(500)
    assert timings.prefill_tokens_per_s == pytest.approx(200)
    assert timings.decode_tokens_per_s == pytest.approx(100)
    assert (outcome.evaluations_per_token, outcome.weight_bytes_per_token) == (2, 1000)


def test_a_stop_text_across_tokens_ends_before_it():
    spelling = Words(t1="one. ", t2="TH", t3="E END", t4="never")
    outcome = run(Scripted([1, 2, 3, 4]), spelling, stop=("THE", "zzz"))
    assert (outcome.text, outcome.ids, outcome.reason) == ("one. ", [1, 2, 3], "stop")


def test_text_held_for_a_stop_that_never_comes_is_shown_at_the_end():
    outcome = run(Scripted([1, 2]), Words(t1="one. ", t2="TH"), limit=2, stop="THE")
    assert (outcome.text, outcome.reason) == ("one. TH", "length")


def test_the_checker_runs_the_same_tokens_and_reports_the_largest_difference():
    session, reference = Scripted([11, 12, 13]), Scripted([11, 12, 14])
    checker = Checker(reference)
    list(
        run_loop(
            [1],
            Options(),
            limit=3,
            session=session,
            streamer=Words(t11="a", t12="b", t13="c"),
            eos_ids=(),
            checker=checker,
        )
    )
    assert reference.seen == session.seen
    assert checker.verification.max_logit_error == 9
    assert checker.verification.argmax_agreement == pytest.approx(2 / 3)


@pytest.mark.parametrize("parts", [["ab", "abc", "d"], ["a", "b", "a", "b", "c", "d"], ["ababcd"]])
def test_a_stop_filter_does_not_depend_on_how_the_text_is_cut(parts):
    stops = StopFilter(("abc",))
    assert "".join(stops.push(part) for part in parts) + stops.flush() == "ab"
    assert stops.stopped


def test_the_earliest_stop_wins():
    stops = StopFilter(("d", "bc"))
    assert stops.push("abcd") == "a"


@pytest.mark.parametrize("bad", [{"max_tokens": 0}, {"seed": -1}, {"stop": ("",)}, {"top_k": -1}])
def test_options_that_mean_nothing_are_refused(bad):
    with pytest.raises(ConfigError):
        Options(**bad)
