//! Tests with malformed schemas and messages: they are refused or read, in bounded memory.

#![allow(clippy::unwrap_used)]

use super::decoder::{Decoder, Encoding};
use super::plan::Plan;
use super::tally::Tally;
use super::types::Type;
use super::{descriptor, json};
use arrow_array::Array;
use std::sync::Arc;

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

fn bytes(field: u64, value: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(value.len() as u64), value.to_vec()].concat()
}

/// Encodes a `DescriptorProto` of fields, each given as number, label, type and name of the type.
fn message(name: &str, fields: &[(u64, u64, u64, &str)]) -> Vec<u8> {
    let field = |&(at, label, of, type_name): &(u64, u64, u64, &str)| {
        let named = bytes(6, type_name.as_bytes());
        let name = bytes(1, format!("f{at}").as_bytes());
        bytes(
            2,
            &[name, number(3, at), number(4, label), number(5, of), named].concat(),
        )
    };
    let fields: Vec<u8> = fields.iter().flat_map(field).collect();
    bytes(4, &[bytes(1, name.as_bytes()), fields].concat())
}

fn set(messages: &[Vec<u8>]) -> Vec<u8> {
    bytes(1, &[bytes(2, b"p"), messages.concat(), bytes(12, b"proto3")].concat())
}

/// Random number generator (LCG), which holds its state.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    /// Returns a copy of the bytes with a few random changes.
    fn mutate(&mut self, whole: &[u8]) -> Vec<u8> {
        let mut out = whole.to_vec();
        for _ in 0..=self.below(3) {
            let at = self.below(out.len().max(1));
            match self.below(5) {
                0 => out.truncate(at),
                1 => out.splice(at..at, varint(1 << self.below(40))).for_each(drop),
                2 => out.extend_from_within(at..),
                _ if out.is_empty() => {}
                3 => drop(out.remove(at)),
                _ => out[at] = self.below(256) as u8,
            }
        }
        out
    }
}

fn read(of: Arc<Type>, encoding: Encoding, data: &[u8]) -> Result<usize, String> {
    let plan = Plan::new(Decoder::new(of, encoding), None, None);
    let payload = plan.decoder.read(data, &mut Tally::default())?;
    Ok(payload.get_array_memory_size())
}

fn read_protobuf(set: &[u8], data: &[u8]) -> Result<usize, String> {
    let (of, layout) = descriptor::from_descriptors("p.M", set)?;
    read(of, Encoding::Protobuf(layout), data)
}

fn read_json(schema: &[u8], data: &[u8]) -> Result<usize, String> {
    let of = json::type_of(schema, &json::Message::parse(data)?)?;
    read(of, Encoding::Json, data)
}

const MOST: usize = 128 << 20;

#[test]
fn wrong_bytes_are_read_or_refused() {
    let whole_set = set(&[
        message(
            "M",
            &[
                (1, 1, 1, ""),
                (2, 3, 13, ""),
                (3, 1, 11, ".p.N"),
                (4, 3, 11, ".p.N"),
                (5, 1, 9, ""),
                (6, 1, 12, ""),
            ],
        ),
        message(
            "N",
            &[(1, 1, 17, ""), (2, 3, 5, ""), (3, 1, 11, ".p.M"), (4, 3, 12, "")],
        ),
    ]);
    let inner = [
        number(1, 5),
        bytes(2, &[1, 2, 3]),
        number(2, 4),
        bytes(3, &[]),
        bytes(4, b"ab"),
    ]
    .concat();
    let data = [
        [vec![1 << 3 | 1], 1.5f64.to_le_bytes().to_vec()].concat(),
        bytes(2, &[7, 8]),
        bytes(3, &inner),
        bytes(4, &inner),
        bytes(4, &[]),
        bytes(5, "né".as_bytes()),
        bytes(6, &[0, 255]),
        vec![9 << 3 | 3, 8, 1, 9 << 3 | 4],
    ]
    .concat();
    let schema = br##"{"properties": {"a": {"type": "integer"}, "b": {"$ref": "#/d"}, "c": {"type": "array", "items": {"$ref": "#/d"}}}, "d": {"properties": {"x": {"type": "number"}, "e": {"$ref": "#/d"}}}}"##;
    let text = br#"{"a": 7, "b": {"x": 1.5}, "c": [{"x": 1, "e": {"x": 2}}, {}], "more": [[1], null, "text"]}"#;
    read_protobuf(&whole_set, &data).unwrap();
    read_json(schema, text).unwrap();
    let mut chance = Chance(1);
    for _ in 0..2000 {
        for result in [
            read_protobuf(&whole_set, &chance.mutate(&data)),
            read_protobuf(&chance.mutate(&whole_set), &data),
            read_json(schema, &chance.mutate(text)),
            read_json(&chance.mutate(schema), text),
        ] {
            assert!(result.is_err() || result.is_ok_and(|size| size < MOST));
        }
    }
}

#[test]
fn few_bytes_do_not_become_many() {
    // A list of empty elements, each of which has many fields.
    let many: Vec<_> = (1..=1000).map(|at| (at, 1, 1, "")).collect();
    let wide = set(&[message("M", &[(1, 3, 11, ".p.W")]), message("W", &many)]);
    let refused = read_protobuf(&wide, &[0x0a, 0].repeat(100_000)).unwrap_err();
    assert_eq!(refused, "`f1`: more than 4194304 missing values");
    assert!(read_protobuf(&wide, &[0x0a, 0].repeat(100)).unwrap() < 4 << 20);
    let keys: Vec<String> = (0..1000).map(|key| format!("\"k{key}\": 0")).collect();
    let text = format!("{{\"l\": [{{{}}}{}]}}", keys.join(", "), ", {}".repeat(100_000));
    assert_eq!(
        read_json(b"", text.as_bytes()).unwrap_err(),
        "`l`: `k304`: more than 4194304 missing values"
    );
    // Types of which each has ten fields of the next type.
    let step = |i: u64| {
        let next: Vec<_> = (1..=10).map(|at| (at, 1, 11, format!(".p.{}", i + 1))).collect();
        let next: Vec<_> = next
            .iter()
            .map(|(at, label, of, name)| (*at, *label, *of, name.as_str()))
            .collect();
        message(&if i == 0 { "M".to_owned() } else { i.to_string() }, &next)
    };
    let steps: Vec<_> = (0..12).map(step).chain([message("12", &[])]).collect();
    assert!(
        read_protobuf(&set(&steps), &[])
            .unwrap_err()
            .contains("(allowed: 65536)")
    );
    let tree = br##"{"$ref": "#/d", "d": {"properties": {"l": {"properties": {"l": {"$ref": "#/e"}, "r": {"$ref": "#/e"}}}}}, "e": {"properties": {"l": {"properties": {"x": {"$ref": "#/d"}}}}}}"##;
    read_json(tree, b"{}").unwrap();
    // A message within itself, and groups, 10,000 deep.
    let chain = set(&[message("M", &[(1, 1, 11, ".p.M"), (2, 1, 1, "")])]);
    let deep = (0..10_000).fold(Vec::new(), |inner, _| bytes(1, &inner));
    assert!(read_protobuf(&chain, &deep).unwrap() < 4096);
    let groups = [[3 << 3 | 3].repeat(10_000), [3 << 3 | 4].repeat(10_000)].concat();
    assert!(read_protobuf(&chain, &groups).is_ok());
    assert!(read_protobuf(&chain, &groups[1..]).is_err());
}
