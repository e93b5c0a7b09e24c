//! The count in Redis.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use redis::{Cmd, RedisResult, Value};

use crate::Nanos;
use crate::answers::{read_grant, read_standing, read_verdict};
use crate::charge::{Charge, Law};
use crate::figures::Calls;
use crate::key::book_of;
use crate::lease::{Ask, Grant};
use crate::patience::Patience;
use crate::script::Script;
use crate::server::Server;
use crate::store::{Away, Keeper, QuotaStore, Settled, Standing, Verdict, Waiting};
use crate::talk::{Question, Repeat, Talk};

/// One server, as seen by this process.
pub struct Central {
    talk: Talk,
    /// What this process is called in the books: another after each start, as it has forgotten what it held.
    node: String,
    check: Script,
    settle: Script,
    lease: Script,
    inspect: Script,
    pub(crate) places: Script,
}

impl Central {
    /// A server that is waited for as long as `deadline`, and never longer. Nothing is connected yet.
    pub fn new(server: Server, deadline: Duration) -> Central {
        Central::with(server, Patience::fixed(deadline))
    }

    /// A server that is waited for four times as long as it usually needs, at least 5 ms, and never longer
    /// than `longest`: for callers who know what to do without it.
    pub fn adaptive(server: Server, longest: Duration) -> Central {
        Central::with(server, Patience::adaptive(longest))
    }

    fn with(server: Server, patience: Patience) -> Central {
        Central {
            talk: Talk::new(server, patience),
            node: format!("{:016x}", RandomState::new().hash_one(())),
            check: Script::of_laws(include_str!("scripts/check.lua")),
            settle: Script::of_laws(include_str!("scripts/settle.lua")),
            lease: Script::of_laws(include_str!("scripts/lease.lua")),
            inspect: Script::of_laws(include_str!("scripts/inspect.lua")),
            places: Script::new(include_str!("scripts/places.lua")),
        }
    }

    /// Charges a request on all its limits, or on none. In a cluster their keys have to have one scope.
    ///
    /// # Errors
    /// When there is no answer. What was charged then is not known: the request may count.
    pub async fn check(&self, charges: &[Charge], now: Nanos) -> Result<Verdict, Away> {
        let command = &|text| {
            let mut command = self.check.command(charges.len(), text);
            let each = charges.iter().map(|charge| (charge, cost(charge), None));
            write(&mut command, each);
            command
        };
        let key = charges.first().map_or("", |charge| &charge.key);
        // Asked twice it may be charged twice: that is on the side of the limit.
        let question = Question::safe(key, command);
        let value = self.talk.ask(&question, now).await?;
        made(read_verdict(charges, &value))
    }

    /// Charges afterwards, or gives back: what a request really cost, less what was charged. Nothing is
    /// refused; debts are bounded, and what is given back makes no room in a window it was not charged to.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn settle(&self, charges: &[Settled], now: Nanos) -> Result<(), Away> {
        let command = &|text| {
            let mut command = self.settle.command(charges.len(), text);
            let each = charges
                .iter()
                .map(|settled| (&settled.charge, settled.more, Some(settled.mark)));
            write(&mut command, each);
            command
        };
        let key = charges.first().map_or("", |settled| &settled.charge.key);
        let mut question = Question::safe(key, command);
        if charges.iter().any(|settled| settled.more < 0) {
            // What is given back twice makes room that nobody left.
            question.repeat = Repeat::Never;
        }
        self.talk.ask(&question, now).await.map(drop)
    }

    /// Asks for permits, and gives some back; as many limits as are due, at once.
    ///
    /// # Errors
    /// For each limit, when there is no answer. Asked again with the same number, nothing is lost.
    pub async fn lease(&self, asks: &[Ask], now: Nanos) -> Vec<Result<Grant, Away>> {
        // One connection carries all of them, and writes what is there in one go.
        let each = asks.iter().map(|ask| async move {
            let command = &|text| lease_command(&self.lease, ask, &self.node, (text, None));
            let question = Question::safe(&ask.key, command);
            let value = self.talk.ask(&question, now).await?;
            made(read_grant(&value))
        });
        futures::future::join_all(each).await
    }

    /// Forgets what was counted. Says how many of the keys there were.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn reset(&self, keys: &[String], now: Nanos) -> Result<u64, Away> {
        let mut gone = 0;
        for key in keys {
            // One by one: they need not be in one slot.
            let mut command = redis::cmd("DEL");
            command.arg(key).arg(book_of(key));
            let command = &|_| command.clone();
            let question = Question::safe(key, command);
            let value = self.talk.ask(&question, now).await?;
            gone += u64::from(matches!(value, Value::Int(n) if n > 0));
        }
        Ok(gone)
    }

    /// Asks for permits as some node and at some time, on the same server.
    #[cfg(test)]
    pub(crate) async fn lease_as(&self, node: u64, ask: &Ask, clock: Option<u64>) -> Grant {
        let node = node.to_string();
        let command = &|text| lease_command(&self.lease, ask, &node, (text, clock));
        let question = Question::safe(&ask.key, command);
        read_grant(&self.talk.ask(&question, 0).await.unwrap()).unwrap()
    }

    async fn look(&self, key: &str, law: Law, now: Nanos) -> Result<Standing, Away> {
        let command = &|text| {
            let (law, limit, window) = law.words();
            let mut command = self.inspect.command(2, text);
            command.arg(key).arg(book_of(key));
            command.arg(law).arg(limit).arg(window);
            command
        };
        let question = Question::safe(key, command);
        let value = self.talk.ask(&question, now).await?;
        made(read_standing(&value))
    }

    /// Whether the server counts as away; of a cluster, whether a part of it does.
    pub fn is_away(&self) -> bool {
        self.talk.is_away()
    }

    pub(crate) fn talk(&self) -> &Talk {
        &self.talk
    }
}

