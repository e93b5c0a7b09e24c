//! Which requests would come to something else: each is explained before and after a change, by the
//! proxy's own code, and what is said of it is compared.
//!
//! Compared are the route, the gateway's own answer, the plugins in their order with fingerprints of
//! their configurations, and the upstream with its nodes. What a plugin does with a request is not
//! known, nor what depends on the body or on a consumer that is not named.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use lockgate_plugin::{Problem, Problems};
use serde_json::{Value, json};

use super::draft::Step;
use crate::config::compile::instance::Workshop;
use crate::config::graph::{Change, Graph};
use crate::config::keyring::Keyring;
use crate::config::kind::Kind;
use crate::config::snapshot::Snapshot;
use crate::config::source::store::resources;
use crate::explain::{self, Asked, Explanation, From, MAX_QUESTION, Runs, explain};
use crate::router::Mode;
use crate::store::Listing;

/// Kinds of difference that are told one by one.
const MOST_GROUPS: usize = 100;
/// Examples of each.
const EXAMPLES: usize = 3;
/// Lines that were not understood and are told one by one.
const MOST_SKIPPED: usize = 20;

/// What a change is tried with.
pub struct Trial {
    /// Makes what plugins are built with; never the one that requests use.
    pub workshop: Box<dyn Fn() -> Workshop + Send + Sync>,
    /// How routes are matched.
    pub mode: Mode,
    /// What the settings say about requests.
    pub rules: explain::Rules,
}

/// Requests to look at, and how often each is there.
#[derive(Default)]
pub struct Corpus {
    /// Where they come from: `recent` or `given`.
    pub source: &'static str,
    asked: Vec<(Asked, String, u64)>,
    skipped: Vec<Value>,
    left_out: usize,
}

impl Corpus {
    /// From lines such as `GET http://a.test/b`, the method being GET where there is none; or JSON, as
    /// `explain` takes it: `{"url": "http://a.test/b", "headers": [["x-env", "beta"]], "consumer": "ann"}`.
    pub fn of_lines<'a>(source: &'static str, lines: impl IntoIterator<Item = &'a str>) -> Corpus {
        let mut corpus = Corpus {
            source,
            ..Corpus::default()
        };
        let mut known: HashMap<&str, usize> = HashMap::new();
        for (at, line) in lines.into_iter().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match known.get(line) {
                Some(at) => corpus.asked[*at].2 += 1,
                None => {
                    known.insert(line, corpus.asked.len());
                    match asked(line) {
                        Ok((asked, called)) => corpus.asked.push((asked, called, 1)),
                        Err(why) => {
                            known.remove(line);
                            corpus.skip(at, line, &why);
                        }
                    }
                }
            }
        }
        corpus
    }

    fn skip(&mut self, at: usize, line: &str, why: &str) {
        if self.skipped.len() < MOST_SKIPPED {
            // What is not understood may have a secret anywhere.
            let line = match line.starts_with('{') {
                true => "{...}".to_owned(),
                false => line.chars().take(200).collect(),
            };
            self.skipped
                .push(json!({ "line": at + 1, "request": line, "why": why }));
        } else {
            self.left_out += 1;
        }
    }

    /// Whether there is nothing to look at.
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty() && self.skipped.is_empty()
    }
}

/// A request as it is written in a line, and what it is called where it is told.
fn asked(line: &str) -> Result<(Asked, String), String> {
    if line.starts_with('{') {
        if line.len() > MAX_QUESTION {
            return Err(format!("it is longer than {MAX_QUESTION} bytes"));
        }
        let asked: Asked = serde_json::from_str(line).map_err(|e| e.to_string())?;
        let called = called(&asked);
        return Ok((asked, called));
    }
    let mut words = line.split_whitespace();
    let (method, url) = match (words.next(), words.next(), words.next()) {
        (Some(url), None, _) => ("GET", url),
        (Some(method), Some(url), None) => (method, url),
        _ => return Err("expected a method and a URL: `GET http://a.test/b`".to_owned()),
    };
    if !method
        .bytes()
        .all(|byte| byte.is_ascii_uppercase() || byte == b'-')
    {
        return Err(format!("`{method}` is no method"));
    }
    let url = match url.starts_with('/') || url.contains("://") {
        true => url.to_owned(),
        // As logs have it: host and path.
        false => format!("http://{url}"),
    };
    Ok((Asked::new(method, &url), line.to_owned()))
}

