//! What can happen to the servers that count.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lockgate_test_redis::Signal;

use super::limits_servers::{Kind, Servers};

/// The password of the single server, as the gateways know it.
pub(super) const PASSWORD: &str = "right";
/// Options of a single server on which all of this can be done.
pub(super) const OPTIONS: [&str; 4] =
    ["--requirepass", PASSWORD, "--enable-debug-command", "local"];

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It does not run, but its connections are there.
    Frozen,
    /// Dead; it comes back without anything.
    Killed,
    /// Nobody is answered for 50 ms.
    Paused,
    /// Nobody is answered for half a second.
    Asleep,
    /// All it is told and says is late by so many milliseconds.
    Slow(u64),
    /// Nothing can be written any more.
    Full,
    /// The scripts are gone.
    Forgotten,
    /// It has another password, and everybody has to say it again.
    Locked,
    /// The master of what is counted dies, and another server takes over.
    FailedOver,
}

/// What a request may notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noticed {
    /// Nothing.
    Nothing,
    /// That nobody counts, for some time.
    Away,
    /// Time decides between the two.
    Either,
}

impl Fault {
    /// Those that make sense with these servers, the least harm first.
    pub(super) fn of(kind: Kind) -> &'static [Fault] {
        match kind {
            Kind::Single => &[
                Fault::Forgotten,
                Fault::Paused,
                Fault::Asleep,
                Fault::Slow(5),
                Fault::Slow(50),
                Fault::Slow(500),
                Fault::Full,
                Fault::Locked,
                Fault::Frozen,
                Fault::Killed,
            ],
            Kind::Sentinels | Kind::Cluster => &[Fault::FailedOver],
        }
    }

    /// How it is called, also in keys.
    pub(super) fn name(self, kind: Kind) -> String {
        match (self, kind) {
            (Fault::Frozen, _) => "frozen".to_owned(),
            (Fault::Killed, _) => "killed-and-empty".to_owned(),
            (Fault::Paused, _) => "paused-50-ms".to_owned(),
            (Fault::Asleep, _) => "asleep-500-ms".to_owned(),
            (Fault::Slow(ms), _) => format!("slow-by-{ms}-ms"),
            (Fault::Full, _) => "full".to_owned(),
            (Fault::Forgotten, _) => "scripts-forgotten".to_owned(),
            (Fault::Locked, _) => "wrong-password".to_owned(),
            (Fault::FailedOver, Kind::Cluster) => "cluster-failover".to_owned(),
            (Fault::FailedOver, _) => "sentinel-failover".to_owned(),
        }
    }

    /// What a request may notice that waits so long.
    pub(super) fn noticed(self, deadline: Duration) -> Noticed {
        let takes = |ms| {
            // Far from the deadline it is certain what happens; otherwise the machine decides.
            if deadline >= 20 * Duration::from_millis(ms) {
                Noticed::Nothing
            } else if Duration::from_millis(ms) >= 20 * deadline {
                Noticed::Away
            } else {
                Noticed::Either
            }
        };
        match self {
            Fault::Forgotten => Noticed::Nothing,
            Fault::Paused => takes(50),
            Fault::Asleep => takes(500),
            Fault::Slow(ms) => takes(ms),
            Fault::Full | Fault::Locked | Fault::Frozen | Fault::Killed => Noticed::Away,
            Fault::FailedOver => Noticed::Either,
        }
    }

    /// Whether counts are lost with it, or may be.
    pub(super) fn forgets(self) -> bool {
        matches!(self, Fault::Killed | Fault::FailedOver)
    }

    /// Whether it is over by itself, so that nothing has to be waited for.
    pub(super) fn passes(self) -> bool {
        matches!(self, Fault::Paused | Fault::Asleep | Fault::Forgotten)
    }

    /// Makes it happen.
    pub(super) fn begin(self, servers: &mut Servers) -> Result<()> {
        match self {
            Fault::Frozen => servers.single()?.signal(Signal::SIGSTOP),
            Fault::Killed => servers.single()?.kill(),
            Fault::Paused => says(servers, &["CLIENT", "PAUSE", "50", "ALL"], "OK"),
            Fault::Asleep => says(servers, &["DEBUG", "SLEEP", "0.5"], "OK"),
            Fault::Slow(ms) => servers.slow(Duration::from_millis(ms)),
            Fault::Full => says(servers, &["CONFIG", "SET", "maxmemory", "1"], "OK"),
            Fault::Forgotten => says(servers, &["SCRIPT", "FLUSH"], "OK"),
            Fault::Locked => {
                says(servers, &["CONFIG", "SET", "requirepass", "other"], "OK")?;
                let all = ["-a", "other", "CLIENT", "KILL", "TYPE", "normal"];
                servers.single()?.cli(&all).map(drop)
            }
            Fault::FailedOver => match servers {
                Servers::Sentinels(all) => all.fail_over(),
                Servers::Cluster(cluster) => cluster.fail_over("*strict*"),
                Servers::Single { .. } => anyhow::bail!("nobody can take over"),
            },
        }
    }

    /// Ends it: the servers answer when this returns.
    pub(super) fn end(self, servers: &mut Servers) -> Result<()> {
        match self {
            Fault::Frozen => servers.single()?.signal(Signal::SIGCONT)?,
            Fault::Killed => servers.single()?.restart()?,
            Fault::Slow(_) => servers.slow(Duration::ZERO)?,
            Fault::Full => says(servers, &["CONFIG", "SET", "maxmemory", "0"], "OK")?,
            Fault::Locked => {
                let back = ["-a", "other", "CONFIG", "SET", "requirepass", PASSWORD];
                let said = servers.single()?.cli(&back)?;
                ensure!(said.ends_with("OK"), "{said}");
            }
            Fault::Paused | Fault::Asleep | Fault::Forgotten => {}
            Fault::FailedOver => return Ok(()),
        }
        says(servers, &["PING"], "PONG")
    }
}

fn says(servers: &mut Servers, words: &[&str], wanted: &str) -> Result<()> {
    let said = servers.single()?.cli(words)?;
    let last = said.lines().last().context("Redis says nothing")?;
    ensure!(last == wanted, "{words:?}: {said}");
    Ok(())
}
