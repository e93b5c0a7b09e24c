//! Some gateways in one process, each with threads of its own, so that one can be killed; and what stands
//! between them.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use lockgate_quota::{Away, Charge, Law, QuotaStore};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::figures::Figures;
use crate::members::{Node, Roll};
use crate::peers::{Peers, Setup};
use crate::place::KeyId;
use crate::secure::Identity;

/// Whatever is waited for comes well within this.
const LIMIT: Duration = Duration::from_secs(30);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// The limits of these tests: their windows do not end while they run.
pub(super) fn law(limit: u64) -> Law {
    let window = Duration::from_secs(86_400 * 7);
    Law::Fixed { limit, window }
}

pub(super) fn secret() -> Identity {
    Identity::Secret("a secret of some length".to_owned())
}

/// What a gate does with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    Open,
    /// Keeps connections and passes nothing on.
    Frozen,
    /// Ends them.
    Shut,
}

/// A gateway.
pub(super) struct Member {
    pub(super) peers: Arc<Peers>,
    pub(super) name: String,
    pub(super) gate: watch::Sender<Gate>,
    runtime: Option<Runtime>,
    weight: u32,
    revision: u64,
}

/// All of them, and what etcd would know.
pub(super) struct Rig {
    pub(super) members: Vec<Member>,
    pub(super) revision: u64,
    timeout: Duration,
}

impl Member {
    /// Kills it.
    pub(super) fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        self.gate.send_replace(Gate::Shut);
    }

    pub(super) fn figures(&self) -> Figures {
        self.peers.figures()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Rig {
    pub(super) fn new() -> Rig {
        Rig {
            members: Vec::new(),
            revision: 0,
            // A loaded machine may take its time.
            timeout: Duration::from_secs(10),
        }
    }

    /// Questions end after this.
    pub(super) fn patient(mut self, timeout: Duration) -> Rig {
        self.timeout = timeout;
        self
    }

    /// So many gateways, who all take part.
    pub(super) async fn of(count: usize, identity: impl Fn(usize) -> Identity) -> Rig {
        let mut rig = Rig::new();
        for at in 0..count {
            rig.add(identity(at)).await;
        }
        rig.publish();
        rig.settled().await;
        rig
    }

    /// A gateway that runs; nobody is told.
    pub(super) async fn add(&mut self, identity: Identity) -> usize {
        let outside = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let name = outside.local_addr().unwrap().to_string();
        let inside = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        inside.set_nonblocking(true).unwrap();
        let (gate, state) = watch::channel(Gate::Open);
        tokio::spawn(stand(outside, inside.local_addr().unwrap(), state));
        let setup = Setup {
            name: name.clone(),
            identity,
            timeout: self.timeout,
            fixed: None,
        };
        let peers = Arc::new(Peers::new(setup).unwrap());
        peers.stand_for(Duration::from_secs(3_600));
        let mut threads = tokio::runtime::Builder::new_multi_thread();
        let runtime = threads.worker_threads(1).enable_all().build().unwrap();
        let run = Arc::clone(&peers);
        runtime.spawn(async move {
            let listener = TcpListener::from_std(inside).unwrap();
            run.run(listener).await.unwrap();
        });
        self.revision += 1;
        self.members.push(Member {
            peers,
            name,
            gate,
            runtime: Some(runtime),
            weight: 1,
            revision: self.revision,
        });
        self.members.len() - 1
    }

    /// The roll, as it is now.
    pub(super) fn roll(&self) -> Roll {
        let living = self
            .members
            .iter()
            .filter(|member| member.runtime.is_some());
        let node = |member: &Member| Node {
            name: member.name.clone(),
            run: member.peers.me().1,
            weight: member.weight,
            revision: member.revision,
        };
        Roll::new(self.revision, living.map(node).collect())
    }

    /// Tells all who run.
    pub(super) fn publish(&mut self) {
        self.revision += 1;
        let roll = self.roll();
        for member in self
            .members
            .iter()
            .filter(|member| member.runtime.is_some())
        {
            member.peers.see(roll.clone());
        }
    }

    /// One begins to leave.
    pub(super) fn leave(&mut self, at: usize) {
        self.revision += 1;
        self.members[at].weight = 0;
        self.members[at].revision = self.revision;
        self.publish();
    }

    /// Waits until all act by the last roll, and expect nothing.
    pub(super) async fn settled(&self) {
        let living = || {
            self.members
                .iter()
                .filter(|member| member.runtime.is_some())
        };
        let count = living().count() as u64;
        until(|| {
            living().all(|member| {
                let figures = member.figures();
                figures.epoch == self.revision
                    && figures.expected == 0
                    && figures.connected == count - 1
            })
        })
        .await;
    }

    /// A request at one gateway.
    pub(super) async fn check(&self, at: usize, key: &str, limit: u64) -> Result<bool, Away> {
        let charge = Charge {
            key: key.to_owned(),
            law: law(limit),
            cost: 1,
        };
        let asked = self.members[at]
            .peers
            .check(std::slice::from_ref(&charge), 0)
            .await;
        asked.map(|verdict| verdict.allowed)
    }

    /// Requests of one key at some gateways, all at once; how many pass. None may fail.
    pub(super) async fn burst(&self, at: &[usize], key: &str, limit: u64, each: usize) -> u64 {
        let asked = at
            .iter()
            .flat_map(|at| (0..each).map(|_| self.check(*at, key, limit)));
        let asked = join_all(asked).await;
        asked
            .into_iter()
            .map(|passed| u64::from(passed.unwrap()))
            .sum()
    }

    /// Keys that a gateway owns, by the last roll.
    pub(super) fn keys_of(&self, at: usize, count: usize) -> Vec<String> {
        let roll = self.roll();
        let nodes = roll
            .nodes
            .iter()
            .map(|node| (node.name.as_str(), node.weight));
        let table = crate::place::Table::new(nodes);
        let name = &self.members[at].name;
        let number = roll
            .nodes
            .iter()
            .position(|node| node.name == *name)
            .unwrap();
        let keys = (0..).map(|n| format!("key {n}"));
        let owned =
            keys.filter(|key| table.owner(KeyId::of(key).partition()) == Some(number as u8));
        owned.take(count).collect()
    }
}

/// Passes bytes on, both ways.
async fn stand(outside: TcpListener, inside: SocketAddr, state: watch::Receiver<Gate>) {
    loop {
        let (near, _) = outside.accept().await.unwrap();
        if *state.borrow() == Gate::Shut {
            continue;
        }
        let mut state = state.clone();
        tokio::spawn(async move {
            let Ok(far) = TcpStream::connect(inside).await else {
                return;
            };
            let (mut near, mut far) = (near, far);
            loop {
                let now = *state.borrow_and_update();
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far), if now == Gate::Open => return,
                    changed = state.changed() => if changed.is_err() { return },
                }
                if *state.borrow() == Gate::Shut {
                    return;
                }
            }
        });
    }
}

/// Waits until something holds.
pub(super) async fn until(holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "it does not come to that");
        tokio::time::sleep(LOOK).await;
    }
}

/// The same for what is asked over the network.
pub(super) async fn until_asked<F: Future<Output = bool>>(holds: impl Fn() -> F) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < LIMIT, "it does not come to that");
        tokio::time::sleep(LOOK).await;
    }
}
