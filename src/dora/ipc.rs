//! Framing of a payload as an Arrow IPC stream, so that an operation writes its result directly into the buffer that
//! dora sends.
//!
//! Format: <https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format>. The stream has one schema message with
//! the single nullable field `data`, one record batch, and the end-of-stream marker. Every buffer of the body is aligned to
//! 64 bytes.
//!
//! Every byte of dora's shared-memory buffer is written, also the padding between the columns: no old memory is sent.

use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
use arrow_ipc::{Buffer, FieldNode, MessageBuilder, MessageHeader, MetadataVersion, RecordBatchBuilder};
use arrow_schema::{DataType, Field, Schema};
use flatbuffers::FlatBufferBuilder;
use robocache_stream::{Cells, ColumnLayout, ColumnSpan, Layout, Payload};

const ALIGNMENT: usize = 64;
const CONTINUATION: [u8; 4] = [0xff; 4];
const PREFIX: usize = 8;

/// Arrow IPC framing of one output's messages, with the bytes that are the same in each message.
#[derive(Default)]
pub(crate) struct Framing {
    /// Layout for which `schema` and `header` were made; `None` before the first message.
    layout: Option<Layout>,
    schema: Vec<u8>,
    header: Vec<u8>,
    builder: FlatBufferBuilder<'static>,
    nodes: Vec<FieldNode>,
    buffers: Vec<Buffer>,
    body: usize,
    /// Byte ranges of each column's offsets and data in the body.
    columns: Vec<ColumnSpan>,
}

impl Framing {
    /// Prepares the framing of messages with this layout, and returns the size of one, bytes.
    pub(super) fn prepare(&mut self, layout: &Layout) -> Result<usize, String> {
        if self.layout.as_ref() != Some(layout) {
            let same_type = self.layout.as_ref().is_some_and(|old| same_type(old, layout));
            if !same_type {
                self.schema = schema_message(layout)?;
            }
            self.lay_out(layout);
            self.layout = Some(layout.clone());
        }
        Ok(framed(&self.schema) + framed(&self.header) + self.body + PREFIX)
    }

    /// Writes the framing into dora's shared-memory buffer `sample`, which has the size that [`prepare`](Self::prepare) returned.
    /// Returns the columns, to be filled.
    pub(super) fn write<'a>(&'a self, sample: &'a mut [u8]) -> Payload<'a> {
        let (schema, rest) = sample.split_at_mut(framed(&self.schema));
        let (header, rest) = rest.split_at_mut(framed(&self.header));
        write_framed(schema, &self.schema);
        write_framed(header, &self.header);
        let (body, end) = rest.split_at_mut(self.body);
        end[..4].copy_from_slice(&CONTINUATION);
        end[4..PREFIX].fill(0);
        // The bytes between the columns are sent, too, so they are set to 0.
        let mut at = 0;
        for range in self.columns.iter().flat_map(|span| [&span.offsets, &span.data]) {
            body[at..range.start].fill(0);
            at = range.end;
        }
        body[at..].fill(0);
        Payload::in_body(body, &self.columns)
    }

    fn lay_out(&mut self, layout: &Layout) {
        self.nodes.clear();
        self.buffers.clear();
        self.columns.clear();
        self.body = 0;
        if !layout.is_flat() {
            self.node(layout.rows);
        }
        for column in &layout.columns {
            let elements = column.len(layout.rows);
            let mut offsets = self.body..self.body;
            match column.cells {
                Cells::One => {}
                Cells::Fixed(_) => self.node(layout.rows),
                Cells::Ragged(_) | Cells::Text(_) => {
                    self.node(layout.rows);
                    offsets = self.buffer((layout.rows + 1) * size_of::<i32>());
                }
            }
            // A text has no Arrow field node for its bytes, unlike a list for its elements.
            if !matches!(column.cells, Cells::Text(_)) {
                self.node(elements);
            }
            let data = self.buffer(elements * column.dtype.size());
            self.columns.push(ColumnSpan {
                dtype: column.dtype,
                offsets,
                data,
            });
        }
        self.write_header(layout.rows);
    }

