//! Tests of samples from structs: recognised structs, configured paths, names of elements, stamps, and what is refused.

use super::*;
use crate::MetadataValue;
use arrow_array::types::Int8Type;
use arrow_array::{DictionaryArray, Float32Array, Int64Array, StringViewArray, TimestampMillisecondArray, UInt64Array};
use arrow_buffer::NullBuffer;

fn joint_state(names: &[&str], positions: &[f64]) -> ArrayRef {
    structure(vec![
        ("header", header()),
        ("name", list(texts(names))),
        ("position", list(doubles(positions))),
        (
            "velocity",
            list(doubles(&positions.iter().map(|value| -value).collect::<Vec<_>>())),
        ),
        ("effort", list(doubles(&[]))),
    ])
}

const BY_NAME: &str = "{ columns: [position], names: { key: name, order: [b, a] } }";

fn pose() -> ArrayRef {
    structure(vec![
        ("position", vector([1.0, 2.0, 3.0])),
        ("orientation", quaternion([4.0, 5.0, 6.0, 7.0])),
    ])
}

fn twist() -> ArrayRef {
    structure(vec![
        ("linear", vector([8.0, 9.0, 10.0])),
        ("angular", vector([11.0, 12.0, 13.0])),
    ])
}

fn covariance(name: &str, of: ArrayRef) -> ArrayRef {
    structure(vec![(name, of), ("covariance", list(doubles(&[0.0; 36])))])
}

#[test]
fn joints_are_taken_in_the_order_that_is_asked_for_with_their_velocities() {
    let joints = |velocities| Selection::joints(vec!["b".to_owned(), "a".to_owned()], velocities, None);
    let mut selector = Selector::new(joints(true));
    let message = read(&mut selector, &joint_state(&["gripper", "a", "b"], &[9.0, 1.0, 2.0])).unwrap();
    assert_eq!(values(&message), [2.0, 1.0, -2.0, -1.0]);
    let fields = message.header.fields.get().unwrap();
    assert_eq!(fields, ["position.b", "position.a", "velocity.b", "velocity.a"]);
    assert_eq!(
        selector.take_note().unwrap(),
        "sensor_msgs/JointState: position, velocity"
    );

    // Many drivers send no velocities: then only positions are taken.
    let unmoved = |names: &[&str], positions: &[f64], velocities: &[f64]| {
        structure(vec![
            ("names", list(texts(names))),
            ("positions", list(doubles(positions))),
            ("velocities", list(doubles(velocities))),
            ("efforts", list(doubles(&[]))),
        ])
    };
    let both = [("a", 1.0), ("b", 2.0)];
    let (names, positions) = (both.map(|(name, _)| name), both.map(|(_, position)| position));
    let mut selector = Selector::new(joints(true));
    for (velocities, wanted) in [
        (&[3.0, 4.0][..], &[2.0, 1.0, 4.0, 3.0][..]),
        (&[], &[2.0, 1.0]),
        (&[3.0, 4.0], &[2.0, 1.0, 4.0, 3.0]),
    ] {
        let message = read(&mut selector, &unmoved(&names, &positions, velocities)).unwrap();
        assert_eq!(values(&message), wanted);
        let first = message.header.fields.get().unwrap()[0].as_str();
        assert_eq!(first, if velocities.is_empty() { "b" } else { "positions.b" });
    }
    let refused = read(&mut selector, &unmoved(&names, &positions, &[3.0])).err().unwrap();
    assert!(
        refused.contains("`velocities` has 1 values for the 2 of `names`"),
        "{refused}"
    );
    let mut selector = Selector::new(joints(false));
    let refused = read(&mut selector, &unmoved(&["a"], &[1.0], &[])).err().unwrap();
    assert!(refused.contains("`b`"), "{refused}");
    let message = read(&mut selector, &unmoved(&names, &positions, &[3.0, 4.0])).unwrap();
    assert_eq!(values(&message), [2.0, 1.0]);
}

#[test]
fn the_mask_of_a_struct_is_that_of_its_sample() {
    let mut selector = Selector::new(Selection::samples(2, None));
    let masks = [(&[0][..], 0), (&[1], 1)];
    for (valid, rows) in masks {
        let metadata = [
            (key::timestamp_ns, MetadataRef::Integer(7)),
            (key::valid, MetadataRef::ListInt(valid)),
        ];
        let mut message = Message::default();
        selector
            .read(metadata, &joint_state(&["a", "b"], &[1.0, 2.0]), &mut message)
            .unwrap();
        assert_eq!(message.header.valid.get(), Some(valid));
        assert_eq!(message.samples(2).unwrap().count(), rows);
    }
}

