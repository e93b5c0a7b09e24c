//! What the limit plugins tell of their limits to whoever operates them.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use lockgate_limit::{
    self as limit, About, Counted, Counts, Decision, Engine, Key, Later, Nanos, Post, SharedCount,
    Standing, Unclear, Wanted,
};
use lockgate_plugin::{BuildCx, Ctx};
use lockgate_quota::{Away, Choice, Keeper, Law, Mode, QuotaStore, Situation};

use super::key::KeySource;
use super::named::Named;
use super::{now, store};

/// How many letters of a key are shown where it is explained.
const LONGEST_SHOWN: usize = 200;

/// How a limit counts: with the numbers that are named, else with its own.
pub(crate) type Numbers = Box<dyn Fn(&Wanted) -> Result<Counted, Unclear> + Send + Sync>;

/// Within what keys of one text count together.
pub(crate) enum Within {
    /// Nothing narrower than the limit itself.
    Limit,
    /// Each route; the one it is configured on, if it is on one.
    Route(Option<Box<str>>),
    /// Each service.
    Service,
    /// Each consumer.
    Consumer,
    /// The same wherever a limit of this name is configured.
    Global,
}

impl Within {
    fn name(&self) -> &'static str {
        match self {
            Within::Limit => "limit",
            Within::Route(_) => "route",
            Within::Service => "service",
            Within::Consumer => "consumer",
            Within::Global => "global",
        }
    }

    /// As `limit` writes it into a key.
    pub(crate) fn parts<'a>(&'a self, wanted: &'a Wanted) -> Result<[&'a str; 2], Unclear> {
        let (route, service) = (wanted.route.as_deref(), wanted.service.as_deref());
        Ok(match self {
            Within::Limit => ["", ""],
            Within::Route(own) => {
                let route = own.as_deref().or(route).ok_or(Unclear::Within("route"))?;
                ["r", route]
            }
            // A route without a service counts by itself.
            Within::Service => match (service, route) {
                (Some(service), _) => ["s", service],
                (None, Some(route)) => ["r", route],
                (None, None) => return Err(Unclear::Within("service")),
            },
            Within::Consumer => match wanted.consumer.as_deref() {
                None => return Err(Unclear::Within("consumer")),
                Some("") => ["n", ""],
                Some(name) => ["c", name],
            },
            Within::Global => ["g", ""],
        })
    }
}

/// Where a limit is counted.
pub(crate) enum Kept {
    /// In this gateway.
    Here,
    /// Together with other gateways; how it can be looked at.
    Shared {
        seen: Option<InRedis>,
        /// Whether requests go by overrides.
        overridable: bool,
        /// Why it is counted in this way, if that was chosen for it.
        chosen: Option<Choice>,
    },
}

/// The law of a limit whose numbers somebody names.
pub(crate) type Laws = Box<dyn Fn(&Wanted) -> Result<Law, Unclear> + Send + Sync>;

/// Where in Redis a key is that somebody names.
pub(crate) type Place = Box<dyn Fn(&Wanted) -> Result<String, Unclear> + Send + Sync>;

/// A limit that is counted in Redis, to be looked at and reset.
pub(crate) struct InRedis {
    pub(crate) store: Arc<dyn QuotaStore>,
    /// Who that is, as metrics call it.
    pub(crate) name: Box<str>,
    /// The key, as requests name it there.
    pub(crate) place: Place,
    pub(crate) law: Laws,
}

/// What tells the counts of a limit of APISIX's in Redis from others.
pub(crate) struct Whose {
    pub(crate) owner: Box<str>,
    pub(crate) rule: Box<str>,
    /// Whether its keys are spread over the slots of a cluster.
    pub(crate) spread: bool,
}

impl Whose {
    pub(crate) fn place(self, key: &Arc<KeySource>) -> Place {
        let key = Arc::clone(key);
        Box::new(move |wanted| {
            let (text, is_address) = key.named_text(wanted)?;
            let rule = match is_address {
                true => store::address_rule(&self.rule),
                false => Cow::Borrowed(&*self.rule),
            };
            Ok(store::key(&self.owner, &rule, &text, self.spread))
        })
    }
}

