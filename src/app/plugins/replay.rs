use crate::app::{App, AppError, Fault, Operation, Outbox, Parameter, Parameters, Plugin, Registration, Wake};
use crate::device::Dtype;
use crate::ops::ConfigError;
use crate::stream::recording::Reader;
use crate::stream::{ColumnLayout, Layout, Message};
use serde::{Deserialize, Deserializer, de};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Messages that are published between two looks at what else there is to do.
const AT_ONCE: usize = 64;

/// Publishes the streams of the recording that `replay:` names, in the order of time, as outputs of their names.
pub struct ReplayPlugin;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplayConfig {
    /// The folder of the recording.
    path: PathBuf,
    #[serde(default)]
    speed: Speed,
}

/// How fast the recorded time passes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Speed {
    /// So many times as fast as it was.
    Times(f64),
    /// As fast as the consumers take it.
    Max,
}

impl Default for Speed {
    fn default() -> Self {
        Self::Times(1.0)
    }
}

impl<'de> Deserialize<'de> for Speed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Text {
            Number(f64),
            Word(String),
        }
        let refused = |came: String| {
            de::Error::custom(format!(
                "`{came}` is no speed (allowed: a number from 0.001 to 1000, or max)"
            ))
        };
        match Text::deserialize(deserializer) {
            Ok(Text::Number(times)) if (0.001..=1000.0).contains(&times) => Ok(Self::Times(times)),
            Ok(Text::Number(times)) => Err(refused(times.to_string())),
            Ok(Text::Word(word)) if word == "max" => Ok(Self::Max),
            Ok(Text::Word(word)) => Err(refused(word)),
            Err(_) => Err(refused("what is neither a number nor a word".into())),
        }
    }
}

impl Plugin for ReplayPlugin {
    fn name(&self) -> &'static str {
        "replay"
    }

    fn about(&self) -> &'static str {
        "Publishes a recording, at its pace or another."
    }

    fn build(&self, app: &mut App) -> Result<(), AppError> {
        let config: ReplayConfig = app.config()?;
        let reader =
            Reader::open(&config.path).map_err(|error| app.refused(&ConfigError::new("path", error.to_string())))?;
        let outputs: Vec<String> = reader.streams().map(str::to_owned).collect();
        app.add_operation(Registration {
            name: self.name().into(),
            inputs: Vec::new(),
            operation: Box::new(Replay {
                speed: config.speed,
                wanted: Vec::new(),
                outputs: outputs.clone(),
                reader,
                start: None,
                message: Message::default(),
                layout: Layout {
                    rows: 0,
                    columns: Vec::new(),
                },
            }),
            outputs,
        });
        Ok(())
    }
}

struct Replay {
    speed: Speed,
    outputs: Vec<String>,
    /// The outputs that are published, by the index of their stream in the reader.
    wanted: Vec<usize>,
    reader: Reader,
    /// When the first message was published, and its stamp.
    start: Option<(Instant, i64)>,
    message: Message,
    layout: Layout,
}

impl Operation for Replay {
    fn input(&mut self, _: usize, _: &Message, _: &mut Outbox<'_>) -> Result<(), Fault> {
        Ok(())
    }

    fn wake(&mut self, now: Instant, out: &mut Outbox<'_>) -> Result<Wake, Fault> {
        if self.start.is_none() {
            self.wanted = (0..self.outputs.len())
                .filter(|&output| out.is_wanted(output))
                .collect();
            let (outputs, wanted) = (&self.outputs, &self.wanted);
            self.reader
                .retain(|name| wanted.iter().any(|&output| outputs[output] == name));
        }
        for _ in 0..AT_ONCE {
            if let Some(stamp) = self.reader.next_timestamp_ns() {
                let (start, first) = *self.start.get_or_insert((now, stamp));
                if let Speed::Times(speed) = self.speed {
                    let recorded = Duration::from_nanos(u64::try_from(stamp.saturating_sub(first)).unwrap_or(0));
                    let due = start + recorded.div_f64(speed);
                    if due > Instant::now() {
                        return Ok(Wake::At(due));
                    }
                }
            }
            match self.reader.next_into(&mut self.message)? {
                Some(stream) => self.publish(self.wanted[stream], out),
                None => return Ok(Wake::Done),
            }
        }
        Ok(Wake::At(now))
    }
}

impl Replay {
    fn publish(&mut self, output: usize, out: &mut Outbox<'_>) {
        let message = &self.message;
        layout_into(message, &mut self.layout);
        out.send(output, &self.layout, |payload| {
            for (i, column) in message.columns().iter().enumerate() {
                payload.column::<u8>(i).copy_from_slice(column.data.bytes());
                payload.offsets(i).copy_from_slice(&column.offsets);
            }
            parameters(message)
        });
    }
}

/// Makes `layout` that of the message, keeping the memory of names that are there already.
fn layout_into(message: &Message, layout: &mut Layout) {
    layout.rows = message.rows;
    layout.columns.truncate(message.columns().len());
    for (i, column) in message.columns().iter().enumerate() {
        match layout.columns.get_mut(i) {
            Some(there) => {
                if there.name != column.name {
                    there.name = column.name.clone().into();
                }
                (there.dtype, there.cells) = (column.dtype, column.cells);
            }
            None => layout.columns.push(ColumnLayout {
                name: column.name.clone().into(),
                dtype: column.dtype,
                cells: column.cells,
            }),
        }
    }
}

/// The metadata that the message had.
fn parameters(message: &Message) -> Parameters {
    let mut parameters = Parameters::new();
    let mut put = |key: &str, value| parameters.insert(key.to_owned(), value);
    put("timestamp_ns", Parameter::Integer(message.timestamp_ns));
    if !message.shape.is_empty() {
        put(
            "shape",
            Parameter::ListInt(message.shape.iter().map(|&n| n as i64).collect()),
        );
    }
    if !message.timestamps_ns.is_empty() {
        put("timestamps_ns", Parameter::ListInt(message.timestamps_ns.clone()));
    }
    if !message.valid.is_empty() {
        put("valid", Parameter::ListInt(message.valid.clone()));
    }
    if !message.fields.is_empty() {
        put("fields", Parameter::ListString(message.fields.clone()));
    }
    if !message.frame_id.is_empty() {
        put("frame_id", Parameter::String(message.frame_id.clone()));
    }
    if message.dim != 0 {
        put("dim", Parameter::Integer(message.dim as i64));
    }
    if message.columns().iter().any(|column| column.dtype == Dtype::BFloat16) {
        put("dtype", Parameter::String(Dtype::BFloat16.name().into()));
    }
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_a_number_or_max() {
        let parse = |text: &str| serde_yaml::from_str::<ReplayConfig>(&format!("path: x\n{text}")).map(|c| c.speed);
        assert_eq!(parse("").unwrap(), Speed::Times(1.0));
        assert_eq!(parse("speed: 2").unwrap(), Speed::Times(2.0));
        assert_eq!(parse("speed: max").unwrap(), Speed::Max);
        for text in ["speed: 0", "speed: -1", "speed: .nan", "speed: fast", "speed: [1]"] {
            let refused = parse(text).unwrap_err().to_string();
            assert!(refused.contains("or max"), "{refused}");
        }
        assert!(parse("sped: 1").is_err());
    }
}