#[test]
fn what_is_known_is_recognised() {
    let one_to = |n: u32| (1..=n).map(f64::from).collect::<Vec<_>>();
    let std_joints = vec![
        ("names", large_list(texts(&["a", "b"]))),
        ("positions", large_list(doubles(&[1.0, 2.0]))),
        ("velocities", large_list(doubles(&[]))),
        ("efforts", large_list(doubles(&[]))),
    ];
    let transform = vec![
        ("translation", vector([1.0, 2.0, 3.0])),
        ("rotation", quaternion([4.0, 5.0, 6.0, 7.0])),
    ];
    let std_odometry = vec![("pose", pose()), ("twist", twist()), ("frame_id", texts(&["base"]))];
    let imu = vec![
        ("header", header()),
        ("orientation", quaternion([7.0, 8.0, 9.0, 10.0])),
        ("orientation_covariance", list(doubles(&[0.0; 9]))),
        ("angular_velocity", vector([4.0, 5.0, 6.0])),
        ("angular_velocity_covariance", list(doubles(&[0.0; 9]))),
        ("linear_acceleration", vector([1.0, 2.0, 3.0])),
        ("linear_acceleration_covariance", list(doubles(&[0.0; 9]))),
    ];
    let wrench = structure(vec![
        ("force", vector([1.0, 2.0, 3.0])),
        ("torque", vector([4.0, 5.0, 6.0])),
    ]);
    let wrench = vec![("header", header()), ("wrench", wrench)];
    let moved = structure(vec![
        ("linear", vector([1.0, 2.0, 3.0])),
        ("angular", vector([4.0, 5.0, 6.0])),
    ]);
    let odometry = vec![
        ("header", header()),
        ("child_frame_id", texts(&["tool"])),
        ("pose", covariance("pose", pose())),
        ("twist", covariance("twist", twist())),
    ];
    // Note, payload, number of values, true if there is a stamp, and true if there is a frame.
    let cases = [
        (
            "std/control/v1/JointState: positions",
            structure(std_joints),
            2,
            false,
            false,
        ),
        ("std/math/v1/Pose: position, orientation", pose(), 7, false, false),
        (
            "std/math/v1/Transform: translation, rotation",
            structure(transform),
            7,
            false,
            false,
        ),
        ("std/control/v1/Twist: linear, angular", moved.clone(), 6, false, false),
        (
            "std/control/v1/Odometry: pose.position, pose.orientation, twist.linear, twist.angular",
            structure(std_odometry),
            13,
            false,
            true,
        ),
        (
            "sensor_msgs/JointState: position",
            joint_state(&["a", "b"], &[1.0, 2.0]),
            2,
            true,
            true,
        ),
        (
            "sensor_msgs/Imu: linear_acceleration, angular_velocity, orientation",
            structure(imu),
            10,
            true,
            true,
        ),
        (
            "geometry_msgs/WrenchStamped: wrench.force, wrench.torque",
            structure(wrench),
            6,
            true,
            true,
        ),
        (
            "geometry_msgs/PoseStamped: pose.position, pose.orientation",
            structure(vec![("header", header()), ("pose", pose())]),
            7,
            true,
            true,
        ),
        (
            "geometry_msgs/TwistStamped: twist.linear, twist.angular",
            structure(vec![("header", header()), ("twist", moved)]),
            6,
            true,
            true,
        ),
        (
            "nav_msgs/Odometry: pose.pose.position, pose.pose.orientation, twist.twist.linear, twist.twist.angular",
            structure(odometry),
            13,
            true,
            true,
        ),
    ];
    for (note, payload, dim, is_stamped, has_frame) in cases {
        let mut selector = Selector::new(Selection::samples(dim as usize, None));
        let message = read(&mut selector, &payload).unwrap();
        assert_eq!(values(&message), one_to(dim), "{note}");
        assert_eq!(
            message.header.timestamp_ns.get(),
            is_stamped.then_some(3 * S / 2),
            "{note}"
        );
        assert_eq!(message.header.frame_id.get(), has_frame.then_some("base"), "{note}");
        assert_eq!(selector.take_note().as_deref(), Some(note));
        read(&mut selector, &payload).unwrap();
        assert_eq!(selector.take_note(), None);
    }
}

