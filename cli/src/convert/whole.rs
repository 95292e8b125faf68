//! Output that appears complete or not at all. It is written in a temporary folder beside its destination, and moved there by
//! one rename.

use eyre::{WrapErr, bail, eyre};
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Suffix of the temporary folder in which an output is written, after the name of the output.
const SUFFIX: &str = ".robocache-partial";

/// Maximum number of attempts to create the temporary folder. An attempt fails if another run removes the folder meanwhile, or
/// if this run has just removed the folder with the leftovers in it.
const TRIES: usize = 16;

/// Output that is being written. It is removed on drop, unless it is [finished](Self::finish).
pub struct AtomicOutput {
    output: PathBuf,
    /// The temporary folder in which the output is written.
    partial: PathBuf,
    /// Lock of the folder, which excludes other runs for as long as this process lives.
    _lock: File,
    is_finished: bool,
}

impl AtomicOutput {
    /// Begins an output. If `discards` is true, the leftovers of a run that did not end are removed.
    ///
    /// # Errors
    /// The output exists already, another run is making it, or a run that did not end has left something and `discards`
    /// is false.
    pub fn begin(output: &Path, discards: bool) -> eyre::Result<Self> {
        if fs::symlink_metadata(output).is_ok() {
            bail!(
                "{}: it is there already (allowed: a new file or folder)",
                output.display()
            );
        }
        let Some(name) = output.file_name() else {
            bail!("{}: no name (allowed: a new file or folder)", output.display());
        };
        let mut partial = name.to_owned();
        partial.push(SUFFIX);
        let partial = output.with_file_name(partial);
        if let Some(folder) = partial.parent() {
            fs::create_dir_all(folder).wrap_err_with(|| folder.display().to_string())?;
        }
        for _ in 0..TRIES {
            if let Some(lock) = claim(&partial, output, discards)? {
                return Ok(Self {
                    output: output.to_owned(),
                    partial,
                    _lock: lock,
                    is_finished: false,
                });
            }
        }
        bail!(
            "{}: other runs make and remove it (allowed: a run after they have ended, or another name)",
            partial.display()
        )
    }

    /// Path at which to write the output. It does not exist until the caller creates it.
    pub fn path(&self) -> PathBuf {
        self.partial.join(self.output.file_name().unwrap_or_default())
    }

    /// Syncs the output to the disk, and moves it to its destination.
    ///
    /// # Errors
    /// The output can't be synced or moved, or a file appeared at its destination meanwhile.
    pub fn finish(mut self) -> eyre::Result<()> {
        let written = self.path();
        sync(&written).wrap_err_with(|| written.display().to_string())?;
        let moved = renameat_with(CWD, &written, CWD, &self.output, RenameFlags::NOREPLACE);
        let moved = match moved {
            // The file system does not know `NOREPLACE`.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) if fs::symlink_metadata(&self.output).is_err() => {
                fs::rename(&written, &self.output)
            }
            moved => moved.map_err(Into::into),
        };
        moved.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => eyre!(
                "{}: another process created it meanwhile (allowed: another name)",
                self.output.display()
            ),
            _ => eyre!("{}: {error}", self.output.display()),
        })?;
        self.is_finished = true;
        // The output is in its place. Without this sync, a loss of power could still undo the rename.
        let folder = self.partial.parent().filter(|folder| !folder.as_os_str().is_empty());
        let _ = File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all());
        let _ = fs::remove_dir(&self.partial);
        Ok(())
    }
}

impl Drop for AtomicOutput {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = fs::remove_dir_all(&self.partial);
        }
    }
}

