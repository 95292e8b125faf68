"""Writes the ONNX model that encoder.py runs: `make_encoder.py --out out/encoder.onnx`.

The model has two convolutions and a mean over the image, with seeded weights, in place of a trained encoder.

    image     [1, 3, 48, 64]   0..1
    features  [1, 32]
"""

import argparse
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHANNELS = [3, 16, 32]


def build() -> onnx.ModelProto:
    random = np.random.default_rng(0)
    nodes, weights, source = [], [], "image"
    for i, (n_in, n_out) in enumerate(zip(CHANNELS[:-1], CHANNELS[1:], strict=True)):
        values = random.standard_normal((n_out, n_in, 3, 3)) / np.sqrt(9 * n_in)
        weights.append(numpy_helper.from_array(values.astype(np.float32), f"weight_{i}"))
        nodes += [
            helper.make_node("Conv", [source, f"weight_{i}"], [f"sum_{i}"], strides=[2, 2], pads=[1] * 4),
            helper.make_node("Relu", [f"sum_{i}"], [f"layer_{i}"]),
        ]
        source = f"layer_{i}"
    nodes += [helper.make_node("GlobalAveragePool", [source], ["mean"]), helper.make_node("Flatten", ["mean"], ["features"], axis=1)]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 48, 64])
    features = helper.make_tensor_value_info("features", TensorProto.FLOAT, [1, CHANNELS[-1]])
    graph = helper.make_graph(nodes, "robocache_example_encoder", [image], [features], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/encoder.onnx"))
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(build(), args.out)


if __name__ == "__main__":
    main()
