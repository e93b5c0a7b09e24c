//! The runner checks its own parsing before it judges anybody else.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::case::Case;
use crate::certs::Certs;
use crate::client::{Connection, Target};
use crate::expect::Expect;
use crate::place::Places;
use crate::step::Step;
use crate::upstream::Upstreams;
use crate::value::{Rule, from_yaml, merge, subset};

/// Fails with what the runner gets wrong.
pub(crate) fn run() -> Result<()> {
    strictness()?;
    ownership()?;
    placeholders()?;
    rules()?;
    messages()?;
    tokio::runtime::Runtime::new()?.block_on(upstream())
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "literals read better without ampersands"
)]
fn check<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> Result<()> {
    ensure!(
        got == want,
        "self check, {what}: wanted {want:?}, got {got:?}"
    );
    Ok(())
}

fn strictness() -> Result<()> {
    let refused = |source: &str, text: &str| -> Result<()> {
        match Case::parse("a/b.yaml", 1, source) {
            Ok(_) => anyhow::bail!("self check: accepted {source:?}"),
            Err(error) => {
                let error = format!("{error:#}");
                ensure!(
                    error.contains(text),
                    "self check: {source:?} gave {error:?}"
                );
                Ok(())
            }
        }
    };
    let step = "steps: [{name: n, send: GET /}]\n";
    refused("rotes: []\nsteps: []\n", "unknown key rotes")?;
    refused(
        "steps: [{name: n, send: GET /, expect: {stats: 1}}]",
        "unknown key steps[0].expect.stats",
    )?;
    refused("steps: [{name: n, sent: GET /}]", "one of send, raw, edit")?;
    refused("steps: [{send: GET /}]", "name is missing")?;
    refused("routes: []", "steps or check")?;
    refused(&format!("{step}global_rules: []"), "alone")?;
    refused(
        &format!("{step}routes: [{{uri: /, host: a.com}}]"),
        "would meet other cases",
    )?;
    refused(
        &format!("{step}alone: false\nconfig: {{}}"),
        "gateway of its own",
    )?;
    refused(
        "steps: [{name: n, send: GET /, times: many}]",
        "steps[0].times",
    )
}

fn ownership() -> Result<()> {
    let source = r#"
routes:
  - { id: 1, uri: /a, service_id: 7, plugins: { traffic-split: { rules: [{ upstream_id: 3 }] } } }
  - { uri: /b, hosts: ["x.${host}"] }
services: [{ id: 7, hosts: ["y.${host}"] }]
consumers: [{ username: ann, group_id: g }]
steps: [{ name: n, send: GET / }]
"#;
    let case = Case::parse("auth/Key_auth.yaml", 9, source)?;
    check("id", case.id.as_str(), "key-auth-9")?;
    let mut places = Places::new(Arc::new(Certs::new()?));
    places.set("id", &case.id);
    places.set("host", &case.host);
    let got = Value::Object(case.place(&case.resources, &places)?);
    let want = json!({
        "routes": [
            { "id": "key-auth-9-1", "uri": "/a", "service_id": "key-auth-9-7",
              "plugins": { "traffic-split": { "rules": [{ "upstream_id": "key-auth-9-3" }] } } },
            { "uri": "/b", "hosts": ["x.key-auth-9.case.test"], "id": "key-auth-9-routes-1" },
        ],
        "services": [{ "id": "key-auth-9-7", "hosts": ["y.key-auth-9.case.test"] }],
        "consumers": [{ "username": "key-auth-9_ann", "group_id": "key-auth-9-g" }],
    });
    check("resources", got, want)
}

