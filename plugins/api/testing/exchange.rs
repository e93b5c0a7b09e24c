//! The phases, run one after the other as the proxy does.

use std::time::Duration;

use bytes::Bytes;

use super::Instance;
use super::answer::{Answer, parts};
use super::head::{Req, Resp};
use super::world::block_on;
use crate::ctx::{Chunk, Ctx};
use crate::phase::Phase;
use crate::plugin::{Flow, Outcome, PluginError, Step};
use crate::reply::{Body, Reply};
use crate::request::{Origin, Work};
use crate::var::{Lookup, Var};
use crate::view::{ReqView, RespView};

/// The identity of the plugin for its per-request values; any number will do.
const LINK: usize = 1;

/// A request after its request phases.
pub struct Run {
    instance: Instance,
    req: Req,
    work: Work,
    /// The head that the header filter saw.
    resp: Option<Resp>,
    outcome: Result<Flow, PluginError>,
    slept: Duration,
}

impl Run {
    pub(super) fn start(instance: Instance, req: Req, mut work: Work) -> Run {
        let before = instance.world.clock.slept();
        let mut outcome = Ok(Flow::Next);
        for phase in [Phase::Rewrite, Phase::Access, Phase::BeforeProxy] {
            if !instance.handler.phases().has(phase) {
                continue;
            }
            let mut cx = Ctx::new(&req, None, &mut work, &*instance.world);
            cx.enter(LINK);
            outcome = settle(match phase {
                Phase::Rewrite => instance.handler.rewrite(&mut cx),
                Phase::Access => instance.handler.access(&mut cx),
                _ => instance.handler.before_proxy(&mut cx),
            });
            work.tick = instance.world.clock.now();
            if !matches!(outcome, Ok(Flow::Next)) {
                break;
            }
        }
        let slept = instance.world.clock.slept() - before;
        Run {
            instance,
            req,
            work,
            resp: None,
            outcome,
            slept,
        }
    }

    /// The plugin let the request pass.
    #[track_caller]
    #[must_use]
    pub fn expect_next(self) -> Run {
        match &self.outcome {
            Ok(Flow::Next) => self,
            Ok(Flow::Reply(reply)) => {
                let answer = Answer::of(reply, &self.work);
                panic!(
                    "expected the request to pass, got {}: {}",
                    answer.status,
                    answer.text()
                )
            }
            Err(error) => panic!("expected the request to pass, the plugin failed: {error}"),
        }
    }

    /// Whether the plugin let the request pass. Fails the test when the plugin failed.
    #[track_caller]
    #[must_use]
    pub fn passed(&self) -> bool {
        match &self.outcome {
            Ok(flow) => matches!(flow, Flow::Next),
            Err(error) => panic!("the plugin failed: {error}"),
        }
    }

    /// The plugin answered with this status. Header and body filters have not run; see
    /// [`finish`](Run::finish).
    #[track_caller]
    pub fn expect_reply(&self, status: u16) -> Answer {
        let answer = match &self.outcome {
            Ok(Flow::Reply(reply)) => Answer::of(reply, &self.work),
            Err(PluginError {
                reply: Some(reply), ..
            }) => Answer::of(reply, &self.work),
            Ok(Flow::Next) => panic!("expected {status}, the request passed"),
            Err(error) => panic!("expected {status}, the plugin failed: {error}"),
        };
        let text = answer.text();
        assert_eq!(answer.status, status, "{text}");
        answer
    }

    /// The plugin failed; its text for the log.
    #[track_caller]
    pub fn expect_error(&self) -> &str {
        match &self.outcome {
            Err(error) => &error.message,
            Ok(_) => panic!("expected the plugin to fail"),
        }
    }

    /// How long the plugin slept.
    pub fn slept(&self) -> Duration {
        self.slept
    }

    /// The first value of a header as the upstream gets it.
    pub fn upstream_header(&self, name: &str) -> Option<String> {
        self.upstream_headers(name).into_iter().next()
    }

    /// Every value of a header as the upstream gets it.
    pub fn upstream_headers(&self, name: &str) -> Vec<String> {
        self.req
            .fields
            .edited(&self.work.request.headers)
            .texts(name)
    }

    /// Path and query as the upstream gets them.
    pub fn upstream_target(&self) -> String {
        let raw = self.req.target();
        let target = match &self.work.request.target {
            Some(target) => String::from_utf8_lossy(target),
            None => return String::from_utf8_lossy(&self.work.target.upstream_target(raw)).into(),
        };
        target.into_owned()
    }

    /// The method as the upstream gets it.
    pub fn upstream_method(&self) -> String {
        match &self.work.request.method {
            Some(method) => String::from_utf8_lossy(method).into_owned(),
            None => self.req.method.clone(),
        }
    }

    /// The `Host` as the upstream gets it with `pass_host: pass`.
    pub fn upstream_host(&self) -> String {
        let host = self
            .work
            .request
            .host
            .as_deref()
            .unwrap_or(self.req.authority());
        String::from_utf8_lossy(host).into_owned()
    }

