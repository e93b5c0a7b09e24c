//! Resources from one file: `apisix.yaml` or `apisix.json`.
//!
//! A YAML file has to end with a line `#END`, so that a file that is still being
//! written is never taken for a whole one. Changes are noticed through inotify on
//! the file's folder, which also sees files that are replaced by a rename or by
//! switching a symbolic link as Kubernetes does; once a second the file is looked
//! at anyway, for file systems that notify of nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lockgate_plugin::{Problem, Problems};
use notify::Watcher;
use tokio::sync::mpsc;

use super::Batch;
use crate::config::decode::split;
use crate::document::{Document, read_json, read_yaml, substitute_env};

/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 64 << 20;
/// How often the file is looked at when nothing notifies of changes.
const POLL: Duration = Duration::from_secs(1);
/// After a notification, how long to wait for more of the same change.
const SETTLE: Duration = Duration::from_millis(20);

/// What the file is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// YAML that ends with `#END`.
    Yaml,
    /// JSON.
    Json,
}

/// A file as a source.
pub struct FileSource {
    path: PathBuf,
    format: Format,
    env: Box<dyn Fn(&str) -> Option<String> + Send + Sync>,
    /// What was read last, whether it was good or not.
    seen: Option<Stamp>,
}

/// Tells whether a file may have changed, without reading it.
#[derive(Clone, PartialEq)]
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
        FileSource { path: path.to_owned(), format, env: Box::new(env), seen: None }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the whole file.
    ///
    /// # Errors
    /// When it cannot be read, is not complete, does not parse, or does not have the layout of a
    /// configuration. Resources are not looked into here.
    pub fn load(&mut self) -> Result<Batch, Problems> {
        self.seen = stamp(&self.path);
        let name = self.path.display().to_string();
        let failed = |text: String| {
            let mut problem = Problem::new("", text);
            problem.file = Some(name.as_str().into());
            Problems::from(problem)
        };
        let meta = std::fs::metadata(&self.path).map_err(|e| failed(format!("cannot be read: {e}")))?;
        if meta.len() > MAX_FILE {
            return Err(failed(format!("is {} bytes long; allowed are {MAX_FILE}", meta.len())));
        }
        let bytes = std::fs::read(&self.path).map_err(|e| failed(format!("cannot be read: {e}")))?;
        let document = self.parse(&bytes, &name)?;
        let parts = split(document.value()).map_err(|mut problems| {
            document.locate(&mut problems, "");
            problems
        })?;
        let resources = parts
            .into_iter()
            .map(|(key, value, path)| (key, Arc::new(value.clone()), path))
            .collect();
        Ok(Batch { resources, document })
    }

    fn parse(&self, bytes: &[u8], name: &str) -> Result<Document, Problems> {
        match self.format {
            Format::Json => read_json(bytes, name),
            Format::Yaml => {
                if !has_end(bytes) {
                    let mut problem = Problem::new(
                        "",
                        "missing valid end flag: the last line has to be `#END`, so that a \
                         half-written file is not taken for a whole one",
                    );
                    problem.file = Some(name.into());
                    return Err(problem.into());
                }
                match std::str::from_utf8(bytes) {
                    Ok(text) => read_yaml(substitute_env(text, &*self.env, name)?.as_bytes(), name),
                    // The reader says where the bad bytes are.
                    Err(_) => read_yaml(bytes, name),
                }
            }
        }
    }

    /// Sends the file's content each time it changes, good or not, until the receiver is gone.
    pub async fn run(mut self, out: mpsc::Sender<Result<Batch, Problems>>) {
        let (nudge, mut nudges) = mpsc::channel::<()>(1);
        let _watcher = self.watch(nudge);
        let mut last = None;
        loop {
            let nudged = tokio::select! {
                nudged = nudges.recv() => nudged.is_some(),
                () = tokio::time::sleep(POLL) => false,
                () = out.closed() => return,
            };
            if nudged {
                tokio::time::sleep(SETTLE).await;
                while nudges.try_recv().is_ok() {}
            }
            let now = stamp(&self.path);
            if now == self.seen && !nudged {
                continue;
            }
            // A nudge may be about another file of the folder, or a touch.
            let content = std::fs::read(&self.path).ok().map(|bytes| hash(&bytes));
            if content.is_some() && content == last {
                self.seen = now;
                continue;
            }
            last = content;
            let loaded = self.load();
            if out.send(loaded).await.is_err() {
                return;
            }
        }
    }

    /// Watches the folder of the file, and of what it links to.
    fn watch(&self, nudge: mpsc::Sender<()>) -> Option<notify::RecommendedWatcher> {
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Reading the file is an event too; it must not lead to reading it again.
            if event.is_ok_and(|event| !event.kind.is_access()) {
                let _ = nudge.try_send(());
            }
        });
        let mut watcher = match watcher {
            Ok(watcher) => watcher,
            Err(error) => {
                tracing::warn!(%error, "no notification of file changes; looking once a second");
                return None;
            }
        };
        let folder = |path: &Path| path.parent().map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p }.to_owned());
        let mut folders: Vec<PathBuf> = folder(&self.path).into_iter().collect();
        if let Some(real) = std::fs::canonicalize(&self.path).ok().and_then(|path| folder(&path)) {
            folders.push(real);
        }
        folders.dedup();
        for folder in &folders {
            if let Err(error) = watcher.watch(folder, notify::RecursiveMode::NonRecursive) {
                tracing::warn!(folder = %folder.display(), %error, "folder not watched; looking once a second");
            }
        }
        Some(watcher)
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let meta = std::fs::metadata(path).ok()?;
    let inode = std::os::unix::fs::MetadataExt::ino(&meta);
    Some(Stamp { modified: meta.modified().ok(), len: meta.len(), inode })
}

