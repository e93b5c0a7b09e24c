//! One gateway among its peers: who takes part, what it counts, and what it tells about itself.
//!
//! Everything here answers at once; what goes over the network is in [`link`](crate::link) and
//! [`serve`](crate::serve).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use lockgate_quota::{Micros, Nanos};
use tokio::sync::{mpsc, watch};

use crate::figures::Tallies;
use crate::frame::{Question, Reply};
use crate::kept::Part;
use crate::ledger::{Asked, Ledger};
use crate::members::{Members, Roll, View};
use crate::place::KeyId;

/// Changes of who owns what that wait to be told to others. There are few, and more than that are lost:
/// the new owners then begin as after a crash.
pub(crate) const MOST_MOVES: usize = 64;

/// See the module.
pub(crate) struct Core {
    /// The name of this gateway.
    pub(crate) name: String,
    /// Which start of it.
    pub(crate) run: u64,
    /// What is counted here.
    pub(crate) ledger: Ledger,
    /// Numbers for whoever watches.
    pub(crate) tallies: Tallies,
    clock: Clock,
    /// What the last part was called that leaves.
    last_part: AtomicU64,
    members: Mutex<Members>,
    view: ArcSwap<View>,
    turned: watch::Sender<u64>,
    /// Changes when somebody is known who was not, acted upon or not.
    known: watch::Sender<u64>,
    moves: mpsc::Sender<Move>,
    /// Until when it may grant anything: as long as others count on it.
    stands_until: AtomicU64,
    /// The highest epoch that a peer spoke of: whether it is worth asking `members`.
    highest: AtomicU64,
    /// Who has handed over everything.
    done: Mutex<HashMap<String, Said>>,
    /// Whether who takes part never changes.
    pub(crate) fixed: bool,
}

/// What has to be told to others after a change.
pub(crate) struct Move {
    /// What is acted by now.
    pub(crate) view: Arc<View>,
    /// Counts that go elsewhere.
    pub(crate) leaving: Vec<Part>,
    /// When.
    pub(crate) at: Instant,
    /// Whether nothing was ever counted here before.
    pub(crate) fresh: bool,
}

/// What a peer said when it had handed over everything.
#[derive(Clone, Copy)]
struct Said {
    /// Which start of it.
    run: u64,
    /// By which epoch.
    epoch: u64,
    /// Whether it had never counted anything.
    fresh: bool,
}

/// The time, as limits have it: wall clock at the start, and from there on one that never goes back.
struct Clock {
    start: Instant,
    wall: Duration,
}

impl Core {
    /// A gateway that knows nobody yet, and what comes of its changes.
    pub(crate) fn new(name: &str, run: u64, fixed: bool) -> (Arc<Core>, mpsc::Receiver<Move>) {
        let (moves, told) = mpsc::channel(MOST_MOVES);
        let members = Members::new(name, run);
        let core = Core {
            name: name.to_owned(),
            run,
            ledger: Ledger::default(),
            tallies: Tallies::default(),
            clock: Clock {
                start: Instant::now(),
                wall: SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default(),
            },
            last_part: AtomicU64::new(0),
            view: ArcSwap::new(Arc::clone(members.view())),
            members: Mutex::new(members),
            turned: watch::Sender::new(0),
            known: watch::Sender::new(0),
            moves,
            stands_until: AtomicU64::new(if fixed { u64::MAX } else { 0 }),
            highest: AtomicU64::new(0),
            done: Mutex::default(),
            fixed,
        };
        (Arc::new(core), told)
    }

    /// What is acted by.
    pub(crate) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Tells when that changes.
    pub(crate) fn turns(&self) -> watch::Receiver<u64> {
        self.turned.subscribe()
    }

