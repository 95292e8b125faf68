//! MCAP files: messages are read back byte for byte, and damage is reported.

use crate::common::random::Random;
use crate::common::{Folder, read_all};
use robocache::formats::mcap::{Reader, Writer};
use robocache::ops::{self, clock};
use robocache::prelude::*;
use robocache::stream::form;
use std::fs;
use std::path::Path;
use std::time::Instant;

fn flat<T: bytemuck::Pod>(dtype: Dtype, values: &[T], head: impl FnOnce(&mut Header)) -> Message {
    let mut message = Message::default();
    let columns = message.lay_out(&Layout::flat(dtype, values.len()));
    columns[0].data.copy_from(bytemuck::cast_slice(values));
    head(&mut message.header);
    message
}

fn table(rows: usize, columns: &[(&'static str, Dtype, Cells)], stamp_ns: i64) -> Message {
    let column = |&(name, dtype, cells): &(&'static str, Dtype, Cells)| ColumnLayout {
        name: name.into(),
        dtype,
        cells,
    };
    let layout = Layout {
        rows,
        columns: columns.iter().map(column).collect(),
    };
    let mut message = Message::default();
    message.header.timestamp_ns.set(stamp_ns);
    for column in message.lay_out(&layout) {
        let bytes = column.data.bytes_mut();
        bytes
            .iter_mut()
            .enumerate()
            .for_each(|(i, byte)| *byte = (i * 37 % 64) as u8);
        if let Cells::Ragged(total) | Cells::Text(total) = column.cells {
            for (row, offset) in column.offsets.iter_mut().enumerate() {
                *offset = (total * row / rows) as i32;
            }
        }
    }
    message
}

/// Makes messages of every form, each with the name of its stream. Within some streams the metadata differ.
fn streams() -> Vec<(&'static str, Message)> {
    let mut all: Vec<(&str, Message)> = Vec::new();
    for i in 0..5i64 {
        let stamp_ns = 1_700_000_000_123_456_789 + i * 10_000_000;
        all.push((
            "joints",
            flat(Dtype::Float32, &[0.1f32, i as f32, f32::NAN], |header| {
                header.timestamp_ns.set(stamp_ns);
                header.fields.set(["elbow", "wrist", "gripper"]);
            }),
        ));
        all.push((
            "pose",
            flat(Dtype::Float64, &[1.0, -0.0, 1e300, 0.0, 0.0, 0.0, 1.0f64], |header| {
                header.timestamp_ns.set(stamp_ns);
                header.frame_id.set("map");
                header.fields.set(["x", "y", "z", "qx", "qy", "qz", "qw"]);
                // Metadata that a clock adds to each message.
                clock::key::clock_offset_ns.set(header, i * 3);
                if i == 2 {
                    clock::key::clock_skew_ppm.set(header, f64::NAN);
                }
            }),
        ));
        all.push((
            "force",
            flat(Dtype::Float32, &[i as f32; 6], |header| {
                header.timestamp_ns.set(stamp_ns)
            }),
        ));
        all.push((
            "features",
            flat(Dtype::BFloat16, &[0x3f80u16, 0x7fc1, 0xff81], |header| {
                header.timestamp_ns.set(stamp_ns);
                header.dtype.set("bfloat16");
            }),
        ));
        all.push((
            "batch",
            flat(Dtype::Int64, &[i64::MIN, i64::MAX, 0, i], |header| {
                header.timestamp_ns.set(stamp_ns);
                header.timestamps_ns.set([stamp_ns - 1, stamp_ns]);
                header.shape.set([2, 2]);
                header.valid.set([1, i % 2]);
            }),
        ));
        all.push((
            "points",
            flat(
                Dtype::Float32,
                &[1.0f32, 2.0, 3.0, 0.5, 4.0, 5.0, 6.0, f32::INFINITY],
                |header| {
                    header.timestamp_ns.set(stamp_ns);
                    header.shape.set([2, 4]);
                    header.fields.set(["x", "y", "z", "intensity"]);
                },
            ),
        ));
        let cloud = [
            ("x", Dtype::Float32),
            ("y", Dtype::Float32),
            ("z", Dtype::Float64),
            ("ring", Dtype::UInt8),
            ("time", Dtype::Float32),
        ];
        all.push((
            "lidar.front",
            table(
                i as usize * 3,
                &cloud.map(|(name, dtype)| (name, dtype, Cells::One)),
                stamp_ns,
            ),
        ));
        let mut voxels = table(
            4,
            &[
                ("coords", Dtype::Int32, Cells::Fixed(3)),
                ("features", Dtype::Float32, Cells::Fixed(2)),
            ],
            stamp_ns,
        );
        form::channels.set(&mut voxels.header, ["occupancy", "count"]);
        form::grid_shape.set(&mut voxels.header, [64, 64, 64]);
        form::origin_m.set(&mut voxels.header, [-1.0, 0.0, 0.5]);
        form::voxel_size_m.set(&mut voxels.header, [0.1, 0.1, 0.1]);
        ops::key::compute_us.set(&mut voxels.header, 0.25 * i as f64);
        all.push(("voxels", voxels));
        all.push((
            "bits",
            flat(Dtype::UInt8, &[7u8, 0, i as u8], |header| {
                header.timestamp_ns.set(stamp_ns);
                header.shape.set([2, 3, 4]);
                form::grid_shape.set(header, [2, 3, 4]);
            }),
        ));
        let ragged = [
            ("values", Dtype::Float16, Cells::Ragged(7)),
            ("data.x", Dtype::UInt64, Cells::One),
            ("why", Dtype::UInt8, Cells::Text(20)),
        ];
        all.push(("ragged", table(3, &ragged, stamp_ns)));
        // Stamps before 1970, past what a stamp of ROS holds, and zero.
        let odd = [-1, i64::MAX, 0, 5_000_000_000, i64::MIN][i as usize];
        all.push((
            "odd",
            flat(Dtype::Float64, &[1.0f64], |header| {
                header.timestamp_ns.set(odd);
                header.fields.set(["only"]);
            }),
        ));
    }
    for (i, (_, message)) in all.iter_mut().enumerate() {
        message.arrival_ns = Some(1_700_000_000_500_000_000 + i as i64);
    }
    all
}

fn record(folder: &Path, messages: impl IntoIterator<Item = (String, Message)>) {
    let mut writer = recording::Writer::create(folder).unwrap().with_arrivals_of_messages();
    let now = Instant::now();
    for (stream, message) in messages {
        writer.append(&stream, &message, now).unwrap();
    }
    writer.finish().unwrap();
}

fn write_mcap(path: &Path, recording: &Path) {
    let reader = recording::Reader::open(recording).unwrap();
    let order = reader.own_order();
    let mut reader = reader.in_order(order).unwrap();
    let names: Vec<String> = reader.streams().map(str::to_owned).collect();
    let mut writer = Writer::create(path).unwrap();
    let mut message = Message::default();
    while let Some(stream) = reader.next_into(&mut message).unwrap() {
        writer.append(&names[stream], &message).unwrap();
    }
    writer.finish().unwrap();
}

fn read_mcap(path: &Path) -> Vec<(String, Message)> {
    let mut reader = Reader::open(path).unwrap();
    let mut all = Vec::new();
    let mut message = Message::default();
    while let Some(stream) = reader.next_into(&mut message).unwrap() {
        let mut copy = Message::default();
        copy.copy_from(&message);
        all.push((reader.stream(stream).to_owned(), copy));
    }
    assert_eq!(reader.left_out(), [""; 0]);
    all
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<_> = entries
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                fs::read(entry.path()).unwrap(),
            )
        })
        .collect();
    files.sort();
    files
}

