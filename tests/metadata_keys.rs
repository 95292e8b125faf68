//! Checks of the source text. Metadata keys are spelled out only in the table of keys, the declared types of the nodes list all
//! of them, and nanoseconds are converted by a division.

use robocache::app::key;
use std::fs;
use std::path::{Path, PathBuf};

/// Metadata keys whose names have other meanings, too: configuration keys, columns, log fields. Code may write them as text,
/// except where it reads or writes metadata.
const OTHER_NAMES: [&str; 22] = [
    "channels",
    "device",
    "dim",
    "dtype",
    "error",
    "fields",
    "frame_id",
    "group",
    "inputs",
    "level",
    "message",
    "modalities",
    "node",
    "observations",
    "origin_m",
    "residence",
    "ring",
    "shape",
    "timestamps_ns",
    "trigger",
    "valid",
    "voxel_size_m",
];

/// Files that may write any metadata key as text: the table of keys, and an example of a sender that does not use the library.
const KEYS_AS_TEXT: [&str; 2] = ["crates/stream/src/header.rs", "examples/sensors/sensors.rs"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Lists the lines of code of the Rust files under a folder, without comments: file, line number and text.
fn lines(folder: &str) -> Vec<(String, usize, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(&root.join(folder), &mut files);
    files.sort();
    let mut lines = Vec::new();
    for file in files {
        let name = file.strip_prefix(root).unwrap().display().to_string();
        for (i, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            if !line.trim_start().starts_with("//") {
                lines.push((name.clone(), i + 1, line.trim().to_owned()));
            }
        }
    }
    lines
}

/// Code divides by 1e6 to get ms. A product with 1e-6 is not the nearest number: 200,000 ns would become 0.19999999999999998 ms.
#[test]
fn nanoseconds_are_divided_into_larger_units() {
    for (file, number, line) in ["src", "crates", "cli/src", "python/src"]
        .iter()
        .flat_map(|folder| lines(folder))
    {
        let is_test = file.contains("tests") || line.contains("assert") || line.contains("let found");
        assert!(is_test || !line.contains("as f64 * 1e-"), "{file}:{number}: {line}");
    }
}

#[test]
fn no_metadata_key_is_spelled_out() {
    let folders = ["src", "crates", "nodes", "cli/src", "examples", "benches"];
    for (file, number, line) in folders.iter().flat_map(|folder| lines(folder)) {
        if KEYS_AS_TEXT.contains(&file.as_str()) {
            continue;
        }
        for (key, _) in key::all() {
            let text = format!("\"{key}\"");
            let Some(at) = line.find(&text) else { continue };
            let is_metadata = ["Parameter::", "MetadataRef::", "MetadataValue::", "header", "metadata"]
                .iter()
                .any(|name| line.contains(name));
            let is_other = OTHER_NAMES.contains(&key) && !is_metadata;
            assert!(is_other, "{file}:{number}: {text} at {at}: {line}");
        }
    }
}

/// The types that the nodes' manifests name declare the metadata keys of the code with the same types, and no other keys.
#[test]
fn the_declared_types_know_every_key() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("types/robocache/v1.yml")).unwrap();
    let declared: serde_yaml::Value = serde_yaml::from_str(&text).unwrap();
    let mut undeclared: Vec<&str> = key::all().map(|(key, _)| key).collect();
    for (name, kind) in declared["types"].as_mapping().unwrap() {
        for entry in kind["metadata"].as_sequence().into_iter().flatten() {
            let (key, about) = (entry["key"].as_str().unwrap(), entry["description"].as_str().unwrap());
            let known = key::all().find(|(known, _)| *known == key);
            let (_, known) = known.unwrap_or_else(|| panic!("{name:?}: no such key: {key}"));
            let types = about.split([':', ',']).next().unwrap();
            assert!(
                types.split(" or ").any(|kind| kind == known),
                "{name:?}: {key}: {about}"
            );
            undeclared.retain(|name| *name != key);
        }
    }
    assert_eq!(undeclared, [] as [&str; 0], "keys that no type declares");
}
