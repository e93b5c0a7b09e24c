//! Resources from one file: `apisix.yaml` or `apisix.json`.
//!
//! A YAML file has to end with a line `#END`, so that a file that is still being
//! written is never taken for a whole one; JSON shows by itself where it ends.
//! Changes are noticed through notifications of the file's folder, which also tell
//! of files that are replaced by a rename or by switching a symbolic link as
//! Kubernetes does. Once a second the file is looked at anyway, for file systems
//! that notify of nothing. Content that did not change is not reported again.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lockgate_plugin::{Problem, Problems};
use serde_json::Value;
use tokio::sync::mpsc;

use super::{Batch, Update, json_env};
use crate::config::decode::{fingerprint, split};
use crate::document::{Document, Filling, MAX_TEXT, read_filled, read_json, read_yaml};

mod watch;

/// How often the file is looked at when nothing notifies of changes.
const POLL: Duration = Duration::from_secs(1);
/// After a notification, how long to wait for more of the same change.
const SETTLE: Duration = Duration::from_millis(20);
/// A file changed so shortly before it was read may change again without a new time: the coarsest
/// clocks of file systems count in steps of two seconds.
const YOUNG: Duration = Duration::from_secs(2);
/// How often a file is read again that changes while it is read.
const READS: usize = 3;

/// What the file is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// YAML that ends with `#END`.
    Yaml,
    /// JSON.
    Json,
}

/// Gives the value of an environment variable.
type Env = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// A file as a source.
pub struct FileSource {
    path: PathBuf,
    format: Format,
    env: Env,
    seen: Option<Seen>,
}

/// What was read last, whether it was good or not.
struct Seen {
    stamp: Option<Stamp>,
    at: SystemTime,
    /// Of the content, or of the reason why there was none.
    print: u64,
}

/// Tells whether a file may have changed, without reading it.
#[derive(Clone, Copy, PartialEq)]
struct Stamp {
    modified: Option<SystemTime>,
    len: u64,
    inode: u64,
}

