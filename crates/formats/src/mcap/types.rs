//! Message types as a bag describes them. A type has a bounded number of values, whatever its description says.

use arrow_schema::{DataType, Field as ArrowField, Fields};
use robocache_device::Dtype;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Largest number of values and structs in a type; the elements of a sequence count as one.
const MOST_VALUES: usize = 65_536;

/// A message type, or a struct within one: its fields in their order.
#[derive(Debug, PartialEq)]
pub(super) struct Type {
    pub fields: Vec<Field>,
    /// Number of values and structs in the type; the elements of a sequence count as one.
    values: usize,
}

#[derive(Debug, PartialEq)]
pub(super) struct Field {
    pub name: String,
    pub kind: Kind,
    pub count: Count,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// A boolean that stays a boolean, as point clouds need it.
    Bool,
    /// A boolean that becomes a uint8 of 0 or 1.
    Flag,
    Number(Dtype),
    Text,
    /// A byte string as an element of a list. A field of bytes that is not in a list becomes a list of uint8 instead.
    Bytes,
    Struct(Arc<Type>),
    /// A field that is not decoded, such as a message type that contains itself.
    Opaque,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    One,
    /// An array of this number of elements.
    Array(usize),
    /// A list of variable length, which each message gives.
    Sequence,
}

impl Kind {
    fn arrow_type(&self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Flag => DataType::UInt8,
            Self::Number(dtype) => dtype.arrow_type(),
            Self::Text => DataType::Utf8,
            Self::Bytes => DataType::Binary,
            Self::Opaque => DataType::Null,
            Self::Struct(of) => DataType::Struct(of.arrow_fields()),
        }
    }
}

impl Type {
    /// Returns the fields of the Arrow struct array that a message becomes. They are those of dora's ROS 2 bridge, except that
    /// arrays have their length in the type.
    pub(super) fn arrow_fields(&self) -> Fields {
        let fields = self.fields.iter().map(|field| {
            let one = field.kind.arrow_type();
            let item = || Arc::new(ArrowField::new("item", one.clone(), true));
            let all = match field.count {
                Count::One => one,
                Count::Array(n) => DataType::FixedSizeList(item(), n as i32),
                Count::Sequence => DataType::List(item()),
            };
            ArrowField::new(&field.name, all, true)
        });
        fields.collect()
    }

    /// True if the type has no values: only structs without values, or no fields.
    pub(super) fn is_empty(&self) -> bool {
        let is_empty = |field: &Field| matches!(&field.kind, Kind::Struct(of) if of.is_empty());
        self.fields.iter().all(is_empty)
    }

    /// Makes the type with these fields, in their order.
    ///
    /// # Errors
    /// If the fields have more values than a type may have, or two fields have the same name.
    pub(super) fn new(fields: Vec<Field>) -> Result<Arc<Self>, String> {
        let mut names = HashSet::with_capacity(fields.len());
        if let Some(twice) = fields.iter().find(|field| !names.insert(field.name.as_str())) {
            return Err(format!("a type with two fields `{}`", twice.name));
        }
        let of = |field: &Field| match &field.kind {
            Kind::Struct(of) => of.values.saturating_add(1),
            _ => 1,
        };
        let values = fields.iter().map(of).fold(0, usize::saturating_add);
        match values {
            ..=MOST_VALUES => Ok(Arc::new(Self { fields, values })),
            _ => Err(format!("a type of {values} values (allowed: {MOST_VALUES})")),
        }
    }
}

/// Parses a `ros2msg` schema: the fields of the type `name`, and then those of the types nested in it. A line of `=` and a line
/// with the type's name precede each nested type.
pub(super) fn from_ros2msg(name: &str, text: &str) -> Result<Arc<Type>, String> {
    let mut texts = HashMap::from([
        ("builtin_interfaces/Time".to_owned(), "int32 sec\nuint32 nanosec"),
        ("builtin_interfaces/Duration".to_owned(), "int32 sec\nuint32 nanosec"),
    ]);
    let mut current = (short(name), 0);
    let mut at = 0;
    let mut lines = text.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let from = at;
        at += line.len();
        let is_rule = line.trim().len() >= 40 && line.trim().bytes().all(|byte| byte == b'=');
        let next = lines.peek().and_then(|next| next.trim().strip_prefix("MSG:"));
        if let Some(next) = next.filter(|_| is_rule) {
            let (name, begins) = std::mem::replace(&mut current, (short(next.trim()), 0));
            texts.insert(name, &text[begins..from]);
            at += lines.next().map_or(0, str::len);
            current.1 = at;
        }
    }
    texts.insert(current.0, &text[current.1..]);
    let mut types = Types {
        texts,
        made: HashMap::new(),
        open: Vec::new(),
    };
    types.find(&short(name))
}

