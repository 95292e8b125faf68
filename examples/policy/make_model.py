"""Writes the ONNX model that the demo's policy runs: `make_model.py --config robocache.yml --out out/policy.onnx`.

The network is small and untrained, with seeded weights, in place of a trained policy with these inputs. Its shapes come from
the configuration of the nodes that feed it, so that the two can't disagree.

  - fused        [1, T, D]        observation window, 0 where it is not valid
  - valid        [1, T, M]        1 if a modality is valid (the opposite of LeRobot's `_is_pad`)
  - voxels       [1, C, X, Y, Z]  occupancy grid and its channels, zeros if there is none
  - voxels_valid [1, 1]           1 if `voxels` is a grid, 0 if there is none
  - action       [1, 8, 8]        chunk of eight steps: seven joints and a gripper, in -1..1
"""

import argparse
import pathlib
import sys

import numpy as np
import onnx
import yaml
from onnx import TensorProto, helper, numpy_helper

HORIZON = 8
ACTION_DIM = 8
# Divisors of a modality's columns before the first layer, by input name, since forces are tens of newtons.
FEATURE_SCALE = {"force": 20.0}


def shapes(config: dict) -> dict:
    """Reads the shapes of the model from the sections `fuse` and `voxelize` of a node configuration."""
    fuse, voxelize = config["fuse"], config["voxelize"]
    layout = voxelize.get("layout", "dense")
    if layout != "dense":
        raise ValueError(f"voxelize.layout is {layout!r}, the policy's 3D convolution needs dense")
    return {
        "window": int(fuse["window"]),
        "modalities": [m["input"] for m in fuse["modalities"]],
        "dims": [int(m["dim"]) for m in fuse["modalities"]],
        "period_ns": round(1e9 / float(fuse["rate_hz"])) * int(fuse.get("emit_every", 1)),
        "grid": [len(voxelize["channels"]), *(int(n) for n in voxelize["shape"])],
    }


def build(config: dict, seed: int = 0) -> onnx.ModelProto:
    """Makes the model for the shapes of `config`, with random weights drawn from `seed`."""
    s = shapes(config)
    window, dim, modalities = s["window"], sum(s["dims"]), len(s["modalities"])
    channels = s["grid"][0]
    rng = np.random.default_rng(seed)
    weights = []

    def weight(name: str, shape: list[int], fan_in: int) -> str:
        values = rng.standard_normal(shape).astype(np.float32) / np.sqrt(np.float32(fan_in))
        weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def constant(name: str, value: np.ndarray) -> str:
        weights.append(numpy_helper.from_array(value, name))
        return name

    def dense(source: str, name: str, n_in: int, n_out: int, activation: str) -> list:
        bias = constant(f"{name}.b", np.zeros(n_out, np.float32))
        return [
            helper.make_node("Gemm", [source, weight(f"{name}.w", [n_in, n_out], n_in), bias], [f"{name}.sum"]),
            helper.make_node(activation, [f"{name}.sum"], [name]),
        ]

    def conv(source: str, name: str, n_in: int, n_out: int, kernel: int, stride: int, pad: int) -> list:
        w = weight(f"{name}.w", [n_out, n_in, kernel, kernel, kernel], n_in * kernel**3)
        return [
            helper.make_node("Conv", [source, w], [f"{name}.sum"], strides=[stride] * 3, pads=[pad] * 6),
            helper.make_node("Relu", [f"{name}.sum"], [name]),
        ]

    scale = np.repeat([1.0 / FEATURE_SCALE.get(m, 1.0) for m in s["modalities"]], s["dims"]).astype(np.float32)
    nodes = [
        helper.make_node("Mul", ["fused", constant("fused_scale", scale)], ["fused_scaled"]),
        helper.make_node("Flatten", ["fused_scaled"], ["fused_flat"], axis=1),
        helper.make_node("Flatten", ["valid"], ["valid_flat"], axis=1),
        helper.make_node("Concat", ["fused_flat", "valid_flat"], ["sensors"], axis=1),
        *dense("sensors", "sensor_features", window * (dim + modalities), 128, "Relu"),
        *conv("voxels", "coarse", channels, 8, kernel=4, stride=4, pad=2),
        *conv("coarse", "coarser", 8, 16, kernel=3, stride=2, pad=1),
        helper.make_node("GlobalAveragePool", ["coarser"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["pooled_flat"], axis=1),
        helper.make_node("Concat", ["sensor_features", "pooled_flat", "voxels_valid"], ["features"], axis=1),
        *dense("features", "hidden", 128 + 16 + 1, 64, "Relu"),
        *dense("hidden", "action_flat", 64, HORIZON * ACTION_DIM, "Tanh"),
        helper.make_node(
            "Reshape", ["action_flat", constant("action_shape", np.array([1, HORIZON, ACTION_DIM], np.int64))], ["action"]
        ),
    ]
    graph = helper.make_graph(
        nodes,
        "robocache_demo_policy",
        [
            helper.make_tensor_value_info("fused", TensorProto.FLOAT, [1, window, dim]),
            helper.make_tensor_value_info("valid", TensorProto.FLOAT, [1, window, modalities]),
            helper.make_tensor_value_info("voxels", TensorProto.FLOAT, [1, *s["grid"]]),
            helper.make_tensor_value_info("voxels_valid", TensorProto.FLOAT, [1, 1]),
        ],
        [helper.make_tensor_value_info("action", TensorProto.FLOAT, [1, HORIZON, ACTION_DIM])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    helper.set_model_props(
        model, {"modalities": " ".join(s["modalities"]), "period_ns": str(s["period_ns"]), "seed": str(seed)}
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=pathlib.Path, default=pathlib.Path("robocache.yml"))
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/policy.onnx"))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    try:
        model = build(yaml.safe_load(args.config.read_text()), args.seed)
    except (OSError, yaml.YAMLError, KeyError, ValueError) as error:
        print(f"make_model: {args.config}: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    args.out.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, args.out)
    print(f"{args.out}: {args.out.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
