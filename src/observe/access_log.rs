//! The access log: a format compiled once, lines written by one thread.
//!
//! A request formats its line into a buffer of its own and hands it over
//! through a queue that is bounded in lines and bytes. When the disk cannot keep up, lines are dropped and
//! counted rather than requests delayed.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use lockgate_plugin::{Var, VarSource, VarValue};

/// Lines waiting for the writer.
const QUEUE: usize = 65_536;
/// Bytes waiting for the writer: lines are as long as clients make their heads.
const QUEUE_BYTES: usize = 64 * 1024 * 1024;
/// A partly filled buffer is written after this, so that `tail -f` is useful.
pub const FLUSH_EVERY: Duration = Duration::from_millis(500);
/// How long the writer rests when the queue is empty: at a million lines a second, a sixth of it
/// fills meanwhile.
const REST: Duration = Duration::from_millis(10);

/// How variables are escaped in a line. Source: nginx's `log_format escape=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Escape {
    /// Quotes, backslashes, control and non-ASCII bytes as `\xHH`; `-` for nothing.
    #[default]
    Default,
    /// For JSON strings; nothing for nothing.
    Json,
    /// As it is; nothing for nothing.
    None,
}

/// A compiled format.
pub struct Format {
    pieces: Vec<Piece>,
    escape: Escape,
}

enum Piece {
    Text(String),
    Var(Var),
}

impl Format {
    /// Compiles an nginx-style format: text with `$name` and `${name}`.
    pub fn parse(text: &str, escape: Escape) -> Format {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            plain.push_str(&rest[..at]);
            let after = &rest[at + 1..];
            let (name, next) = match after.strip_prefix('{').and_then(|s| s.split_once('}')) {
                Some((name, next)) => (name, next),
                None => {
                    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
                    after.split_at(after.find(word).unwrap_or(after.len()))
                }
            };
            if name.is_empty() {
                plain.push('$');
                rest = after;
                continue;
            }
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Var(Var::parse(name)));
            rest = next;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Format { pieces, escape }
    }

    /// Appends a line, newline included.
    pub fn line(&self, source: &dyn VarSource, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Var(var) if source.put(var, out) => {}
                Piece::Var(var) => match source.var(var) {
                    Some(VarValue::Str(text)) if !text.is_empty() => self.put(&text, out),
                    Some(VarValue::Str(_)) | None if self.escape == Escape::Default => {
                        out.push(b'-')
                    }
                    Some(VarValue::Str(_)) | None => {}
                    Some(other) => self.put(&other.as_text(), out),
                },
            }
        }
        out.push(b'\n');
    }

    fn put(&self, text: &str, out: &mut Vec<u8>) {
        match self.escape {
            Escape::None => out.extend_from_slice(text.as_bytes()),
            Escape::Default => {
                for &b in text.as_bytes() {
                    if !(0x20..=0x7e).contains(&b) || b == b'"' || b == b'\\' {
                        let _ = write!(out, "\\x{b:02X}");
                    } else {
                        out.push(b);
                    }
                }
            }
            Escape::Json => {
                for &b in text.as_bytes() {
                    match b {
                        b'"' | b'\\' => out.extend_from_slice(&[b'\\', b]),
                        b'\n' => out.extend_from_slice(b"\\n"),
                        b'\r' => out.extend_from_slice(b"\\r"),
                        b'\t' => out.extend_from_slice(b"\\t"),
                        0..0x20 => {
                            let _ = write!(out, "\\u{b:04X}");
                        }
                        _ => out.push(b),
                    }
                }
            }
        }
    }
}

/// The log as requests use it.
pub struct AccessLog {
    format: Format,
    queue: SyncSender<Vec<u8>>,
    counts: Arc<Counts>,
}

/// What requests and the writer both know of the queue.
#[derive(Default)]
struct Counts {
    /// Bytes of the lines in it, as allocated.
    bytes: AtomicUsize,
    /// Lines that did not fit.
    dropped: AtomicU64,
}