#[test]
fn what_is_not_known_stays_as_it_came() {
    let other = structure(vec![("header", header()), ("gripper", doubles(&[1.0]))]);
    let mut selector = Selector::new(Selection::samples(1, None));
    let message = read(&mut selector, &other).unwrap();
    assert!(message.flat().is_none() && message.column("gripper").is_some());
    let words = message.samples(1).err().unwrap().to_string();
    assert!(words.contains("the payload is a struct"), "{words}");
    assert_eq!(selector.take_note(), None);
    // Every payload stays unchanged with the default selection.
    let message = read(&mut Selector::new(Selection::default()), &pose()).unwrap();
    assert!(message.flat().is_none() && !message.header.timestamp_ns.is_present());
}

#[test]
fn columns_are_taken_in_the_order_of_their_paths() {
    let float: ArrayRef = Arc::new(Float32Array::from(vec![0.5]));
    let payload = structure(vec![
        ("small", list(Arc::new(Float32Array::from(vec![1.0, 2.0])))),
        ("large", large_list(Arc::new(Int64Array::from(vec![3, 4])))),
        ("fixed", fixed_list(Arc::new(UInt64Array::from(vec![5])))),
        ("pose", pose()),
        ("one", float),
    ]);
    let text = "columns: [one, pose.position, fixed, large, small]";
    let message = read(&mut selector_of(9, text), &payload).unwrap();
    assert_eq!(values(&message), [0.5, 1.0, 2.0, 3.0, 5.0, 3.0, 4.0, 1.0, 2.0]);
    assert_eq!(message.flat().unwrap().dtype(), Dtype::Float64);
    let message = read(&mut selector_of(3, "columns: [small, one]"), &payload).unwrap();
    assert_eq!(values(&message), [1.0, 2.0, 0.5]);
    assert_eq!(message.flat().unwrap().dtype(), Dtype::Float32);
    // A struct gives its numbers in the order in which it declares them.
    let turned = structure(vec![("q", numbers(&[("w", 1.0), ("x", 2.0), ("y", 3.0), ("z", 4.0)]))]);
    let message = read(&mut selector_of(4, "columns: [q]"), &turned).unwrap();
    assert_eq!(values(&message), [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn a_slice_is_read_where_it_begins() {
    let rows = |first: f64| -> ArrayRef {
        let offsets = OffsetBuffer::from_lengths([3, 2, 1]);
        let values = doubles(&(0..6).map(|i| first + f64::from(i)).collect::<Vec<_>>());
        Arc::new(ListArray::new(item(&values), offsets, values, None))
    };
    let fixed: ArrayRef = Arc::new(FixedSizeListArray::new(
        item(&doubles(&[])),
        2,
        doubles(&[20.0, 21.0, 22.0, 23.0, 24.0, 25.0]),
        None,
    ));
    let all = structure(vec![
        ("a", rows(0.0)),
        ("b", fixed),
        ("c", doubles(&[30.0, 31.0, 32.0])),
    ]);
    let message = read(&mut selector_of(5, "columns: [a, b, c]"), &all.slice(1, 1)).unwrap();
    assert_eq!(values(&message), [3.0, 4.0, 22.0, 23.0, 31.0]);
}

#[test]
fn elements_are_taken_by_name_in_whatever_order_they_come() {
    let mut selector = selector_of(2, BY_NAME);
    for (names, positions) in [
        (&["a", "b"][..], &[1.0, 2.0][..]),
        (&["b", "a"], &[2.0, 1.0]),
        (&["c", "a", "b"], &[3.0, 1.0, 2.0]),
        (&["a", "b"], &[1.0, 2.0]),
    ] {
        let message = read(&mut selector, &joint_state(names, positions)).unwrap();
        assert_eq!(values(&message), [2.0, 1.0], "{names:?}");
    }
    // A message that lacks one of the names is refused, and changes nothing.
    let words = read(&mut selector, &joint_state(&["a"], &[1.0])).err().unwrap();
    assert_eq!(words, "no `b`: `name` has a");
    let words = read(&mut selector, &joint_state(&["a", "b", "a"], &[1.0, 2.0, 3.0]))
        .err()
        .unwrap();
    assert_eq!(words, "`name` is a list with `a` twice (allowed: each name once)");
    let message = read(&mut selector, &joint_state(&["b", "a"], &[2.0, 1.0])).unwrap();
    assert_eq!(values(&message), [2.0, 1.0]);
    let both = "{ columns: [position, velocity], names: { key: name, order: [b, a] } }";
    let message = read(&mut selector_of(4, both), &joint_state(&["a", "b"], &[1.0, 2.0])).unwrap();
    assert_eq!(values(&message), [2.0, 1.0, -2.0, -1.0]);
    let efforts = "{ columns: [effort], names: { key: name, order: [b, a] } }";
    let wanted = "`effort` has 0 values for the 2 of `name` (allowed: one for each)";
    refused(2, efforts, &joint_state(&["a", "b"], &[1.0, 2.0]), wanted);
}

#[test]
fn names_are_texts_of_any_kind() {
    let dictionary: DictionaryArray<Int8Type> = ["b", "a", "b"].into_iter().collect();
    let views: ArrayRef = Arc::new(StringViewArray::from(vec!["b", "a"]));
    let encoded: ArrayRef = Arc::new(dictionary.slice(1, 2));
    for names in [list(encoded), fixed_list(views.clone()), large_list(views)] {
        let payload = structure(vec![("name", names), ("position", list(doubles(&[1.0, 2.0])))]);
        let message = read(&mut selector_of(2, BY_NAME), &payload).unwrap();
        let mut found = values(&message);
        found.sort_by(f64::total_cmp);
        assert_eq!(found, [1.0, 2.0]);
    }
    let holes: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
    let payload = structure(vec![("name", list(holes)), ("position", list(doubles(&[1.0, 2.0])))]);
    refused(2, BY_NAME, &payload, "`name[1]` is null");
    let numbers = structure(vec![
        ("name", list(doubles(&[1.0]))),
        ("position", list(doubles(&[1.0]))),
    ]);
    refused(2, BY_NAME, &numbers, "(allowed: a list of texts)");
    refused(
        2,
        BY_NAME,
        &structure(vec![("name", list(texts(&["a", "b"]))), ("position", doubles(&[1.0]))]),
        "as its elements have names",
    );
}

#[test]
fn joints_that_are_recognised_keep_the_order_of_the_first_message() {
    let mut selector = Selector::new(Selection::samples(2, None));
    // A refused message of another length does not decide the order.
    let words = read(&mut selector, &joint_state(&["finger"], &[0.0])).err().unwrap();
    assert_eq!(words, "`position` is 1 values (allowed: 2, the `dim` of the input)");
    for (names, positions) in [(["a", "b"], [1.0, 2.0]), (["b", "a"], [2.0, 1.0])] {
        let message = read(&mut selector, &joint_state(&names, &positions)).unwrap();
        assert_eq!(values(&message), [1.0, 2.0]);
    }
    let words = read(&mut selector, &joint_state(&["c", "d"], &[1.0, 2.0]))
        .err()
        .unwrap();
    assert_eq!(words, "no `a`: `name` has c, d");
    // A list of another type does not change the order.
    let of_type = |name: ArrayRef, positions: &[f64]| {
        structure(vec![
            ("header", header()),
            ("name", name),
            ("position", fixed_list(doubles(positions))),
            ("velocity", list(Arc::new(Float32Array::from(Vec::<f32>::new())))),
            ("effort", list(doubles(&[]))),
        ])
    };
    let three = of_type(fixed_list(texts(&["c", "b", "a"])), &[3.0, 2.0, 1.0]);
    let two = of_type(large_list(texts(&["b", "a"])), &[2.0, 1.0]);
    for payload in [three, two] {
        assert_eq!(values(&read(&mut selector, &payload).unwrap()), [1.0, 2.0]);
    }
    // Values without names keep their order.
    let message = read(
        &mut Selector::new(Selection::samples(2, None)),
        &joint_state(&[], &[5.0, 6.0]),
    )
    .unwrap();
    assert_eq!(values(&message), [5.0, 6.0]);
}

#[test]
fn what_is_not_there_is_named() {
    let payload = joint_state(&["a", "b"], &[1.0, 2.0]);
    let cases = [
        (
            "columns: [positions]",
            "no `positions`: the message has header, name, position, velocity, effort",
        ),
        (
            "columns: [header.stamp.secs]",
            "no `header.stamp.secs`: `header.stamp` has sec, nanosec",
        ),
        ("columns: [position.x]", "`position` is List("),
        ("columns: [position.x]", "(allowed: a struct)"),
        (
            "columns: [name]",
            "(allowed: a number, a list of numbers, or a struct of these)",
        ),
        ("columns: [header]", "`header.frame_id` is Utf8 (allowed: a number"),
        (
            "{ columns: [position], stamp: stamp }",
            "no `stamp`: the message has header",
        ),
        (
            "{ columns: [position], stamp: name }",
            "(allowed: a struct of integers `sec` and `nanosec`",
        ),
        (
            "columns: [effort]",
            "`effort` is 0 values (allowed: 2, the `dim` of the input)",
        ),
    ];
    for (text, wanted) in cases {
        refused(2, text, &payload, wanted);
    }
    let flat = doubles(&[1.0, 2.0]);
    refused(
        2,
        "columns: [position]",
        &flat,
        "the payload is Arrow type Float64 (allowed: a struct of one row)",
    );
    refused(2, "stamp: header.stamp", &flat, "the payload is Arrow type Float64");
}

#[test]
fn a_message_is_one_row_that_is_there() {
    let rows = |rows: &[f64]| structure(vec![("a", doubles(rows))]);
    refused(
        1,
        "columns: [a]",
        &rows(&[]),
        "the payload is a struct of 0 rows (allowed: a struct of one row)",
    );
    refused(
        1,
        "columns: [a]",
        &rows(&[1.0, 2.0]),
        "the payload is a struct of 2 rows",
    );
    let (fields, columns, _) = rows(&[1.0]).as_struct().clone().into_parts();
    let null: ArrayRef = Arc::new(StructArray::new(fields, columns, Some(NullBuffer::new_null(1))));
    refused(1, "columns: [a]", &null, "a struct whose row is null");
    refused(
        1,
        "columns: [b.a]",
        &structure(vec![("b", null)]),
        "`b.a` is null (allowed: a value)",
    );
    let no_list: ArrayRef = Arc::new(ListArray::new_null(item(&doubles(&[])), 1));
    refused(
        1,
        "columns: [a]",
        &structure(vec![("a", no_list)]),
        "`a` is null (allowed: a value)",
    );
    // A null number becomes NaN, as in a flat array.
    let holes: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.0), None]));
    let message = read(
        &mut selector_of(2, "columns: [a]"),
        &structure(vec![("a", list(holes))]),
    )
    .unwrap();
    assert!(values(&message)[0] == 1.0 && values(&message)[1].is_nan());
}

