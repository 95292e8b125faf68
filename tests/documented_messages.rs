//! docs/messages.md lists the metadata keys of the code, each with its type.

use robocache::app::key;
use std::collections::BTreeMap;
use std::path::Path;

#[test]
fn the_page_on_messages_has_every_key_of_the_code_and_no_other() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/messages.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (_, metadata) = page.split_once("\n## Metadata\n").unwrap();
    let (metadata, _) = metadata.split_once("\n## ").unwrap();
    let row = |line: &str| {
        let (key, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
        Some((key.to_owned(), rest.split(' ').next()?.to_owned()))
    };
    let documented: BTreeMap<String, String> = metadata.lines().filter_map(row).collect();
    let known: BTreeMap<String, String> = key::all()
        .map(|(key, kind)| (key.to_owned(), kind.to_owned()))
        .collect();
    assert_eq!(documented, known);
    assert_eq!(key::all().count(), known.len(), "each stands in one block");
}
