//! Peers as a store: each question goes to whoever counts the key.

use futures::future::join_all;
use lockgate_quota::{
    Ask, Away, Calls, Charge, Grant, Keeper, Law, Nanos, QuotaStore, Settled, Standing, Verdict,
    Waiting,
};
use smallvec::SmallVec;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::figures::Tallies;
use crate::frame::{Charged, MOST_CHARGES, Question, Reply};
use crate::ledger::{Asked, EXPECTED};
use crate::peers::{Owner, Peers};
use crate::place::KeyId;
use crate::serve::wait_for;

/// How often a question is asked of another gateway because the one before does not count it any more.
const MOST_TRIES: usize = 3;

/// Why one try gave no answer.
enum Stop {
    /// Another gateway has to be asked.
    Moved,
    Away(Away),
}

impl Peers {
    /// Asks who owns a partition, once.
    async fn once(
        &self,
        partition: usize,
        question: &Question,
        until: Instant,
    ) -> Result<Reply, Stop> {
        let reply = match self.owner(partition).map_err(Stop::Away)? {
            Owner::Other(link) => {
                let asked = link.ask(question.clone(), until).await;
                asked.map_err(Stop::Away)?
            }
            Owner::Me => {
                let epoch = self.core.view().epoch();
                match self.core.ask(self.node, epoch, question) {
                    Asked::Answered(reply) => reply,
                    Asked::Expected => {
                        let most = until.min(Instant::now() + EXPECTED);
                        wait_for(&self.core, (self.node, epoch), question, most).await
                    }
                }
            }
        };
        match reply {
            Reply::Moved => Err(Stop::Moved),
            // Nothing is wrong with anybody; there is nothing to be told in a log.
            Reply::Later => Err(Stop::Away(Away::Known)),
            Reply::Full => {
                Tallies::one(&self.full);
                Err(Stop::Away(Away::Known))
            }
            reply => Ok(reply),
        }
    }

    /// Asks about one key, wherever it is counted by then.
    async fn ask(&self, key: KeyId, question: Question) -> Result<Reply, Away> {
        let until = Instant::now() + self.timeout;
        let mut turns = self.core.turns();
        for _ in 0..MOST_TRIES {
            turns.mark_unchanged();
            match self.once(key.partition(), &question, until).await {
                Ok(reply) => return Ok(reply),
                Err(Stop::Away(away)) => return Err(away),
                Err(Stop::Moved) => self.turned(&mut turns, until).await?,
            }
        }
        Err(Away::Known)
    }

    /// Waits until something else is acted by.
    async fn turned(&self, turns: &mut watch::Receiver<u64>, until: Instant) -> Result<(), Away> {
        match timeout_at(until, turns.changed()).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Away::Late(self.timeout)),
        }
    }

    async fn charge(&self, charges: &[Charge]) -> Result<Verdict, Away> {
        if charges.len() > MOST_CHARGES {
            return Err(Away::Failed("too many limits in one request".into()));
        }
        let charged = charges
            .iter()
            .map(charged)
            .collect::<Result<SmallVec<[Charged; 2]>, Away>>()?;
        let until = Instant::now() + self.timeout;
        let mut turns = self.core.turns();
        for _ in 0..MOST_TRIES {
            turns.mark_unchanged();
            match self.charge_once(&charged, until).await {
                Ok(verdict) => return Ok(verdict),
                Err(Stop::Away(away)) => return Err(away),
                Err(Stop::Moved) => self.turned(&mut turns, until).await?,
            }
        }
        Err(Away::Known)
    }

    /// Charges limits with all who count them, or with none: those that let it pass get back what they
    /// charged if another does not.
    async fn charge_once(&self, charged: &[Charged], until: Instant) -> Result<Verdict, Stop> {
        let groups = self.groups(charged);
        if let [_] = groups.as_slice() {
            let question = Question::Check(charged.into());
            return match self
                .once(charged[0].key.partition(), &question, until)
                .await?
            {
                Reply::Verdict(verdict) if verdict.outcomes.len() == charged.len() => Ok(verdict),
                _ => Err(nonsense()),
            };
        }
        let questions: Vec<Question> = groups
            .iter()
            .map(|group| Question::Check(group.iter().map(|at| charged[*at]).collect()))
            .collect();
        let asked = groups.iter().zip(&questions).map(|(group, question)| {
            let partition = charged[group[0]].key.partition();
            self.once(partition, question, until)
        });
        let replies = join_all(asked).await;
        let mut outcomes: SmallVec<[_; 2]> = SmallVec::from_elem(None, charged.len());
        let (mut allowed, mut stop, mut back) = (true, None, Vec::new());
        for (group, reply) in groups.iter().zip(replies) {
            match reply {
                Ok(Reply::Verdict(verdict)) if verdict.outcomes.len() == group.len() => {
                    allowed &= verdict.allowed;
                    for (at, outcome) in group.iter().zip(&verdict.outcomes) {
                        outcomes[*at] = Some(*outcome);
                        if verdict.allowed {
                            back.push((charged[*at], outcome.mark));
                        }
                    }
                }
                Ok(_) => stop = Some(nonsense()),
                Err(why) => stop = Some(why),
            }
        }
        if stop.is_some() || !allowed {
            let back =
                back.into_iter()
                    .filter(|(charge, _)| charge.cost > 0)
                    .map(|(charge, mark)| {
                        let less = i64::try_from(charge.cost).unwrap_or(i64::MAX);
                        let question = Question::Settle(charge, -less, mark);
                        async move { self.once(charge.key.partition(), &question, until).await }
                    });
            // What cannot be given back stays charged: too much is refused, never too little.
            join_all(back).await;
        }
        if let Some(stop) = stop {
            return Err(stop);
        }
        let outcomes = outcomes.into_iter().flatten().collect();
        Ok(Verdict { allowed, outcomes })
    }

    /// Limits by who counts them.
    fn groups(&self, charged: &[Charged]) -> SmallVec<[SmallVec<[usize; 2]>; 2]> {
        let view = self.core.view();
        let owner = |at: usize| view.table.owner(charged[at].key.partition());
        let mut groups: SmallVec<[SmallVec<[usize; 2]>; 2]> = SmallVec::new();
        for at in 0..charged.len() {
            match groups.iter_mut().find(|group| owner(group[0]) == owner(at)) {
                Some(group) => group.push(at),
                None => groups.push(SmallVec::from_elem(at, 1)),
            }
        }
        groups
    }

    fn counted<T>(&self, ended: Result<T, Away>) -> Result<T, Away> {
        self.tally.count(&ended);
        ended
    }
}

