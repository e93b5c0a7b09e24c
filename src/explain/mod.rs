//! What the gateway would do with a request, and why: `lockgate explain`.
//!
//! A description of a request is written down as a client would send it, and then goes the way of
//! a request as far as nothing is done: the proxy's own check of heads, its normal form of paths,
//! its search for a route, its merge of plugins, its choice of a node. No plugin runs, nothing is
//! counted and nobody's turn is taken.
//!
//! ```text
//! Asked ─ head ─▶ request_head::scan ─▶ locate(Trace) ─▶ Plan ─▶ Upstream::preview ─▶ Explanation
//! ```

mod api;
mod asked;
mod command;
pub(crate) mod online;
mod plugins;
mod report;
mod target;
#[cfg(test)]
mod tests;
mod text;
mod trace;

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use lockgate_plugin::request::ServerFacts;
use lockgate_plugin::target::{BadTarget, MatchOptions, host_of};
use lockgate_plugin::{
    Conn, ConsumerCredential, Consumers, Ctx, Env, ReqView, Target as Path, Timing, Tls, Work,
};

use crate::config::consumers::ConsumerPlugins;
use crate::config::snapshot::{Route, Snapshot};
use crate::gateway;
use crate::proxy::fault::FaultKind;
use crate::proxy::fields::Fields;
use crate::proxy::head::AddressRules;
use crate::proxy::locate;
use crate::proxy::request_head::{Scan, scan};
use crate::proxy::wire::views::WireReq;
use crate::settings::Settings;
use asked::Question;
use plugins::Chain;
use trace::{Facts, Shown, Trace};

pub(crate) use api::{Asker, PATH, answer};
pub use asked::{Asked, MAX_QUESTION};
pub use command::{Args, run};
pub use report::*;

/// Other hosts that are listed.
const MOST_OTHER_HOSTS: usize = 20;

/// Why a question has no answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotExplained {
    /// The URL is none.
    #[error("the URL is neither http://host/path, https://host/path nor a path")]
    Url,
    /// A text has a line end inside.
    #[error("the {0} has a line end or NUL in it")]
    Line(&'static str),
    /// The address is none.
    #[error("`{0}` is not an address")]
    From(String),
    /// There is no such consumer.
    #[error("there is no consumer `{0}`")]
    Consumer(String),
}

/// What the process's settings say about requests.
#[derive(Clone)]
pub struct Rules {
    match_options: MatchOptions,
    addresses: AddressRules,
    facts: Arc<ServerFacts>,
    /// The ports of the first listeners, without and with TLS.
    ports: [u16; 2],
    fallback_sni: Option<String>,
}

impl Rules {
    /// Those of these settings.
    ///
    /// # Errors
    /// As at the start of the gateway.
    pub fn of(settings: &Settings) -> anyhow::Result<Rules> {
        let listeners = [&settings.listen, &settings.tls.listen];
        let port = |list: &Vec<crate::settings::Listen>| list.first().map(|l| l.addr.port());
        Ok(Rules {
            match_options: settings.match_options,
            addresses: gateway::address_rules(settings)?,
            facts: Arc::default(),
            ports: listeners.map(|list| port(list).unwrap_or_default()),
            fallback_sni: settings.tls.fallback_sni.clone(),
        })
    }
}

/// Whether the answer comes from a process that serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// It serves: turns and addresses are those of this moment.
    Running,
    /// It only read the configuration.
    File,
}

/// No time passes and nothing waits while something is explained.
struct Still<'a>(&'a Snapshot);

impl Env for Still<'_> {
    fn consumers(&self) -> &dyn Consumers {
        &self.0.consumers
    }
    fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::ready(()))
    }
}

/// The consumer that was named, with what it brings.
type Named = (Arc<ConsumerCredential>, Arc<ConsumerPlugins>);

