//! A store in memory, which may go away.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockgate_quota::{
    Account, Ask, Away, Calls, Charge, Grant, Keeper, Law, Nanos, QuotaStore, Settled, Standing,
    Verdict, Waiting,
};

#[derive(Debug, Default)]
pub(super) struct Memory {
    kept: Arc<Kept>,
    /// Which gateway asks.
    node: u64,
    pub(super) away: AtomicBool,
    /// That is found out by waiting.
    pub(super) late: AtomicBool,
    pub(super) calls: AtomicU64,
}

#[derive(Debug, Default)]
struct Kept {
    accounts: Mutex<HashMap<String, Account>>,
    micros: AtomicU64,
}

impl Memory {
    /// The same store, as another gateway sees it.
    pub(super) fn beside(&self) -> Memory {
        Memory {
            kept: Arc::clone(&self.kept),
            node: self.node + 1,
            ..Memory::default()
        }
    }

    pub(super) fn advance(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap();
        self.kept.micros.fetch_add(micros, Ordering::Relaxed);
    }

    pub(super) fn go_away(&self, away: bool) {
        self.away.store(away, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        // Some time after the beginning of windows.
        3_600_000_000_000 + self.kept.micros.load(Ordering::Relaxed)
    }

    fn answer<T: Send + 'static>(
        &self,
        answer: impl FnOnce() -> T,
    ) -> Waiting<'_, Result<T, Away>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let answer = match self.away.load(Ordering::Relaxed) {
            true if self.late.load(Ordering::Relaxed) => Err(Away::Late(Duration::ZERO)),
            true => Err(Away::Known),
            false => Ok(answer()),
        };
        Box::pin(std::future::ready(answer))
    }
}

impl QuotaStore for Memory {
    fn acquire<'a>(&'a self, asks: &'a [Ask], _: Nanos) -> Waiting<'a, Vec<Result<Grant, Away>>> {
        let now = self.now();
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut accounts = self.kept.accounts.lock().unwrap();
        let away = self.away.load(Ordering::Relaxed);
        let each = asks.iter().map(|ask| match away {
            true => Err(Away::Known),
            false => {
                let account = accounts.entry(ask.key.clone()).or_default();
                Ok(account.grant(self.node, ask, now))
            }
        });
        let answers = each.collect();
        Box::pin(std::future::ready(answers))
    }

    fn check<'a>(&'a self, charges: &'a [Charge], _: Nanos) -> Waiting<'a, Result<Verdict, Away>> {
        let now = self.now();
        self.answer(|| {
            let mut accounts = self.kept.accounts.lock().unwrap();
            let looks = charges.iter().map(|charge| {
                let account = accounts.entry(charge.key.clone()).or_default();
                account.look(charge.law, charge.cost, now)
            });
            let outcomes: smallvec::SmallVec<[_; 2]> = looks.collect();
            let allowed = outcomes.iter().all(|outcome| outcome.allowed);
            for charge in charges.iter().filter(|_| allowed) {
                let account = accounts.entry(charge.key.clone()).or_default();
                account.check(charge.law, charge.cost, now);
            }
            Verdict { allowed, outcomes }
        })
    }

    fn settle<'a>(&'a self, settled: &'a [Settled], _: Nanos) -> Waiting<'a, Result<(), Away>> {
        let now = self.now();
        self.answer(|| {
            let mut accounts = self.kept.accounts.lock().unwrap();
            for one in settled {
                let account = accounts.entry(one.charge.key.clone()).or_default();
                account.settle(one.charge.law, one.more, one.mark, now);
            }
        })
    }

    fn inspect<'a>(
        &'a self,
        key: &'a str,
        law: Law,
        _: Nanos,
    ) -> Waiting<'a, Result<Standing, Away>> {
        let now = self.now();
        self.answer(|| {
            let mut accounts = self.kept.accounts.lock().unwrap();
            accounts
                .entry(key.to_owned())
                .or_default()
                .standing(law, now)
        })
    }

    fn reset<'a>(&'a self, key: &'a str, _: Nanos) -> Waiting<'a, Result<bool, Away>> {
        self.answer(|| self.kept.accounts.lock().unwrap().remove(key).is_some())
    }

    fn keeper(&self) -> Keeper {
        Keeper::Owner
    }

    fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed)
    }

    fn calls(&self) -> Calls {
        Calls::default()
    }
}
