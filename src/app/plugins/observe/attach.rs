//! Attached messages: held as long as a window may need them, and published with each observation.
//!
//! Every message of a stream must have the form of the stream's first message. Any other message is refused.

use super::super::watch::Watch;
use super::trigger;
use crate::app::Outbox;
use crate::app::input_message::InputMessage;
use crate::app::pool::HeldPools;
use robocache_device::{Dtype, HostBuf};
use robocache_ops::align::{Aligner, Arrival, Attached, Target, Timeline};
use robocache_ops::{self as ops, align};
use robocache_stream::{Cells, ColumnLayout, Header, Layout, Message, Payload, form, key};
use std::borrow::Cow;
use std::fmt::Write;

/// Estimated bytes that a held message takes besides its payload.
const OVERHEAD: usize = 4096;

/// The attached streams of an observation, with the messages that they hold.
pub(super) struct Attach {
    inputs: Vec<Input>,
    held: Attached<Message>,
    /// Number of modalities. Their inputs come before those of the attached streams.
    modalities: usize,
    outputs: Vec<String>,
    /// Layout of the output `observation`, in memory that is reused.
    layout: Layout,
    /// Values of the window, if the outputs `fused` and `observation` are both wanted: they are computed once for both.
    pub values: HostBuf,
    /// Reused buffer for the name of a metadata key.
    name: String,
}

/// One attached stream, and the layout of its messages in the window that was selected last.
struct Input {
    form: Option<Form>,
    pool: HeldPools,
    layout: Layout,
    /// Metadata of the stream's messages. The output of the stream has these keys unchanged; in `observation` the output's name
    /// precedes them.
    header: Header,
    offsets: Vec<i64>,
}

/// Form that all messages of a stream must have, taken from the first message: its shape, its columns and some metadata.
struct Form {
    /// True if the messages of a window are stacked along a new axis. If false, their rows are concatenated, and messages may
    /// differ in their number of rows.
    is_stacked: bool,
    /// Shape of a message if messages are stacked, or of a row if messages are flat but not stacked. Empty if messages are structs.
    shape: Vec<i64>,
    columns: Vec<ColumnLayout>,
    /// Metadata keys that are copied to the output. They are equal in all messages of the stream.
    header: Header,
}

impl Attach {
    /// Makes the state of the attached streams of a timeline; `None` if there are no such streams.
    pub(super) fn new(timeline: &Timeline) -> Option<Self> {
        if timeline.attached().is_empty() {
            return None;
        }
        let inputs = timeline.attached().iter().map(|spec| Input {
            form: None,
            pool: HeldPools::new(1, spec.max_held),
            layout: Layout::default(),
            header: Header::default(),
            offsets: Vec::new(),
        });
        Some(Self {
            inputs: inputs.collect(),
            held: Attached::new(timeline),
            modalities: timeline.modalities(),
            outputs: timeline.attached().iter().map(|spec| spec.output.clone()).collect(),
            layout: Layout::default(),
            values: HostBuf::default(),
            name: String::new(),
        })
    }

    /// Index of the attached stream that an input belongs to; `None` for the input of a modality.
    pub(super) fn stream(&self, input: usize) -> Option<usize> {
        input.checked_sub(self.modalities)
    }

    /// Index of the output `observation`, which follows `fused` and the outputs of the attached streams.
    pub(super) fn observation(&self) -> usize {
        1 + self.inputs.len()
    }

    /// Checks the form of an attached stream's message, and holds the message. A refused message is not held.
    pub(super) fn push(
        &mut self,
        aligner: &mut Aligner,
        stream: usize,
        message: InputMessage<'_>,
    ) -> Result<Arrival, String> {
        let Input { form, pool, .. } = &mut self.inputs[stream];
        let stamp_ns = message
            .header
            .timestamp_ns
            .get()
            .ok_or("no `timestamp_ns` (needed: the capture time, ns)")?;
        let new = match form {
            Some(form) => form.check(&message).map(|()| None)?,
            None => Some(Form::of(&message)?),
        };
        let bytes = message.bytes() + OVERHEAD;
        let held = self.held.held_bytes(stream);
        let item = || message.keep(pool.take(0, bytes, held));
        let arrival = self.held.push(aligner, stream, stamp_ns, bytes, item);
        let arrival = arrival.map_err(|error| error.to_string())?;
        *form = form.take().or(new);
        self.give_back();
        Ok(arrival)
    }