#[test]
fn a_schema_that_changes_is_looked_at_again() {
    let mut selector = selector_of(1, "columns: [b]");
    let first = structure(vec![("a", doubles(&[1.0])), ("b", doubles(&[2.0]))]);
    let second = structure(vec![("b", list(doubles(&[3.0]))), ("a", doubles(&[4.0]))]);
    for (payload, value) in [(&first, 2.0), (&second, 3.0), (&first, 2.0)] {
        assert_eq!(values(&read(&mut selector, payload).unwrap()), [value]);
    }
    assert!(read(&mut selector, &structure(vec![("a", doubles(&[1.0]))])).is_err());
    assert_eq!(values(&read(&mut selector, &first).unwrap()), [2.0]);
}

#[test]
fn a_stamp_that_nobody_needs_may_be_wrong() {
    let stamp = structure(vec![("stamp", stamp(0, 2_000_000_000))]);
    let payload = structure(vec![("header", stamp), ("p", doubles(&[1.0]))]);
    let mut message = Message::default();
    let metadata = [(key::timestamp_ns, MetadataRef::Integer(7))];
    let mut selector = selector_of(1, "columns: [p]");
    selector.read(metadata, &payload, &mut message).unwrap();
    assert_eq!((message.timestamp_ns(), values(&message)), (7, vec![1.0]));
    refused(1, "columns: [p]", &payload, "`header.stamp.nanosec` is 2000000000");
}

