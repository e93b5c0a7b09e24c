//! Several servers that belong together.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{Redis, until};

/// What the Sentinels call their master.
const MASTER: &str = "main";

/// A master with a replica, and three Sentinels that watch them.
pub struct Sentinels {
    /// At first.
    pub master: Redis,
    /// At first.
    pub replica: Redis,
    /// Two of three have to agree.
    pub sentinels: Vec<Redis>,
}

impl Sentinels {
    /// Starts all of them, on ports of the caller, and waits until they know each other.
    ///
    /// # Errors
    /// When they do not.
    pub fn start(mut port: impl FnMut() -> Result<u16>) -> Result<Sentinels> {
        let master = Redis::start(port()?, &[])?;
        let number = master.port().to_string();
        let replica = Redis::start(port()?, &["--replicaof", "127.0.0.1", &number])?;
        let lines = format!(
            "sentinel monitor {MASTER} 127.0.0.1 {number} 2\n\
             sentinel down-after-milliseconds {MASTER} 1000\n\
             sentinel failover-timeout {MASTER} 5000\n"
        );
        let sentinels = (0..3).map(|_| Redis::sentinel(port()?, &lines));
        let all = Sentinels {
            master,
            replica,
            sentinels: sentinels.collect::<Result<_>>()?,
        };
        until("the Sentinels to know each other", || {
            all.sentinels.iter().all(|sentinel| {
                sentinel
                    .cli(&["SENTINEL", "master", MASTER])
                    .is_ok_and(|known| {
                        let value = |name: &str| {
                            let mut lines = known.lines().skip_while(|line| *line != name);
                            lines.nth(1).map(str::to_owned)
                        };
                        value("num-other-sentinels").as_deref() == Some("2")
                            && value("num-slaves").as_deref() == Some("1")
                    })
            })
        })?;
        Ok(all)
    }

    /// Kills the first master, and waits until the replica took over.
    ///
    /// # Errors
    /// When it never does.
    pub fn fail_over(&mut self) -> Result<()> {
        self.master.kill()?;
        until("a new master", || self.replica.is_master())
    }
}

/// Six nodes: three masters with a replica each.
pub struct Cluster {
    /// In no order.
    pub nodes: Vec<Redis>,
}

impl Cluster {
    /// Starts all of them, on ports of the caller, and waits until they agree. On a busy machine
    /// `redis-cli` gives up before they do: then others are tried, twice.
    ///
    /// # Errors
    /// When they do not.
    pub fn start(mut port: impl FnMut() -> Result<u16>) -> Result<Cluster> {
        let mut made = Cluster::make(&mut port);
        for _ in 0..2 {
            made = made.or_else(|_| Cluster::make(&mut port));
        }
        made
    }

    fn make(port: &mut impl FnMut() -> Result<u16>) -> Result<Cluster> {
        let mut nodes = Vec::new();
        for _ in 0..6 {
            // The bus has a port of its own, 10,000 higher unless it is said.
            let bus = port()?.to_string();
            let options = ["--cluster-enabled", "yes", "--cluster-port", &bus];
            let patience = ["--cluster-node-timeout", "1500"];
            nodes.push(Redis::start(port()?, &[&options[..], &patience].concat())?);
        }
        let places = nodes
            .iter()
            .map(|node| format!("127.0.0.1:{}", node.port()));
        let made = Command::new("redis-cli")
            .args(["--cluster", "create"])
            .args(places)
            .args(["--cluster-replicas", "1", "--cluster-yes"])
            .output()
            .context("redis-cli is missing")?;
        let said = String::from_utf8_lossy(&made.stdout);
        ensure!(made.status.success(), "no cluster: {said}");
        let cluster = Cluster { nodes };
        until("all nodes to agree", || {
            cluster.nodes.iter().all(|node| {
                let says = |words: &[&str]| node.cli(words).unwrap_or_default();
                let info = says(&["CLUSTER", "INFO"]);
                info.contains("cluster_state:ok")
                    && info.contains("cluster_known_nodes:6")
                    && !says(&["INFO", "replication"]).contains("master_link_status:down")
            })
        })?;
        Ok(cluster)
    }

    /// Kills the master that has a key like this pattern, and waits until its replica took over.
    ///
    /// # Errors
    /// When it never does, or nobody has one.
    pub fn fail_over(&mut self, pattern: &str) -> Result<()> {
        let scan = ["--scan", "--pattern", pattern];
        let found = self.nodes.iter().enumerate().find_map(|(at, node)| {
            let keys = node.cli(&scan).ok().filter(|_| node.is_master())?;
            Some((at, keys.lines().next()?.to_owned()))
        });
        let (at, key) = found.with_context(|| format!("no master has {pattern}"))?;
        self.nodes.remove(at).kill()?;
        // Who does not have the key's slot says who has; a number is the answer of who has it.
        let serves = |node: &Redis| {
            node.cli(&["EXISTS", &key])
                .is_ok_and(|said| said.parse::<u64>().is_ok())
        };
        until("another master of the slot", || {
            self.nodes
                .iter()
                .any(|node| node.is_master() && serves(node))
        })
    }
}