fn hash(bytes: &[u8]) -> u64 {
    use std::hash::{BuildHasher, Hash, Hasher};
    let mut hasher = rustc_hash::FxBuildHasher.build_hasher();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// `#END` and nothing but white space within the last 10 bytes. Source: APISIX.
fn has_end(bytes: &[u8]) -> bool {
    let tail = &bytes[bytes.len().saturating_sub(10)..];
    let Some(at) = memchr::memmem::rfind(tail, b"#END") else { return false };
    tail[at + 4..].iter().all(u8::is_ascii_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn yaml(uri: &str) -> String {
        format!("routes:\n  - id: 1\n    uri: {uri}\n    plugins: {{}}\n#END\n")
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("lockgate-file-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn source(path: &Path) -> FileSource {
        FileSource::new(path, Format::Yaml, |_| None)
    }

    fn uri(batch: &Batch) -> String {
        batch.resources[0].1["uri"].as_str().unwrap().to_owned()
    }

    #[test]
    fn the_end_flag() {
        for text in ["a: 1\n#END", "#END\n", "x\n#END\r\n \n"] {
            assert!(has_end(text.as_bytes()), "{text:?}");
        }
        for text in ["", "a: 1\n", "#END\na: 1\nb: 2\n", "#END x"] {
            assert!(!has_end(text.as_bytes()), "{text:?}");
        }
    }

    #[test]
    fn half_a_file_is_refused() {
        let folder = folder("half");
        let path = folder.join("apisix.yaml");
        std::fs::write(&path, "routes:\n  - id: 1\n").unwrap();
        let problems = source(&path).load().err().unwrap().to_string();
        assert!(problems.contains("#END"), "{problems}");
        assert!(problems.starts_with(&path.display().to_string()), "{problems}");
    }

    #[tokio::test]
    async fn every_way_of_replacing_a_file_is_seen() {
        let folder = folder("replace");
        let path = folder.join("apisix.yaml");
        std::fs::write(folder.join("one"), yaml("/one")).unwrap();
        std::os::unix::fs::symlink(folder.join("one"), &path).unwrap();
        let mut first = source(&path);
        assert_eq!(uri(&first.load().unwrap()), "/one");
        let (tx, mut rx) = mpsc::channel(1);
        let task = tokio::spawn(first.run(tx));
        let mut next = async || {
            let got = tokio::time::timeout(10 * SECOND, rx.recv()).await.unwrap().unwrap();
            got.map(|batch| uri(&batch)).map_err(|p| p.to_string())
        };
        // A link that is switched.
        std::fs::write(folder.join("two"), yaml("/two")).unwrap();
        std::os::unix::fs::symlink(folder.join("two"), folder.join("link")).unwrap();
        std::fs::rename(folder.join("link"), &path).unwrap();
        while next().await.unwrap() != "/two" {}
        // A file that is renamed into place.
        std::fs::write(folder.join("three"), yaml("/three")).unwrap();
        std::fs::rename(folder.join("three"), &path).unwrap();
        while next().await.unwrap() != "/three" {}
        // A file that is written in place; half of it first.
        std::fs::write(&path, "routes:\n").unwrap();
        assert!(next().await.unwrap_err().contains("#END"));
        std::fs::write(&path, yaml("/four")).unwrap();
        while next().await != Ok("/four".to_owned()) {}
        task.abort();
    }
}