    /// Returns the memory of messages that are not held any more to the pools.
    fn give_back(&mut self) {
        while let Some((stream, message)) = self.held.next_released() {
            let held = self.held.held_bytes(stream);
            self.inputs[stream].pool.give_back(0, message, held);
        }
    }

    /// Finds the messages of a target's window, and updates the layouts of the outputs that are wanted.
    pub(super) fn select(&mut self, timeline: &Timeline, target: &Target, out: &Outbox<'_>) {
        self.held.select(timeline, target);
        self.give_back();
        let is_whole_wanted = out.is_wanted(self.observation());
        for (i, input) in self.inputs.iter_mut().enumerate() {
            if is_whole_wanted || out.is_wanted(1 + i) {
                input.lay_out(self.held.members(i));
            }
        }
    }

    /// Reports the age of each stream's message in the newest row.
    pub(super) fn report(&self, timeline: &Timeline, watch: &mut Watch, out: &mut Outbox<'_>) {
        let ages = self.held.age_ns();
        let newest = &ages[ages.len() - self.inputs.len()..];
        let mut figures = out.figures();
        for (stream, &age_ns) in newest.iter().enumerate() {
            let input = timeline.modalities() + stream;
            watch.observed(input, age_ns, age_ns >= 0);
            if let Some(figures) = &mut figures {
                figures.observed(input, age_ns, age_ns >= 0);
            }
        }
    }

    /// Publishes the messages of the window that was selected last, each stream's on its own output. `request` is the header of
    /// the request that the window answers.
    pub(super) fn publish(&self, target: &Target, request: Option<&Header>, out: &mut Outbox<'_>) {
        for (i, input) in self.inputs.iter().enumerate() {
            // Before a stream's first message, the form of its messages is not known.
            if input.form.is_none() || !out.is_wanted(1 + i) {
                continue;
            }
            out.send(1 + i, &input.layout, |payload, header| {
                for column in 0..input.layout.columns.len() {
                    write(self.held.members(i), column, payload, column);
                }
                if let Some(request) = request {
                    trigger::answer(header, request);
                }
                for (key, value) in input.header.iter() {
                    header.set(key, value);
                }
                header.timestamp_ns.set(target.time_ns);
                ops::key::epoch.set(header, target.epoch);
                self.describe(header);
            });
        }
    }

    /// Publishes the window and the attached messages as one message, `observation`. `dtype` is the type of the window's
    /// values, and `describe` writes the header of `fused`.
    pub(super) fn publish_whole(&mut self, dtype: Dtype, out: &mut Outbox<'_>, describe: impl FnOnce(&mut Header)) {
        if let Err(problem) = self.lay_out_whole(dtype) {
            return out.fault_of_output(self.observation(), 1, problem);
        }
        let (layout, mut name) = (std::mem::take(&mut self.layout), std::mem::take(&mut self.name));
        out.send(self.observation(), &layout, |payload, header| {
            payload.column::<u8>(0).copy_from_slice(self.values.bytes());
            let mut column = 1;
            for (i, input) in self.inputs.iter().enumerate() {
                for own in 0..input.layout.columns.len() {
                    write(self.held.members(i), own, payload, column);
                    column += 1;
                }
            }
            for (i, column) in layout.columns.iter().enumerate() {
                payload.offsets(i).copy_from_slice(&[0, column.len(1) as i32]);
            }
            describe(header);
            self.describe(header);
            for (output, input) in self.outputs.iter().zip(&self.inputs) {
                for (key, value) in input.header.iter() {
                    name.clear();
                    // Writing to a string can't fail.
                    let _ = write!(name, "{output}.{key}");
                    header.set(&name, value);
                }
            }
        });
        (self.layout, self.name) = (layout, name);
    }