#[test]
fn a_recording_comes_back_byte_for_byte() {
    let folder = Folder::in_memory();
    let [first, second, bag, again] = ["first", "second", "one.mcap", "two.mcap"].map(|name| folder.0.join(name));
    record(
        &first,
        streams().into_iter().map(|(name, message)| (name.to_owned(), message)),
    );
    write_mcap(&bag, &first);
    record(&second, read_mcap(&bag));
    for ((name, was), (_, is)) in files(&first).into_iter().zip(files(&second)) {
        assert!(was == is, "{name}");
    }
    assert_eq!(files(&first).len(), files(&second).len());
    write_mcap(&again, &second);
    assert!(fs::read(&bag).unwrap() == fs::read(&again).unwrap());
}

#[test]
fn times_of_arrival_are_there_only_where_they_were() {
    let folder = Folder::in_memory();
    let [first, second, bag] = ["first", "second", "one.mcap"].map(|name| folder.0.join(name));
    let messages = streams().into_iter().map(|(name, mut message)| {
        message.arrival_ns = None;
        (name.to_owned(), message)
    });
    record(&first, messages);
    write_mcap(&bag, &first);
    record(&second, read_mcap(&bag));
    assert!(files(&first) == files(&second));
}

/// Lists the records of an MCAP file: the opcode of each, and the byte range of its body.
fn records(bytes: &[u8]) -> Vec<(u8, std::ops::Range<usize>)> {
    let (mut at, mut found) = (8, Vec::new());
    while at + 9 <= bytes.len() - 8 {
        let length = u64::from_le_bytes(bytes[at + 1..at + 9].try_into().unwrap()) as usize;
        found.push((bytes[at], at + 9..at + 9 + length));
        at += 9 + length;
    }
    found
}

