from __future__ import annotations

import pytest

from orion_ane.errors import ConfigError
from orion_ane.generate.model import Model
from orion_ane.generate.options import Options


def test_settings_are_taken_by_name():
    assert Options.of({"max_tokens": 3, "stop": "."}) == Options(max_tokens=3, stop=".")


def test_a_setting_that_there_is_not_is_refused_with_the_others_named():
    with pytest.raises(ConfigError) as refused:
        Options.of({"max_token": 3})
    assert str(refused.value) == (
        "max_token: no such option: want max_tokens, temperature, top_k, top_p, seed, stop, "
        "verify, cancelled, adapter\n  hint: did you mean max_tokens?"
    )


@pytest.mark.parametrize("run", [Model.generate, Model.stream])
@pytest.mark.parametrize("prompt", ["a", [1], ["a"]])
def test_a_model_asks_before_it_runs(run, prompt):
    with pytest.raises(ConfigError, match="max_token: no such option"):
        run(Model.__new__(Model), prompt, max_token=3)
