"""A run in parts: shards share nothing but the results that they read, and merged they are the run of one machine."""

import argparse

import pytest

from grpo_theory.harness.options import shard
from simulations import __main__ as command

ASKED = ["best_group", "one_large_step"]


def obey(*words):
    return command.main([str(word) for word in words])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    root = tmp_path_factory.mktemp("undisturbed")
    assert obey("run", *ASKED, "--quick", "--results", root) == 0
    return root


def test_merged_shards_are_the_run_of_one_machine(undisturbed, tmp_path, capsys):
    for number in (3, 1, 2):
        assert obey("run", *ASKED, "--quick", "--results", tmp_path, "--shard", f"{number}/3") == 0
    assert not (tmp_path / "chunks").exists()
    assert obey("merge", "--quick", "--results", tmp_path) == 0
    for name in ASKED:
        assert (tmp_path / f"{name}.parquet").read_bytes() == (undisturbed / f"{name}.parquet").read_bytes()
    capsys.readouterr()
    assert obey("run", *ASKED, "--quick", "--results", tmp_path) == 0
    assert "0 of" in capsys.readouterr().out


def test_a_merge_says_what_is_missing_and_builds_what_is_not(undisturbed, tmp_path, capsys):
    one, other = tmp_path / "one", tmp_path / "other"
    assert obey("run", *ASKED, "--quick", "--results", one, "--shard", "1/2") == 0
    assert obey("merge", one / "shards" / "1-of-2", "--quick", "--results", other) == 1
    told = capsys.readouterr().out
    assert "best_group: " in told
    assert f"chunks are missing: run `python -m simulations run best_group --quick --results {other}`" in told
    assert not (other / "best_group.parquet").exists()
    assert obey("run", *ASKED, "--quick", "--results", one, "--shard", "2/2") == 0
    assert obey("merge", one / "shards" / "2-of-2", "--quick", "--results", other) == 0
    assert (other / "best_group.parquet").read_bytes() == (undisturbed / "best_group.parquet").read_bytes()


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "1/3/5"])
def test_no_part_of_a_run(text):
    with pytest.raises(argparse.ArgumentTypeError, match="must be i/n with 1 <= i <= n"):
        shard(text)
