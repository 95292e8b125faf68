//! Plugin `clock`: converts the stamps of devices to the clock of the host.
//!
//! Messages are passed on in the order of their arrival. Their payloads stay unchanged: only stamps and the metadata of the
//! clock are written anew.

use super::{add, report_losses};
use crate::app::{AppError, BuildContext, Diagnosis, Fault, HealthIssue, Level, Operation, Outbox};
use robocache_ops::clock::{ClockConfig, Clocks, Notice, Stamp};
use robocache_ops::{self as ops, clock};
use robocache_stream::{Header, Layout, Message};

/// Largest plausible difference between a converted stamp and the time of publication, ns. A larger one means that the device
/// does not have the clock that the configuration says.
const OTHER_CLOCK_NS: u64 = 10_000_000_000;

plugin! {
    /// Plugin that converts the stamps of the inputs of `clock:` to the clock of the host, and publishes each input under its
    /// own name.
    ClockPlugin(ClockConfig), "clock": "Puts the stamps of devices on the clock of the host."
}

fn build(config: ClockConfig, context: &mut BuildContext<'_>) -> Result<(), AppError> {
    let clocks = Clocks::new(&config).map_err(|error| context.refused(&error))?;
    let inputs: Vec<String> = config.inputs.into_iter().map(|input| input.input).collect();
    let operation = Clock {
        name: context.name().into(),
        inputs: inputs.clone(),
        clocks,
        ailments: vec![None; inputs.len()],
        last: vec![None; inputs.len()],
        layout: Layout::default(),
    };
    add(context, inputs.clone(), inputs, operation)
}

/// The capture time of a message, ns.
enum CaptureTime {
    /// The message's own stamp, ns.
    Stamped(i64),
    /// Time of publication, ns, of a message without a stamp.
    Unstamped(i64),
}

/// Reads the capture time of a message: its stamp, else the newest stamp of its samples, else the time of its publication.
/// Fails if the message has none of these.
fn capture_time(header: &Header) -> Result<CaptureTime, Fault> {
    let own = header.timestamp_ns.get().filter(|_| !header.is_unstamped());
    let of_rows = || header.timestamps_ns.get()?.iter().copied().max();
    if let Some(stamp) = own.or_else(of_rows) {
        return Ok(CaptureTime::Stamped(stamp));
    }
    let published = header.timestamp_ns.get();
    let needed = "no `timestamp_ns` (needed: the capture time by the clock that `clock` names, ns)";
    Ok(CaptureTime::Unstamped(published.ok_or(needed)?))
}

fn health_issue(cause: impl ToString) -> HealthIssue {
    HealthIssue {
        level: Level::Warn,
        what: "its stamps are not capture times".to_owned(),
        cause: cause.to_string(),
    }
}

struct Clock {
    name: String,
    inputs: Vec<String>,
    clocks: Clocks,
    /// Current problem of each input's stamps; `None` if there is no problem.
    ailments: Vec<Option<HealthIssue>>,
    /// Converted stamp of the last message of each input; `None` before the first message.
    last: Vec<Option<Stamp>>,
    layout: Layout,
}

impl Operation for Clock {
    fn input(&mut self, input: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        let words = ("is not passed on", "which are passed on as NaN, or not at all");
        report_losses(input, message, words, out);
        let capture = capture_time(&message.header)?;
        let published_ns = message.published_ns.or(message.arrival_ns);
        let (device_ns, (stamp, notice)) = match capture {
            CaptureTime::Stamped(device_ns) => (device_ns, self.clocks.push(input, device_ns, published_ns)),
            CaptureTime::Unstamped(at_ns) => (at_ns, (self.clocks.push_unstamped(input, at_ns), None)),
        };
        self.last[input] = Some(stamp);
        match notice {
            Some(notice @ Notice::Locked) => {
                let (name, input) = (&self.name, &self.inputs[input]);
                let (ppm, us) = (stamp.skew * 1e6, stamp.sigma_ns / 1000);
                tracing::info!("{name}: input `{input}`: {notice} (skew {ppm:.1} ppm, sigma {us} us)");
            }
            Some(notice) => {
                if matches!(notice, Notice::Pace { .. }) {
                    self.ailments[input] = Some(health_issue(notice));
                }
                out.warn(input, notice.kind(), notice);
            }
            None => {}
        }
        if let Some(published) = published_ns.filter(|_| stamp.is_locked) {
            self.ailments[input] = None;
            if stamp.host_ns.abs_diff(published) > OTHER_CLOCK_NS {
                let apart = (stamp.host_ns as f64 - published as f64) / 1e9;
                let text = format!(
                    "its stamps are {apart:+.1} s from the time of publication: of another clock than `clock` says"
                );
                out.warn_seldom(input, "another clock", format_args!("{text}"));
                self.ailments[input] = Some(health_issue(text));
            }
        }
        message.layout_into(&mut self.layout);
        out.send(input, &self.layout, |payload, header| {
            payload.copy_from(message);
            header.copy_from(&message.header);
            header.timestamp_ns.set(stamp.host_ns);
            if matches!(capture, CaptureTime::Stamped(_)) {
                header.unstamped.clear();
            }
            if let Some(rows) = message.header.timestamps_ns.get() {
                let rows = rows.iter().map(|&row_ns| stamp.of_sample(device_ns, row_ns));
                header.timestamps_ns.set(rows);
            }
            clock::key::device_timestamp_ns.set(header, device_ns);
            clock::key::clock_offset_ns.set(header, stamp.offset_ns);
            clock::key::clock_skew_ppm.set(header, stamp.skew * 1e6);
            clock::key::clock_sigma_ns.set(header, stamp.sigma_ns);
            clock::key::clock_locked.set(header, i64::from(stamp.is_locked));
            ops::key::epoch.set(header, stamp.epoch);
        });
        Ok(())
    }

    fn health_issue(&self, input: usize) -> Option<&HealthIssue> {
        self.ailments[input].as_ref()
    }

    fn diagnosis(&self, input: usize) -> Diagnosis {
        let last = self.last[input];
        Diagnosis {
            epoch: last.map_or(0, |stamp| stamp.epoch),
            clock: last.map(|stamp| (stamp.offset_ns, stamp.skew * 1e6)),
            ..Diagnosis::default()
        }
    }
}
