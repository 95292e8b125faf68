//! Channels of recorded streams: single values over time, which the command line selects by name. A value that is not valid is
//! NaN, never a number that looks measured.

use robocache::ops::align;
use robocache::stream::recording::Reader;
use robocache::stream::{Cells, Header, Message, form};
use std::ops::Range;
use std::path::Path;

/// Help text that explains how the command line names a channel.
pub const NAMING: &str = "\
A channel is STREAM[INDEX], STREAM.FIELD or STREAM.FIELD[INDEX]. A field is one of the `fields` of a tensor, a column of a
struct, or a stream of an observation.";

/// Parsed name of a channel: a stream, and the field or the index of the values in its samples.
struct ChannelName<'a> {
    text: &'a str,
    stream: usize,
    field: Option<&'a str>,
    index: Option<usize>,
}

impl<'a> ChannelName<'a> {
    /// Parses the name of a channel, which begins with the name of one of `streams`. If several stream names match, the
    /// longest wins.
    fn parse(text: &'a str, streams: &[String]) -> eyre::Result<Self> {
        let (stream, rest) = streams
            .iter()
            .enumerate()
            .filter_map(|(i, name)| Some((i, text.strip_prefix(name.as_str())?)))
            .filter(|(_, rest)| rest.is_empty() || rest.starts_with(['.', '[']))
            .min_by_key(|(_, rest)| rest.len())
            .ok_or_else(|| eyre::eyre!("`{text}`: no such stream (allowed: {})", streams.join(", ")))?;
        let (field, index) = match rest.strip_suffix(']').and_then(|rest| rest.rsplit_once('[')) {
            Some((field, index)) => {
                let index = index.parse();
                let index =
                    index.map_err(|_| eyre::eyre!("`{text}`: the index is not a number (allowed: 0, 1, ...)"))?;
                (field, Some(index))
            }
            None => (rest, None),
        };
        let field = match field.strip_prefix('.') {
            Some(field) => Some(field),
            None if field.is_empty() => None,
            None => eyre::bail!(
                "`{text}` is not a channel (allowed: `STREAM`, `STREAM[INDEX]`, `STREAM.FIELD`, `STREAM.FIELD[INDEX]`)"
            ),
        };
        Ok(Self {
            text,
            stream,
            field,
            index,
        })
    }

    /// Returns the range of the channel's values within a sample of `message`. Fails if the message lacks the field or
    /// the index.
    fn values_of(&self, message: &Message) -> eyre::Result<Range<usize>> {
        let text = self.text;
        let all = sample_len(message).map_err(|problem| eyre::eyre!("`{text}`: {problem}"))?;
        let range = match self.field {
            None => 0..all,
            Some(field) => {
                let fields = fields(message);
                let names = || fields.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
                let found = fields.iter().find(|(name, _)| *name == field);
                let found = found.ok_or_else(|| match fields.is_empty() {
                    true => eyre::eyre!(
                        "`{text}`: the stream names no fields (allowed: an index, of 0 to {})",
                        all - 1
                    ),
                    false => eyre::eyre!("`{text}`: no field `{field}` (allowed: {})", names()),
                });
                found?.1.clone()
            }
        };
        match self.index {
            None => Ok(range),
            Some(index) if index < range.len() => Ok(range.start + index..range.start + index + 1),
            Some(index) => eyre::bail!(
                "`{text}`: {} values, none at {index} (allowed: 0 to {})",
                range.len(),
                range.len() - 1
            ),
        }
    }
}

/// One value of a stream over time.
pub struct Channel {
    pub name: String,
    /// Stamps of the samples, ns, in the order of recording until `in_order` sorts them.
    pub times_ns: Vec<i64>,
    /// The channel's value at each of `times_ns`; NaN if the value is not valid.
    pub values: Vec<f64>,
}

impl Channel {
    /// Sorts the samples by stamp, ascending. Samples with the same stamp keep their order.
    pub fn in_order(self) -> Self {
        let mut rows: Vec<(i64, f64)> = self.times_ns.into_iter().zip(self.values).collect();
        rows.sort_by_key(|(time_ns, _)| *time_ns);
        let (times_ns, values) = rows.into_iter().unzip();
        Self {
            name: self.name,
            times_ns,
            values,
        }
    }
}

