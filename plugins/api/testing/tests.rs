use std::sync::Mutex;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::ctx::{Chunk, Ctx};
use crate::header::HeaderKey;
use crate::plugin::{Credential, Flow, Outcome, PluginError, Step};
use crate::reply::Reply;

#[derive(Deserialize, JsonSchema)]
struct Conf {
    #[schemars(range(max = 60))]
    #[serde(default)]
    delay: u64,
}

#[derive(Deserialize, JsonSchema)]
struct Key {
    #[schemars(length(min = 1))]
    key: String,
}

impl Credential for Key {
    const ATTRIBUTE: &'static str = "key";
    fn lookup(&self) -> &str {
        &self.key
    }
}

#[derive(Deserialize, JsonSchema)]
struct Meta {
    greeting: String,
}

/// Touches everything the harness offers.
struct Probe {
    delay: u64,
    greeting: String,
    seen: Arc<Mutex<u32>>,
    key: HeaderKey,
}

impl Plugin for Probe {
    const NAME: &'static str = "probe";
    const PRIORITY: i32 = 1;
    const PHASES: Phases = Phases::REWRITE
        .and(Phases::ACCESS)
        .and(Phases::HEADER_FILTER)
        .and(Phases::BODY_FILTER)
        .and(Phases::LOG);
    type Conf = Conf;

    fn build(conf: Conf, bx: &BuildCx<'_>) -> Result<Probe, Problems> {
        let greeting = bx
            .metadata::<Meta>()
            .map_or_else(String::new, |meta| meta.greeting);
        let seen = bx.state("seen", Mutex::default);
        Ok(Probe {
            delay: conf.delay,
            greeting,
            seen,
            key: HeaderKey::constant("X-Probe"),
        })
    }

    fn rewrite<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        let key = cx
            .header(&HeaderKey::constant("apikey"))
            .map(|key| String::from_utf8_lossy(key).into_owned());
        if let Some(key) = key {
            let Some(found) = cx.find_credential("probe", &key) else {
                return Ok(Step::Reply(
                    Reply::message(401, "no such key").because("bad key"),
                ));
            };
            cx.set_consumer(&found);
        }
        *cx.local::<u32>() = 7;
        cx.set_header(&self.key, "1");
        if cx.uri() == "/old" {
            cx.set_uri("/new path", Some("a=1"));
        }
        Ok(Step::Next)
    }

    fn access<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        if cx.uri() == "/fail" {
            return Err(PluginError::new("broken"));
        }
        if self.delay == 0 {
            return Ok(Step::Next);
        }
        let begun = cx.now();
        let sleep = cx.sleep(Duration::from_secs(self.delay));
        Ok(Step::Wait(Box::pin(async move {
            sleep.await;
            let waited = cx.now() - begun;
            cx.set_header(&self.key, waited.as_secs().to_string());
            Ok(Flow::Next)
        })))
    }

    fn header_filter(&self, cx: &mut Ctx<'_>) -> Result<(), PluginError> {
        let local = cx.get_local::<u32>().copied().unwrap_or(0);
        cx.append_resp_header(&self.key, format!("{}{local}", self.greeting));
        cx.will_resize_body();
        if cx.status() == 404 {
            cx.set_status(410);
        }
        Ok(())
    }

    fn body_filter(&self, chunk: &mut Chunk, _: &mut Ctx<'_>) -> Result<(), PluginError> {
        if &chunk.data[..] == b"poison" {
            return Err(PluginError::new("poisoned"));
        }
        let mut text = chunk.data.to_ascii_uppercase();
        if chunk.last {
            text.push(b'.');
        }
        chunk.data = text.into();
        Ok(())
    }

    fn log(&self, _: &mut Ctx<'_>) {
        *self.seen.lock().unwrap() += 1;
    }
}

const DEF: PluginDef = def::<Probe>().credential::<Key>().metadata::<Meta>();

#[test]
fn request_phases_run_in_order() {
    let run = run::<Probe>(json!({"delay": 3}))
        .from("192.0.2.1")
        .get("/old")
        .expect_next();
    assert_eq!(run.slept(), Duration::from_secs(3));
    assert_eq!(run.upstream_header("x-probe").as_deref(), Some("3"));
    assert_eq!(run.upstream_target(), "/new%20path?a=1");
    assert_eq!(run.upstream_method(), "GET");
    assert_eq!(run.upstream_host(), "gateway.test");
    assert_eq!(run.var("remote_addr").as_deref(), Some("192.0.2.1"));
    assert_eq!(run.var("route_id").as_deref(), Some("1"));
}

#[test]
fn consumers_are_found() {
    let start = || run_def(DEF, json!({})).consumer("jack", json!({"key": "k"}));
    let found = start().header("apikey", "k").get("/").expect_next();
    assert_eq!(found.consumer(), Some("jack"));
    assert_eq!(
        found.upstream_header("X-Consumer-Username").as_deref(),
        Some("jack")
    );
    let answer = start().header("apikey", "x").get("/").expect_reply(401);
    assert_eq!(answer.json(), json!({"message": "no such key"}));
    assert_eq!(answer.reason(), "bad key");
}

#[test]
fn responses_go_through_the_filters() {
    let mut run = run_def(DEF, json!({}))
        .metadata(json!({"greeting": "hi"}))
        .get("/")
        .expect_next();
    let answer = run.respond(
        404,
        &[("Content-Length", "2"), ("X-Probe", "a")],
        &["a", "b"],
    );
    assert_eq!((answer.status(), answer.text()), (410, "AB.".to_owned()));
    assert_eq!(answer.headers("x-probe"), ["a", "hi7"]);
    assert_eq!(answer.header("content-length"), None);
    assert_eq!(run.work().status, 410);

    let mut refused = run_def(DEF, json!({})).header("apikey", "x").get("/");
    let answer = refused.finish();
    assert_eq!(
        (answer.status(), answer.header("x-probe")),
        (401, Some("0".to_owned()))
    );
    assert_eq!(answer.text(), "{\"MESSAGE\":\"NO SUCH KEY\"}\n.");

    let mut run = run_def(DEF, json!({})).get("/").expect_next();
    let answer = run.respond(200, &[], &["a", "poison", "b"]);
    assert!(answer.is_cut());
    assert_eq!(
        (answer.text(), answer.errors()),
        ("A".to_owned(), &["poisoned".to_owned()][..])
    );
}

#[test]
fn failures_are_500() {
    let mut run = run::<Probe>(json!({})).get("/fail");
    assert_eq!(run.expect_error(), "broken");
    let answer = run.finish();
    assert_eq!((answer.status(), answer.is_stock()), (500, true));
}

#[test]
fn state_outlives_an_edit() {
    let first = run::<Probe>(json!({})).build();
    let _ = first
        .request()
        .get("/")
        .expect_next()
        .respond(200, &[], &[]);
    let second = first.edited(&json!({"delay": 1}));
    let begun = first.now();
    let _ = second
        .request()
        .get("/")
        .expect_next()
        .respond(200, &[], &[]);
    assert_eq!(second.now() - begun, Duration::from_secs(1));
    second.advance(Duration::from_secs(5));
    assert_eq!(first.now() - begun, Duration::from_secs(6));
    let seen = first
        .world
        .states
        .get(("routes/1", "probe", "seen"), Mutex::<u32>::default);
    assert_eq!(*seen.lock().unwrap(), 2);
}

#[test]
fn configurations_are_checked() {
    assert_eq!(
        build_error::<Probe>(json!({"delay": 61})),
        "delay: expected 61 to be at most 60"
    );
}
