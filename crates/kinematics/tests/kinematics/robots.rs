//! URDFs of small robots, and helpers that build a chain or a solver and solve for joints.

use robocache_geometry::Real;
use robocache_kinematics::{Answer, Chain, InverseConfig, Pose, Solver};

/// Makes the URDF of a robot with these links. `joints` is the XML of its joints.
pub fn robot(links: &[&str], joints: &str) -> String {
    let links: String = links
        .iter()
        .map(|link| format!("  <link name=\"{link}\"/>\n"))
        .collect();
    format!("<robot name=\"test\">\n{links}{joints}</robot>\n")
}

/// Makes the XML of a joint from the link `parent` to the link `child`. `inside` is the XML within its element.
pub fn joint(name: &str, kind: &str, parent: &str, child: &str, inside: &str) -> String {
    format!(
        "  <joint name=\"{name}\" type=\"{kind}\"><parent link=\"{parent}\"/><child link=\"{child}\"/>{inside}</joint>\n"
    )
}

/// XML of a joint's limits: -3 to 3, radians or metres.
pub const LIMIT: &str = "<limit lower=\"-3\" upper=\"3\"/>";

/// Makes the URDF of an arm of two links, 1 m and 0.5 m long, in the plane of x and y, whose joints turn about z.
pub fn planar() -> String {
    let joints = joint(
        "shoulder",
        "revolute",
        "base",
        "upper",
        &format!("<axis xyz=\"0 0 1\"/>{LIMIT}"),
    ) + &joint(
        "elbow",
        "revolute",
        "upper",
        "lower",
        &format!("<origin xyz=\"1 0 0\"/><axis xyz=\"0 0 1\"/>{LIMIT}"),
    ) + &joint("hand", "fixed", "lower", "tip", "<origin xyz=\"0.5 0 0\"/>");
    robot(&["base", "upper", "lower", "tip"], &joints)
}

/// Makes a chain of three links of 1 m in the plane of x and y, whose joints turn about z.
pub fn three_links() -> Chain {
    let turn = |name, parent, child, x| {
        let inside = format!("<origin xyz=\"{x} 0 0\"/><axis xyz=\"0 0 1\"/>{LIMIT}");
        joint(name, "revolute", parent, child, &inside)
    };
    let joints = turn("1", "base", "a", 0)
        + &turn("2", "a", "b", 1)
        + &turn("3", "b", "c", 1)
        + &joint("hand", "fixed", "c", "tip", "<origin xyz=\"1 0 0\"/>");
    chain(&robot(&["base", "a", "b", "c", "tip"], &joints), "base", "tip")
}

/// Makes the URDF of an arm of six joints: two in the shoulder, one in the elbow, and three in the wrist, whose axes meet.
pub fn six_axes() -> String {
    let limit = "<limit lower=\"-3.1\" upper=\"3.1\"/>";
    let parts = [
        ("0 0 0.4", "0 0 1"),
        ("0.1 0 0", "0 1 0"),
        ("0 0 0.5", "0 1 0"),
        ("0.2 0 0.05", "1 0 0"),
        ("0.3 0 0", "0 1 0"),
        ("0 0 0", "1 0 0"),
    ];
    let names: Vec<String> = (0..=parts.len()).map(|i| format!("link{i}")).collect();
    let mut joints = String::new();
    for (i, (xyz, axis)) in parts.iter().enumerate() {
        let inside = format!("<origin xyz=\"{xyz}\"/><axis xyz=\"{axis}\"/>{limit}");
        joints += &joint(&format!("joint{i}"), "revolute", &names[i], &names[i + 1], &inside);
    }
    joints += &joint(
        "flange",
        "fixed",
        "link6",
        "tip",
        "<origin xyz=\"0.1 0 0\" rpy=\"0 1.5707963 0\"/>",
    );
    let links: Vec<&str> = names.iter().map(String::as_str).chain(["tip"]).collect();
    robot(&links, &joints)
}

/// Makes a chain of `count` joints, 0.1 m apart, that turn about x, y, z, x and so on.
pub fn snake(count: usize) -> Chain {
    let names: Vec<String> = (0..=count).map(|i| format!("link{i}")).collect();
    let joints: String = (0..count)
        .map(|i| {
            let axis = ["1 0 0", "0 1 0", "0 0 1"][i % 3];
            let inside = format!("<origin xyz=\"0.1 0.02 0\"/><axis xyz=\"{axis}\"/>{LIMIT}");
            joint(&format!("joint{i}"), "revolute", &names[i], &names[i + 1], &inside)
        })
        .collect();
    let links: Vec<&str> = names.iter().map(String::as_str).collect();
    chain(&robot(&links, &joints), "link0", &names[count])
}

pub fn chain(text: &str, base: &str, tip: &str) -> Chain {
    match Chain::from_urdf(text, "test.urdf", base, tip) {
        Ok(chain) => chain,
        Err(error) => panic!("{error}\n{text}"),
    }
}

pub fn solver<R: Real>(chain: &Chain, config: &InverseConfig) -> Solver<R> {
    match Solver::new(chain, config) {
        Ok(solver) => solver,
        Err(error) => panic!("{error}"),
    }
}

pub fn solve<R: Real>(solver: &Solver<R>, target: &Pose<R>, seed: Option<&[R]>) -> (Vec<R>, Answer<R>) {
    let mut joints = vec![R::default(); solver.model().joints()];
    let answer = solver.solve(target, seed, &mut joints);
    (joints, answer)
}

/// Solves a trajectory, and returns the joints, results and branch counts of its targets.
pub fn along<R: Real>(solver: &Solver<R>, targets: &[Pose<R>], seed: &[R]) -> (Vec<Vec<R>>, Vec<Answer<R>>, Vec<u32>) {
    let n = solver.model().joints();
    let mut joints = vec![R::default(); n * targets.len()];
    let (mut answers, mut branches) = (vec![Answer::default(); targets.len()], vec![0; targets.len()]);
    solver.solve_along(targets, Some(seed), &mut joints, &mut answers, &mut branches);
    (joints.chunks_exact(n).map(<[R]>::to_vec).collect(), answers, branches)
}

pub fn rows<R: Real>(values: &[f64]) -> Vec<R> {
    values.iter().map(|&value| R::from_f64(value)).collect()
}
