//! Tests with makers' URDFs of arms: poses, Jacobians and inverse kinematics keep their bits.

use crate::random::Random;
use robocache_geometry::Real;
use robocache_kinematics::{Answer, Chain, ChainConfig, Frame, InverseConfig, Model, Pose, Solver};
use std::f64::consts::TAU;
use std::path::{Path, PathBuf};

/// A URDF, a chain in it, and two hashes in float64 and in float32: of the chain's poses and Jacobians, and of its inverse
/// kinematics. A program in another language computed the hashes from the same definitions.
struct Arm {
    file: &'static str,
    base: &'static str,
    tip: &'static str,
    double: [u64; 2],
    single: [u64; 2],
}

const ARMS: [Arm; 5] = [
    Arm {
        file: "ur5.urdf",
        base: "base_link",
        tip: "tool0",
        double: [0x986a_61bf_10c6_41f7, 0x4010_22cb_be98_4550],
        single: [0x8cdf_23e8_b017_d651, 0x7708_35bd_514d_2adf],
    },
    Arm {
        file: "panda.urdf",
        base: "panda_link0",
        tip: "panda_hand",
        double: [0x8cc8_aae5_9047_8247, 0x4dbb_445d_5436_4a15],
        single: [0x2358_320a_8391_b7f1, 0xfb15_1b65_c264_fd57],
    },
    Arm {
        file: "kuka_iiwa.urdf",
        base: "lbr_iiwa_link_0",
        tip: "lbr_iiwa_link_7",
        double: [0xf257_9a65_e40e_15da, 0xa9bd_87d0_b81c_b30c],
        single: [0x0d03_c6bd_0930_d056, 0xe395_5830_14a4_4ec3],
    },
    Arm {
        file: "so101_new_calib.urdf",
        base: "base_link",
        tip: "gripper_frame_link",
        double: [0xca45_8db4_6723_b819, 0x37b9_8705_e47d_71c7],
        single: [0xa91a_3996_30f4_417a, 0xe13f_b0f5_0b98_5313],
    },
    Arm {
        file: "prismatic_robot.urdf",
        base: "link1",
        tip: "link4",
        double: [0xb196_63d2_b69d_f4f5, 0x1fbd_fd0a_ee83_f596],
        single: [0x3ee1_dcd1_4b9e_0b7d, 0x3e46_8bef_9b18_17fa],
    },
];

const ROWS: usize = 500;

/// FNV-1a hash of bytes, updated with each value.
struct Hash(u64);

impl Hash {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn real<R: Real>(&mut self, value: R) {
        match size_of::<R>() {
            4 => self.add(&(value.to_f64() as f32).to_le_bytes()),
            _ => self.add(&value.to_f64().to_le_bytes()),
        }
    }
}

/// Computes the hash of poses and Jacobians at random rows, and the hash of the inverse kinematics of these poses.
fn hashes<R: Real>(chain: &Chain) -> [u64; 2] {
    let mut random = Random(1);
    let (exact, model) = (Model::<f64>::new(chain), Model::<R>::new(chain));
    let (mut forward, mut inverse) = (Hash::new(), Hash::new());
    let mut targets: Vec<Pose<R>> = Vec::new();
    let mut jacobian = vec![R::default(); 6 * model.joints()];
    for _ in 0..ROWS {
        let q = random.joints(chain);
        targets.push(exact.pose(&q).unwrap().map(R::from_f64));
        let q: Vec<R> = q.into_iter().map(R::from_f64).collect();
        let pose = model.jacobian(&q, Frame::Base, &mut jacobian).unwrap();
        pose.iter().chain(&jacobian).for_each(|&x| forward.real(x));
    }
    let config = InverseConfig {
        position_tolerance_m: 1e-5,
        rotation_tolerance_rad: 1e-5,
        seeds: 64,
        ..InverseConfig::default()
    };
    let solver = Solver::<R>::new(chain, &config).unwrap();
    let mut joints = vec![R::default(); ROWS * model.joints()];
    let mut answers = vec![Answer::default(); ROWS];
    solver.solve_batch(&targets, None, &mut joints, &mut answers);
    for (joints, answer) in joints.chunks_exact(model.joints()).zip(&answers) {
        let errors = [answer.position_error_m, answer.rotation_error_rad];
        joints.iter().chain(&errors).for_each(|&x| inverse.real(x));
        for count in [answer.seed, answer.iterations, u32::from(answer.valid)] {
            inverse.add(&count.to_le_bytes());
        }
    }
    assert_eq!(answers.iter().filter(|answer| answer.valid).count(), ROWS);
    [forward.0, inverse.0]
}

fn folder() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = ["../shared/data", "../../shared/data"].map(|folder| root.join(folder).join("urdf_fk"));
    folders.into_iter().find(|folder| folder.is_dir())
}

#[test]
fn arms_keep_their_bits() {
    let Some(folder) = folder() else {
        eprintln!("skipped: ../shared/data/urdf_fk is absent");
        return;
    };
    for arm in &ARMS {
        let config = ChainConfig {
            base: arm.base.to_owned(),
            tip: arm.tip.to_owned(),
            ..ChainConfig::default()
        };
        let chain = Chain::read(&folder.join(arm.file), &config).unwrap();
        assert_eq!(hashes::<f64>(&chain), arm.double, "{}", arm.file);
        assert_eq!(hashes::<f32>(&chain), arm.single, "{}", arm.file);
    }
}

#[test]
fn an_arm_of_seven_joints_comes_back_with_its_tool() {
    let Some(folder) = folder() else {
        eprintln!("skipped: ../shared/data/urdf_fk is absent");
        return;
    };
    let config = ChainConfig {
        base: "panda_link0".to_owned(),
        tip: "panda_hand".to_owned(),
        ..ChainConfig::default()
    };
    let chain = Chain::read(&folder.join("panda.urdf"), &config).unwrap();
    let home = [0.0, -0.785, 0.0, -2.356, 0.0, 1.571, 0.785];
    let start = Model::<f64>::new(&chain).pose(&home).unwrap();
    // Twenty times around a circle of 0.1 m.
    let targets: Vec<Pose<f64>> = (0..1000)
        .map(|i| {
            let (sine, cosine) = (TAU * f64::from(i) / 50.0).sin_cos();
            let mut target = start;
            target[0] += 0.1 * (cosine - 1.0);
            target[1] += 0.1 * sine;
            target
        })
        .collect();
    // The largest change of a joint from the end of the second round to that of the last one.
    let drift = |posture: Option<f64>| {
        let config = InverseConfig {
            posture,
            rest: posture.map(|_| home.to_vec()),
            ..InverseConfig::default()
        };
        let solver = Solver::<f64>::new(&chain, &config).unwrap();
        let mut joints = vec![0.0; 7 * targets.len()];
        let (mut answers, mut branches) = (vec![Answer::default(); 1000], vec![0; 1000]);
        solver.solve_along(&targets, Some(&home), &mut joints, &mut answers, &mut branches);
        assert!(answers.iter().all(|answer| answer.valid) && branches[999] == 0);
        let ends = joints[99 * 7..][..7].iter().zip(&joints[999 * 7..]);
        ends.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    };
    assert!(drift(None) > 0.5);
    assert!(drift(Some(0.1)) < 1e-3);
}

#[test]
fn a_file_that_is_absent_is_named() {
    let error = Chain::read(Path::new("no/such.urdf"), &ChainConfig::default()).unwrap_err();
    assert!(error.to_string().starts_with("no/such.urdf: "), "{error}");
}
