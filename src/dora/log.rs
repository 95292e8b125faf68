//! The log: text on a terminal; under a daemon lines of JSON, from which dora takes the level.
//!
//! A line never has control characters that came from a sender: they are escaped.

use dora_node_api::serde_json;
use robocache_stream::plain;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Filter of the log if `RUST_LOG` is not set. It hides dora's warning about every large message, and warnings about losses,
/// which the runtime reports itself.
pub(super) const FILTER: &str = "info,dora_node_api=error,zenoh=error,zenoh_shm=error,zenoh_transport=error";

/// Sets up the log of this process, on standard error. If the process has a logger already, this logger stays.
pub(super) fn set_up() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(FILTER));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    if super::is_under_a_daemon() {
        let _ = log.event_format(DaemonLines).try_init();
        // dora would take the text of a panic for output of the lowest level.
        let text = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            tracing::error!("{panic}");
            text(panic);
        }));
    } else {
        let _ = log.with_target(false).with_ansi(false).without_time().try_init();
    }
}

/// Format with one line of JSON for each event. dora takes a line for plain output, unless it has the keys of `Line` and every
/// field is a string.
struct DaemonLines;

#[derive(Serialize)]
struct Line {
    timestamp: String,
    level: &'static str,
    target: &'static str,
    message: String,
    fields: BTreeMap<&'static str, String>,
}

impl<S, N> FormatEvent<S, N> for DaemonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut line = Line {
            timestamp: String::new(),
            level: event.metadata().level().as_str(),
            target: event.metadata().target(),
            message: String::new(),
            fields: BTreeMap::new(),
        };
        SystemTime.format_time(&mut Writer::new(&mut line.timestamp))?;
        event.record(&mut line);
        let text = serde_json::to_string(&line).map_err(|_| fmt::Error)?;
        writeln!(writer, "{text}")
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.take(field, format!("{value:?}"));
    }
}

impl Line {
    fn take(&mut self, field: &Field, value: String) {
        match field.name() {
            // The message may have names from senders, and dora prints it as it is: control characters are escaped.
            "message" => self.message = plain(&value).into_owned(),
            name => {
                self.fields.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dora_node_api::serde_json::Value;
    use std::sync::{Arc, Mutex};

    #[test]
    fn a_line_has_the_keys_that_dora_looks_for_and_strings_only() {
        #[derive(Clone, Default)]
        struct Lines(Arc<Mutex<Vec<u8>>>);
        impl std::io::Write for Lines {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().unwrap().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .event_format(DaemonLines)
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(dropped = 3, from = "camera", share = 0.5, "said \"so\"\nin two lines");
            tracing::error!("{} of {}\u{1b}[2J", 1, 2);
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let [warning, error] = text.lines().collect::<Vec<_>>()[..] else {
            panic!("each event is a line: {text}")
        };
        let warning: Value = serde_json::from_str(warning).unwrap();
        assert_eq!(warning["level"], "WARN");
        assert_eq!(warning["message"], "said \"so\"\\nin two lines");
        assert_eq!(
            warning["fields"],
            serde_json::json!({ "dropped": "3", "from": "camera", "share": "0.5" })
        );
        assert!(warning["target"].as_str().unwrap().starts_with("robocache"));
        let timestamp = warning["timestamp"].as_str().unwrap();
        assert!(
            timestamp.len() > 19 && timestamp.ends_with('Z') && &timestamp[10..11] == "T",
            "{timestamp}"
        );
        let error: Value = serde_json::from_str(error).unwrap();
        assert_eq!(
            (&error["level"], &error["message"]),
            (&"ERROR".into(), &"1 of 2\\u{1b}[2J".into())
        );
    }
}
