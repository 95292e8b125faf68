"""The viewer node: one thread receives dora's events, another draws them.

Rerun makes the drawing thread wait when a viewer is slow, and only that thread may wait. Messages that come meanwhile wait in
the inbox, which drops the oldest when it is full.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shlex
import sys
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from robocache_view import __version__
from robocache_view.inbox import Inbox, copied
from robocache_view.log import Faults, say

# Time that the viewer may take after the last message.
_ENDS_WITHIN_S = 10.0
_CHECK_EVERY_S = 0.5
_RECORDING = "robocache"


class Painter(threading.Thread):
    """Thread that draws the messages of the inbox while a viewer is connected. When a viewer comes back, it starts
    a new drawing."""

    def __init__(self, inbox: Inbox, sink: Any, faults: Faults, gone: Callable[[str], None]):
        super().__init__(daemon=True)
        self._inbox, self._sink, self._faults, self._gone = inbox, sink, faults, gone
        self._id = uuid.uuid4()

    def run(self) -> None:
        try:
            while not self._inbox.is_done:
                if self._sink.is_ready():
                    self._paint()
                elif self._inbox.is_closed:
                    return
                else:
                    self._faults.count("viewer", "seconds without a viewer", f"nobody listens at {self._sink.url}")
                    time.sleep(1.0)
        except Exception as error:
            self._gone(str(error))

    def _paint(self) -> None:
        """Draws messages into a new recording until the inbox is done, or the viewer is gone."""
        import rerun as rr

        from robocache_view.canvas import Canvas

        recording = rr.RecordingStream(_RECORDING, recording_id=self._id)
        self._sink.connect(recording)
        canvas = Canvas(recording)
        checked = time.monotonic()
        while not self._inbox.is_done:
            taken = self._inbox.take(_CHECK_EVERY_S)
            if taken is not None:
                name, (value, metadata) = taken
                try:
                    canvas.draw(name, value, metadata)
                except Exception as error:  # Whatever is wrong with a message, the next one is drawn.
                    words = str(error).partition("\n")[0]
                    self._faults.count(name, "messages that can't be drawn", f"{type(error).__name__}: {words}")
            if time.monotonic() - checked >= _CHECK_EVERY_S:
                canvas.lay_out()
                if not self._is_there(recording):
                    return
                checked = time.monotonic()
        canvas.lay_out()
        recording.flush(timeout_sec=_ENDS_WITHIN_S)
        recording.disconnect()

    def _is_there(self, recording: Any) -> bool:
        """True if the viewer is still connected. A flush tells, since a broken connection accepts all drawings
        without an error."""
        try:
            # With a timeout of 0 it would never report an error.
            recording.flush(timeout_sec=0.01)
        except RuntimeError as error:
            if "timed out" in str(error):
                return True
            # Raises OSError if the viewer can't come back.
            self._sink.is_ready()
            self._faults.count("viewer", "connections lost", "the viewer is gone")
            return False
        return True


def run(node: Any, sink: Any) -> None:
    """Runs the node: receives messages until the dataflow ends, or the node is interrupted."""
    inbox, faults = Inbox(), Faults()
    gone: list[str] = []
    painter = Painter(inbox, sink, faults, gone.append)
    painter.start()
    try:
        _take(node, inbox, faults, gone)
    except KeyboardInterrupt:
        pass
    inbox.close()
    painter.join(_ENDS_WITHIN_S)
    if gone:
        say("warn", f"{gone[0]}: nothing more is drawn")
    elif painter.is_alive() or len(inbox):
        say("warn", f"the viewer takes nothing more: {len(inbox)} messages are not drawn")
    faults.sum_up()
    sink.close()


def _take(node: Any, inbox: Inbox, faults: Faults, gone: Sequence[str]) -> None:
    """Puts dora's messages into the inbox until the dataflow ends, or the list `gone` has an entry, which means that
    drawing has failed."""
    for event in node:
        if gone:
            return
        match event["type"]:
            case "INPUT":
                name = event["id"]
                try:
                    value, metadata, size = copied(event)
                except Exception as error:  # Such as a ring whose producer is gone.
                    faults.count(name, "messages that can't be read", f"{type(error).__name__}: {error}")
                    continue
                if dropped := inbox.put(name, (value, metadata), size):
                    faults.count(name, "messages dropped", "a message is dropped: the viewer can't keep up", dropped)
            case "ERROR":
                say("error", f"dora: {event.get('error')}")


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, expected 1 to 65535")
    return int(text)


def _memory(text: str) -> str:
    if not re.fullmatch(r"\d+(\.\d+)?([KMGT]i?)?B|\d{1,2}%", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount of memory, such as 2GB, 512MiB or 25%")
    return text


def _url(text: str) -> str:
    try:
        parsed = urllib.parse.urlsplit(text)
        is_one = (
            parsed.scheme in ("rerun+http", "rerun+https")
            and parsed.hostname
            and parsed.port
            and parsed.path == "/proxy"
        )
    except ValueError:
        is_one = False
    if not is_one:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an address of a viewer, such as rerun+http://127.0.0.1:9876/proxy"
        )
    return text


def _file(text: str) -> pathlib.Path:
    path = pathlib.Path(text)
    if path.suffix != ".rrd":
        raise argparse.ArgumentTypeError(f"{text!r} does not end in .rrd, which tells Rerun what it is")
    return path


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Parses the command line or, if that is empty, the environment variable ROBOCACHE_VIEW. Exits with code 2 on an error."""
    parser = argparse.ArgumentParser("robocache-view", description="Shows the messages that are wired to it in Rerun.")
    parser.add_argument("--version", action="version", version=f"robocache-view {__version__}")
    modes = parser.add_subparsers(dest="mode", required=True, metavar="MODE")
    local = argparse.ArgumentParser(add_help=False)
    local.add_argument(
        "--memory-limit",
        type=_memory,
        default="2GB",
        help="memory beyond which the viewer drops the oldest data (default: 2GB)",
    )
    local.add_argument("--bind", default="127.0.0.1", help="the interface to listen on (default: 127.0.0.1)")
    local.add_argument("--port", type=_port, default=9876, help="the port that takes the drawing (default: 9876)")
    modes.add_parser("spawn", parents=[local], help="open a window, or use the one that is open")
    connect = modes.add_parser("connect", help="draw to a viewer that runs elsewhere, or starts later")
    connect.add_argument("url", type=_url, nargs="?", default="rerun+http://127.0.0.1:9876/proxy")
    save = modes.add_parser("save", help="write a file that Rerun opens")
    save.add_argument("file", type=_file, help="FILE.rrd; counts from the folder of the dataflow")
    serve = modes.add_parser("serve-web", parents=[local], help="serve a page for browsers")
    serve.add_argument("web_port", type=_port, nargs="?", default=9090, metavar="PORT")
    try:
        words = shlex.split(os.environ.get("ROBOCACHE_VIEW", ""))
    except ValueError as error:
        parser.error(f"ROBOCACHE_VIEW is {os.environ['ROBOCACHE_VIEW']!r}: {error}")
    return parser.parse_args(argv or words or ["spawn"])


