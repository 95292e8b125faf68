use super::report_losses;
use crate::app::{AppError, BuildContext, Diagnosis, Fault, Operation, Outbox, Plugin, Registration};
use robocache_ops::clock::{ClockConfig, Clocks, Notice, Stamp};
use robocache_stream::{Header, Layout, Message};

/// A stamp this far from the time of publication is of another clock than the configuration says.
const OTHER_CLOCK_NS: u64 = 10_000_000_000;

/// Puts the stamps of the inputs that `clock:` names on the clock of the host, and publishes each under its own name.
#[derive(Default)]
pub struct ClockPlugin {
    config: Option<ClockConfig>,
}

impl ClockPlugin {
    /// With a configuration from the program. [`default`](Self::default) takes it from the file.
    pub fn new(config: ClockConfig) -> Self {
        Self { config: Some(config) }
    }
}

impl Plugin for ClockPlugin {
    fn name(&self) -> &'static str {
        "clock"
    }

    fn about(&self) -> &'static str {
        "Puts the stamps of devices on the clock of the host."
    }

    fn is_configured(&self) -> bool {
        self.config.is_some()
    }

    fn build(&self, context: &mut BuildContext<'_>) -> Result<(), AppError> {
        let config = context.config_or(&self.config)?;
        let clocks = Clocks::new(&config).map_err(|error| context.refused(&error))?;
        let inputs: Vec<String> = config.inputs.into_iter().map(|input| input.input).collect();
        context.add_operation(Registration {
            name: context.name().into(),
            outputs: inputs.clone(),
            operation: Box::new(Clock {
                name: context.name().into(),
                inputs: inputs.clone(),
                clocks,
                last: vec![None; inputs.len()],
                layout: Layout::default(),
            }),
            inputs,
        });
        Ok(())
    }
}

/// The time that a message came with, ns.
enum Came {
    /// By the clock that stamps it.
    Stamp(i64),
    /// It has no stamp; a node gave it the time of its publication.
    Published(i64),
}

/// That of a message; where only its samples have stamps, the newest of them.
fn came(header: &Header) -> Result<Came, Fault> {
    let own = header.timestamp_ns.get().copied();
    let own = own.filter(|_| *header.unstamped == 0);
    if let Some(stamp) = own.or_else(|| header.timestamps_ns.iter().copied().max()) {
        return Ok(Came::Stamp(stamp));
    }
    let published = header.timestamp_ns.get().copied();
    let needed = "no `timestamp_ns` (needed: the capture time by the clock that `clock` names, ns)";
    Ok(Came::Published(published.ok_or(needed)?))
}

struct Clock {
    name: String,
    inputs: Vec<String>,
    clocks: Clocks,
    /// The last stamp of each input.
    last: Vec<Option<Stamp>>,
    layout: Layout,
}

impl Operation for Clock {
    fn input(&mut self, input: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        let words = ("is not passed on", "which are passed on as NaN, or not at all");
        report_losses(input, message, words, out);
        let came = came(&message.header)?;
        let published_ns = message.published_ns.or(message.arrival_ns);
        let (device_ns, (stamp, notice)) = match came {
            Came::Stamp(device_ns) => (device_ns, self.clocks.push(input, device_ns, published_ns)),
            Came::Published(at_ns) => (at_ns, (self.clocks.push_unstamped(input, at_ns), None)),
        };
        self.last[input] = Some(stamp);
        match notice {
            Some(notice @ Notice::Locked) => {
                let (name, input) = (&self.name, &self.inputs[input]);
                let (ppm, us) = (stamp.skew * 1e6, stamp.sigma_ns / 1000);
                tracing::info!("{name}: input `{input}`: {notice} (skew {ppm:.1} ppm, sigma {us} us)");
            }
            Some(notice) => out.warn(input, notice.kind(), notice),
            None => {}
        }
        if let Some(published) = published_ns.filter(|_| stamp.is_locked)
            && stamp.host_ns.abs_diff(published) > OTHER_CLOCK_NS
        {
            let apart = (stamp.host_ns as f64 - published as f64) / 1e9;
            let text = format_args!(
                "its stamps are {apart:+.1} s from the time of publication: of another clock than `clock` says"
            );
            out.warn_seldom(input, "another clock", text);
        }
        message.layout_into(&mut self.layout);
        out.send(input, &self.layout, |payload, header| {
            payload.copy_from(message);
            header.copy_from(&message.header);
            header.timestamp_ns.set(stamp.host_ns);
            if matches!(came, Came::Stamp(_)) {
                header.unstamped.clear();
            }
            if message.header.timestamps_ns.is_present() {
                let rows = message.header.timestamps_ns.iter();
                header
                    .timestamps_ns
                    .set(rows.map(|&row_ns| stamp.of_sample(device_ns, row_ns)));
            }
            header.device_timestamp_ns.set(device_ns);
            header.clock_offset_ns.set(stamp.offset_ns);
            header.clock_skew_ppm.set(stamp.skew * 1e6);
            header.clock_sigma_ns.set(stamp.sigma_ns);
            header.clock_locked.set(i64::from(stamp.is_locked));
            header.epoch.set(stamp.epoch);
        });
        Ok(())
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