    /// Adds the Arrow field node of an array of `len` elements. The array has no nulls, so its validity bitmap may be empty.
    fn node(&mut self, len: usize) {
        self.nodes.push(FieldNode::new(len as i64, 0));
        self.buffers.push(Buffer::new(self.body as i64, 0));
    }

    fn buffer(&mut self, bytes: usize) -> std::ops::Range<usize> {
        let start = self.body;
        self.buffers.push(Buffer::new(start as i64, bytes as i64));
        self.body += bytes.next_multiple_of(ALIGNMENT);
        start..start + bytes
    }

    fn write_header(&mut self, rows: usize) {
        let builder = &mut self.builder;
        builder.reset();
        let buffers = builder.create_vector(&self.buffers);
        let nodes = builder.create_vector(&self.nodes);
        let mut batch = RecordBatchBuilder::new(builder);
        batch.add_length(rows as i64);
        batch.add_nodes(nodes);
        batch.add_buffers(buffers);
        let batch = batch.finish();
        let mut message = MessageBuilder::new(builder);
        message.add_version(MetadataVersion::V5);
        message.add_header_type(MessageHeader::RecordBatch);
        message.add_bodyLength(self.body as i64);
        message.add_header(batch.as_union_value());
        let message = message.finish();
        builder.finish(message, None);
        self.header.clear();
        self.header.extend_from_slice(builder.finished_data());
    }
}

fn same_type(a: &Layout, b: &Layout) -> bool {
    let form = |column: &ColumnLayout| (column.dtype, column.cells.form());
    let pairs = a.columns.iter().zip(&b.columns);
    a.columns.len() == b.columns.len() && pairs.into_iter().all(|(a, b)| a.name == b.name && form(a) == form(b))
}

fn framed(message: &[u8]) -> usize {
    (PREFIX + message.len()).next_multiple_of(ALIGNMENT)
}

fn write_framed(out: &mut [u8], message: &[u8]) {
    let length = (out.len() - PREFIX) as i32;
    out[..4].copy_from_slice(&CONTINUATION);
    out[4..PREFIX].copy_from_slice(&length.to_le_bytes());
    out[PREFIX..PREFIX + message.len()].copy_from_slice(message);
    out[PREFIX + message.len()..].fill(0);
}

fn schema_message(layout: &Layout) -> Result<Vec<u8>, String> {
    let schema = Schema::new(vec![Field::new("data", data_type(layout), true)]);
    let options = IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5).map_err(|error| error.to_string())?;
    let mut dictionaries = DictionaryTracker::new(false);
    Ok(IpcDataGenerator {}
        .schema_to_bytes_with_dictionary_tracker(&schema, &mut dictionaries, &options)
        .ipc_message)
}

