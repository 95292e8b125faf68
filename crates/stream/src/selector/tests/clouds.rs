//! Tests of clouds from structs: their fields, damaged clouds, and the units and origins of the times of their points.

use super::*;
use arrow_array::{Float32Array, LargeBinaryArray, UInt8Array};
use robocache_device::Values;

/// A field of a PointCloud2: name, offset, datatype, count.
type PointField<'a> = (&'a str, u32, u8, u32);

const F32: u8 = 7;
const XYZ_F32: [PointField<'static>; 3] = [("x", 0, F32, 1), ("y", 4, F32, 1), ("z", 8, F32, 1)];

/// Contents of a PointCloud2.
#[derive(Clone)]
struct Cloud2<'a> {
    height: u32,
    width: u32,
    fields: Vec<PointField<'a>>,
    is_bigendian: bool,
    point_step: u32,
    row_step: u32,
    data: Vec<u8>,
}

impl Cloud2<'_> {
    fn array(&self) -> ArrayRef {
        let parts = |part: fn(&PointField<'_>) -> u32| -> ArrayRef {
            Arc::new(UInt32Array::from(self.fields.iter().map(part).collect::<Vec<_>>()))
        };
        let datatypes = self.fields.iter().map(|field| field.2).collect::<Vec<_>>();
        let fields = structure(vec![
            (
                "name",
                texts(&self.fields.iter().map(|field| field.0).collect::<Vec<_>>()),
            ),
            ("offset", parts(|field| field.1)),
            ("datatype", Arc::new(UInt8Array::from(datatypes))),
            ("count", parts(|field| field.3)),
        ]);
        structure(vec![
            ("header", header()),
            ("height", whole(self.height)),
            ("width", whole(self.width)),
            ("fields", list(fields)),
            ("is_bigendian", flag(self.is_bigendian)),
            ("point_step", whole(self.point_step)),
            ("row_step", whole(self.row_step)),
            ("data", list(Arc::new(UInt8Array::from(self.data.clone())))),
            ("is_dense", flag(true)),
        ])
    }
}

/// Creates a cloud of float32 points, x y z and 4 bytes of padding, in rows of equal length; each row ends with `rest` more bytes.
fn padded(rows: &[&[[f32; 3]]], rest: usize) -> Cloud2<'static> {
    let mut data = Vec::new();
    for row in rows {
        for point in *row {
            point.iter().for_each(|value| data.extend(value.to_le_bytes()));
            data.extend([0xff; 4]);
        }
        data.extend(std::iter::repeat_n(0xee, rest));
    }
    let width = rows.first().map_or(0, |row| row.len()) as u32;
    Cloud2 {
        height: rows.len() as u32,
        width,
        fields: XYZ_F32.to_vec(),
        is_bigendian: false,
        point_step: 16,
        row_step: width * 16 + rest as u32,
        data,
    }
}

fn three() -> Cloud2<'static> {
    padded(&[&[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, f32::NAN]]], 0)
}

fn selector(wanted: &[&str]) -> Selector {
    let wanted = CloudFields::Named(wanted.iter().map(|&name| name.to_owned()).collect());
    Selector::new(Selection::cloud(wanted, None))
}

fn every() -> Selector {
    Selector::new(Selection::cloud(CloudFields::All, None))
}

fn column(message: &Message, name: &str) -> Vec<f32> {
    let values: Values<'_> = message.column(name).unwrap().values();
    let mut out = vec![0.0; values.len()];
    values.to_f32(&mut out);
    out
}

fn names(message: &Message) -> Vec<&str> {
    message.columns().iter().map(|column| column.name.as_str()).collect()
}

fn refusal(cloud: &Cloud2<'_>, wanted: &[&str]) -> String {
    read(&mut selector(wanted), &cloud.array()).err().unwrap()
}

#[test]
fn a_point_cloud2_becomes_columns() {
    let mut reader = selector(&[]);
    let message = read(&mut reader, &three().array()).unwrap();
    assert_eq!(reader.take_note().unwrap(), "sensor_msgs/PointCloud2: its points");
    assert_eq!((message.rows, names(&message)), (3, vec!["x", "y", "z"]));
    assert_eq!(column(&message, "x"), [1.0, 4.0, 7.0]);
    assert_eq!(column(&message, "y"), [2.0, 5.0, 8.0]);
    let z = message.column("z").unwrap().values();
    assert!(z.as_slice::<f32>()[..2] == [3.0, 6.0] && z.as_slice::<f32>()[2].is_nan());
    assert_eq!(message.timestamp_ns(), 3 * S / 2);
    assert_eq!(message.header.frame_id.get(), Some("base"));
}

#[test]
fn rows_of_an_organised_cloud_may_have_padding() {
    let cloud = padded(&[&[[1.0; 3], [2.0; 3]], &[[3.0; 3], [4.0; 3]]], 5);
    let message = read(&mut selector(&[]), &cloud.array()).unwrap();
    assert_eq!(column(&message, "z"), [1.0, 2.0, 3.0, 4.0]);
    // The last row may end with its last point.
    let cut = Cloud2 {
        data: cloud.data[..cloud.data.len() - 5].to_vec(),
        ..cloud
    };
    let message = read(&mut selector(&[]), &cut.array()).unwrap();
    assert_eq!(column(&message, "x"), [1.0, 2.0, 3.0, 4.0]);
    // With one row, `row_step` is of no use, and some senders leave it at 0.
    let message = read(&mut selector(&[]), &Cloud2 { row_step: 0, ..three() }.array()).unwrap();
    assert_eq!(message.rows, 3);
}

#[test]
fn a_cloud_without_points_is_one() {
    for cloud in [
        padded(&[], 0),
        padded(&[&[]], 0),
        Cloud2 {
            point_step: 0,
            ..padded(&[], 0)
        },
    ] {
        let message = read(&mut selector(&[]), &cloud.array()).unwrap();
        assert_eq!((message.rows, names(&message)), (0, vec!["x", "y", "z"]));
    }
}

