//! Permits that are taken ahead, with the store that grants them.
//!
//! [`Leases::take`] decides without waiting whenever it can. A request that cannot be decided waits for the
//! ask that is under way anyway ([`Leases::wait`]). All asks that are due go to the store in one go, at
//! most once in 5 ms; one task carries them, and exists while any key is held.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use futures::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Notify;

use crate::Nanos;
use crate::charge::Charge;
use crate::figures::Calls;
use crate::hold::{Claim, Due, Held, Holder, Mark, Part, RoundTrip, Spend};
use crate::share::{Share, Shares};
use crate::store::{Away, Outcome, QuotaStore, Settled};

/// The shortest time from one batch to the next: at most 200 round trips a second for any number of keys.
const PAUSE: Duration = Duration::from_millis(5);
/// Asks in one batch: what Redis works off in some milliseconds. The others go with the next.
const BATCH: usize = 512;
/// Batches under way at once, when the store answers slowly. Then keys wait for their turn.
const BATCHES: usize = 32;
/// Keys that are counted while the store is away: a few megabytes.
const SHARED_KEYS: usize = 65_536;
/// Requests of so many sets of keys are woken apart from each other.
const BELLS: usize = 256;

/// See the module. One for each store: the store tells gateways apart, and not parts of one.
#[derive(Debug)]
pub struct Leases {
    store: Arc<dyn QuotaStore>,
    holder: Holder,
    shares: Shares,
    bells: Box<[Notify]>,
    /// There is a task that carries asks.
    carried: AtomicBool,
    /// There is something to ask.
    due: Notify,
    /// The caller's clock: some moment of it.
    tie: OnceLock<(Instant, Nanos)>,
    waited: AtomicU64,
    late: AtomicU64,
}

/// Numbers about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeasesFigures {
    /// What became of permits.
    pub held: Held,
    /// How calls to the store ended, those for other purposes included.
    pub calls: Calls,
    /// Whether the store counts as away.
    pub away: bool,
    /// How long requests waited for an ask, in all.
    pub waited: Duration,
    /// Requests that had no more time to wait.
    pub late: u64,
}

