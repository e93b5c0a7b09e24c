//! etcd for scenarios: some members on this machine, each behind a gate that can be shut, killed,
//! frozen, wiped and put back as they were.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use etcd_client::{Client, CompactionOptions, ConnectOptions, GetOptions};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::World;
use crate::gateway::POLL;

/// A cluster has a leader well within this.
const LIMIT: Duration = Duration::from_secs(40);
/// For one request of the test itself.
const REQUEST: Duration = Duration::from_secs(3);
/// What all keys begin with.
pub(super) const PREFIX: &str = "/of-our-own";

/// What the copy of a member's folder is called.
const OLDER: &str = "older";

/// Some members. Killed when dropped.
pub(super) struct Cluster {
    members: Vec<Member>,
    gates: Vec<Gate>,
    /// How it is started.
    initial: String,
}

struct Member {
    child: Option<Child>,
    name: String,
    folder: PathBuf,
    client: u16,
    peer: u16,
}

/// What stands between a gateway and a member.
struct Gate {
    port: u16,
    open: watch::Sender<bool>,
}

impl Cluster {
    /// Starts members, and waits until they have a leader.
    pub(super) async fn start(world: &World, name: &str, count: usize) -> Result<Cluster> {
        let (mut members, mut gates) = (Vec::new(), Vec::new());
        for at in 0..count {
            let member = Member {
                child: None,
                name: format!("m{at}"),
                folder: world.root.join(format!("{name}-m{at}")),
                client: world.ports.take()?,
                peer: world.ports.take()?,
            };
            gates.push(Gate::start(world.ports.take()?, member.client).await?);
            members.push(member);
        }
        let initial = members.iter();
        let initial = initial.map(|m| format!("{}={}", m.name, url(m.peer)));
        let initial = initial.collect::<Vec<_>>().join(",");
        let mut cluster = Cluster {
            members,
            gates,
            initial,
        };
        cluster.start_all().await?;
        Ok(cluster)
    }

    /// How many members there are.
    pub(super) fn count(&self) -> usize {
        self.members.len()
    }

    /// `deployment.etcd` for a gateway behind the gates.
    pub(super) fn section(&self) -> Value {
        let hosts: Vec<String> = self.gates.iter().map(|gate| url(gate.port)).collect();
        json!({
            "host": hosts, "prefix": PREFIX, "timeout": 3, "startup_retry": 10,
            "resync_delay": 0.5, "watch_timeout": 2, "health_check_timeout": 1,
        })
    }

    /// Starts those that do not run, and waits until all answer.
    pub(super) async fn start_all(&mut self) -> Result<()> {
        for at in 0..self.count() {
            self.start_one(at)?;
        }
        self.wait().await
    }