#[test]
fn each_datatype_is_read_where_it_stands() {
    let mut data = Vec::new();
    data.extend((-1i8).to_le_bytes());
    data.extend(200u8.to_le_bytes());
    data.extend((-300i16).to_le_bytes());
    data.extend(60_000u16.to_le_bytes());
    data.extend((-70_000i32).to_le_bytes());
    data.extend(3_000_000_000u32.to_le_bytes());
    data.extend(0.5f32.to_le_bytes());
    data.extend(0.25f64.to_le_bytes());
    let datatypes = [
        ("x", 0, 1, 1),
        ("y", 1, 2, 0),
        ("z", 2, 3, 1),
        ("a", 4, 4, 1),
        ("b", 6, 5, 1),
        ("c", 10, 6, 1),
    ];
    let mut fields = datatypes.to_vec();
    fields.extend([("d", 14, 7, 1), ("e", 18, 8, 1)]);
    let point_step = data.len() as u32;
    let cloud = Cloud2 {
        width: 1,
        fields,
        point_step,
        data,
        ..three()
    };
    let message = read(&mut every(), &cloud.array()).unwrap();
    let values: Vec<f32> = message
        .columns()
        .iter()
        .map(|column| super::clouds::column(&message, &column.name)[0])
        .collect();
    assert_eq!(values, [-1.0, 200.0, -300.0, 60_000.0, -70_000.0, 3e9, 0.5, 0.25]);
    let dtypes: Vec<String> = message
        .columns()
        .iter()
        .map(|column| column.dtype.to_string())
        .collect();
    assert_eq!(
        dtypes,
        [
            "int8", "uint8", "int16", "uint16", "int32", "uint32", "float32", "float64"
        ]
    );
}

#[test]
fn only_fields_that_are_wanted_are_taken() {
    let mut cloud = three();
    cloud.fields.extend([
        ("intensity", 12, 2, 1),
        ("ring", 13, 2, 1),
        ("normal", 12, 2, 3),
        ("label", 13, 9, 1),
        ("", 14, 2, 1),
    ]);
    assert_eq!(
        names(&read(&mut selector(&["ring"]), &cloud.array()).unwrap()),
        ["x", "y", "z", "ring"]
    );
    assert_eq!(
        names(&read(&mut every(), &cloud.array()).unwrap()),
        ["x", "y", "z", "intensity", "ring"]
    );
    assert_eq!(
        refusal(&cloud, &["velocity"]),
        "no `velocity`: `fields` has x, y, z, intensity, ring, normal, label, "
    );
    assert_eq!(
        refusal(&cloud, &["normal"]),
        "`fields[5].count` is 3 (allowed: 1, as `normal` is needed)"
    );
    assert_eq!(
        refusal(&cloud, &["label"]),
        "`fields[6].datatype` is 9 (allowed: 1 to 8, as `label` is needed)"
    );
}

#[test]
fn fields_that_change_are_looked_at_again() {
    let mut reader = selector(&[]);
    let swapped = Cloud2 {
        fields: vec![("z", 0, F32, 1), ("y", 4, F32, 1), ("x", 8, F32, 1)],
        ..three()
    };
    let broken = Cloud2 {
        fields: XYZ_F32[..2].to_vec(),
        ..three()
    };
    assert_eq!(column(&read(&mut reader, &three().array()).unwrap(), "y")[0], 2.0);
    assert_eq!(column(&read(&mut reader, &swapped.array()).unwrap(), "x")[1], 6.0);
    for _ in 0..2 {
        assert_eq!(
            read(&mut reader, &broken.array()).err().unwrap(),
            "no `z`: `fields` has x, y"
        );
    }
    assert_eq!(column(&read(&mut reader, &three().array()).unwrap(), "x")[1], 4.0);
}

#[test]
fn a_point_cloud2_that_contradicts_itself_is_refused_by_what_is_wrong() {
    let organised = || padded(&[&[[1.0; 3], [2.0; 3]], &[[3.0; 3], [4.0; 3]]], 0);
    let cases = [
        (
            Cloud2 {
                is_bigendian: true,
                ..three()
            },
            "`is_bigendian` is true (allowed: false",
        ),
        (
            Cloud2 {
                point_step: 11,
                ..three()
            },
            "`point_step` is 11 (allowed: at least 12, where field `z` ends)",
        ),
        (
            Cloud2 {
                point_step: 0,
                ..three()
            },
            "`point_step` is 0 (allowed: at least 4, where field `x` ends)",
        ),
        (
            Cloud2 {
                row_step: 31,
                ..organised()
            },
            "`row_step` is 31 (allowed: at least 32, 2 points of 16 bytes)",
        ),
        (
            Cloud2 { width: 4, ..three() },
            "`data` is 48 bytes (allowed: 64, 1 rows of 4 points of 16 bytes)",
        ),
        (
            Cloud2 {
                width: u32::MAX,
                height: u32::MAX,
                row_step: u32::MAX,
                ..three()
            },
            "`row_step` is 4294967295 (allowed: at least",
        ),
        (
            Cloud2 {
                fields: vec![],
                ..three()
            },
            "no `x`: `fields` has none",
        ),
        (
            Cloud2 {
                fields: vec![("x", u32::MAX, F32, 1), ("y", 4, F32, 1), ("z", 8, F32, 1)],
                ..three()
            },
            "`point_step` is 16",
        ),
        (
            Cloud2 {
                fields: vec![("x", 0, 0, 1), ("y", 4, F32, 1), ("z", 8, F32, 1)],
                ..three()
            },
            "`fields[0].datatype` is 0",
        ),
        (
            Cloud2 {
                fields: vec![("x", 0, F32, 3)],
                ..three()
            },
            "`fields[0].count` is 3",
        ),
    ];
    for (cloud, wanted) in cases {
        let words = refusal(&cloud, &[]);
        assert!(words.contains(wanted), "{words}\nnot {wanted}");
    }
    // Types of the struct's own fields that are wrong.
    let with = |name: &str, column: ArrayRef| {
        let cloud = three().array();
        let (fields, mut columns, _) = cloud.as_struct().clone().into_parts();
        let (at, _) = fields.find(name).unwrap();
        columns[at] = column;
        let columns = fields.iter().map(|field| field.name().as_str()).zip(columns).collect();
        read(&mut selector(&[]), &structure(columns)).map(|message| message.rows)
    };
    assert!(
        with("data", list(doubles(&[1.0])))
            .unwrap_err()
            .contains("(allowed: a list of uint8, or binary)")
    );
    assert!(
        with("fields", list(texts(&["x"])))
            .unwrap_err()
            .contains("(allowed: a list of structs of a text `name`")
    );
    assert!(
        with("width", doubles(&[3.0]))
            .unwrap_err()
            .contains("`width` is Float64 (allowed: an integer)")
    );
    assert!(
        with("width", Arc::new(Int32Array::from(vec![-1])))
            .unwrap_err()
            .contains("`width` is -1 (allowed: 0 or more)")
    );
    assert!(
        with("width", Arc::new(Int32Array::from(vec![None::<i32>])))
            .unwrap_err()
            .contains("`width` is null")
    );
    let holes: ArrayRef = Arc::new(UInt8Array::from(vec![None::<u8>; 48]));
    assert!(with("data", list(holes)).unwrap_err().contains("`data` is null"));
    // The bytes may be binary or any kind of list.
    let bytes = three().data;
    assert_eq!(with("data", Arc::new(LargeBinaryArray::from_vec(vec![&bytes]))), Ok(3));
    assert_eq!(
        with("data", fixed_list(Arc::new(UInt8Array::from(bytes.clone())))),
        Ok(3)
    );
    assert_eq!(with("data", large_list(Arc::new(UInt8Array::from(bytes)))), Ok(3));
}

