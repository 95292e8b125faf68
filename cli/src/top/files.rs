//! Status files in a folder, one per node. A file that can't be used is a problem of its node and does not hide other nodes.
//! Texts from the files are escaped before they are shown.

use crate::output::plain;
use robocache::app::{Level, Report};
use robocache::time::ns_to_s;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Age of a status file beyond which its node counts as hanging or killed, s.
const STALE_S: f64 = 3.0;

/// Maximum size of a status file, which usually has a few kB.
const MOST_BYTES: u64 = 16 << 20;

/// Status of all nodes that have a status file in `folder`, sorted by name.
#[derive(Serialize)]
pub struct Status {
    pub folder: PathBuf,
    pub nodes: Vec<Node>,
}

/// Status of a node, read from its status file.
#[derive(Serialize)]
pub struct Node {
    /// Name of the node's status file, without `.json`.
    pub name: String,
    pub level: Level,
    /// The reason why the status file can't be used, or is out of date; `None` if neither holds.
    pub problem: Option<String>,
    /// Time since the report was written, s; negative if the node's clock is ahead, `None` if the file can't be used.
    pub age_s: Option<f64>,
    pub report: Option<Report>,
}

/// The part of a status file that every version of the format has.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

impl Status {
    /// Reads every status file of a folder. Fails only if the folder itself can't be read.
    pub fn read(folder: &Path) -> eyre::Result<Self> {
        let refused = |error: io::Error| eyre::eyre!("{}: {error}", folder.display());
        let mut nodes = Vec::new();
        for entry in fs::read_dir(folder).map_err(refused)? {
            let path = entry.map_err(refused)?.path();
            let name = path.file_stem().map(|name| escaped(&name.to_string_lossy()));
            let is_status = path.extension().is_some_and(|extension| extension == "json");
            // While a node writes its file, the file's name begins with a dot.
            if let Some(name) = name.filter(|name| is_status && !name.starts_with('.')) {
                nodes.push(Node::read(name, &path, now_ns()));
            }
        }
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self {
            folder: folder.to_owned(),
            nodes,
        })
    }

    /// True if each node has ended, or is neither in error nor stale. False if there is no status file: the nodes hang, or never
    /// started.
    pub fn is_well(&self) -> bool {
        let mut nodes = self.nodes.iter();
        !self.nodes.is_empty() && nodes.all(|node| node.is_ended() || node.level <= Level::Warn)
    }
}

impl Node {
    fn read(name: String, path: &Path, now_ns: i64) -> Self {
        let report = match read(path) {
            Ok(report) => report,
            Err(problem) => {
                return Self {
                    name,
                    level: Level::Stale,
                    problem: Some(problem),
                    age_s: None,
                    report: None,
                };
            }
        };
        let age_s = ns_to_s(now_ns.saturating_sub(report.timestamp_ns));
        let is_stale = !report.ended && age_s.abs() > STALE_S;
        let problem = is_stale.then(|| match age_s > 0.0 {
            true => format!("it has said nothing for {age_s:.0} s: it hangs, or was killed"),
            false => format!(
                "its clock is {:.0} s ahead of this machine's (needed: both clocks set by one source, as chrony does)",
                -age_s
            ),
        });
        Self {
            name,
            level: if is_stale { Level::Stale } else { report.level },
            problem,
            age_s: Some(age_s),
            report: Some(report),
        }
    }

    /// True if the node has reported its end, and was not killed.
    pub fn is_ended(&self) -> bool {
        self.report.as_ref().is_some_and(|report| report.ended)
    }
}

/// Reads a status file, and escapes its texts. The error says what is wrong with the file.
fn read(path: &Path) -> Result<Report, String> {
    let unread = |error: io::Error| format!("its file can't be read: {error}");
    // Opening a pipe could block for ever.
    if !fs::metadata(path).map_err(unread)?.is_file() {
        return Err("it is not a file".to_owned());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unread)?;
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(unread)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(format!(
            "its file is too long for a status (allowed: {MOST_BYTES} bytes)"
        ));
    }
    let no_status = |error: serde_json::Error| format!("its file is not a status: {error}");
    let Version { version } = serde_json::from_slice(&bytes).map_err(no_status)?;
    if version != Report::VERSION {
        return Err(format!(
            "its file is of version {version} (allowed: {}; update the node and this command to one robocache)",
            Report::VERSION
        ));
    }
    let mut report: Report = serde_json::from_slice(&bytes).map_err(no_status)?;
    let rows = report.inputs.iter_mut();
    let texts = rows.flat_map(|row| [&mut row.operation, &mut row.input, &mut row.message]);
    for text in texts.chain([&mut report.node, &mut report.message, &mut report.device]) {
        *text = escaped(text);
    }
    Ok(report)
}

/// Escapes the characters that a terminal would interpret as commands.
fn escaped(text: &str) -> String {
    plain(text).into_owned()
}

fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use robocache::app::Row;

    /// Reads the status of a node, `age_s` seconds after it wrote `report` to its status file.
    pub fn node(report: &Report, age_s: f64) -> Node {
        let folder = std::env::temp_dir().join(format!("robocache-top-{}-{age_s}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(format!("{}.json", report.node));
        fs::write(&path, serde_json::to_string(report).unwrap()).unwrap();
        let node = Node::read(report.node.clone(), &path, report.timestamp_ns + (age_s * 1e9) as i64);
        fs::remove_dir_all(folder).unwrap();
        node
    }

    /// Makes the report of a fuse node with a good, a bad and a stale stream.
    pub fn fuse() -> Report {
        let force = Row {
            operation: "fuse".into(),
            input: "force".into(),
            messages: 10_000,
            rate_hz: 999.8,
            period_p50_ns: Some(1_000_000),
            age_p50_ns: Some(500_000),
            age_p99_ns: Some(1_000_000),
            age_max_ns: Some(1_100_000),
            valid_share: Some(1.0),
            ..Row::default()
        };
        let camera = Row {
            input: "camera".into(),
            level: Level::Error,
            message: "3 faults: 127 values (allowed: 128)".into(),
            faults: 3,
            late: 12,
            dropped_length: 3,
            dropped_overflow: 4,
            valid_share: Some(0.25),
            age_p50_ns: Some(33_000_000),
            age_p99_ns: Some(120_000_000),
            rate_hz: 30.0,
            ..force.clone()
        };
        let gone = Row {
            operation: "wrist".into(),
            input: "lidar \"top\"".into(),
            level: Level::Stale,
            message: "nothing has come for 4.0 s".into(),
            ..Row::default()
        };
        Report {
            version: Report::VERSION,
            node: "fuse".into(),
            timestamp_ns: 1_700_000_000_000_000_000,
            level: Level::Stale,
            message: "`lidar \"top\"`: nothing has come for 4.0 s".into(),
            observations: 500,
            observation_rate_hz: Some(48.5),
            wait_p50_ns: Some(2_000_000),
            wait_p99_ns: Some(40_000_000),
            compute_p50_us: Some(1.5),
            queue_depth: 3,
            device: "cpu".into(),
            inputs: vec![force, camera, gone],
            ..Report::default()
        }
    }

    #[test]
    fn a_status_that_is_old_is_stale_unless_the_node_has_ended() {
        let mut report = fuse();
        report.level = Level::Ok;
        let fresh = node(&report, 2.5);
        assert_eq!((fresh.level, fresh.problem), (Level::Ok, None));
        let old = node(&report, 12.0);
        assert_eq!(old.level, Level::Stale);
        assert_eq!(
            old.problem.unwrap(),
            "it has said nothing for 12 s: it hangs, or was killed"
        );
        assert!(node(&report, -60.0).problem.unwrap().contains("60 s ahead"));
        report.ended = true;
        let ended = node(&report, 1e6);
        assert!(ended.is_ended() && ended.problem.is_none());
    }

    #[test]
    fn what_is_no_status_is_said() {
        let folder = std::env::temp_dir().join(format!("robocache-top-bad-{}", std::process::id()));
        fs::create_dir_all(folder.join("folder.json")).unwrap();
        let whole = serde_json::to_string(&fuse()).unwrap();
        let mut hostile = fuse();
        hostile.message = "\x1b[2Jgone\n".into();
        let files = [
            ("cut.json", whole[..whole.len() / 2].to_owned()),
            ("empty.json", String::new()),
            ("hostile.json", serde_json::to_string(&hostile).unwrap()),
            ("list.json", "[1, 2]".to_owned()),
            ("new.json", r#"{ "version": 2, "nodes": [] }"#.to_owned()),
            ("text.json", "hello".to_owned()),
            (".fuse.17", whole.clone()),
            ("notes.txt", whole),
        ];
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
        let status = Status::read(&folder).unwrap();
        let found: Vec<_> = status
            .nodes
            .iter()
            .map(|node| (&*node.name, node.problem.as_deref().unwrap_or("")))
            .collect();
        let wanted = [
            ("cut", "its file is not a status: EOF while parsing"),
            ("empty", "its file is not a status: EOF while parsing"),
            ("folder", "it is not a file"),
            ("hostile", "it has said nothing for"),
            ("list", "its file is not a status: "),
            ("new", "its file is of version 2 (allowed: 1; update the node"),
            ("text", "its file is not a status: expected value"),
        ];
        assert_eq!(found.len(), wanted.len(), "{found:?}");
        for ((name, problem), (wanted_name, words)) in found.into_iter().zip(wanted) {
            assert!(name == wanted_name && problem.starts_with(words), "{name}: {problem}");
        }
        let report = status.nodes[3].report.as_ref().unwrap();
        assert_eq!(report.message, "\\u{1b}[2Jgone\\n");
        assert!(!status.is_well());
        fs::remove_dir_all(&folder).unwrap();
        assert!(Status::read(&folder).is_err());
    }
}
