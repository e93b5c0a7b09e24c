//! Files and folders that are still there, and whole, after the power was cut.
//!
//! A file that is written in place may be found half written; one that is renamed into place is the
//! old one or the new one. What a folder lists is on disk only once the folder itself is synced.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What the name of a file ends with until it is whole.
const UNFINISHED: &str = "new";

/// Makes a folder that only its owner can look into, and those above it, and has them on disk.
///
/// # Errors
/// When it cannot be made.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = folder
        .ancestors()
        .take_while(|path| !path.as_os_str().is_empty() && !path.exists())
        .collect();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    missing.into_iter().try_for_each(sync_entry)
}

/// Has the name of a file or folder on disk: what the folder that it is in says of it.
///
/// # Errors
/// When that folder cannot be synced.
pub fn sync_entry(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

/// Replaces a file by what `write` writes. It belongs to its owner alone, and after a crash it is
/// the old one or the new one.
///
/// # Errors
/// When it cannot be written; then the old one stays.
pub fn replace(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let unfinished = unfinished(path, std::process::id());
    // One that a process of the same number left behind may have other rights.
    remove(&unfinished)?;
    let written = (|| {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&unfinished)?;
        let mut out = BufWriter::new(file);
        write(&mut out)?;
        out.into_inner().map_err(io::Error::from)?.sync_all()?;
        std::fs::rename(&unfinished, path)
    })();
    if written.is_err() {
        // The first error counts.
        let _ = remove(&unfinished);
    }
    written?;
    sync_entry(path)
}

/// Removes what processes that are gone left unfinished.
pub fn sweep(path: &Path) {
    let Some(name) = path.file_name().map(|name| name.to_string_lossy()) else {
        return;
    };
    let Ok(found) = std::fs::read_dir(folder_of(path)) else {
        return;
    };
    for entry in found.flatten() {
        let entry_name = entry.file_name();
        let entry_name = entry_name.to_string_lossy();
        let process = entry_name
            .strip_prefix(&*name)
            .and_then(|rest| rest.strip_prefix('.')?.strip_suffix(UNFINISHED))
            .and_then(|rest| rest.strip_suffix('.')?.parse::<u32>().ok());
        let alive = |process: u32| Path::new(&format!("/proc/{process}")).exists();
        if process.is_some_and(|process| !alive(process)) {
            // It is in nobody's way; the next start tries again.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn unfinished(path: &Path, process: u32) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{process}.{UNFINISHED}"));
    path.with_file_name(name)
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) => Path::new("."),
        None => path,
    }
}

/// Writes a text and a line's end; what most small files are.
pub fn line(text: &str) -> impl FnOnce(&mut BufWriter<File>) -> io::Result<()> + '_ {
    move |out| writeln!(out, "{text}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn folder(name: &str) -> PathBuf {
        let name = format!("lockgate-durable-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        path
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn folders_are_made_and_kept_to_their_owner() {
        let top = folder("made");
        make_folder(&top.join("a/b")).unwrap();
        make_folder(&top.join("a/b")).unwrap();
        assert_eq!(mode(&top.join("a/b")), 0o700);
        assert!(make_folder(Path::new("/proc/no/such")).is_err());
        std::fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn a_file_is_the_old_one_or_the_new_one() {
        let top = folder("replaced");
        make_folder(&top).unwrap();
        let file = top.join("a.json");
        replace(&file, line("one")).unwrap();
        assert_eq!(mode(&file), 0o600);
        // What went wrong in the middle leaves the old one, and nothing else.
        let failed = replace(&file, |out| {
            out.write_all(b"half")?;
            out.flush()?;
            Err(io::Error::other("the disk is full"))
        });
        assert!(failed.is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "one\n");
        assert_eq!(std::fs::read_dir(&top).unwrap().count(), 1);
        replace(&file, line("two")).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "two\n");
        // Left behind by a process that is gone, by one that lives, and something else.
        let gone = unfinished(&file, u32::MAX);
        let alive = unfinished(&file, std::process::id());
        let other = top.join("a.json.bak.new");
        for path in [&gone, &alive, &other] {
            std::fs::write(path, "").unwrap();
        }
        sweep(&file);
        assert!(!gone.exists() && alive.exists() && other.exists() && file.exists());
        std::fs::remove_dir_all(&top).unwrap();
    }
}
