"""The master string ``local``: a session of this process that goes through a server."""

from __future__ import annotations

from typing import Any

from supervisor_core.tf1.cluster.connect import LocalMaster
from tests.cases import each


@each("master", ["local", b"local"])
def test_one_server_for_all_sessions(master: Any) -> None:
    """Of one who makes sessions; another has another one, where no strange variables are."""
    local = LocalMaster()
    target = local.target_of(master)
    assert target.startswith("grpc://")
    assert local.target_of(master) == target
    assert LocalMaster().target_of(master) != target
