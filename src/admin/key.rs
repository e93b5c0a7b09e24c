//! The key of a gateway for which none is configured: made at the first start, kept beside the
//! store, and shown once if a person is there to see it.
#![allow(clippy::print_stderr)] // It is for whoever started the process, and not for the log.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{ErrorKind, IsTerminal, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::store::durable;

/// Random bytes of a key: as many as the digest it is compared by is worth guessing.
const BYTES: usize = 16;
/// A file longer than this is no key.
const LONGEST: u64 = 4096;

/// Reads the key from a file, or makes it.
///
/// # Errors
/// When the file can be neither read nor written.
pub fn kept_in(file: &Path) -> anyhow::Result<String> {
    let failed = |e: std::io::Error| anyhow::anyhow!("the admin key {}: {e}", file.display());
    match OpenOptions::new().read(true).open(file) {
        Ok(open) => {
            keep_private(&open, file);
            let mut text = String::new();
            open.take(LONGEST)
                .read_to_string(&mut text)
                .map_err(failed)?;
            let key = text.trim();
            anyhow::ensure!(
                !key.is_empty(),
                "the admin key {} is empty: remove the file, and a key is made",
                file.display()
            );
            Ok(key.to_owned())
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let key = made()?;
            if let Some(folder) = file.parent() {
                durable::make_folder(folder).map_err(failed)?;
            }
            // Whole or not at all: an empty file would keep the next start from making one.
            durable::replace(file, durable::line(&key)).map_err(failed)?;
            eprintln!("{}", told(&key, file, std::io::stderr().is_terminal()));
            Ok(key)
        }
        Err(e) => Err(failed(e)),
    }
}

/// What is said of a new key. Whatever collects the output of services keeps it for months, readable
/// for more people than the file: there, only a terminal gets the key itself.
fn told(key: &str, file: &Path, terminal: bool) -> String {
    let file = file.display();
    match terminal {
        true => format!(
            "admin key: {key}\nMade for this gateway and kept in {file}; send it as X-API-KEY. It is not shown again."
        ),
        false => {
            format!("admin key: made for this gateway, read it in {file} and send it as X-API-KEY")
        }
    }
}

/// Takes away what others may do with the file. Where that cannot be done, for one that is mounted
/// say, it is used as it is.
fn keep_private(open: &File, file: &Path) {
    let mode = open
        .metadata()
        .map(|meta| meta.permissions().mode() & 0o777);
    let others = mode.unwrap_or_default() & 0o077;
    if others == 0 {
        return;
    }
    let file = file.display();
    match open.set_permissions(Permissions::from_mode(0o600)) {
        Ok(()) => tracing::warn!(
            %file,
            "the admin key was open to others, which is mended; if they read it, remove the file and restart"
        ),
        Err(error) => tracing::warn!(%file, %error, "the admin key is open to others"),
    }
}

fn made() -> anyhow::Result<String> {
    let mut bytes = [0; BYTES];
    openssl::rand::rand_bytes(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once() {
        let file = std::env::temp_dir().join(format!("lockgate-key-{}", std::process::id()));
        let _ = std::fs::remove_file(&file);
        let key = kept_in(&file).unwrap();
        assert_eq!(key.len(), 2 * BYTES);
        assert_eq!(kept_in(&file).unwrap(), key);
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // Copied about by somebody, it is closed again.
        std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(kept_in(&file).unwrap(), key);
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(&file, "\n").unwrap();
        assert!(kept_in(&file).is_err());
        let _ = std::fs::remove_file(&file);
        assert_ne!(made().unwrap(), made().unwrap());
    }

    #[test]
    fn only_a_terminal_gets_the_key() {
        let file = Path::new("data/admin.key");
        for terminal in [true, false] {
            let text = told("secret", file, terminal);
            assert!(text.contains("data/admin.key"), "{text}");
            assert_eq!(text.contains("secret"), terminal, "{text}");
        }
    }
}
