"""Makes a picture of a Rerun recording: `picture.py FILE.rrd FILE.png`. It needs no display, but a Vulkan driver, such as that
of mesa-vulkan-drivers, which computes on the CPU.
"""

import argparse
import io
import os
import pathlib
import sys
import time

import numpy as np
from PIL import Image
from rerun.experimental import ViewerClient

# Seconds for which the viewer's notes on its start cover the corner.
_NOTES_S = 10.0
_BAR = 37
_WIDTH = 1440


def picture(recording: pathlib.Path, timeline: str = "capture_time") -> Image.Image:
    """Returns a screenshot of the Rerun viewer that shows the end of a recording. The end is that of `timeline`."""
    # The viewer is looked up in PATH by its name.
    os.environ["PATH"] = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with ViewerClient.spawn(headless=True, port=9877) as viewer:
        viewer.open(str(recording))
        time.sleep(_NOTES_S)
        (shown,) = viewer.get_state().recordings
        end = next(t.end for t in shown.timelines if t.name == timeline)
        viewer.set_time(timeline, timestamp=np.datetime64(end, "ns"))
        time.sleep(1.0)
        return Image.open(io.BytesIO(viewer.take_screenshot()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recording", type=pathlib.Path)
    parser.add_argument("picture", type=pathlib.Path)
    options = parser.parse_args()
    image = picture(options.recording).convert("RGB")
    # The menu bar shows nothing of the recording.
    image = image.crop((0, _BAR, image.width, image.height))
    image.thumbnail((_WIDTH, image.height), Image.Resampling.LANCZOS)
    image.quantize(256, dither=Image.Dither.NONE).save(options.picture, optimize=True)
    print(f"{options.picture}: {image.width} x {image.height}, {options.picture.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
