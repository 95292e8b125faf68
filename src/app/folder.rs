//! Checks that files can be written to a folder.

use std::fs;
use std::path::Path;

/// Checks that files can be made in a folder, which may not exist yet. As a trial it makes and removes a folder there.
///
/// # Errors
/// The reason why they can't be made, and what is allowed.
pub(super) fn check(folder: &Path) -> Result<(), String> {
    let allowed = "(allowed: a folder that can be written to, or made)";
    let is_there = |path: &&Path| !path.as_os_str().is_empty() && path.symlink_metadata().is_ok();
    let there = folder.ancestors().find(is_there).unwrap_or(Path::new("."));
    if !there.is_dir() {
        return Err(format!("{} is not a folder {allowed}", there.display()));
    }
    let probe = there.join(format!(".robocache-check-{}", std::process::id()));
    let made = fs::create_dir(&probe).and_then(|()| fs::remove_dir(&probe));
    made.map_err(|error| format!("nothing can be made in {}: {error} {allowed}", there.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_folder_and_can_not_become_one_is_named() {
        let folder = std::env::temp_dir().join(format!("robocache-folder-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("file"), "").unwrap();
        assert_eq!(check(&folder.join("a/b")), Ok(()));
        for path in ["file", "file/a/b"] {
            let words = check(&folder.join(path)).unwrap_err();
            assert!(words.contains("file is not a folder (allowed: "), "{words}");
        }
        let words = check(Path::new("/proc/foo")).unwrap_err();
        assert!(words.starts_with("nothing can be made in /proc: "), "{words}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }
}
