//! Tests of reading URDFs: errors with file, line and joint, and warnings.

use crate::random::Random;
use crate::robots::{LIMIT, chain, joint, planar, robot, six_axes, snake};
use robocache_geometry::RigidTransform;
use robocache_kinematics::{Chain, ChainConfig, ChainSource, JointKind, Model, ToolConfig};
use std::collections::BTreeMap;
use std::path::Path;

fn config() -> ChainConfig {
    ChainConfig {
        base: "base".to_owned(),
        tip: "tip".to_owned(),
        ..ChainConfig::default()
    }
}

fn refusal(text: &str, config: &ChainConfig) -> String {
    match Chain::new(text, "test.urdf", config) {
        Ok(_) => panic!("{text}"),
        Err(error) => error.to_string(),
    }
}

/// Returns the error text for a robot with one joint `j` between `base` and `tip`, in line 4. `inside` is the XML within the
/// joint's element.
fn refusal_of(kind: &str, inside: &str) -> String {
    refusal(
        &robot(&["base", "tip"], &joint("j", kind, "base", "tip", inside)),
        &config(),
    )
}

#[test]
fn a_joint_that_is_not_right_is_refused_with_its_line() {
    for (kind, inside, problem) in [
        (
            "revolute",
            "",
            "no limits (needed: <limit lower=\"...\" upper=\"...\">, or `limits` of the configuration)",
        ),
        ("revolute", "<limit effort=\"1\"/>", "no limits (needed"),
        (
            "prismatic",
            "<limit lower=\"1\" upper=\"1\"/>",
            "limits 1 and 1 (allowed: a lower one and then a higher one; `limits` of the configuration take their place)",
        ),
        ("revolute", "<limit lower=\"1\"/>", "limits 1 and 0 (allowed"),
        (
            "revolute",
            "<limit lower=\"9000\" upper=\"9001\"/>",
            "limits 9000 and 9001 (allowed: within -8192 and 8192)",
        ),
        (
            "revolute",
            "<limit lower=\"0.1\" upper=\"0.1000000001\"/>",
            "no float32 lies between its limits",
        ),
        (
            "floating",
            "",
            "type `floating` (allowed in a chain: fixed, revolute, continuous, prismatic)",
        ),
        ("planar", "", "type `planar` (allowed"),
        ("", "", "type `` (allowed"),
        (
            "continuous",
            "<axis xyz=\"0 0 0\"/>",
            "an axis of length 0e0 (allowed: from 1e-6 on)",
        ),
        (
            "continuous",
            "<axis xyz=\"0 1\"/>",
            "axis xyz `0 1` (allowed: 3 numbers)",
        ),
        (
            "continuous",
            "<axis xyz=\"0 0 1 0\"/>",
            "axis xyz `0 0 1 0` (allowed: 3 numbers)",
        ),
        (
            "continuous",
            "<origin rpy=\"0 nan 0\"/>",
            "origin rpy `0 nan 0` (allowed: finite numbers)",
        ),
        (
            "continuous",
            "<origin xyz=\"1e400 0 0\"/>",
            "origin xyz `1e400 0 0` (allowed: finite numbers)",
        ),
        (
            "continuous",
            "<origin xyz=\"0 0 1e7\"/>",
            "origin xyz `0 0 1e7` (allowed: up to 1e6)",
        ),
        (
            "continuous",
            "<origin rpy=\"${pi} 0 0\"/>",
            "origin rpy `${pi} 0 0` (allowed: 3 numbers)",
        ),
        ("continuous", "<origin xyz=\"\"/>", "origin xyz `` (allowed: 3 numbers)"),
        ("fixed", "<origin xyz=\"a b c\"/>", "0 joints move"),
        (
            "continuous",
            "<mimic joint=\"k\"/>",
            "it mimics `k`, which is not a joint of the file",
        ),
        (
            "continuous",
            "<mimic joint=\"j\"/>",
            "the mimics that it follows form a circle, in which `j` lies",
        ),
        ("continuous", "<mimic/>", "a <mimic> without a joint"),
        (
            "continuous",
            "<origin xyz=\"0 0 1\" quat_xyzw=\"0 0 0 1\"/>",
            "origin quat_xyzw `0 0 0 1` (allowed: xyz, rpy)",
        ),
        (
            "continuous",
            "<origin rpY=\"0 0 1\"/>",
            "origin rpY `0 0 1` (allowed: xyz, rpy)",
        ),
        ("continuous", "<axis x=\"1\"/>", "axis x `1` (allowed: xyz)"),
        (
            "continuous",
            "<mimic joint=\"j\" factor=\"2\"/>",
            "mimic factor `2` (allowed: joint, multiplier, offset)",
        ),
        ("continuous", "<origin/><origin/>", "a second <origin> (allowed: one)"),
        ("continuous", "<axis/><axis/>", "a second <axis> (allowed: one)"),
        (
            "revolute",
            "<limit lower=\"-1\" upper=\"1\"/><limit lower=\"-1\" upper=\"1\"/>",
            "a second <limit> (allowed: one)",
        ),
        (
            "continuous",
            "<parent link=\"base\"/>",
            "a second <parent> (allowed: one)",
        ),
        ("continuous", "<child link=\"tip\"/>", "a second <child> (allowed: one)"),
        ("continuous", "<mimic/><mimic/>", "a second <mimic> (allowed: one)"),
        (
            "revolute",
            "<limit lower=\"-1deg\" upper=\"1\"/>",
            "limit lower `-1deg` (allowed: a number)",
        ),
        (
            "revolute",
            "<limit lower=\"-1 0\" upper=\"1\"/>",
            "limit lower `-1 0` (allowed: a number)",
        ),
    ] {
        let refusal = refusal_of(kind, inside);
        assert!(refusal.contains(problem), "{inside}: {refusal}");
        if !problem.starts_with("0 joints") {
            assert!(refusal.starts_with("test.urdf:4: joint `j`: "), "{refusal}");
        }
    }
}

