//! Asking whoever counts something.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use futures::future::join_all;
use lockgate_quota::{Away, Verdict};
use smallvec::SmallVec;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};

use crate::core::Core;
use crate::figures::Tallies;
use crate::frame::{Charged, Question, Reply};
use crate::ledger::{Asked, EXPECTED};
use crate::link::Link;
use crate::peers::Links;
use crate::place::KeyId;
use crate::serve::wait_for;

/// How often a question is asked of another gateway because the one before does not count it any more.
const MOST_TRIES: usize = 3;

/// See the module.
#[derive(Clone)]
pub(crate) struct Asker {
    pub(crate) core: Arc<Core>,
    pub(crate) links: Arc<Links>,
    /// This gateway, where permits are written down.
    pub(crate) node: u64,
    /// How long a question may take.
    pub(crate) timeout: Duration,
    /// Limits for which there was no room.
    pub(crate) full: Arc<AtomicU64>,
}

/// Who counts something.
enum Owner {
    Me,
    Other(Arc<Link>),
}

/// Why one try gave no answer.
enum Stop {
    /// Another gateway has to be asked.
    Moved,
    Away(Away),
}

/// Whether a question is one of those that tell how a peer is.
#[derive(Clone, Copy)]
enum Manner {
    /// Nobody asks a peer that did not answer before.
    Asks,
    /// It is said in any case.
    Tells,
}

/// What was charged, and has to be given back if the request does not pass.
type Back = Vec<(Charged, u64)>;

impl Asker {
    /// Who counts a partition.
    fn owner(&self, partition: usize) -> Result<Owner, Away> {
        let view = self.core.view();
        if !self.core.stands() {
            // It does not know who counts any more.
            return Err(Away::Known);
        }
        let owner = view.owner(partition).ok_or(Away::Known)?;
        if view.is_mine(partition) {
            return Ok(Owner::Me);
        }
        let links = self.links.load();
        links
            .get(&owner.name)
            .cloned()
            .map(Owner::Other)
            .ok_or(Away::Known)
    }

    /// Asks who owns a partition, once.
    async fn once(
        &self,
        partition: usize,
        question: &Question,
        until: Instant,
        manner: Manner,
    ) -> Result<Reply, Stop> {
        let reply = match self.owner(partition).map_err(Stop::Away)? {
            Owner::Other(link) => {
                let question = question.clone();
                let asked = match manner {
                    Manner::Asks => link.ask(question, until).await,
                    Manner::Tells => link.tell(question, until).await,
                };
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
            // Nobody comes or goes: the lists of two gateways differ, and waiting does not help.
            Reply::Moved if self.core.is_fixed() => Err(Stop::Away(Away::Known)),
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
    pub(crate) async fn ask(&self, key: KeyId, question: Question) -> Result<Reply, Away> {
        let until = Instant::now() + self.timeout;
        self.wherever(key, question, until, Manner::Asks).await
    }

    async fn wherever(
        &self,
        key: KeyId,
        question: Question,
        until: Instant,
        manner: Manner,
    ) -> Result<Reply, Away> {
        let mut turns = self.core.turns();
        for _ in 0..MOST_TRIES {
            turns.mark_unchanged();
            match self.once(key.partition(), &question, until, manner).await {
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

    /// Charges all limits of a request, or none.
    pub(crate) async fn charge(&self, charged: &[Charged]) -> Result<Verdict, Away> {
        let until = Instant::now() + self.timeout;
        let mut turns = self.core.turns();
        for _ in 0..MOST_TRIES {
            turns.mark_unchanged();
            match self.charge_once(charged, until).await {
                Ok(verdict) => return Ok(verdict),
                Err(Stop::Away(away)) => return Err(away),
                Err(Stop::Moved) => self.turned(&mut turns, until).await?,
            }
        }
        Err(Away::Known)
    }

    async fn charge_once(&self, charged: &[Charged], until: Instant) -> Result<Verdict, Stop> {
        let groups = self.groups(charged);
        if let [_] = groups.as_slice() {
            let question = Question::Check(charged.into());
            let partition = charged[0].key.partition();
            return match self.once(partition, &question, until, Manner::Asks).await? {
                Reply::Verdict(verdict) if verdict.outcomes.len() == charged.len() => Ok(verdict),
                _ => Err(nonsense()),
            };
        }
        // By itself: who asks may be gone before all have answered, and something has to be given back then.
        let (answer, answered) = oneshot::channel();
        let (asker, charged) = (self.clone(), charged.into());
        tokio::spawn(async move { asker.charge_several(charged, groups, until, answer).await });
        match answered.await {
            Ok(verdict) => verdict,
            Err(_) => Err(Stop::Away(Away::Known)),
        }
    }

    /// Charges limits with all who count them, or with none: those that let it pass get back what they
    /// charged if another does not, or does not answer. That has a time of its own.
    async fn charge_several(
        self,
        charged: SmallVec<[Charged; 2]>,
        groups: SmallVec<[SmallVec<[usize; 2]>; 2]>,
        until: Instant,
        answer: oneshot::Sender<Result<Verdict, Stop>>,
    ) {
        let (verdict, back) = self.ask_several(&charged, &groups, until).await;
        if matches!(&verdict, Ok(verdict) if verdict.allowed) {
            if answer.send(verdict).is_err() {
                self.give_back(back).await;
            }
            return;
        }
        // Whoever asks next finds it given back, unless that takes too long.
        let mut given = std::pin::pin!(self.give_back(back));
        let in_time = timeout_at(until, &mut given).await.is_ok();
        // Who asked may be gone.
        let _ = answer.send(verdict);
        if !in_time {
            given.await;
        }
    }

    async fn ask_several(
        &self,
        charged: &[Charged],
        groups: &[SmallVec<[usize; 2]>],
        until: Instant,
    ) -> (Result<Verdict, Stop>, Back) {
        let questions: Vec<Question> = groups
            .iter()
            .map(|group| Question::Check(group.iter().map(|at| charged[*at]).collect()))
            .collect();
        let asked = groups.iter().zip(&questions).map(|(group, question)| {
            let partition = charged[group[0]].key.partition();
            self.once(partition, question, until, Manner::Asks)
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
                        if verdict.allowed && charged[*at].cost > 0 {
                            back.push((charged[*at], outcome.mark));
                        }
                    }
                }
                Ok(_) => stop = Some(nonsense()),
                Err(why) => stop = Some(why),
            }
        }
        let outcomes = outcomes.into_iter().flatten().collect();
        match stop {
            Some(stop) => (Err(stop), back),
            None => (Ok(Verdict { allowed, outcomes }), back),
        }
    }

    /// What cannot be given back stays charged: too much is refused, never too little.
    async fn give_back(&self, back: Back) {
        let until = Instant::now() + self.timeout;
        let each = back.into_iter().map(|(charge, mark)| {
            let less = i64::try_from(charge.cost).unwrap_or(i64::MAX);
            let question = Question::Settle(charge, -less, mark);
            self.wherever(charge.key, question, until, Manner::Tells)
        });
        join_all(each).await;
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
}

/// An answer to another question.
fn nonsense() -> Stop {
    Stop::Away(Away::Failed("the answer is to another question".into()))
}
