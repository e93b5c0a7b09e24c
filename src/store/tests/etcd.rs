//! The same over a server of etcd, and what only that one does.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use super::*;
use crate::settings::{EtcdSettings, EtcdTls};

/// A server of its own, ended with the test.
struct Server {
    child: Child,
    url: String,
    _folder: Folder,
}

impl Server {
    fn start(name: &str) -> Server {
        let folder = Folder::new(name);
        std::fs::create_dir_all(&folder.0).unwrap();
        let free = || {
            TcpListener::bind("127.0.0.1:0")
                .unwrap()
                .local_addr()
                .unwrap()
        };
        let (client, peer) = (free(), free());
        let (url, peer) = (format!("http://{client}"), format!("http://{peer}"));
        let child = Command::new("etcd")
            .args(["--name", "t", "--data-dir"])
            .arg(folder.0.join("data"))
            .args([
                "--listen-client-urls",
                &url,
                "--advertise-client-urls",
                &url,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args(["--initial-cluster", &format!("t={peer}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd is started: Debian has it in etcd-server");
        Server {
            child,
            url,
            _folder: folder,
        }
    }

    fn open(&self) -> Etcd {
        let settings = EtcdSettings {
            hosts: vec![self.url.clone()],
            prefix: "/apisix/".into(),
            ..settings(Duration::from_secs(10))
        };
        Etcd::open(&settings).unwrap_or_else(|e| panic!("{}", e.chain()))
    }
}

/// Of nowhere.
fn settings(timeout: Duration) -> EtcdSettings {
    EtcdSettings {
        hosts: Vec::new(),
        prefix: "/apisix".into(),
        timeout,
        resync: Duration::from_secs(1),
        watch: Duration::from_secs(1),
        rest: Duration::from_secs(1),
        retries: 0,
        user: None,
        tls: EtcdTls::default(),
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn as_memory() {
    let server = Server::start("etcd-suite");
    let store = server.open();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(until_it_answers(&store));
    runtime.block_on(suite(&store));
    runtime.block_on(keeps_apart(&store));
    runtime.block_on(all_or_nothing(&store));
    runtime.block_on(silent_and_ahead(&store));
    runtime.block_on(large_and_compacted(&store, &server.url));
}

/// It was only just started.
async fn until_it_answers(store: &Etcd) {
    let start = std::time::Instant::now();
    while let Err(error) = store.revision().await {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "{}",
            error.chain()
        );
    }
}

/// A watch that is told nothing goes on, one from the future ends, and what is there can be
/// compared without its texts.
async fn silent_and_ahead(store: &Etcd) {
    let now = store.revision().await.unwrap();
    let mut ahead = store.watch(now + 5).await.unwrap();
    let ended = ahead.next().await;
    assert!(
        matches!(ended, Err(WatchError::WentBack { after, now: at }) if after == now + 5 && at == now),
        "{ended:?}"
    );
    // Longer than the silence after which a watch counts as dead.
    let mut silent = store.watch(now).await.unwrap();
    let waited = tokio::time::timeout(Duration::from_millis(2500), silent.next()).await;
    assert!(waited.is_err(), "{waited:?}");
    let next = done(store, Txn::put("routes/silent", "{}")).await;
    assert_eq!(silent.next().await.unwrap().1, next);

    let listing = store.list("").await.unwrap();
    let versions = |listing: &Listing| -> Vec<(Arc<str>, u64)> {
        let of = |item: &Item| (Arc::clone(&item.path), item.modified);
        listing.items.iter().map(of).collect()
    };
    let now = store.versions(next).await.unwrap().unwrap();
    assert_eq!((now.items, now.revision), (versions(&listing), next));
    let then = store.versions(next - 1).await.unwrap().unwrap();
    assert_eq!(then.revision, next - 1);
    assert_eq!(then.items.len() + 1, listing.items.len());
    assert_ne!(listing.identity, 0);
    // More than etcd takes is said before it is sent.
    let ops = (0..3845).map(|n| Op::Delete(format!("a/{n}")));
    let txn = Txn {
        ops: ops.collect(),
        ..Txn::default()
    };
    assert!(
        store
            .commit(txn)
            .await
            .unwrap_err()
            .chain()
            .contains("at most 3844")
    );
}

async fn large_and_compacted(store: &Etcd, url: &str) {
    // More than one answer holds, all of one revision.
    for part in 0..12 {
        let mut txn = Txn::default();
        for at in 0..100 {
            txn.ops.push(Op::Put {
                path: format!("many/{part}-{at}"),
                text: "{}".into(),
                ttl: None,
            });
        }
        done(store, txn).await;
    }
    let listing = store.list("many/").await.unwrap();
    assert_eq!(listing.items.len(), 1200);
    assert!(listing.items.is_sorted_by(|a, b| a.path < b.path));
    // What marks a folder is no item, nor is what is beside the prefix.
    let mut other = etcd_client::Client::connect([url], None).await.unwrap();
    other.put("/apisix/many/", "init_dir", None).await.unwrap();
    other.put("/apisixx/many/1", "{}", None).await.unwrap();
    assert_eq!(store.list("many/").await.unwrap().items.len(), 1200);
    // What was forgotten is said to be.
    let now = store.revision().await.unwrap();
    let at = i64::try_from(now).unwrap();
    other.compact(at, None).await.unwrap();
    let mut watch = store.watch(1).await.unwrap();
    assert!(matches!(watch.next().await, Err(WatchError::Forgotten(1))));
    // A folder's mark is no change; what others write is.
    let mut watch = store.watch(now).await.unwrap();
    other
        .put("/apisix/routes/", "init_dir", None)
        .await
        .unwrap();
    other.put("/apisix/routes/x", "{}", None).await.unwrap();
    let mut told = Vec::new();
    while told.is_empty() {
        told = watch.next().await.unwrap().0;
    }
    assert!(matches!(&told[..], [Event::Put(item)] if &*item.path == "routes/x"));
    // Of a revision that is forgotten what is there now is told.
    let versions = store.versions(now - 1).await.unwrap().unwrap();
    assert_eq!(versions.revision, store.revision().await.unwrap());
}

#[tokio::test]
async fn nobody_there() {
    let settings = EtcdSettings {
        hosts: vec!["http://127.0.0.1:1".into(), "http://127.0.0.1:2".into()],
        ..settings(Duration::from_millis(300))
    };
    let store = Etcd::open(&settings).unwrap();
    let error = store.list("").await.unwrap_err().chain();
    let start = "cannot read etcd at http://127.0.0.1:1, http://127.0.0.1:2: ";
    assert!(error.starts_with(start), "{error}");
    assert!(store.commit(Txn::delete("routes/1")).await.is_err());
    assert!(store.watch(1).await.is_err());
}
