//! Encoder of messages in CDR, the serialization of ROS 2. Each number is aligned to its size, counted from the end of the
//! header of four bytes.

use super::form::datatype;
use robocache_device::Dtype;
use robocache_stream::Message;

/// Encoder of one message in CDR, little-endian, which appends to `bytes`.
#[derive(Default)]
pub(super) struct Cdr {
    pub bytes: Vec<u8>,
}

impl Cdr {
    /// Header of a message in CDR: plain encoding, little-endian.
    const HEAD: [u8; 4] = [0, 1, 0, 0];

    pub(super) fn new() -> Self {
        let mut cdr = Self::default();
        cdr.clear();
        cdr
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.extend(Self::HEAD);
    }

    pub(super) fn align(&mut self, size: usize) {
        let at = (self.bytes.len() - Self::HEAD.len()).next_multiple_of(size);
        self.bytes.resize(at + Self::HEAD.len(), 0);
    }

    /// Appends the bytes of a number, aligned to its size.
    pub(super) fn put<const N: usize>(&mut self, number: &[u8; N]) {
        self.align(N);
        self.bytes.extend(number);
    }

    pub(super) fn text(&mut self, text: &str) {
        // A zero byte would end the text.
        let text = text.replace('\0', " ");
        self.put(&(text.len() as u32 + 1).to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
    }

    pub(super) fn texts(&mut self, texts: &[String]) {
        self.put(&(texts.len() as u32).to_le_bytes());
        texts.iter().for_each(|text| self.text(text));
    }

    /// Appends a sequence of numbers of `size` bytes each: its length, and then `bytes`.
    pub(super) fn list(&mut self, size: usize, bytes: &[u8]) {
        self.put(&((bytes.len() / size) as u32).to_le_bytes());
        if !bytes.is_empty() {
            self.align(size);
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Appends the `std_msgs/Header` of a message: its stamp and its coordinate frame. A stamp whose seconds are beyond int32
    /// becomes 0.
    pub(super) fn header(&mut self, message: &Message) {
        let stamp_ns = message.timestamp_ns();
        let nanosec = stamp_ns.rem_euclid(1_000_000_000) as u32;
        let sec = i32::try_from(stamp_ns.div_euclid(1_000_000_000));
        let (sec, nanosec) = sec.map_or((0, 0), |sec| (sec, nanosec));
        self.put(&sec.to_le_bytes());
        self.put(&nanosec.to_le_bytes());
        self.text(message.header.frame_id.get().unwrap_or_default());
    }

    /// Appends a PointCloud2 of `points` points, with a field for each column. `fill` appends the bytes of the points.
    pub(super) fn cloud(
        &mut self,
        message: &Message,
        columns: &[(&str, Dtype)],
        points: usize,
        fill: impl FnOnce(&mut Vec<u8>),
    ) {
        self.header(message);
        self.put(&1u32.to_le_bytes());
        self.put(&(points as u32).to_le_bytes());
        self.put(&(columns.len() as u32).to_le_bytes());
        let mut step = 0u32;
        for (name, dtype) in columns {
            self.text(name);
            self.put(&step.to_le_bytes());
            self.bytes.push(datatype(*dtype).unwrap_or(0));
            self.put(&1u32.to_le_bytes());
            step += dtype.size() as u32;
        }
        self.bytes.push(0); // little-endian
        self.put(&step.to_le_bytes());
        self.put(&(step * points as u32).to_le_bytes());
        self.put(&(step * points as u32).to_le_bytes());
        fill(&mut self.bytes);
        self.bytes.push(0); // some coordinates may be no numbers
    }
}