impl Leases {
    /// Of a store, for about so many keys at once.
    pub fn new(store: Arc<dyn QuotaStore>, keys: usize) -> Arc<Leases> {
        Arc::new(Leases {
            store,
            holder: Holder::new(keys),
            shares: Shares::new(SHARED_KEYS),
            bells: (0..BELLS).map(|_| Notify::new()).collect(),
            carried: AtomicBool::new(false),
            due: Notify::new(),
            tie: OnceLock::new(),
            waited: AtomicU64::new(0),
            late: AtomicU64::new(0),
        })
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn QuotaStore> {
        &self.store
    }

    /// Decides without waiting, if that is possible. To be called within a runtime: it may start the task that
    /// asks.
    ///
    /// After [`Spend::Wait`] and [`Spend::Full`] see [`Leases::wait`], after [`Spend::Away`] what is to be
    /// done without a store.
    pub fn take(self: &Arc<Self>, claim: &Claim<'_>, now: Nanos) -> Spend {
        let (spend, due) = self.holder.spend(claim, now);
        if due {
            self.carry(now);
        }
        spend
    }

    /// Decides a request that has to wait, `longest` at most: together with the ask that is under way, or
    /// with an ask of its own if there is no place for its key.
    ///
    /// # Errors
    /// When there is no answer in this time.
    pub async fn wait(
        self: &Arc<Self>,
        claim: &Claim<'_>,
        now: Nanos,
        longest: Duration,
    ) -> Result<Outcome, Away> {
        let begun = Instant::now();
        let outcome = self.wait_from(claim, now, (begun, longest)).await;
        self.waited
            .fetch_add(nanos(begun.elapsed()), Ordering::Relaxed);
        if matches!(outcome, Err(Away::Late(_))) {
            self.late.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }

    async fn wait_from(
        self: &Arc<Self>,
        claim: &Claim<'_>,
        now: Nanos,
        (begun, longest): (Instant, Duration),
    ) -> Result<Outcome, Away> {
        self.holder.waits();
        let bell = self.bell(self.holder.spot(claim).set());
        loop {
            // Whoever rings after this line is heard.
            let mut rung = pin!(bell.notified());
            rung.as_mut().enable();
            let elapsed = begun.elapsed();
            match self.take(claim, now.saturating_add(nanos(elapsed))) {
                Spend::Known(outcome) => return Ok(outcome),
                Spend::Away => return Err(Away::Known),
                Spend::Full => {
                    let left = longest.saturating_sub(elapsed);
                    let asked = self.check(claim, now.saturating_add(nanos(elapsed)));
                    let asked = tokio::time::timeout(left, asked).await;
                    return asked.unwrap_or(Err(Away::Late(longest)));
                }
                Spend::Wait => {
                    if !self.carried.load(Ordering::Acquire) {
                        // The runtime of the task that asked has ended.
                        self.carry(now);
                    }
                    let left = longest.saturating_sub(elapsed);
                    if left.is_zero() || tokio::time::timeout(left, rung).await.is_err() {
                        return Err(Away::Late(longest));
                    }
                }
            }
        }
    }

    async fn check(&self, claim: &Claim<'_>, now: Nanos) -> Result<Outcome, Away> {
        let charge = charge(claim);
        let verdict = self.store.check(std::slice::from_ref(&charge), now).await?;
        let none = || Away::Failed("an answer without an outcome".into());
        verdict.outcomes.first().copied().ok_or_else(none)
    }

    /// Charges what a request cost beyond what it was charged, or puts back what it did not cost (then
    /// `more` is negative); `mark` is what its [`Outcome`] said. Waits for the store only if the key is not
    /// held here: not for the request's path.
    ///
    /// # Errors
    /// When the store had to be told, and did not answer.
    pub async fn settle(
        self: &Arc<Self>,
        claim: &Claim<'_>,
        more: i64,
        mark: Mark,
        now: Nanos,
    ) -> Result<(), Away> {
        if more == 0 || self.settle_here(claim, more, mark, now) {
            return Ok(());
        }
        let settled = Settled {
            charge: charge(claim),
            more,
            mark,
        };
        self.store.settle(&[settled], now).await
    }

    /// As [`Leases::settle`], without waiting. Says whether that was possible.
    pub fn settle_here(
        self: &Arc<Self>,
        claim: &Claim<'_>,
        more: i64,
        mark: Mark,
        now: Nanos,
    ) -> bool {
        let claim = Claim {
            cost: more.unsigned_abs(),
            ..*claim
        };
        if more < 0 {
            return self.holder.give_back(&claim, mark, now);
        }
        let (charged, due) = self.holder.charge(&claim, now);
        if due {
            self.carry(now);
        }
        charged
    }

    /// Decides without a store, by this gateway's part of the limit: for [`OnStoreError::Local`]. What was
    /// known of the key when the store was heard of last is what is divided.
    ///
    /// [`OnStoreError::Local`]: crate::OnStoreError::Local
    pub fn alone(&self, claim: &Claim<'_>, part: Share, now: Nanos) -> Outcome {
        let known = self.holder.part(claim, now);
        let left = known.filter(|part| !part.reset.is_zero());
        let share = Share {
            left: part.left.or(left.map(|part| part.left)),
            ..part
        };
        let law = claim.terms.law();
        self.shares
            .take(&claim.name, law, &share, (claim.cost, now))
    }

    /// What this gateway holds of a key.
    pub fn part(&self, claim: &Claim<'_>, now: Nanos) -> Option<Part> {
        self.holder.part(claim, now)
    }

    /// Numbers about it; walks all keys that are held.
    pub fn figures(&self) -> LeasesFigures {
        LeasesFigures {
            held: self.holder.held(),
            calls: self.store.calls(),
            away: self.store.is_away(),
            waited: Duration::from_nanos(self.waited.load(Ordering::Relaxed)),
            late: self.late.load(Ordering::Relaxed),
        }
    }

    fn bell(&self, set: usize) -> &Notify {
        &self.bells[set % BELLS]
    }

    /// There is something to ask.
    fn carry(self: &Arc<Self>, now: Nanos) {
        self.tie.get_or_init(|| (Instant::now(), now));
        if self.carried.swap(true, Ordering::AcqRel) {
            self.due.notify_one();
            return;
        }
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(carry(Carrier(Arc::downgrade(self))));
            }
            // Whoever comes next from within a runtime starts it.
            Err(_) => self.carried.store(false, Ordering::Release),
        }
    }