const CHUNK: u8 = 6;
/// Offset of the CRC in the body of a chunk record, bytes.
const CRC: usize = 24;
/// Offset of the compression's name in the body of a chunk record, bytes.
const COMPRESSION: usize = 28;

/// Returns the header and the chunks of a file, each chunk compressed by `with`, the compression called `name`. The end of the
/// file is left out.
fn compress(bytes: &[u8], name: &str, with: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut out = bytes[..8].to_vec();
    for (op, body) in records(bytes) {
        let body = &bytes[body];
        let mut new = body.to_vec();
        if op == CHUNK {
            let compressed = with(&body[COMPRESSION + 4 + 8..]);
            new.truncate(COMPRESSION);
            new.extend((name.len() as u32).to_le_bytes());
            new.extend(name.as_bytes());
            new.extend((compressed.len() as u64).to_le_bytes());
            new.extend(compressed);
        }
        if op == 1 || op == CHUNK {
            out.push(op);
            out.extend((new.len() as u64).to_le_bytes());
            out.extend(new);
        }
    }
    out
}

fn lz4(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// Reads a damaged file. Returns the number of messages that can be read, and the reader's errors.
fn read_broken(path: &Path) -> (usize, Vec<String>) {
    let mut reader = match Reader::open(path) {
        Ok(reader) => reader,
        Err(error) => return (0, vec![error.to_string()]),
    };
    let (messages, mut problems) = read_all(|message| reader.next_into(message), |_, _| ());
    problems.extend(reader.broken());
    problems.extend(reader.left_out());
    (messages.len(), problems)
}

/// Writes a file of several chunks. Returns its bytes, and the number of its messages.
fn large(folder: &Folder) -> (Vec<u8>, usize) {
    let path = folder.0.join("large.mcap");
    let mut writer = Writer::create(&path).unwrap();
    let values: Vec<f32> = (0..30_000).map(|i| i as f32).collect();
    for i in 0..60 {
        let message = flat(Dtype::Float32, &values, |header| header.timestamp_ns.set(i));
        writer.append("tensor", &message).unwrap();
    }
    writer.finish().unwrap();
    (fs::read(&path).unwrap(), 60)
}

#[test]
fn what_is_whole_of_a_broken_file_is_read() {
    let folder = Folder::in_memory();
    let (whole, messages) = large(&folder);
    let path = folder.0.join("broken.mcap");
    let chunks: Vec<_> = records(&whole)
        .into_iter()
        .filter(|(op, _)| *op == CHUNK)
        .map(|(_, body)| body)
        .collect();
    assert!(chunks.len() > 5);
    let in_chunk = messages / chunks.len() + 1;
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        read_broken(&path)
    };
    assert_eq!(read(&whole), (messages, Vec::new()));

    // Cut in the middle of the third chunk: the whole messages before the cut are read.
    let (came, problems) = read(&whole[..chunks[2].start + chunks[2].len() / 2]);
    assert!(came > 2 * (in_chunk - 1) && came < 3 * in_chunk, "{came}");
    assert!(
        problems[0].contains("a chunk of") && problems[0].contains("that is cut"),
        "{problems:?}"
    );

    // A wrong bit in the second chunk: the chunk is left out, the others are read.
    let mut broken = whole.clone();
    broken[chunks[1].end - 100] ^= 1;
    let (came, problems) = read(&broken);
    assert!(came >= messages - in_chunk && came < messages, "{came}");
    let words = format!(
        "damaged at byte {}: a chunk whose bytes have the CRC",
        chunks[1].start - 9
    );
    assert!(problems.len() == 1 && problems[0].contains(&words), "{problems:?}");

    // A wrong length of the second chunk: its messages are read, and reading goes on at the next chunk that the end names.
    let mut broken = whole.clone();
    broken[chunks[1].start - 9 + 7] = 0xff;
    let (came, problems) = read(&broken);
    assert_eq!(came, messages);
    assert!(
        problems
            .iter()
            .any(|line| line.contains(&format!("going on at byte {}", chunks[2].start - 9))),
        "{problems:?}"
    );

    // An unknown compression, and no end of the file.
    let (came, problems) = read(&compress(&whole, "xz", <[u8]>::to_vec));
    assert_eq!((came, problems.len()), (0, chunks.len() + 1));
    assert!(
        problems[0].contains("a chunk compressed with `xz` (allowed: lz4, zstd, or none); it is left out"),
        "{problems:?}"
    );
    assert!(
        problems.last().unwrap().contains("the file ends without a footer"),
        "{problems:?}"
    );

    // A wrong kind of record for the second chunk: the end of the file tells that a chunk is there.
    for kind in [0x07, 0x0f, 0x20] {
        let mut broken = whole.clone();
        broken[chunks[1].start - 9] = kind;
        let (came, problems) = read(&broken);
        assert!(came >= messages - in_chunk && came < messages, "{kind}: {came}");
        assert!(
            problems.len() == 1 && problems[0].contains(&format!("damaged at byte {}", chunks[1].start - 9)),
            "{problems:?}"
        );
    }

    // A wrong kind of record for a message, in a chunk without a CRC: two kinds that a chunk can't hold, and one that an
    // application may use. The end of the file tells the number of messages.
    for (kind, words) in [
        (0x06, "a record of kind 0x06 within a chunk (allowed: "),
        (0x07, "a record of kind 0x07 within a chunk (allowed: "),
        (0x80, "59 messages were read, and the file says that it has 60"),
    ] {
        let mut broken = whole.clone();
        broken[chunks[1].start + CRC..chunks[1].start + CRC + 4].fill(0);
        broken[chunks[1].start + COMPRESSION + 4 + 8] = kind;
        let (came, problems) = read(&broken);
        assert_eq!(came, messages - 1);
        assert!(problems.len() == 1 && problems[0].contains(words), "{problems:?}");
    }

    // Without the first chunk, only the end of the file describes the channels of the others.
    let mut broken = whole.clone();
    broken[chunks[0].end - 100] ^= 1;
    assert!(read(&broken).0 > 0);
    let footer = whole.len() - 8 - 20;
    broken[footer..footer + 8].fill(0);
    let (came, problems) = read(&broken);
    assert_eq!(came, 0);
    assert!(
        problems[1].contains("messages are of channels that the file does not describe"),
        "{problems:?}"
    );

    for (bytes, words) in [
        (&b""[..], "not a file of a bag"),
        (b"not a bag, but a text", "not a file of a bag"),
        (&whole[..8], "without a footer"),
    ] {
        let (came, problems) = read(bytes);
        assert!(came == 0 && problems[0].contains(words), "{problems:?}");
    }
}