/// What becomes of a request.
///
/// # Errors
/// When the question cannot be put.
pub fn explain(
    snap: &Snapshot,
    rules: &Rules,
    asked: &Asked,
    from: From,
) -> Result<Explanation, NotExplained> {
    let question = asked.question()?;
    let named = asked.consumer.as_deref();
    let consumer = named.map(|name| consumer(snap, name)).transpose()?;
    let mut out = Explanation {
        revision: snap.revision,
        certificate: certificate(snap, rules, &question),
        ..Explanation::default()
    };
    out.request.peer = match question.peer.port() {
        // Not said.
        0 => question.peer.ip().to_string(),
        _ => question.peer.to_string(),
    };
    out.request.scheme = if question.tls { "https" } else { "http" }.to_owned();
    out.request.sni = question.sni.clone();

    let mut fields = Fields::default();
    let head = match scan(&question.head, 0, &mut fields) {
        Scan::Complete(head) => head,
        Scan::Refused(refusal) => {
            out.answer = Some(Answer {
                status: refusal.status,
                why: refusal.why.to_owned(),
                after_plugins: false,
            });
            return Ok(out);
        }
        // A description is complete, and says HTTP/1.1.
        Scan::Partial | Scan::Http2 => return Err(NotExplained::Url),
    };
    let req = WireReq::new(&question.head, &fields, &head);
    out.request.method = req.method().to_owned();
    out.request.target = String::from_utf8_lossy(req.target()).into_owned();
    out.request.host = host_of(req.authority()).into_owned();
    let followed = Path::parse_as(req.target(), &rules.match_options).and_then(|path| {
        let mut work = rules.work(&question, path, asked);
        rules.addresses.settle(&mut work, &req);
        let mut follow = Follow {
            snap,
            rules,
            from,
            req: &req,
            consumer: consumer.as_ref(),
            out: &mut out,
        };
        follow.request(&mut work)
    });
    if let Err(bad) = followed {
        out.answer = Some(refusal(FaultKind::BadRequest, Some(bad.to_string()), false));
    }
    Ok(out)
}

fn consumer(snap: &Snapshot, name: &str) -> Result<Named, NotExplained> {
    let found = snap.consumers.by_name(name);
    let plugins = snap.consumers.plugins(name);
    match (found, plugins) {
        (Some(found), Some(plugins)) => Ok((Arc::clone(found), Arc::clone(plugins))),
        _ => Err(NotExplained::Consumer(name.to_owned())),
    }
}

fn certificate(snap: &Snapshot, rules: &Rules, question: &Question) -> Option<Certificate> {
    let name = question.sni.as_ref().or(rules.fallback_sni.as_ref());
    let found = || snap.tls.find(name?);
    question.tls.then(|| Certificate {
        ssl: found().map(|entry| entry.id.to_string()),
    })
}

fn refusal(kind: FaultKind, why: Option<String>, after_plugins: bool) -> Answer {
    Answer {
        status: kind.status(),
        why: why.unwrap_or_else(|| kind.reason().to_owned()),
        after_plugins,
    }
}

impl Rules {
    fn work(&self, question: &Question, path: Path, asked: &Asked) -> Work {
        let local = question
            .port
            .unwrap_or(self.ports[usize::from(question.tls)]);
        let tls = question.tls.then(|| {
            Arc::new(Tls {
                version: "TLSv1.3".to_owned(),
                sni: question.sni.as_deref().map(Into::into),
                ..Tls::default()
            })
        });
        let conn = Conn {
            peer: question.peer,
            local: SocketAddr::from((Ipv4Addr::LOCALHOST, local)),
            tls,
            id: 0,
            server: Arc::clone(&self.facts),
        };
        let timing = Timing {
            start: Instant::now(),
            wall: SystemTime::now(),
        };
        let mut work = Work::new(conn, path, timing);
        work.body = asked.body.clone().map(Bytes::from);
        work
    }
}

/// Follows a request whose head is good.
struct Follow<'a> {
    snap: &'a Snapshot,
    rules: &'a Rules,
    from: From,
    req: &'a WireReq<'a>,
    consumer: Option<&'a Named>,
    out: &'a mut Explanation,
}