/// Reads the channels that `words` name from a recording, in the order of `words`. Fails if `words` name more than `most` channels.
/// Also returns an error line for each part of the recording that could not be read.
pub fn read(folder: &Path, words: &[&str], most: usize) -> eyre::Result<(Vec<Channel>, Vec<String>)> {
    let (mut reader, refused) = Reader::open_readable(folder)?;
    let mut problems: Vec<String> = refused.iter().map(ToString::to_string).collect();
    let streams: Vec<String> = reader.streams().map(str::to_owned).collect();
    let selections = words.iter().map(|text| ChannelName::parse(text, &streams));
    let selections = selections.collect::<eyre::Result<Vec<_>>>();
    // The stream may be in a file that can't be read.
    let selections = selections.map_err(|error| match problems.is_empty() {
        true => error,
        false => eyre::eyre!("{error}; can't be read: {}", problems.join("; ")),
    })?;
    reader.retain(|name| selections.iter().any(|selection| streams[selection.stream] == name));
    let kept: Vec<String> = reader.streams().map(str::to_owned).collect();
    // For each selection, once its first message is read: the range of values in a sample, and their channels.
    let mut found: Vec<Option<(Range<usize>, Vec<Channel>)>> = selections.iter().map(|_| None).collect();
    let mut count = 0;
    let (mut message, mut sample) = (Message::default(), Vec::new());
    loop {
        let stream = match reader.next_into(&mut message) {
            Ok(Some(stream)) => &kept[stream],
            Ok(None) => break,
            Err(error) => {
                problems.push(error.to_string());
                continue;
            }
        };
        for (selection, found) in selections.iter().zip(&mut found) {
            if streams[selection.stream] != *stream {
                continue;
            }
            let (range, channels) = match found {
                Some(found) => found,
                None => {
                    let range = selection.values_of(&message)?;
                    count += range.len();
                    if count > most {
                        let text = selection.text;
                        eyre::bail!(
                            "`{text}`: {} channels (allowed: {most} in all; `{text}[INDEX]` is one)",
                            range.len()
                        );
                    }
                    let channels = names(&message, range.clone()).map(|name| Channel {
                        name: format!("{stream}{name}"),
                        times_ns: Vec::new(),
                        values: Vec::new(),
                    });
                    let channels = channels.collect();
                    found.insert((range, channels))
                }
            };
            let came = samples(&message, &mut sample, |stamp_ns, values| {
                for (channel, i) in channels.iter_mut().zip(range.clone()) {
                    channel.times_ns.push(stamp_ns);
                    channel.values.push(values.get(i).copied().unwrap_or(f64::NAN));
                }
            });
            came.map_err(|problem| eyre::eyre!("`{}`: {problem}", selection.text))?;
        }
    }
    let mut channels = Vec::with_capacity(count);
    for (selection, found) in selections.iter().zip(found) {
        let text = selection.text;
        let (_, found) = found.ok_or_else(|| eyre::eyre!("`{text}`: the stream has no message that can be read"))?;
        channels.extend(found);
    }
    Ok((channels, problems))
}

/// Calls `take` with the stamp, ns, and the values of each sample of a message. Values that are not valid are NaN. Only the newest
/// row of an observation is passed, as its other rows repeat earlier observations. `sample` is a scratch buffer.
pub fn samples(message: &Message, sample: &mut Vec<f64>, mut take: impl FnMut(i64, &[f64])) -> Result<(), String> {
    let len = sample_len(message)?;
    let header = &message.header;
    sample.clear();
    for column in message.columns().iter().filter(|column| is_number(column.cells)) {
        column.values().to_f64(sample);
    }
    let valid = header.valid.get().unwrap_or_default();
    if let Some(modalities) = form::modalities.get(header) {
        let newest = &mut sample[..];
        let newest = newest.len().checked_sub(len).map(|from| &mut newest[from..]);
        let newest = newest.ok_or("fewer values than its `offsets` say")?;
        let masks = valid.len().saturating_sub(modalities.len());
        for (columns, &valid) in offsets(header).windows(2).zip(&valid[masks..]) {
            if valid == 0 {
                newest[columns[0] as usize..columns[1] as usize].fill(f64::NAN);
            }
        }
        take(message.timestamp_ns(), newest);
        return Ok(());
    }
    let stamps = message.stamps();
    let masks = valid.len() / stamps.len();
    for (row, (values, &stamp_ns)) in sample.chunks_mut(len).zip(stamps).enumerate() {
        if valid[row * masks..(row + 1) * masks].contains(&0) {
            values.fill(f64::NAN);
        }
        take(stamp_ns, values);
    }
    Ok(())
}

