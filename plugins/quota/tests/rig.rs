//! Redis servers on free ports, ended with the test, as a test of the client wants them.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockgate_test_redis::folder;
pub(super) use lockgate_test_redis::{Cluster, Sentinels, Signal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::{Access, Central, Charge, Claim, Law, Name, Place, Server, Terms, Verdict};

/// Longer than anything here takes on a busy machine.
pub(super) const LIMIT: Duration = Duration::from_secs(20);
pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// A request of one on a limit's key.
pub(super) fn claim<'a>(text: &'a str, terms: &'a Terms) -> Claim<'a> {
    let name = Name {
        scope: "t",
        rule: "rule",
        text,
    };
    Claim {
        name,
        terms,
        cost: 1,
    }
}

/// A server.
pub(super) struct Redis(lockgate_test_redis::Redis);

pub(super) fn free_port() -> u16 {
    lockgate_test_redis::free_port().unwrap()
}

impl Redis {
    pub(super) fn start() -> Redis {
        Redis::with(&[])
    }

    pub(super) fn with(options: &[&str]) -> Redis {
        Redis::on(free_port(), options)
    }

    pub(super) fn on(port: u16, options: &[&str]) -> Redis {
        Redis(lockgate_test_redis::Redis::start(port, options).unwrap())
    }

    pub(super) fn server(&self) -> Server {
        Server::Single {
            place: self.place(),
            access: Access::default(),
        }
    }

    pub(super) fn central(&self) -> Central {
        Central::new(self.server(), LIMIT)
    }

    pub(super) fn place(&self) -> Place {
        place(self.port())
    }

    /// What `redis-cli` says.
    pub(super) fn cli(&self, words: &[&str]) -> String {
        self.0.cli(words).unwrap()
    }

    /// It crashes and is started again, without what it knew.
    pub(super) fn again(&mut self) {
        self.0.kill().unwrap();
        self.0.restart().unwrap();
    }

    pub(super) fn signal(&self, signal: Signal) {
        self.0.signal(signal).unwrap();
    }
}

impl Deref for Redis {
    type Target = lockgate_test_redis::Redis;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// A way to a server on which answers get lost: the question was worked off, and the connection is gone.
pub(super) struct Lossy {
    port: u16,
    lose: Arc<AtomicUsize>,
}

impl Lossy {
    pub(super) async fn to(redis: &Redis) -> Lossy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let lossy = Lossy {
            port: listener.local_addr().unwrap().port(),
            lose: Arc::default(),
        };
        let (port, lose) = (redis.port(), Arc::clone(&lossy.lose));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(Lossy::carry(client, port, Arc::clone(&lose)));
            }
        });
        lossy
    }

    async fn carry(client: TcpStream, port: u16, lose: Arc<AtomicUsize>) {
        let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let (mut asks, mut told) = client.into_split();
        let (mut answers, mut asked) = server.into_split();
        let up = tokio::spawn(async move { tokio::io::copy(&mut asks, &mut asked).await });
        let mut bytes = [0; 4_096];
        while let Ok(n @ 1..) = answers.read(&mut bytes).await {
            let order = Ordering::SeqCst;
            let lost = lose.fetch_update(order, order, |left| left.checked_sub(1));
            if lost.is_ok() || told.write_all(&bytes[..n]).await.is_err() {
                break;
            }
        }
        up.abort();
    }

    /// So many of the next answers.
    pub(super) fn lose(&self, answers: usize) {
        self.lose.store(answers, Ordering::SeqCst);
    }

    pub(super) fn central(&self) -> Central {
        let place = place(self.port);
        let access = Access::default();
        Central::new(Server::Single { place, access }, LIMIT)
    }
}

pub(super) fn until(what: &str, done: impl FnMut() -> bool) {
    lockgate_test_redis::until(what, done).unwrap();
}

pub(super) fn place(port: u16) -> Place {
    Place {
        host: "127.0.0.1".to_owned(),
        port,
    }
}

/// A certificate for 127.0.0.1 that nobody vouches for, and its key.
pub(super) fn certificate() -> (PathBuf, PathBuf, PathBuf) {
    let folder = folder(free_port()).unwrap();
    let path = |name: &str| folder.join(name);
    let (cert, key) = (path("cert.pem"), path("key.pem"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
        ])
        .args(["-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .output()
        .unwrap();
    assert!(made.status.success());
    (cert, key, folder)
}

pub(super) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub(super) fn charge(key: &str, law: Law, cost: u64) -> Charge {
    Charge {
        key: crate::key_text("t", "rule", key),
        law: law.checked().unwrap(),
        cost,
    }
}

pub(super) fn fixed(limit: u64) -> Law {
    Law::Fixed {
        limit,
        window: MINUTE,
    }
}

/// One request for 1 of a limit.
pub(super) async fn take(central: &Central, key: &str, law: Law) -> Verdict {
    central.check(&[charge(key, law, 1)], 0).await.unwrap()
}

/// How many of so many requests pass.
pub(super) async fn passed(central: &Central, key: &str, law: Law, asked: u32) -> u32 {
    let mut passed = 0;
    for _ in 0..asked {
        passed += u32::from(take(central, key, law).await.allowed);
    }
    passed
}