#[test]
fn stamps_are_what_the_payload_says() {
    let at = |stamp: ArrayRef| structure(vec![("t", stamp), ("a", doubles(&[1.0]))]);
    let ns = |payload: &ArrayRef| {
        let message = read(&mut selector_of(1, "{ columns: [a], stamp: t }"), payload)?;
        Ok::<i64, String>(message.timestamp_ns())
    };
    assert_eq!(ns(&at(stamp(-1, 5))).unwrap(), -S + 5);
    assert_eq!(
        ns(&at(stamp(i32::MAX, 999_999_999))).unwrap(),
        i64::from(i32::MAX) * S + 999_999_999
    );
    assert_eq!(ns(&at(Arc::new(Int64Array::from(vec![-7])))).unwrap(), -7);
    assert_eq!(
        ns(&at(Arc::new(TimestampMillisecondArray::from(vec![3])))).unwrap(),
        3_000_000
    );
    for (payload, wanted) in [
        (
            at(stamp(0, 1_000_000_000)),
            "`t.nanosec` is 1000000000 (allowed: 0 to 999999999)",
        ),
        (
            at(Arc::new(UInt64Array::from(vec![u64::MAX]))),
            "`t` is beyond int64 nanoseconds",
        ),
        (
            at(Arc::new(TimestampMillisecondArray::from(vec![i64::MAX]))),
            "`t` is beyond int64 nanoseconds",
        ),
        (at(Arc::new(Int64Array::from(vec![None::<i64>]))), "`t` is null"),
    ] {
        let words = ns(&payload).unwrap_err();
        assert!(words.contains(wanted), "{words}");
    }
}