    /// Tells when others are known.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.known.subscribe()
    }

    /// Everybody who is known.
    pub(crate) fn latest(&self) -> Roll {
        self.members().latest().clone()
    }

    /// The time for limits.
    pub(crate) fn now(&self) -> Micros {
        let now = self.clock.wall + self.clock.start.elapsed();
        Micros::try_from(now.as_micros()).unwrap_or(Micros::MAX)
    }

    /// The time for breakers.
    pub(crate) fn nanos(&self) -> Nanos {
        Nanos::try_from(self.clock.start.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }

    /// The membership is this, and stays so.
    pub(crate) fn see_fixed(&self, roll: Roll) {
        self.act(|members, _| members.fix(roll));
    }

    /// The membership is this.
    pub(crate) fn see(&self, roll: Roll) {
        self.act(|members, now| members.see(roll, now));
        self.known.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// A peer acts by this epoch.
    pub(crate) fn hear(&self, epoch: u64) {
        // Nearly always known. Where nobody comes or goes it means nothing.
        if !self.fixed && epoch > self.view.load().epoch() {
            self.highest.fetch_max(epoch, Ordering::AcqRel);
            self.act(|members, now| members.hear(epoch, now));
        }
    }

    /// Time has passed. Says when to say so again, if something is due by then.
    pub(crate) fn tick(&self) -> Option<Duration> {
        self.act(Members::tick);
        self.ledger.give_up(self.now());
        self.ledger.sweep(self.now());
        let due = self.members().due()?;
        Some(Duration::from_nanos(due.saturating_sub(self.nanos())))
    }

    fn act(&self, change: impl FnOnce(&mut Members, Nanos) -> bool) {
        let mut members = self.members();
        let old = Arc::clone(members.view());
        if !change(&mut members, self.nanos()) {
            return;
        }
        let view = Arc::clone(members.view());
        let fresh = self.ledger.is_fresh();
        let leaving = self.ledger.turn(&old, &view, self.now());
        self.view.store(Arc::clone(&view));
        // Under the lock: in the order in which it was acted.
        let moved = leaving.iter().map(|part| part.keys.len() as u64).sum();
        self.tallies.handed_over.fetch_add(moved, Ordering::Relaxed);
        if self
            .moves
            .try_send(Move {
                view: Arc::clone(&view),
                leaving,
                fresh,
                at: Instant::now(),
            })
            .is_err()
        {
            tracing::warn!("peers come and go too fast: counts of some limits are lost");
        }
        if view.epoch() < old.epoch() {
            // etcd has been restored: what was said of epochs means others now.
            self.highest.store(view.epoch(), Ordering::Release);
            self.said().clear();
        }
        drop(members);
        self.turned.send_modify(|n| *n = n.wrapping_add(1));
        self.settle_expected();
    }

    /// Whether nobody comes or goes.
    pub(crate) fn is_fixed(&self) -> bool {
        self.fixed
    }

    /// Whether a gateway of this name takes part, acted upon or not. One whose successor has begun may go on
    /// asking for the requests that it still has.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.members().latest().node(name).is_some()
    }

    /// Whether this start of a gateway takes part, acted upon or not.
    fn knows_start(&self, name: &str, run: u64) -> bool {
        let members = self.members();
        let node = members.latest().node(name);
        // In a fixed list starts are not known.
        node.is_some_and(|node| self.fixed || node.run == run)
    }

    /// Others count on it for so long.
    pub(crate) fn stand_for(&self, time: Duration) {
        let until = self.nanos().saturating_add(crate::members::nanos(time));
        self.stands_until.fetch_max(until, Ordering::AcqRel);
    }

    /// They do not any more.
    pub(crate) fn fall(&self) {
        self.stands_until.store(0, Ordering::Release);
    }

    /// Whether others count on it. If not, another may own what it owned.
    pub(crate) fn stands(&self) -> bool {
        let until = self.stands_until.load(Ordering::Acquire);
        until == u64::MAX || self.nanos() < until
    }

    /// Answers a peer, or this gateway itself. `epoch` is what who asks acts by.
    pub(crate) fn ask(&self, node: u64, epoch: u64, question: &Question) -> Asked {
        if !self.stands() {
            return Asked::Answered(Reply::Later);
        }
        self.hear(epoch);
        let mine = self.view.load().epoch();
        if self.highest.load(Ordering::Acquire) > mine {
            let heard = self.heard();
            // Somewhere it is known who owns this now; here and where it is asked it is in a moment.
            if heard > mine && heard > epoch {
                return Asked::Expected;
            }
        }
        match self.ledger.ask(node, question, self.now()) {
            // Who asks may know better.
            Asked::Answered(Reply::Moved) if epoch > mine => Asked::Expected,
            asked => asked,
        }
    }

    fn heard(&self) -> u64 {
        self.members().heard(self.nanos())
    }

    /// Counts of others come here.
    pub(crate) fn take_over(
        &self,
        (name, run): (&str, u64),
        epoch: u64,
        sent: Micros,
        parts: Vec<Part>,
    ) -> Reply {
        self.hear(epoch);
        // What a former start still has is not what the present one counts.
        if self.view.load().epoch() < epoch || !self.knows_start(name, run) {
            return Reply::Later;
        }
        let keys = parts.iter().map(|part| part.keys.len() as u64).sum();
        let node = node_id(name, run);
        let taken = self.ledger.take_over(node, parts, (sent, self.now()));
        if taken == Reply::Done(true) {
            self.tallies.taken_over.fetch_add(keys, Ordering::Relaxed);
        }
        taken
    }

    /// What to call a part that leaves.
    pub(crate) fn next_part(&self) -> u64 {
        self.last_part.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A peer has handed over everything by this epoch.
    pub(crate) fn is_done(&self, name: &str, run: u64, epoch: u64, fresh: bool) -> Reply {
        self.hear(epoch);
        if self.view.load().epoch() < epoch {
            // After etcd was restored there is no such epoch any more.
            return Reply::Later;
        }
        if self.fixed {
            return Reply::Done(true);
        }
        let mut done = self.said();
        let said = Said { run, epoch, fresh };
        // Of those that take part: there are no others here.
        let last = done.entry(name.to_owned()).or_insert(said);
        if last.run != run || last.epoch <= epoch {
            *last = said;
        }
        drop(done);
        self.settle_expected();
        Reply::Done(true)
    }

    /// What is expected does not come when all have said that nothing more does.
    fn settle_expected(&self) {
        let view = self.view.load();
        let mut done = self.said();
        done.retain(|name, _| view.roll.node(name).is_some());
        let others = view.roll.nodes.iter().filter(|node| node.name != self.name);
        let said: Option<Vec<Said>> = others
            .map(|node| {
                let said = done.get(&node.name).copied();
                said.filter(|said| said.run == node.run && said.epoch >= view.epoch())
            })
            .collect();
        drop(done);
        if let Some(said) = said {
            let nobody_counted = self.ledger.is_fresh() && said.iter().all(|said| said.fresh);
            self.ledger
                .all_came(view.epoch(), nobody_counted, self.now());
        }
    }

    /// A peer knew this start of this gateway before; 0 for none.
    pub(crate) fn was_known(&self, name: &str, run: u64) {
        if !self.fixed {
            // Where membership changes this is told by it.
            return;
        }
        if run != 0 && run != self.run {
            self.ledger.doubt(self.now());
            return;
        }
        // Nobody hands anything over here. That this is the first start is all that is waited for.
        let said = Said {
            run: 0,
            epoch: self.view.load().epoch(),
            fresh: true,
        };
        self.said().insert(name.to_owned(), said);
        self.settle_expected();
    }

    fn said(&self) -> MutexGuard<'_, HashMap<String, Said>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a start of a gateway is called where permits are written down.
pub(crate) fn node_id(name: &str, run: u64) -> u64 {
    let id = KeyId::of(&format!("{name} {run}"));
    (id.0 >> 64) as u64
}