    fn now(&self) -> Nanos {
        match self.tie.get() {
            Some((instant, now)) => now.saturating_add(nanos(instant.elapsed())),
            None => 0,
        }
    }

    /// Sends what is due, and hands out what comes.
    async fn send(self: Arc<Self>, due: Vec<Due>) {
        let asks: Vec<_> = due.iter().map(|due| due.ask.clone()).collect();
        let sent = self.now();
        let mut batch = Batch {
            leases: &self,
            due: due.into_iter(),
        };
        let mut answers = self.store.acquire(&asks, sent).await.into_iter();
        let now = self.now();
        for due in batch.due.by_ref() {
            match answers.next() {
                Some(Ok(grant)) => {
                    if self.holder.granted(&due, &grant, RoundTrip { sent, now }) {
                        self.due.notify_one();
                    }
                }
                // An answer that is missing is none.
                Some(Err(_)) | None => self.holder.failed(&due, now),
            }
            self.bell(due.place.set()).notify_waiters();
        }
    }
}

/// Asks under way. When their runtime ends before the answer comes, there is none.
struct Batch<'a> {
    leases: &'a Leases,
    due: std::vec::IntoIter<Due>,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        for due in self.due.by_ref() {
            self.leases.holder.failed(&due, self.leases.now());
            self.leases.bell(due.place.set()).notify_waiters();
        }
    }
}

/// The one task that carries asks. Where its runtime ends, another may be started.
struct Carrier(Weak<Leases>);

impl Drop for Carrier {
    fn drop(&mut self) {
        if let Some(leases) = self.0.upgrade() {
            leases.carried.store(false, Ordering::Release);
        }
    }
}

async fn carry(mut carrier: Carrier) {
    let mut under_way = FuturesUnordered::new();
    let mut pause: Option<Instant> = None;
    loop {
        let Some(leases) = carrier.0.upgrade() else {
            return;
        };
        let paused = pause.is_some_and(|until| Instant::now() < until);
        if !paused && under_way.len() < BATCHES {
            let due = leases.holder.due(leases.now(), BATCH);
            if !due.is_empty() {
                under_way.push(Arc::clone(&leases).send(due));
                pause = Some(Instant::now() + PAUSE);
            }
        }
        let next = leases.holder.next();
        if next.is_none() && under_way.is_empty() {
            // Whoever comes between the question and the end of this task finds it carried: ask once more.
            leases.carried.store(false, Ordering::Release);
            let more = leases.holder.next().is_some();
            if !more || leases.carried.swap(true, Ordering::AcqRel) {
                // Not this one's to say any more.
                carrier.0 = Weak::new();
                return;
            }
            continue;
        }
        let idle = next.map_or(Duration::MAX, |at| {
            Duration::from_nanos(at.saturating_sub(leases.now()))
        });
        let rest = pause.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(Instant::now())
        });
        let full = under_way.len() >= BATCHES;
        let sleep = if full {
            LONGEST
        } else {
            idle.max(rest).min(LONGEST)
        };
        let due = async {
            // A new key may be due before the next tick; never before the pause is over.
            leases.due.notified().await;
            tokio::time::sleep(rest).await;
        };
        tokio::select! {
            Some(()) = under_way.next(), if !under_way.is_empty() => {}
            () = due, if !full => {}
            () = tokio::time::sleep(sleep) => {}
        }
    }
}

/// The task looks whether its store is still used at least so often.
const LONGEST: Duration = Duration::from_secs(2);

fn charge(claim: &Claim<'_>) -> Charge {
    Charge {
        key: claim.name.key(),
        law: claim.terms.law(),
        cost: claim.cost,
    }
}

fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}
