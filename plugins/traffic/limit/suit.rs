//! Where a limit counts, and how: what suits it.

use std::sync::Arc;

use lockgate_limit::{Rule, Unclear};
use lockgate_plugin::Problems;
use lockgate_quota as quota;

use super::conf::{Algorithm, Conf, Mode, One, Scope};
use super::one::Shape;
use super::shared::Shared;
use super::stores::Stores;
use crate::traffic::limits::key::KeySource;
use crate::traffic::limits::posts::{InRedis, Kept, Within};

/// What came of it.
pub(super) struct Suited {
    /// What other gateways need to know, if it counts with them.
    pub(super) shared: Option<Shared>,
    pub(super) kept: Kept,
    /// What this gateway counts, if each counts a part.
    pub(super) part: Option<Rule>,
}

/// Decides it for a limit with this key, shape and number.
pub(super) fn suit(
    (conf, all): (&One, &Conf),
    (key, shape, fixed): (&Arc<KeySource>, Shape, Option<u64>),
    owner: &str,
    (stores, out): (Option<&Stores>, &mut Problems),
) -> Suited {
    let mode = all.mode(conf);
    let Some(stores) = stores.filter(|_| mode != Mode::Local) else {
        return Suited {
            shared: None,
            kept: Kept::Here,
            part: None,
        };
    };
    let dry_run = all.dry_run || conf.dry_run;
    let shared = Shared::new((conf, dry_run), owner, all.gateways);
    let mut suited = Suited {
        kept: Kept::Here,
        part: None,
        shared: None,
    };
    // A number that depends on the request, and places, leave nothing to choose.
    let count = fixed.filter(|_| conf.algorithm != Algorithm::Concurrency);
    let law = match count.map(|count| shape.law(count)).transpose() {
        Ok(law) => law,
        Err(bad) => {
            out.add("count", bad.to_string());
            None
        }
    };
    let within = within(conf.scope, owner);
    let seen = looked((stores, &shared), key, (shape, fixed), within);
    // That of a leaky bucket does not tell its rate.
    let overridable = conf.algorithm != Algorithm::LeakyBucket;
    let seen = Some(seen).filter(|_| conf.algorithm != Algorithm::Concurrency);
    let Some((law, count)) = law.zip(count) else {
        suited.shared = Some(shared);
        suited.kept = Kept::Shared {
            seen,
            overridable,
            chosen: None,
        };
        return suited;
    };
    let choice = stores.choose((conf, mode), law, all.gateways);
    match choice.mode {
        quota::Mode::Lease => suited.shared = Some(shared.taking_ahead(law)),
        quota::Mode::Exact | quota::Mode::Local => suited.shared = Some(shared),
        quota::Mode::Share => {
            suited.part = shape.part(count, all.gateways);
            let why = &choice.reason;
            tracing::warn!(
                limit = conf.name,
                why,
                "each gateway counts its part of a limit"
            );
        }
    }
    let chosen = Some(choice);
    suited.kept = Kept::Shared {
        seen,
        overridable,
        chosen,
    };
    suited
}

/// How a key of it can be looked at.
fn looked(
    (stores, shared): (&Stores, &Shared),
    key: &Arc<KeySource>,
    (shape, fixed): (Shape, Option<u64>),
    within: Within,
) -> InRedis {
    let (key, naming) = (Arc::clone(key), Arc::clone(&shared.naming));
    InRedis {
        name: stores.name.clone(),
        store: Arc::clone(&stores.store),
        place: Box::new(move |wanted| {
            let (text, is_address) = key.named_text(wanted)?;
            let within = within.parts(wanted)?;
            let asked = naming.ask(within, (&text, is_address), None);
            Ok(asked.name(&naming).key())
        }),
        law: Box::new(move |wanted| {
            let count = wanted.count.or(fixed).ok_or(Unclear::Number("count"))?;
            let law = shape.law(count);
            law.map_err(|bad| Unclear::Rule(bad.to_string()))
        }),
    }
}

/// Within what keys of one text count together.
pub(super) fn within(scope: Scope, owner: &str) -> Within {
    match scope {
        Scope::Route => Within::Route(owner.strip_prefix("routes/").map(Into::into)),
        Scope::Service => Within::Service,
        Scope::Consumer => Within::Consumer,
        Scope::Global => Within::Global,
    }
}