#[test]
fn the_time_of_a_point_becomes_t_ns() {
    // The stamp of the header is 1.5 s.
    let cases: [(&str, u8, Vec<u8>, &str, i64); 5] = [
        ("time", 7, (-0.05f32).to_le_bytes().into(), "float64", -50_000_001),
        ("t", 6, 70_000u32.to_le_bytes().into(), "uint32", 70_000),
        ("time_stamp", 6, 80_000u32.to_le_bytes().into(), "uint32", 80_000),
        ("offset_time", 6, 90_000u32.to_le_bytes().into(), "uint32", 90_000),
        ("timestamp", 8, 1.25f64.to_le_bytes().into(), "float64", -S / 4),
    ];
    for (name, datatype, bytes, dtype, ns) in cases {
        let mut cloud = padded(&[&[[1.0; 3]]], 0);
        cloud.fields.push((name, 16, datatype, 1));
        cloud.point_step = 16 + bytes.len() as u32;
        cloud.data.extend(bytes);
        let time = |reader: &mut Selector| {
            let message = read(reader, &cloud.array()).unwrap();
            let values = message.column("t_ns").unwrap().values();
            let ns = match values.dtype() {
                Dtype::Float64 => values.as_slice::<f64>()[0] as i64,
                _ => values.as_slice::<u32>()[0].into(),
            };
            (names(&message).join(" "), values.dtype().to_string(), ns)
        };
        let wanted = |columns: &str| (columns.to_owned(), dtype.to_owned(), ns);
        assert_eq!(time(&mut every()), wanted("x y z t_ns"), "{name}");
        assert_eq!(time(&mut selector(&["t_ns"])), wanted("x y z t_ns"), "{name}");
        assert_eq!(
            time(&mut selector(&["t_ns", name])),
            wanted(&format!("x y z t_ns {name}")),
            "{name}"
        );
        // The time is not wanted.
        assert_eq!(
            names(&read(&mut selector(&[]), &cloud.array()).unwrap()),
            ["x", "y", "z"]
        );
        // In a type that times don't have, the field is like any other field.
        cloud.fields[3].2 = 4;
        assert_eq!(
            names(&read(&mut every(), &cloud.array()).unwrap()),
            ["x", "y", "z", name]
        );
    }
}

/// A cloud of this stamp, whose points have these times in a field of this type of a `PointField`.
fn sweep(stamp_ns: i64, name: &'static str, datatype: u8, times: &[f64]) -> ArrayRef {
    let mut cloud = padded(&[&vec![[1.0; 3]; times.len()]], 0);
    let size = if datatype == 8 { 8 } else { 4 };
    cloud.fields.push((name, 16, datatype, 1));
    let points = cloud.data.chunks(16).zip(times).flat_map(|(point, &time)| {
        let bytes = match datatype {
            8 => time.to_le_bytes().to_vec(),
            7 => (time as f32).to_le_bytes().to_vec(),
            6 => (time as u32).to_le_bytes().to_vec(),
            _ => (time as i32).to_le_bytes().to_vec(),
        };
        [point, &bytes].concat()
    });
    cloud.data = points.collect();
    (cloud.point_step, cloud.row_step) = (16 + size, (16 + size) * cloud.width);
    let (fields, mut columns, _) = cloud.array().as_struct().clone().into_parts();
    let (sec, nanosec) = (stamp_ns.div_euclid(S), stamp_ns.rem_euclid(S));
    columns[0] = structure(vec![
        ("stamp", stamp(sec as i32, nanosec as u32)),
        ("frame_id", texts(&[""])),
    ]);
    structure(fields.iter().map(|field| field.name().as_str()).zip(columns).collect())
}

/// Reads a cloud, and returns its `t_ns`, or the names of its columns if it has no `t_ns`. The second text is the selector's note.
fn t_ns(reader: &mut Selector, cloud: &ArrayRef) -> (Result<Vec<f64>, String>, String) {
    let message = read(reader, cloud).unwrap();
    let note = reader.take_note().unwrap_or_default();
    let Some(column) = message.column("t_ns") else {
        return (Err(names(&message).join(" ")), note);
    };
    let values = column.values();
    let ns = match values.dtype() {
        Dtype::Float64 => values.as_slice::<f64>().to_vec(),
        Dtype::Int32 => values.as_slice::<i32>().iter().copied().map(f64::from).collect(),
        _ => values.as_slice::<u32>().iter().copied().map(f64::from).collect(),
    };
    (Ok(ns), note)
}

/// Stamps of clocks that count from the start of a sensor, from the start of a simulation, or from 1970.
const STAMPS_NS: [i64; 6] = [
    0,
    300_000_000,
    5 * S,
    86_399 * S + 250_000_000,
    10_000_000 * S,
    1_700_000_000 * S + 123_456_789,
];

/// Names of a lidar and of its field of times, type of the field, unit in ns, and true if the times are absolute. The last are
/// the ns from the stamp to the first point and to the last point.
type Lidar = (&'static str, &'static str, u8, i64, bool, [i64; 2]);

/// Lidars, and the unit and origin of the times that each of them sends.
const LIDARS: [Lidar; 17] = [
    ("Velodyne", "time", 7, S, false, [0, 100_000_000]),
    ("Velodyne, stamped at its end", "time", 7, S, false, [-99_000_000, 0]),
    (
        "Velodyne, in datasets of NCLT and UrbanLoco",
        "time",
        7,
        1000,
        false,
        [0, 99_000_000],
    ),
    ("LeiShen, with float64", "time", 8, S, false, [0, 99_000_000]),
    ("Unitree L1", "time", 7, S, false, [0, 90_000_000]),
    ("Ouster", "t", 6, 1, false, [0, 99_900_000]),
    ("SICK multiScan", "t", 6, 1, false, [0, 49_000_000]),
    ("Autoware", "time_stamp", 6, 1, false, [0, 99_900_000]),
    (
        "Livox, as points of a CustomMsg",
        "offset_time",
        6,
        1,
        false,
        [0, 99_900_000],
    ),
    ("Aeva", "time_offset_ns", 5, 1, false, [-50_000_000, 49_000_000]),
    ("Blickfeld", "point_time_offset", 6, 1, false, [0, 200_000_000]),
    ("Hesai", "timestamp", 8, S, true, [0, 99_900_000]),
    (
        "Hesai, stamped when it came",
        "timestamp",
        8,
        S,
        true,
        [-120_000_000, -20_000_000],
    ),
    (
        "Robosense, stamped at its end",
        "timestamp",
        8,
        S,
        true,
        [-99_900_000, 0],
    ),
    ("Robosense, since the stamp", "timestamp", 8, S, false, [0, 99_900_000]),
    ("Livox PointXYZRTLT", "timestamp", 8, 1, true, [0, 99_900_000]),
    ("a driver in microseconds", "timestamp", 8, 1000, true, [0, 99_900_000]),
];

