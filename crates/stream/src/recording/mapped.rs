use super::reader::StreamFiles;
use super::{ReadError, files};
use crate::Message;
use std::path::Path;

/// One stream of a recording, whose messages can be read in any order.
///
/// Opening it looks at where the messages are, not at their elements: the file is mapped, and what no message that is read
/// has in it is never loaded. The file must not be cut off meanwhile; that it grows does no harm, and is not seen.
///
/// The files beside it in which a recorder that was started again went on belong to it. As with [`Reader`](super::Reader), a
/// file without a valid footer is read up to its last whole batch.
pub struct Mapped {
    stream: StreamFiles,
    /// The file, the position in it and the first message of each batch that has a row.
    batches: Vec<(usize, u64, usize)>,
    /// Index of the batch at which the stream is.
    current: Option<usize>,
    timestamps_ns: Vec<i64>,
    arrivals_ns: Vec<i64>,
    samples: usize,
}

impl Mapped {
    /// Opens a stream by its (first) file, `<folder>/<stream>.arrow`.
    ///
    /// # Errors
    /// Whatever can't be read: a file that is none of a recording, is damaged, or has no valid footer.
    pub fn open(file: impl AsRef<Path>) -> Result<Self, ReadError> {
        let (mapped, problems) = Self::open_readable(file)?;
        problems.into_iter().next().map_or(Ok(mapped), Err)
    }

    /// Opens what can be read of a stream, and says what can't.
    ///
    /// # Errors
    /// If none of it can be.
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
            } else if let Some((plan, batch)) = stream.at_hand() {
                batches.push((stream.at_file, stream.batch_at, timestamps_ns.len()));
                timestamps_ns.extend_from_slice(plan.timestamps(batch).values());
                arrivals_ns.extend(plan.arrivals(batch).into_iter().flat_map(|arrivals| arrivals.values()));
                samples += plan.samples(batch);
            } else {
                break;
            }
            stream.failed = stream.next_batch().err();
        }
        let mapped = Self {
            stream,
            batches,
            current: None,
            timestamps_ns,
            arrivals_ns,
            samples,
        };
        Ok((mapped, problems))
    }

    /// The `timestamp_ns` of each message, in the order in which they were recorded.
    pub fn timestamps_ns(&self) -> &[i64] {
        &self.timestamps_ns
    }

    /// Arrival of each message, in the same order; `None` if the recording does not have it.
    pub fn arrivals_ns(&self) -> Option<&[i64]> {
        (self.arrivals_ns.len() == self.timestamps_ns.len()).then_some(&self.arrivals_ns)
    }

    /// Number of samples of the messages, those that are masked among them.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Makes `message` the one of this index.
    ///
    /// # Errors
    /// The file was changed meanwhile.
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
        self.stream.read_row(index - first, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layout;
    use crate::recording::Writer;
    use robocache_device::Dtype;
    use std::fs;
    use std::time::{Duration, Instant};

    /// A folder with a stream `a` of `count` messages, message i of i + 1 values i, in batches of four.
    fn recorded(name: &str, count: usize) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("robocache-mapped-{name}-{}", std::process::id()));
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

    #[test]
    fn messages_are_read_in_any_order() {
        let folder = recorded("order", 21);
        let mut mapped = Mapped::open(folder.join("a.arrow")).unwrap();
        assert_eq!(mapped.timestamps_ns(), (0..21).map(|i| 10 * i).collect::<Vec<i64>>());
        assert_eq!(mapped.samples(), 21);
        assert!(mapped.batches.len() > 1);
        let mut message = Message::default();
        for i in [20, 0, 3, 4, 19, 19, 7] {
            mapped.read(i, &mut message).unwrap();
            assert_eq!(message.timestamp_ns(), 10 * i as i64);
            let values = message.flat().unwrap();
            assert_eq!((values.len(), values.dtype()), (i + 1, Dtype::Float32));
            assert_eq!(values.bytes(), bytemuck::cast_slice::<f32, u8>(&vec![i as f32; i + 1]));
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
            let (mut mapped, problems) = Mapped::open_readable(&file).unwrap();
            let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
            assert!(
                told.len() == 1 && told[0].contains("a.arrow: no valid footer"),
                "{told:?}"
            );
            assert!(Mapped::open(&file).is_err());
            let count = mapped.timestamps_ns().len();
            if let Some(last) = count.checked_sub(1) {
                mapped.read(last, &mut Message::default()).unwrap();
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