/// Returns the Arrow type of a payload.
fn data_type(layout: &Layout) -> DataType {
    let column_type = |column: &ColumnLayout| column.cells.arrow_type(column.dtype, false);
    if layout.is_flat() {
        return column_type(&layout.columns[0]);
    }
    let field = |column: &ColumnLayout| Field::new(column.name.as_ref(), column_type(column), false);
    DataType::Struct(layout.columns.iter().map(field).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dora_node_api::arrow_utils::decode_arrow_ipc;
    use robocache_device::{Dtype, HostBuf};
    use robocache_stream::{ColumnLayout, Message};

    fn round_trip(framing: &mut Framing, layout: &Layout, fill: impl FnOnce(&mut Payload<'_>)) -> Message {
        let mut sample = HostBuf::default();
        sample.resize(framing.prepare(layout).unwrap());
        sample.bytes_mut().fill(0xaa);
        fill(&mut framing.write(sample.bytes_mut()));
        let array = decode_arrow_ipc(sample.bytes()).unwrap();
        let mut message = Message::default();
        message.read([], array.as_array()).unwrap();
        message
    }

    #[test]
    fn a_flat_payload_decodes_to_what_was_written_in_place() {
        let mut framing = Framing::default();
        for len in [0usize, 1, 17, 1000] {
            let message = round_trip(&mut framing, &Layout::flat(Dtype::Float32, len), |payload| {
                for (i, value) in payload.column::<f32>(0).iter_mut().enumerate() {
                    *value = i as f32;
                }
            });
            let expected: Vec<f32> = (0..len).map(|i| i as f32).collect();
            assert_eq!(message.flat().unwrap().as_slice::<f32>(), expected);
        }
        let half = round_trip(&mut framing, &Layout::flat(Dtype::Float16, 3), |payload| {
            payload.column(0).fill(half::f16::from_bits(7))
        });
        assert_eq!(half.flat().unwrap().dtype(), Dtype::Float16);
    }

    #[test]
    fn a_struct_of_any_number_of_columns_decodes_with_zeros_between_them() {
        for columns in [1usize, 32, 33, 1000] {
            let column = |i: usize| ColumnLayout {
                name: format!("c{i}").into(),
                dtype: [Dtype::UInt8, Dtype::Float64, Dtype::Float32][i % 3],
                cells: Cells::One,
            };
            let layout = Layout {
                rows: 3,
                columns: (0..columns).map(column).collect(),
            };
            let mut framing = Framing::default();
            let mut sample = HostBuf::default();
            sample.resize(framing.prepare(&layout).unwrap());
            sample.bytes_mut().fill(0xaa);
            let mut payload = framing.write(sample.bytes_mut());
            for i in 0..columns {
                payload.column::<u8>(i).fill(i as u8);
            }
            let body = &sample.bytes()[framed(&framing.schema) + framed(&framing.header)..][..framing.body];
            let filled: usize = (0..columns)
                .filter(|i| i % 256 != 0)
                .map(|i| framing.columns[i].data.len())
                .sum();
            assert_eq!(body.iter().filter(|&&byte| byte != 0).count(), filled);
            let array = decode_arrow_ipc(sample.bytes()).unwrap();
            let mut message = Message::default();
            message.read([], array.as_array()).unwrap();
            assert_eq!(message.columns().len(), columns);
            for (i, column) in message.columns().iter().enumerate() {
                assert_eq!(column.name, format!("c{i}"));
                assert!(column.data.bytes().iter().all(|&byte| byte == i as u8));
            }
        }
    }

    #[test]
    fn structs_of_fixed_ragged_and_text_columns_decode() {
        let mut framing = Framing::default();
        let layout = |rows, ragged| Layout {
            rows,
            columns: vec![
                ColumnLayout {
                    name: "coords".into(),
                    dtype: Dtype::Int32,
                    cells: Cells::Fixed(3),
                },
                ColumnLayout {
                    name: "values".into(),
                    dtype: Dtype::Float64,
                    cells: Cells::Ragged(ragged),
                },
                ColumnLayout {
                    name: "label".into(),
                    dtype: Dtype::UInt8,
                    cells: Cells::Text(3 * rows),
                },
                ColumnLayout {
                    name: "ring".into(),
                    dtype: Dtype::UInt16,
                    cells: Cells::One,
                },
            ],
        };
        for rows in [0usize, 2, 5] {
            let message = round_trip(&mut framing, &layout(rows, rows * 2), |payload| {
                payload.column::<i32>(0).fill(-4);
                payload.column::<f64>(1).fill(0.5);
                for (i, offset) in payload.offsets(1).iter_mut().enumerate() {
                    *offset = 2 * i as i32;
                }
                payload.column::<u8>(2).copy_from_slice("zü".repeat(rows).as_bytes());
                for (i, offset) in payload.offsets(2).iter_mut().enumerate() {
                    *offset = 3 * i as i32;
                }
                payload.column::<u16>(3).fill(9);
            });
            assert_eq!(message.rows, rows);
            assert_eq!(message.columns()[0].values().as_slice::<i32>(), vec![-4; 3 * rows]);
            assert_eq!(message.columns()[1].values().as_slice::<f64>(), vec![0.5; 2 * rows]);
            assert_eq!(message.columns()[1].offsets.len(), rows + 1);
            let texts: Vec<_> = message.columns()[2].texts().unwrap().collect();
            assert_eq!(texts, vec!["zü"; rows]);
            assert_eq!(message.columns()[3].values().as_slice::<u16>(), vec![9; rows]);
        }
    }
}