#[test]
fn the_times_of_every_lidar_are_t_ns() {
    for stamp_ns in STAMPS_NS {
        for (lidar, name, datatype, unit_ns, is_absolute, [from, to]) in LIDARS {
            // In the first sweeps of a clock the stamp is near 0, and the origin can't be told.
            let stamp_ns = if is_absolute == (name == "timestamp") {
                stamp_ns
            } else {
                stamp_ns.max(5 * S)
            };
            let origin = if is_absolute { stamp_ns } else { 0 };
            let wanted: Vec<f64> = (0..50).map(|i| (from + (to - from) * i / 49) as f64).collect();
            let times: Vec<f64> = wanted
                .iter()
                .map(|&ns| {
                    // The nearest float64, from the whole units and the rest.
                    let ns = i128::from(origin) + ns as i128;
                    let (whole, rest) = (ns / i128::from(unit_ns), ns % i128::from(unit_ns));
                    whole as f64 + rest as f64 / unit_ns as f64
                })
                .collect();
            let mut reader = every();
            for _ in 0..20 {
                let (found, _) = t_ns(&mut reader, &sweep(stamp_ns, name, datatype, &times));
                let found = found.unwrap_or_else(|names| panic!("{lidar} at {stamp_ns}: {names}"));
                // The steps of float32 and float64 at these times, ns.
                let most = if datatype == 7 { 8.0 } else { 256.0 };
                for (found, wanted) in found.iter().zip(&wanted) {
                    assert!(
                        (found - wanted).abs() <= most,
                        "{lidar} at {stamp_ns}: {found} for {wanted}"
                    );
                }
            }
        }
    }
}

#[test]
fn what_the_times_of_points_are_taken_for_is_told() {
    let said = |stamp_ns: i64, name: &'static str, datatype: u8, times: &[f64]| {
        let mut reader = every();
        let (found, note) = t_ns(&mut reader, &sweep(stamp_ns, name, datatype, times));
        let before = "sensor_msgs/PointCloud2: its points, ";
        (
            found,
            note.strip_prefix(before).unwrap_or_default().to_owned(),
            reader.times(),
        )
    };
    let note = |text: &str| text.to_owned();
    assert_eq!(
        said(5 * S, "time", 7, &[0.0, 0.0625]),
        (
            Ok(vec![0.0, 62_500_000.0]),
            note("`t_ns` from `time`, in s since the stamp"),
            None
        )
    );
    let livox = note("`t_ns` from `timestamp`, in ns by the clock of the stamp");
    assert_eq!(
        said(5 * S, "timestamp", 8, &[5e9, 5.1e9]),
        (Ok(vec![0.0, 1e8]), livox.clone(), Some(livox))
    );
    // The clock of the points is not that of the stamp, as of one that counts TAI.
    let tai = note(
        "without `t_ns`: `timestamp` is 42 to 42.1 in a cloud of the stamp 5000000000 ns (allowed: s, ms, us or ns, since the \
         stamp or by its clock, less than 2 s from it)",
    );
    assert_eq!(
        said(5 * S, "timestamp", 8, &[42.0, 42.1]),
        (Err(note("x y z timestamp")), tai.clone(), Some(tai))
    );
    let mut reader = selector(&["t_ns"]);
    let refused = read(&mut reader, &sweep(5 * S, "timestamp", 8, &[42.0, 42.1]))
        .err()
        .unwrap();
    assert!(
        refused.contains("`timestamp` is of no form that the time of a point has (allowed: s, ms, us or ns"),
        "{refused}"
    );
}

#[test]
fn the_first_seconds_of_a_clock_do_not_decide() {
    // Times by a clock that begins, as is usual, or since the stamp: until the clock has gone on, both are possible.
    let mut reader = every();
    for tenths in 0..100 {
        let stamp_ns = i64::from(tenths) * S / 10;
        let (found, _) = t_ns(&mut reader, &sweep(stamp_ns, "timestamp", 8, &[0.0, 0.05, 0.1]));
        if tenths > 20 {
            assert_eq!(found, Ok(vec![0.0, 5e7, 1e8]), "{tenths}");
        }
    }
}

#[test]
fn a_few_times_that_are_none_do_not_decide() {
    // Points without a return have the time 0 or a time without meaning. In the usual form most times are near the stamp.
    let sweeps = |odd: f64| -> Vec<f64> {
        (0..100)
            .map(|i| if i % 9 == 4 { odd } else { i as f64 * 9e-4 })
            .collect()
    };
    for odd in [7.0, -1.0, 0.0, 1e10, f64::NAN] {
        let mut reader = every();
        for i in 0..30 {
            let times = sweeps(odd);
            let (found, _) = t_ns(&mut reader, &sweep(S + i * S / 10, "time", 7, &times));
            let right = |(found, time): (f64, f64)| time == odd || odd.is_nan() || (found - time * 1e9).abs() < 10.0;
            assert!(found.unwrap().into_iter().zip(times).all(right), "{odd}");
        }
        assert_eq!(reader.times(), None);
    }
    // By a clock near its beginning, with points at 0 in each sweep.
    let mut reader = every();
    for i in 0..300 {
        let stamp_ns = S / 10 + i * S / 10;
        let times: Vec<f64> = sweeps(0.0)
            .into_iter()
            .map(|time| if time == 0.0 { 0.0 } else { stamp_ns as f64 / 1e9 + time })
            .collect();
        let (found, _) = t_ns(&mut reader, &sweep(stamp_ns, "timestamp", 8, &times));
        assert!((found.unwrap()[50] - 4.5e7).abs() < 1.0, "{i}");
    }
    assert_eq!(reader.times(), None);
}

#[test]
fn the_column_of_a_stream_is_of_one_name_and_type() {
    let first = [&[0.0, 0.0][..], &[f64::NAN, 0.0], &[1.5, 1.5], &[0.0, 7e-4]];
    for (name, datatype) in [("time", 7), ("timestamp", 8), ("t", 6), ("t", 5), ("t", 8)] {
        for first in first {
            let mut reader = every();
            let form = |reader: &mut Selector, times: &[f64]| {
                let message = read(reader, &sweep(100 * S, name, datatype, times)).unwrap();
                let column = &message.columns()[3];
                (column.name.clone(), column.dtype)
            };
            let one = form(&mut reader, first);
            for unit in [1.0, 1e3, 1e9] {
                assert_eq!(
                    form(&mut reader, &[0.0, 0.05 * unit, 0.1 * unit]),
                    one,
                    "{name} {datatype} {first:?}"
                );
            }
        }
    }
}

