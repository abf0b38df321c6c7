"""The release window that the arguments fix."""

import pytest

from sglogparse._release import _fields, version_window


@pytest.mark.parametrize("release", [name for name, _ in _fields()])
def test_a_release_s_own_fields_name_it(release):
    known = dict(_fields())
    window = version_window(known[release], cut=False)
    same = [name for name, fields in _fields() if fields == known[release]]
    assert window == (same[0] if len(same) == 1 else f"{same[0]}..{same[-1]}")
    assert release in same


def test_a_build_between_releases_is_named_by_its_nearest():
    fields = set(dict(_fields())["0.5.9"]) - {"tp_size"} | {"of_a_fork"}
    assert version_window(fields, cut=False) == "near 0.5.9 (2 arguments differ)"


def test_a_cut_list_needs_only_the_fields_before_the_cut():
    assert version_window(["model_path", "admin_api_key"], cut=True) == "0.5.8..0.5.23"


@pytest.mark.parametrize("names", [[], ["model_path", "tp_size"], ["a", "b", "c"]])
def test_a_list_far_from_every_release_names_none(names):
    assert version_window(names, cut=False) is None
