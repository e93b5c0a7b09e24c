//! Real Redis servers for tests: one, one behind Sentinels, a cluster; ended with the test.
//!
//! Tests of the client (`plugins/quota`) and scenarios with whole gateways (`tests/it`) start them from
//! here. Everything waits on the calling thread: scenarios call from a thread that may.
//!
//! ```no_run
//! # use lockgate_test_redis::{Redis, Signal};
//! # fn main() -> anyhow::Result<()> {
//! let redis = Redis::start(lockgate_test_redis::free_port()?, &[])?;
//! redis.signal(Signal::SIGSTOP)?;
//! # Ok(())
//! # }
//! ```

mod groups;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
pub use nix::sys::signal::Signal;
use nix::sys::signal::kill;
use nix::unistd::Pid;

pub use groups::{Cluster, Sentinels};

/// Longer than anything here takes on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(40);
/// Between two looks at something that will happen soon.
const LOOK: Duration = Duration::from_millis(20);

/// A port that was free a moment ago.
///
/// # Errors
/// When there is none.
pub fn free_port() -> Result<u16> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Ok(TcpListener::bind(any)?.local_addr()?.port())
}

/// Waits until something holds.
///
/// # Errors
/// When it never does.
#[allow(clippy::disallowed_methods)] // The thread of a test.
pub fn until(what: &str, mut done: impl FnMut() -> bool) -> Result<()> {
    let begun = Instant::now();
    while !done() {
        ensure!(begun.elapsed() < LIMIT, "waited too long for {what}");
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// A server and its folder. Killed when dropped.
pub struct Redis {
    child: Option<Child>,
    port: u16,
    folder: PathBuf,
    /// How it is started.
    options: Vec<String>,
}

impl Redis {
    /// Starts a server that keeps nothing on a disk, and waits until it listens.
    ///
    /// # Errors
    /// When it does not.
    pub fn start(port: u16, options: &[&str]) -> Result<Redis> {
        let text = port.to_string();
        let mut all = vec!["--port", &text, "--bind", "127.0.0.1", "--save", ""];
        // A replica that was never in step cannot take over.
        all.extend(["--appendonly", "no", "--repl-diskless-sync-delay", "0"]);
        all.extend(options);
        Redis::run(port, all.into_iter().map(str::to_owned).collect())
    }

    /// Starts a Sentinel; its file, made of these lines, is rewritten by it.
    ///
    /// # Errors
    /// When it does not listen.
    pub fn sentinel(port: u16, lines: &str) -> Result<Redis> {
        let conf = folder(port)?.join("sentinel.conf");
        std::fs::write(&conf, format!("port {port}\nbind 127.0.0.1\n{lines}"))?;
        let conf = conf.to_str().context("the folder's name is no text")?;
        Redis::run(port, vec![conf.to_owned(), "--sentinel".to_owned()])
    }

    fn run(port: u16, options: Vec<String>) -> Result<Redis> {
        let mut redis = Redis {
            child: None,
            port,
            folder: path(port),
            options,
        };
        std::fs::create_dir_all(&redis.folder)?;
        redis.restart()?;
        Ok(redis)
    }

    /// Starts it again where it was, without what it knew. It does not run.
    ///
    /// # Errors
    /// When it does not listen.
    pub fn restart(&mut self) -> Result<()> {
        let child = Command::new("redis-server")
            .args(&self.options)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("redis-server is missing; bash tests/setup.sh build installs it")?;
        self.child = Some(child);
        until("a Redis to listen", || {
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
        })
    }

    /// Ends it at once, as a crash does.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When it does not run.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child.as_ref().context("it does not run")?;
        kill(Pid::from_raw(i32::try_from(child.id())?), signal)?;
        Ok(())
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What `redis-cli` says to these words. It knows the password that the server was started with, unless
    /// the words name another.
    ///
    /// # Errors
    /// When there is none.
    pub fn cli(&self, words: &[&str]) -> Result<String> {
        let option = self
            .options
            .iter()
            .position(|option| option == "--requirepass");
        let password = option.and_then(|at| self.options.get(at + 1));
        let out = Command::new("redis-cli")
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string()])
            .args(password.into_iter().flat_map(|known| ["-a", known]))
            .args(words)
            .stdin(Stdio::null())
            .output()
            .context("redis-cli is missing")?;
        Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
    }

    /// Whether it is a master now.
    pub fn is_master(&self) -> bool {
        self.cli(&["ROLE"])
            .is_ok_and(|role| role.starts_with("master"))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // Already ended is fine; the wait leaves no zombie.
        let _ = self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A folder of its own for who has this port, empty.
///
/// # Errors
/// When it cannot be made.
pub fn folder(port: u16) -> Result<PathBuf> {
    let folder = path(port);
    // Nothing there is fine.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn path(port: u16) -> PathBuf {
    let name = format!("lockgate-redis-{}-{port}", std::process::id());
    std::env::temp_dir().join(name)
}
