//! Running the steps of a case against a live gateway.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::case::Case;
use crate::client::{Answer, Connection, Target, Tls, http2};
use crate::expect::{Expect, rules, shown};
use crate::gateway::POLL;
use crate::live::Live;
use crate::place::Places;
use crate::step::{Save, Step};
use crate::upstream::Upstreams;

/// Loggers send in the background, access logs are buffered: this long is waited for them.
const LATER: Duration = Duration::from_secs(6);

/// The result of one step.
pub(crate) struct Outcome {
    /// `FILE: STEP`.
    pub(crate) name: String,
    /// Empty when all is well.
    pub(crate) wrong: Vec<String>,
}

/// A case being run.
pub(crate) struct Run<'a> {
    pub(crate) case: &'a Case,
    pub(crate) live: Arc<Live>,
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) places: Places,
}

impl Run<'_> {
    /// All steps in order; only those for which `wanted` holds are reported.
    pub(crate) async fn steps(mut self) -> Vec<Outcome> {
        let mut out = Vec::new();
        let mut may_be_rejected = false;
        for number in 0..self.case.steps.len() {
            let (name, mut wrong) = match self.step(number).await {
                Ok((step, wrong)) => {
                    may_be_rejected |= !step.reject.is_empty();
                    (step.name, wrong)
                }
                Err(error) => (format!("step {number}"), vec![format!("{error:#}")]),
            };
            if !may_be_rejected {
                match self.rejected().await {
                    Ok(list) => wrong.extend(list.iter().map(|r| format!("rejected: {r}"))),
                    Err(error) => wrong.push(format!("{error:#}")),
                }
            }
            if !wrong.is_empty() {
                let key = if self.case.alone { "" } else { &self.case.id };
                let lines = self.live.gateway.lines_with(key);
                let last = lines.iter().rev().take(8).rev();
                wrong.extend(last.map(|line| format!("log: {line}")));
            }
            out.push(Outcome { name, wrong });
        }
        out
    }

    async fn rejected(&self) -> Result<Vec<String>> {
        let id = (!self.case.alone).then_some(self.case.id.as_str());
        self.live.rejected(id).await
    }

    async fn step(&mut self, number: usize) -> Result<(Step, Vec<String>)> {
        let mark = format!("{}.{number}", self.case.id);
        self.places.set("case", &mark);
        let raw = self.case.steps.get(number).context("no such step")?;
        let path = format!("steps[{number}]");
        let parse = |places: &Places| Step::parse(&places.fill(raw)?, &path, &self.case.host);
        let mut step = parse(&self.places)?;
        if step.edit.is_some()
            && let Some(Value::Object(lists)) = raw.get("edit")
        {
            let lists = self.case.place(lists, &self.places)?;
            self.live
                .change(vec![(self.case.id.clone(), lists)])
                .await?;
        }
        let mut wrong = Vec::new();
        if !step.reject.is_empty() {
            let rejected = self.rejected().await?.join("\n");
            let missing = step
                .reject
                .iter()
                .filter(|text| !rejected.contains(text.as_str()));
            wrong.extend(missing.map(|text| format!("not rejected with {text:?}: {rejected:?}")));
        }
        if !step.sends {
            return Ok((step, wrong));
        }
        let until = Instant::now() + step.within.unwrap_or_default();
        let mut attempt = 0_u32;
        loop {
            let mark = if attempt == 0 {
                mark.clone()
            } else {
                format!("{mark}.{attempt}")
            };
            let found = self.attempt(&step, &mark).await?;
            attempt += 1;
            if found.is_empty() || Instant::now() >= until {
                if !found.is_empty() {
                    wrong.push(format!("request: {}", step.summary()));
                }
                wrong.extend(found);
                return Ok((step, wrong));
            }
            tokio::time::sleep(POLL).await;
            step = parse(&self.places)?;
        }
    }

    /// Sends once (or `times`) and compares.
    async fn attempt(&mut self, step: &Step, mark: &str) -> Result<Vec<String>> {
        let before = self.upstreams.recorder.count(mark);
        let (answers, mut wrong) = self.send(step, mark).await?;
        let expect = &step.expect;
        if expect.responses.is_empty() {
            for answer in &answers {
                let found = expect.judge(answer);
                if !found.is_empty() {
                    wrong.extend(found);
                    wrong.push(described(answer));
                    break;
                }
            }
        } else {
            for (at, want) in expect.responses.iter().enumerate() {
                let missing = Answer {
                    error: Some("none came".into()),
                    ..Answer::default()
                };
                let answer = answers.get(at).unwrap_or(&missing);
                let found = want.judge(answer);
                if !found.is_empty() {
                    wrong.extend(found.iter().map(|w| format!("answer {}: {w}", at + 1)));
                    wrong.push(described(answer));
                }
            }
        }
        spread(expect, &answers, &mut wrong);
        let arrived = self.upstreams.recorder.count(mark) - before;
        if expect.no_upstream && arrived > 0 {
            wrong.push(format!("the request reached an upstream {arrived} times"));
        }
        if let Some(tries) = expect.tries
            && tries != arrived
        {
            wrong.push(format!("tries: wanted {tries}, got {arrived}"));
        }
        wrong.extend(self.later(expect, mark).await);
        if let Some(answer) = answers.last() {
            for save in &step.save {
                match saved(save, answer) {
                    Some(value) => self.places.set(format!("save:{}", save.name), value),
                    None => wrong.push(format!("nothing to save as {}", save.name)),
                }
            }
        }
        Ok(wrong)
    }

    async fn send(&self, step: &Step, mark: &str) -> Result<(Vec<Answer>, Vec<String>)> {
        let target = self.target(step)?;
        if step.parallel {
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..step.times {
                let (target, message) = (target.clone(), step.message(mark));
                tasks.spawn(async move {
                    match Connection::open(&target).await {
                        Ok(mut connection) => connection.exchange(&message).await,
                        Err(error) => Answer::failed(&error),
                    }
                });
            }
            return Ok((tasks.join_all().await, Vec::new()));
        }
        let (mut answers, mut wrong) = (Vec::new(), Vec::new());
        if step.version == "2" {
            for _ in 0..step.times {
                answers.push(http2::exchange(&target, step.http2(mark)?).await);
            }
            return Ok((answers, wrong));
        }
        let mut connection = None;
        for _ in 0..step.times {
            if connection.is_none() || !step.keep {
                match Connection::open(&target).await {
                    Ok(open) => connection = Some(open),
                    Err(error) => {
                        answers.push(Answer::failed(&error));
                        continue;
                    }
                }
            }
            let Some(connection) = &mut connection else {
                bail!("no connection")
            };
            if let Some(raw) = &step.raw {
                let count = step.expect.responses.len().max(1);
                answers.extend(connection.raw(raw.as_bytes(), count).await);
            } else {
                answers.push(connection.exchange(&step.message(mark)).await);
            }
        }
        if let Some(connection) = &mut connection {
            wrong.extend(after(step, connection).await);
        }
        Ok((answers, wrong))
    }

    fn target(&self, step: &Step) -> Result<Target> {
        let address = match step.to.as_str() {
            "echo" => self.upstreams.address("echo")?,
            listener => self.live.gateway.address(listener)?,
        };
        let wants_tls = step.to == "https" || step.tls.is_some();
        let tls = wants_tls.then(|| -> Result<Tls> {
            let choice = step.tls.as_ref();
            let mut alpn = choice.map(|t| t.alpn.clone()).unwrap_or_default();
            if alpn.is_empty() && step.version == "2" {
                alpn.push("h2".to_owned());
            }
            let cert = choice.and_then(|t| t.cert.as_deref());
            Ok(Tls {
                sni: choice.map_or_else(|| step.host.clone(), |t| t.sni.clone()),
                alpn,
                cert: cert
                    .map(|names| self.places.certs().pair(names))
                    .transpose()?,
                version: choice.and_then(|t| t.version),
            })
        });
        Ok(Target {
            address,
            bind: step.bind,
            tls: tls.transpose()?,
        })
    }

    /// What shows a little after the answer.
    async fn later(&self, expect: &Expect, mark: &str) -> Vec<String> {
        let until = Instant::now() + LATER;
        loop {
            let wrong = self.traces(expect, mark);
            if wrong.is_empty() || Instant::now() >= until {
                return wrong;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn traces(&self, expect: &Expect, mark: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        for want in &expect.received {
            let found = self.upstreams.recorder.find(|seen| want.concerns(seen));
            let good = found
                .iter()
                .filter(|seen| want.judge(seen).is_empty())
                .count() as u64;
            if want.count.map_or(good == 0, |n| n != good) {
                wrong.push(format!("received {good} times: {want:?}"));
                wrong.extend(found.last().map(|seen| want.judge(seen).join("; ")));
            }
        }
        for uri in &expect.not_received {
            if !self
                .upstreams
                .recorder
                .find(|seen| seen.request.target == *uri)
                .is_empty()
            {
                wrong.push(format!("an upstream received {uri}"));
            }
        }
        let gateway = &self.live.gateway;
        if !expect.log.is_empty() {
            let log = gateway.access_log();
            let parse = |line: &str| serde_json::from_str::<Value>(line).ok();
            let ours = |line: &Value| line.get("mark").and_then(Value::as_str) == Some(mark);
            match log.lines().rev().filter_map(parse).find(ours) {
                None => wrong.push(format!("no access log line for {mark}")),
                Some(Value::Object(line)) => {
                    let got: Vec<_> = line
                        .iter()
                        .filter(|(_, v)| !matches!(v.as_str(), Some("" | "-")))
                        .map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned()))
                        .collect();
                    rules(&mut wrong, "log field", &expect.log, &got);
                }
                Some(_) => {}
            }
        }
        for re in &expect.log_like {
            if !re.is_match(&gateway.access_log()).unwrap_or(false) {
                wrong.push(format!("access log: nothing matches {re}"));
            }
        }
        for re in &expect.stderr_like {
            let lines = gateway.lines_with("");
            if !lines.iter().any(|line| re.is_match(line).unwrap_or(false)) {
                wrong.push(format!("log: nothing matches {re}"));
            }
        }
        wrong
    }
}