#[test]
fn times_that_are_none_are_nan() {
    // Points without a return have the time 0.
    let stamp_ns = 1_700_000_000 * S;
    let seconds = |ns: f64| stamp_ns as f64 / 1e9 + ns / 1e9;
    let times = [0.0, seconds(0.0), seconds(5e7), f64::NAN];
    let mut reader = every();
    let (found, _) = t_ns(&mut reader, &sweep(stamp_ns, "timestamp", 8, &times));
    let found = found.unwrap();
    assert!(found[0].is_nan() && found[3].is_nan());
    assert!(found[1].abs() < 256.0 && (found[2] - 5e7).abs() < 256.0);
    // A clock that departs from that of the stamp is noted once.
    let late = sweep(stamp_ns + 60 * S, "timestamp", 8, &times);
    let (found, note) = t_ns(&mut reader, &late);
    assert!(found.unwrap().iter().all(|ns| ns.is_nan()));
    assert!(
        note.starts_with("a cloud, without a usable `t_ns`: `timestamp` is "),
        "{note}"
    );
    assert_eq!(t_ns(&mut reader, &late).1, "");
}

#[test]
fn integers_of_32_bits_that_count_from_the_stamp_are_none_by_its_clock() {
    // Microseconds of a sweep of 0.1 s that began 100 s after the clock did.
    let sweep_us = [1e8, 1.0005e8, 1.001e8];
    let mut reader = every();
    let (found, note) = t_ns(&mut reader, &sweep(100 * S, "t", 6, &sweep_us));
    assert_eq!(found, Err("x y z t".to_owned()));
    assert!(
        note.ends_with(", without `t_ns`: `t` is 100000000 to 100100000 in a cloud of the stamp 100000000000 ns (allowed: s, ms, us or ns, since the stamp, less than 2 s from it)"),
        "{note}"
    );
    // A stream that began with usable times keeps its column, and a note is given.
    let mut reader = every();
    assert_eq!(
        t_ns(&mut reader, &sweep(99 * S, "t", 6, &[0.0, 1e8])).0,
        Ok(vec![0.0, 1e8])
    );
    let far = [4_294_967_295.0, 4e9, 3e9];
    let (found, note) = t_ns(&mut reader, &sweep(100 * S, "t", 6, &far));
    assert_eq!(found, Ok(far.to_vec()));
    assert!(
        note.starts_with("a cloud, without a usable `t_ns`: `t` is 3000000000 to 4294967295 in"),
        "{note}"
    );
}

#[test]
fn what_is_plausible_and_may_be_wrong_is_told() {
    let told = |name: &'static str, datatype: u8, clouds: &[(i64, &[f64])]| {
        let mut reader = every();
        for (stamp_ns, times) in clouds {
            read(&mut reader, &sweep(*stamp_ns, name, datatype, times)).unwrap();
        }
        reader.times().unwrap_or_default()
    };
    let every_tenth =
        |times: &'static [f64]| -> Vec<(i64, &[f64])> { (0..20).map(|i| (100 * S + i * S / 10, times)).collect() };
    // Microseconds of the hour, and of a slow sweep, look like ns.
    let of_the_hour = told("time_stamp", 6, &every_tenth(&[4.05e8, 4.0505e8, 4.051e8]));
    assert_eq!(
        of_the_hour,
        "`t_ns` from `time_stamp` may be in another unit: a cloud lasts 100000 ns, 100000000 ns after the one before it"
    );
    assert!(told("t", 6, &every_tenth(&[0.0, 1.5e5, 3e5])).contains("a cloud lasts 150000 ns, "));
    // Milliseconds of packets look like seconds.
    let packets: Vec<(i64, &[f64])> = (0..20)
        .map(|i| (100 * S + 2_000_000 * i, &[0.0, 1.0, 2.0][..]))
        .collect();
    assert!(told("time", 7, &packets).contains("a cloud lasts 1000000000 ns, 2000000 ns after"));
    // The usual unit is kept if the unit changes later.
    let mut changes = every_tenth(&[0.0, 5e7, 1e8]);
    changes.extend((20..40).map(|i| (100 * S + i * S / 10, &[0.0, 5e4, 1e5][..])));
    assert!(told("t", 6, &changes).contains("a cloud lasts 50000 ns, "));
    // Points without a return do not hide a doubt, and seconds since 1970 are too far from the stamp for a flash.
    assert!(
        told("time_stamp", 6, &every_tenth(&[4.05e8, 0.0, 4.0505e8, 0.0, 4.051e8]))
            .contains("a cloud lasts 100000 ns, ")
    );
    assert!(told("t", 6, &every_tenth(&[1.7e9])).contains("a cloud lasts 0 ns, "));
    // Sweeps, packets, flashes and clouds that are cut to a region now and then raise no doubt.
    assert_eq!(told("t", 6, &every_tenth(&[3e6, 3e6])), "");
    let sector: Vec<[f64; 2]> = (0..20)
        .map(|i| f64::from(i) / 10.0 + 100.0)
        .map(|time| [time, time + 5e-4])
        .collect();
    let sector: Vec<(i64, &[f64])> = (0..)
        .zip(&sector)
        .map(|(i, times)| (100 * S + i * S / 10, &times[..]))
        .collect();
    assert_eq!(told("timestamp", 8, &sector), "");
    let mut cut = every_tenth(&[0.0, 5e7, 1e8]);
    cut.extend((20..30).map(|i| (100 * S + i * S / 10, &[5e7, 5.01e7][..])));
    assert_eq!(told("t", 6, &cut), "");
    assert_eq!(told("t", 6, &every_tenth(&[0.0, 5e7, 1e8])), "");
    assert_eq!(told("t", 6, &every_tenth(&[0.0, 0.0])), "");
    let packets: Vec<(i64, &[f64])> = (0..20).map(|i| (100 * S + 400_000 * i, &[0.0, 4e5][..])).collect();
    assert_eq!(told("t", 6, &packets), "");
}

/// A cloud without a stamp takes the stamp of its message, and its times count from that stamp.
#[test]
fn times_by_the_clock_are_since_the_stamp_that_stands_for_none() {
    let cloud = sweep(0, "timestamp", 8, &[1e8 + 0.01, 1e8 + 0.06, 1e8 + 0.11]);
    let mut message = Message::default();
    let stamp = [(key::timestamp_ns, MetadataRef::Integer(100_000_000 * S))];
    every().read(stamp, &cloud, &mut message).unwrap();
    let times = message.column("t_ns").unwrap().values();
    let ms: Vec<f64> = times.as_slice::<f64>().iter().map(|ns| (ns / 1e6).round()).collect();
    assert_eq!(ms, [10.0, 60.0, 110.0]);
}