    /// Writes the metadata of the attached streams, which every output of the observation has.
    pub(super) fn describe(&self, header: &mut Header) {
        align::key::attached.set(header, &self.outputs);
        align::key::grid_index.set(header, self.held.index());
        align::key::grid_age_ns.set(header, self.held.age_ns());
    }

    /// Updates the layout of `observation`: one row, with a list in each column. The columns are `fused`, and those of each
    /// attached stream.
    fn lay_out_whole(&mut self, dtype: Dtype) -> Result<(), String> {
        let Self {
            layout,
            inputs,
            outputs,
            values,
            ..
        } = self;
        layout.rows = 1;
        let window = values.len() / dtype.size();
        let mut at = 0;
        let mut column = |(output, field): (&str, &str), dtype: Dtype, elements: usize| {
            if i32::try_from(elements).is_err() {
                return Err(format!("{elements} elements of `{output}` (allowed: 2^31 - 1)"));
            }
            let is_there = |there: &ColumnLayout| match field {
                "" => there.name == output,
                _ => {
                    let rest = there.name.strip_prefix(output);
                    rest.and_then(|rest| rest.strip_prefix('.')) == Some(field)
                }
            };
            match layout.columns.get_mut(at).filter(|there| is_there(there)) {
                Some(there) => (there.dtype, there.cells) = (dtype, Cells::Ragged(elements)),
                None => {
                    layout.columns.truncate(at);
                    let separator = if field.is_empty() { "" } else { "." };
                    layout.columns.push(ColumnLayout {
                        name: Cow::Owned(format!("{output}{separator}{field}")),
                        dtype,
                        cells: Cells::Ragged(elements),
                    });
                }
            }
            at += 1;
            Ok(())
        };
        column((robocache_ops::align::FUSED, ""), dtype, window)?;
        for (output, input) in outputs.iter().zip(inputs.iter()) {
            for own in &input.layout.columns {
                column((output, &own.name), own.dtype, own.len(input.layout.rows))?;
            }
        }
        layout.columns.truncate(at);
        Ok(())
    }
}

/// Copies the column with the index `own` of all messages, one after the other, into the column `column` of a payload.
fn write<'a>(members: impl Iterator<Item = &'a Message>, own: usize, payload: &mut Payload<'_>, column: usize) {
    let mut out = payload.column::<u8>(column);
    for message in members {
        let bytes = message.columns()[own].data.bytes();
        let (here, rest) = out.split_at_mut(bytes.len());
        here.copy_from_slice(bytes);
        out = rest;
    }
}

impl Input {
    /// Updates the layout and the header of the stream's own output for the messages of a window.
    fn lay_out<'a>(&mut self, members: impl ExactSizeIterator<Item = &'a Message> + Clone) {
        let Self {
            form,
            layout,
            header,
            offsets,
            ..
        } = self;
        header.clear();
        header.timestamps_ns.set(members.clone().map(Message::timestamp_ns));
        let Some(form) = form else {
            // The type of the messages is not known yet: an empty list stands for them.
            layout.rows = 0;
            layout.columns.resize_with(1, || ColumnLayout {
                name: Cow::Borrowed(""),
                dtype: Dtype::Float32,
                cells: Cells::One,
            });
            return;
        };
        pass_on(header, &form.header);
        // The corner of a map moves. If it does within the window, each message has its own.
        let mut corners = members.clone().map(|message| corner(&message.header));
        let first = corners.next().unwrap_or_default();
        if !corners.all(|corner| corner == first) {
            let corners = members.clone().flat_map(|message| corner(&message.header));
            form::origin_m.set(header, corners.copied());
        } else if !first.is_empty() {
            form::origin_m.set(header, first);
        }
        if layout.columns != form.columns {
            layout.columns.clone_from(&form.columns);
        }
        let is_flat = layout.is_flat();
        if is_flat {
            header.dtype.set(layout.columns[0].dtype);
        }
        let count = members.len();
        let mut rows = 0;
        offsets.clear();
        offsets.push(0);
        let mut elements = 0;
        for message in members {
            rows += form.rows(message);
            offsets.push(rows as i64);
            elements += message.flat().map_or(0, |values| values.len());
        }
        layout.rows = if is_flat { elements } else { rows };
        if form.is_stacked {
            rows = count;
        } else {
            form::grid_offsets.set(header, &*offsets);
        }
        if is_flat {
            header
                .shape
                .set(std::iter::once(rows as i64).chain(form.shape.iter().copied()));
        }
    }
}