#[test]
fn a_file_that_is_not_right_is_refused_with_its_line() {
    let (links, j) = (["base", "tip"], joint("j", "continuous", "base", "tip", ""));
    let two_parents = robot(
        &["base", "other", "tip"],
        &(j.clone() + &joint("k", "fixed", "other", "tip", "")),
    );
    let circle = joint("a", "continuous", "x", "y", "") + &joint("b", "continuous", "y", "x", "");
    let circle = robot(&["base", "x", "y"], &circle);
    let deep = "<a>".repeat(200_000);
    let entity = "<!DOCTYPE robot [<!ENTITY a \"b\">]><robot/>";
    for (text, tip, problem) in [
        ("", "tip", "test.urdf: not XML: "),
        ("<robot>", "tip", "test.urdf: not XML: "),
        (deep.as_str(), "tip", "test.urdf: not XML: "),
        (
            entity,
            "tip",
            "test.urdf: it has a DTD (allowed: XML without <!DOCTYPE ...>; entities are not read)",
        ),
        (
            "<sdf/>",
            "tip",
            "test.urdf:1: the first element is <sdf> (allowed: <robot>)",
        ),
        (
            "<robot>\n<xacro:include filename=\"a\"/></robot>",
            "tip",
            "test.urdf:2: it is a xacro file (expand it first",
        ),
        (
            "<robot xmlns:xacro=\"http://www.ros.org/wiki/xacro\">\n\n<xacro:arm/></robot>",
            "tip",
            "test.urdf:3: it is a xacro file",
        ),
        (
            "<robot>\n<link/></robot>",
            "tip",
            "test.urdf:2: a <link> without a name",
        ),
        (
            &robot(&["a", "a"], ""),
            "a",
            "test.urdf:3: a second link `a` (allowed: each name once)",
        ),
        (
            &robot(&links, ""),
            "tpi",
            "test.urdf: no link `tpi`, did you mean `tip`?",
        ),
        (
            &robot(&links, ""),
            "tip",
            "test.urdf: link `tip` does not lie below `base`: the topmost link above it is `tip` (needed: a `base` above the `tip`)",
        ),
        (
            &robot(&links, &j),
            "base",
            "test.urdf: 0 joints move between `base` and `base` (allowed: 1 to 16; choose another `base` or `tip`)",
        ),
        (
            &robot(&links, &joint("j", "fixed", "base", "grip", "")),
            "tip",
            "test.urdf:4: joint `j`: its child `grip` is not a link of the file",
        ),
        (
            &robot(&links, "  <joint name=\"j\" type=\"fixed\"/>\n"),
            "tip",
            "test.urdf:4: joint `j`: no <parent link=\"...\">",
        ),
        (
            &two_parents,
            "tip",
            "test.urdf:6: joint `k`: link `tip` is the child of joint `j`, too (allowed: one parent)",
        ),
        (
            &robot(
                &["base", "tip", "c"],
                &(j.clone() + &joint("j", "fixed", "tip", "c", "")),
            ),
            "c",
            "a second joint of this name",
        ),
        (&circle, "x", "the joints above `x` form a circle"),
    ] {
        let config = ChainConfig {
            tip: tip.to_owned(),
            ..config()
        };
        let refusal = refusal(text, &config);
        assert!(refusal.contains(problem), "{problem}: {refusal}");
    }
    let large = format!("<robot>{}</robot>", " ".repeat(17 << 20));
    assert!(refusal(&large, &config()).contains("bytes (allowed: up to 16777216)"));
    let many = format!("<robot>{}</robot>", "<a/>".repeat(2 << 20));
    assert!(refusal(&many, &config()).contains("more than 1048576 elements and texts"));
}

