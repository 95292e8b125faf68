//! C++ header of assertions about the structs, constants and enum codes that Rust shares with the kernels.
//!
//! A test of each operation lists what the operation shares, and writes a header into `target/layout`. In `make check-layout`,
//! a C++ compiler compiles the headers with the kernels.

use robocache_device::Dtype;
use std::fmt::{Display, Write};
use std::path::Path;

/// Header of C++ assertions, to be compiled with one file of kernels.
pub(crate) struct Header {
    kernels: &'static str,
    text: String,
}

impl Header {
    /// Creates the header for `kernels/<kernels>.cu`. It begins with the codes of element types, which all kernels share.
    pub(crate) fn new(kernels: &'static str) -> Self {
        let mut header = Self {
            kernels,
            text: "#include <stddef.h>\n".into(),
        };
        header.codes("Dtype", &Dtype::ALL.map(|dtype| (format!("{dtype:?}"), dtype.code())));
        header
    }

    fn assert(&mut self, what: &str, of: &str, value: impl Display) {
        let _ = writeln!(
            self.text,
            "static_assert({what} == {value}, \"{of} is {value} in Rust\");"
        );
    }

    /// Adds assertions that the kernels' enum `name` has each variant with its code. The compiler also reports a variant that
    /// only the kernels have.
    pub(crate) fn codes(&mut self, name: &str, variants: &[(String, u32)]) {
        let variants: Vec<_> = variants
            .iter()
            .map(|(name, code)| (name.to_uppercase(), code))
            .collect();
        for (variant, code) in &variants {
            self.assert(variant, &format!("{name}::{variant}"), code);
        }
        let cases: String = variants
            .iter()
            .map(|(variant, _)| format!("case {variant}: "))
            .collect();
        let _ = writeln!(
            self.text,
            "inline void every({name} code) {{ switch (code) {{ {cases}break; }} }}"
        );
    }

    /// Adds an assertion that the constant `name` has this value in the kernels.
    pub(crate) fn constant(&mut self, name: &str, value: impl Display) {
        self.assert(name, name, value);
    }

    /// Adds an assertion that the struct `name` of the kernels has this size, bytes.
    pub(crate) fn size(&mut self, name: &str, bytes: usize) {
        self.assert(&format!("sizeof({name})"), &format!("the size of {name}"), bytes);
    }

    /// Adds assertions of the offset and the size of a struct member, bytes. Skips a member `unused`, the padding at the end of
    /// a struct: it has no name in C++.
    pub(crate) fn member<S, T>(&mut self, name: &str, member: &str, offset: usize, _field: impl Fn(&S) -> &T) {
        if member != "unused" {
            let of = format!("{name}.{member}");
            self.assert(
                &format!("offsetof({name}, {member})"),
                &format!("the offset of {of}"),
                offset,
            );
            let size = format!("sizeof((({name} *)0)->{member})");
            self.assert(&size, &format!("the size of {of}"), size_of::<T>());
        }
    }

    /// Writes the header to `target/layout/<kernels>.h`.
    pub(crate) fn write(&self) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/layout");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(self.kernels).with_extension("h"), &self.text).unwrap();
    }
}

/// Adds assertions of the layout of structs to a header. The list must have all fields of a struct; otherwise it does not
/// compile. A field is followed by its name in the kernels if that differs.
macro_rules! shared_structs {
    ($header:ident: $($rust:ident = $name:literal { $($field:ident $(= $member:literal)?),* $(,)? })*) => {$(
        let _ = |value: &$rust| {
            let $rust { $($field: _),* } = value;
        };
        $header.size($name, size_of::<$rust>());
        $(
            let member = [$($member,)? stringify!($field)][0];
            let offset = std::mem::offset_of!($rust, $field);
            $header.member($name, member, offset, |value: &$rust| &value.$field);
        )*
    )*};
}

/// Adds assertions of the values of constants to a header. A constant is followed by its name in the kernels if that differs.
macro_rules! shared_constants {
    ($header:ident: $($rust:ident $(= $name:literal)?),* $(,)?) => {
        $($header.constant([$($name,)? stringify!($rust)][0], $rust);)*
    };
}

pub(crate) use {shared_constants, shared_structs};
