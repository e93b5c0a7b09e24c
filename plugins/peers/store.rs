//! Peers as a store: each question goes to whoever counts the key.

use futures::future::join_all;
use lockgate_quota::{
    Ask, Away, Calls, Charge, Grant, Keeper, Law, Nanos, QuotaStore, Settled, Standing, Verdict,
    Waiting,
};
use smallvec::SmallVec;

use crate::frame::{Charged, MOST_CHARGES, Question, Reply};
use crate::peers::Peers;
use crate::place::KeyId;

impl Peers {
    async fn charge(&self, charges: &[Charge]) -> Result<Verdict, Away> {
        if charges.len() > MOST_CHARGES {
            return Err(Away::Failed("too many limits in one request".into()));
        }
        let charged = charges
            .iter()
            .map(charged)
            .collect::<Result<SmallVec<[Charged; 2]>, Away>>()?;
        self.asker.charge(&charged).await
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
                Ok(_) => self.asker.ask(key, Question::Take(key, told)).await,
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
                self.asker.ask(charge.key, question).await
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
                Ok(law) => self.asker.ask(key, Question::Look(key, law)).await,
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
            let asked = self.asker.ask(key, Question::Forget(key)).await;
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
