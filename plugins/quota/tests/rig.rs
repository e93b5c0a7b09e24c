//! Redis servers on free ports, ended with the test.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(super) use nix::sys::signal::Signal;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::{Access, Central, Charge, Law, Place, Server, Verdict};

/// Longer than anything here takes on a busy machine.
pub(super) const LIMIT: Duration = Duration::from_secs(20);
pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// A process and its folder.
pub(super) struct Redis {
    child: Child,
    pub port: u16,
    folder: PathBuf,
}

pub(super) fn free_port() -> u16 {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    TcpListener::bind(any).unwrap().local_addr().unwrap().port()
}

impl Redis {
    pub(super) fn start() -> Redis {
        Redis::with(&[])
    }

    pub(super) fn with(options: &[&str]) -> Redis {
        Redis::on(free_port(), options)
    }

    pub(super) fn on(port: u16, options: &[&str]) -> Redis {
        let folder = folder(port);
        let port_text = port.to_string();
        let mut all = vec!["--port", &port_text, "--bind", "127.0.0.1", "--save", ""];
        // A replica that was never in step cannot take over.
        all.extend(["--appendonly", "no", "--repl-diskless-sync-delay", "0"]);
        all.extend(options);
        Redis::run(port, folder, &all)
    }

    /// A Sentinel; its file is rewritten by it.
    pub(super) fn sentinel(lines: &str) -> Redis {
        let port = free_port();
        let folder = folder(port);
        let conf = folder.join("sentinel.conf");
        let text = format!("port {port}\nbind 127.0.0.1\n{lines}");
        std::fs::write(&conf, text).unwrap();
        Redis::run(port, folder, &[conf.to_str().unwrap(), "--sentinel"])
    }

    fn run(port: u16, folder: PathBuf, options: &[&str]) -> Redis {
        let child = Command::new("redis-server")
            .args(options)
            .current_dir(&folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is missing; bash tests/setup.sh build installs it");
        let redis = Redis {
            child,
            port,
            folder,
        };
        until("a Redis to listen", || {
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
        });
        redis
    }

    pub(super) fn place(&self) -> Place {
        place(self.port)
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

    /// What `redis-cli` says.
    pub(super) fn cli(&self, words: &[&str]) -> String {
        let out = Command::new("redis-cli")
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string()])
            .args(words)
            .output()
            .unwrap();
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    }

    pub(super) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(super) fn place(port: u16) -> Place {
    Place {
        host: "127.0.0.1".to_owned(),
        port,
    }
}

/// A folder of its own for who has this port.
fn folder(port: u16) -> PathBuf {
    let name = format!("lockgate-redis-{}-{port}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[allow(clippy::disallowed_methods)] // The thread of a test.
pub(super) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LIMIT, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A certificate for 127.0.0.1 that nobody vouches for, and its key.
pub(super) fn certificate() -> (PathBuf, PathBuf, PathBuf) {
    let folder = folder(free_port());
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