/// A described request without what may be secret: the values of its header fields, and its body.
fn called(asked: &Asked) -> String {
    let Asked {
        method,
        url,
        headers,
        from,
        sni,
        consumer,
        body,
    } = asked;
    let mut with: Vec<String> = headers.iter().map(|(name, _)| name.clone()).collect();
    let named =
        |what: &str, text: &Option<String>| text.as_ref().map(|text| format!("{what} {text}"));
    with.extend(named("from", from));
    with.extend(named("SNI", sni));
    with.extend(named("consumer", consumer));
    with.extend(body.as_ref().map(|_| "a body".to_owned()));
    match with.is_empty() {
        true => format!("{method} {url}"),
        false => format!("{method} {url} (with {})", with.join(", ")),
    }
}

impl Trial {
    /// A configuration without anything, to try changes in.
    pub fn graph(&self) -> Graph {
        Graph::new((self.workshop)(), self.mode, None)
    }

    /// Compares what becomes of requests before and after steps in a store.
    ///
    /// # Errors
    /// What cannot be compiled together.
    pub fn run(
        &self,
        listing: &Listing,
        keyring: &Keyring,
        steps: &[Step],
        corpus: &Corpus,
    ) -> Result<Value, Problems> {
        let mut graph = self.graph();
        graph.apply(resources(keyring, &listing.items));
        self.compare(&mut graph, changes(steps), steps, corpus)
    }

    /// Compares what becomes of requests before and after changes of a configuration.
    ///
    /// # Errors
    /// What cannot be compiled together.
    pub fn compare(
        &self,
        graph: &mut Graph,
        changes: Vec<Change>,
        steps: &[Step],
        corpus: &Corpus,
    ) -> Result<Value, Problems> {
        let metadata: BTreeSet<&str> = steps
            .iter()
            .filter(|step| step.key.kind == Kind::PluginMetadata)
            .map(|step| &*step.key.id)
            .collect();
        // Upstreams change in place: everything is said before of what was before.
        let before = self.outcomes(&graph.snapshot(), corpus, &BTreeSet::new());
        let applied = graph.apply(changes);
        applied.problems.into_result()?;
        let after = self.outcomes(&graph.snapshot(), corpus, &metadata);
        Ok(compared(corpus, &before, &after))
    }

    fn outcomes(&self, snap: &Snapshot, corpus: &Corpus, new: &BTreeSet<&str>) -> Vec<Outcome> {
        let of = |asked: &Asked| match explain(snap, &self.rules, asked, From::File) {
            Ok(seen) => Outcome::of(&seen, new),
            Err(error) => Outcome {
                answer: Some(format!("not understood: {error}")),
                ..Outcome::default()
            },
        };
        corpus.asked.iter().map(|(asked, ..)| of(asked)).collect()
    }
}

/// The steps as the gateway's own changes.
fn changes(steps: &[Step]) -> Vec<Change> {
    let change = |step: &Step| match &step.after {
        None => Change::Delete(step.key.clone()),
        Some(value) => {
            let mut value = value.clone();
            if let (Kind::Credential, Some(id)) = (step.key.kind, value.get_mut("id")) {
                // Known by its whole id there.
                *id = Value::from(&*step.key.id);
            }
            Change::Put(step.key.clone(), Arc::new(value), None)
        }
    };
    steps.iter().map(change).collect()
}

/// What becomes of a request, as far as it is compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Outcome {
    route: Option<String>,
    answer: Option<String>,
    /// Name, and what its configuration is.
    plugins: Vec<(String, String)>,
    /// The protocol, the balancing and what is sent as host.
    upstream: Option<String>,
    nodes: Vec<String>,
    websocket: bool,
}