/// The times of a sweep of 50 points in 0.1 s, in a unit of 1 / `unit` s. Every fifth point has its time; the others have 0.
fn with_zeros(unit: f64) -> Vec<f64> {
    (0..50)
        .map(|i| if i % 5 == 4 { unit * f64::from(i) * 2e-3 } else { 0.0 })
        .collect()
}

#[test]
fn points_without_a_return_do_not_decide_either() {
    // Most times of this sweep in ms are 0, which would be near the stamp in seconds, too.
    let mut reader = every();
    let (found, _) = t_ns(&mut reader, &sweep(100 * S, "time", 7, &with_zeros(1e3)));
    assert_eq!(found.unwrap()[49], 98e6);
    // Zeros do not hide that all other times are too far.
    let mut reader = every();
    t_ns(&mut reader, &sweep(100 * S, "time", 7, &with_zeros(1.0)))
        .0
        .unwrap();
    let late: Vec<f64> = with_zeros(1.0)
        .into_iter()
        .map(|time| if time == 0.0 { 0.0 } else { time + 5.0 })
        .collect();
    let (_, note) = t_ns(&mut reader, &sweep(101 * S, "time", 7, &late));
    assert!(
        note.starts_with("a cloud, without a usable `t_ns`: `time` is 5.0"),
        "{note}"
    );
}

#[test]
fn a_time_without_meaning_in_a_cloud_decides_nothing() {
    // Microseconds of a sweep; the time of the last point has no meaning.
    let mut reader = every();
    let mut times: Vec<f64> = (0..24).map(|i| f64::from(i) * 4e3).collect();
    times[23] = 4e9;
    for i in 0..20 {
        let (found, note) = t_ns(&mut reader, &sweep(100 * S + i * S / 10, "t", 6, &times));
        assert_eq!(found.unwrap()[22], 88e6, "{note}");
    }
    // One sweep a second is plausible in ns, and doubted all the same, even if one cloud of ten is not doubtful.
    for first_of_ten in [9.2e4, 1e9] {
        let mut reader = every();
        for i in 0..60 {
            times[22] = if i % 10 == 0 { first_of_ten } else { 8.8e4 };
            let slow: Vec<f64> = times.iter().map(|time| time * 10.0).collect();
            read(&mut reader, &sweep(100 * S + i * S, "t", 6, &slow)).unwrap();
        }
        let told = reader.times().unwrap();
        assert!(told.contains("may be in another unit: a cloud lasts"), "{told}");
    }
}

#[test]
fn a_short_cloud_among_sweeps_changes_no_unit() {
    // Nanoseconds and microseconds; a cloud that is cut to a region lasts 0.2 ms or 0.8 ms. Also in the first seconds of a clock.
    for (name, datatype, unit, short_s) in [("t", 6, 1e9, 2e-4), ("t", 6, 1e6, 8e-4), ("time", 7, 1e6, 8e-4)] {
        for begin_s in [1, 100] {
            let mut reader = every();
            for i in 0..12 {
                let (lasts_s, from_s) = if i == 5 { (short_s, 0.05) } else { (0.1, 0.0) };
                let times = [0.0, 0.5, 1.0].map(|share: f64| ((from_s + lasts_s * share) * unit).round());
                let (found, _) = t_ns(&mut reader, &sweep(begin_s * S + i * S / 10, name, datatype, &times));
                let wanted = (from_s + lasts_s) * 1e9;
                let came = found.unwrap()[2];
                // A column of integers stays unchanged only in ns.
                assert!(
                    (came - wanted).abs() < 1e4,
                    "{name} {unit} {begin_s} {i}: {came} {wanted}"
                );
            }
        }
    }
}

#[test]
fn the_clock_of_a_lidar_that_nobody_set_is_no_sweep() {
    // Seconds since the lidar was switched on, and 0 for no return; the stamp counts from 1970.
    for uptime_s in [5.0, 60.0, 4000.0, 1.5e6] {
        let mut reader = every();
        let times: Vec<f64> = (0..40)
            .map(|i| {
                if i % 4 == 0 {
                    0.0
                } else {
                    uptime_s + f64::from(i) * 2.5e-3
                }
            })
            .collect();
        let (found, note) = t_ns(&mut reader, &sweep(1_700_000_000 * S, "timestamp", 8, &times));
        assert!(found.is_err(), "{uptime_s}: {note}");
        assert!(note.contains("without `t_ns`: `timestamp` is "), "{note}");
    }
}

#[test]
fn a_field_that_is_named_after_ns_is_in_ns() {
    let mut reader = every();
    let times = [0.0, 1e5, 2e5];
    let (found, _) = t_ns(&mut reader, &sweep(100 * S, "time_offset_ns", 6, &times));
    assert_eq!(found.unwrap(), times);
}

#[test]
fn a_cloud_that_lasts_three_times_its_distance_is_doubted() {
    // Times in milliseconds of a cloud of 1.5 ms, ten clouds a second, are plausible as seconds.
    let mut reader = every();
    let times: Vec<f64> = (0..24).map(|i| f64::from(i) * 0.065).collect();
    for i in 0..20 {
        read(&mut reader, &sweep(100 * S + i * S / 10, "time", 7, &times)).unwrap();
    }
    let told = reader.times().unwrap();
    assert!(
        told.starts_with("`t_ns` from `time` may be in another unit: a cloud lasts 1"),
        "{told}"
    );
}

#[test]
fn a_doubt_outlives_the_form_that_is_found_after_it() {
    let mut reader = every();
    let mut notes = String::new();
    let clouds: [(i64, &[f64]); 5] = [
        (100, &[]),
        (101, &[137.0, 137.1]),
        (102, &[102.0, 102.1]),
        (103, &[103.0, 103.1]),
        (104, &[104.0, 104.1]),
    ];
    for (second, times) in clouds {
        read(&mut reader, &sweep(second * S, "timestamp", 8, times)).unwrap();
        notes.extend(reader.take_note());
    }
    let far = "without a usable `t_ns`: `timestamp` is 137 to 137.1";
    assert!(notes.contains(far) && reader.times().unwrap().contains(far), "{notes}");
    // Zeros by the clock are not times.
    let mut reader = every();
    for second in 100..120 {
        read(&mut reader, &sweep(second * S, "timestamp", 8, &[0.0, 0.0])).unwrap();
    }
    let zeros = "without a usable `t_ns`: `timestamp` is 0 or not finite in all points of 16 clouds";
    assert_eq!(reader.times().unwrap(), zeros);
}