    fn start_one(&mut self, at: usize) -> Result<()> {
        let initial = self.initial.clone();
        let member = &mut self.members[at];
        if member.child.is_some() {
            return Ok(());
        }
        let child = Command::new("etcd")
            .args(["--name", &member.name, "--data-dir"])
            .arg(&member.folder)
            .args(["--listen-client-urls", &url(member.client)])
            .args(["--advertise-client-urls", &url(member.client)])
            .args(["--listen-peer-urls", &url(member.peer)])
            .args(["--initial-advertise-peer-urls", &url(member.peer)])
            .args(["--initial-cluster", &initial])
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(saved(&member.folder, "log"))?)
            .spawn()
            .context("etcd cannot be started: Debian has it in etcd-server")?;
        member.child = Some(child);
        Ok(())
    }

    /// Waits until every member that runs answers.
    pub(super) async fn wait(&self) -> Result<()> {
        for (at, member) in self.members.iter().enumerate() {
            if member.child.is_some() {
                self.client(at).await?;
            }
        }
        Ok(())
    }

    /// Kills a member.
    pub(super) fn kill(&mut self, at: usize) -> Result<()> {
        if let Some(mut child) = self.members[at].child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Kills all of them.
    pub(super) fn kill_all(&mut self) -> Result<()> {
        (0..self.count()).try_for_each(|at| self.kill(at))
    }

    /// Freezes a member, or lets it go on.
    pub(super) fn freeze(&self, at: usize, signal: Signal) -> Result<()> {
        let child = self.members[at].child.as_ref().context("it is not there")?;
        kill(Pid::from_raw(i32::try_from(child.id())?), signal)?;
        Ok(())
    }

    /// Shuts or opens all gates: connections end, and no new ones are let in.
    pub(super) fn gates(&self, open: bool) {
        for gate in &self.gates {
            gate.open.send_replace(open);
        }
    }

    /// Copies what all members have. None of them runs.
    pub(super) fn save(&self) -> Result<()> {
        self.members
            .iter()
            .try_for_each(|m| copy(&m.folder, &saved(&m.folder, OLDER)))
    }

    /// Puts back what was saved. None of them runs.
    pub(super) fn restore(&self) -> Result<()> {
        self.wipe()?;
        self.members
            .iter()
            .try_for_each(|m| copy(&saved(&m.folder, OLDER), &m.folder))
    }

    /// Removes what all members have. None of them runs.
    pub(super) fn wipe(&self) -> Result<()> {
        for member in &self.members {
            std::fs::remove_dir_all(&member.folder)?;
        }
        Ok(())
    }

    /// Writes a value below the prefix through one member, as somebody else would.
    pub(super) async fn put(&self, at: usize, path: &str, text: &str) -> Result<()> {
        let key = format!("{PREFIX}/{path}");
        let start = Instant::now();
        loop {
            let mut client = self.client(at).await?;
            let put = client.put(key.as_str(), text, None);
            match tokio::time::timeout(REQUEST, put).await {
                Ok(Ok(_)) => return Ok(()),
                // A leader is being chosen.
                other => ensure!(start.elapsed() < LIMIT, "{path} is not written: {other:?}"),
            }
        }
    }

    /// Compacts everything up to now.
    pub(super) async fn compact(&self) -> Result<()> {
        let mut client = self.client(0).await?;
        let now = client.get("x", None).await?;
        let now = now.header().context("no header")?.revision();
        let options = CompactionOptions::new().with_physical();
        client.compact(now, Some(options)).await?;
        Ok(())
    }

    /// All keys below the prefix.
    pub(super) async fn keys(&self) -> Result<Vec<String>> {
        let mut client = self.client(0).await?;
        let options = GetOptions::new().with_prefix().with_keys_only();
        let found = client.get(PREFIX, Some(options)).await?;
        let keys = found.kvs().iter().map(|kv| kv.key_str().map(str::to_owned));
        Ok(keys.collect::<Result<_, _>>()?)
    }

    /// A client of one member, once that answers.
    async fn client(&self, at: usize) -> Result<Client> {
        let url = url(self.members[at].client);
        let start = Instant::now();
        loop {
            let options = ConnectOptions::new().with_require_leader(true);
            let asked = async {
                let mut client = Client::connect([&url], Some(options)).await?;
                client.get("x", None).await?;
                Ok::<_, etcd_client::Error>(client)
            };
            if let Ok(Ok(client)) = tokio::time::timeout(REQUEST, asked).await {
                return Ok(client);
            }
            if start.elapsed() >= LIMIT {
                let log = saved(&self.members[at].folder, "log");
                let log = std::fs::read_to_string(log).unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(3).collect();
                bail!("member {at} does not answer; the last it said: {last:?}");
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Already ended is fine; the wait leaves no zombie.
        let _ = self.kill_all();
        // Some hundred megabytes each, most of them set aside for a log that is not written.
        for member in &self.members {
            let _ = std::fs::remove_dir_all(&member.folder);
            let _ = std::fs::remove_dir_all(saved(&member.folder, OLDER));
        }
    }
}

impl Gate {
    async fn start(port: u16, to: u16) -> Result<Gate> {
        let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = TcpListener::bind(address(port)).await?;
        let (open, opened) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let opened = opened.clone();
                tokio::spawn(pass(client, address(to), opened));
            }
        });
        Ok(Gate { port, open })
    }
}

/// Passes bytes on until one side ends or the gate is shut.
async fn pass(mut client: TcpStream, to: SocketAddr, mut open: watch::Receiver<bool>) {
    if !*open.borrow() {
        return;
    }
    let passed = async {
        let mut server = TcpStream::connect(to).await?;
        tokio::io::copy_bidirectional(&mut client, &mut server).await
    };
    tokio::select! {
        _ = passed => {}
        _ = open.wait_for(|open| !open) => {}
    }
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

fn saved(folder: &Path, name: &str) -> PathBuf {
    let mut path = folder.as_os_str().to_owned();
    path.push(format!("-{name}"));
    path.into()
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