impl Follow<'_> {
    fn request(&mut self, work: &mut Work) -> Result<(), BadTarget> {
        let seen = &mut self.out.request;
        let raw = self.req.target();
        work.target.uri(raw).clone_into(&mut seen.path);
        seen.client = work.client.ip().to_canonical().to_string();
        let path = work.target.match_path(raw, &self.rules.match_options)?;
        seen.match_path = path.into_owned();
        let trace = Trace::new(Facts {
            method: seen.method.clone(),
            client: seen.client.clone(),
            http_host: String::from_utf8_lossy(self.req.authority()).into_owned(),
            match_path: seen.match_path.clone(),
        });
        // The trace keeps the match, so the search gives none.
        locate::locate(self.snap, &self.rules.match_options, work, self.req, &trace)?;
        let Shown {
            candidates,
            left_out,
            found,
        } = trace.shown();
        self.out.candidates = candidates;
        self.out.candidates_left_out = left_out;
        if self.snap.match_reads_body && work.body.is_none() {
            self.note("some route looks into the request body; the question has none");
        }
        let Some(found) = found else {
            self.other_hosts();
            self.plugins(None, work);
            let global = !self.snap.global.is_empty();
            self.out.answer = Some(refusal(FaultKind::NoRoute, None, global));
            return Ok(());
        };
        let params = found.params.iter();
        let params = params.map(|(name, value)| (name.to_string(), value.to_string()));
        let params: Vec<(String, String)> = params.collect();
        let route = locate::note(work, found);
        self.out.route = Some(route_seen(&route, work, params));
        if let Err(kind) = locate::may_start(&route.target) {
            self.out.answer = Some(refusal(kind, None, false));
            return Ok(());
        }
        self.plugins(Some(&route), work);
        if self.out.answer.is_none() {
            self.target(&route);
        }
        Ok(())
    }

    fn note(&mut self, text: impl Into<String>) {
        self.out.notes.push(text.into());
    }

    fn other_hosts(&mut self) {
        let path = &self.out.request.match_path;
        let fitting = self.snap.router.with_path(path, MOST_OTHER_HOSTS);
        let shown = fitting.into_iter().map(|candidate| OtherHost {
            route: candidate.entry().id.to_string(),
            host: candidate
                .host()
                .map(ToString::to_string)
                .unwrap_or_default(),
            uri: candidate.uri().to_string(),
        });
        self.out.other_hosts = shown.collect();
    }

    fn plugins(&mut self, route: Option<&Route>, work: &mut Work) {
        // Not before: a request is matched while nobody knows who it is.
        work.consumer = self.consumer.map(|(found, _)| Arc::clone(found));
        let consumer = self.consumer.map(|(found, plugins)| {
            let group = found.consumer.group_id.as_deref();
            (&*found.consumer.username, group, &**plugins)
        });
        if let Some((name, group, plugins)) = consumer {
            self.out.consumer = Some(ConsumerSeen {
                name: name.to_owned(),
                group: group.map(str::to_owned),
            });
            if plugins.missing_group && route.is_some() {
                self.out.answer = Some(refusal(FaultKind::NoPluginConfig, None, true));
            }
        }
        let env = Still(self.snap);
        let mut cx = Ctx::new(self.req, None, work, &env);
        let chain = Chain {
            snap: self.snap,
            route,
            consumer,
            from: self.from,
        };
        (self.out.plugins, self.out.phases) = chain.explain(&mut cx);
        let finds = self.snap.global.finds_consumer()
            || route.is_some_and(|route| route.plan.finds_consumer());
        if finds && consumer.is_none() {
            self.note(
                "who the consumer is shows only when plugins run, and none does here: --consumer \
                 NAME merges its plugins",
            );
        }
    }

    fn target(&mut self, route: &Route) {
        match locate::upstream(&route.target) {
            Ok(upstream) => {
                let (seen, answer) = target::explain(upstream, self.req.authority(), self.from);
                self.out.upstream = Some(seen);
                self.out.answer = answer;
            }
            Err(kind) => self.out.answer = Some(refusal(kind, None, true)),
        }
    }
}

fn route_seen(route: &Route, work: &Work, params: Vec<(String, String)>) -> RouteSeen {
    let text = |text: &Option<Arc<str>>| text.as_ref().map(ToString::to_string);
    RouteSeen {
        id: route.info.id.to_string(),
        name: text(&route.info.name),
        uri: text(&work.matched_uri).unwrap_or_default(),
        host: text(&work.matched_host),
        params,
        service: text(&route.info.service_id),
        websocket: route.websocket,
        general_lane: route.general_because().map(str::to_owned),
    }
}