def opened(options: argparse.Namespace) -> Any:
    """Opens the destination that the options name: a viewer, a file or a web page. Raises OSError if that fails."""
    from robocache_view import sink

    match options.mode:
        case "spawn":
            return sink.spawned(options.bind, options.port, options.memory_limit)
        case "connect":
            return sink.Viewer(options.url)
        case "save":
            return sink.File(options.file)
    page = sink.served(options.bind, options.port, options.web_port, options.memory_limit)
    say("info", f"open http://127.0.0.1:{options.web_port}?url={urllib.parse.quote(page.url, safe='')}")
    return page


def main() -> None:
    options = arguments(sys.argv[1:])
    # Rerun takes a while to import: `--help` and a wrong argument need not wait.
    import rerun as rr
    from dora import Node

    rr.set_strict_mode(True)
    try:
        node = Node()
        # The other nodes start when every node has joined: a viewer that can't be opened must not hold them up.
        sink = opened(options)
    except RuntimeError as error:
        say("error", f"dora: {str(error).partition(chr(10))[0]}")
        sys.exit(1)
    except OSError as error:
        say("error", f"{options.mode}: {error}; nothing is drawn")
        sys.exit(1)
    run(node, sink)
    # The drawing thread may wait for a viewer that takes nothing: the node ends without it.
    sys.stdout.flush()
    os._exit(0)