/// Creates and locks the folder `partial`. Returns `None`, so that the caller tries again, if another run removed the folder
/// meanwhile, or if this call removed the folder with the leftovers in it.
fn claim(partial: &Path, output: &Path, discards: bool) -> eyre::Result<Option<File>> {
    let at = || partial.display().to_string();
    let is_new = match fs::create_dir(partial) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
        Err(error) => return Err(error).wrap_err_with(at),
    };
    let folder = match File::open(partial) {
        Ok(folder) => folder,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).wrap_err_with(at),
    };
    // Another run may hold the lock for a moment, to check if the run that made the folder is dead.
    let how = if is_new {
        FlockOperation::LockExclusive
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    // If the file system has no locks, a run that still writes can't be told from a dead one.
    if let Err(Errno::WOULDBLOCK) = flock(&folder, how) {
        bail!(
            "{}: another run is making {} (allowed: another name, or wait until it ends)",
            at(),
            output.display()
        );
    }
    // The previous holder of the lock may have removed the folder.
    let (held, there) = (folder.metadata()?, fs::metadata(partial));
    if !there.is_ok_and(|there| (there.dev(), there.ino()) == (held.dev(), held.ino())) {
        return Ok(None);
    }
    if is_new {
        return Ok(Some(folder));
    }
    let is_empty = fs::read_dir(partial).wrap_err_with(at)?.next().is_none();
    if !is_empty && !discards {
        bail!(
            "{}: a run that did not end has left it (allowed: --discard-partial, which removes it)",
            at()
        );
    }
    fs::remove_dir_all(partial).wrap_err_with(at)?;
    Ok(None)
}

/// Syncs a file, or a folder with everything in it, to the disk.
fn sync(path: &Path) -> std::io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            sync(&entry?.path())?;
        }
    }
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the path of an output that does not exist yet, in a temporary folder of its own.
    fn output(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("robocache-whole-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder.join("out")
    }

    fn words(result: eyre::Result<AtomicOutput>) -> String {
        result.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn it_is_there_once_it_is_whole_and_nothing_is_beside_it() {
        let out = output("moved");
        for is_folder in [true, false] {
            let whole = AtomicOutput::begin(&out, false).unwrap();
            let made = whole.path();
            if is_folder {
                fs::create_dir_all(made.join("a")).unwrap();
                fs::write(made.join("a/b"), "b").unwrap();
            } else {
                fs::write(made, "b").unwrap();
            }
            assert!(!out.exists());
            // A second run is refused at once, with `discards`, too.
            for discards in [false, true] {
                assert!(words(AtomicOutput::begin(&out, discards)).contains("another run is making"));
            }
            whole.finish().unwrap();
            let file = if is_folder { out.join("a/b") } else { out.clone() };
            assert_eq!(fs::read_to_string(file).unwrap(), "b");
            assert_eq!(fs::read_dir(out.parent().unwrap()).unwrap().count(), 1);
            assert!(words(AtomicOutput::begin(&out, true)).contains("it is there already"));
            let _ = fs::remove_dir_all(&out);
            let _ = fs::remove_file(&out);
        }
        fs::remove_dir_all(out.parent().unwrap()).unwrap();
    }

    #[test]
    fn what_a_run_left_that_did_not_end_is_named_and_removed_on_request() {
        let out = output("left");
        let whole = AtomicOutput::begin(&out, false).unwrap();
        fs::write(whole.path(), "half").unwrap();
        // A process that is killed drops nothing but its locks.
        let AtomicOutput { _lock, .. } = &whole;
        flock(_lock, FlockOperation::Unlock).unwrap();
        std::mem::forget(whole);
        let refused = words(AtomicOutput::begin(&out, false));
        assert!(
            refused.contains("out.robocache-partial: a run that did not end") && refused.contains("--discard-partial"),
            "{refused}"
        );
        let whole = AtomicOutput::begin(&out, true).unwrap();
        assert!(!whole.path().exists());
        // A run that fails leaves nothing.
        fs::write(whole.path(), "half").unwrap();
        drop(whole);
        assert_eq!(fs::read_dir(out.parent().unwrap()).unwrap().count(), 0);
        // A file that is in the way at the end is not overwritten.
        let whole = AtomicOutput::begin(&out, false).unwrap();
        fs::write(whole.path(), "new").unwrap();
        fs::write(&out, "old").unwrap();
        assert!(whole.finish().unwrap_err().to_string().contains("meanwhile"));
        assert_eq!(fs::read_to_string(&out).unwrap(), "old");
        fs::remove_dir_all(out.parent().unwrap()).unwrap();
    }
}