/// Shortens the name of a type from `package/msg/Name` to `package/Name`.
fn short(name: &str) -> String {
    let name = name.trim();
    match (name.split_once('/'), name.rsplit_once('/')) {
        (Some((package, _)), Some((_, name))) => format!("{package}/{name}"),
        _ => name.to_owned(),
    }
}

struct Types<'a> {
    texts: HashMap<String, &'a str>,
    made: HashMap<String, Arc<Type>>,
    /// Names of the types under construction, from the outermost to the innermost.
    open: Vec<String>,
}

impl Types<'_> {
    fn find(&mut self, name: &str) -> Result<Arc<Type>, String> {
        if let Some(made) = self.made.get(name) {
            return Ok(made.clone());
        }
        if self.open.iter().any(|open| open == name) || self.open.len() > 32 {
            return Err(format!("type `{name}` is in itself, or 32 deep in others"));
        }
        let Some(&text) = self.texts.get(name) else {
            return Err(format!("type `{name}` is not described"));
        };
        self.open.push(name.to_owned());
        let mut fields = Vec::new();
        let lines = text.lines().filter_map(|line| line.split('#').next());
        let lines = lines.map(str::trim);
        for line in lines.filter(|line| !line.is_empty()) {
            fields.extend(self.field(name, line)?);
        }
        if fields.is_empty() {
            // CDR has a byte for a struct without fields.
            fields.push(Field {
                name: "structure_needs_at_least_one_member".to_owned(),
                kind: Kind::Number(Dtype::UInt8),
                count: Count::One,
            });
        }
        self.open.pop();
        let made = Type::new(fields)?;
        self.made.insert(name.to_owned(), made.clone());
        Ok(made)
    }

    /// Parses a line of a `ros2msg` schema as a field of the type `within`; `None` for a line that defines a constant.
    fn field(&mut self, within: &str, line: &str) -> Result<Option<Field>, String> {
        let package = within.split_once('/').map_or("", |(package, _)| package);
        let refused = || format!("line `{line}` is not a field (allowed: a type and a name)");
        let (of, rest) = line.split_once(char::is_whitespace).ok_or_else(refused)?;
        let rest = rest.trim_start();
        let name_end = rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_'))
            .unwrap_or(rest.len());
        let (name, behind) = rest.split_at(name_end);
        if name.is_empty() {
            return Err(refused());
        }
        if behind.trim_start().starts_with('=') {
            return Ok(None);
        }
        let (of, count) = match of.strip_suffix(']').and_then(|of| of.rsplit_once('[')) {
            None => (of, Count::One),
            Some((of, "")) => (of, Count::Sequence),
            Some((of, bound)) if bound.starts_with("<=") => (of, Count::Sequence),
            Some((of, n)) => match n.parse() {
                Ok(n @ 1..=0x7fff_ffff) => (of, Count::Array(n)),
                _ => return Err(refused()),
            },
        };
        // The bound on a text's length is dropped.
        let of = of.split_once("<=").map_or(of, |(of, _)| of);
        // ROS has our names of number types, but neither float16 nor bfloat16.
        let number = Dtype::from_name(of).filter(|dtype| !matches!(dtype, Dtype::Float16 | Dtype::BFloat16));
        let kind = match (of, number) {
            ("bool", _) if within == "sensor_msgs/PointCloud2" => Kind::Bool,
            ("bool", _) => Kind::Flag,
            ("byte" | "char", _) => Kind::Number(Dtype::UInt8),
            (_, Some(dtype)) => Kind::Number(dtype),
            ("string", _) => Kind::Text,
            ("wstring", _) => return Err(format!("`{line}`: a wstring (allowed: string)")),
            ("Header", _) => Kind::Struct(self.find("std_msgs/Header")?),
            ("time" | "Time", _) if package == "builtin_interfaces" => {
                Kind::Struct(self.find("builtin_interfaces/Time")?)
            }
            (other, _) if other.contains('/') => Kind::Struct(self.find(&short(other))?),
            (other, _) => Kind::Struct(self.find(&format!("{package}/{other}"))?),
        };
        Ok(Some(Field {
            name: name.to_owned(),
            kind,
            count,
        }))
    }
}

/// True if the fields have exactly these names, in any order.
pub(super) fn has_all(fields: &Fields, names: &[&str]) -> bool {
    fields.len() == names.len() && names.iter().all(|name| fields.find(name).is_some())
}
