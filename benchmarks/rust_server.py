"""How long TensorBoard's Rust server takes to have every point of a logdir."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path


def rust_server_secs(logdir: str, tags: Sequence[str], points: int) -> float | None:
    """Return the seconds from the server's start until it lists the last point of every tag, best of three.

    Nothing is sampled. None where it is not installed. What listing them costs the caller is not counted.
    """
    try:
        import tensorboard_data_server
    except ImportError:
        return None
    return min(_once(tensorboard_data_server.server_binary(), logdir, tags, points) for _ in range(3))


def _once(binary: str, logdir: str, tags: Sequence[str], points: int) -> float:
    with tempfile.TemporaryDirectory() as scratch:
        port_file = Path(scratch) / "port"
        command = [binary, f"--logdir={logdir}", "--reload=once", "--samples-per-plugin=scalars=all", "--port=0"]
        began = time.perf_counter()
        with subprocess.Popen(
            [*command, f"--port-file={port_file}", "--die-after-stdin"], stdin=subprocess.PIPE
        ) as server:
            try:
                while not (port_file.exists() and port_file.read_text().endswith("\n")):
                    assert server.poll() is None, "the Rust server ended"
                _wait_until_read(f"localhost:{port_file.read_text().strip()}", tags, points)
                return time.perf_counter() - began
            finally:
                server.kill()


def _wait_until_read(address: str, tags: Sequence[str], points: int) -> None:
    import grpc
    from tensorboard.data.proto import data_provider_pb2

    list_scalars = grpc.insecure_channel(address).unary_unary(
        "/tensorboard.data.TensorBoardDataProvider/ListScalars",
        request_serializer=data_provider_pb2.ListScalarsRequest.SerializeToString,
        response_deserializer=data_provider_pb2.ListScalarsResponse.FromString,
    )
    request = data_provider_pb2.ListScalarsRequest(experiment_id="", plugin_filter={"plugin_name": "scalars"})
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        found = [tag.metadata.max_step for run in list_scalars(request, wait_for_ready=True).runs for tag in run.tags]
        if len(found) == len(tags) and min(found) >= points - 1:
            return
        time.sleep(0.002)  # each question takes a little of the server's own time
    raise TimeoutError(f"the Rust server at {address} has not read everything")