#[test]
fn seventeen_joints_are_too_many() {
    assert_eq!(snake(16).joints().len(), 16);
    let many = std::panic::catch_unwind(|| snake(17)).err();
    let text = many.and_then(|panic| panic.downcast::<String>().ok()).unwrap();
    assert!(
        text.contains("17 joints move between `link0` and `link17` (allowed: 1 to 16; choose another `base` or `tip`)"),
        "{text}"
    );
}

#[test]
fn peculiarities_are_told() {
    let joints = joint(
        "a",
        "continuous",
        "base",
        "m",
        "<axis xyz=\"0 0 2\"/><limit lower=\"-1\" upper=\"1\"/>",
    ) + &joint(
        "b",
        "prismatic",
        "m",
        "tip",
        "<limit lower=\"-1e9\" upper=\"1\"/><safety_controller soft_lower_limit=\"0\"/>",
    );
    let chain = chain(&robot(&["base", "m", "tip"], &joints), "base", "tip");
    assert_eq!(
        chain.warnings(),
        [
            "test.urdf:5: joint `a`: limits of a continuous joint are ignored",
            "test.urdf:6: joint `b`: limits -1000000000 and 1 are brought to -8192 and 1, as poses are computed for",
            "test.urdf:5: joint `a`: its axis has length 2, and is taken as one of length 1",
        ]
    );
    assert_eq!(chain.joints()[0].limits, [-8192.0, 8192.0]);
    assert_eq!(chain.joints()[1].limits, [-8192.0, 1.0]);
    assert_eq!(chain.joints()[0].kind, JointKind::Continuous);
    assert_eq!(chain.links().collect::<Vec<_>>(), ["base", "m", "tip"]);
}

#[test]
fn a_circle_above_the_base_is_refused() {
    let joints = joint("a", "continuous", "base", "tip", "") + &joint("b", "fixed", "tip", "base", "");
    let refusal = refusal(&robot(&["base", "tip"], &joints), &config());
    assert!(
        refusal.contains("joint `a`: the joints above `base` form a circle"),
        "{refusal}"
    );
}

#[test]
fn limits_that_may_not_be_meant_are_told() {
    let warnings = |inside| {
        let text = robot(&["base", "tip"], &joint("j", "revolute", "base", "tip", inside));
        chain(&text, "base", "tip").warnings().to_vec()
    };
    assert_eq!(
        warnings("<limit lower=\"-180\" upper=\"180\"/>"),
        [
            "test.urdf:4: joint `j`: limits -180 and 180 are more than two turns: are they degrees? They are to be radians"
        ]
    );
    assert_eq!(
        warnings("<limit upper=\"2\"/>"),
        ["test.urdf:4: joint `j`: only its `upper` limit is given, and the other is taken as 0"]
    );
    assert!(warnings("<limit lower=\"-6.28\" upper=\"6.28\"/>").is_empty());
    // Such a limit counts as none, in any unit: it is not doubted to be in degrees.
    assert_eq!(
        warnings("<limit lower=\"-1e16\" upper=\"1\"/>"),
        ["test.urdf:4: joint `j`: limits -1e16 and 1 are brought to -8192 and 1, as poses are computed for"]
    );
}

