//! The same bytes through both lanes: what one refuses the other may not take, and nothing that is
//! hidden in a message may become a message of its own.
//!
//! | what | checked against |
//! |---|---|
//! | requests that arrive at the upstream | [`reference`]: target, method, fields, body |
//! | the reference | httparse, the parser of Pingora |
//! | each request, as it was sent and as it arrived | hyper, which an upstream may be built on: one request, the same method and body |
//! | what one lane refuses | the other lane |
//! | each answer | the request it belongs to, by its target |
//! | a request or an answer that is hidden in another one | never seen |
//!
//! `make fuzz-lanes` runs it for long; every run of the tests does a little of it.

mod client;
mod grammar;
mod judge;
mod other;
mod reference;
mod upstream;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::client::{Talk, Wanted, talk};
use self::grammar::{Dice, MARKER};
use self::judge::{
    answer_wrong, class, contains, first_cut, forgive_last, has_end, hidden_in, is_ordinary, kind,
    lane_wrong, parsers_differ, same_target, skipped,
};
use self::other::Verdict;
use self::reference::{End, Request};
use self::upstream::Strict;
use crate::World;
use crate::gateway::{Gateway, Setup};

/// Inputs of the run that is one of the tests.
const FEW: u64 = 1_500;
/// Inputs on their way at the same time.
const PARALLEL: u64 = 8;
/// Kinds of violations after which a run ends.
const ENOUGH: usize = 12;

/// How long to go on, and from where.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    /// Seconds; without them a few inputs.
    pub(crate) time: Option<Duration>,
    /// The first number of the generator.
    pub(crate) seed: u64,
}

/// A gateway and what is behind it.
struct Lane {
    name: &'static str,
    gateway: Gateway,
    upstream: Strict,
}

/// Both lanes, and what was found so far.
struct Lanes {
    wire: Lane,
    general: Lane,
    counts: Mutex<BTreeMap<String, u64>>,
    /// The first violation of each kind, and how many there were.
    found: Mutex<BTreeMap<String, (u64, String)>>,
    /// Targets with another input's mark: a byte of it was changed.
    foreign: Mutex<Vec<Vec<u8>>>,
    /// Where inputs that violate something are kept.
    keep: PathBuf,
}

/// Bytes to try.
struct Input {
    /// What its paths contain.
    mark: String,
    /// Where it comes from.
    origin: String,
    kind: Kind,
}

enum Kind {
    /// What a client sends, and where it is cut into segments.
    Requests(Vec<u8>, Vec<usize>),
    /// What the upstream answers.
    Answer(Vec<u8>),
}

/// A few inputs, always the same for an engine.
pub(super) async fn few(world: Arc<World>) -> Result<()> {
    let general = world.engine.pointer("/lockgate/engine") == Some(&json!("general"));
    let extent = Extent {
        time: None,
        seed: if general { 2 } else { 1 },
    };
    run(&world, extent).await.map(drop)
}