impl SharedCount for InRedis {
    fn keeper(&self) -> limit::Keeper {
        let calls = self.store.calls();
        limit::Keeper {
            id: Arc::as_ptr(&self.store).cast::<()>() as usize,
            name: self.name.to_string(),
            away: self.store.is_away(),
            answered: calls.answered,
            late: calls.late,
            failed: calls.failed,
            skipped: calls.skipped,
        }
    }

    fn standing<'a>(&'a self, wanted: &Wanted, now: Nanos) -> Result<Later<'a, Standing>, Unclear> {
        let (key, law) = ((self.place)(wanted)?, (self.law)(wanted)?);
        Ok(Box::pin(async move {
            let found = self.store.inspect(&key, law, now).await;
            let found = found.map_err(|away| why(&away))?;
            let limit = room(law);
            Ok(Standing {
                limit,
                used: limit.saturating_sub(found.remaining),
                remaining: found.remaining,
                reset: Nanos::try_from(found.reset.as_nanos()).unwrap_or(Nanos::MAX),
                overridden: false,
            })
        }))
    }

    fn reset<'a>(&'a self, wanted: &Wanted, now: Nanos) -> Result<Later<'a, bool>, Unclear> {
        let key = (self.place)(wanted)?;
        Ok(Box::pin(async move {
            let reset = self.store.reset(&key, now).await;
            reset.map_err(|away| why(&away))
        }))
    }
}

/// What passes at once for a key that has used nothing.
fn room(law: Law) -> u64 {
    match law {
        Law::Fixed { limit, .. } | Law::Sliding { limit, .. } | Law::Log { limit, .. } => limit,
        Law::Bucket { holds, .. } => holds as u64,
    }
}

fn why(away: &Away) -> String {
    match std::error::Error::source(away) {
        Some(cause) => format!("{away}: {cause}"),
        None => away.to_string(),
    }
}

/// A limit, as it is told of.
pub(crate) struct Told {
    pub(crate) kept: Kept,
    pub(crate) key: Arc<KeySource>,
    /// The key as configured.
    pub(crate) expression: Box<str>,
    pub(crate) within: Within,
    pub(crate) numbers: Numbers,
    /// How much, in which time, by which algorithm.
    pub(crate) limit: Box<str>,
    /// What passes at most.
    pub(crate) bound: &'static str,
    pub(crate) dry_run: bool,
}

impl Counts for Told {
    fn about(&self) -> About {
        let (mode, why, bound) = match &self.kept {
            Kept::Here => (
                Mode::Local,
                "it counts in this gateway's memory: no shared store is configured".to_owned(),
                format!("{}, in each gateway", self.bound),
            ),
            Kept::Shared {
                chosen: Some(choice),
                ..
            } => (choice.mode, choice.reason.clone(), choice.bound.clone()),
            Kept::Shared { seen: shared, .. } => {
                // Where the limit depends on the request there is no law for all.
                let law = shared.as_ref().map(|s| (s.law)(&Wanted::default()));
                let choice = law.and_then(Result::ok).map(asked);
                let bound = choice.map(|choice| choice.bound);
                let always = || format!("{}, for all gateways together", self.bound);
                (
                    Mode::Exact,
                    "a store is configured, which is asked for every request".to_owned(),
                    bound.unwrap_or_else(always),
                )
            }
        };
        About {
            limit: self.limit.to_string(),
            key: self.expression.to_string(),
            scope: self.within.name().to_owned(),
            mode: mode.name().to_owned(),
            why,
            bound,
            dry_run: self.dry_run,
        }
    }

    fn key(&self, engine: &Engine, wanted: &Wanted) -> Result<Key, Unclear> {
        match self.within {
            Within::Limit => self.key.named(engine, wanted, &[]),
            _ => self.key.named(engine, wanted, &self.within.parts(wanted)?),
        }
    }

