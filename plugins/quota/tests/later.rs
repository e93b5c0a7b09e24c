use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::rig::*;
use crate::{
    Ask, Away, Calls, Central, Charge, Grant, Keeper, Later, Law, Nanos, QuotaStore, Settled,
    Standing, Verdict, Waiting,
};

async fn left(central: &Central) -> u64 {
    let look = [charge("a", fixed(5_000), 0)];
    central.check(&look, 0).await.unwrap().outcomes[0].remaining
}

#[tokio::test]
async fn what_requests_really_cost_is_said_once_and_soon() {
    let redis = Redis::start();
    let central = Arc::new(redis.central());
    let later = Arc::new(Later::new(Arc::clone(&central) as Arc<dyn QuotaStore>));
    let mut settled = Vec::new();
    for _ in 0..1_000 {
        let verdict = central
            .check(&[charge("a", fixed(5_000), 3)], 0)
            .await
            .unwrap();
        settled.push(Settled {
            charge: charge("a", fixed(5_000), 3),
            more: -2,
            mark: verdict.outcomes[0].mark,
        });
    }
    assert_eq!(left(&central).await, 2_000);
    later.settle(settled, 0);
    for _ in 0..1_000 {
        if left(&central).await == 4_000 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!((left(&central).await, later.lost()), (4_000, 0));
    // Nobody waits for a server that is not there, and what is lost is known.
    drop(redis);
    let lost = Settled {
        charge: charge("a", fixed(5_000), 3),
        more: 1,
        mark: 0,
    };
    later.settle([lost.clone(), Settled { more: 0, ..lost }], 0);
    for _ in 0..1_000 {
        if later.lost() == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{} lost", later.lost());
}

/// A store that answers settlements once it is told to.
#[derive(Debug, Default)]
struct Slow {
    answers: AtomicBool,
    asked: AtomicU64,
    settled: AtomicU64,
}

impl QuotaStore for Slow {
    fn acquire<'a>(&'a self, _: &'a [Ask], _: Nanos) -> Waiting<'a, Vec<Result<Grant, Away>>> {
        Box::pin(async { Vec::new() })
    }

    fn check<'a>(&'a self, _: &'a [Charge], _: Nanos) -> Waiting<'a, Result<Verdict, Away>> {
        Box::pin(async { Err(Away::Known) })
    }

    fn settle<'a>(&'a self, _: &'a [Settled], _: Nanos) -> Waiting<'a, Result<(), Away>> {
        Box::pin(async {
            self.asked.fetch_add(1, Ordering::Relaxed);
            if !self.answers.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            self.settled.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
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

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

#[test]
fn a_runtime_that_ends_in_the_middle_takes_no_later_settlement_with_it() {
    let slow = Arc::new(Slow::default());
    let later = Arc::new(Later::new(Arc::clone(&slow) as Arc<dyn QuotaStore>));
    let one = || Settled {
        charge: charge("a", fixed(5_000), 3),
        more: -1,
        mark: 0,
    };
    let until = async |counter: &AtomicU64, many: u64| {
        while counter.load(Ordering::Relaxed) < many {
            tokio::task::yield_now().await;
        }
    };
    let first = runtime();
    first.block_on(async {
        later.settle([one(), one()], 0);
        until(&slow.asked, 2).await;
    });
    drop(first);
    assert_eq!(later.lost(), 2);
    slow.answers.store(true, Ordering::Relaxed);
    for round in 1..3 {
        runtime().block_on(async {
            later.settle([one()], 0);
            until(&slow.settled, round).await;
            // The task ends by itself.
            tokio::task::yield_now().await;
        });
    }
    assert_eq!(later.lost(), 2);
}