/// Runs and gives a table of what was counted.
///
/// # Errors
/// With every violation.
pub(crate) async fn run(world: &World, extent: Extent) -> Result<String> {
    let lanes = Arc::new(Lanes {
        wire: Lane::start(world, "auto").await?,
        general: Lane::start(world, "general").await?,
        counts: Mutex::default(),
        found: Mutex::default(),
        foreign: Mutex::default(),
        keep: Path::new(env!("CARGO_MANIFEST_DIR")).join("target/fuzz/found/lanes"),
    });
    let cases = Arc::new(cases()?);
    let next = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..PARALLEL {
        let (lanes, cases, next) = (Arc::clone(&lanes), Arc::clone(&cases), Arc::clone(&next));
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let over = match extent.time {
                    Some(time) => started.elapsed() > time,
                    None => number >= FEW,
                };
                if over || lanes.has_enough() {
                    return Ok::<(), anyhow::Error>(());
                }
                lanes
                    .check(&Input::new(extent.seed, number, &cases))
                    .await?;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    lanes.finish().await
}

impl Lane {
    async fn start(world: &World, name: &'static str) -> Result<Lane> {
        let upstream = Strict::start().await?;
        let to = |address: SocketAddr| json!({ "nodes": { address.to_string(): 1 }, "retries": 0 });
        let setup = Setup {
            resources: json!({ "routes": [
                { "id": "odd", "uri": "/*", "host": grammar::ODD_HOST, "upstream": to(upstream.odd) },
                { "id": "all", "uri": "/*", "upstream": to(upstream.address) },
            ] }),
            dir: world.root.join(format!("lanes-{name}")),
            ..world.setup(name, &config(name))
        };
        let gateway = Gateway::start(setup).await?;
        Ok(Lane {
            name,
            gateway,
            upstream,
        })
    }

    async fn talk(&self, pieces: &[&[u8]], wanted: &Wanted<'_>) -> Result<Talk> {
        talk(self.gateway.address("http")?, pieces, wanted).await
    }
}

fn config(engine: &str) -> Value {
    json!({
        "lockgate": { "engine": engine },
        "nginx_config": { "http": { "enable_access_log": false } },
    })
}

impl Input {
    /// The input of a number: first the cases, each cut in a few ways, then what the dice give.
    fn new(seed: u64, number: u64, cases: &[(String, String)]) -> Input {
        const CUTS: usize = 3;
        let mut dice = Dice::new(seed.wrapping_mul(0x0100_0000_01b3).wrapping_add(number));
        // No change of a few bytes makes it another input's.
        let mark = dice.word();
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        if let Some((name, text)) = cases.get(at / CUTS) {
            let bytes = grammar::case(text, &mark);
            let kind = if name.starts_with("answer-") {
                Kind::Answer(bytes)
            } else {
                let cuts = cuts(&mut dice, bytes.len(), at % CUTS);
                Kind::Requests(bytes, cuts)
            };
            return Input {
                mark,
                origin: name.clone(),
                kind,
            };
        }
        let kind = if dice.once_in(4) {
            Kind::Answer(grammar::answer(&mut dice))
        } else {
            let bytes = if dice.once_in(8) && !cases.is_empty() {
                let (_, text) = &cases[dice.below(cases.len())];
                let mut bytes = grammar::case(text, &mark);
                grammar::mutate(&mut dice, &mut bytes);
                bytes
            } else {
                grammar::requests(&mut dice, &mark)
            };
            let ways = dice.below(4);
            let cuts = cuts(&mut dice, bytes.len(), ways);
            Kind::Requests(bytes, cuts)
        };
        Input {
            mark,
            origin: format!("seed {seed}, number {number}"),
            kind,
        }
    }
}

/// Places at which bytes are cut into segments, in order.
fn cuts(dice: &mut Dice, len: usize, many: usize) -> Vec<usize> {
    let mut cuts: Vec<usize> = (0..many).map(|_| dice.below(len)).collect();
    cuts.sort_unstable();
    cuts
}

fn pieces<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut from = 0;
    let mut out = Vec::new();
    for &to in cuts.iter().chain([&bytes.len()]) {
        if to > from {
            out.push(&bytes[from..to]);
            from = to;
        }
    }
    out
}

fn requests_of(arrived: Vec<(Request, Vec<u8>)>) -> Vec<Request> {
    arrived.into_iter().map(|(request, _)| request).collect()
}

/// The cases by hand.
fn cases() -> Result<Vec<(String, String)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds/lanes");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(&folder).context("the cases of the lanes")? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        all.push((name, std::fs::read_to_string(path)?));
    }
    all.sort();
    ensure!(!all.is_empty(), "no cases in {}", folder.display());
    Ok(all)
}

impl Lanes {
    async fn check(&self, input: &Input) -> Result<()> {
        let (Kind::Requests(bytes, _) | Kind::Answer(bytes)) = &input.kind;
        let again = grammar::case(&grammar::readable(bytes, &input.mark), &input.mark);
        ensure!(again == *bytes, "{}: not kept as it is", input.origin);
        match &input.kind {
            Kind::Requests(bytes, cuts) => self.check_requests(input, bytes, cuts).await,
            Kind::Answer(bytes) => self.check_answer(input, bytes).await,
        }
    }