impl AccessLog {
    /// Opens the file (made when absent, appended to) and starts the writer. `buffer` is the
    /// number of bytes collected before a write.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path, format: Format, buffer: usize) -> std::io::Result<AccessLog> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut file = Reopened::open(path)?;
        let (queue, lines) = sync_channel(QUEUE);
        let counts = Arc::<Counts>::default();
        let shared = Arc::clone(&counts);
        std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || write_lines(&lines, &mut file, buffer, &shared))?;
        Ok(AccessLog {
            format,
            queue,
            counts,
        })
    }

    /// Writes the line of a request.
    pub fn write(&self, source: &dyn VarSource) {
        // Long enough for the default format; longer lines grow once.
        let mut line = Vec::with_capacity(256);
        self.format.line(source, &mut line);
        let size = line.capacity();
        let before = self.counts.bytes.fetch_add(size, Ordering::Relaxed);
        if before + size > QUEUE_BYTES || self.queue.try_send(line).is_err() {
            self.counts.bytes.fetch_sub(size, Ordering::Relaxed);
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lines that were lost because the writer could not keep up.
    pub fn dropped(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }
}

fn write_lines(lines: &Receiver<Vec<u8>>, file: &mut Reopened, buffer: usize, counts: &Counts) {
    let take = |line: Vec<u8>, pending: &mut Vec<u8>| {
        counts.bytes.fetch_sub(line.capacity(), Ordering::Relaxed);
        pending.extend_from_slice(&line);
    };
    let mut pending = Vec::with_capacity(buffer + 1024);
    let mut written = Instant::now();
    let mut reported = 0;
    loop {
        let wait = if pending.is_empty() {
            FLUSH_EVERY
        } else {
            FLUSH_EVERY.saturating_sub(written.elapsed())
        };
        let next = lines.recv_timeout(wait);
        let gone = matches!(next, Err(RecvTimeoutError::Disconnected));
        if let Ok(line) = next {
            take(line, &mut pending);
        }
        while pending.len() < buffer
            && let Ok(line) = lines.try_recv()
        {
            take(line, &mut pending);
        }
        let full = pending.len() >= buffer;
        if full || gone || written.elapsed() >= FLUSH_EVERY {
            if !pending.is_empty() {
                file.write(&pending);
                pending.clear();
            }
            written = Instant::now();
            let lost = counts.dropped.load(Ordering::Relaxed);
            if lost != reported {
                tracing::warn!(
                    lost = lost - reported,
                    "access log lines dropped: the disk is too slow"
                );
                reported = lost;
            }
        }
        if gone {
            return;
        }
        if !full {
            rest();
        }
    }
}

/// Lets lines gather. A writer that waits for each line is woken for each, and the worker that
/// serves the request pays for it.
#[allow(clippy::disallowed_methods)] // the writer's own thread
fn rest() {
    std::thread::sleep(REST);
}

/// A file that is opened anew when it was moved away, so that log rotation needs no signal.
struct Reopened {
    path: std::path::PathBuf,
    file: std::fs::File,
    inode: u64,
    failed: bool,
}

impl Reopened {
    fn open(path: &Path) -> std::io::Result<Reopened> {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)?;
        let inode = inode(&file.metadata()?);
        Ok(Reopened {
            path: path.to_owned(),
            file,
            inode,
            failed: false,
        })
    }

    fn write(&mut self, bytes: &[u8]) {
        let moved = std::fs::metadata(&self.path).map_or(true, |m| inode(&m) != self.inode);
        if moved && let Ok(fresh) = Reopened::open(&self.path) {
            *self = fresh;
        }
        let failed = self.file.write_all(bytes).err();
        if let Some(error) = &failed
            && !self.failed
        {
            tracing::error!(path = %self.path.display(), %error, "access log not written");
        }
        self.failed = failed.is_some();
    }
}

fn inode(meta: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(meta)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;
    impl VarSource for Fixed {
        fn var<'b>(&'b self, var: &'b Var) -> Option<VarValue<'b>> {
            match var.name() {
                "status" => Some(VarValue::Str("200".into())),
                "http_user_agent" => Some(VarValue::Str("a\"b\n\u{e9}".into())),
                _ => None,
            }
        }
    }

    fn check(format: &str, escape: Escape, expected: &str) {
        let mut out = Vec::new();
        Format::parse(format, escape).line(&Fixed, &mut out);
        assert_eq!(String::from_utf8_lossy(&out), format!("{expected}\n"));
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // a client that sends a request now and then
    fn lines_are_written_though_the_log_is_never_idle() {
        let folder = std::env::temp_dir().join(format!("lockgate-log-{}", std::process::id()));
        let path = folder.join("access.log");
        let format = Format::parse("$status", Escape::Default);
        let log = AccessLog::open(&path, format, 1 << 20).unwrap();
        let seen = (0..500).any(|_| {
            log.write(&Fixed);
            std::thread::sleep(Duration::from_millis(20));
            std::fs::read(&path).unwrap().starts_with(b"200\n")
        });
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(seen, "nothing written while lines kept coming");
        assert_eq!(log.dropped(), 0);
    }

    #[test]
    fn the_queue_is_bounded_in_bytes() {
        // Nobody takes the lines: as if the disk stood still.
        let (queue, lines) = sync_channel(QUEUE);
        const LINE: usize = 1024 * 1024;
        let log = AccessLog {
            format: Format::parse(&"x".repeat(LINE), Escape::None),
            queue,
            counts: Arc::default(),
        };
        let fit = (0..).take_while(|_| {
            log.write(&Fixed);
            log.dropped() == 0
        });
        let fit = fit.count();
        assert!((32..=64).contains(&fit), "{fit} lines of 1 MiB were kept");
        assert_eq!(lines.try_iter().count(), fit);
    }

    #[test]
    fn lines() {
        check("$status ${status}x $nothing", Escape::Default, "200 200x -");
        check(
            "[$http_user_agent]",
            Escape::Default,
            "[a\\x22b\\x0A\\xC3\\xA9]",
        );
        check(
            "{\"ua\":\"$http_user_agent\",\"n\":\"$nothing\"}",
            Escape::Json,
            "{\"ua\":\"a\\\"b\\né\",\"n\":\"\"}",
        );
        check("cost: 5$ and $", Escape::None, "cost: 5$ and $");
    }
}
