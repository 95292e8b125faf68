//! Assertions in C++ of the structs, constants and codes that Rust shares with the kernels.
//!
//! Each operation lists those that it shares in a test, which writes a header into `target/layout`. `make check-layout` compiles
//! the headers against the kernels with a C++ compiler.

use robocache_device::Dtype;
use std::fmt::{Display, Write};
use std::path::Path;

/// Header of C++ assertions, which are compiled against one file of kernels.
pub(crate) struct Header {
    kernels: &'static str,
    text: String,
}

impl Header {
    /// Creates the header of `kernels/<kernels>.cu`, with the codes of element types, which all kernels share.
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

    /// Asserts the code of each variant of an enum, and that the kernels have no other variant.
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

    /// Asserts that a constant of this name has this value in the kernels.
    pub(crate) fn constant(&mut self, name: &str, value: impl Display) {
        self.assert(name, name, value);
    }

    /// Asserts the size of a struct of the kernels, bytes.
    pub(crate) fn size(&mut self, name: &str, bytes: usize) {
        self.assert(&format!("sizeof({name})"), &format!("the size of {name}"), bytes);
    }

    /// Asserts the offset and the size of a member of a struct. A member `unused`, which fills the end of a struct, is left out: it
    /// has no name in C++.
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

    /// Writes the header to `target/layout`.
    pub(crate) fn write(&self) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/layout");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(self.kernels).with_extension("h"), &self.text).unwrap();
    }
}

/// Asserts the layout of structs with all their fields. A field is followed by its name in the kernels if that differs. A list
/// without one of the fields does not compile.
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

/// Asserts the values of constants. A constant is followed by its name in the kernels if that differs.
macro_rules! shared_constants {
    ($header:ident: $($rust:ident $(= $name:literal)?),* $(,)?) => {
        $($header.constant([$($name,)? stringify!($rust)][0], $rust);)*
    };
}

pub(crate) use {shared_constants, shared_structs};