impl QuotaStore for Central {
    fn acquire<'a>(&'a self, asks: &'a [Ask], now: Nanos) -> Waiting<'a, Vec<Result<Grant, Away>>> {
        Box::pin(self.lease(asks, now))
    }

    fn check<'a>(
        &'a self,
        charges: &'a [Charge],
        now: Nanos,
    ) -> Waiting<'a, Result<Verdict, Away>> {
        Box::pin(self.check(charges, now))
    }

    fn settle<'a>(&'a self, settled: &'a [Settled], now: Nanos) -> Waiting<'a, Result<(), Away>> {
        Box::pin(self.settle(settled, now))
    }

    fn inspect<'a>(
        &'a self,
        key: &'a str,
        law: Law,
        now: Nanos,
    ) -> Waiting<'a, Result<Standing, Away>> {
        Box::pin(self.look(key, law, now))
    }

    fn reset<'a>(&'a self, key: &'a str, now: Nanos) -> Waiting<'a, Result<bool, Away>> {
        Box::pin(async move { Ok(self.reset(&[key.to_owned()], now).await? > 0) })
    }

    fn keeper(&self) -> Keeper {
        Keeper::Redis
    }

    fn is_away(&self) -> bool {
        self.talk.is_away()
    }

    fn calls(&self) -> Calls {
        self.talk.calls()
    }
}

impl fmt::Debug for Central {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Central")
            .field("talk", &self.talk)
            .finish_non_exhaustive()
    }
}

/// What was made of an answer. One that is none says nothing about whether the server is there: it is.
fn made<T>(read: RedisResult<T>) -> Result<T, Away> {
    read.map_err(|error| Away::Failed(Box::new(error)))
}

/// Keys, and for each of them law, number, limit, window and the mark if there is one.
fn write<'a>(
    command: &mut Cmd,
    charges: impl Iterator<Item = (&'a Charge, i64, Option<u64>)> + Clone,
) {
    for (charge, ..) in charges.clone() {
        command.arg(&charge.key);
    }
    for (charge, number, mark) in charges {
        let (law, limit, window) = charge.law.words();
        command.arg(law).arg(number).arg(limit).arg(window);
        if let Some(mark) = mark {
            command.arg(mark);
        }
    }
}

fn cost(charge: &Charge) -> i64 {
    // Beyond 2^53 nothing passes any limit.
    i64::try_from(charge.cost.min(1 << 53)).unwrap_or(i64::MAX)
}

/// `text` and, in tests, the time by another clock than the server's.
fn lease_command(
    script: &Script,
    ask: &Ask,
    node: &str,
    (text, clock): (bool, Option<u64>),
) -> Cmd {
    let (law, limit, window) = ask.law.words();
    let mut command = script.command(2, text);
    command.arg(&ask.key).arg(book_of(&ask.key));
    command.arg(law).arg(limit).arg(window).arg(node);
    for number in [ask.number, ask.want, ask.back, ask.over, ask.mark, ask.held] {
        command.arg(number);
    }
    command.arg(ask.most.unwrap_or(0));
    let keeps = u64::try_from(ask.keeps.as_micros()).unwrap_or(u64::MAX);
    command.arg(keeps);
    command.arg(clock.map_or_else(String::new, |us| us.to_string()));
    command
}