#[test]
fn an_origin_that_may_be_in_other_units_is_told() {
    let warnings = |origin: &str| {
        let origin = format!("{LIMIT}<origin {origin}/>");
        let joints = joint("j", "revolute", "base", "tip", &origin) + &joint("k", "fixed", "tip", "hand", &origin);
        let text = robot(&["base", "tip", "hand"], &joints);
        chain(&text, "base", "hand").warnings().to_vec()
    };
    let both =
        |text: &str| [("5", "j"), ("6", "k")].map(|(line, name)| format!("test.urdf:{line}: joint `{name}`: {text}"));
    assert_eq!(
        warnings("rpy=\"0 0 -90\""),
        both("origin rpy 0 0 -90 is more than two turns: are they degrees? They are to be radians")
    );
    assert_eq!(
        warnings("xyz=\"0 -300 0.5\""),
        both("origin xyz 0 -300 0.5 is more than 100 m away: are they millimetres? They are to be metres")
    );
    assert!(warnings("xyz=\"0 -100 0.5\" rpy=\"12.56 0 -3.2\"").is_empty());
}

#[test]
fn a_limit_with_one_end_has_0_as_the_other() {
    let limits = |inside| {
        let text = robot(&["base", "tip"], &joint("j", "revolute", "base", "tip", inside));
        chain(&text, "base", "tip").joints()[0].limits
    };
    assert_eq!(limits("<limit upper=\"2\"/>"), [0.0, 2.0]);
    assert_eq!(limits("<limit lower=\"-2\" effort=\"1\" velocity=\"1\"/>"), [-2.0, 0.0]);
}

#[test]
fn joints_inside_other_elements_are_not_joints_of_the_robot() {
    let text = planar().replace(
        "</robot>",
        "<transmission><joint name=\"shoulder\"/></transmission></robot>",
    );
    assert_eq!(chain(&text, "base", "tip").joints().len(), 2);
}

#[test]
fn a_file_that_is_not_text_or_too_long_is_refused_by_what_it_is() {
    let path = std::env::temp_dir().join(format!("robocache-not-text-{}.urdf", std::process::id()));
    let told = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let error = Chain::read(&path, &config()).unwrap_err().to_string();
        error.strip_prefix(&path.display().to_string()).unwrap().to_owned()
    };
    let latin = [planar().trim_end().as_bytes(), b"\n<!-- R\xf6hm -->"].concat();
    let line = planar().lines().count() + 1;
    let latin = (
        told(&latin),
        format!(":{line}: the byte 0xf6 is not UTF-8 (allowed: text in UTF-8)"),
    );
    let long = (
        told(&vec![b' '; 20 << 20]),
        ": more than 16777216 bytes (allowed: up to 16777216)".to_owned(),
    );
    std::fs::remove_file(&path).unwrap();
    for (came, wanted) in [latin, long] {
        assert_eq!(came, wanted);
    }
}

#[test]
fn a_path_of_no_regular_file_is_refused_at_once() {
    let folder = std::env::temp_dir();
    let pipe = folder.join(format!("robocache-pipe-{}.urdf", std::process::id()));
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let told = |path: &Path| Chain::read(path, &config()).unwrap_err().to_string();
    let cases = [&folder, &pipe, Path::new("/dev/zero")].map(|path| (path.display().to_string(), told(path)));
    std::fs::remove_file(&pipe).unwrap();
    let [of_folder, of_pipe, of_device] = cases;
    assert_eq!(
        of_folder.1,
        format!("{}: a folder (allowed: a file, or a link to one)", of_folder.0)
    );
    for (path, told) in [of_pipe, of_device] {
        assert_eq!(
            told,
            format!("{path}: a pipe, a socket or a device (allowed: a file, or a link to one)")
        );
    }
}

#[test]
fn a_tool_that_is_too_far_away_is_refused() {
    let mut config = config();
    config.tool = Some(RigidTransform::new([0.0, 0.0, 0.0, 1.0], [0.0, -1e7, 0.0]));
    let told = refusal(&planar(), &config);
    assert_eq!(told, "test.urdf: a tool at -1e7 m (allowed: -1e6 to 1e6)");
}