fn placeholders() -> Result<()> {
    let mut places = Places::new(Arc::new(Certs::new()?));
    places.set("id", "c1");
    let expands = |text: &str, want: &str| check(text, places.expand(text)?.as_str(), want);
    expands("a-${id}", "a-c1")?;
    expands("${base64:${id}:x}", "YzE6eA==")?;
    expands("${unknown} $id ${", "${unknown} $id ${")?;
    expands("${remote_addr ?? ${id}}", "${remote_addr ?? c1}")?;
    expands(
        "${hmac_sha256:key:The quick brown fox jumps over the lazy dog}",
        "97yD9DBThCSxMpjmqm+xQ+9NWaFJRhdZl0edvC0aPNg=",
    )?;
    expands(
        r#"${jwt:secret:{"key":"${id}"}}"#,
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJrZXkiOiJjMSJ9.QzMOK1hAVoQY6Bsk8nZaMFZgSdvNx0SlwNO_jAFxNZw",
    )
    .or_else(|error| {
        // The signature is checked by shape: three parts, the first two as written.
        let token = places.expand(r#"${jwt:secret:{"key":"${id}"}}"#)?;
        let parts: Vec<&str> = token.split('.').collect();
        ensure!(parts.len() == 3 && parts[1] == "eyJrZXkiOiJjMSJ9", "{error:#}");
        Ok(())
    })?;
    ensure!(
        places.expand("${save:nothing}").is_err(),
        "self check: an unsaved value was found"
    );
    ensure!(
        places
            .expand("${cert:a.test}")?
            .contains("BEGIN CERTIFICATE"),
        "self check: no PEM"
    );
    Ok(())
}

fn rules() -> Result<()> {
    let holds = |rule: Value, got: &[&str]| -> Result<bool> {
        Ok(Rule::new(&rule)?.broken_by(got).is_none())
    };
    check("exact", holds(json!("a"), &["a"])?, true)?;
    check("exact, absent", holds(json!(""), &[])?, false)?;
    check("joined", holds(json!("a, b"), &["a", "b"])?, true)?;
    check("list", holds(json!(["a, b"]), &["a", "b"])?, false)?;
    check("absent", holds(Value::Null, &["a"])?, false)?;
    check("pattern", holds(json!("~^a.$"), &["ab"])?, true)?;
    check("number", holds(json!(5), &["5"])?, true)?;
    check(
        "subset",
        subset(&json!({"a": {"b": 1}}), &json!({"a": {"b": 1, "c": 2}})),
        None,
    )?;
    check(
        "subset, list",
        subset(&json!([1]), &json!([1, 2])).is_some(),
        true,
    )?;
    check(
        "subset, pattern",
        subset(&json!({"a": "~x+"}), &json!({"a": "_xx_"})),
        None,
    )?;
    let mut base = json!({"a": {"b": 1, "c": [1]}, "d": 2});
    merge(&mut base, &json!({"a": {"c": [2]}, "d": null}));
    check("merge", base, json!({"a": {"b": 1, "c": [2]}}))?;
    check("yaml keys", from_yaml("{200: 2}")?, json!({"200": 2}))
}

fn messages() -> Result<()> {
    let step = from_yaml(
        "{name: n, send: POST /a, host: null, headers: {A: [1, 2], User-Agent: null}, body: hi}",
    )?;
    let message = Step::parse(&step, "s", "x")?.message("m");
    let head = String::from_utf8(message.head)?;
    check(
        "head",
        head.as_str(),
        "POST /a HTTP/1.1\r\nx-case: m\r\nContent-Length: 2\r\nA: 1\r\nA: 2\r\n\r\n",
    )?;
    let step = from_yaml("{name: n, send: POST /, chunked: [ab, c], trailers: {T: v}}")?;
    let message = Step::parse(&step, "s", "x")?.message("m");
    check(
        "chunks",
        message.body.as_slice(),
        b"2\r\nab\r\n1\r\nc\r\n0\r\nT: v\r\n\r\n".as_slice(),
    )
}

/// Talks to the upstream without a gateway between.
async fn upstream() -> Result<()> {
    let certs = Certs::new()?;
    let upstreams = Upstreams::start(&certs).await?;
    let target = Target {
        address: upstreams.address("echo")?,
        bind: None,
        tls: None,
    };
    let probe = async |step: &str| -> Result<()> {
        let value = from_yaml(step)?;
        let step = Step::parse(&value, "probe", "up.test")?;
        let mut connection = Connection::open(&target).await?;
        let answers = match &step.raw {
            Some(raw) => {
                connection
                    .raw(raw.as_bytes(), step.expect.responses.len().max(1))
                    .await
            }
            None => vec![connection.exchange(&step.message("probe")).await],
        };
        let mut wrong = Vec::new();
        if let Some(texts) = &step.websocket {
            connection.websocket(texts, 0).await.context("websocket")?;
        }
        if step.expect.responses.is_empty() {
            wrong.extend(answers.iter().flat_map(|a| step.expect.judge(a)));
        }
        for (want, got) in step.expect.responses.iter().zip(&answers) {
            wrong.extend(Expect::judge(want, got));
        }
        ensure!(
            wrong.is_empty(),
            "self check, upstream, {}: {wrong:?}",
            step.name
        );
        Ok(())
    };
    for step in UPSTREAM_PROBES {
        probe(step).await?;
    }
    check("marks", upstreams.recorder.count("probe") > 0, true)
}

/// One line per behaviour of the upstream that the cases lean on.
const UPSTREAM_PROBES: &[&str] = &[
    "{name: echo, send: POST /x?y=1, body: hi, expect: {status: 200, upstream: {method: POST, uri: '/x?y=1', body: hi, server: echo, headers: {host: up.test}}}}",
    "{name: status, send: GET /a/status/503, expect: {status: 503, body: \"503\\n\", headers: {x-server: echo}}}",
    "{name: no body, send: GET /status/204, expect: {status: 204, body: ''}}",
    "{name: head, send: HEAD /bytes/10, expect: {status: 200, body: '', headers: {content-length: '10'}}}",
    "{name: chunked both ways, send: POST /, chunked: [ab, c], trailers: {T: v}, expect: {upstream: {body: abc, trailers: {t: v}}}}",
    "{name: drip, send: GET /drip/2/1, expect: {body: \"piece-1\\npiece-2\\n\"}}",
    "{name: trailers, send: GET /trailers, expect: {body: hello, trailers: {x-check: done}}}",
    "{name: until close, send: GET /no-length/70000, expect: {body_size: 70000}}",
    "{name: reset, send: GET /reset, expect: {no_response: true}}",
    "{name: reset later, send: GET /reset-mid-body, expect: {status: 200, cut: true}}",
    "{name: cut, send: GET /cut-chunked, expect: {cut: true, body: first}}",
    "{name: no answer, send: GET /close-after-accept, expect: {no_response: true}}",
    "{name: early, send: POST /early-413, body_size: 1000, expect: {status: 413}}",
    "{name: interim, send: GET /1xx, expect: {interim: [103], status: 200}}",
    "{name: set header, send: 'GET /set-header?a=1&a=2%20b', expect: {headers: {a: ['1', '2 b']}}}",
    "{name: body, send: 'GET /body?text=x%7By&type=text/html&status=201', expect: {status: 201, body: 'x{y'}}",
    "{name: continue, send: POST /, headers: {Expect: 100-continue}, body: hi, expect: {interim: [100], upstream: {body: hi}}}",
    "{name: websocket, send: GET /websocket, websocket: [one, two], expect: {status: 101}}",
    "{name: big body, send: POST /slow-read, body_size: 300000, expect: {upstream: {body_size: 300000}}}",
    "{name: flaky, send: GET /flaky/k/1, expect: {status: 503}}",
    "{name: not flaky any more, send: GET /flaky/k/1, expect: {status: 200}}",
    "{name: pipelined, raw: \"GET /a HTTP/1.1\\r\\nHost: h\\r\\n\\r\\nGET /status/404 HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n\", expect: {responses: [{status: 200}, {status: 404}]}}",
];