    async fn check_requests(&self, input: &Input, bytes: &[u8], cuts: &[usize]) -> Result<()> {
        if bytes.windows(4).any(|w| w == b"PRI ") {
            return Ok(());
        }
        let (requests, end, rest) = reference::requests(bytes);
        for request in &requests {
            let other = upstream::mark(&request.target).is_none_or(|mark| mark != input.mark);
            if other && contains(&request.target, MARKER.as_bytes()) {
                let mut foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
                foreign.push(request.target.clone());
            }
        }
        let pieces = pieces(bytes, cuts);
        // Of chunks that come later than their head Pingora is the judge. It is kinder to what it
        // throws away (extensions, trailers), it may wait for more, and it is the last request.
        let kinder = pieces.len() > 1 && matches!(end, End::Body(_));
        let wire_kinder = kinder && !is_ordinary(rest);
        let wanted = Wanted {
            methods: requests.iter().map(|r| &r.method[..]).collect(),
            close: match end {
                // A head that comes in pieces may be looked at when it is whole, and not before.
                End::Refused(_) => has_end(rest),
                End::Body(_) => !kinder,
                End::Last => true,
                End::Clean | End::Partial => false,
            },
        };
        let (wire, general) = tokio::join!(
            self.wire.talk(&pieces, &wanted),
            self.general.talk(&pieces, &wanted)
        );
        let (mut wire, mut general) = (wire?, general?);
        let mut wrong = Vec::new();
        let mut at = 0;
        for request in &requests {
            at += skipped(&bytes[at..]);
            wrong.extend(parsers_differ(request, &bytes[at..at + request.head]));
            wrong.extend(
                self.hyper("sent", request, &bytes[at..at + request.len])
                    .await,
            );
            at += request.len;
        }
        for (lane, talk) in [(&self.wire, &mut wire), (&self.general, &mut general)] {
            let mut arrived = Vec::new();
            for (request, bytes) in lane.upstream.take(&input.mark) {
                let differs = self.hyper("arrived", &request, &bytes).await;
                wrong.extend(differs.map(|why| format!("{}: {why}", lane.name)));
                arrived.push(request);
            }
            if kinder && (lane.name == "general" || wire_kinder) {
                forgive_last(&requests, talk, &mut arrived);
            }
            for why in lane_wrong(&requests, end, talk, &arrived) {
                wrong.push(format!("{}: {why}", lane.name));
            }
            wrong.extend(self.broken(lane));
        }
        for (at, (w, g)) in wire.answers.iter().zip(&general.answers).enumerate() {
            if g.refuses() && !w.refuses() {
                wrong.push(format!(
                    "answer {at}: general {}, auto {}",
                    g.status, w.status
                ));
            }
        }
        if general.answers.is_empty() && general.closed && wire.answers.iter().any(|a| !a.refuses())
        {
            wrong.push("general closes without an answer, auto does not".to_owned());
        }
        let classes = format!(
            "requests: auto {}, general {}",
            class(&wire),
            class(&general)
        );
        self.count(classes);
        let taken = |talk: &Talk| talk.answers.iter().filter(|a| !a.refuses()).count();
        if taken(&wire) != taken(&general) {
            self.count("requests: lanes answered a different number of them".to_owned());
        }
        if requests.len() > taken(&wire) && !general.cut {
            self.count(
                "requests: auto is stricter than the reference or closed before all".to_owned(),
            );
        }
        let arrived = (taken(&wire), taken(&general));
        *self
            .lock()
            .entry("requests that arrived: auto".to_owned())
            .or_default() += arrived.0 as u64;
        *self
            .lock()
            .entry("requests that arrived: general".to_owned())
            .or_default() += arrived.1 as u64;
        self.report(input, bytes, cuts, &wrong)
    }

