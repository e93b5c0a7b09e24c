//! The last good configuration on disk: what a gateway starts from when its store is away.
//!
//! A text file of lines: what it is and its format, which store it was read from, one resource in
//! each line as the store has it (secrets are as encrypted as they are there), and the digest of all
//! that. It is replaced as a whole, so that it is never half written; one that was damaged is
//! refused.
//!
//! ```text
//! lockgate last good 1
//! {"prefix":"/apisix/","hosts":["http://127.0.0.1:2379"],"identity":1,"revision":7,"items":1}
//! {"path":"routes/1","created":5,"modified":7,"text":"{\"uri\":\"/\"}"}
//! sha256 5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9
//! ```

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use openssl::sha::Sha256;
use serde::{Deserialize, Serialize};

use super::{Accepted, Item, durable};

/// What the first line says before the number of the format.
const NAME: &str = "lockgate last good ";
/// Raised when an older version could not read what a newer one writes.
const FORMAT: u32 = 1;
/// What the last line says before the digest.
const DIGEST: &str = "sha256 ";
/// The longest file that is read: etcd itself holds no more by default.
const LONGEST: u64 = 8 << 30;
/// The longest line: the largest request that etcd takes, each byte of it escaped, is far below.
const LONGEST_LINE: u64 = 64 << 20;

/// A place for the file, and the store it is of.
#[derive(Clone, Debug)]
pub struct LastGood {
    path: PathBuf,
    prefix: String,
    hosts: Vec<String>,
}

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// It cannot be read.
    #[error("it cannot be read")]
    Read(#[source] io::Error),
    /// It is something else.
    #[error("it does not begin like such a file")]
    Foreign,
    /// Another version wrote it.
    #[error("it has format {0}, this version knows format {FORMAT}")]
    Format(String),
    /// Something in it has changed since it was written.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// It was read from somewhere else.
    #[error("it was read from etcd at {hosts} below {prefix}, which is another store")]
    Elsewhere {
        /// Where it was read from.
        hosts: String,
        /// And below what.
        prefix: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Head {
    prefix: String,
    hosts: Vec<String>,
    identity: u64,
    revision: u64,
    items: usize,
}

#[derive(Serialize, Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    path: std::borrow::Cow<'a, str>,
    created: u64,
    modified: u64,
    #[serde(borrow)]
    text: std::borrow::Cow<'a, str>,
}

impl LastGood {
    /// A place, for what is read from servers below a prefix.
    pub fn new(path: PathBuf, prefix: &str, hosts: &[String]) -> LastGood {
        LastGood {
            path,
            prefix: prefix.to_owned(),
            hosts: hosts.to_vec(),
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes what a process that was killed left unfinished.
    pub fn sweep(&self) {
        durable::sweep(&self.path);
    }

    /// Reads it. `None` when there is none.
    ///
    /// # Errors
    /// When it must not be used: it was damaged, or is of another store.
    pub fn read(&self) -> Result<Option<Accepted>, Unusable> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Unusable::Read(e)),
        };
        let mut lines = Lines {
            file: BufReader::new(file.take(LONGEST)),
            digest: Sha256::new(),
            line: Vec::new(),
        };
        let name = lines.next()?.strip_prefix(NAME).ok_or(Unusable::Foreign)?;
        if name != FORMAT.to_string() {
            return Err(Unusable::Format(name.chars().take(20).collect()));
        }
        let head: Head = serde_json::from_str(lines.next()?)
            .map_err(|_| Unusable::Damaged("the second line does not parse"))?;
        let mut items = Vec::new();
        for _ in 0..head.items {
            let line: Line<'_> = serde_json::from_str(lines.next()?)
                .map_err(|_| Unusable::Damaged("a resource does not parse"))?;
            items.push(Item {
                path: line.path.as_ref().into(),
                text: line.text.as_ref().into(),
                created: line.created,
                modified: line.modified,
            });
        }
        lines.end()?;
        if head.prefix != self.prefix || !head.hosts.iter().any(|host| self.hosts.contains(host)) {
            return Err(Unusable::Elsewhere {
                hosts: head.hosts.join(", "),
                prefix: head.prefix,
            });
        }
        Ok(Some(Accepted {
            items,
            revision: head.revision,
            identity: head.identity,
        }))
    }

    /// Replaces it. On disk when this returns.
    ///
    /// # Errors
    /// When it cannot be written; then the one before stays.
    pub fn write(&self, accepted: &Accepted) -> io::Result<()> {
        if let Some(folder) = self.path.parent().filter(|f| !f.as_os_str().is_empty()) {
            durable::make_folder(folder)?;
        }
        let head = Head {
            prefix: self.prefix.clone(),
            hosts: self.hosts.clone(),
            identity: accepted.identity,
            revision: accepted.revision,
            items: accepted.items.len(),
        };
        durable::replace(&self.path, |out| {
            let mut out = Digested {
                out,
                digest: Sha256::new(),
            };
            writeln!(out, "{NAME}{FORMAT}")?;
            out.json(&head)?;
            for item in &accepted.items {
                out.json(&Line {
                    path: (&*item.path).into(),
                    created: item.created,
                    modified: item.modified,
                    text: (&*item.text).into(),
                })?;
            }
            let Digested { out, digest } = out;
            writeln!(out, "{DIGEST}{}", hex(&digest.finish()))
        })
    }
}

