"""A node that computes features of images, by an ONNX model: `encoder.py --model out/encoder.onnx`.

The node takes images as the camera nodes of dora's hub send them. Features get the stamp of their image.
"""

import argparse

import numpy as np
import onnxruntime
import pyarrow as pa
from dora import Node


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(parser.parse_args().model, options, providers=["CPUExecutionProvider"])
    node = Node()
    for event in node:
        if event["type"] != "INPUT":
            continue
        metadata = event["metadata"]
        image = event["value"].to_numpy().reshape(metadata["height"], metadata["width"], 3)
        image = np.ascontiguousarray(image.transpose(2, 0, 1)[None], np.float32) / np.float32(255)
        [features] = session.run(["features"], {"image": image})
        node.send_output("features", pa.array(features[0]), {"timestamp": metadata["timestamp"]})


if __name__ == "__main__":
    main()