#[test]
fn a_float32_by_the_clock_is_a_time_while_its_steps_are_short() {
    let times = |seconds: i64| {
        let mut reader = every();
        let times = [0.0, 0.05, 0.1].map(|time| seconds as f64 + time);
        t_ns(&mut reader, &sweep(seconds * S, "timestamp", 7, &times)).0
    };
    assert!(times(8000).unwrap()[2] > 9.9e7);
    assert_eq!(times(100_000), Err("x y z timestamp".to_owned()));
    // The first cloud or the first point does not change that.
    let mut reader = every();
    t_ns(&mut reader, &sweep(1_700_000_000 * S, "timestamp", 7, &[0.0]))
        .0
        .unwrap();
    let (found, _) = t_ns(&mut reader, &sweep(1_700_000_000 * S, "timestamp", 7, &[1.7e9, 1.7e9]));
    assert!(found.unwrap().iter().all(|ns| ns.is_nan()));
    let mut odd = vec![4_294_967_295.0; 1];
    odd.extend((0..10).map(|i| f64::from(i) / 100.0));
    let (found, _) = t_ns(&mut every(), &sweep(100 * S, "time", 7, &odd));
    assert!(found.unwrap()[10] > 8.9e7);
    assert_eq!(times(1_700_000_000), Err("x y z timestamp".to_owned()));
}

#[test]
fn a_point_without_a_return_has_no_time_near_the_beginning_of_a_clock() {
    let mut reader = every();
    for i in 1..30 {
        let at = f64::from(i) / 10.0;
        let times = [0.0, at, 0.0, at + 0.09, at + 0.05, at + 0.01];
        let (found, _) = t_ns(&mut reader, &sweep(i64::from(i) * S / 10, "timestamp", 8, &times));
        let found = found.unwrap();
        assert!(
            found[0].is_nan() && found[2].is_nan() && found[1].abs() < 256.0,
            "{found:?}"
        );
    }
}

#[test]
fn a_first_cloud_without_times_names_the_column() {
    for first in [&[][..], &[0.0, 0.0], &[f64::NAN]] {
        for (name, datatype, unit) in [("timestamp", 8, 1.0), ("time", 7, 1.0), ("t", 6, 2e7)] {
            let mut reader = every();
            let (found, _) = t_ns(&mut reader, &sweep(100 * S, name, datatype, first));
            assert_eq!(found.unwrap().len(), first.len());
            // Times of another clock than the stamp's: the column stays, and none of its times is near the stamp.
            let tai = [137.0, 137.05, 137.1].map(|time| time * unit);
            let (found, note) = t_ns(&mut reader, &sweep(100 * S, name, datatype, &tai));
            let found = found.unwrap();
            assert!(found.iter().all(|ns| ns.is_nan() || *ns > 2e9), "{name}: {found:?}");
            assert!(note.starts_with("a cloud, without a usable `t_ns`: "), "{note}");
        }
    }
    // If the first cloud has such times, the field stays unchanged.
    for (name, datatype) in [("timestamp", 8), ("time", 7)] {
        let mut reader = every();
        for times in [&[137.0, 137.05, 137.1][..], &[], &[0.0], &[0.0, 0.1]] {
            let (found, _) = t_ns(&mut reader, &sweep(100 * S, name, datatype, times));
            assert_eq!(found, Err(format!("x y z {name}")));
        }
    }
}

#[test]
fn a_few_points_do_not_decide_for_all() {
    // 0.2 ms of a sweep in ns seem to be 0.2 s in us, until a whole sweep comes.
    let mut reader = every();
    let cut = sweep(5 * S, "t", 6, &[10.0, 200_000.0]);
    assert_eq!(t_ns(&mut reader, &cut).0, Ok(vec![10_000.0, 200_000_000.0]));
    let (found, note) = t_ns(&mut reader, &sweep(5 * S, "t", 6, &[0.0, 1e8]));
    assert_eq!(
        (found, note.as_str()),
        (Ok(vec![0.0, 1e8]), "a cloud, `t_ns` from `t`, in ns since the stamp")
    );
    assert_eq!(t_ns(&mut reader, &cut).0, Ok(vec![10.0, 200_000.0]));
}

#[test]
fn absolute_times_keep_what_float64_has_of_them() {
    let mut cloud = padded(&[&[[1.0; 3]]], 0);
    cloud.fields.push(("timestamp", 16, 8, 1));
    cloud.point_step = 24;
    let at = |seconds: f64| {
        let mut cloud = cloud.clone();
        cloud.data.extend(seconds.to_le_bytes());
        let with_header = cloud.array();
        let (fields, mut columns, _) = with_header.as_struct().clone().into_parts();
        columns[0] = structure(vec![
            ("stamp", stamp(1_700_000_000, 100_000_000)),
            ("frame_id", texts(&[""])),
        ]);
        let columns = fields.iter().map(|field| field.name().as_str()).zip(columns).collect();
        let payload = structure(columns);
        let mut message = Message::default();
        // The stamp of the message is by another clock than the times of the points.
        let metadata = [(key::timestamp_ns, MetadataRef::Integer(77))];
        every().read(metadata, &payload, &mut message).unwrap();
        assert_eq!(message.timestamp_ns(), 77);
        message.column("t_ns").unwrap().values().as_slice::<f64>()[0]
    };
    assert!((at(1_700_000_000.125) - 25e6).abs() <= 240.0);
    assert_eq!(at(1_700_000_000.0), -100e6);
    // No channel uses these.
    assert!(at(f64::NAN).is_nan());
    assert_eq!(at(f64::INFINITY), f64::INFINITY);
}

#[test]
fn the_first_field_of_times_is_taken_and_others_are_named() {
    let times = [0.0, 0.05, 0.099].map(|time: f64| S as f64 * 1.5e-9 + time);
    let scan = structure(vec![
        ("x", list(doubles(&[1.0; 3]))),
        ("y", list(doubles(&[1.0; 3]))),
        ("z", list(doubles(&[1.0; 3]))),
        ("time", list(doubles(&[0.0; 3]))),
        ("timestamp", list(doubles(&times))),
    ]);
    let mut reader = Selector::new(Selection::cloud(
        CloudFields::All,
        Some(super::from(
            "columns: [scan.x, scan.y, scan.z, scan.time, scan.timestamp]",
        )),
    ));
    let message = read(&mut reader, &structure(vec![("scan", scan)])).unwrap();
    assert_eq!(names(&message), ["x", "y", "z", "t_ns", "timestamp"]);
    assert!(
        reader
            .times()
            .unwrap()
            .starts_with("`t_ns` from `time` and not `timestamp`, ")
    );
}

/// A cloud of Livox whose times count from `base_ns` after its stamp.
fn livox(base_ns: i64) -> ArrayRef {
    let floats = |values: &[f32]| -> ArrayRef { Arc::new(Float32Array::from(values.to_vec())) };
    let bytes = |values: &[u8]| -> ArrayRef { Arc::new(UInt8Array::from(values.to_vec())) };
    let points = structure(vec![
        ("offset_time", Arc::new(UInt32Array::from(vec![0, 5_000_000]))),
        ("x", floats(&[1.0, 2.0])),
        ("y", floats(&[3.0, 4.0])),
        ("z", floats(&[5.0, 6.0])),
        ("reflectivity", bytes(&[7, 8])),
        ("tag", bytes(&[0, 0])),
        ("line", bytes(&[0, 1])),
    ]);
    structure(vec![
        ("header", header()),
        (
            "timebase",
            Arc::new(arrow_array::UInt64Array::from(vec![(1_500_000_000 + base_ns) as u64])),
        ),
        ("point_num", whole(2)),
        ("lidar_id", bytes(&[1])),
        ("rsvd", list(bytes(&[0, 0, 0]))),
        ("points", list(points)),
    ])
}