/// The reader finds the end section of a file although the footer gives a wrong offset for it.
#[test]
fn what_a_file_says_of_itself_is_compared_with_what_is_read() {
    let folder = Folder::in_memory();
    let (mut whole, messages) = large(&folder);
    let path = folder.0.join("compared.mcap");
    let all = records(&whole);
    let chunk = all.iter().filter(|(op, _)| *op == CHUNK).nth(1).unwrap().1.clone();
    let chunk = chunk.start - 9..chunk.end;
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        read_broken(&path)
    };
    // Compares with and without a CRC of the end.
    for has_crc in [true, false] {
        if !has_crc {
            let behind = whole.len() - 8;
            whole[behind - 4..behind].fill(0);
        }
        assert_eq!(read(&whole), (messages, Vec::new()));
        let without = [&whole[..chunk.start], &whole[chunk.end..]].concat();
        let twice = [&whole[..chunk.end], &whole[chunk.start..]].concat();
        for (bytes, is_more) in [(without, false), (twice, true)] {
            let (came, problems) = read(&bytes);
            assert!(came != messages && (came > messages) == is_more, "{came}");
            let words = format!("{came} messages were read, and the file says that it has {messages}");
            assert!(problems.len() == 1 && problems[0].ends_with(&words), "{problems:?}");
        }
        let (came, problems) = read(&[&whole[..], &whole[..]].concat());
        let words = format!("damaged at byte {0}: {0} bytes behind the end", whole.len());
        assert!(
            came == messages && problems.len() == 1 && problems[0].contains(&words),
            "{problems:?}"
        );
        let (came, problems) = read(&whole[..whole.len() - 1]);
        let words = "the closing bytes are missing behind the footer";
        assert!(
            came == messages && problems.len() == 1 && problems[0].ends_with(words),
            "{problems:?}"
        );
    }
}