    /// The consumer the plugin attached.
    pub fn consumer(&self) -> Option<&str> {
        self.work
            .consumer
            .as_ref()
            .map(|found| &*found.consumer.username)
    }

    /// The value of a variable now, as text.
    pub fn var(&self, name: &str) -> Option<String> {
        self.lookup()
            .into_var(&Var::parse(name))
            .map(|value| value.as_text().into_owned())
    }

    /// All variables as they are now; those of the response once there is one.
    pub fn lookup(&self) -> Lookup<'_> {
        let resp = self.resp.as_ref().map(|resp| resp as &dyn RespView);
        Lookup {
            req: &self.req,
            resp,
            work: &self.work,
        }
    }

    /// Everything that is known about the request.
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// Changes what is known, between the request and the response.
    pub fn work_mut(&mut self) -> &mut Work {
        &mut self.work
    }

    /// Plays the upstream's answer: header filter, body filter on each chunk (the last chunk also
    /// ends the body), log. Fails the test when the plugin had answered itself.
    #[track_caller]
    pub fn respond(&mut self, status: u16, headers: &[(&str, &str)], chunks: &[&str]) -> Answer {
        let chunks: Vec<Bytes> = chunks
            .iter()
            .map(|chunk| Bytes::copy_from_slice(chunk.as_bytes()))
            .collect();
        self.respond_bytes(status, headers, &chunks)
    }

    /// The same with bytes.
    #[track_caller]
    pub fn respond_bytes(
        &mut self,
        status: u16,
        headers: &[(&str, &str)],
        chunks: &[Bytes],
    ) -> Answer {
        match &self.outcome {
            Ok(Flow::Next) => {}
            Ok(Flow::Reply(reply)) => panic!("the plugin answered {} itself", reply.status),
            Err(error) => panic!("the plugin failed: {error}"),
        }
        let mut resp = Resp {
            status,
            ..Resp::default()
        };
        for (name, value) in headers {
            resp.fields.add(name, value.as_bytes());
        }
        self.respond_with(resp, chunks, Origin::Upstream)
    }

    /// Takes the plugin's own answer, or the 500 of its failure, through the response phases.
    #[track_caller]
    pub fn finish(&mut self) -> Answer {
        let stock;
        let reply = match &self.outcome {
            Ok(Flow::Reply(reply)) => reply,
            Err(PluginError {
                reply: Some(reply), ..
            }) => reply,
            Err(_) => {
                stock = Reply::status(500);
                &stock
            }
            Ok(Flow::Next) => panic!("the request passed; there is no answer to finish"),
        };
        let (head, body) = parts(reply);
        let (stock, reason) = (matches!(reply.body, Body::Stock), reply.reason);
        self.work.reason = reason;
        let answer = self.respond_with(head, &[body], Origin::Gateway);
        Answer {
            stock,
            reason,
            ..answer
        }
    }

    fn respond_with(&mut self, resp: Resp, chunks: &[Bytes], origin: Origin) -> Answer {
        let Run {
            instance,
            req,
            work,
            ..
        } = self;
        let resp = self.resp.insert(resp);
        let handler = &instance.handler;
        let phases = handler.phases();
        let mut errors = Vec::new();
        let mut cut = false;
        work.origin = origin;
        if phases.has(Phase::HeaderFilter) {
            let mut cx = Ctx::new(req, Some(resp), work, &*instance.world);
            cx.enter(LINK);
            if let Err(error) = handler.header_filter(&mut cx) {
                errors.push(error.message);
            }
        }
        work.status = work.response.status.unwrap_or(resp.status);
        let mut fields = resp.fields.edited(&work.response.headers);
        if work.response.resize {
            fields.remove("content-length");
        }
        let mut body = Vec::new();
        let end = [Bytes::new()];
        let chunks = if chunks.is_empty() { &end } else { chunks };
        for (at, data) in chunks.iter().enumerate() {
            let mut chunk = Chunk {
                data: data.clone(),
                last: at + 1 == chunks.len(),
            };
            if phases.has(Phase::BodyFilter) {
                let mut cx = Ctx::new(req, Some(resp), work, &*instance.world);
                cx.enter(LINK);
                if let Err(error) = handler.body_filter(&mut chunk, &mut cx) {
                    errors.push(error.message);
                    cut = true;
                    break;
                }
            }
            body.extend_from_slice(&chunk.data);
            work.sent_body += chunk.data.len() as u64;
        }
        work.sent_bytes = work.sent_body;
        work.finished = Some(instance.world.clock.now());
        if phases.has(Phase::Log) {
            let mut cx = Ctx::new(req, Some(resp), work, &*instance.world);
            cx.enter(LINK);
            handler.log(&mut cx);
        }
        let status = work.status;
        let body = body.into();
        Answer {
            status,
            fields,
            body,
            stock: false,
            reason: "",
            errors,
            cut,
        }
    }
}

fn settle(outcome: Outcome<'_>) -> Result<Flow, PluginError> {
    match outcome? {
        Step::Next => Ok(Flow::Next),
        Step::Reply(reply) => Ok(Flow::Reply(reply)),
        Step::Wait(future) => block_on(future),
    }
}
