//! Questions to rules, by the limits that are in force for keys instead of their own.

use smallvec::SmallVec;

use crate::{All, Ask, Counted, Decision, Engine, Key, Nanos, Receipt, Rule};

impl Engine {
    /// The rule that is in force for a key instead of its own, if there is one.
    fn instead(&self, key: Key, now: Nanos) -> Option<Rule> {
        match self.overrides().find(key, now)? {
            Counted::Rate(rule) => Some(rule),
            Counted::AtOnce(_) => None,
        }
    }

    /// What a rule would say. Changes nothing.
    pub fn peek(&self, ask: &Ask<'_>, now: Nanos) -> Decision {
        match self.instead(ask.key, now) {
            Some(rule) => self.peek_as_is(&by(ask, &rule), now),
            None => self.peek_as_is(ask, now),
        }
    }

    /// Asks a rule, and charges it if it agrees.
    pub fn take(&self, ask: &Ask<'_>, now: Nanos) -> (Decision, Receipt) {
        let Some(rule) = self.instead(ask.key, now) else {
            return self.take_as_is(ask, now);
        };
        let (decision, mut receipt) = self.take_as_is(&by(ask, &rule), now);
        // It may be over before the charge is settled.
        receipt.by = Some(Box::new(rule));
        (decision, receipt)
    }

    /// Asks several rules, and charges all of them or none.
    pub fn take_all(&self, asks: &[Ask<'_>], now: Nanos) -> All {
        if asks.iter().all(|ask| self.instead(ask.key, now).is_none()) {
            return self.take_all_as_is(asks, now);
        }
        // Found once, so that all of it is by the same rules.
        let instead = asks.iter().map(|ask| self.instead(ask.key, now));
        let instead: SmallVec<[Option<Rule>; 4]> = instead.collect();
        let asked = asks.iter().zip(&instead);
        let asked: SmallVec<[Ask<'_>; 4]> = asked
            .map(|(ask, rule)| rule.as_ref().map_or(*ask, |rule| by(ask, rule)))
            .collect();
        let mut all = self.take_all_as_is(&asked, now);
        for (receipt, rule) in all.receipts.iter_mut().zip(&instead) {
            receipt.by = rule.map(Box::new);
        }
        all
    }
}

/// The same question, to another rule.
fn by<'a>(ask: &Ask<'_>, rule: &'a Rule) -> Ask<'a> {
    Ask {
        rule,
        key: ask.key,
        cost: ask.cost,
    }
}