    fn counted(&self, wanted: &Wanted) -> Result<Counted, Unclear> {
        (self.numbers)(wanted)
    }

    fn shared(&self) -> Option<&dyn SharedCount> {
        match &self.kept {
            Kept::Here => None,
            Kept::Shared { seen, .. } => seen.as_ref().map(|seen| seen as &dyn SharedCount),
        }
    }

    fn is_shared(&self) -> bool {
        matches!(self.kept, Kept::Shared { .. })
    }

    fn takes_overrides(&self) -> bool {
        match self.kept {
            Kept::Here => true,
            Kept::Shared { overridable, .. } => overridable,
        }
    }
}

/// What it comes to to ask a Redis for every request.
fn asked(law: Law) -> Choice {
    let situation = Situation {
        law,
        nodes: None,
        keeper: Some(Keeper::Redis),
        slack: None,
        expected: None,
        capacity: None,
    };
    situation.pinned(Mode::Exact)
}

/// Puts up a limit under the name that it has in this plugin: its own, or its number.
pub(crate) fn post(bx: &BuildCx<'_>, engine: &Engine, limit: &str, counts: Told) -> Arc<Named> {
    let name = format!("{}/{}/{limit}", bx.owner, bx.plugin);
    let key = Arc::clone(&counts.key);
    let post = engine.desk().post(name, Box::new(counts));
    Arc::new(Named::new(post, key))
}

/// The bounds of windows, as the algorithms promise them.
pub(crate) mod bound {
    pub(crate) const FIXED: &str = "the count in each window, twice that across the edge of two";
    pub(crate) const SLIDING: &str =
        "about the count in any window, less than twice that against a schedule made for it";
    pub(crate) const STRICT: &str = "the count in any window";
    pub(crate) const BUCKET: &str = "the burst, and the rate on top of it";
    pub(crate) const AT_ONCE: &str = "the count at once";
}

