//! Count and window of a limit.

use std::sync::Arc;
use std::time::Duration;

use lockgate_limit::{Algorithm, Counted, Rule, Unclear};
use lockgate_plugin::{Ctx, Problems};

use super::{WindowType, central};
use crate::traffic::limits::amount::{self, Amount};
use crate::traffic::limits::key::KeySource;
use crate::traffic::limits::posts::{Kept, Laws, Told, Within, bound};

pub(super) struct Numbers {
    pub(super) count: Amount,
    pub(super) window: Amount,
    /// For every request, if the numbers are the same.
    pub(super) rule: Option<Rule>,
}

impl Numbers {
    pub(super) fn build(
        (count, window): (&amount::Conf, &amount::Conf),
        window_type: WindowType,
        out: &mut Problems,
    ) -> Numbers {
        let count = Amount::build(count, 1, "count", out);
        let window = Amount::build(window, 1, "time_window", out);
        let fixed = count.fixed().zip(window.fixed());
        let rule = fixed.and_then(|(count, window)| Numbers::rule(count, window, window_type));
        Numbers {
            count,
            window,
            rule,
        }
    }

    /// What is told of a limit with these numbers.
    pub(super) fn told(
        &self,
        key: &Arc<KeySource>,
        expression: &str,
        (count, window): (&amount::Conf, &amount::Conf),
        (kind, kept): (WindowType, Kept),
    ) -> Told {
        let (fixed, seconds) = (self.count.fixed(), self.window.fixed());
        let (named, bound) = match kind {
            WindowType::Fixed => ("fixed_window", bound::FIXED),
            WindowType::Sliding => ("sliding_window", bound::SLIDING),
        };
        Told {
            kept,
            key: Arc::clone(key),
            expression: expression.into(),
            within: Within::Limit,
            numbers: Box::new(move |wanted| {
                let count = wanted.count.or(fixed).ok_or(Unclear::Number("count"))?;
                let window = wanted.window.map(|window| window.as_secs());
                let window = window.or(seconds).ok_or(Unclear::Number("time_window"))?;
                let rule = Numbers::rule(count, window, kind);
                let bad = || Unclear::Rule("count and window have to be at least 1".to_owned());
                rule.map(Counted::Rate).ok_or_else(bad)
            }),
            limit: format!("{count} in {window} s, {named}").into(),
            bound,
            dry_run: false,
        }
    }

    /// The law in Redis, with the numbers that somebody names where they depend on the request.
    pub(super) fn laws(&self, kind: WindowType) -> Laws {
        let (count, window) = (self.count.fixed(), self.window.fixed());
        Box::new(move |wanted| {
            let count = wanted.count.or(count).ok_or(Unclear::Number("count"))?;
            let named = wanted.window.map(|window| window.as_secs());
            let window = named.or(window).ok_or(Unclear::Number("time_window"))?;
            let law = central::law(kind, count, window);
            law.map_err(|bad| Unclear::Rule(bad.to_string()))
        })
    }

    /// Count and window for a request.
    pub(super) fn find(&self, cx: &Ctx<'_>) -> Option<(u64, u64)> {
        let source = cx.lookup();
        let count = self.count.find(&source, 1).ok()?;
        Some((count, self.window.find(&source, 1).ok()?))
    }

    /// `None` for a zero, which neither the schema nor a variable lets through.
    pub(super) fn rule(count: u64, window: u64, window_type: WindowType) -> Option<Rule> {
        let algorithm = match window_type {
            WindowType::Fixed => Algorithm::Fixed { aligned: false },
            WindowType::Sliding => Algorithm::Sliding { strict: false },
        };
        Rule::new(algorithm, count, Duration::from_secs(window)).ok()
    }
}