#[test]
fn the_quaternion_of_a_tool_is_of_norm_1_to_within_one_percent() {
    let tool = |norm: f64| {
        let rotation_xyzw = [0.0, 0.0, norm, 0.0];
        let tool = ToolConfig {
            rotation_xyzw,
            ..ToolConfig::default()
        };
        let source = ChainSource {
            tool: Some(tool),
            ..ChainSource::default()
        };
        source.config().map(|config| config.tool.map(|tool| tool.rotation))
    };
    let turned = [[-1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, 1.0]];
    for norm in [0.991, 1.009] {
        let found = tool(norm).unwrap().unwrap();
        for (found, wanted) in found.as_flattened().iter().zip(turned.as_flattened()) {
            assert!((found - wanted).abs() < 1e-15, "{norm}");
        }
    }
    for norm in [0.989, 1.011, 10.0] {
        assert_eq!(
            tool(norm).unwrap_err(),
            format!(
                "tool.rotation_xyzw: [0.0, 0.0, {norm:?}, 0.0] has the norm {norm} \
                 (allowed: a quaternion x, y, z, w of norm 1, to within 1 %)"
            )
        );
    }
    assert!(tool(f64::NAN).is_err());
}

#[test]
fn the_configuration_orders_joints_and_gives_limits_and_a_tool() {
    let named = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    let mut config = config();
    config.joints = named(&["elbow", "shoulder"]);
    config.limits = BTreeMap::from([("elbow".to_owned(), [-1.0, 2.0])]);
    config.tool = Some(RigidTransform::new([0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.25]));
    let chain = Chain::new(&planar(), "test.urdf", &config).unwrap();
    assert_eq!(chain.joints()[0].name, "elbow");
    assert_eq!(chain.joints()[0].limits, [-1.0, 2.0]);
    let model = Model::<f64>::new(&chain);
    let [x, y, z, ..] = model.pose(&[std::f64::consts::FRAC_PI_2, 0.0]).unwrap();
    assert!((x - 1.0).abs() < 1e-15 && (y - 0.5).abs() < 1e-15 && z == 0.25);

    for (joints, problem) in [
        (named(&["elbow"]), "`joints` lacks `shoulder` (needed: shoulder, elbow)"),
        (
            named(&["elbow", "elbow", "shoulder"]),
            "`joints` names `elbow` twice (allowed: once)",
        ),
        (
            named(&["elbow", "sholder"]),
            "`joints` names `sholder`, which does not move the tip, did you mean `shoulder`?",
        ),
        (
            named(&["elbow", "shoulder", "hand"]),
            "`joints` names `hand`, which does not move the tip (allowed: shoulder, elbow)",
        ),
    ] {
        config.joints = joints;
        let refusal = refusal(&planar(), &config);
        assert!(refusal.contains(problem), "{refusal}");
    }
    config.joints = None;
    config.limits = BTreeMap::from([("wrist".to_owned(), [0.0, 1.0])]);
    assert!(refusal(&planar(), &config).contains("`limits` names `wrist` (allowed: shoulder, elbow)"));
}

#[test]
fn a_mimic_of_a_mimic_multiplies() {
    let mimic = |leader: &str, line: &str| format!("<axis xyz=\"0 0 1\"/><mimic joint=\"{leader}\" {line}/>");
    let joints = joint("a", "revolute", "base", "m", &format!("<axis xyz=\"0 0 1\"/>{LIMIT}"))
        + &joint(
            "b",
            "revolute",
            "m",
            "n",
            &mimic("a", "multiplier=\"2\" offset=\"0.5\""),
        )
        + &joint(
            "c",
            "revolute",
            "n",
            "tip",
            &mimic("b", "multiplier=\"-3\" offset=\"0.25\""),
        );
    let chain = chain(&robot(&["base", "m", "n", "tip"], &joints), "base", "tip");
    assert_eq!(chain.joints().len(), 1);
    // a + (2 a + 0.5) + (-3 (2 a + 0.5) + 0.25) = -3 a - 0.75
    let [.., z, w] = Model::<f64>::new(&chain).pose(&[0.1]).unwrap();
    assert!((2.0 * z.atan2(w) + 1.05).abs() < 1e-15);
}

