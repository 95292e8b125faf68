//! The figures for Prometheus: <https://prometheus.io/docs/instrumenting/exposition_formats/>, over HTTP/1.1.
//!
//! One thread. Each client has a deadline, a bounded request and one answer, so that none can keep another waiting.

use super::files::{Node, Status};
use crate::output::Output;
use robocache::app::{Report, Row};
use robocache::stream::key;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::fmt::{Display, Write as _};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// A client has this long for its request and its answer.
const DEADLINE: Duration = Duration::from_secs(2);

/// A request is no longer than this.
const MOST_BYTES: usize = 8192;

/// Of so many clients at once the oldest is let go.
const MOST_CLIENTS: usize = 64;

/// Serves the figures of a folder until somebody ends it.
pub fn serve(address: SocketAddr, folder: &Path, output: &Output) -> eyre::Result<ExitCode> {
    Status::read(folder)?;
    let refused =
        |error: std::io::Error| eyre::eyre!("{address}: {error} (needed: an address of this machine, and a free port)");
    let listener = TcpListener::bind(address).map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    output.remark(format_args!(
        "http://{}/metrics has the figures of {}",
        listener.local_addr().map_err(refused)?,
        folder.display()
    ));
    let mut server = Server::new(listener);
    loop {
        server.step(&mut || exposition(folder))?;
    }
}

struct Server {
    listener: TcpListener,
    clients: VecDeque<Client>,
}

/// Who asks, oldest first.
struct Client {
    stream: TcpStream,
    deadline: Instant,
    request: Vec<u8>,
    /// Empty until the request is whole.
    answer: Vec<u8>,
    sent: usize,
}

impl Server {
    fn new(listener: TcpListener) -> Self {
        Self {
            listener,
            clients: VecDeque::new(),
        }
    }

    /// Waits until somebody can be served, and serves them.
    fn step(&mut self, body: &mut dyn FnMut() -> Result<String, String>) -> eyre::Result<()> {
        let next = self.clients.iter().map(|client| client.deadline).min();
        let wait = next.map(|next| next.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
        let wait = wait.map(Timespec::try_from).transpose()?;
        let mut ready = vec![PollFd::new(&self.listener, PollFlags::IN)];
        ready.extend(self.clients.iter().map(|client| {
            let wanted = if client.answer.is_empty() {
                PollFlags::IN
            } else {
                PollFlags::OUT
            };
            PollFd::new(&client.stream, wanted)
        }));
        match poll(&mut ready, wait.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let now = Instant::now();
        self.clients
            .retain_mut(|client| client.deadline > now && client.go_on(body));
        self.accept(now);
        Ok(())
    }

    fn accept(&mut self, now: Instant) {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The client is gone already, or there is no room for another one now.
                Err(_) => return std::thread::sleep(Duration::from_millis(20)),
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.clients.len() == MOST_CLIENTS {
                self.clients.pop_front();
            }
            self.clients.push_back(Client {
                stream,
                deadline: now + DEADLINE,
                request: Vec::new(),
                answer: Vec::new(),
                sent: 0,
            });
        }
    }
}

impl Client {
    /// Reads and writes as far as that goes without waiting. Says whether there is more to do.
    fn go_on(&mut self, body: &mut dyn FnMut() -> Result<String, String>) -> bool {
        let is_well = |error: &std::io::Error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
        while self.answer.is_empty() {
            let mut bytes = [0; 1024];
            match self.stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(read) => self.request.extend_from_slice(&bytes[..read]),
                Err(error) => return is_well(&error),
            }
            let is_whole = self.request.windows(4).any(|end| end == b"\r\n\r\n");
            if is_whole || self.request.len() > MOST_BYTES {
                self.answer = answer(&self.request, is_whole, body);
            }
        }
        while self.sent < self.answer.len() {
            match self.stream.write(&self.answer[self.sent..]) {
                Ok(0) => return false,
                Ok(written) => self.sent += written,
                Err(error) => return is_well(&error),
            }
        }
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        false
    }
}