/// What is explained of a limit besides its key: how much, where it is counted, what that promises, and
/// how the request's key stands.
pub(crate) fn explained(
    post: &Post,
    (engine, cx): (&Engine, &Ctx<'_>),
    asked: Option<(Key, Counted)>,
) -> [(&'static str, String); 4] {
    let about = post.counts().about();
    let dry = if about.dry_run { "; only counts" } else { "" };
    let standing = match asked {
        _ if post.counts().is_shared() => {
            "not looked at: it is counted together with other gateways".to_owned()
        }
        None => "unknown".to_owned(),
        Some((key, counted)) => {
            let standing = engine.standing(&counted, key, now(engine, cx));
            let (used, limit) = (standing.used, standing.limit);
            let instead = if standing.overridden {
                ", by an override"
            } else {
                ""
            };
            match Duration::from_nanos(standing.reset) {
                _ if used == 0 => format!("{used} of {limit}{instead}"),
                Duration::ZERO => format!("{used} of {limit}{instead}"),
                reset => format!(
                    "{used} of {limit}{instead}, for {:.1} s",
                    reset.as_secs_f64()
                ),
            }
        }
    };
    [
        ("limit", format!("{}{dry}", about.limit)),
        ("mode", format!("{}, as {}", about.mode, about.why)),
        ("bound", about.bound),
        ("used", standing),
    ]
}

/// A key for people: not longer than a line.
pub(crate) fn brief(text: String) -> String {
    match text.char_indices().nth(LONGEST_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Tells a limit what it said to a request, and the request's log line.
pub(crate) fn note(
    named: &Arc<Named>,
    decision: &Decision,
    passed: bool,
    (cx, now): (&mut Ctx<'_>, Nanos),
) {
    let key = || {
        let shown = named.key.shown(cx);
        shown.unwrap_or_else(|| named.key.shown_or_address(cx))
    };
    named.post.note(decision, passed, now, key);
    named.tell(decision, (cx, now));
}

/// The same where a store could not be asked: that a request passed is told as what it is.
pub(crate) fn alone(
    named: &Arc<Named>,
    decision: &Decision,
    passed: bool,
    (cx, now): (&mut Ctx<'_>, Nanos),
) {
    note(named, decision, passed && !decision.allowed, (cx, now));
}

#[cfg(test)]
mod tests {
    use lockgate_limit::Ended;
    use lockgate_plugin::testing::{Instance, run};
    use lockgate_plugin::{Plugin, RouteInfo};
    use serde_json::{Value, json};

    use super::*;
    use crate::traffic::limit::Limits;
    use crate::traffic::limit_conn::LimitConn;
    use crate::traffic::limit_count::LimitCount;
    use crate::traffic::limit_req::LimitReq;

    fn built<P: Plugin>(conf: Value) -> (Instance, Arc<Engine>) {
        let engine = Arc::new(Engine::with_bytes(0));
        let built = run::<P>(conf).shared(Arc::clone(&engine)).build();
        (built, engine)
    }

    fn wanted(values: &[&str]) -> Wanted {
        Wanted {
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            ..Wanted::default()
        }
    }

    fn used(engine: &Engine, name: &str, wanted: &Wanted) -> Result<u64, Unclear> {
        let post = engine.desk().find(name).unwrap();
        let key = post.counts().key(engine, wanted)?;
        let counted = post.counts().counted(wanted)?;
        // A long time after the test's request, and within its window.
        let now = lockgate_limit::since_zero(
            std::time::UNIX_EPOCH + Duration::from_secs(1_767_323_045 + 1),
        );
        Ok(engine.standing(&counted, key, now).used)
    }

    /// After one request, whose key is named in this way.
    fn check<P: Plugin>(conf: Value, limit: &str, named: Wanted, expected: Result<u64, Unclear>) {
        let (built, engine) = built::<P>(conf.clone());
        let route = RouteInfo {
            id: "1".into(),
            ..RouteInfo::default()
        };
        let request = built.request().from("2001:db8::1").header("X-Id", "ann");
        let held = request.route(route).get("/a?b=c").expect_next();
        let name = format!("routes/1/{}/{limit}", P::NAME);
        assert_eq!(used(&engine, &name, &named), expected, "{conf} {named:?}");
        drop(held);
    }

    #[test]
    fn a_key_that_is_named_is_the_key_that_was_counted() {
        let count = |key_type: &str, key: &str| json!({"count": 9, "time_window": 600, "key_type": key_type, "key": key});
        let of = |values: &[&str]| wanted(values);
        let var = count("var", "http_x_id");
        check::<LimitCount>(var.clone(), "1", of(&["ann"]), Ok(1));
        check::<LimitCount>(var.clone(), "1", of(&["bob"]), Ok(0));
        let given = |wanted, given| Err(Unclear::Values { wanted, given });
        check::<LimitCount>(var, "1", of(&[]), given(1, 0));
        let ip = count("var", "remote_addr");
        check::<LimitCount>(ip.clone(), "1", of(&["2001:db8::1"]), Ok(1));
        check::<LimitCount>(ip, "1", of(&["x"]), Err(Unclear::Address("x".to_owned())));
        let two = count("var_combination", "$http_x_id-$arg_b$arg_none");
        check::<LimitCount>(two.clone(), "1", of(&["ann", "c", ""]), Ok(1));
        check::<LimitCount>(two.clone(), "1", of(&["annc", "", ""]), Ok(0));
        check::<LimitCount>(two, "1", of(&["ann", "c"]), given(3, 2));
        check::<LimitCount>(count("constant", "all"), "1", of(&[]), Ok(1));
        // Without a value, the address.
        let none = count("var", "http_none");
        let address = Wanted {
            address: "2001:db8::1".parse().ok(),
            ..Wanted::default()
        };
        check::<LimitCount>(none, "1", address, Ok(1));
        let rules = json!({"rules": [{"count": 9, "time_window": 600, "key": "$remote_addr"}, {"count": "$arg_n", "time_window": 600, "key": "$http_x_id$arg_none"}], "allow_degradation": true});
        check::<LimitCount>(rules.clone(), "1", of(&["2001:db8::1"]), Ok(1));
        let number = Err(Unclear::Number("count"));
        check::<LimitCount>(rules, "2", of(&["ann", ""]), number);
        let req = json!({"rate": 0.001, "burst": 5, "key": "http_x_id", "nodelay": true});
        check::<LimitReq>(req, "1", of(&["ann"]), Ok(1));
        let conn = json!({"conn": 5, "burst": 0, "default_conn_delay": 1, "key": "http_x_id"});
        check::<LimitConn>(conn, "1", of(&["ann"]), Ok(1));
    }

    #[test]
    fn keys_of_limit_have_a_scope() {
        let conf = |extra: Value| {
            let mut one = json!({"name": "a", "count": 9, "time_window": 600});
            let extra = extra.as_object().unwrap().clone();
            one.as_object_mut().unwrap().extend(extra);
            json!({"limits": [one]})
        };
        // The network counts.
        let ip = wanted(&["2001:db8::2"]);
        let of = |change: &dyn Fn(&mut Wanted)| {
            let mut wanted = ip.clone();
            change(&mut wanted);
            wanted
        };
        let global = conf(json!({"scope": "global"}));
        check::<Limits>(global, "a", ip.clone(), Ok(1));
        let consumer = conf(json!({"scope": "consumer"}));
        let nobody = of(&|wanted| wanted.consumer = Some(String::new()));
        check::<Limits>(consumer.clone(), "a", nobody, Ok(1));
        let ann = of(&|wanted| wanted.consumer = Some("ann".to_owned()));
        check::<Limits>(consumer.clone(), "a", ann, Ok(0));
        let unclear = Err(Unclear::Within("consumer"));
        check::<Limits>(consumer, "a", ip.clone(), unclear);
        let service = conf(json!({"scope": "service"}));
        check::<Limits>(
            service.clone(),
            "a",
            ip.clone(),
            Err(Unclear::Within("service")),
        );
        let route = of(&|wanted| wanted.route = Some("1".to_owned()));
        check::<Limits>(service, "a", route, Ok(1));
        check::<Limits>(conf(json!({})), "a", ip.clone(), Ok(1));
        let at_once = conf(json!({"algorithm": "concurrency", "scope": "global"}));
        check::<Limits>(at_once, "a", ip, Ok(1));
    }

    #[test]
    fn what_became_of_requests_is_tallied() {
        let limits = json!([
            {"name": "few", "algorithm": "fixed_window", "count": 1, "time_window": 60, "key": "$http_x_id"},
            {"name": "many", "count": 10, "time_window": 60},
            {"name": "tried", "algorithm": "fixed_window", "count": 1, "time_window": 60, "dry_run": true},
        ]);
        let (built, engine) = built::<Limits>(json!({ "limits": limits }));
        let ask = |who: &str| built.request().header("X-Id", who).get("/");
        let _ = ask("ann").expect_next();
        ask("ann").expect_reply(429);
        let _ = ask("bob").expect_next();
        let counts = |limit: &str| {
            let post = engine
                .desk()
                .find(&format!("routes/1/limit/{limit}"))
                .unwrap();
            [Ended::Allow, Ended::Reject, Ended::ShadowReject].map(|e| post.tally().count(e))
        };
        assert_eq!(counts("few"), [2, 1, 0]);
        assert_eq!(counts("many"), [2, 0, 0]);
        assert_eq!(counts("tried"), [1, 0, 2]);
        let post = engine.desk().find("routes/1/limit/few").unwrap();
        let top = post.tally().top(9, u64::MAX / 2).unwrap();
        assert!(top.is_empty(), "it was long ago: {top:?}");
    }
}
