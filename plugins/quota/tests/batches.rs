//! How asks are carried: on a store in memory, by several threads at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use super::rig::{LIMIT, claim, fixed};
use crate::{
    Account, Ask, Away, Calls, Charge, Grant, Keeper, Law, Leases, Nanos, QuotaStore, Settled,
    Spend, Standing, Terms, Verdict, Waiting,
};

/// A store, as one gateway sees it.
#[derive(Debug)]
struct Memory {
    accounts: Arc<Mutex<FxHashMap<String, Account>>>,
    node: u64,
    calls: AtomicU64,
    /// How long an answer takes; `None`: for ever.
    takes: Option<Duration>,
    begun: Instant,
}

impl Memory {
    fn new(node: u64, takes: Option<Duration>) -> Memory {
        Memory {
            accounts: Arc::default(),
            node,
            calls: AtomicU64::new(0),
            takes,
            begun: Instant::now(),
        }
    }

    fn now(&self) -> u64 {
        1_000_000 + self.begun.elapsed().as_micros() as u64
    }
}

impl QuotaStore for Memory {
    fn acquire<'a>(&'a self, asks: &'a [Ask], _: Nanos) -> Waiting<'a, Vec<Result<Grant, Away>>> {
        Box::pin(async move {
            self.calls.fetch_add(1, Ordering::Relaxed);
            match self.takes {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
            let now = self.now();
            let mut accounts = self.accounts.lock().unwrap();
            let grant = |ask: &Ask| {
                let account = accounts.entry(ask.key.clone()).or_default();
                Ok(account.grant(self.node, ask, now))
            };
            asks.iter().map(grant).collect()
        })
    }

    fn check<'a>(&'a self, _: &'a [Charge], _: Nanos) -> Waiting<'a, Result<Verdict, Away>> {
        Box::pin(async { Err(Away::Known) })
    }

    fn settle<'a>(&'a self, _: &'a [Settled], _: Nanos) -> Waiting<'a, Result<(), Away>> {
        Box::pin(async { Err(Away::Known) })
    }

    fn inspect<'a>(&'a self, _: &'a str, _: Law, _: Nanos) -> Waiting<'a, Result<Standing, Away>> {
        Box::pin(async { Err(Away::Known) })
    }

    fn reset<'a>(&'a self, _: &'a str, _: Nanos) -> Waiting<'a, Result<bool, Away>> {
        Box::pin(async { Err(Away::Known) })
    }

    fn keeper(&self) -> Keeper {
        Keeper::Owner
    }

    fn is_away(&self) -> bool {
        false
    }

    fn calls(&self) -> Calls {
        Calls::default()
    }
}

async fn take(leases: &Arc<Leases>, text: &str, terms: &Terms, now: Nanos) -> bool {
    let claim = claim(text, terms);
    match leases.take(&claim, now) {
        Spend::Known(outcome) => outcome.allowed,
        Spend::Wait => leases.wait(&claim, now, LIMIT).await.unwrap().allowed,
        other => panic!("{other:?}"),
    }
}

/// What was spent, when no answer comes in between.
async fn balanced(leases: &Leases) -> u64 {
    let mut held = leases.figures().held;
    for _ in 0..2_000 {
        if held.granted == held.spent + held.held + held.returned + held.stranded {
            return held.spent;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        held = leases.figures().held;
    }
    panic!("some are lost: {held:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_and_gateways_get_what_was_granted_and_no_more() {
    const EACH: u64 = 5_000;
    let hour = Duration::from_secs(3_600);
    let law = Law::Fixed {
        limit: 12_000,
        window: hour,
    };
    let terms = Arc::new(Terms::new(law, 2, 0.0).unwrap());
    let first = Memory::new(1, Some(Duration::from_millis(1)));
    let mut second = Memory::new(2, Some(Duration::from_millis(1)));
    second.accounts = Arc::clone(&first.accounts);
    let gateways = [Arc::new(first), Arc::new(second)];
    let leases = gateways.clone().map(|store| Leases::new(store, 64));
    let begun = Instant::now();
    let tasks = (0..8).map(|n| {
        let (leases, terms) = (Arc::clone(&leases[n % 2]), Arc::clone(&terms));
        tokio::spawn(async move {
            let mut admitted = 0;
            for _ in 0..EACH {
                let now = 1 + begun.elapsed().as_nanos() as u64;
                admitted += u64::from(take(&leases, "hot", &terms, now).await);
            }
            admitted
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.unwrap();
    }
    let mut sum = 0;
    for leases in &leases {
        sum += balanced(leases).await;
    }
    assert_eq!(sum, admitted);
    assert!(admitted <= 12_000, "{admitted}");
    assert!(admitted >= 11_900, "{admitted}");
    for store in &gateways {
        let calls = store.calls.load(Ordering::Relaxed);
        assert!(calls <= 120, "{calls} for {} requests", 4 * EACH);
    }
}

#[tokio::test]
async fn keys_that_are_due_together_go_together() {
    let store = Arc::new(Memory::new(1, Some(Duration::from_millis(20))));
    let leases = Leases::new(Arc::clone(&store) as Arc<dyn QuotaStore>, 8_192);
    let terms = Terms::new(fixed(100), 1, 0.0).unwrap();
    let keys: Vec<_> = (0..400).map(|n| format!("key-{n}")).collect();
    let waits = keys.iter().map(|key| {
        let claim = claim(key, &terms);
        assert_eq!(leases.take(&claim, 1), Spend::Wait);
        let leases = &leases;
        async move { leases.wait(&claim, 1, LIMIT).await.unwrap().allowed }
    });
    let passed = futures::future::join_all(waits).await;
    assert!(passed.iter().all(|passed| *passed));
    // One runtime thread: all are due before anything is sent.
    assert_eq!(store.calls.load(Ordering::Relaxed), 1);
    assert_eq!(leases.figures().held.asks, 400);
}

#[tokio::test]
async fn a_request_waits_no_longer_than_it_may() {
    let leases = Leases::new(Arc::new(Memory::new(1, None)), 64);
    let terms = Terms::new(fixed(100), 1, 0.0).unwrap();
    let claim = claim("a", &terms);
    let longest = Duration::from_millis(30);
    for _ in 0..2 {
        let late = leases.wait(&claim, 1, longest).await;
        assert!(matches!(late, Err(Away::Late(time)) if time == longest));
    }
    let figures = leases.figures();
    assert_eq!((figures.late, figures.held.waits), (2, 2));
    assert!(figures.waited >= longest * 2);
}

#[tokio::test]
async fn who_is_not_used_any_more_asks_nothing_any_more() {
    let store = Arc::new(Memory::new(1, Some(Duration::from_millis(1))));
    let leases = Leases::new(Arc::clone(&store) as Arc<dyn QuotaStore>, 64);
    let short = Duration::from_millis(50);
    let law = Law::Fixed {
        limit: 100,
        window: short,
    };
    let terms = Terms::new(law, 1, 0.0).unwrap();
    assert!(take(&leases, "a", &terms, 1).await);
    drop(leases);
    // The task that carries asks has the store until it has looked.
    for _ in 0..2_000 {
        if Arc::strong_count(&store) == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it is still carried");
}

#[test]
fn runtimes_end_and_others_go_on() {
    let store = Arc::new(Memory::new(1, Some(Duration::from_millis(1))));
    let leases = Leases::new(store, 64);
    let terms = Terms::new(fixed(100), 1, 0.0).unwrap();
    let claim = claim("a", &terms);
    // Without one nothing is asked, and nobody is harmed.
    assert_eq!(leases.take(&claim, 1), Spend::Wait);
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    for _ in 0..3 {
        let runtime = runtime();
        let waited = leases.wait(&claim, 1, LIMIT);
        let mut outcome = runtime.block_on(waited).unwrap();
        while outcome.allowed {
            let _within = runtime.enter();
            match leases.take(&claim, 1) {
                Spend::Known(next) => outcome = next,
                // The next runtime's to ask.
                _ => break,
            }
        }
    }
}

#[test]
fn an_ask_whose_runtime_ended_has_no_answer() {
    let store = Arc::new(Memory::new(1, None));
    let leases = Leases::new(store, 64);
    let terms = Terms::new(fixed(100), 1, 0.0).unwrap();
    let claim = claim("a", &terms);
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().unwrap();
    let late = runtime.block_on(leases.wait(&claim, 1, Duration::from_millis(30)));
    assert!(matches!(late, Err(Away::Late(_))));
    assert_eq!(leases.take(&claim, 1), Spend::Wait);
    drop(runtime);
    assert_eq!(leases.take(&claim, 1), Spend::Away);
}