impl Outcome {
    /// `new`: plugins whose metadata is another.
    fn of(seen: &Explanation, new: &BTreeSet<&str>) -> Outcome {
        let runs = |runs: &Runs| matches!(runs, Runs::Yes | Runs::Unknown);
        let plugins = seen.plugins.iter().filter(|plugin| runs(&plugin.runs));
        let plugin = |plugin: &explain::PluginSeen| {
            let metadata = if new.contains(&*plugin.name) { "+" } else { "" };
            (
                plugin.name.clone(),
                format!("{}{metadata}", plugin.fingerprint),
            )
        };
        let upstream = seen.upstream.as_ref();
        let mut nodes: Vec<String> = upstream
            .into_iter()
            .flat_map(|upstream| &upstream.nodes)
            .map(|n| match n.priority {
                0 => format!("{}:{} ({})", n.host, n.port, n.weight),
                priority => format!("{}:{} ({}, priority {priority})", n.host, n.port, n.weight),
            })
            .collect();
        nodes.sort();
        Outcome {
            route: seen.route.as_ref().map(|route| route.id.clone()),
            answer: seen
                .answer
                .as_ref()
                .map(|a| format!("{} {}", a.status, a.why)),
            plugins: plugins.map(plugin).collect(),
            upstream: upstream.map(|u| {
                let host = u.host.as_deref().unwrap_or_default();
                format!("{} {} host {} {host}", u.scheme, u.balance, u.pass_host)
            }),
            nodes,
            websocket: seen.route.as_ref().is_some_and(|route| route.websocket),
        }
    }

    fn shown(&self) -> Value {
        let plugins: Vec<&str> = self.plugins.iter().map(|(name, _)| &**name).collect();
        json!({
            "route": self.route,
            "answer": self.answer,
            "plugins": plugins,
            "upstream": self.upstream,
            "nodes": self.nodes,
        })
    }

    /// What is not the same, in words.
    fn differs(&self, other: &Outcome) -> Vec<String> {
        let mut out = Vec::new();
        let mut add = |name: &str, differs: bool| {
            if differs {
                out.push(name.to_owned());
            }
        };
        add("route", self.route != other.route);
        add("answer", self.answer != other.answer);
        add("upstream", self.upstream != other.upstream);
        add("nodes", self.nodes != other.nodes);
        add("websocket", self.websocket != other.websocket);
        let names = |outcome: &Outcome| -> Vec<String> {
            outcome
                .plugins
                .iter()
                .map(|(name, _)| name.clone())
                .collect()
        };
        if names(self) == names(other) {
            for ((name, a), (_, b)) in self.plugins.iter().zip(&other.plugins) {
                if a != b {
                    out.push(format!("configuration of {name}"));
                }
            }
        } else {
            out.push("plugins".to_owned());
        }
        out
    }
}

/// How many requests come to something else, by what it was and will be.
fn compared(corpus: &Corpus, before: &[Outcome], after: &[Outcome]) -> Value {
    let mut groups: HashMap<(&Outcome, &Outcome), (u64, Vec<&str>)> = HashMap::new();
    let (mut looked_at, mut changed) = (0, 0);
    for ((_, line, count), (before, after)) in corpus.asked.iter().zip(before.iter().zip(after)) {
        looked_at += count;
        if before == after {
            continue;
        }
        changed += count;
        let (all, examples) = groups.entry((before, after)).or_default();
        *all += count;
        if examples.len() < EXAMPLES {
            examples.push(line);
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    // The most requests first; then in the order of examples, which is the same each time.
    groups.sort_by(|(_, (a, x)), (_, (b, y))| b.cmp(a).then_with(|| x.cmp(y)));
    let more = groups.len().saturating_sub(MOST_GROUPS);
    groups.truncate(MOST_GROUPS);
    let group =
        |((before, after), (count, examples)): &((&Outcome, &Outcome), (u64, Vec<&str>))| {
            json!({
                "count": count,
                "differs": before.differs(after),
                "before": before.shown(),
                "after": after.shown(),
                "examples": examples,
            })
        };
    json!({
        "source": corpus.source,
        "looked_at": looked_at,
        "changed": changed,
        "outcomes": groups.iter().map(group).collect::<Vec<_>>(),
        "outcomes_left_out": more,
        "skipped": corpus.skipped,
        "skipped_left_out": corpus.left_out,
    })
}

/// The same problem at the place of the step that it is about.
pub(crate) fn located(mut problems: Problems, steps: &[Step]) -> Problems {
    for problem in problems.iter_mut() {
        let step = steps.iter().find(|step| step.path == problem.resource);
        if let Some(step) = step {
            let path = std::mem::take(&mut problem.path);
            *problem = Problem {
                path: super::references::below(&step.place, &path),
                resource: String::new(),
                ..problem.clone()
            };
        }
    }
    problems
}
