//! Random access to the messages of one stream of a recording.
//!
//! The file offset of every batch and the times of every message stay in memory. Payloads are in memory for at most one batch.

use super::reader::StreamFiles;
use super::{ReadError, files};
use crate::Message;
use std::path::Path;

/// One stream of a recording, whose messages can be read in any order.
///
/// Opening a stream reads the positions and times of all messages. The elements of long batches stay in the file until their
/// message is read. Messages that are appended to the file after the opening are not seen. If the file was cut off, reading a
/// lost message is an error.
///
/// If a recorder was restarted, its further files belong to the stream. As with [`Reader`](super::Reader), a file without a
/// valid footer is read up to its last whole batch.
pub struct Indexed {
    stream: StreamFiles,
    /// Position of each batch that has a row: index of its file, offset in that file (bytes), and index of its first message in
    /// the stream.
    batches: Vec<(usize, u64, usize)>,
    /// Index in `batches` of the batch that `stream` holds in memory; `None` before the first read, and after an error.
    current: Option<usize>,
    timestamps_ns: Vec<i64>,
    arrivals_ns: Vec<i64>,
    samples: usize,
}

impl Indexed {
    /// Opens the stream whose first file is `file`, `<folder>/<stream>.arrow`. Further files of a restarted recorder are
    /// opened, too.
    ///
    /// # Errors
    /// If a file is not one of a recording, is damaged, or has no valid footer.
    pub fn open(file: impl AsRef<Path>) -> Result<Self, ReadError> {
        let (indexed, problems) = Self::open_readable(file)?;
        problems.into_iter().next().map_or(Ok(indexed), Err)
    }

    /// Opens a stream as far as it can be read, and returns an error for each part that can't be read.
    ///
    /// # Errors
    /// If no file of the stream can be opened.
    pub fn open_readable(file: impl AsRef<Path>) -> Result<(Self, Vec<ReadError>), ReadError> {
        let file = file.as_ref();
        let files = files::beside(file).map_err(ReadError::io(file))?;
        let (stream, mut problems) = StreamFiles::open("", files, true);
        let Some(mut stream) = stream else {
            return Err(problems.swap_remove(0));
        };
        let (mut batches, mut timestamps_ns, mut arrivals_ns, mut samples) = (Vec::new(), Vec::new(), Vec::new(), 0);
        loop {
            if let Some(error) = stream.failed.take() {
                problems.push(error);
            } else if let Some((plan, batch)) = stream.current_batch() {
                batches.push((stream.at_file, stream.batch_at, timestamps_ns.len()));
                timestamps_ns.extend_from_slice(plan.timestamps(batch).values());
                arrivals_ns.extend(plan.arrivals(batch).into_iter().flat_map(|arrivals| arrivals.values()));
                samples += plan.samples(batch);
            } else {
                break;
            }
            stream.failed = stream.next_batch().err();
        }
        let indexed = Self {
            stream,
            batches,
            current: None,
            timestamps_ns,
            arrivals_ns,
            samples,
        };
        Ok((indexed, problems))
    }

    /// The capture time of each message, ns, in the order in which the messages were recorded.
    pub fn timestamps_ns(&self) -> &[i64] {
        &self.timestamps_ns
    }

    /// The arrival time of each message at the recorder, ns, in the order in which the messages were recorded. `None` if a file
    /// lacks arrival times.
    pub fn arrivals_ns(&self) -> Option<&[i64]> {
        (self.arrivals_ns.len() == self.timestamps_ns.len()).then_some(&self.arrivals_ns)
    }