impl FileSource {
    /// A source over a file. `env` gives values for `${{NAME}}`.
    pub fn new(
        path: &Path,
        format: Format,
        env: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> FileSource {
        FileSource {
            path: path.to_owned(),
            format,
            env: Box::new(env),
            seen: None,
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it is written in.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Of the content that was read last.
    pub fn print(&self) -> Option<u64> {
        Some(self.seen.as_ref()?.print)
    }

    /// Reads the whole file.
    ///
    /// # Errors
    /// When it cannot be read, is not complete, does not parse, or does not have the layout of a
    /// configuration. Resources are not looked into here.
    pub fn load(&mut self) -> Result<Batch, Problems> {
        let (read, _) = self.read();
        self.batch(read)
    }

    /// Sends the file's content each time it changes, good or not, until the receiver is gone.
    /// What [`load`](Self::load) gave before is not sent again.
    pub async fn run(mut self, out: mpsc::Sender<Update>) {
        let (nudge, mut nudges) = mpsc::channel::<()>(1);
        let mut watch = watch::Watch::start(nudge);
        let mut nudged = false;
        loop {
            watch.follow(&self.path);
            // Looked at before the first wait: it may have changed before it was watched.
            if nudged || self.may_have_changed() {
                let (read, changed) = self.read();
                if changed
                    && out
                        .send(Update::File(Box::new(self.batch(read))))
                        .await
                        .is_err()
                {
                    return;
                }
            }
            nudged = tokio::select! {
                // The sender lives in `watch`, or there are no notifications at all.
                Some(()) = nudges.recv() => true,
                () = tokio::time::sleep(POLL) => false,
                () = out.closed() => return,
            };
            if nudged {
                tokio::time::sleep(SETTLE).await;
                while nudges.try_recv().is_ok() {}
            }
        }
    }

    fn may_have_changed(&self) -> bool {
        let Some(seen) = &self.seen else { return true };
        let now = std::fs::metadata(&self.path)
            .ok()
            .map(|meta| Stamp::of(&meta));
        let young = seen
            .stamp
            .and_then(|stamp| stamp.modified)
            .is_some_and(|modified| {
                let apart = seen
                    .at
                    .duration_since(modified)
                    .unwrap_or_else(|e| e.duration());
                apart < YOUNG
            });
        now != seen.stamp || young
    }

    /// Reads the content, and tells whether it is another one than before.
    fn read(&mut self) -> (Result<Vec<u8>, String>, bool) {
        let mut stamp = None;
        let at = SystemTime::now();
        let read = whole(&self.path, &mut stamp);
        let print = match &read {
            Ok(bytes) => content(bytes),
            Err(text) => fingerprint(&Value::from(text.as_str())),
        };
        let changed = self.seen.as_ref().is_none_or(|seen| seen.print != print);
        self.seen = Some(Seen { stamp, at, print });
        (read, changed)
    }

    /// What a file with these bytes holds.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn parse(&self, bytes: &[u8]) -> Result<Batch, Problems> {
        let mut batch = self.parts(bytes)?;
        batch.print = content(bytes);
        Ok(batch)
    }

    fn parts(&self, bytes: &[u8]) -> Result<Batch, Problems> {
        let name = self.path.display().to_string();
        match self.format {
            Format::Json if is_blank(bytes) => Err(self.failed(
                "holds no configuration: write `{}` for an empty one, so that a file that was \
                 emptied by mistake is not taken for one",
            )),
            Format::Json => self.json(read_json(bytes, &name)?),
            Format::Yaml if !has_end(bytes) => Err(self.failed(
                "missing valid end flag: the last line has to be `#END`, so that a half-written \
                 file is not taken for a whole one",
            )),
            Format::Yaml => {
                let document = match std::str::from_utf8(bytes) {
                    Ok(text) => read_filled(text, &*self.env, &name)?,
                    // The reader says where the bad bytes are.
                    Err(_) => read_yaml(bytes, &name)?,
                };
                batch(document, None)
            }
        }
    }

    fn batch(&self, read: Result<Vec<u8>, String>) -> Result<Batch, Problems> {
        let bytes = read.map_err(|text| self.failed(&text))?;
        self.parse(&bytes)
    }

    /// A problem of the file as a whole.
    fn failed(&self, text: &str) -> Problems {
        let mut problem = Problem::new("", text);
        problem.file = Some(self.path.display().to_string().into());
        problem.into()
    }

    fn json(&self, document: Document) -> Result<Batch, Problems> {
        if !json_env::refers(document.value()) {
            return batch(document, None);
        }
        let mut filled = document.value().clone();
        let mut out = Problems::default();
        let filling = Filling::new(&*self.env);
        json_env::fill(&mut filled, &|name| filling.get(name), &mut out);
        let document = document.hiding(filling.into_hidden());
        document.locate(&mut out, "");
        out.into_result()?;
        batch(document, Some(filled))
    }
}

/// The resources of a document, or of its `filled` copy.
fn batch(document: Document, filled: Option<Value>) -> Result<Batch, Problems> {
    let mut warnings = Problems::default();
    let whole = filled.as_ref().unwrap_or_else(|| document.value());
    let resources = split(whole, &mut warnings).map_err(|mut problems| {
        document.locate(&mut problems, "");
        problems
    })?;
    document.locate(&mut warnings, "");
    Ok(Batch {
        resources,
        document,
        filled,
        warnings,
        print: 0,
    })
}

/// Reads a file that does not change meanwhile. `stamp` gets what the file was when it was read.
fn whole(path: &Path, stamp: &mut Option<Stamp>) -> Result<Vec<u8>, String> {
    let failed = |e: std::io::Error| format!("cannot be read: {e}");
    // Asked before opening: to open a pipe would wait for a writer.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err("cannot be read: not a regular file".to_owned());
    }
    for _ in 0..READS {
        let file = File::open(path).map_err(failed)?;
        let before = Stamp::of(&file.metadata().map_err(failed)?);
        *stamp = Some(before);
        if before.len > MAX_TEXT as u64 {
            return Err(format!(
                "is {} bytes long; at most {MAX_TEXT} are read",
                before.len
            ));
        }
        let mut bytes = Vec::with_capacity(before.len as usize);
        // One byte more than there should be, to see that there is more.
        (&file)
            .take(before.len + 1)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        let after = Stamp::of(&file.metadata().map_err(failed)?);
        if after == before && bytes.len() as u64 == before.len {
            return Ok(bytes);
        }
    }
    Err("is being written: it changed each time it was read".to_owned())
}

impl Stamp {
    fn of(meta: &std::fs::Metadata) -> Stamp {
        Stamp {
            modified: meta.modified().ok(),
            len: meta.len(),
            inode: meta.ino(),
        }
    }
}

/// A hash of the content.
fn content(bytes: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// Whether JSON text holds nothing, or `null`.
fn is_blank(bytes: &[u8]) -> bool {
    let text = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    matches!(text.trim_ascii(), b"" | b"null")
}

/// `#END` and nothing but white space within the last 10 bytes. Source: APISIX.
fn has_end(bytes: &[u8]) -> bool {
    let tail = &bytes[bytes.len().saturating_sub(10)..];
    let Some(at) = memchr::memmem::rfind(tail, b"#END") else {
        return false;
    };
    tail[at + 4..].iter().all(u8::is_ascii_whitespace)
}

#[cfg(test)]
mod tests;
