//! A gateway and its peers: what runs beside the requests.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use lockgate_quota::Tally;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::ask::Asker;
use crate::core::{Core, MOST_MOVES, Move, node_id};
use crate::figures::Figures;
use crate::link::Link;
use crate::members::{Node, Roll};
use crate::moving::Way;
use crate::secure::{Identity, Secure, Unusable};
use crate::serve::serve;

/// Between two looks at what is over.
const TICK: Duration = Duration::from_millis(50);

/// For leaving: until that is known everywhere, and for handing over.
const LEAVES: Duration = Duration::from_secs(10);

/// What a gateway has to know about itself.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where peers reach it, `host:port`; its name, too.
    pub name: String,
    /// How it proves who it is.
    pub identity: Identity,
    /// How long a question may take.
    pub timeout: Duration,
    /// All gateways, if they never change.
    pub fixed: Option<Vec<String>>,
}

/// See the module.
pub struct Peers {
    pub(crate) core: Arc<Core>,
    secure: Arc<Secure>,
    links: Arc<Links>,
    moves: Mutex<Option<mpsc::Receiver<Move>>>,
    /// The epoch by which all was handed over that had to be.
    handed: watch::Sender<u64>,
    closed: watch::Sender<bool>,
    pub(crate) asker: Asker,
    pub(crate) tally: Tally,
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peers({})", self.core.name)
    }
}

/// Connections to others, by their names.
pub(crate) type Links = ArcSwap<HashMap<String, Arc<Link>>>;

impl Peers {
    /// A gateway that knows nobody yet, unless its peers never change. Nothing is connected.
    ///
    /// # Errors
    /// When certificates or secret cannot be used.
    pub fn new(setup: Setup) -> Result<Peers, Unusable> {
        let run = rand::random::<u64>().max(1);
        let (core, moves) = Core::new(&setup.name, run, setup.fixed.is_some());
        let secure = Arc::new(Secure::new(&setup.identity)?);
        if let Some(names) = setup.fixed {
            let node = |name: String| Node {
                // Which start of it is not known, and makes no difference.
                run: if name == setup.name { run } else { 0 },
                name,
                weight: 1,
                revision: 1,
            };
            core.see_fixed(Roll::new(1, names.into_iter().map(node).collect()));
        }
        let links: Arc<Links> = Arc::default();
        let asker = Asker {
            core: Arc::clone(&core),
            links: Arc::clone(&links),
            node: node_id(&core.name, core.run),
            timeout: setup.timeout,
            full: Arc::default(),
        };
        Ok(Peers {
            core,
            secure,
            links,
            moves: Mutex::new(Some(moves)),
            handed: watch::Sender::new(0),
            closed: watch::Sender::new(false),
            asker,
            tally: Tally::default(),
        })
    }

    /// The name of this gateway, and which start of it this is.
    pub fn me(&self) -> (&str, u64) {
        (&self.core.name, self.core.run)
    }

    /// Who takes part, as of a revision.
    pub fn see(&self, roll: Roll) {
        self.core.see(roll);
    }

    /// Others count on this gateway for so long from now, and not on another in its place.
    pub fn stand_for(&self, time: Duration) {
        self.core.stand_for(time);
    }

    /// Others do not count on it any more.
    pub fn fall(&self) {
        self.core.fall();
    }

    /// How many gateways count: what a share is a part of. At least one.
    pub fn live(&self) -> usize {
        self.core.view().live().max(1)
    }

    /// Numbers for whoever watches.
    pub fn figures(&self) -> Figures {
        let view = self.core.view();
        let (owned, expected) = self.core.ledger.places();
        let up = self
            .links
            .load()
            .values()
            .filter(|link| link.is_up())
            .count();
        Figures {
            epoch: view.epoch(),
            nodes: view.live() as u64,
            connected: up as u64,
            owned: owned as u64,
            expected: expected as u64,
            bytes: self.core.ledger.bytes() as u64,
            full: self.asker.full.load(Ordering::Relaxed),
            ..self.core.tallies.read()
        }
    }

    /// Serves peers and keeps connections to them, until [`Peers::close`]. Once.
    pub async fn run(&self, listener: TcpListener) -> io::Result<()> {
        let moves = self
            .moves
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(moves) = moves else {
            return Err(io::Error::other("it runs already"));
        };
        let closed = self.closed.subscribe();
        let serving = serve(
            Arc::clone(&self.core),
            Arc::clone(&self.secure),
            listener,
            closed,
        );
        tokio::join!(serving, self.steer(), self.hand_over(moves));
        Ok(())
    }

    /// Waits until all counts are handed over, once this gateway has been seen to leave; for some seconds
    /// at most.
    pub async fn has_left(&self) {
        if self.core.fixed {
            // Nobody takes over what it owns.
            return;
        }
        if timeout(LEAVES, self.is_gone()).await.is_err() {
            tracing::warn!("peers did not take over what was counted here in time");
        }
    }

    async fn is_gone(&self) {
        let mut handed = self.handed.subscribe();
        loop {
            let view = self.core.view();
            let here = view.me.and_then(|me| view.roll.nodes.get(usize::from(me)));
            let leaves = here.is_none_or(|node| node.weight == 0);
            if leaves && *handed.borrow_and_update() == view.epoch() {
                return;
            }
            if handed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Ends [`Peers::run`]: the listener is free for another. Questions can still be asked.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Keeps links to everybody who is known, and lets time pass.
    async fn steer(&self) {
        let mut closed = self.closed.subscribe();
        let mut known = self.core.news();
        loop {
            self.keep_links();
            let due = self.core.tick().map_or(TICK, |due| due.min(TICK));
            tokio::select! {
                () = tokio::time::sleep(due) => {}
                _ = known.changed() => {}
                _ = closed.wait_for(|closed| *closed) => return,
            }
        }
    }

    fn keep_links(&self) {
        let latest = self.core.latest();
        let others = || {
            latest
                .nodes
                .iter()
                .filter(|node| node.name != self.core.name)
        };
        let links = self.links.load();
        let same = links.len() == others().count()
            && others().all(|node| {
                links
                    .get(&node.name)
                    .is_some_and(|link| link.run() == node.run)
            });
        if same {
            return;
        }
        let kept = others().map(|node| {
            // Another start is another gateway: it is not to get what was meant for the one before.
            let link = links.get(&node.name).cloned();
            let link = link.filter(|link| link.run() == node.run);
            let open = || Arc::new(Link::open(&self.core, &self.secure, node));
            (node.name.clone(), link.unwrap_or_else(open))
        });
        self.links.store(Arc::new(kept.collect()));
    }

    /// Each change for itself: none waits for a peer that is slow to take over what was before.
    async fn hand_over(&self, mut moves: mpsc::Receiver<Move>) {
        let mut closed = self.closed.subscribe();
        let way = Way::new(Arc::clone(&self.core), Arc::clone(&self.links));
        let mut under_way = FuturesUnordered::new();
        let mut last = 0;
        loop {
            let next = tokio::select! {
                next = moves.recv(), if under_way.len() < MOST_MOVES => next,
                Some(()) = under_way.next(), if !under_way.is_empty() => {
                    if under_way.is_empty() {
                        self.handed.send_replace(last);
                    }
                    continue;
                }
                _ = closed.wait_for(|closed| *closed) => return,
            };
            let Some(next) = next else { return };
            last = next.view.epoch();
            self.keep_links();
            under_way.push(way.hand_over(next));
        }
    }
}
