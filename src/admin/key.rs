//! The key of a gateway for which none is configured: made at the first start, kept beside the
//! store, shown once.
#![allow(clippy::print_stderr)] // A secret goes to whoever started the process, not into the log.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
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
            eprintln!(
                "admin key: {key}\nMade for this gateway and kept in {}; send it as X-API-KEY. It is not shown again.",
                file.display()
            );
            Ok(key)
        }
        Err(e) => Err(failed(e)),
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
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_made_once() {
        let file = std::env::temp_dir().join(format!("lockgate-key-{}", std::process::id()));
        let _ = std::fs::remove_file(&file);
        let key = kept_in(&file).unwrap();
        assert_eq!(key.len(), 2 * BYTES);
        assert_eq!(kept_in(&file).unwrap(), key);
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(&file, "\n").unwrap();
        assert!(kept_in(&file).is_err());
        let _ = std::fs::remove_file(&file);
        assert_ne!(made().unwrap(), made().unwrap());
    }
}