#[test]
fn a_list_of_structs_is_a_cloud() {
    let mut reader = every();
    let message = read(&mut reader, &livox(0)).unwrap();
    assert_eq!(
        reader.take_note().unwrap(),
        "livox_ros_driver2/CustomMsg: its points, `t_ns` from `offset_time`, in ns since the stamp"
    );
    assert_eq!(names(&message), ["t_ns", "x", "y", "z", "reflectivity", "tag", "line"]);
    assert_eq!((message.rows, message.timestamp_ns()), (2, 3 * S / 2));
    assert_eq!(column(&message, "t_ns"), [0.0, 5e6]);
    assert_eq!(column(&message, "z"), [5.0, 6.0]);
    let message = read(&mut selector(&["reflectivity"]), &livox(0)).unwrap();
    assert_eq!(names(&message), ["x", "y", "z", "reflectivity"]);
    // The distance is noted once, although each cloud has it.
    for _ in 0..2 {
        read(&mut reader, &livox(-100_000_000)).unwrap();
    }
    let told = "`timebase` is -100000000 ns from the stamp, which `t_ns` counts from";
    assert_eq!(reader.take_note().unwrap(), format!("a cloud, {told}"));
    assert!(reader.times().unwrap().contains(told));
}

#[test]
fn columns_of_a_cloud_are_lists_or_a_cloud_within() {
    let from = |text: &str, wanted: CloudFields| Selector::new(Selection::cloud(wanted, Some(super::from(text))));
    let scan = structure(vec![
        ("x", list(doubles(&[1.0, 2.0]))),
        ("y", large_list(doubles(&[3.0, 4.0]))),
        ("z", fixed_list(doubles(&[5.0, 6.0]))),
        ("time", list(Arc::new(Float32Array::from(vec![0.0, 0.5])))),
        ("short", list(doubles(&[1.0]))),
    ]);
    let payload = structure(vec![("scan", scan), ("cloud", three().array())]);
    let text = "columns: [scan.x, scan.y, scan.z, scan.time]";
    let message = read(&mut from(text, CloudFields::All), &payload).unwrap();
    assert_eq!(names(&message), ["x", "y", "z", "t_ns"]);
    assert_eq!(
        (column(&message, "z"), column(&message, "t_ns")),
        (vec![5.0, 6.0], vec![0.0, 5e8])
    );
    let message = read(
        &mut from("{ columns: [cloud], stamp: cloud.header.stamp }", CloudFields::All),
        &payload,
    )
    .unwrap();
    assert_eq!((message.rows, message.timestamp_ns()), (3, 3 * S / 2));
    for (text, wanted) in [
        ("columns: [scan.x, scan.y]", "no `z`: `from` has x, y"),
        (
            "columns: [scan]",
            "(allowed: a list of numbers, or of structs of numbers)",
        ),
        (
            "columns: [scan.x, scan.y, scan.z, scan.short]",
            "`scan.short` is 1 values (allowed: 2, as many as `scan.x` has)",
        ),
        ("columns: [scan.w]", "no `scan.w`: `scan` has x, y, z, time, short"),
    ] {
        let words = read(&mut from(text, CloudFields::All), &payload).err().unwrap();
        assert!(words.contains(wanted), "{words}\nnot {wanted}");
    }
}

fn std_cloud(bytes: &[u8], width: u32, height: u32) -> ArrayRef {
    structure(vec![
        ("points", Arc::new(LargeBinaryArray::from_vec(vec![bytes]))),
        ("width", whole(width)),
        ("height", whole(height)),
    ])
}

#[test]
fn a_cloud_of_bytes_is_what_its_metadata_say() {
    let bytes: Vec<u8> = (1..=6u8).flat_map(|value| f32::from(value).to_le_bytes()).collect();
    let read = |metadata: &[(&str, MetadataRef<'_>)], payload: &ArrayRef| {
        let mut message = Message::default();
        let read = every().read(metadata.iter().copied(), payload, &mut message);
        read.map(|()| message).map_err(|error| error.to_string())
    };
    let message = read(&[], &std_cloud(&bytes, 2, 1)).unwrap();
    assert_eq!(message.header.shape.get(), Some(&[2, 3][..]));
    assert_eq!(message.header.fields.get().unwrap(), ["x", "y", "z"]);
    assert_eq!(
        message.flat().unwrap().as_slice::<f32>(),
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    );
    let names = ["x", "y", "z"].map(str::to_owned);
    let said = [
        (key::fields, MetadataRef::ListString(&names)),
        (key::dtype, MetadataRef::String("float64")),
    ];
    let message = read(&said, &std_cloud(&bytes, 1, 1)).unwrap();
    assert_eq!((message.flat().unwrap().dtype(), message.rows), (Dtype::Float64, 3));
    let words = read(&[], &std_cloud(&bytes, 3, 1)).err().unwrap();
    assert!(
        words.starts_with("`points` is 24 bytes (allowed: 3 points of 3 float32; other fields"),
        "{words}"
    );
    let words = read(
        &[(key::dtype, MetadataRef::String("bfloat16"))],
        &std_cloud(&bytes, 2, 1),
    )
    .err()
    .unwrap();
    assert!(words.contains("`metadata dtype` is bfloat16"), "{words}");
    assert!(read(&[], &std_cloud(&[], u32::MAX, u32::MAX)).is_err());
    assert_eq!(read(&[], &std_cloud(&[], 0, 1)).unwrap().rows, 0);
}

#[test]
fn clouds_as_they_were_stay_as_they_are() {
    let rows = structure(["x", "y", "z"].map(|name| (name, doubles(&[1.0, 2.0]))).to_vec());
    let lists = structure(["x", "y", "z"].map(|name| (name, list(doubles(&[1.0, 2.0])))).to_vec());
    for payload in [&rows, &lists, &doubles(&[1.0, 2.0, 3.0])] {
        let (mut as_was, message) = (Message::default(), read(&mut every(), payload).unwrap());
        as_was.read([], payload).unwrap();
        assert_eq!(as_was.rows, message.rows);
        let same = as_was.columns().iter().zip(message.columns());
        assert!(
            same.into_iter()
                .all(|(a, b)| a.name == b.name && a.data.bytes() == b.data.bytes())
        );
    }
}