/// A recording has the time of publication as the stamp of a message whose sender gave no other stamp.
#[test]
fn a_recorded_message_gets_the_stamp_that_a_node_would_read() {
    let recorded = |unstamped: bool| {
        let mut header = Header::default();
        header.timestamp_ns.set(9);
        if unstamped {
            header.unstamped.set(1);
        }
        header.other.set("timestamp").assign(MetadataRef::Float(0.5));
        header.other.set("at").assign(MetadataRef::Integer(3));
        header
    };
    let told = Selection::samples(1, Some(from("stamp: { metadata: at, unit: ms }")));
    for (reading, unstamped, wanted) in [
        (Selection::samples(1, None), false, 9),
        (Selection::samples(1, None), true, S / 2),
        (told.clone(), false, 3_000_000),
        (told.clone(), true, 3_000_000),
    ] {
        let mut header = recorded(unstamped);
        reading.restamp(&mut header).unwrap();
        assert_eq!(
            (header.timestamp_ns.get(), header.unstamped.get()),
            (Some(wanted), None)
        );
    }
    let mut without = Header::default();
    without.timestamp_ns.set(9);
    let refused = told.restamp(&mut without).unwrap_err().to_string();
    assert!(refused.contains("`metadata at` is not there"), "{refused}");
    assert_eq!(without.timestamp_ns.get(), Some(9));
}