    /// The number of samples of all messages, masked samples included.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Reads the message of this index, in the order in which the messages were recorded, into `message`.
    ///
    /// # Errors
    /// If the file has changed since it was opened, or can't be read.
    ///
    /// # Panics
    /// If `index` is not below the number of messages.
    pub fn read(&mut self, index: usize, message: &mut Message) -> Result<(), ReadError> {
        let count = self.timestamps_ns.len();
        assert!(index < count, "message {index} of {count}");
        let batch = self.batches.partition_point(|&(.., first)| first <= index) - 1;
        let (file, at, first) = self.batches[batch];
        if self.current != Some(batch) {
            self.current = None;
            self.stream.go_to(file, at)?;
            self.current = Some(batch);
        }
        self.stream.read_row(index - first, message)?;
        match message.timestamp_ns() == self.timestamps_ns[index] {
            true => Ok(()),
            false => Err(self.stream.changed("written over")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Reader, Writer};
    use crate::{Cells, Column, Layout};
    use robocache_device::Dtype;
    use std::fs;
    use std::time::{Duration, Instant};

    /// Records a stream `a` of `count` messages in batches of four; message i has i + 1 values i. Returns the folder.
    fn recorded(name: &str, count: usize) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("robocache-indexed-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let mut writer = Writer::create(&folder).unwrap();
        let (start, mut message) = (Instant::now(), Message::default());
        for i in 0..count {
            message.write(&Layout::flat(Dtype::Float32, i + 1), |payload, header| {
                let values: &mut [f32] = payload.column(0);
                values.fill(i as f32);
                header.timestamp_ns.set(10 * i as i64);
            });
            let now = start + Duration::from_secs((i / 4) as u64);
            writer.tick(now).unwrap();
            writer.append("a", &message, now).unwrap();
        }
        writer.finish().unwrap();
        folder
    }

    /// Formats the stamp of a message, and the name, the bytes and the offsets of each column.
    fn content(message: &Message) -> String {
        let of = |column: &Column| format!("{} {:?} {:?}", column.name, column.data.bytes(), column.offsets);
        let columns: Vec<String> = message.columns().iter().map(of).collect();
        format!("{} {}", message.timestamp_ns(), columns.join("; "))
    }

    #[test]
    fn messages_are_read_in_any_order() {
        let folder = recorded("order", 21);
        let mut indexed = Indexed::open(folder.join("a.arrow")).unwrap();
        assert_eq!(indexed.timestamps_ns(), (0..21).map(|i| 10 * i).collect::<Vec<i64>>());
        assert_eq!(indexed.samples(), 21);
        assert!(indexed.batches.len() > 1);
        let mut message = Message::default();
        for i in [20, 0, 3, 4, 19, 19, 7] {
            indexed.read(i, &mut message).unwrap();
            assert_eq!(message.timestamp_ns(), 10 * i as i64);
            let values = message.flat().unwrap();
            assert_eq!((values.len(), values.dtype()), (i + 1, Dtype::Float32));
            assert_eq!(values.bytes(), bytemuck::cast_slice::<f32, u8>(&vec![i as f32; i + 1]));
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn elements_that_stay_in_the_file_are_those_of_a_reader_and_a_file_cut_off_meanwhile_is_an_error() {
        let folder = std::env::temp_dir().join(format!("robocache-indexed-left-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let mut writer = Writer::create(&folder).unwrap();
        let (start, mut message) = (Instant::now(), Message::default());
        for i in 0..20 {
            // Points, each with a name, a list and a pair: 40 kB a message, three messages a batch.
            let points = 1500 + i;
            message.clear();
            message.rows = points;
            message.header.timestamp_ns.set(i as i64);
            for (name, dtype, cells) in [
                ("x", Dtype::Float64, Cells::One),
                ("label", Dtype::UInt8, Cells::Text(6 * points)),
                ("hits", Dtype::Int16, Cells::Ragged(2 * points)),
                ("uv", Dtype::Float32, Cells::Fixed(2)),
            ] {
                let column = message.add_column(name, dtype, cells);
                let (len, per_row) = match cells {
                    Cells::One => (points, 0),
                    Cells::Fixed(n) => (n * points, 0),
                    Cells::Ragged(len) | Cells::Text(len) => (len, (len / points) as i32),
                };
                let bytes: Vec<u8> = (0..len * dtype.size()).map(|at| b'a' + ((at + i) % 26) as u8).collect();
                column.data.copy_from(&bytes);
                if per_row > 0 {
                    column.offsets.extend((0..=points as i32).map(|row| row * per_row));
                }
            }
            let now = start + Duration::from_secs((i / 3) as u64);
            writer.tick(now).unwrap();
            writer.append("a", &message, now).unwrap();
        }
        writer.finish().unwrap();
        let file = folder.join("a.arrow");
        let (mut indexed, mut reader) = (Indexed::open(&file).unwrap(), Reader::open(&folder).unwrap());
        let mut expected = Vec::new();
        while reader.next_into(&mut message).unwrap().is_some() {
            expected.push(content(&message));
        }
        assert_eq!(expected.len(), 20);
        for i in [19, 0, 1, 7, 8, 2, 13, 13] {
            indexed.read(i, &mut message).unwrap();
            assert!(content(&message) == expected[i], "{i}");
        }
        let whole = fs::metadata(&file).unwrap().len();
        for share in (0..40).rev() {
            fs::File::options()
                .write(true)
                .open(&file)
                .unwrap()
                .set_len(whole * share / 40)
                .unwrap();
            let read: Vec<bool> = (0..20)
                .map(|i| match indexed.read(i, &mut message) {
                    Ok(()) => content(&message) == expected[i],
                    Err(error) => !error.to_string().contains("a.arrow"),
                })
                .collect();
            let is_there = read.iter().take_while(|&&read| read).count();
            assert!(is_there <= (20 * share as usize).div_ceil(40), "{share}: {read:?}");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_that_was_cut_off_ends_with_its_last_whole_batch() {
        let folder = recorded("cut", 21);
        let file = folder.join("a.arrow");
        let whole = fs::read(&file).unwrap();
        let mut counts = Vec::new();
        for len in (0..whole.len()).step_by(97) {
            fs::write(&file, &whole[..len]).unwrap();
            let (mut indexed, problems) = Indexed::open_readable(&file).unwrap();
            let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
            assert!(
                told.len() == 1 && told[0].contains("a.arrow: no valid footer"),
                "{told:?}"
            );
            assert!(Indexed::open(&file).is_err());
            let count = indexed.timestamps_ns().len();
            if let Some(last) = count.checked_sub(1) {
                indexed.read(last, &mut Message::default()).unwrap();
            }
            counts.push(count);
        }
        assert!(
            counts.is_sorted() && counts.contains(&4) && counts.contains(&20),
            "{counts:?}"
        );
        fs::remove_dir_all(folder).unwrap();
    }
}
