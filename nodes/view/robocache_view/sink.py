"""Destinations of a drawing: a viewer on this machine or another, a file, or browsers.

`is_ready` says whether a drawing can begin now, and raises OSError if no drawing can begin there any more.
"""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import time
import urllib.parse

import rerun as rr
import rerun_cli

_STARTS_WITHIN_S = 20.0


class File:
    """Destination that is a Rerun file, `.rrd`. The file is emptied at the start."""

    def __init__(self, path: pathlib.Path):
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        self._is_begun = False

    def is_ready(self) -> bool:
        """True until the drawing begins. Later it raises OSError: writing has failed then, and a new start would
        lose the contents."""
        if self._is_begun:
            raise OSError(f"{self._path} can't be written any more: is the disk full?")
        return True

    def connect(self, recording: rr.RecordingStream) -> None:
        self._is_begun = True
        recording.save(self._path)

    def close(self) -> None:
        pass


class Viewer:
    """Destination that is a viewer which this node does not start. It may start later than the node."""

    def __init__(self, url: str):
        self.url = url
        parsed = urllib.parse.urlsplit(url)
        self._address = (parsed.hostname, parsed.port)

    def is_ready(self) -> bool:
        """True if the viewer listens at its port. This is checked first, since Rerun gives up if it can't connect at once."""
        try:
            socket.create_connection(self._address, 1.0).close()
        except OSError:
            return False
        return True

    def connect(self, recording: rr.RecordingStream) -> None:
        recording.connect_grpc(self.url)

    def close(self) -> None:
        pass


class Child(Viewer):
    """Destination that is a viewer or a server which this node starts, bound to the interface `bind`. Rerun's own functions
    would bind it to every interface."""

    def __init__(self, bind: str, port: int, options: list[str], outlives: bool):
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bind, bind)
        host = f"[{host}]" if ":" in host else host
        super().__init__(f"rerun+http://{host}:{port}/proxy")
        self._outlives = outlives
        if super().is_ready():
            raise OSError(f"port {port} is taken, by another viewer perhaps: name another, `--port`")
        command = [str(program()), "--bind", bind, "--port", str(port), *options]
        # A session of its own keeps the dataflow's signals away, as a window may outlive the dataflow.
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + _STARTS_WITHIN_S
        while not super().is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                raise OSError(f"the viewer did not start (exit code {self._process.wait()}); its output is above")
            time.sleep(0.05)

    def is_ready(self) -> bool:
        """True if the viewer listens at its port. Raises OSError if its process has ended, as it is not started again."""
        if self._process.poll() is not None:
            raise OSError(f"the viewer ended (exit code {self._process.returncode})")
        return super().is_ready()

    def close(self) -> None:
        if not self._outlives:
            self._process.terminate()
            self._process.wait()


def spawned(bind: str, port: int, memory_limit: str) -> Viewer:
    """Returns the viewer that already listens at `port`, else starts one with a window, which stays when the dataflow ends."""
    there = Viewer(f"rerun+http://127.0.0.1:{port}/proxy")
    if there.is_ready():
        return there
    if not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        raise OSError(
            "there is no display, expected DISPLAY or WAYLAND_DISPLAY: `save FILE.rrd` and `serve-web` need none"
        )
    return Child(bind, port, ["--memory-limit", memory_limit, "--expect-data-soon"], outlives=True)


def served(bind: str, port: int, web_port: int, memory_limit: str) -> Viewer:
    """Starts a server that ends with the dataflow. It receives the drawing at `port`, and has a page for
    browsers at `web_port`."""
    options = ["--serve-web", "--web-viewer-port", str(web_port), "--server-memory-limit", memory_limit]
    return Child(bind, port, options, outlives=False)


def program() -> pathlib.Path:
    """Returns the path of Rerun's binary, in its wheel. The script `rerun` is not used, since it does not forward signals."""
    return pathlib.Path(rerun_cli.__file__).with_name("rerun")