/// Origin of a message's voxel grid, metres; empty if the message is not a voxel grid.
fn corner(header: &Header) -> &[f64] {
    form::origin_m.get(header).unwrap_or_default()
}

/// Copies the keys that describe the form of a message, which are the same in all messages of a stream.
fn pass_on(header: &mut Header, from: &Header) {
    form::channels.copy(from, header);
    form::origin_m.copy(from, header);
    form::voxel_size_m.copy(from, header);
    form::grid_shape.copy(from, header);
    header.fields.copy_from(&from.fields);
    header.frame_id.copy_from(&from.frame_id);
}

impl Form {
    /// Derives the form from the first message of a stream.
    fn of(message: &Message) -> Result<Self, String> {
        let is_flat = message.flat().is_some();
        let fields = message.header.fields.get().unwrap_or_default();
        let (is_stacked, shape) = match (is_flat, message.header.shape.get().unwrap_or_default()) {
            (false, _) => (false, Vec::new()),
            (true, []) if fields.is_empty() => (true, vec![message.rows as i64]),
            (true, shape) if fields.is_empty() => (true, shape.to_vec()),
            (true, [_, row @ ..]) if !row.is_empty() => (false, row.to_vec()),
            (true, _) => (false, vec![fields.len() as i64]),
        };
        let mut header = Header::default();
        pass_on(&mut header, &message.header);
        let is_row_of_lists = is_row_of_lists(message);
        let columns = message.columns().iter().map(|column| ColumnLayout {
            name: Cow::Owned(column.name.clone()),
            dtype: column.dtype,
            cells: if is_row_of_lists || is_flat {
                Cells::One
            } else {
                column.cells
            },
        });
        // The bits of a voxel grid are eight cells to a byte.
        let is_bits = is_stacked && elements(&shape) != message.rows;
        let form = Self {
            is_stacked,
            shape: if is_bits { vec![message.rows as i64] } else { shape },
            columns: columns.collect(),
            header,
        };
        form.check(message)?;
        Ok(form)
    }

