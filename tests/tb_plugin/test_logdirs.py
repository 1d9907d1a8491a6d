from __future__ import annotations

import warnings

import pytest

from tb_plugin.logdirs import Logdir, logdirs_of
from tests.cases import each


@each(
    "spec",
    [
        "/runs/a",
        "/runs/a,/runs/b",
        "mine:/runs/a,yours:/runs/b,/runs/c",
        "mine:relative/path,other",
        "/path:with:colons",
        "name:/path:with:colons",
        "gs://bucket/a,mine:s3://bucket/b,hdfs.x://c",
        "~/runs,home:~/runs2",
        "a:/same,b:/same",
        "a:/x/../y",
        ":/no/name",
    ],
)
def test_a_spec_is_read_as_tensorboard_reads_it(spec: str) -> None:
    """--logdir_spec means to the tab what it means to TensorBoard, group by group."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ingester = pytest.importorskip("tensorboard.backend.event_processing.data_ingester")
    theirs = ingester._parse_event_files_spec(spec)
    ours = logdirs_of("", spec)
    assert {logdir.path: logdir.group for logdir in ours} == theirs
    assert [logdir.path for logdir in ours] == list(theirs)


def test_a_logdir_comes_before_a_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    """As TensorBoard has it, --logdir counts where both are given; a tilde is the home directory."""
    monkeypatch.setenv("HOME", "/home/me")
    assert logdirs_of("~/runs", "a:/x") == (Logdir("/home/me/runs"),)