/// A message of 1 GB can be only 33 kB in a file that is compressed by zstd.
#[test]
fn what_is_too_large_is_refused_by_name_and_the_rest_comes() {
    let folder = Folder::in_memory();
    let (whole, messages) = large(&folder);
    let path = folder.0.join("too-large.mcap");
    let chunks: Vec<_> = records(&whole).into_iter().filter(|(op, _)| *op == CHUNK).collect();
    let in_chunk = messages / chunks.len() + 1;

    // A chunk that gives a size over the limit, whatever it unpacks to.
    let mut bytes = whole.clone();
    let second = chunks[1].1.start;
    bytes[second + 16..second + 24].copy_from_slice(&((256u64 << 20) + 1).to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    let (came, problems) = read_broken(&path);
    assert!(came >= messages - in_chunk && came < messages, "{came}");
    let words = format!(
        "damaged at byte {}: a chunk of 268435457 bytes (allowed: 268435456); it is left out, with messages of /tensor",
        second - 9
    );
    assert!(problems.len() == 1 && problems[0].ends_with(&words), "{problems:?}");

    // A record over the limit, as a hole in the file that takes no room.
    use std::io::{Seek, SeekFrom, Write};
    let bytes = compress(&whole, "lz4", lz4);
    let behind_header = records(&bytes)[0].1.end;
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(&bytes[..behind_header]).unwrap();
    file.write_all(&[5]).unwrap();
    file.write_all(&(300u64 << 20).to_le_bytes()).unwrap();
    file.seek(SeekFrom::Current(300 << 20)).unwrap();
    file.write_all(&bytes[behind_header..]).unwrap();
    let (came, problems) = read_broken(&path);
    assert_eq!(came, messages);
    assert!(
        problems[0].contains("a record of 314572800 bytes (allowed: 268435456); it is left out"),
        "{problems:?}"
    );
}

/// Metadata that differ from those of the stream's first message are in a record before their message. If that message is
/// refused, the next message must not get its metadata.
#[test]
fn a_message_that_is_too_large_leaves_no_metadata_to_the_next_one() {
    let folder = Folder::in_memory();
    let path = folder.0.join("refused.mcap");
    let cloud = |points: usize, frame_id: &str| {
        let column = |name| (name, Dtype::Float32, Cells::One);
        let mut message = table(points, &["x", "y", "z"].map(column), 1_700_000_000_000_000_000);
        message.header.frame_id.set(frame_id);
        message
    };
    let mut writer = Writer::create(&path).unwrap();
    writer.append("lidar", &cloud(2, "front")).unwrap();
    let refused = writer
        .append("lidar", &cloud(23_000_000, "rear"))
        .unwrap_err()
        .to_string();
    assert!(refused.contains("bytes (allowed: "), "{refused}");
    writer.append("lidar", &cloud(3, "front")).unwrap();
    writer.finish().unwrap();
    let mut reader = Reader::open(&path).unwrap();
    let (came, problems) = read_all(
        |message| reader.next_into(message),
        |_, message| (message.rows, message.header.frame_id.get().map(str::to_owned)),
    );
    assert_eq!(came, [2, 3].map(|rows| (rows, Some("front".to_owned()))));
    assert_eq!(problems, [""; 0]);
}

/// A channel of a file has one type. A reader would misread a message with other columns.
#[test]
fn a_message_of_other_columns_than_the_first_is_refused() {
    let folder = Folder::in_memory();
    let path = folder.0.join("columns.mcap");
    let of = |dtype: Dtype, cells: Cells, stamp_ns: i64| table(3, &[("a", dtype, cells)], stamp_ns);
    let mut writer = Writer::create(&path).unwrap();
    writer.append("t", &of(Dtype::Float64, Cells::Fixed(2), 1)).unwrap();
    for (dtype, cells, words) in [
        (Dtype::Float32, Cells::Fixed(2), "columns `a` float32[2]"),
        (Dtype::Float64, Cells::Fixed(3), "columns `a` float64[3]"),
        (Dtype::Float64, Cells::One, "columns `a` float64 "),
    ] {
        let refused = writer.append("t", &of(dtype, cells, 2)).unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
        assert!(
            refused.contains("(allowed: those of the first message, `a` float64[2])"),
            "{refused}"
        );
    }
    writer.append("t", &of(Dtype::Float64, Cells::Fixed(2), 3)).unwrap();
    writer.finish().unwrap();
    let (came, problems) = read_broken(&path);
    assert_eq!((came, problems), (2, vec![]));
}

#[test]
fn compressed_chunks_hold_the_same() {
    let folder = Folder::in_memory();
    let (whole, messages) = large(&folder);
    let path = folder.0.join("compressed.mcap");
    for (name, with) in [("lz4", lz4 as fn(&[u8]) -> Vec<u8>), ("zstd", zstd)] {
        fs::write(&path, compress(&whole, name, with)).unwrap();
        let (came, problems) = read_broken(&path);
        assert_eq!((came, problems.len()), (messages, 1), "{name}: {problems:?}");
        // A wrong byte in the compressed data.
        let mut broken = compress(&whole, name, with);
        let chunk = records(&broken).into_iter().find(|(op, _)| *op == CHUNK).unwrap().1;
        broken[chunk.start + chunk.len() / 2] ^= 0x55;
        fs::write(&path, broken).unwrap();
        let (came, problems) = read_broken(&path);
        assert!(came < messages && problems.len() >= 2, "{name}: {problems:?}");
    }
}

/// Makes MCAP files as robocache writes them and as other programs do, without robocache's metadata, compressed and not. They
/// have no CRCs, so that damaged chunks are still read.
fn seeds(folder: &Folder) -> Vec<Vec<u8>> {
    let path = folder.0.join("seed.mcap");
    let mut writer = Writer::create(&path).unwrap();
    for (stream, message) in streams() {
        writer.append(stream, &message).unwrap();
    }
    writer.finish().unwrap();
    let mut own = fs::read(&path).unwrap();
    for (op, body) in records(&own) {
        if op == CHUNK {
            own[body.start + CRC..body.start + CRC + 4].fill(0);
        }
    }
    let mut foreign = own.clone();
    for at in 0..foreign.len() - 9 {
        if foreign[at..].starts_with(b"robocache") && !foreign[at..].starts_with(b"robocache_") {
            foreign[at] = b'x';
        }
    }
    let packed = [&own, &foreign].map(|bytes| [compress(bytes, "lz4", lz4), compress(bytes, "zstd", zstd)]);
    [own, foreign].into_iter().chain(packed.into_iter().flatten()).collect()
}

#[test]
fn no_damage_makes_it_panic() {
    let folder = Folder::in_memory();
    let path = folder.0.join("mutation.mcap");
    let seeds = seeds(&folder);
    fs::write(&path, &seeds[1]).unwrap();
    let (came, problems) = read_broken(&path);
    assert!(came > 30, "{problems:?}");
    let mut random = Random(7);
    for round in 0..10_000 {
        let mut bytes = seeds[round % seeds.len()].clone();
        for _ in 0..1 + random.below(4) {
            let at = random.below(bytes.len());
            match random.below(6) {
                0 => bytes.truncate(at.max(9)),
                1 => drop(bytes.drain(at..(at + 1 + random.below(16)).min(bytes.len()))),
                2 => bytes.insert(at, random.below(256) as u8),
                3 => bytes[at] = 0xff,
                _ => bytes[at] ^= 1 << random.below(8),
            }
        }
        fs::write(&path, bytes).unwrap();
        read_broken(&path);
    }
}