/// A limit that no peer can count is refused here, where it comes from: there it would be no frame.
fn countable(law: Law) -> Result<Law, Away> {
    law.checked().map_err(|bad| Away::Failed(Box::new(bad)))
}

/// An answer to another question.
fn nonsense() -> Stop {
    Stop::Away(Away::Failed("the answer is to another question".into()))
}

fn charged(charge: &Charge) -> Result<Charged, Away> {
    Ok(Charged {
        key: KeyId::of(&charge.key),
        law: countable(charge.law)?,
        cost: charge.cost,
    })
}

impl QuotaStore for Peers {
    fn acquire<'a>(
        &'a self,
        asks: &'a [Ask],
        _now: Nanos,
    ) -> Waiting<'a, Vec<Result<Grant, Away>>> {
        let each = asks.iter().map(move |ask| async move {
            let key = KeyId::of(&ask.key);
            // Who counts knows it by its hash.
            let told = Ask {
                key: String::new(),
                ..ask.clone()
            };
            let asked = match countable(ask.law) {
                Ok(_) => self.ask(key, Question::Take(key, told)).await,
                Err(away) => Err(away),
            };
            self.counted(asked.and_then(|reply| match reply {
                Reply::Granted(grant) => Ok(grant),
                _ => Err(Away::Failed("the answer is to another question".into())),
            }))
        });
        Box::pin(join_all(each))
    }

    fn check<'a>(
        &'a self,
        charges: &'a [Charge],
        _now: Nanos,
    ) -> Waiting<'a, Result<Verdict, Away>> {
        Box::pin(async move { self.counted(self.charge(charges).await) })
    }

    fn settle<'a>(&'a self, settled: &'a [Settled], _now: Nanos) -> Waiting<'a, Result<(), Away>> {
        Box::pin(async move {
            let each = settled.iter().map(|settled| async move {
                let charge = charged(&settled.charge)?;
                let question = Question::Settle(charge, settled.more, settled.mark);
                self.ask(charge.key, question).await
            });
            let all = join_all(each).await;
            self.counted(all.into_iter().try_for_each(|one| one.map(drop)))
        })
    }

    fn inspect<'a>(
        &'a self,
        key: &'a str,
        law: Law,
        _now: Nanos,
    ) -> Waiting<'a, Result<Standing, Away>> {
        Box::pin(async move {
            let key = KeyId::of(key);
            let asked = match countable(law) {
                Ok(law) => self.ask(key, Question::Look(key, law)).await,
                Err(away) => Err(away),
            };
            self.counted(asked.and_then(|reply| match reply {
                Reply::Standing(standing) => Ok(standing),
                _ => Err(Away::Failed("the answer is to another question".into())),
            }))
        })
    }

    fn reset<'a>(&'a self, key: &'a str, _now: Nanos) -> Waiting<'a, Result<bool, Away>> {
        Box::pin(async move {
            let key = KeyId::of(key);
            let asked = self.ask(key, Question::Forget(key)).await;
            self.counted(asked.map(|reply| reply == Reply::Done(true)))
        })
    }

    fn keeper(&self) -> Keeper {
        Keeper::Owner
    }

    fn is_away(&self) -> bool {
        !self.core.stands() || self.core.view().live() == 0
    }

    fn calls(&self) -> Calls {
        self.tally.read()
    }
}
