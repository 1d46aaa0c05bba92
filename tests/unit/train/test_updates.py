from __future__ import annotations

from dataclasses import replace

import pytest

import orion_ane
from orion_ane.ane.targets import Behaviour, target
from orion_ane.errors import BackendError, ConfigError
from orion_ane.train.updates import WAYS, updates


def device(**behaviour):
    strict = target("strict")
    answers = replace(strict.behaviour, **behaviour)
    return orion_ane.backend("emulator", target=replace(strict, behaviour=answers), threads=1)


@pytest.mark.parametrize(
    ("behaviour", "way", "why"),
    [
        ({}, "donor", "strict: keeps old weights on reload, but takes new ones by a donor"),
        ({"reload": "new"}, "reload", "strict takes new weights on reload"),
        ({"reload": "refused", "donor": "old"}, "input", "refuses on reload, and keeps old"),
        ({"donor": "refused"}, "input", "and refuses by a donor"),
    ],
)
def test_a_way_is_chosen_by_the_target_and_says_why(behaviour, way, why):
    found = updates("auto", device(**behaviour))
    assert found.name == way
    assert why in found.why


@pytest.mark.parametrize("way", ["recompile", "input"])
def test_two_ways_are_right_on_every_device(way):
    for behaviour in ({}, {"reload": "refused", "donor": "refused"}, {"donor": "old"}):
        updates(way, device(**behaviour))


@pytest.mark.parametrize(
    ("way", "behaviour", "message"),
    [
        ("reload", {"reload": "old"}, "updates reload: device emulator runs on with the weights"),
        ("donor", {"donor": "old"}, "updates donor: device emulator runs on with the weights"),
        ("reload", {"reload": "refused"}, "the device refuses it"),
        ("donor", {"donor": "refused"}, "takes no donor"),
    ],
)
def test_a_canary_shows_a_way_that_would_train_nothing(way, behaviour, message):
    with pytest.raises(BackendError, match=message):
        updates(way, device(**behaviour))


def test_the_cpu_takes_every_way():
    cpu = orion_ane.backend("cpu", threads=1)
    assert updates("auto", cpu).name == "reload"
    for way in WAYS:
        updates(way, cpu)


def test_canaries_leave_nothing_loaded():
    most = Behaviour(programs=2)
    emulator = device(programs=2)
    for _ in range(most.programs + 1):
        for way in ("donor", "recompile", "input"):
            updates(way, emulator)


def test_an_unknown_way_is_named():
    with pytest.raises(ConfigError, match="no such way: got magic, want auto, recompile, donor"):
        updates("magic", device())