/// What is answered to a request; `is_whole` says whether its head has ended.
fn answer(request: &[u8], is_whole: bool, body: &mut dyn FnMut() -> Result<String, String>) -> Vec<u8> {
    let line = request.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let words: Vec<&str> = line.split(' ').collect();
    let (status, text) = match words[..] {
        _ if !is_whole => (
            "431 Request Header Fields Too Large",
            "the request is too long\n".to_owned(),
        ),
        ["GET" | "HEAD", path, version] if version.starts_with("HTTP/1.") => match path.split('?').next() {
            Some("/metrics") => match body() {
                Ok(text) => ("200 OK", text),
                Err(problem) => ("500 Internal Server Error", format!("{problem}\n")),
            },
            _ => ("404 Not Found", "the figures are at /metrics\n".to_owned()),
        },
        [_, _, version] if version.starts_with("HTTP/1.") => {
            ("405 Method Not Allowed", "allowed: GET, HEAD\n".to_owned())
        }
        _ => ("400 Bad Request", "it is no request of HTTP/1.1\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: \
         close\r\n\r\n",
        text.len()
    );
    let is_head_only = words.first() == Some(&"HEAD");
    let text = if is_head_only { "" } else { &text };
    [head.as_bytes(), text.as_bytes()].concat()
}

/// The figures of all nodes of a folder.
fn exposition(folder: &Path) -> Result<String, String> {
    Status::read(folder)
        .map(|status| of(&status))
        .map_err(|error| error.to_string())
}

/// Metrics, each with its series together, as the format wants it.
#[derive(Default)]
struct Metrics(String);

/// A value of a text or of a number.
type Labels<'a> = &'a [(&'a str, &'a str)];

impl Metrics {
    fn metric(&mut self, name: &str, kind: &str, about: &str) {
        // Writing to a string can't fail.
        let _ = writeln!(
            self.0,
            "# HELP robocache_{name} {about}\n# TYPE robocache_{name} {kind}"
        );
    }

    fn series(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        let _ = write!(self.0, "robocache_{name}");
        for (i, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{label}=\"{text}\"", if i == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.0, "}} {value}");
    }

    /// A series of an input of a node, with a label more.
    fn of_input(&mut self, name: &str, (node, row): (&str, &Row), more: Option<(&str, &str)>, value: f64) {
        let own = [("node", node), ("operation", &row.operation), ("input", &row.input)];
        match more {
            None => self.series(name, &own, value),
            Some(more) => {
                let [node, operation, input] = own;
                self.series(name, &[node, operation, input, more], value);
            }
        }
    }
}

fn of(status: &Status) -> String {
    let mut metrics = Metrics::default();
    metrics.metric("up", "gauge", "Whether the node keeps its status file up to date.");
    for node in &status.nodes {
        let is_up = node.problem.is_none() && !node.is_ended();
        metrics.series("up", &[("node", &node.name)], u8::from(is_up));
    }
    of_nodes(status, &mut metrics);
    of_inputs(status, &mut metrics);
    metrics.0
}

fn seconds(ns: Option<i64>) -> Option<f64> {
    ns.map(|ns| ns as f64 / 1e9)
}

/// A number of a node.
type OfNode = fn(&Node, &Report) -> f64;
/// Quantiles of a node or of an input, s.
type Quantiles<T> = fn(&T) -> [(&'static str, Option<f64>); 3];
/// A number of an input, where it is known.
type OfInput = fn(&Row) -> Option<f64>;

fn of_nodes(status: &Status, metrics: &mut Metrics) {
    let reports = || {
        status
            .nodes
            .iter()
            .filter_map(|node| Some((node, node.report.as_ref()?)))
    };
    let numbers: [(&str, &str, &str, OfNode); 4] = [
        (
            "level",
            "gauge",
            "How the node is: 0 ok, 1 warn, 2 error, 3 stale.",
            |node, _| f64::from(node.level as u8),
        ),
        (
            "observations_total",
            "counter",
            "Observations, sets, grids and batches published.",
            |_, it| it.observations as f64,
        ),
        (
            key::queue_depth,
            "gauge",
            "The most messages of one input that waited at once.",
            |_, it| it.queue_depth as f64,
        ),
        (
            key::device_bytes,
            "gauge",
            "Device memory that the operations hold.",
            |_, it| it.device_bytes as f64,
        ),
    ];
    for (name, kind, about, value) in numbers {
        metrics.metric(name, kind, about);
        for (node, report) in reports() {
            metrics.series(name, &[("node", &node.name)], value(node, report));
        }
    }
    let rate = key::observation_rate_hz;
    metrics.metric(rate, "gauge", "Observations, sets, grids and batches in a second.");
    for (node, report) in reports() {
        if let Some(rate_hz) = report.observation_rate_hz {
            metrics.series(rate, &[("node", &node.name)], rate_hz);
        }
    }
    let quantiles: [(&str, &str, Quantiles<Report>); 2] = [
        (
            "wait_seconds",
            "From a target to the newest stamp seen when it was published.",
            |it| {
                [
                    ("0.5", seconds(it.wait_p50_ns)),
                    ("0.99", seconds(it.wait_p99_ns)),
                    ("", None),
                ]
            },
        ),
        ("compute_seconds", "Time that the operations took for a result.", |it| {
            let seconds = |us: Option<f64>| us.map(|us| us / 1e6);
            [
                ("0.5", seconds(it.compute_p50_us)),
                ("0.99", seconds(it.compute_p99_us)),
                ("", None),
            ]
        }),
    ];
    for (name, about, values) in quantiles {
        metrics.metric(name, "gauge", about);
        for (node, report) in reports() {
            for (quantile, value) in values(report) {
                if let Some(value) = value {
                    metrics.series(name, &[("node", &node.name), ("quantile", quantile)], value);
                }
            }
        }
    }
}

fn of_inputs(status: &Status, metrics: &mut Metrics) {
    let rows = || {
        let reports = status
            .nodes
            .iter()
            .filter_map(|node| Some((node, node.report.as_ref()?)));
        reports.flat_map(|(node, report)| report.inputs.iter().map(move |row| (&*node.name, row)))
    };
    let numbers: [(&str, &str, &str, OfInput); 10] = [
        (
            "input_level",
            "gauge",
            "How the input is: 0 ok, 1 warn, 2 error, 3 stale.",
            |row| Some(f64::from(row.level as u8)),
        ),
        ("messages_total", "counter", "Messages that came.", |row| {
            Some(row.messages as f64)
        }),
        ("rate_hertz", "gauge", "Messages in a second.", |row| Some(row.rate_hz)),
        (
            "valid_ratio",
            "gauge",
            "The share of the observations in which the input is valid.",
            |row| row.valid_share,
        ),
        (
            "late_total",
            "counter",
            "Samples that came after their target was sent.",
            |row| Some(row.late as f64),
        ),
        ("faults_total", "counter", "What was wrong with messages.", |row| {
            Some(row.faults as f64)
        }),
        (
            "out_of_order_total",
            "counter",
            "Messages older than one before them.",
            |row| Some(row.out_of_order as f64),
        ),
        (
            "gaps_total",
            "counter",
            "Steps of capture time of more than 1.5 usual ones.",
            |row| Some(row.gaps as f64),
        ),
        (
            "clock_offset_seconds",
            "gauge",
            "Host time minus the time of the device.",
            |row| seconds(row.clock_offset_ns),
        ),
        (
            key::clock_skew_ppm,
            "gauge",
            "How slow the clock of the device is, millionths.",
            |row| row.clock_skew_ppm,
        ),
    ];
    for (name, kind, about, value) in numbers {
        metrics.metric(name, kind, about);
        for (node, row) in rows() {
            if let Some(value) = value(row) {
                metrics.of_input(name, (node, row), None, value);
            }
        }
    }
    let quantiles: [(&str, &str, Quantiles<Row>); 3] = [
        (
            "age_seconds",
            "The age of the newest sample at the observations.",
            |row| {
                [
                    ("0.5", seconds(row.age_p50_ns)),
                    ("0.99", seconds(row.age_p99_ns)),
                    ("1", seconds(row.age_max_ns)),
                ]
            },
        ),
        (
            "period_seconds",
            "From one capture time to the next newer one.",
            |row| {
                [
                    ("0.5", seconds(row.period_p50_ns)),
                    ("0.99", seconds(row.period_p99_ns)),
                    ("", None),
                ]
            },
        ),
        ("delay_seconds", "From the capture time to the publication.", |row| {
            [
                ("0.5", seconds(row.delay_p50_ns)),
                ("0.99", seconds(row.delay_p99_ns)),
                ("", None),
            ]
        }),
    ];
    for (name, about, values) in quantiles {
        metrics.metric(name, "gauge", about);
        for (node, row) in rows() {
            for (quantile, value) in values(row) {
                if let Some(value) = value {
                    metrics.of_input(name, (node, row), Some(("quantile", quantile)), value);
                }
            }
        }
    }
    metrics.metric(
        "dropped_total",
        "counter",
        "Messages and samples that were not used, by the reason.",
    );
    for (node, row) in rows() {
        let reasons = [
            ("overflow", row.dropped_overflow),
            ("nonfinite", row.dropped_nonfinite),
            ("length", row.dropped_length),
            ("stamp", row.dropped_stamp),
        ];
        for (reason, count) in reasons {
            metrics.of_input("dropped_total", (node, row), Some(("reason", reason)), count as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::tests::{fuse, node};
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};

    #[test]
    fn every_figure_is_a_series_with_its_labels() {
        let status = Status {
            folder: "/run/robot".into(),
            nodes: vec![node(&fuse(), 1.0)],
        };
        let text = of(&status);
        for line in [
            "robocache_up{node=\"fuse\"} 1",
            "robocache_observations_total{node=\"fuse\"} 500",
            "robocache_observation_rate_hz{node=\"fuse\"} 48.5",
            "robocache_wait_seconds{node=\"fuse\",quantile=\"0.99\"} 0.04",
            "robocache_age_seconds{node=\"fuse\",operation=\"fuse\",input=\"camera\",quantile=\"0.99\"} 0.12",
            "robocache_age_seconds{node=\"fuse\",operation=\"fuse\",input=\"force\",quantile=\"1\"} 0.0011",
            "robocache_dropped_total{node=\"fuse\",operation=\"fuse\",input=\"camera\",reason=\"overflow\"} 4",
            "robocache_input_level{node=\"fuse\",operation=\"wrist\",input=\"lidar \\\"top\\\"\"} 3",
            "# TYPE robocache_age_seconds gauge",
            "# TYPE robocache_late_total counter",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        // What is not known has no series, and no metric comes twice.
        assert!(!text.contains("robocache_age_seconds{node=\"fuse\",operation=\"wrist\""));
        let mut types: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let count = types.len();
        types.sort_unstable();
        types.dedup();
        assert_eq!(types.len(), count);
    }

    #[test]
    fn a_request_has_its_answer() {
        let answered = |request: &str, is_whole| {
            let answer = answer(request.as_bytes(), is_whole, &mut || Ok("figures\n".into()));
            let text = String::from_utf8(answer).unwrap();
            text.split_once("\r\n\r\n")
                .map(|(head, body)| (head.to_owned(), body.to_owned()))
                .unwrap()
        };
        let (head, body) = answered("GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n", true);
        assert!(
            head.starts_with("HTTP/1.1 200 OK") && head.contains("Content-Length: 8"),
            "{head}"
        );
        assert_eq!(body, "figures\n");
        assert_eq!(answered("HEAD /metrics HTTP/1.1\r\n\r\n", true).1, "");
        for (request, code) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("hello\r\n\r\n", "400"),
            ("\r\n\r\n", "400"),
            ("GET /metrics HTTP/2\r\n\r\n", "400"),
        ] {
            let (head, _) = answered(request, true);
            assert!(head.starts_with(&format!("HTTP/1.1 {code}")), "{request:?}: {head}");
        }
        assert!(answered(&"x".repeat(9000), false).0.starts_with("HTTP/1.1 431"));
    }

    /// Who says nothing, sends without end or does not read holds nobody up.
    #[test]
    fn clients_that_hang_hold_nobody_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let (most, clients) = mpsc::channel();
        let server = std::thread::spawn({
            let done = done.clone();
            move || {
                let mut server = Server::new(listener);
                let large = "x".repeat(8 << 20);
                while !done.load(Ordering::Relaxed) {
                    server.step(&mut || Ok(large.clone())).unwrap();
                    most.send(server.clients.len()).unwrap();
                }
            }
        });
        let hanging: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut greedy = TcpStream::connect(address).unwrap();
        greedy.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut endless = TcpStream::connect(address).unwrap();
        let _ = endless.write_all(&[b'x'; 20_000]);
        let start = Instant::now();
        for _ in 0..5 {
            let mut client = TcpStream::connect(address).unwrap();
            client
                .write_all(b"GET /metrics HTTP/1.1\r\nHost: robot\r\n\r\n")
                .unwrap();
            let mut text = Vec::new();
            client.read_to_end(&mut text).unwrap();
            assert!(text.len() > 8 << 20);
        }
        assert!(start.elapsed() < DEADLINE, "{:?}", start.elapsed());
        // Their time runs out.
        std::thread::sleep(DEADLINE + Duration::from_millis(200));
        done.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(address));
        server.join().unwrap();
        let counts: Vec<usize> = clients.try_iter().collect();
        assert!(
            counts.iter().all(|&count| count <= MOST_CLIENTS) && counts[counts.len() - 1] <= 1,
            "{counts:?}"
        );
        drop((hanging, greedy, endless));
    }
}