#[test]
fn a_mimic_that_is_led_beyond_its_limits_is_told() {
    let warnings = |leader: &str, multiplier: &str, limits: &BTreeMap<String, [f64; 2]>| {
        let leader = format!("<axis xyz=\"0 0 1\"/>{leader}");
        let follower = format!(
            "<axis xyz=\"0 0 1\"/><limit lower=\"-0.5\" upper=\"2\"/><mimic joint=\"a\" multiplier=\"{multiplier}\" offset=\"0.25\"/>"
        );
        let kind = if leader.contains("limit") {
            "revolute"
        } else {
            "continuous"
        };
        let joints = joint("a", kind, "base", "m", &leader) + &joint("b", "revolute", "m", "tip", &follower);
        let text = robot(&["base", "m", "tip"], &joints);
        let limits = limits.clone();
        let chain = Chain::new(&text, "test.urdf", &ChainConfig { limits, ..config() }).unwrap();
        chain.warnings().to_vec()
    };
    let told = "test.urdf:6: joint `b`: limits of mimics are not kept: those of `a` lead it to";
    let none = BTreeMap::new();
    assert_eq!(
        warnings(LIMIT, "-2", &none),
        [format!(
            "{told} -5.75 and 6.25, its own are -0.5 and 2 (narrow those of `a` by `limits`)"
        )]
    );
    // -2 times 0.375 is -0.75, and -2 times -0.875 is 1.75.
    let narrow = BTreeMap::from([("a".to_owned(), [-0.875, 0.375])]);
    assert!(warnings(LIMIT, "-2", &narrow).is_empty());
    assert!(warnings(LIMIT, "0.25", &none).is_empty());
    assert!(warnings(LIMIT, "0", &none).is_empty());
    assert_eq!(
        warnings("", "1", &none),
        [format!("{told} -8191.75 and 8192.25, its own are -0.5 and 2")]
    );
}

#[test]
fn a_leader_outside_the_chain_is_named_or_refused() {
    let follower = "<axis xyz=\"1 0 0\"/><mimic joint=\"left\" multiplier=\"-1\"/>";
    let joints = joint(
        "left",
        "prismatic",
        "base",
        "other",
        "<limit lower=\"0\" upper=\"0.04\"/>",
    ) + &joint("right", "prismatic", "base", "tip", follower);
    let text = robot(&["base", "other", "tip"], &joints);
    let mut config = config();
    let refusal = refusal(&text, &config);
    let expected = "joint `left` does not lie between `base` and `tip`, but mimics there follow it: name the joints (`joints`: left)";
    assert!(refusal.contains(expected), "{refusal}");
    config.joints = Some(vec!["left".to_owned()]);
    let chain = Chain::new(&text, "test.urdf", &config).unwrap();
    assert_eq!(chain.joints()[0].limits, [0.0, 0.04]);
    assert_eq!(Model::<f64>::new(&chain).pose(&[0.03]).unwrap()[0], -0.03);
}

/// Checks that files with a part cut out, doubled or overwritten give a chain or an error, and that chains give poses.
#[test]
fn damaged_files_never_panic() {
    let mut random = Random(19);
    let texts = [planar(), six_axes()];
    let parts = [
        "\"",
        "<",
        "/>",
        "-1e308",
        "nan",
        "base",
        "<mimic joint=\"elbow\"/>",
        "revolute",
        "floating",
        "&amp;",
        " ",
    ];
    for _ in 0..20_000 {
        let mut below = |end: usize| (random.next() * end as f64) as usize;
        let mut text = texts[below(2)].clone();
        for _ in 0..=below(3) {
            let start = below(text.len());
            let end = (start + below(30)).min(text.len());
            let part = match below(3) {
                0 => String::new(),
                1 => text[start..end].repeat(2),
                _ => parts[below(parts.len())].to_owned(),
            };
            text.replace_range(start..end, &part);
        }
        for (base, tip) in [("base", "tip"), ("link0", "tip")] {
            if let Ok(chain) = Chain::from_urdf(&text, "test.urdf", base, tip) {
                let q = vec![0.1; chain.joints().len()];
                if let Some(pose) = Model::<f32>::new(&chain).pose(&q) {
                    assert!(pose.iter().all(|x| x.is_finite()), "{text}");
                }
            }
        }
    }
}
