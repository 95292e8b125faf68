//! Mistakes planted in the project's own files, each with the expected finding.

/// A mistake in the project's own files: the right text `from`, and the wrong one `to` in its place.
pub struct Mistake {
    pub dataflow: &'static str,
    pub file: &'static str,
    pub from: &'static str,
    pub to: &'static str,
    /// The expected finding: its level, its key, and a part of its text.
    pub found: (&'static str, &'static str, &'static str),
}

pub const DEMO: &str = "dataflow.yml";
pub const SENSORS: &str = "examples/sensors.yml";
pub const REPLAY: &str = "examples/replay.yml";

const fn demo(from: &'static str, to: &'static str, found: (&'static str, &'static str, &'static str)) -> Mistake {
    Mistake {
        dataflow: DEMO,
        file: "robocache.yml",
        from,
        to,
        found,
    }
}

const fn wiring(from: &'static str, to: &'static str, found: (&'static str, &'static str, &'static str)) -> Mistake {
    Mistake {
        dataflow: DEMO,
        file: DEMO,
        from,
        to,
        found,
    }
}

const fn sensors(from: &'static str, to: &'static str, found: (&'static str, &'static str, &'static str)) -> Mistake {
    Mistake {
        dataflow: SENSORS,
        file: "examples/sensors/config.yml",
        from,
        to,
        found,
    }
}

pub const MISTAKES: &[Mistake] = &[
    // Settings that the library refuses.
    demo(
        "max_wait_ms: 100",
        "max_wait: 100",
        (
            "error",
            "fuse",
            "unknown key `max_wait`, did you mean `max_wait_ms`? (allowed: rate_hz",
        ),
    ),
    demo(
        "interpolation: nearest",
        "interpolation: closest",
        ("error", "fuse", "`closest` is not an interpolation"),
    ),
    // Misspelt names: the finding suggests the right one.
    demo(
        "interpolation: nearest",
        "interpolation: neerest",
        (
            "error",
            "fuse",
            "`neerest` is not an interpolation, did you mean `nearest`?",
        ),
    ),
    demo(
        "layout: dense",
        "layout: dens",
        ("error", "voxelize", "`dens` is not a layout, did you mean `dense`?"),
    ),
    demo(
        "channels: [occupancy, mean_z]",
        "channels: [ocupancy, mean_z]",
        (
            "error",
            "voxelize",
            "`ocupancy` is not a channel, did you mean `occupancy`?",
        ),
    ),
    demo(
        "  window: 16",
        "  residence: { observations: shared }\n  window: 16",
        (
            "error",
            "fuse",
            "`observations` is not an output, did you mean `observation`?",
        ),
    ),
    demo(
        "  window: 16",
        "  residence: { observation: { kind: shared, slot: 8 } }\n  window: 16",
        (
            "error",
            "fuse",
            "residence.observation.slot: unknown key `slot`, did you mean `slots`?",
        ),
    ),
    demo(
        "drop_rate: 0.01",
        "droprate: 0.01",
        (
            "error",
            "sim",
            "streams.camera.droprate: unknown key `droprate`, did you mean `drop_rate`?",
        ),
    ),
    demo(
        "trigger: { stream: camera }",
        "trigger: { stream: camera, rows: sample }",
        (
            "error",
            "fuse",
            "`sample` is not allowed, did you mean `samples`? (allowed: period, samples)",
        ),
    ),
    // Values of a wrong type: the finding names the place, in the language of configurations.
    demo(
        "rate_hz: 30  ",
        "rate_hz: fast",
        ("error", "fuse", "rate_hz: \"fast\" is not allowed (allowed: a number)"),
    ),
    demo(
        "window: 16",
        "window: 1.5",
        (
            "error",
            "fuse",
            "window: 1.5 is not allowed (allowed: a whole number, 0 or more)",
        ),
    ),
    demo(
        "  modalities:               #",
        "  modality:                 #",
        ("error", "fuse", "unknown key `modality`, did you mean `modalities`?"),
    ),
    demo(
        "{ input: lidar }",
        "{ input: lidar, from: points }",
        (
            "error",
            "voxelize",
            "inputs[0].from: \"points\" is not allowed (allowed: a map of columns, names, stamp)",
        ),
    ),
    demo(
        "  dtype: float32\n  modalities",
        "  dtype: float32\n  window: 8\n  modalities",
        (
            "error",
            "configuration",
            "fuse: the key `window` is given twice (allowed: once) at line 27 column 3",
        ),
    ),
    // Values in a wrong unit.
    demo(
        "max_wait_ms: 100",
        "max_wait_ms: 0.2",
        (
            "warning",
            "fuse.max_wait_ms",
            "0.2 ms, 200 us, and 0.2 s would be 200 ms (plausible: 1 to 60000 ms)",
        ),
    ),
    demo(
        "max_age_ms: 250",
        "max_age_ms: 200000000",
        (
            "warning",
            "fuse.attach[0].max_age_ms",
            "200000000 ms, 2.31 days, and 200000000 us would be 200000 ms",
        ),
    ),
    demo(
        "latency_ms: 33, max_age_ms: 50",
        "latency_ms: 33000000, max_age_ms: 50",
        (
            "warning",
            "fuse.modalities[0].latency_ms",
            "33000000 ns would be 33 ms (plausible: 0.05 to 10000 ms)",
        ),
    ),
    demo(
        "voxel_size_m: [0.4, 0.4, 0.4]",
        "voxel_size_m: [400, 400, 400]",
        (
            "warning",
            "voxelize.voxel_size_m",
            "is it in millimetres? (plausible: 0.001 to 10 m)",
        ),
    ),
    sensors(
        "window: 16 ",
        "window: 400000 ",
        (
            "warning",
            "fuse.window",
            "400000 rows, 1 steps apart, at 50 Hz are 2.22 hours (plausible: up to 600 s)",
        ),
    ),
    sensors(
        "rate_hz: 50\n  window: 16 ",
        "rate_hz: 1000000\n  window: 100000 ",
        (
            "warning",
            "fuse.window",
            "an observation is 14.0 MB, and 1000000 a second are 14.0 TB a second",
        ),
    ),
    demo(
        "window: 16\n",
        "window: 500000\n",
        (
            "error",
            "nodes.fuse.outputs.observation",
            "bytes (allowed: 268435456 with its metadata, what dora carries; a smaller `shape` of a grid",
        ),
    ),
    sensors(
        "rate_hz: 50\n",
        "rate_hz: 1000000\n",
        (
            "warning",
            "fuse.rate_hz",
            "1000000 Hz is a step of 1.00 us (plausible: 0.01 to 10000 Hz)",
        ),
    ),
    sensors(
        "translation_m: [0.3, 0, 0.5]",
        "translation_m: [300, 0, 500]",
        (
            "warning",
            "voxelize.inputs[0].extrinsic.translation_m",
            "is it in millimetres?",
        ),
    ),
    demo(
        "trigger: { stream: camera }",
        "trigger: { stream: camrea }",
        ("error", "fuse", "camrea"),
    ),
    demo(
        "{ channels: [11, 15],",
        "{ channels: [12, 15],",
        ("error", "fuse", "leaves a hole"),
    ),
    demo(
        "\nvoxelize:",
        "\nvoxelise:",
        (
            "error",
            "configuration",
            "unknown key `voxelise`, did you mean `voxelize`?",
        ),
    ),
    // Limits, waits and widths in a configuration.
    demo(
        "latency_ms: 33, max_age_ms: 50",
        "latency_ms: 33, max_age_ms: 10",
        ("warning", "fuse.modalities[0].max_age_ms", "speaks every 33.3 ms"),
    ),
    demo(
        "max_gap_ms: 50, extrapolate_ms: 5 }\n    - input",
        "max_gap_ms: 0.5 }\n    - input",
        ("warning", "fuse.modalities[1].max_gap_ms", "masked between its samples"),
    ),
    demo(
        "[11, 15], interpolation: previous, max_age_ms: 50",
        "[11, 15], interpolation: previous, max_age_ms: 1",
        ("warning", "fuse.modalities[2].groups[3].max_age_ms", "every 2.00 ms"),
    ),
    demo(
        "max_wait_ms: 100",
        "max_wait_ms: 20",
        ("warning", "fuse.max_wait_ms", "`camera` comes"),
    ),
    demo(
        "max_wait_ms: 100",
        "max_wait_ms: null",
        ("warning", "fuse.max_wait_ms", "falls silent ends all observations"),
    ),
    demo(
        "{ input: camera, dim: 128",
        "{ input: camera, dim: 64",
        ("error", "fuse.modalities[0].dim", "128 values"),
    ),
    demo(
        "rate_hz: 30  ",
        "rate_hz: 4000",
        ("warning", "fuse.rate_hz", "fastest stream has 1000 Hz"),
    ),
    demo(
        "min_period_ms: 95",
        "min_period_ms: 150",
        ("warning", "fuse.attach[0].min_period_ms", "every 100 ms"),
    ),
    demo(
        "max_age_ms: 250",
        "max_age_ms: 50",
        ("warning", "fuse.attach[0].max_age_ms", "comes every 100 ms"),
    ),
    demo(
        "rows: 1, latency_ms: -100",
        "max_held_mb: 1, latency_ms: -100",
        ("warning", "fuse.attach[0].max_held_mb", "the oldest are dropped"),
    ),
    demo(
        "dim: 6, interpolation: linear,",
        "dim: 6, jump_ms: 0.5, interpolation: linear,",
        ("error", "fuse.modalities[1].jump_ms", "every sample is a clock jump"),
    ),
    demo(
        "channels: [occupancy, mean_z]",
        "channels: [occupancy, mean_reflectance]",
        ("error", "voxelize.channels[1]", "no field `reflectance`"),
    ),
    demo(
        "shape: [64, 64, 16]",
        "shape: [512, 512, 128]",
        ("warning", "voxelize.shape", "a second"),
    ),
    demo(
        "proprio:\n      drop_rate: 0.002",
        "proprio: null",
        ("error", "nodes.fuse.inputs.proprio", "sim.streams.proprio is null"),
    ),
    demo(
        "real_time: true",
        "real_time: false",
        ("warning", "nodes.fuse.inputs.camera.queue_policy", "messages are lost"),
    ),
    demo(
        "  window: 16",
        "  residence: { observation: { kind: shared, slots: 8, backpressure: true, consumers: 2 } }\n  window: 16",
        (
            "error",
            "residence of `observation`",
            "consumers: 2, and 1 inputs read it",
        ),
    ),
    demo(
        "  window: 16",
        "  residence: { fused: shared }\n  window: 16",
        ("warning", "residence of `fused`", "no node reads"),
    ),
    demo(
        "  window: 16",
        "  residence: { observation: { kind: shared, slots: 2 } }\n  window: 16",
        ("warning", "residence of `observation`", "slots: 2"),
    ),
    demo(
        "trigger: { stream: camera }",
        "trigger: { request: camera }",
        ("error", "fuse", "camera"),
    ),
    // Wiring between the nodes.
    wiring(
        "      proprio: { source: robot/proprio, queue_size: 500 }\n",
        "",
        (
            "error",
            "nodes.fuse.inputs",
            "asks for `proprio`, which is not wired (wired: camera, force, voxels)",
        ),
    ),
    wiring(
        "force: { source: robot/force,",
        "wrist: { source: robot/force,",
        ("warning", "nodes.fuse.inputs.wrist", "does not ask for it"),
    ),
    wiring(
        "force: { source: robot/force,",
        "force: { source: robot/proprio,",
        ("error", "fuse.modalities[1].dim", "15 values"),
    ),
    wiring(
        "proprio: { source: robot/proprio,",
        "proprio: { source: robot/lidar,",
        ("error", "fuse.modalities[2].input", "wired to point clouds"),
    ),
    wiring(
        "lidar: { source: robot/lidar,",
        "lidar: { source: robot/camera,",
        ("error", "voxelize.inputs[0].input", "allowed: point clouds"),
    ),
    wiring(
        "queue_size: 1000",
        "queue_size: 10",
        (
            "warning",
            "nodes.fuse.inputs.force.queue_size",
            "1000 messages a second",
        ),
    ),
    wiring(
        "{ source: robot/lidar, queue_size: 4 }",
        "{ source: robot/lidar, queue_size: 1 }",
        ("warning", "nodes.voxelize.inputs.lidar.queue_size", "the next is lost"),
    ),
    wiring(
        "queue_size: 30 }",
        "queue_size: 30, queue_policy: backpressure }",
        (
            "warning",
            "nodes.fuse.inputs.camera.queue_policy",
            "holds its sensor up",
        ),
    ),
    wiring(
        "observation: { source: fuse/observation, queue_size: 60 }",
        "observation: { source: fuse/observation, queue_size: 60, queue_policy: backpressure }",
        (
            "warning",
            "nodes.policy.inputs.observation.queue_policy",
            "`fuse/observation` is live: a slow node holds its sensor up",
        ),
    ),
    wiring(
        "    shared_memory_pool_size: 64MB\n    inputs:\n      lidar",
        "    shared_memory_pool_size: 1000000GB\n    inputs:\n      lidar",
        ("warning", "nodes", "and /dev/shm has"),
    ),
    wiring(
        "    shared_memory_pool_size: 64MB      # a cloud is 1.4 MB\n",
        "    shared_memory_pool_size: 4MB\n",
        ("warning", "nodes.robot.shared_memory_pool_size", "a message of `lidar`"),
    ),
    wiring(
        "    outputs: [observation]",
        "    outputs: [observation, fused]",
        ("warning", "nodes.fuse.outputs.fused", "nobody reads it"),
    ),
    wiring(
        "    outputs: [observation]",
        "    outputs: [observation, diagnostics]",
        ("warning", "nodes.fuse.outputs.diagnostics", "nobody reads it"),
    ),
    wiring(
        "    outputs: [observation]",
        "    outputs: [observations]",
        (
            "error",
            "nodes.fuse.outputs.observations",
            "no such output, did you mean `observation`? (allowed: fused, grids, observation, diagnostics)",
        ),
    ),
    wiring(
        "    outputs: [observation]",
        "    outputs: [fused]",
        ("warning", "fuse.attach[0]", "declares none of grids, observation"),
    ),
    wiring(
        "      voxels: robocache/v1/VoxelsDense\n\n  - id: policy",
        "      voxels: robocache/v1/VoxelsCoo\n\n  - id: policy",
        ("error", "nodes.voxelize.output_types.voxels", "of the type VoxelsDense"),
    ),
    wiring(
        "      force: robocache/v1/Wrench[dim=6]\n      proprio: robocache/v1/Proprio[dim=15]\n      lidar",
        "      force: robocache/v1/Wrench[dim=3]\n      proprio: robocache/v1/Proprio[dim=15]\n      lidar",
        (
            "error",
            "nodes.robot.output_types.force",
            "dim=3, and a sample has 6 values",
        ),
    ),
    wiring(
        "robocache-voxelize",
        "robocache-voxelise",
        (
            "error",
            "nodes.voxelize.path",
            "`robocache-voxelise` is not a node, did you mean `voxelize`?",
        ),
    ),
    wiring(
        "robocache-fuse\n    args: --config robocache.yml",
        "robocache-fuse\n    args: --verbose",
        ("error", "nodes.fuse.args", "no configuration is given"),
    ),
    wiring(
        "robocache-fuse\n    args: --config robocache.yml",
        "robocache-align\n    args: --config robocache.yml",
        ("error", "configuration", "the section `align:` is missing"),
    ),
    wiring(
        "robocache-fuse\n    args: --config robocache.yml",
        "robocache-fuse\n    args: --config robot.yml",
        ("error", "configuration", "it can't be read"),
    ),
    // Foreign sensors, about which only the configuration tells something.
    sensors(
        "max_wait_ms: 150",
        "max_wait_ms: null",
        ("warning", "voxelize.max_wait_ms", "ends all grids"),
    ),
    sensors(
        "rotation_xyzw: [0, 0, 1, 0]",
        "rotation_xyzw: [0, 0, 1, 1]",
        (
            "warning",
            "voxelize.inputs[1].extrinsic.rotation_xyzw",
            "a length of 1.41",
        ),
    ),
    sensors(
        "dim: 16, interpolation: previous",
        "dim: 16, latency_ms: 250, interpolation: previous",
        ("warning", "fuse.max_wait_ms", "`camera` comes 250 ms"),
    ),
    sensors(
        "dim: 7, interpolation: linear",
        "dim: 7, min_period_ms: 80, interpolation: linear",
        ("warning", "fuse.modalities[1].max_gap_ms", "speaks every 80.0 ms"),
    ),
    Mistake {
        dataflow: SENSORS,
        file: SENSORS,
        from: "rear: { source: rear/rear, queue_size: 4 }",
        to: "rear: { source: front/front, queue_size: 4 }",
        found: ("warning", "nodes.voxelize.inputs.rear", "as `front` is"),
    },
    Mistake {
        dataflow: SENSORS,
        file: SENSORS,
        from: "imu: { source: imu/imu, queue_size: 200 }",
        to: "imu: { source: imu/imu, queue_size: 1 }",
        found: (
            "warning",
            "nodes.fuse.inputs.imu.queue_size",
            "1, and messages of `imu` come 20.0 times a second by its `max_gap_ms`: a busy node loses some (allowed: 2 or more)",
        ),
    },
    Mistake {
        dataflow: SENSORS,
        file: SENSORS,
        from: "joints: { source: joints/joints, queue_size: 100 }",
        to: "joints: { source: joints/joints, queue_size: 100, queue_policy: backpressure }",
        found: (
            "warning",
            "nodes.fuse.inputs.joints.queue_policy",
            "nothing says that `joints/joints` is a replay: a slow node holds a live sensor up",
        ),
    },
    Mistake {
        dataflow: SENSORS,
        file: SENSORS,
        from: "wrench: { source: wrench/wrench, queue_size: 100 }",
        to: "wrensh: { source: wrench/wrench, queue_size: 100 }",
        found: (
            "error",
            "nodes.fuse.inputs",
            "asks for `wrench`, which is not wired, did you mean `wrensh`?",
        ),
    },
    Mistake {
        dataflow: REPLAY,
        file: "examples/recording.yml",
        from: "speed: 1.0 ",
        to: "speed: max",
        found: ("warning", "nodes.fuse.inputs.force.queue_policy", "replay.speed is max"),
    },
];
