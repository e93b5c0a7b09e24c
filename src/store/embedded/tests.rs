//! A disk that fails, and comes back.

use std::sync::atomic::{AtomicI64, Ordering};

use super::*;
use crate::store::{Op, Txn};

/// A file whose writes and syncs fail once so many were done.
#[derive(Debug)]
struct Failing {
    file: FileBackend,
    left: AtomicI64,
}

impl Failing {
    fn step(&self) -> io::Result<()> {
        match self.left.fetch_sub(1, Ordering::Relaxed) {
            left if left > 0 => Ok(()),
            _ => Err(io::Error::other("no space left")),
        }
    }

    fn fails_after(&self, steps: i64) {
        self.left.store(steps, Ordering::Relaxed);
    }
}

impl StorageBackend for Failing {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.step()?;
        self.file.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.step()?;
        self.file.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.step()?;
        self.file.write(offset, data)
    }
}

fn place(name: &str) -> PathBuf {
    let name = format!("lockgate-embedded-{}-{name}.redb", std::process::id());
    let path = std::env::temp_dir().join(name);
    let _ = std::fs::remove_file(&path);
    path
}

/// A store over a file that can be made to fail.
fn failing(path: &Path) -> (Embedded, Arc<Failing>) {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .unwrap();
    let bytes = Arc::new(Failing {
        file: FileBackend::new(file).unwrap(),
        left: AtomicI64::new(i64::MAX),
    });
    let shared: Arc<dyn StorageBackend> = bytes.clone();
    let database = database(&shared).unwrap();
    let state = read(&database).unwrap();
    let disk = File {
        path: path.to_owned(),
        bytes: shared,
        database: Some(database),
    };
    let store = Embedded {
        memory: Memory::over(state, Box::new(disk)),
        path: path.to_owned(),
    };
    (store, bytes)
}

/// Wherever a write fails: what was answered is what is there after a restart, and meanwhile no
/// other process gets the file.
#[tokio::test]
async fn a_failed_write_is_not_there_later() {
    let path = place("failing");
    let mut certain = 0;
    // A write is some twenty steps; one that was uncertain is settled by the next that succeeds.
    for steps in 0..60 {
        let (store, bytes) = failing(&path);
        let before = store.list("").await.unwrap();
        bytes.fails_after(steps);
        let mut txn = Txn::put("routes/a", format!("{{\"n\":{steps}}}"));
        txn.ops.push(Op::Delete(format!("routes/{}", steps - 1)));
        txn.ops.push(Op::Put {
            path: format!("routes/{steps}"),
            text: "{}".to_owned(),
            ttl: None,
        });
        let answer = store.commit(txn).await;
        assert!(Embedded::is_open(&path), "{steps}: the lock is gone");
        let shown = store.list("").await.unwrap();
        match &answer {
            Ok(_) => assert_ne!(shown, before),
            Err(_) => assert_eq!(shown, before),
        }
        let uncertain = answer.is_err_and(|e| e.chain().contains("uncertain"));
        bytes.fails_after(i64::MAX);
        if uncertain {
            // The disk is back, and so is certainty.
            store.commit(Txn::put("routes/b", "{}")).await.unwrap();
        } else {
            certain += 1;
        }
        let shown = store.list("").await.unwrap();
        drop(store);
        drop(bytes);
        let (store, _) = failing(&path);
        assert_eq!(store.list("").await.unwrap(), shown, "{steps}");
    }
    assert!(certain > 0, "no write was ever certain");
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test]
async fn what_was_let_go_of_can_be_taken_back() {
    let path = place("retaken");
    let store = Embedded::open(&path, Duration::ZERO).unwrap();
    store.commit(Txn::put("routes/a", "{}")).await.unwrap();
    store.release();
    assert!(store.commit(Txn::delete("routes/a")).await.is_err());
    // Another process looks at it, and goes.
    let other = Embedded::open(&path, Duration::ZERO).unwrap();
    assert!(store.retake().is_err());
    drop(other);
    store.retake().unwrap();
    store.commit(Txn::put("routes/b", "{}")).await.unwrap();
    // Another process writes to it: then it is not ours any more.
    store.release();
    let other = Embedded::open(&path, Duration::ZERO).unwrap();
    other.commit(Txn::delete("routes/a")).await.unwrap();
    drop(other);
    let error = store.retake().unwrap_err().chain();
    assert!(error.contains("another process has written"), "{error}");
    std::fs::remove_file(&path).unwrap();
}