    /// Checks that a message is of this form. The error names what differs, and the value of the first message.
    fn check(&self, message: &Message) -> Result<(), String> {
        let columns = message.columns();
        if columns.is_empty() {
            return Err("no column of it can be attached".to_owned());
        }
        let is_row_of_lists = is_row_of_lists(message);
        if let Some(column) = columns
            .iter()
            .find(|column| column.cells.has_offsets() && !is_row_of_lists)
        {
            return Err(format!(
                "column `{}` has lists or text of any length in {} rows (allowed: a value or a FixedSizeList in each row, or one row \
                 of lists, all of one length)",
                column.name, message.rows
            ));
        }
        let is_same = |(form, column): (&ColumnLayout, &robocache_stream::Column)| {
            let cells = if is_row_of_lists { Cells::One } else { column.cells };
            form.name == column.name && form.dtype == column.dtype && form.cells == cells
        };
        if columns.len() != self.columns.len() || !self.columns.iter().zip(columns).all(is_same) {
            let (came, first) = (columns.iter(), self.columns.iter());
            let came = in_words(came.map(|column| (column.name.as_str(), column.dtype, column.cells)));
            let first = in_words(first.map(|column| (&*column.name, column.dtype, column.cells)));
            return Err(format!(
                "the payload is {came} (allowed: {first}, as of the first message)"
            ));
        }
        let (form, own) = (&self.header, &*message.header);
        let keys = [
            (form::channels.name, form::channels.get(form) == form::channels.get(own)),
            (form::origin_m.name, corner(form).len() == corner(own).len()),
            (
                form::voxel_size_m.name,
                form::voxel_size_m.get(form) == form::voxel_size_m.get(own),
            ),
            (
                form::grid_shape.name,
                form::grid_shape.get(form) == form::grid_shape.get(own),
            ),
            (key::fields, form.fields == own.fields),
            (key::frame_id, form.frame_id == own.frame_id),
        ];
        if let Some((key, _)) = keys.iter().find(|(_, is_same)| !is_same) {
            let say = |header: &Header| {
                header
                    .get(key)
                    .map_or("absent".to_owned(), |value| format!("{value:?}"))
            };
            let (came, first) = (say(own), say(form));
            return Err(format!(
                "metadata `{key}` is {came} (allowed: {first}, as of the first message)"
            ));
        }
        let Some(values) = message.flat() else { return Ok(()) };
        let shape = own.shape.get().unwrap_or_default();
        let is_same = match (self.is_stacked, shape) {
            (true, []) => self.shape == [values.len() as i64],
            (true, shape) => {
                self.shape == shape || form::grid_shape.get(own).is_some() && self.shape == [values.len() as i64]
            }
            // The bits of a voxel grid are not rows.
            (false, [_, ..]) if elements(shape) != values.len() => false,
            (false, []) => self.shape.len() == 1 && values.len() as i64 % self.shape[0] == 0,
            (false, [_]) => self.shape == shape,
            (false, [_, row @ ..]) => self.shape == row,
        };
        if is_same {
            return Ok(());
        }
        let rows = if self.is_stacked { "" } else { "rows of " };
        Err(format!(
            "`shape` is {shape:?} with {} values (allowed: {rows}{:?}, as of the first message)",
            values.len(),
            self.shape
        ))
    }

    /// Number of rows in a message of this form.
    fn rows(&self, message: &Message) -> usize {
        match (message.flat(), message.columns()) {
            (Some(values), _) if !self.is_stacked => match message.header.shape.get() {
                Some(&[rows, _, ..]) => rows as usize,
                _ => values.len() / self.shape[0].max(1) as usize,
            },
            (None, [first, ..]) if is_row_of_lists(message) => first.values().len(),
            _ => message.rows,
        }
    }
}

/// Number of elements in a shape that was checked against its payload.
fn elements(shape: &[i64]) -> usize {
    shape.iter().map(|&n| n as usize).product()
}

/// True if a message is a struct with one row, whose columns are lists of one length: each list has a column's values for
/// all rows.
fn is_row_of_lists(message: &Message) -> bool {
    let Some(first) = message.columns().first() else {
        return false;
    };
    let is_list = |cells| matches!((cells, first.cells), (Cells::Ragged(a), Cells::Ragged(b)) if a == b);
    message.rows == 1 && message.columns().iter().all(|column| is_list(column.cells))
}

/// Formats the columns of a payload for an error.
fn in_words<'a>(columns: impl Iterator<Item = (&'a str, Dtype, Cells)>) -> String {
    let columns = columns.map(|(name, dtype, cells)| match (name, cells) {
        ("", _) => format!("a flat array of {dtype}"),
        (name, Cells::Fixed(n)) => format!("`{name}` {n} x {dtype}"),
        (name, _) => format!("`{name}` {dtype}"),
    });
    columns.collect::<Vec<_>>().join(", ")
}