/// Returns the index of each stream's first value in a row of an observation, and the row's length at the end. Empty if the
/// header lacks `offsets`.
fn offsets(header: &Header) -> &[i64] {
    align::key::offsets.get(header).unwrap_or_default()
}

/// Returns the entries of `list` for the newest row of an observation, one for each of `streams`. `list` has an entry for each
/// row and stream, such as an age. Empty if `list` or `streams` is missing.
pub fn newest_row<'a>(list: Option<&'a [i64]>, streams: Option<&[String]>) -> &'a [i64] {
    let list = list.unwrap_or_default();
    let columns = streams.map_or(0, <[String]>::len);
    &list[list.len().saturating_sub(columns)..]
}

/// Counts the values in one sample of `message`. Fails if the message does not hold samples, or if they have no values.
pub fn sample_len(message: &Message) -> Result<usize, String> {
    let header = &message.header;
    let len = if form::modalities.get(header).is_some() {
        let offsets = offsets(header);
        let ascend = offsets.windows(2).all(|pair| pair[0] <= pair[1]);
        let last = offsets.last().and_then(|&last| usize::try_from(last).ok());
        last.filter(|_| ascend && offsets[0] >= 0)
            .ok_or("its `offsets` are not columns")?
    } else if let Some(values) = message.flat() {
        values.len() / message.stamps().len()
    } else if message.rows == 1 {
        let columns = message.columns().iter().filter(|column| is_number(column.cells));
        columns.map(|column| column.values().len()).sum()
    } else {
        return Err(format!(
            "a struct of {} rows is not a sample (allowed: tensors, and structs of one row)",
            message.rows
        ));
    };
    match len {
        0 => Err("a message without values".to_owned()),
        len => Ok(len),
    }
}

/// Lists the named fields of a sample, each with the range of its values in the sample; empty if the message names none.
pub fn fields(message: &Message) -> Vec<(&str, Range<usize>)> {
    let header = &message.header;
    if let Some(modalities) = form::modalities.get(header) {
        let columns = offsets(header)
            .windows(2)
            .map(|pair| pair[0] as usize..pair[1] as usize);
        return modalities.iter().map(String::as_str).zip(columns).collect();
    }
    if message.flat().is_some() {
        let names = header.fields.get().unwrap_or_default().iter().map(String::as_str);
        return names.enumerate().map(|(i, name)| (name, i..i + 1)).collect();
    }
    let mut end = 0;
    let columns = message.columns().iter().filter(|column| is_number(column.cells));
    columns
        .map(|column| {
            let start = end;
            end += column.values().len();
            (column.name.as_str(), start..end)
        })
        .collect()
}

/// Returns the name of each value in the range `values` of a sample, as a suffix of the stream's name, such as `.x`, `.pose[1]` or
/// `[3]`.
pub fn names(message: &Message, values: Range<usize>) -> impl Iterator<Item = String> {
    let fields = fields(message);
    values.map(move |i| match fields.iter().find(|(_, range)| range.contains(&i)) {
        Some((name, range)) if range.len() == 1 => format!(".{name}"),
        Some((name, range)) => format!(".{name}[{}]", i - range.start),
        None => format!("[{i}]"),
    })
}

/// True if a column of a message with these cells holds numbers, not text.
fn is_number(cells: Cells) -> bool {
    matches!(cells, Cells::One | Cells::Fixed(_) | Cells::Ragged(_))
}