/// What is read, line by line, and its digest.
struct Lines<R> {
    file: R,
    digest: Sha256,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    fn fill(&mut self) -> Result<&[u8], Unusable> {
        self.line.clear();
        let mut part = (&mut self.file).take(LONGEST_LINE);
        part.read_until(b'\n', &mut self.line)
            .map_err(Unusable::Read)?;
        let cut = Unusable::Damaged("it ends too early");
        self.line.strip_suffix(b"\n").ok_or(cut)
    }

    /// The next line, which counts for the digest.
    fn next(&mut self) -> Result<&str, Unusable> {
        self.fill()?;
        self.digest.update(&self.line);
        let line = &self.line[..self.line.len() - 1];
        std::str::from_utf8(line).map_err(|_| Unusable::Damaged("a line is no text"))
    }

    /// The last line has to be the digest of all before it.
    fn end(mut self) -> Result<(), Unusable> {
        let digest = hex(&std::mem::replace(&mut self.digest, Sha256::new()).finish());
        let said = self.fill()?.strip_prefix(DIGEST.as_bytes());
        if said != Some(digest.as_bytes()) {
            return Err(Unusable::Damaged("its digest is another"));
        }
        let more = self.file.fill_buf().map_err(Unusable::Read)?;
        match more.is_empty() {
            true => Ok(()),
            false => Err(Unusable::Damaged("it goes on behind its end")),
        }
    }
}

struct Digested<'a> {
    out: &'a mut BufWriter<File>,
    digest: Sha256,
}

impl Digested<'_> {
    fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut *self, value)?;
        self.write_all(b"\n")
    }
}

impl Write for Digested<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.digest.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A place of its own, and what is kept there.
    fn kept(name: &str) -> (LastGood, Accepted) {
        let folder = format!("lockgate-last-good-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let _ = std::fs::remove_dir_all(&folder);
        let hosts = ["http://a:1".to_owned(), "http://b:1".to_owned()];
        let place = LastGood::new(folder.join("data/last-good"), "/apisix/", &hosts);
        let item = |path: &str, text: &str| Item {
            path: path.into(),
            text: text.into(),
            created: 3,
            modified: 5,
        };
        let accepted = Accepted {
            items: vec![
                item("routes/a", "{\"uri\":\"/a\"}\n"),
                item("routes/\u{e9}", "\u{0}\" \u{1f600}"),
            ],
            revision: u64::MAX,
            identity: 9,
        };
        (place, accepted)
    }

    fn remove(place: &LastGood) {
        std::fs::remove_dir_all(place.path.parent().unwrap().parent().unwrap()).unwrap();
    }

    #[test]
    fn comes_back_as_it_was() {
        let (place, mut accepted) = kept("back");
        assert_eq!(place.read().unwrap(), None);
        place.write(&accepted).unwrap();
        assert_eq!(place.read().unwrap().as_ref(), Some(&accepted));
        let mode = std::fs::metadata(&place.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        accepted.items.clear();
        place.write(&accepted).unwrap();
        assert_eq!(place.read().unwrap().as_ref(), Some(&accepted));
        // One server in common is enough; another prefix, or none in common, is another store.
        let at = |prefix: &str, hosts: &[&str]| {
            let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
            LastGood::new(place.path.clone(), prefix, &hosts).read()
        };
        assert!(at("/apisix/", &["http://c:1", "http://b:1"]).is_ok());
        for other in [
            at("/other/", &["http://a:1"]),
            at("/apisix/", &["http://c:1"]),
        ] {
            let text = other.unwrap_err().to_string();
            assert!(
                text.contains("http://a:1, http://b:1 below /apisix/"),
                "{text}"
            );
        }
        remove(&place);
    }

    #[test]
    fn one_that_is_damaged_is_refused() {
        let (place, accepted) = kept("damaged");
        place.write(&accepted).unwrap();
        let whole = std::fs::read(&place.path).unwrap();
        // Any byte that is another, and any end that is too early.
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&place.path, &bytes).unwrap();
            assert!(place.read().is_err(), "byte {at}");
            std::fs::write(&place.path, &whole[..at]).unwrap();
            assert!(place.read().is_err(), "the first {at} bytes");
        }
        let check = |bytes: Vec<u8>, expected: &str| {
            std::fs::write(&place.path, bytes).unwrap();
            let text = place.read().unwrap_err().to_string();
            assert!(text.contains(expected), "{text}");
        };
        check([&whole[..], b"more"].concat(), "goes on behind its end");
        check(b"routes: []\n".to_vec(), "does not begin like such a file");
        check(
            b"lockgate last good 2\n".to_vec(),
            "format 2, this version knows format 1",
        );
        check(Vec::new(), "ends too early");
        remove(&place);
    }
}