/// What the connection must do after the answer.
async fn after(step: &Step, connection: &mut Connection) -> Option<String> {
    if let Some(texts) = &step.websocket
        && step.expect.status.is_none_or(|s| s == 101)
        && let Err(error) = connection.websocket(texts, 0).await
    {
        return Some(format!("websocket: {error:#}"));
    }
    match step.expect.closed {
        None => None,
        Some(true) => connection.closes().await.err(),
        Some(false) => {
            let probe = b"GET /still-open HTTP/1.1\r\nHost: open.test\r\n\r\n";
            let answer = connection.raw(probe, 1).await;
            let open = answer.first().is_some_and(|a| a.status.is_some());
            (!open).then(|| "the connection was closed".to_owned())
        }
    }
}

fn spread(expect: &Expect, answers: &[Answer], wrong: &mut Vec<String>) {
    let mut compare = |what: &str,
                       want: &Option<Vec<(String, u64)>>,
                       got: BTreeMap<String, u64>| {
        let Some(want) = want else { return };
        let want: BTreeMap<String, u64> = want.iter().filter(|(_, n)| *n > 0).cloned().collect();
        if want != got {
            wrong.push(format!("{what}: wanted {want:?}, got {got:?}"));
        }
    };
    let mut servers = BTreeMap::new();
    let mut statuses = BTreeMap::new();
    for answer in answers {
        *servers
            .entry(answer.server().unwrap_or("gateway").to_owned())
            .or_default() += 1;
        let status = answer
            .status
            .map_or_else(|| "none".to_owned(), |s| s.to_string());
        *statuses.entry(status).or_default() += 1;
    }
    compare("distribution", &expect.distribution, servers);
    compare("statuses", &expect.statuses, statuses);
}

fn saved(save: &Save, answer: &Answer) -> Option<String> {
    let source = match (&save.header, &save.json) {
        (Some(name), _) => answer.all(&name.to_ascii_lowercase()).join(", "),
        (None, Some(pointer)) => {
            let body: Value = serde_json::from_slice(&answer.body).ok()?;
            crate::value::text(body.pointer(pointer)?).ok()?
        }
        (None, None) => String::from_utf8_lossy(&answer.body).into_owned(),
    };
    let Some(re) = &save.like else {
        return Some(source);
    };
    let captures = re.captures(&source).ok()??;
    Some(
        captures
            .get(1)
            .or_else(|| captures.get(0))?
            .as_str()
            .to_owned(),
    )
}

fn described(answer: &Answer) -> String {
    let body = String::from_utf8_lossy(&answer.body);
    format!(
        "got: {:?} {:?} {:?}",
        answer.status,
        answer.headers,
        shown(&body)
    )
}