#[test]
fn stamps_are_what_the_metadata_say() {
    let flat = doubles(&[1.0]);
    let ns = |text: Option<&str>, metadata: &[(&str, MetadataRef<'_>)]| {
        let mut message = Message::default();
        let mut selector = Selector::new(Selection::samples(1, text.map(from)));
        let read = selector.read(metadata.iter().copied(), &flat, &mut message);
        read.map(|()| message.header.timestamp_ns.get())
            .map_err(|error| error.to_string())
    };
    let unit = |unit: &str| format!("stamp: {{ metadata: at, unit: {unit} }}");
    let at = |value| [(key::timestamp_ns, MetadataRef::Integer(9)), ("at", value)];
    for (text, value, wanted) in [
        ("s", MetadataRef::Float(1.25), 5 * S / 4),
        ("s", MetadataRef::Float(-0.5), -S / 2),
        ("ms", MetadataRef::Integer(3), 3_000_000),
        ("us", MetadataRef::Float(2.5), 2500),
        ("ns", MetadataRef::Integer(-4), -4),
        ("ns", MetadataRef::Timestamp(8), 8),
    ] {
        assert_eq!(ns(Some(&unit(text)), &at(value)), Ok(Some(wanted)), "{text}");
    }
    for (value, wanted) in [
        (
            MetadataRef::Integer(i64::MAX),
            "`metadata at` is Integer(9223372036854775807)",
        ),
        (
            MetadataRef::Float(f64::NAN),
            "`metadata at` is Float(NaN) (allowed: an Integer or a Float",
        ),
        (MetadataRef::Float(1e300), "`metadata at` is Float(1e300)"),
        (MetadataRef::String("5"), "`metadata at` is String(\"5\")"),
    ] {
        let words = ns(Some(&unit("s")), &at(value)).unwrap_err();
        assert!(words.contains(wanted), "{words}");
    }
    assert!(
        ns(Some(&unit("s")), &[])
            .unwrap_err()
            .contains("`metadata at` is not there")
    );
    // Seconds under the key `timestamp` of other nodes are the stamp if there is no `timestamp_ns`.
    let seconds = ("timestamp", MetadataRef::Float(0.002));
    assert_eq!(ns(None, &[seconds]), Ok(Some(2_000_000)));
    assert_eq!(
        ns(None, &[seconds, (key::timestamp_ns, MetadataRef::Integer(5))]),
        Ok(Some(5))
    );
    assert_eq!(ns(None, &[("timestamp", MetadataRef::Float(f64::INFINITY))]), Ok(None));
    // The default selection, such as that of a recorder, gets that stamp, too.
    let mut message = Message::default();
    let mut selector = Selector::new(Selection::default());
    selector.read([seconds], &flat, &mut message).unwrap();
    assert_eq!(message.timestamp_ns(), 2_000_000);
}

#[test]
fn a_stamp_of_the_sender_goes_before_one_that_is_recognised() {
    let payload = structure(vec![("header", header()), ("pose", pose())]);
    let metadata = [
        (key::timestamp_ns, MetadataRef::Integer(5)),
        (key::shape, MetadataRef::ListInt(&[1])),
        (key::frame_id, MetadataRef::String("map")),
        ("encoding", MetadataRef::String("pose")),
    ];
    let mut message = Message::default();
    let mut selector = Selector::new(Selection::samples(7, None));
    selector.read(metadata, &payload, &mut message).unwrap();
    assert_eq!(
        (message.timestamp_ns(), message.header.frame_id.get()),
        (5, Some("map"))
    );
    // The `shape` of the struct does not hold for the values.
    assert!(!message.header.shape.is_present());
    assert_eq!(
        message.header.other.get("encoding"),
        Some(&MetadataValue::String("pose".into()))
    );
    let mut selector = selector_of(3, "{ columns: [pose.position], stamp: header.stamp }");
    selector.read(metadata, &payload, &mut message).unwrap();
    assert_eq!(message.timestamp_ns(), 3 * S / 2);
}

#[test]
fn what_was_taken_before_stays_as_it_is() {
    let mut selector = selector_of(2, BY_NAME);
    let taken = read(&mut selector, &joint_state(&["a", "b"], &[1.0, 2.0])).unwrap();
    assert_eq!(taken.header.fields.get().unwrap(), ["b", "a"]);

    let again = |selector: &mut Selector, stamp_ns: Option<i64>, names: &[String]| {
        let stamp = stamp_ns.map(|stamp_ns| (key::timestamp_ns, MetadataRef::Integer(stamp_ns)));
        let names = (!names.is_empty()).then_some((key::fields, MetadataRef::ListString(names)));
        let mut message = Message::default();
        selector.read(stamp.into_iter().chain(names), &doubles(&values(&taken)), &mut message)?;
        Ok::<_, MessageError>((values(&message), message.timestamp_ns()))
    };
    let names = taken.header.fields.get().unwrap();
    assert_eq!(again(&mut selector, Some(7), names).unwrap(), (vec![2.0, 1.0], 7));
    // A payload without a stamp or without names is refused.
    for (stamp_ns, names) in [(None, names), (Some(7), &[])] {
        let error = again(&mut selector, stamp_ns, names).unwrap_err().to_string();
        assert!(error.contains("a struct of one row"), "{error}");
    }
    assert!(again(&mut selector_of(2, "columns: [position]"), Some(7), &[]).is_ok());

    // The names of a message show that its values are in another order.
    assert_eq!(taken.check_fields(&from(BY_NAME).fields()), Ok(()));
    let other = from("{ columns: [position], names: { key: name, order: [a, b] } }");
    let error = taken.check_fields(&other.fields()).unwrap_err().to_string();
    assert!(
        error.starts_with("`fields` is b, a (allowed: a, b, as `from:` says;"),
        "{error}"
    );
    let two = from("{ columns: [position, velocity], names: { key: name, order: [b, a] } }");
    assert_eq!(two.fields(), ["position.b", "position.a", "velocity.b", "velocity.a"]);
    let both = read(
        &mut Selector::new(Selection::samples(4, Some(two.clone()))),
        &joint_state(&["a", "b"], &[1.0, 2.0]),
    );
    assert_eq!(both.unwrap().check_fields(&two.fields()), Ok(()));
    assert_eq!(Message::default().check_fields(&two.fields()), Ok(()));
    assert_eq!(taken.check_fields(&from("columns: [position]").fields()), Ok(()));
}