    /// A request whose answer is odd, and another one behind it.
    async fn check_answer(&self, input: &Input, bytes: &[u8]) -> Result<()> {
        let line = |last: &str| {
            let path = grammar::path(&input.mark, last);
            format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", grammar::ODD_HOST)
        };
        let sent = format!("{}{}", line("raw"), line("next"));
        let (requests, end, _) = reference::requests(sent.as_bytes());
        let wanted = Wanted {
            methods: vec![b"GET", b"GET"],
            close: false,
        };
        let mut talks = Vec::new();
        let mut wrong = Vec::new();
        for lane in [&self.wire, &self.general] {
            lane.upstream.script(&input.mark, bytes.to_vec());
            let mut talk = lane.talk(&[sent.as_bytes()], &wanted).await?;
            if talk
                .answers
                .first()
                .is_some_and(|first| first.status == 502)
            {
                // It may have met a connection that another input's answer had spoilt.
                let before = requests_of(lane.upstream.take(&input.mark));
                wrong.extend(hidden_in(&before).map(|why| format!("{}: {why}", lane.name)));
                lane.upstream.script(&input.mark, bytes.to_vec());
                talk = lane.talk(&[sent.as_bytes()], &wanted).await?;
            }
            let mut arrived = requests_of(lane.upstream.take(&input.mark));
            // What is safe to repeat may be asked again when its answer broke off.
            arrived.dedup_by(|a, b| a.target == b.target);
            for why in answer_wrong(bytes, &requests, end, &talk, &arrived) {
                wrong.push(format!("{}: {why}", lane.name));
            }
            wrong.extend(self.broken(lane));
            talks.push(talk);
        }
        let [wire, general] = &talks[..] else {
            return Ok(());
        };
        let passes =
            |talk: &Talk| talk.answers.first().is_some_and(|a| a.status != 502) && !first_cut(talk);
        let both = (wire.answers.first(), general.answers.first());
        if let (Some(_), Some(g)) = both
            && g.status == 502
            && passes(wire)
        {
            wrong.push("general refuses the answer, auto does not".to_owned());
        }
        self.count(format!(
            "answers: auto {}, general {}",
            class(wire),
            class(general)
        ));
        self.report(input, bytes, &[], &wrong)
    }

    /// What hyper finds in the bytes of a request.
    async fn hyper(&self, when: &str, request: &Request, bytes: &[u8]) -> Option<String> {
        match other::reads(request, bytes).await {
            Verdict::Same => None,
            Verdict::Refused => {
                self.count(format!("requests that hyper does not take, as they {when}"));
                None
            }
            Verdict::Differs(why) => Some(format!("as it {when}, {why}")),
        }
    }

    fn broken(&self, lane: &Lane) -> Vec<String> {
        let all = lane.upstream.broken().into_iter();
        all.map(|what| format!("{}: the upstream got what is no request, {what}", lane.name))
            .collect()
    }

    /// Keeps an input that violates something, the first of each kind.
    fn report(&self, input: &Input, bytes: &[u8], cuts: &[usize], wrong: &[String]) -> Result<()> {
        let Some(first) = wrong.first() else {
            return Ok(());
        };
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = found.entry(kind(first)).or_default();
        entry.0 += 1;
        if entry.0 > 1 {
            return Ok(());
        }
        let text = grammar::readable(bytes, &input.mark);
        let heading = format!("{}, cut at {cuts:?}", input.origin);
        std::fs::create_dir_all(&self.keep)?;
        let prefix = match input.kind {
            Kind::Answer(_) => "answer-",
            Kind::Requests(..) => "",
        };
        let file = self.keep.join(format!("{prefix}{}", input.mark));
        let lines = wrong.iter().flat_map(|w| w.lines());
        let comment: String = lines.map(|line| format!("# {line}\n")).collect();
        std::fs::write(&file, format!("# {heading}\n{comment}{text}\n"))?;
        entry.1 = format!(
            "{heading}; kept in {}\n{}\n{text}",
            file.display(),
            wrong.join("\n")
        );
        Ok(())
    }

    fn has_enough(&self) -> bool {
        self.found
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
            >= ENOUGH
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, u64>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, what: String) {
        *self.lock().entry(what).or_default() += 1;
    }

    /// Looks at what came late, and at the gateways.
    async fn finish(&self) -> Result<String> {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<String> = found
            .iter()
            .map(|(kind, (times, first))| format!("{times} times `{kind}`: {first}"))
            .collect();
        let foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        for lane in [&self.wire, &self.general] {
            found.extend(self.broken(lane));
            for request in lane.upstream.left() {
                let was_sent = || foreign.iter().any(|t| same_target(t, &request.target));
                if contains(&request.target, MARKER.as_bytes()) && !was_sent() {
                    let target = String::from_utf8_lossy(&request.target).into_owned();
                    found.push(format!("{}: late and hidden: {target}", lane.name));
                }
            }
            for line in lane.gateway.lines_with("panicked") {
                found.push(format!("{}: {line}", lane.name));
            }
        }
        ensure!(
            found.is_empty(),
            "{} violations\n{}",
            found.len(),
            found.join("\n\n")
        );
        let counts = self.lock();
        let table: Vec<String> = counts
            .iter()
            .map(|(what, n)| format!("{n:>9}  {what}"))
            .collect();
        Ok(table.join("\n"))
    }
}
